//! Atomics that report their ordering to ThreadSanitizer where one memory is mapped twice: in the rings between two
//! workers of a process. It identifies a synchronisation by its address, and would report data passed by a ring as a
//! race.
//!
//! Both mappings begin at a page, so that a word has the same offset in its page in both. The words of all rings with
//! the same offset are one to the sanitizer; it may miss a race between them, and reports no false one. Only
//! scripts/sanitize builds this (`--cfg tsan`).

use std::ffi::c_void;
use std::sync::atomic::{self, Ordering};

const PAGE: usize = 4096;

unsafe extern "C" {
    /// What was released at this address is visible to this thread.
    fn __tsan_acquire(address: *mut c_void);
    /// What this thread has done is visible to a thread that acquires at this address.
    fn __tsan_release(address: *mut c_void);
}

/// Addresses that represent the offsets.
static OFFSETS: [u8; PAGE] = [0; PAGE];

fn stand_in<T>(word: &T) -> *mut c_void {
    let offset = std::ptr::from_ref(word) as usize % PAGE;
    std::ptr::from_ref(&OFFSETS[offset]).cast_mut().cast()
}

fn before<T>(word: &T, order: Ordering) {
    if matches!(
        order,
        Ordering::Release | Ordering::AcqRel | Ordering::SeqCst
    ) {
        // SAFETY: the address is only an identifier; it is not accessed.
        unsafe { __tsan_release(stand_in(word)) }
    }
}

fn after<T>(word: &T, order: Ordering) {
    if matches!(
        order,
        Ordering::Acquire | Ordering::AcqRel | Ordering::SeqCst
    ) {
        // SAFETY: the address is only an identifier; it is not accessed.
        unsafe { __tsan_acquire(stand_in(word)) }
    }
}

macro_rules! synchronizing {
    ($name:ident, $int:ty) => {
        #[repr(transparent)]
        #[derive(Default)]
        pub struct $name(atomic::$name);

        impl $name {
            pub const fn new(value: $int) -> Self {
                Self(atomic::$name::new(value))
            }

            pub fn load(&self, order: Ordering) -> $int {
                let value = self.0.load(order);
                after(self, order);
                value
            }

            pub fn store(&self, value: $int, order: Ordering) {
                before(self, order);
                self.0.store(value, order);
            }

            pub fn swap(&self, value: $int, order: Ordering) -> $int {
                self.modify(order, |word| word.swap(value, order))
            }

            pub fn fetch_add(&self, value: $int, order: Ordering) -> $int {
                self.modify(order, |word| word.fetch_add(value, order))
            }

            pub fn fetch_sub(&self, value: $int, order: Ordering) -> $int {
                self.modify(order, |word| word.fetch_sub(value, order))
            }

            pub fn fetch_max(&self, value: $int, order: Ordering) -> $int {
                self.modify(order, |word| word.fetch_max(value, order))
            }

            pub fn fetch_or(&self, value: $int, order: Ordering) -> $int {
                self.modify(order, |word| word.fetch_or(value, order))
            }

            pub fn compare_exchange(
                &self,
                old: $int,
                new: $int,
                yes: Ordering,
                no: Ordering,
            ) -> Result<$int, $int> {
                self.modify(yes, |word| word.compare_exchange(old, new, yes, no))
            }

            pub fn compare_exchange_weak(
                &self,
                old: $int,
                new: $int,
                yes: Ordering,
                no: Ordering,
            ) -> Result<$int, $int> {
                self.modify(yes, |word| word.compare_exchange_weak(old, new, yes, no))
            }

            fn modify<R>(&self, order: Ordering, change: impl FnOnce(&atomic::$name) -> R) -> R {
                before(self, order);
                let result = change(&self.0);
                after(self, order);
                result
            }
        }
    };
}

synchronizing!(AtomicU32, u32);
synchronizing!(AtomicU64, u64);
