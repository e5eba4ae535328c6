//! Shared memory: a ring per direction and pair of workers, in the receiver's segment.
//!
//! `ring` is the lock-free queue, `inbox` the receiver's segment with its rings, `outbox` a
//! sender's end of one ring in a peer's segment. A worker reaches itself the same way.

pub mod inbox;
pub mod outbox;
pub mod ring;

use crate::sys::machine::Place;
use crate::sys::segment::{self, SegmentId};
use crate::sys::sysv;

/// Where a worker's inbox is: what peers need to send to it and to see whether it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Locator {
    /// PID namespace in which `id` counts.
    pub pid_ns: u32,
    /// IPC namespace in which `key` counts.
    pub ipc_ns: u32,
    /// A file that the owner has open as long as it lives, and the memory itself if `key` is 0.
    pub id: SegmentId,
    /// System V number of the memory (low half) and what must be written in it (high half, not 0).
    pub key: u64,
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
    /// Whether a process at `here` can open the inbox, as far as namespaces go.
    pub fn reachable_from(&self, here: Place) -> bool {
        if self.key != 0 {
            self.ipc_ns == here.ipc_ns
        } else {
            self.pid_ns == here.pid_ns
        }
    }

    /// Whether its owner is gone, as far as can be seen from `here`. A file system look-up.
    pub fn is_dead(&self, here: Place) -> bool {
        if self.pid_ns == here.pid_ns {
            !segment::is_alive(self.id)
        } else {
            self.key != 0 && sysv::creator_alive(self.key as u32) == Some(false)
        }
    }
}
