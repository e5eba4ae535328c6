//! A lock that exists only for workers in multi-threaded mode.

use parking_lot::lock_api::RawMutex as _;
use std::cell::{Cell, UnsafeCell};
use std::ops::{Deref, DerefMut};

/// Data that one thread at a time may touch. In `UCS_THREAD_MODE_MULTI` the lock is real; in
/// single and serialized mode the caller promises that calls do not overlap, and taking it costs
/// one predictable branch. User callbacks never run while one is held, so it need not be
/// recursive; builds with debug assertions check that in every mode.
pub struct MtLock<T> {
    mt: bool,
    raw: parking_lot::RawMutex,
    /// Debug only: set while a guard lives.
    held: Cell<bool>,
    value: UnsafeCell<T>,
}

// SAFETY: in multi mode every access goes through `raw`; in the other modes the API's contract
// (ucp_worker_params_t.thread_mode) forbids overlapping calls.
unsafe impl<T: Send> Sync for MtLock<T> {}
// SAFETY: moving the lock moves the value; `held` and `raw` carry no thread affinity.
unsafe impl<T: Send> Send for MtLock<T> {}

impl<T> MtLock<T> {
    /// `mt`: whether threads may overlap, fixed for the life of the lock.
    pub const fn new(mt: bool, value: T) -> Self {
        Self {
            mt,
            raw: parking_lot::RawMutex::INIT,
            held: Cell::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for its turn.
    #[inline(always)]
    pub fn lock(&self) -> MtGuard<'_, T> {
        if self.mt {
            self.raw.lock();
        }
        self.entered()
    }

    /// `None` when another thread (or, in single mode, a caller further up the stack) holds it.
    #[inline(always)]
    pub fn try_lock(&self) -> Option<MtGuard<'_, T>> {
        if self.mt {
            if !self.raw.try_lock() {
                return None;
            }
        } else if self.held.get() {
            return None;
        }
        self.held.set(true);
        Some(MtGuard { lock: self })
    }

    #[inline(always)]
    fn entered(&self) -> MtGuard<'_, T> {
        debug_assert!(
            !self.held.get(),
            "lock taken twice: a callback ran under it"
        );
        if cfg!(debug_assertions) {
            self.held.set(true);
        }
        MtGuard { lock: self }
    }

    /// For destruction and construction, when nobody else can have a reference.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

/// Access to the value of an [`MtLock`] until dropped.
pub struct MtGuard<'a, T> {
    lock: &'a MtLock<T>,
}

impl<T> Deref for MtGuard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard proves exclusive access (see `MtLock`).
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for MtGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard proves exclusive access (see `MtLock`).
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for MtGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lock.held.set(false);
        if self.lock.mt {
            // SAFETY: this guard's constructor locked it.
            unsafe { self.lock.raw.unlock() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_mode_try_lock_sees_the_holder() {
        let lock = MtLock::new(false, 1);
        let held = lock.try_lock().unwrap();
        assert!(lock.try_lock().is_none());
        drop(held);
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn multi_mode_excludes() {
        let lock = MtLock::new(true, 0u64);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..10_000).for_each(|_| *lock.lock() += 1));
            }
        });
        assert_eq!(*lock.lock(), 40_000);
    }
}
