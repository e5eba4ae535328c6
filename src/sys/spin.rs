//! A lock for critical sections of some tens of instructions, with waiting that lets others run.
//!
//! Giving it back is a plain store, so that taking and giving cost one read-modify-write. Whoever waits
//! spins for a moment, then gives way: on a machine with more threads than cores the holder may not be
//! running at all. The last resort is sleep, because a holder of lower priority gets no time otherwise.

use super::sync::{AtomicU32, Ordering, give_way};

const FREE: u32 = 0;
const TAKEN: u32 = 1;

/// Looks before the waiter first gives way: longer than a critical section.
const SPINS: u32 = if cfg!(loom) { 1 } else { 100 };
/// Times that it gives way before it sleeps.
const YIELDS: u32 = 200;
/// Microseconds of sleep between further looks.
const NAP_US: u32 = 50;

/// See the module.
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

    /// False when somebody has it.
    #[inline(always)]
    pub fn try_lock(&self) -> bool {
        // Acquire: pairs with the Release store in `unlock`.
        self.0
            .compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Waits for its turn.
    #[inline(always)]
    pub fn lock(&self) {
        if !self.try_lock() {
            self.wait();
        }
    }

    /// Gives it back.
    ///
    /// # Safety
    /// The caller has it.
    #[inline(always)]
    pub unsafe fn unlock(&self) {
        // Release: pairs with the Acquire exchange in `try_lock`.
        self.0.store(FREE, Ordering::Release);
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) {
        let mut round = 0;
        loop {
            for _ in 0..SPINS {
                // Relaxed: `try_lock` looks again. Reading leaves the line with its holder.
                if self.0.load(Ordering::Relaxed) == FREE && self.try_lock() {
                    return;
                }
                std::hint::spin_loop();
            }
            round += 1;
            give_way(if round > YIELDS { NAP_US } else { 0 });
        }
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
    // SAFETY: as above.
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
