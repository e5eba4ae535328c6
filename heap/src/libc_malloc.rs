//! The allocator of libc, below this library: small allocations of the program, and all of this library's own.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_void;

unsafe extern "C" {
    pub fn __libc_malloc(size: usize) -> *mut c_void;
    pub fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    pub fn __libc_realloc(memory: *mut c_void, size: usize) -> *mut c_void;
    pub fn __libc_memalign(align: usize, size: usize) -> *mut c_void;
    pub fn __libc_valloc(size: usize) -> *mut c_void;
    pub fn __libc_pvalloc(size: usize) -> *mut c_void;
    pub fn __libc_free(memory: *mut c_void);
}

/// The allocator of this library's own data: one that called `malloc` would call this library again, with its lock
/// held.
pub struct LibcMalloc;

// SAFETY: libc's allocator returns memory of that size and alignment, or null.
unsafe impl GlobalAlloc for LibcMalloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size and any power of two is permitted.
        unsafe { __libc_memalign(layout.align().max(16), layout.size()).cast() }
    }

    unsafe fn dealloc(&self, memory: *mut u8, _layout: Layout) {
        // SAFETY: the caller's memory is of `alloc`.
        unsafe { __libc_free(memory.cast()) }
    }
}
