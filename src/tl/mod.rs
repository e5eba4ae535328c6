//! Transports: how bytes get from one worker to another. They do not depend on matching or on requests.

pub mod cm;
pub mod cm_conn;
pub mod ib;
pub mod shm;
pub mod tcp;
pub mod tofu;
mod token;

use shm::outbox::Outbox;
pub use token::Token;

/// The transport to a peer, with its state. The sending thread holds the peer's lock, so that one thread at a time
/// sends.
pub enum Lane {
    /// A ring in the peer's shared memory.
    Shm(Box<Outbox>),
    /// The sending half of a connection between two queue pairs.
    Ib(Box<ib::sender::IbSender>),
    /// A ring in the peer's memory, written by the Tofu interconnect.
    Tofu(Box<tofu::sender::TofuSender>),
    /// The sending half of a TCP connection.
    Tcp(Box<tcp::sender::TcpSender>),
}

impl Lane {
    /// Whether everything that was accepted has left this process; whether it has arrived, where the transport reports
    /// arrival.
    pub fn is_drained(&self) -> bool {
        match self {
            // The contents of the ring are in the receiver's memory.
            Lane::Shm(_) => true,
            Lane::Ib(sender) => sender.is_drained(),
            Lane::Tofu(sender) => sender.is_drained(),
            Lane::Tcp(sender) => sender.is_drained(),
        }
    }

    /// [`is_drained`](Self::is_drained) for a caller that waits for it: also posts what the transport needs to get
    /// there.
    pub fn drain(&mut self) -> bool {
        match self {
            Lane::Ib(sender) => sender.drain(),
            Lane::Tofu(sender) => sender.drain(),
            Lane::Shm(_) | Lane::Tcp(_) => self.is_drained(),
        }
    }

    /// Reports `owner` as complete when all that was accepted so far has arrived, whatever is accepted afterwards.
    /// False: there is nothing to wait for, or this transport does not report arrival.
    pub fn flush_marker(&mut self, owner: Token) -> bool {
        match self {
            Lane::Ib(sender) => {
                let can = sender.can_flush_marker();
                if can {
                    sender.flush_marker(owner);
                }
                can
            }
            Lane::Tofu(sender) => sender.flush_marker(owner),
            Lane::Shm(_) | Lane::Tcp(_) => false,
        }
    }
}

/// Where a worker is to be connected to that cannot be reached by shared memory.
#[derive(Clone, Debug)]
pub enum LaneTarget {
    Ib(ib::IbTarget),
    Tofu(tofu::TofuTarget),
    Tcp(tcp::TcpTarget),
}
