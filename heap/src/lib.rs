//! `librucp_heap.so`: preloaded with `UCX_HEAP=shared`, it takes the place of `malloc`, and makes large allocations in
//! memory that peers of the same host and user can map (the shared heap). `libucp` then moves messages, puts and gets
//! between such memory by one copy, without a kernel module and without a system call, and accesses registered memory
//! by loads and stores.
//!
//! Without `UCX_HEAP=shared` all calls go to libc.

mod directory;
mod fork;
mod heap;
mod libc_malloc;
mod memory_calls;
mod raw;
mod segment;

use fork::with_heap;
use heap::{THRESHOLD, may_contain};
use libc_malloc::*;
use rucp_heap_directory::Directory;
use segment::UNIT;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};

#[global_allocator]
static ALLOCATOR: LibcMalloc = LibcMalloc;

/// The directory of this process's heap, made by the first call, so that peers may know it before there is a segment.
/// Null: there is no heap.
#[unsafe(no_mangle)]
pub extern "C" fn rucp_heap_directory() -> *const Directory {
    if !IS_WANTED.load(Ordering::Relaxed) {
        return null();
    }
    with_heap(|heap| match heap.is_reached().then(directory::get) {
        Some(Ok(directory)) => std::ptr::from_ref(directory),
        Some(Err(_)) | None => null(),
    })
}

/// Runs when the library is loaded, before the constructors of all others (`-z initfirst`), that of libc too: its
/// variable of the environment is not set yet.
extern "C" fn on_load(
    _argc: c_int,
    _argv: *const *const c_char,
    environment: *const *const c_char,
) {
    const WANTED: &[u8] = b"UCX_HEAP=shared";
    let mut at = environment;
    // SAFETY: glibc's loader passes C strings, and a null behind them.
    let is_wanted = std::iter::from_fn(|| unsafe {
        let variable = at
            .as_ref()
            .copied()
            .filter(|variable| !variable.is_null())?;
        at = at.add(1);
        Some(CStr::from_ptr(variable))
    })
    .any(|variable| variable.to_bytes().eq_ignore_ascii_case(WANTED));
    IS_WANTED.store(is_wanted, Ordering::Relaxed);
    if is_wanted {
        memory_calls::record_entries();
        fork::register();
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static ON_LOAD: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = on_load;

/// Whether `UCX_HEAP` asks for the shared heap; false before that is known. Relaxed: it is written before the process
/// has another thread.
static IS_WANTED: AtomicBool = AtomicBool::new(false);

/// Writes a line for the user, in one system call.
fn report(text: &str) {
    let line = format!("[rucp heap {}] {text}\n", std::process::id());
    // SAFETY: the line is valid memory.
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
}

/// Allocates in the heap. `None`: libc allocates. The second is whether the memory is zero.
fn allocate(size: usize, align: usize) -> Option<(*mut c_void, bool)> {
    if size < THRESHOLD || !IS_WANTED.load(Ordering::Relaxed) {
        return None;
    }
    let (start, is_zero) = with_heap(|heap| heap.allocate(size, align))?;
    Some((start as *mut c_void, is_zero))
}

/// Bytes of an allocation of the heap; `None`: it is libc's.
fn size_of(memory: *mut c_void) -> Option<usize> {
    may_contain(memory as usize)
        .then(|| with_heap(|heap| heap.size_of(memory as usize)))
        .flatten()
}

fn errno() -> *mut c_int {
    // SAFETY: always the address of the thread's own variable.
    unsafe { libc::__errno_location() }
}

/// # Safety
/// The conditions of malloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    match allocate(size, UNIT) {
        Some((memory, _)) => memory,
        // SAFETY: the caller's promise.
        None => unsafe { __libc_malloc(size) },
    }
}

/// # Safety
/// The conditions of calloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    let bytes = count.checked_mul(size).unwrap_or(0);
    match allocate(bytes, UNIT) {
        Some((memory, true)) => memory,
        Some((memory, false)) => {
            // SAFETY: allocated above, so many bytes.
            unsafe { memory.write_bytes(0, bytes) };
            memory
        }
        // SAFETY: the caller's promise.
        None => unsafe { __libc_calloc(count, size) },
    }
}

/// # Safety
/// The conditions of free(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(memory: *mut c_void) {
    if may_contain(memory as usize) {
        // SAFETY: the thread's own variable, which free(3) does not change.
        let before = unsafe { *errno() };
        let freed = with_heap(|heap| heap.free(memory as usize, memory_calls::discard));
        // SAFETY: the thread's own variable.
        unsafe { *errno() = before };
        if freed {
            return;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { __libc_free(memory) }
}

/// # Safety
/// The conditions of realloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(memory: *mut c_void, size: usize) -> *mut c_void {
    let Some(old) = size_of(memory) else {
        // What libc has allocated stays with libc: only it knows how long it is.
        // SAFETY: the caller's promise.
        return unsafe { __libc_realloc(memory, size) };
    };
    if size <= old && size > old / 4 {
        return memory;
    }
    // SAFETY: the caller's promise; both have so many bytes.
    unsafe {
        if size == 0 {
            free(memory);
            return null_mut();
        }
        // One that grows gets room to grow, which has no pages until it is used: libc would move page tables.
        let mut new = malloc(if size > old {
            size.max(old.saturating_mul(2))
        } else {
            size
        });
        if new.is_null() {
            new = malloc(size);
        }
        if !new.is_null() {
            new.cast::<u8>()
                .copy_from_nonoverlapping(memory.cast(), old.min(size));
            free(memory);
        }
        new
    }
}

/// # Safety
/// The conditions of reallocarray(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(
    memory: *mut c_void,
    count: usize,
    size: usize,
) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: the caller's promise.
        Some(bytes) => unsafe { realloc(memory, bytes) },
        None => {
            // SAFETY: the thread's own variable.
            unsafe { *errno() = libc::ENOMEM };
            null_mut()
        }
    }
}

/// # Safety
/// The conditions of memalign(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    if align.is_power_of_two() {
        if let Some((memory, _)) = allocate(size, align) {
            return memory;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { __libc_memalign(align, size) }
}

/// # Safety
/// The conditions of aligned_alloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { memalign(align, size) }
}

/// # Safety
/// The conditions of posix_memalign(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, align: usize, size: usize) -> c_int {
    if !align.is_power_of_two() || align % std::mem::size_of::<*mut c_void>() != 0 {
        return libc::EINVAL;
    }
    // SAFETY: the caller's promise; `errno` is the thread's own, and stays as it is.
    unsafe {
        let before = *errno();
        let memory = memalign(align, size);
        *errno() = before;
        if memory.is_null() {
            return libc::ENOMEM;
        }
        out.write(memory);
    }
    0
}

/// # Safety
/// The conditions of valloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn valloc(size: usize) -> *mut c_void {
    match allocate(size, UNIT) {
        Some((memory, _)) => memory,
        // SAFETY: the caller's promise.
        None => unsafe { __libc_valloc(size) },
    }
}

/// # Safety
/// The conditions of pvalloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvalloc(size: usize) -> *mut c_void {
    match allocate(size, UNIT) {
        Some((memory, _)) => memory,
        // SAFETY: the caller's promise.
        None => unsafe { __libc_pvalloc(size) },
    }
}

/// # Safety
/// The conditions of malloc_usable_size(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(memory: *mut c_void) -> usize {
    match size_of(memory) {
        Some(size) => size,
        // SAFETY: the caller's promise.
        None => unsafe { memory_calls::libc_usable_size(memory) },
    }
}
