//! Shared memory: a ring per direction and pair of workers, in the receiver's segment.
//!
//! `ring` is the lock-free queue, `area` its larger data area, `inbox` the receiver's segment with its rings, `outbox` a
//! sender's end of one ring in a peer's segment, `share` the account of long messages that both sides
//! copy. A worker reaches itself the same way.

pub mod area;
pub mod inbox;
pub mod order;
pub mod outbox;
pub mod ring;
pub mod share;

use crate::sys::machine::Place;
use crate::sys::segment::{self, SegmentId};
use crate::sys::{lifeline, named, sysv};

/// Where a worker's inbox is: what peers need to send to it and to see whether it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Locator {
    /// PID namespace in which `id` counts.
    pub pid_ns: u32,
    /// IPC namespace in which a System V number counts; 0 if the memory has a name.
    pub ipc_ns: u32,
    /// A file that the owner has open as long as it lives.
    pub id: SegmentId,
    /// What the memory is found by, see [`Kind`].
    pub key: u64,
    /// Where the owner holds the lock of the key while it lives ([`lifeline::place`]); 0 if it does not.
    pub lifeline: u32,
}

/// What an inbox is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A System V block: its number is the low half of the key; the high half, not 0, is written in it.
    Block,
    /// A file in /dev/shm that is named after the key.
    Named,
    /// The file that says that the owner lives; the key is 0.
    File,
}

/// Who sends through a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// The sending worker's identity.
    pub uid: u64,
    /// Its own inbox, for answers.
    pub inbox: Locator,
}

impl Locator {
    /// What the inbox is made of.
    pub fn kind(&self) -> Kind {
        match (self.key, self.ipc_ns) {
            (0, _) => Kind::File,
            (_, 0) => Kind::Named,
            _ => Kind::Block,
        }
    }

    /// Whether a process at `here` can open the inbox, as far as namespaces go.
    pub fn reachable_from(&self, here: Place) -> bool {
        match self.kind() {
            Kind::Block => self.ipc_ns == here.ipc_ns,
            Kind::Named => true,
            Kind::File => self.pid_ns == here.pid_ns,
        }
    }

    /// Whether it is another user's: neither side may map what is the other's, not even root. Both see the same, so that
    /// they choose the same way to each other. A look-up.
    pub fn is_foreign(&self) -> bool {
        match self.kind() {
            Kind::Block => sysv::is_foreign(self.key as u32),
            Kind::Named => named::is_foreign(self.key),
            Kind::File => segment::is_foreign(self.id),
        }
    }

    /// The owner's process, as it is called here, if it can be seen.
    pub fn process(&self, here: Place) -> Option<u32> {
        if self.pid_ns == here.pid_ns {
            return Some(self.id.pid);
        }
        match self.kind() {
            Kind::Block => sysv::creator(self.key as u32),
            Kind::Named | Kind::File => None,
        }
    }

    /// Whether the owner's lock is free. Not known where its place is another one than ours.
    fn has_let_go(&self) -> bool {
        self.lifeline != 0 && self.lifeline == lifeline::place() && !lifeline::is_held(self.key)
    }

    /// Whether its owner is gone, as far as can be seen from `here`. A file system look-up.
    pub fn is_dead(&self, here: Place) -> bool {
        if self.pid_ns == here.pid_ns {
            return !segment::is_alive(self.id);
        }
        match self.kind() {
            Kind::Block => self.has_let_go() || sysv::creator_alive(self.key as u32) == Some(false),
            Kind::Named => !named::is_alive(self.key),
            Kind::File => false,
        }
    }
}
