//! Shared memory: a ring per direction and pair of workers, in the receiver's segment.
//!
//! `ring` is the lock-free queue, `big_buf` its larger data area, `close` the word by which its ends agree that it
//! goes, `inbox` the receiver's segment with its rings, `outbox` a sender's end of one ring in a peer's segment,
//! `chunk_board` the account of long messages that both sides copy. A worker reaches itself the same way.

pub mod big_buf;
pub mod close;
pub mod inbox;
mod memory;
pub mod order;
pub mod outbox;
pub mod ring;
pub mod chunk_board;
mod space;

use crate::sys::host::HostId;
use crate::sys::memfd::{self, MemfdId};
use crate::sys::{liveness_lock, posix_shm, sysv};

/// Where a worker's inbox is: what peers need to send to it and to see whether it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboxLocator {
    /// PID namespace in which `id` counts.
    pub pid_ns: u32,
    /// IPC namespace in which a System V number counts; 0 if the memory has a name.
    pub ipc_ns: u32,
    /// A file that the owner has open as long as it lives.
    pub id: MemfdId,
    /// What the memory is found by, see [`InboxKind`].
    pub key: u64,
    /// Where the owner holds the lock of the key while it lives ([`liveness_lock::place`]); 0 if it does not.
    pub lifeline: u32,
}

/// What an inbox is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboxKind {
    /// A System V block: its number is the low half of the key; the high half, not 0, is written in it.
    Block,
    /// A file in /dev/shm that is named after the key.
    Named,
    /// The file that says that the owner lives; the key is 0.
    File,
}

/// Who sends through a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingOwner {
    /// The sending worker's identity.
    pub uid: u64,
    /// Its own inbox, for answers.
    pub inbox: InboxLocator,
}

impl InboxLocator {
    /// What the inbox is made of.
    pub fn kind(&self) -> InboxKind {
        match (self.key, self.ipc_ns) {
            (0, _) => InboxKind::File,
            (_, 0) => InboxKind::Named,
            _ => InboxKind::Block,
        }
    }

    /// Whether a process at `here` can open the inbox, as far as namespaces go.
    pub fn reachable_from(&self, here: HostId) -> bool {
        match self.kind() {
            InboxKind::Block => self.ipc_ns == here.ipc_ns,
            InboxKind::Named => true,
            InboxKind::File => self.pid_ns == here.pid_ns,
        }
    }

    /// Whether it is another user's: neither side may map what is the other's, not even root. Both see the same, so
    /// that they choose the same way to each other. A look-up.
    pub fn is_foreign(&self) -> bool {
        match self.kind() {
            InboxKind::Block => sysv::is_foreign(self.key as u32),
            InboxKind::Named => posix_shm::is_foreign(self.key),
            InboxKind::File => memfd::is_foreign(self.id),
        }
    }

    /// The owner's process, as it is called here, if it can be seen.
    pub fn process(&self, here: HostId) -> Option<u32> {
        if self.pid_ns == here.pid_ns {
            return Some(self.id.pid);
        }
        match self.kind() {
            InboxKind::Block => sysv::creator(self.key as u32),
            InboxKind::Named | InboxKind::File => None,
        }
    }

    /// Whether the owner's lock is free. Not known where its place is another one than ours.
    fn has_let_go(&self) -> bool {
        self.lifeline != 0
            && self.lifeline == liveness_lock::place()
            && !liveness_lock::is_held(self.key)
    }

    /// Whether the owner, in our PID namespace, still uses the memory, though the file that says that it lives is
    /// closed: programs that close all descriptors, as daemons do, keep the memory. A program that is executed does not
    /// have it; a worker that is destroyed marks it, because other workers of its process can have it mapped. False for
    /// [`InboxKind::File`], whose memory cannot be opened any more.
    fn is_used_by_owner(&self) -> bool {
        let owner = self.id.pid;
        let mapped = match self.kind() {
            InboxKind::Block => sysv::is_attached_by(self.key as u32, owner),
            InboxKind::Named => posix_shm::is_mapped_by(self.key, owner),
            InboxKind::File => false,
        };
        mapped && memory::Theirs::open(*self).is_ok()
    }

    /// Whether its owner is gone, as far as can be seen from `here`. A file system look-up; a longer one where the
    /// owner closed its descriptors or is gone.
    pub fn is_dead(&self, here: HostId) -> bool {
        if self.pid_ns == here.pid_ns {
            return !memfd::is_alive(self.id) && !self.is_used_by_owner();
        }
        match self.kind() {
            InboxKind::Block => {
                self.has_let_go() || sysv::creator_alive(self.key as u32) == Some(false)
            }
            InboxKind::Named => !posix_shm::is_alive(self.key),
            InboxKind::File => false,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sys::host;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    #[test]
    fn an_owner_without_its_descriptors_lives_until_it_says_otherwise() {
        let inbox = inbox::Inbox::create(false).unwrap();
        let (at, here) = (inbox.locator(), host::place());
        assert_eq!(
            at.kind(),
            InboxKind::Block,
            "System V memory cannot be had here"
        );
        // As of another worker of the process, which stays.
        let other = memory::Theirs::open(at).unwrap();
        // Another file takes the descriptor's place, which stays open for the inbox to close.
        let null = File::open("/dev/null").unwrap();
        // SAFETY: no memory involved; the descriptor is the inbox's, which reads and writes nothing by it.
        unsafe { libc::dup2(null.as_raw_fd(), at.id.fd as i32) };
        assert!(!memfd::is_alive(at.id) && !at.is_dead(here));
        drop(inbox);
        assert!(sysv::is_attached_by(at.key as u32, at.id.pid) && at.is_dead(here));
        drop(other);
        assert!(at.is_dead(here));
    }
}
