//! Replacements of libc's `munmap` and the like: they report the addresses, and make the system call.
//!
//! They run inside of `free`, in signal handlers, in any thread and in children. They take no lock, allocate nothing,
//! use no thread-local variable (the first use of one may allocate), and set `errno` as the functions that they replace
//! do.
//!
//! They report twice. Before the call, so that a thread that gets the same addresses afterwards does not find the old
//! registration; after it, for registrations made in between.

use super::events::UnmapEvent;
use crate::sys::arch;
use crate::sys::va_range::VaRange;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// Target of a function's entry before it was patched: 0 where that was libc's own code, whose system call is made
/// here.
pub struct OrigFn(AtomicUsize);

impl OrigFn {
    const fn new() -> Self {
        OrigFn(AtomicUsize::new(0))
    }

    /// Sets the target of later calls; 0: none.
    pub fn set(&self, target: usize) {
        // Release: pairs with the Acquire load in `get`, after the target's code was written.
        self.0.store(target, Ordering::Release);
    }

    /// As a function pointer of type `F`, which has the size of a word.
    #[inline(always)]
    fn get<F: Copy>(&self) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<usize>()) };
        // Acquire: pairs with the Release store in `set`.
        let target = self.0.load(Ordering::Acquire);
        // SAFETY: the entry of the function that this belongs to led there.
        (target != 0).then(|| unsafe { std::mem::transmute_copy(&target) })
    }
}

pub static MUNMAP: OrigFn = OrigFn::new();
pub static MMAP: OrigFn = OrigFn::new();
pub static MREMAP: OrigFn = OrigFn::new();
pub static MADVISE: OrigFn = OrigFn::new();
pub static SHMAT: OrigFn = OrigFn::new();
pub static SHMDT: OrigFn = OrigFn::new();
pub static BRK: OrigFn = OrigFn::new();
pub static SBRK: OrigFn = OrigFn::new();

/// glibc's `__curbrk`, where its `brk` and `sbrk` remember the end of the heap.
pub static CURRENT_BREAK: AtomicUsize = AtomicUsize::new(0);

/// An unused address, while a call with it tests which hooks are called.
static PROBED: AtomicUsize = AtomicUsize::new(0);
static REPORTED: AtomicU8 = AtomicU8::new(0);

/// A hook or handler of this library was called.
pub const BY_US: u8 = 1;
/// The program reported the address.
pub const BY_PROGRAM: u8 = 2;

/// Which hooks a call of a memory function with this unused address reaches. Only one thread at a time may test.
pub fn reports_to(addr: usize, call: impl FnOnce()) -> u8 {
    // Relaxed: the calling thread also makes the call; other threads use other addresses.
    REPORTED.store(0, Ordering::Relaxed);
    PROBED.store(addr, Ordering::Relaxed);
    call();
    PROBED.store(0, Ordering::Relaxed);
    REPORTED.load(Ordering::Relaxed)
}

/// Records a report, if it is of the tested address.
#[inline]
pub fn note_if_probed(addr: usize, source: u8) {
    if addr != 0 && addr == PROBED.load(Ordering::Relaxed) {
        REPORTED.fetch_or(source, Ordering::Relaxed);
    }
}

/// Reports that these bytes are about to be unmapped, or were. Their whole pages are affected, as registrations are of
/// whole pages.
#[inline]
pub fn gone(addr: usize, len: usize) {
    note_if_probed(addr, BY_US);
    if len > 0 {
        super::ring().note(UnmapEvent::Gone(VaRange::new(addr, len)));
    }
}

type Munmap = unsafe extern "C" fn(*mut c_void, usize) -> c_int;
type Mmap = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void;
type Mremap = unsafe extern "C" fn(*mut c_void, usize, usize, c_int, *mut c_void) -> *mut c_void;
type Madvise = unsafe extern "C" fn(*mut c_void, usize, c_int) -> c_int;
type Shmat = unsafe extern "C" fn(c_int, *const c_void, c_int) -> *mut c_void;
type Shmdt = unsafe extern "C" fn(*const c_void) -> c_int;
type Brk = unsafe extern "C" fn(*mut c_void) -> c_int;
type Sbrk = unsafe extern "C" fn(isize) -> *mut c_void;

/// # Safety
/// The conditions of munmap(2).
pub unsafe extern "C" fn munmap(addr: *mut c_void, len: usize) -> c_int {
    gone(addr as usize, len);
    // SAFETY: the caller's promise, for both branches.
    let result = unsafe {
        match MUNMAP.get::<Munmap>() {
            Some(next) => next(addr, len),
            None => libc::syscall(libc::SYS_munmap, addr, len) as c_int,
        }
    };
    gone(addr as usize, len);
    result
}

/// # Safety
/// The conditions of mmap(2).
pub unsafe extern "C" fn mmap(
    addr: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // Only MAP_FIXED replaces mappings.
    let replaced = if flags & libc::MAP_FIXED != 0 { len } else { 0 };
    gone(addr as usize, replaced);
    // SAFETY: the caller's promise, for both branches.
    let result = unsafe {
        match MMAP.get::<Mmap>() {
            Some(next) => next(addr, len, prot, flags, fd, offset),
            None => libc::syscall(libc::SYS_mmap, addr, len, prot, flags, fd, offset) as _,
        }
    };
    gone(addr as usize, replaced);
    result
}

