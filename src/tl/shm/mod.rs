//! Shared memory: a ring per direction and pair of workers, in the receiver's segment.
//!
//! `ring` is the lock-free queue, `inbox` the receiver's segment with its rings, `outbox` a
//! sender's end of one ring in a peer's segment. A worker reaches itself the same way.

pub mod inbox;
pub mod outbox;
pub mod ring;

use crate::sys::segment::SegmentId;

/// Where a worker's inbox is: what peers need to send to it and to see whether it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Locator {
    /// PID namespace in which `id.pid` counts.
    pub pid_ns: u32,
    pub id: SegmentId,
}

/// Who sends through a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// The sending worker's identity.
    pub uid: u64,
    /// Its own inbox, for answers.
    pub inbox: Locator,
}
