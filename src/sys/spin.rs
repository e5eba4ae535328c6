//! A lock for critical sections of some tens of instructions, with waiting that lets others run.
//!
//! Giving it back is a plain store, so that taking and giving cost one read-modify-write. Whoever waits
//! pauses for a moment, then gives way: on a machine with more threads than cores the holder may not be
//! running at all. The last resort is sleep, because a holder of lower priority gets no time otherwise.
//!
//! Waiters look more and more seldom. A look takes the lock's line of cache from its holder, and who gets the lock
//! takes the lines that it guards, which lasts longer than a critical section: threads that want the same thing all the
//! time are to have it in turns of many sections each, not of one.

use super::sync::{AtomicU32, Ordering, give_way};

const FREE: u32 = 0;
const TAKEN: u32 = 1;

/// Pauses between two looks, at most, before the waiter first gives way: in all longer than a critical section.
const PAUSES: u32 = if cfg!(loom) { 1 } else { 64 };
/// Times that it gives way between two looks, at most.
const YIELDS: u32 = if cfg!(loom) { 1 } else { 32 };
/// Looks with that between them, before it sleeps.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 13 };
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

    /// Takes it if nobody has it.
    fn look(&self) -> bool {
        // Relaxed: `try_lock` looks again. Reading leaves the line to be written by its holder.
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
