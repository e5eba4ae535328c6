//! A spin lock for critical sections of some tens of instructions, with backoff.
//!
//! Unlocking is a plain store, so that lock and unlock cost one read-modify-write. A waiter pauses for a moment, then
//! yields: on a machine with more threads than cores the holder may not run. At last it sleeps, because a holder of
//! lower priority gets no time otherwise.
//!
//! Waiters check less and less often. A check takes the lock's cache line from its holder, and the next holder fetches
//! the lines that the lock guards, which takes longer than a critical section: threads that contend permanently should
//! get the lock in turns of many sections each, not of one.

use super::sync::{AtomicU32, Ordering, give_way};

const FREE: u32 = 0;
const TAKEN: u32 = 1;

/// Most pauses between two checks, before the first yield: together longer than a critical section.
const PAUSES: u32 = if cfg!(loom) { 1 } else { 64 };
/// Most yields between two checks.
const YIELDS: u32 = if cfg!(loom) { 1 } else { 32 };
/// Checks with yields between them, before the waiter sleeps.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 13 };
/// Microseconds of sleep between further checks.
const NAP_US: u32 = 50;

/// A spin lock.
pub struct SpinLock(AtomicU32);

impl SpinLock {
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    #[cfg(loom)]
    pub fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// False when it is locked.
    #[inline(always)]
    pub fn try_lock(&self) -> bool {
        // Acquire: pairs with the Release store in `unlock`.
        self.0
            .compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Blocks until the lock is free.
    #[inline(always)]
    pub fn lock(&self) {
        if !self.try_lock() {
            self.wait();
        }
    }

    /// Releases the lock.
    ///
    /// # Safety
    /// The caller holds it.
    #[inline(always)]
    pub unsafe fn unlock(&self) {
        // Release: pairs with the Acquire exchange in `try_lock`.
        self.0.store(FREE, Ordering::Release);
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) {
        let mut pauses = 1;
        while pauses <= PAUSES {
            for _ in 0..pauses {
                std::hint::spin_loop();
            }
            if self.look() {
                return;
            }
            pauses *= 2;
        }
        let mut yields = 1;
        for _ in 0..LOOKS {
            for _ in 0..yields {
                give_way(0);
            }
            if self.look() {
                return;
            }
            yields = YIELDS.min(2 * yields);
        }
        loop {
            give_way(NAP_US);
            if self.look() {
                return;
            }
        }
    }

    /// Locks it if it is free.
    fn look(&self) -> bool {
        // Relaxed: `try_lock` checks again. A load leaves the line shared with its holder.
        self.0.load(Ordering::Relaxed) == FREE && self.try_lock()
    }
}

impl Default for SpinLock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::SpinLock;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    struct Shared {
        lock: SpinLock,
        value: UnsafeCell<u32>,
    }

    // SAFETY: the value is touched under the lock; loom checks that.
    unsafe impl Sync for Shared {}
    // SAFETY: the value is accessed under the lock; loom checks that.
    unsafe impl Send for Shared {}

    #[test]
    fn loom_one_at_a_time() {
        loom::model(|| {
            let shared = Arc::new(Shared {
                lock: SpinLock::new(),
                value: UnsafeCell::new(0),
            });
            let other = {
                let shared = shared.clone();
                loom::thread::spawn(move || add(&shared))
            };
            add(&shared);
            other.join().unwrap();
            // SAFETY: the other thread has ended.
            shared.value.with(|v| assert_eq!(unsafe { *v }, 2));
        });
    }

    fn add(shared: &Shared) {
        shared.lock.lock();
        // SAFETY: under the lock.
        shared.value.with_mut(|v| unsafe { *v += 1 });
        // SAFETY: taken above.
        unsafe { shared.lock.unlock() };
    }
}
