//! Transports: how bytes get from one worker to another. They know nothing of matching or requests.

pub mod shm;
pub mod tcp;
pub mod ib;
pub mod tofu;
pub mod cm;
pub mod cm_conn;

use shm::outbox::Outbox;
use std::ffi::c_void;

/// The way from a worker to a peer. Whoever sends holds the peer's lock, so that one thread at a time does.
pub enum Lane {
    /// A ring in the peer's shared memory.
    Shm(Box<Outbox>),
    /// The sending half of a connection between two queue pairs.
    Ib(Box<ib::sender::IbSender>),
    /// A ring in the peer's memory, written by the interconnect.
    Tofu(Box<tofu::sender::TofuSender>),
    /// The sending half of a connection.
    Tcp(Box<tcp::sender::TcpSender>),
}

impl Lane {
    /// Whether everything that was accepted has left this process; has arrived, where the transport can tell.
    pub fn is_drained(&self) -> bool {
        match self {
            // What is in the ring is in the receiver's memory.
            Lane::Shm(_) => true,
            Lane::Ib(sender) => sender.is_drained(),
            Lane::Tofu(sender) => sender.is_drained(),
            Lane::Tcp(sender) => sender.is_drained(),
        }
    }

    /// The same, for somebody who waits for it: what can be done for it is.
    pub fn drain(&mut self) -> bool {
        match self {
            Lane::Ib(sender) => sender.drain(),
            Lane::Tofu(sender) => sender.drain(),
            Lane::Shm(_) | Lane::Tcp(_) => self.is_drained(),
        }
    }

    /// Has `owner` told when all that was accepted has arrived, whatever is accepted afterwards. False: there is
    /// nothing to wait for, or this lane does not tell.
    pub fn mark(&mut self, owner: *mut c_void) -> bool {
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

/// Where a worker is to be connected to that shared memory does not lead to.
#[derive(Clone, Debug)]
pub enum LaneTarget {
    Ib(ib::IbTarget),
    Tofu(tofu::TofuTarget),
    Tcp(tcp::TcpTarget),
}
