//! Transports: how bytes get from one worker to another. They know nothing of matching or requests.

pub mod shm;
pub mod tcp;

use shm::outbox::Outbox;
use tcp::sender::Sender;

/// The way from a worker to a peer. Whoever sends holds the peer's lock, so that one thread at a time does.
pub enum Lane {
    /// A ring in the peer's shared memory.
    Shm(Box<Outbox>),
    /// The sending half of a connection.
    Tcp(Box<Sender>),
}

impl Lane {
    /// Whether everything that was accepted has left this process.
    pub fn is_drained(&self) -> bool {
        match self {
            // What is in the ring is in the receiver's memory.
            Lane::Shm(_) => true,
            Lane::Tcp(sender) => sender.is_drained(),
        }
    }
}
