//! Split copies of messages from a peer, and the measured pace of its records.

use super::Peer;
use crate::tl::{SplitCopy, SplitCopyId};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Upper limit of a measured copy time, nanoseconds for each MiB: a longer one was interrupted.
const SLOWEST: u64 = 120_000;

impl Peer {
    /// Records the time of a copy out of the ring. A lower pace is adopted sooner than a higher one, so that one
    /// interrupt does not change the choice for a near peer.
    pub fn note_copy_pace(&self, bytes: usize, took: Duration) {
        let sample = (took.as_nanos() as u64 * (1 << 20) / bytes as u64).min(SLOWEST);
        let known = u64::from(self.copy_ns_per_mib());
        let pace = match known {
            0 => sample,
            _ if sample < known => (known + sample) / 2,
            _ => (3 * known + sample) / 4,
        };
        self.notes
            .copy_ns_per_mib
            .store(pace.max(1) as u32, Ordering::Relaxed);
    }

    /// Opens a split copy of a message from it, if the lane to it can.
    pub fn open_split_copy(&self) -> Option<(SplitCopy, SplitCopyId)> {
        self.tx.lock().lane.as_mut()?.open_split_copy()
    }

    /// Closes a split copy: the peer claims no chunk of it any more, or finds another generation.
    pub fn close_split_copy(&self, split: SplitCopy) {
        if let Some(lane) = self.tx.lock().lane.as_mut() {
            lane.close_split_copy(split);
        }
    }
}
