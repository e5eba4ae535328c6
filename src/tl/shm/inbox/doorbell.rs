//! The receiver's view of the word by which senders announce that they have taken a ring.

use crate::sys::sync::{AtomicU32, Ordering};
use crate::tl::shm::memory::FIRST_RINGS;
use std::ptr::NonNull;

/// What new senders ring.
pub struct Doorbell {
    /// Counts rings that became ready. In the inbox.
    rung: NonNull<AtomicU32>,
    /// Its value when the ready bits were last read.
    pub(super) seen: AtomicU32,
    /// Senders that may come, as far as the receiver knows.
    pub(super) expected: AtomicU32,
}

// SAFETY: atomics, of which one lies in memory that lives as long as the inbox.
unsafe impl Send for Doorbell {}
// SAFETY: as above.
unsafe impl Sync for Doorbell {}

impl Doorbell {
    /// The doorbell of a worker without an inbox.
    #[cfg(not(any(loom, tsan)))]
    pub fn silent() -> Self {
        static NEVER: AtomicU32 = AtomicU32::new(0);
        Self::of(&NEVER)
    }

    /// The doorbell of a worker without an inbox. The atomics of loom and of ThreadSanitizer cannot be static.
    #[cfg(any(loom, tsan))]
    pub fn silent() -> Self {
        Self::of(Box::leak(Box::new(AtomicU32::new(0))))
    }

    /// One sender more may come: rings are made by the receiver's next progress, before there are too few.
    pub fn expect_one(&self) {
        // Relaxed: the bell that makes progress look comes behind it.
        let expected = self.expected.fetch_add(1, Ordering::Relaxed) + 1;
        if expected >= FIRST_RINGS as u32 && expected.is_power_of_two() {
            // SAFETY: the inbox lives. Release: pairs with the Acquire load in `InboxTable::accept`.
            unsafe { self.rung.as_ref() }.fetch_add(1, Ordering::Release);
        }
    }

    /// One that was expected does not come any more.
    pub fn expect_one_less(&self) {
        self.expected.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn of(rung: &AtomicU32) -> Self {
        Self {
            rung: NonNull::from(rung),
            seen: AtomicU32::new(0),
            expected: AtomicU32::new(0),
        }
    }

    /// Whether a ring may have become ready. One load from shared memory.
    #[inline(always)]
    pub fn has_new_ring(&self) -> bool {
        // SAFETY: the inbox lives. Acquire: pairs with the Release add in `InboxTable::announce`.
        // Relaxed: the progress thread alone reads and writes `seen`.
        let rung = unsafe { self.rung.as_ref() }.load(Ordering::Acquire);
        rung != self.seen.load(Ordering::Relaxed)
    }
}