/// # Safety
/// The conditions of mremap(2). C declares the last parameter as variable: where the caller passes none it is the value
/// of the register.
pub unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    let wants_place = flags & (libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) != 0;
    let new = if wants_place {
        new
    } else {
        std::ptr::null_mut()
    };
    let replaced = if flags & libc::MREMAP_FIXED != 0 {
        new_len
    } else {
        0
    };
    gone(old as usize, old_len);
    gone(new as usize, replaced);
    // SAFETY: the caller's promise, for both branches.
    let result = unsafe {
        match MREMAP.get::<Mremap>() {
            Some(next) => next(old, old_len, new_len, flags, new),
            None => libc::syscall(libc::SYS_mremap, old, old_len, new_len, flags, new) as _,
        }
    };
    gone(old as usize, old_len);
    gone(new as usize, replaced);
    result
}

/// Linux 6.13: later accesses fault, and the old content is lost.
const MADV_GUARD_INSTALL: c_int = 102;
/// Linux 5.18.
const MADV_DONTNEED_LOCKED: c_int = 24;

/// # Safety
/// The conditions of madvise(2).
pub unsafe extern "C" fn madvise(addr: *mut c_void, len: usize, advice: c_int) -> c_int {
    let emptied = match advice {
        libc::MADV_DONTNEED | libc::MADV_REMOVE | libc::MADV_FREE => len,
        MADV_DONTNEED_LOCKED | MADV_GUARD_INSTALL => len,
        _ => 0,
    };
    gone(addr as usize, emptied);
    // SAFETY: the caller's promise, for both branches.
    let result = unsafe {
        match MADVISE.get::<Madvise>() {
            Some(next) => next(addr, len, advice),
            None => libc::syscall(libc::SYS_madvise, addr, len, advice) as c_int,
        }
    };
    gone(addr as usize, emptied);
    result
}

/// # Safety
/// The conditions of shmat(2).
pub unsafe extern "C" fn shmat(id: c_int, addr: *const c_void, flags: c_int) -> *mut c_void {
    note_if_probed(addr as usize, BY_US);
    // Only the segment's owner has the length of what is replaced.
    let replaces = flags & libc::SHM_REMAP != 0;
    if replaces {
        super::ring().note(UnmapEvent::Everything);
    }
    // SAFETY: the caller's promise, for both branches.
    let result = unsafe {
        match SHMAT.get::<Shmat>() {
            Some(next) => next(id, addr, flags),
            None => libc::syscall(arch::SYS_SHMAT, id, addr, flags) as *mut c_void,
        }
    };
    if replaces {
        super::ring().note(UnmapEvent::Everything);
    }
    result
}

/// # Safety
/// The conditions of shmdt(2).
pub unsafe extern "C" fn shmdt(addr: *const c_void) -> c_int {
    note_if_probed(addr as usize, BY_US);
    // Only the kernel has the length of what is detached, and the call is rare.
    super::ring().note(UnmapEvent::Everything);
    // SAFETY: the caller's promise, for both branches.
    let result = unsafe {
        match SHMDT.get::<Shmdt>() {
            Some(next) => next(addr),
            None => libc::syscall(arch::SYS_SHMDT, addr) as c_int,
        }
    };
    super::ring().note(UnmapEvent::Everything);
    result
}

/// libc's variable with the end of the heap.
fn current_break() -> *mut usize {
    // Relaxed: it is set before the first entry leads here.
    CURRENT_BREAK.load(Ordering::Relaxed) as *mut usize
}

/// # Safety
/// The conditions of brk(2): code that moves the end of the heap is the allocator, or does not conflict with it.
pub unsafe extern "C" fn brk(addr: *mut c_void) -> c_int {
    // SAFETY: libc's variable, which its own `brk` reads and writes in the same way.
    let shrinks = unsafe { current_break().read() }.saturating_sub(addr as usize);
    // 0 only queries the end.
    let lost = if addr.is_null() { 0 } else { shrinks };
    gone(addr as usize, lost);
    // SAFETY: the caller's promise, for both branches.
    let result = unsafe {
        match BRK.get::<Brk>() {
            Some(next) => next(addr),
            None => move_break(addr),
        }
    };
    gone(addr as usize, lost);
    result
}

/// The system call, as libc makes it.
///
/// # Safety
/// The conditions of brk(2).
unsafe fn move_break(addr: *mut c_void) -> c_int {
    // SAFETY: the caller's promise; the variable is libc's, see `brk`; errno is the thread's own.
    unsafe {
        let end = libc::syscall(libc::SYS_brk, addr) as usize;
        current_break().write(end);
        if end >= addr as usize {
            return 0;
        }
        *libc::__errno_location() = libc::ENOMEM;
        -1
    }
}

/// Replaces only an `sbrk` that other code has put in place of libc's; libc's own calls `brk`.
///
/// # Safety
/// The conditions of sbrk(2).
pub unsafe extern "C" fn sbrk(increment: isize) -> *mut c_void {
    let lost = increment.min(0).unsigned_abs();
    // SAFETY: libc's variable, which its own `brk` reads and writes in the same way.
    let start = unsafe { current_break().read() }.saturating_sub(lost);
    gone(start, lost);
    // SAFETY: the caller's promise, for both branches.
    let result = unsafe {
        match SBRK.get::<Sbrk>() {
            Some(next) => next(increment),
            None => move_break_by(increment),
        }
    };
    gone(start, lost);
    result
}

/// Does the same as libc's `sbrk`.
///
/// # Safety
/// The conditions of sbrk(2).
unsafe fn move_break_by(increment: isize) -> *mut c_void {
    let failed = usize::MAX as *mut c_void;
    // SAFETY: libc's variable, which its own `brk` reads and writes in the same way.
    unsafe {
        let old = current_break().read();
        if increment == 0 && old != 0 {
            return old as *mut c_void;
        }
        let Some(new) = old.checked_add_signed(increment) else {
            *libc::__errno_location() = libc::ENOMEM;
            return failed;
        };
        match brk(new as *mut c_void) {
            0 => old as *mut c_void,
            _ => failed,
        }
    }
}
