//! The receiver's view of the word by which senders announce that they have claimed a ring.

use crate::sys::sync::{AtomicU32, Ordering};
use crate::tl::shm::memory::FIRST_RINGS;
use std::ptr::NonNull;

/// The doorbell of an inbox. Each call of progress reads it: it lies in one cache line.
#[repr(align(16))]
pub struct Doorbell {
    /// Counts rings that became ready. In the inbox.
    rung: NonNull<AtomicU32>,
    /// Its value when the ready bits were last read.
    pub(super) seen: AtomicU32,
    /// Number of senders that may claim a ring, as far as the receiver can predict.
    pub(super) expected: AtomicU32,
}

// SAFETY: all fields are atomics; `rung` points to memory that outlives the doorbell.
unsafe impl Send for Doorbell {}
// SAFETY: all fields are atomics; `rung` points to memory that outlives the doorbell.
unsafe impl Sync for Doorbell {}

impl Doorbell {
    /// The doorbell of a worker without an inbox.
    #[cfg(not(any(loom, tsan)))]
    pub fn unconnected() -> Self {
        static NEVER: AtomicU32 = AtomicU32::new(0);
        Self::of(&NEVER)
    }

    /// The doorbell of a worker without an inbox. The atomics of loom and of ThreadSanitizer cannot be static.
    #[cfg(any(loom, tsan))]
    pub fn unconnected() -> Self {
        Self::of(Box::leak(Box::new(AtomicU32::new(0))))
    }

    /// Expects one more sender: the receiver's next progress call creates rings before there are too few.
    pub fn expect_one(&self) {
        // Relaxed: the addition to the doorbell, which starts the receiver's check, comes after it.
        let expected = self.expected.fetch_add(1, Ordering::Relaxed) + 1;
        if expected >= FIRST_RINGS as u32 && expected.is_power_of_two() {
            // SAFETY: the inbox exists. Release: pairs with the Acquire load in `InboxTable::accept`.
            unsafe { self.rung.as_ref() }.fetch_add(1, Ordering::Release);
        }
    }

    /// Expects one sender less.
    pub fn expect_one_less(&self) {
        self.expected.fetch_sub(1, Ordering::Relaxed);
    }

    /// Number of senders that may claim a ring, as far as the receiver can predict.
    pub fn expected(&self) -> usize {
        // Relaxed: a hint.
        self.expected.load(Ordering::Relaxed) as usize
    }

    /// The view of this word, at its value 0 and with no sender expected. `rung` must outlive the doorbell.
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
        // SAFETY: the inbox exists. Acquire: pairs with the Release add in `InboxTable::announce`.
        // Relaxed: only the progress thread reads and writes `seen`.
        let rung = unsafe { self.rung.as_ref() }.load(Ordering::Acquire);
        rung != self.seen.load(Ordering::Relaxed)
    }
}
