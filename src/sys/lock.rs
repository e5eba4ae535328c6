//! A lock that exists only for workers in multi-threaded mode.

use super::spin::SpinLock;
use std::cell::{Cell, UnsafeCell};
use std::ops::{Deref, DerefMut};

/// Data that one thread at a time may access. In `UCS_THREAD_MODE_MULTI` the lock is real; in single and serialized
/// mode calls must not overlap, and acquiring it costs one predictable branch. User callbacks never run while one is
/// held, so it need not be recursive; builds with debug assertions check that in every mode.
#[repr(C)]
pub struct MtLock<T> {
    raw: SpinLock,
    mt: bool,
    /// In single mode set while the guard of a `try_lock` lives; in debug builds while any guard does. Where threads
    /// may overlap it is always set, and never written.
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
    pub fn new(mt: bool, value: T) -> Self {
        Self {
            mt,
            raw: SpinLock::new(),
            held: Cell::new(mt),
            value: UnsafeCell::new(value),
        }
    }

    /// Blocks until the lock is free.
    #[inline(always)]
    pub fn lock(&self) -> MtGuard<'_, T> {
        if self.mt {
            self.raw.lock();
        }
        self.entered()
    }

    /// `None` when another thread (or, in single mode, a caller further up the stack) holds it.
    #[inline(always)]
    pub fn try_lock(&self) -> Option<TryGuard<'_, T>> {
        if self.mt {
            if !self.raw.try_lock() {
                return None;
            }
        } else if self.held.replace(true) {
            return None;
        }
        Some(TryGuard(MtGuard { lock: self }))
    }

    #[inline(always)]
    fn entered(&self) -> MtGuard<'_, T> {
        if cfg!(debug_assertions) && !self.mt {
            let twice = self.held.replace(true);
            assert!(!twice, "lock taken twice: a callback ran under it");
        }
        MtGuard { lock: self }
    }

    /// The value in single mode, without a check of the mode: for the shortest paths, which have checked it.
    ///
    /// # Safety
    /// The lock was made for single mode, and no guard or other reference to the value lives.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn alone(&self) -> &mut T {
        debug_assert!(!self.mt);
        // SAFETY: the caller's promise.
        unsafe { &mut *self.value.get() }
    }

    /// Runs `f` on the value under the lock, for callers that are compiled for each mode.
    ///
    /// # Safety
    /// `MT` says whether the lock was made for several threads; if not, no guard or other reference to
    /// the value lives.
    #[inline(always)]
    pub unsafe fn with<const MT: bool, R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        debug_assert_eq!(MT, self.mt);
        if !MT {
            // SAFETY: the caller's promise.
            return f(unsafe { self.alone() });
        }
        /// Releases the lock, also when `f` unwinds.
        struct Unlock<'a>(&'a SpinLock);
        impl Drop for Unlock<'_> {
            #[inline(always)]
            fn drop(&mut self) {
                // SAFETY: locked by the caller.
                unsafe { self.0.unlock() };
            }
        }
        self.raw.lock();
        let _locked = Unlock(&self.raw);
        // SAFETY: under the lock.
        f(unsafe { &mut *self.value.get() })
    }

    /// Whether threads may overlap.
    #[inline(always)]
    pub fn is_shared(&self) -> bool {
        self.mt
    }

    /// Whether the value must not be accessed without the lock: threads may overlap, or the guard of a `try_lock`
    /// lives, or [`hold`](Self::hold) was called.
    #[inline(always)]
    pub fn is_held(&self) -> bool {
        self.held.get()
    }

    /// In single mode: makes `try_lock` fail, until called with false.
    #[inline(always)]
    pub fn hold(&self, yes: bool) {
        self.held.set(yes);
    }

    /// In a forked child, which has no other threads: `try_lock` fails from now on, and the value must not be accessed
    /// without the lock.
    pub fn disable(&self) {
        if self.mt {
            let _ = self.raw.try_lock();
        }
        self.held.set(true);
    }

    /// In a forked child: releases the lock, if another thread of the parent held it. The value must be sound to use
    /// whatever such a thread was doing.
    pub fn free_in_child(&self) {
        if self.mt {
            // SAFETY: the thread that held it does not exist in this process.
            unsafe { self.raw.unlock() };
        }
    }

    /// For construction and destruction, when no other reference exists.
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
        if self.lock.mt {
            // SAFETY: this guard's constructor locked it.
            unsafe { self.lock.raw.unlock() };
        } else if cfg!(debug_assertions) {
            self.lock.held.set(false);
        }
    }
}

/// [`MtGuard`] of a `try_lock`, which marks the lock as held in single mode too.
pub struct TryGuard<'a, T>(MtGuard<'a, T>);

impl<T> Deref for TryGuard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for TryGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> Drop for TryGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.0.lock.mt {
            self.0.lock.held.set(false);
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
        drop(lock.try_lock());
        assert!(lock.is_held(), "no thread runs without the lock");
    }
}
