//! What runs in the place of libc's `munmap` and its like: it tells of the addresses, and makes the system call.
//!
//! These run inside of `free`, in signal handlers, in any thread and in children. They take no lock, allocate nothing,
//! use no thread-local variable (the first use of one may allocate), and leave `errno` as the functions that they stand
//! for do.
//!
//! They tell twice. Before the call, so that whoever gets the same addresses afterwards finds the old registration
//! gone; after it, for what was registered in between.

use super::events::{UnmapEvent, VaRange};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// Where a function went on before its entry became ours: 0 where it was libc's own, and the system call is made here.
pub struct OrigFn(AtomicUsize);

impl OrigFn {
    const fn new() -> Self {
        OrigFn(AtomicUsize::new(0))
    }

    /// Sends later calls on to this function, or to none by 0.
    pub fn set(&self, target: usize) {
        // Release: pairs with the Acquire load in `get`; who wrote that function did so before.
        self.0.store(target, Ordering::Release);
    }

    /// As a function pointer of type `F`, which has the size of a word.
    #[inline(always)]
    fn get<F: Copy>(&self) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<usize>()) };
        // Acquire: pairs with the Release store in `set`.
        let target = self.0.load(Ordering::Acquire);
        // SAFETY: the entry of the function that this chain belongs to led there.
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

/// An address that nobody else uses, while it is tried who hears of it.
static PROBED: AtomicUsize = AtomicUsize::new(0);
static HEARD: AtomicU8 = AtomicU8::new(0);

/// Our code, or a handler of ours, ran.
pub const BY_US: u8 = 1;
/// The program reported it.
pub const BY_PROGRAM: u8 = 2;

/// Who hears of a call of a memory function with this address, which nobody else uses. One at a time may try.
pub fn reports_to(addr: usize, call: impl FnOnce()) -> u8 {
    // Relaxed: the same thread makes the call; others have other addresses.
    HEARD.store(0, Ordering::Relaxed);
    PROBED.store(addr, Ordering::Relaxed);
    call();
    PROBED.store(0, Ordering::Relaxed);
    HEARD.load(Ordering::Relaxed)
}

/// Notes who has heard, if it is the address that is tried.
#[inline]
pub fn note_if_probed(addr: usize, who: u8) {
    if addr != 0 && addr == PROBED.load(Ordering::Relaxed) {
        HEARD.fetch_or(who, Ordering::Relaxed);
    }
}

/// Tells that these bytes go, or went. The pages that they lie on do: registrations are of whole pages, too.
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
/// As munmap(2).
pub unsafe extern "C" fn munmap(addr: *mut c_void, len: usize) -> c_int {
    gone(addr as usize, len);
    // SAFETY: the caller's promise, for this and the next.
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
/// As mmap(2).
pub unsafe extern "C" fn mmap(
    addr: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // Nothing else is ever replaced by a mapping.
    let replaced = if flags & libc::MAP_FIXED != 0 { len } else { 0 };
    gone(addr as usize, replaced);
    // SAFETY: the caller's promise, for this and the next.
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
/// As mremap(2). C declares the last parameter as variable: where the caller passes none it is whatever the register
/// has.
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
    // SAFETY: the caller's promise, for this and the next.
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

/// Linux 6.13: accesses fail from now on, and what was there is gone.
const MADV_GUARD_INSTALL: c_int = 102;
/// Linux 5.18.
const MADV_DONTNEED_LOCKED: c_int = 24;

/// # Safety
/// As madvise(2).
pub unsafe extern "C" fn madvise(addr: *mut c_void, len: usize, advice: c_int) -> c_int {
    let emptied = match advice {
        libc::MADV_DONTNEED | libc::MADV_REMOVE | libc::MADV_FREE => len,
        MADV_DONTNEED_LOCKED | MADV_GUARD_INSTALL => len,
        _ => 0,
    };
    gone(addr as usize, emptied);
    // SAFETY: the caller's promise, for this and the next.
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
/// As shmat(2).
pub unsafe extern "C" fn shmat(id: c_int, addr: *const c_void, flags: c_int) -> *mut c_void {
    note_if_probed(addr as usize, BY_US);
    // How much is replaced only the segment's owner knows.
    let replaces = flags & libc::SHM_REMAP != 0;
    if replaces {
        super::ring().note(UnmapEvent::Everything);
    }
    // SAFETY: the caller's promise, for this and the next.
    let result = unsafe {
        match SHMAT.get::<Shmat>() {
            Some(next) => next(id, addr, flags),
            None => libc::syscall(libc::SYS_shmat, id, addr, flags) as *mut c_void,
        }
    };
    if replaces {
        super::ring().note(UnmapEvent::Everything);
    }
    result
}

/// # Safety
/// As shmdt(2).
pub unsafe extern "C" fn shmdt(addr: *const c_void) -> c_int {
    note_if_probed(addr as usize, BY_US);
    // How much is detached only the kernel knows, and it happens seldom.
    super::ring().note(UnmapEvent::Everything);
    // SAFETY: the caller's promise, for this and the next.
    let result = unsafe {
        match SHMDT.get::<Shmdt>() {
            Some(next) => next(addr),
            None => libc::syscall(libc::SYS_shmdt, addr) as c_int,
        }
    };
    super::ring().note(UnmapEvent::Everything);
    result
}

/// The end of the heap, as libc knows it.
fn current_break() -> *mut usize {
    // Relaxed: it is set before the first entry leads here.
    CURRENT_BREAK.load(Ordering::Relaxed) as *mut usize
}

/// # Safety
/// As brk(2), and as there: whoever moves the end of the heap beside the allocator knows why.
pub unsafe extern "C" fn brk(addr: *mut c_void) -> c_int {
    // SAFETY: libc's variable, which its own `brk` reads and writes just so.
    let shrinks = unsafe { current_break().read() }.saturating_sub(addr as usize);
    // 0 only asks where the end is.
    let lost = if addr.is_null() { 0 } else { shrinks };
    gone(addr as usize, lost);
    // SAFETY: the caller's promise, for this and the next.
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
/// As brk(2).
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

/// Stands only for one that somebody else has put in the place of libc's, which calls `brk`.
///
/// # Safety
/// As sbrk(2).
pub unsafe extern "C" fn sbrk(increment: isize) -> *mut c_void {
    let lost = increment.min(0).unsigned_abs();
    // SAFETY: as in `brk`.
    let start = unsafe { current_break().read() }.saturating_sub(lost);
    gone(start, lost);
    // SAFETY: the caller's promise, for this and the next.
    let result = unsafe {
        match SBRK.get::<Sbrk>() {
            Some(next) => next(increment),
            None => move_break_by(increment),
        }
    };
    gone(start, lost);
    result
}

/// What libc's `sbrk` does.
///
/// # Safety
/// As sbrk(2).
unsafe fn move_break_by(increment: isize) -> *mut c_void {
    let failed = usize::MAX as *mut c_void;
    // SAFETY: as in `brk`.
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
