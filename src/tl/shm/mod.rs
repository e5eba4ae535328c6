//! Shared memory: a ring per direction and pair of workers, in the receiver's segment.
//!
//! `ring` is the lock-free queue, `big_buf` its buffers for long records, `close` the word by which both ends
//! agree to close a ring, `inbox` the receiver's segment with its rings, `outbox` a sender's end of one ring in a
//! peer's segment. A worker sends to itself in the same way. `cma` are the copies by the kernel, `cma_peer` is what
//! they need of a peer; `split_copy` and `split_write` are the two sides of a long message that both copy,
//! `chunk_board` its state. `address` is the section of a worker address, `rkey` the part of a remote key, `context` a
//! context's part. `last_look` saves an idle worker looks at its rings.

pub mod accept;
pub mod address;
pub mod big_buf;
pub mod close;
pub mod cma;
pub mod cma_peer;
pub mod context;
pub mod host_link;
pub mod inbox;
pub mod info;
mod lane;
mod last_look;
mod memory;
pub mod order;
pub mod outbox;
mod owner;
mod peer_heap;
pub mod receive;
pub mod ring;
pub mod rkey;
pub mod chunk_board;
mod space;
pub mod split_copy;
pub mod split_write;
pub mod worker;

use crate::sys::host::HostId;
use crate::sys::memfd::{self, MemfdId};
use crate::sys::sysv::FoundSegment;
use crate::sys::{liveness_lock, posix_shm, sysv};
use std::io::ErrorKind;

/// Location of a worker's inbox: what peers need to send to it and to detect that its process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboxLocator {
    /// PID namespace of `id`.
    pub pid_ns: u32,
    /// IPC namespace of the System V number; 0 if the memory has a name.
    pub ipc_ns: u32,
    /// A file that the owner holds open until it ends.
    pub id: MemfdId,
    /// Identifies the memory, see [`InboxKind`].
    pub key: u64,
    /// The /dev/shm ([`liveness_lock::place`]) in which the owner holds the liveness lock of the key, or has its named
    /// file; 0: there is neither, or the owner's library does not say.
    pub shm_place: u32,
}

/// An inbox, and what a look-up has found of it: one that is mapped right after need not be looked up again.
#[derive(Clone, Copy, Debug)]
pub struct FoundInbox {
    pub inbox: InboxLocator,
    /// Its segment, whose user was checked. `None`: another kind of memory, or it was not looked up.
    segment: Option<FoundSegment>,
}

impl From<InboxLocator> for FoundInbox {
    /// An inbox that was not looked up.
    fn from(inbox: InboxLocator) -> Self {
        let segment = None;
        Self { inbox, segment }
    }
}

impl FoundInbox {
    /// Whether the look-up has shown that the owner is alive. False: that is not known.
    pub fn is_alive(&self) -> bool {
        (self.segment).is_some_and(|segment| segment.is_certainly_attached())
    }
}

/// The kind of memory of an inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboxKind {
    /// A System V segment: its number is the low half of the key; the high half, not 0, is written in the segment.
    Block,
    /// A file in /dev/shm that is named after the key.
    Named,
    /// The file of [`InboxLocator::id`]; the key is 0.
    File,
}

/// The sending worker of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingOwner {
    /// Uid of the worker.
    pub uid: u64,
    /// Inbox of the worker, through which the receiver replies.
    pub inbox: InboxLocator,
}

impl InboxLocator {
    /// The kind of memory of the inbox.
    pub fn kind(&self) -> InboxKind {
        match (self.key, self.ipc_ns) {
            (0, _) => InboxKind::File,
            (_, 0) => InboxKind::Named,
            _ => InboxKind::Block,
        }
    }

    /// Whether the namespaces and the /dev/shm of this process, which is at `here`, allow it to open the inbox.
    pub fn reachable_from(&self, here: HostId) -> bool {
        match self.kind() {
            InboxKind::Block => self.ipc_ns == here.ipc_ns,
            InboxKind::Named => self.shm_place == 0 || self.shm_place == liveness_lock::place(),
            InboxKind::File => self.pid_ns == here.pid_ns,
        }
    }

    /// Looks the inbox up for a worker whose own inbox belongs to this user. `None`: it belongs to another one. Neither
    /// side may map memory of the other one then, not even root. Both sides compare the owners of the two inboxes,
    /// which do not change when a process changes its user: both select the same transport. An inbox that is gone is
    /// found.
    pub fn find(self, user: u32) -> Option<FoundInbox> {
        let mut found = FoundInbox::from(self);
        let is_foreign = match self.kind() {
            InboxKind::Block => match FoundSegment::find(self.key as u32) {
                Ok(segment) => found.segment.insert(segment).user() != user,
                Err(e) => e.kind() == ErrorKind::PermissionDenied,
            },
            InboxKind::Named => posix_shm::is_foreign(self.key, user),
            InboxKind::File => memfd::is_foreign(self.id, user),
        };
        (!is_foreign).then_some(found)
    }

    /// PID of the owner in the PID namespace `here`, if it is visible there.
    pub fn process(&self, here: HostId) -> Option<u32> {
        if self.pid_ns == here.pid_ns {
            return Some(self.id.pid);
        }
        match self.kind() {
            InboxKind::Block => sysv::creator(self.key as u32),
            InboxKind::Named | InboxKind::File => None,
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
    fn a_named_inbox_is_reached_in_the_same_dev_shm() {
        let inbox = inbox::Inbox::create(true).unwrap();
        let (at, here) = (inbox.locator(), host::place());
        let elsewhere = InboxLocator {
            shm_place: at.shm_place ^ 1,
            ..at
        };
        let unknown = InboxLocator { shm_place: 0, ..at };
        assert_eq!(at.kind(), InboxKind::Named);
        assert!(at.reachable_from(here) && unknown.reachable_from(here));
        assert!(!elsewhere.reachable_from(here));
    }

    #[test]
    fn an_owner_without_its_descriptors_lives_until_it_says_otherwise() {
        let inbox = inbox::Inbox::create(false).unwrap();
        let (at, here) = (inbox.locator(), host::place());
        assert_eq!(
            at.kind(),
            InboxKind::Block,
            "System V memory is not available here"
        );
        // A mapping as another worker of the process has it, which outlives the inbox.
        let other = memory::Theirs::open(at).unwrap();
        // Another file replaces the descriptor, and stays open until the inbox closes it.
        let null = File::open("/dev/null").unwrap();
        // SAFETY: `dup2` accesses no memory. The inbox owns the descriptor and neither reads nor writes it.
        unsafe { libc::dup2(null.as_raw_fd(), at.id.fd as i32) };
        assert!(!memfd::is_alive(at.id) && !at.is_dead(here));
        drop(inbox);
        assert!(sysv::is_attached_by(at.key as u32, at.id.pid) && at.is_dead(here));
        drop(other);
        assert!(at.is_dead(here));
    }
}
