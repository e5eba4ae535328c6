//! How fast copies were, as measured.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Sums of all copies that have ended well. Relaxed: figures for the user, by which nothing is published.
#[derive(Default)]
pub struct CopyPace {
    copies: AtomicU64,
    bytes: AtomicU64,
    ns: AtomicU64,
}

impl CopyPace {
    /// A copy has ended, so long after its beginning.
    pub fn add(&self, bytes: usize, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.copies.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Copies, their bytes, and the time that each took, added.
    pub fn read(&self) -> (u64, u64, Duration) {
        let ns = self.ns.load(Ordering::Relaxed);
        (
            self.copies.load(Ordering::Relaxed),
            self.bytes.load(Ordering::Relaxed),
            Duration::from_nanos(ns),
        )
    }
}
