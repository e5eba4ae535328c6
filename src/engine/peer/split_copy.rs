//! Split copies of messages from a peer, and the measured pace of its records.

use super::Peer;
use crate::tl::Lane;
use crate::tl::shm::chunk_board::ChunkState;
use crate::tl::shm::outbox::OpenSplitCopy;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Upper limit of a measured copy time, nanoseconds for each MiB: a longer one was interrupted.
const SLOWEST: u64 = 120_000;

impl Peer {
    /// Records the time of a copy out of the ring. A lower pace is adopted sooner than a higher one, so that one
    /// interrupt does not change the choice for a near peer.
    pub fn note_copy_pace(&self, bytes: usize, took: Duration) {
        let sample = (took.as_nanos() as u64 * (1 << 20) / bytes as u64).min(SLOWEST);
        let known = u64::from(self.copy_ns_per_mib.load(Ordering::Relaxed));
        let pace = match known {
            0 => sample,
            _ if sample < known => (known + sample) / 2,
            _ => (3 * known + sample) / 4,
        };
        self.copy_ns_per_mib
            .store(pace.max(1) as u32, Ordering::Relaxed);
    }

    /// Opens a chunk board for a message from it, if a ring leads to it and has a free one.
    pub fn open_split_copy(&self) -> Option<OpenSplitCopy> {
        match self.tx.lock().lane.as_mut() {
            Some(Lane::Shm(outbox)) => outbox.open_split_copy(),
            _ => None,
        }
    }

    /// Closes a chunk board: the peer claims no chunk of it any more, or finds another generation.
    pub fn close_split_copy(&self, chunk_state: NonNull<ChunkState>) {
        if let Some(Lane::Shm(outbox)) = self.tx.lock().lane.as_mut() {
            outbox.close_split_copy(chunk_state);
        }
    }
}
