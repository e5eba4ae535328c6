//! System calls by which a program changes what lies at addresses of the heap. It may do that with memory that
//! `malloc` has returned as long as that is private; so it must see no difference here. Where something else is mapped
//! in the heap's place, the segment is withdrawn from peers.

use crate::fork::with_heap;
use crate::heap::may_contain;
use std::ffi::{CStr, c_int, c_void};
use std::mem;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A function of the library that is behind this one.
struct Next {
    name: &'static CStr,
    found: AtomicUsize,
}

impl Next {
    const fn new(name: &'static CStr) -> Self {
        let found = AtomicUsize::new(0);
        Self { name, found }
    }

    /// Its address. Ends the process if there is none, which no libc lacks.
    fn address(&self) -> usize {
        // Relaxed: every thread finds the same address.
        match self.found.load(Ordering::Relaxed) {
            0 => {
                // SAFETY: the name is a C string.
                let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) } as usize;
                if found == 0 {
                    std::process::abort();
                }
                self.found.store(found, Ordering::Relaxed);
                found
            }
            found => found,
        }
    }
}

/// Not in the crate libc for all systems.
const MADV_DONTNEED_LOCKED: c_int = 24;

type Mmap = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void;
type Munmap = unsafe extern "C" fn(*mut c_void, usize) -> c_int;
type Mremap = unsafe extern "C" fn(*mut c_void, usize, usize, c_int, *mut c_void) -> *mut c_void;
type Madvise = unsafe extern "C" fn(*mut c_void, usize, c_int) -> c_int;
type Mprotect = unsafe extern "C" fn(*mut c_void, usize, c_int) -> c_int;
type Mlock = unsafe extern "C" fn(*const c_void, usize) -> c_int;

static MMAP: Next = Next::new(c"mmap");
static MUNMAP: Next = Next::new(c"munmap");
static MREMAP: Next = Next::new(c"mremap");
static MADVISE: Next = Next::new(c"madvise");
static MPROTECT: Next = Next::new(c"mprotect");
static MLOCK: Next = Next::new(c"mlock");
static USABLE_SIZE: Next = Next::new(c"malloc_usable_size");

/// Bytes of an entry that are compared: more than code has that others patch into it.
const ENTRY: usize = 16;

/// The entries of this library's functions.
fn entries() -> [usize; 6] {
    [
        mmap as *const () as usize,
        munmap as *const () as usize,
        mremap as *const () as usize,
        madvise as *const () as usize,
        mprotect as *const () as usize,
        mlock as *const () as usize,
    ]
}

fn code() -> [[u8; ENTRY]; 6] {
    // SAFETY: functions of this library, each of which is longer.
    entries().map(|at| unsafe { (at as *const [u8; ENTRY]).read_volatile() })
}

static CODE: OnceLock<[[u8; ENTRY]; 6]> = OnceLock::new();

/// Records the entries; before the constructors of other libraries.
pub fn record_entries() {
    CODE.get_or_init(code);
}

/// Whether calls of the program still get here: a genuine libucm patches the functions that it finds by these names, so
/// that it calls the kernel itself.
pub fn are_reached() -> bool {
    CODE.get().is_none_or(|recorded| *recorded == code())
}

fn range_of(addr: *mut c_void, len: usize) -> Range<usize> {
    addr as usize..(addr as usize).saturating_add(len)
}

/// Whether some of these addresses may be in the heap.
fn may_touch(range: &Range<usize>) -> bool {
    may_contain(range.start) || may_contain(range.end.saturating_sub(1))
}

/// Withdraws what the program is about to replace.
fn replaced(range: Range<usize>) {
    if may_touch(&range) {
        with_heap(|heap| heap.withdraw(&range));
    }
}

/// Notes what the program is about to change, so that it does not last beyond `free`.
fn changed(range: Range<usize>) {
    if may_touch(&range) {
        with_heap(|heap| heap.note_change(&range));
    }
}

/// Gives pages of the heap back to the system; they read as zero afterwards. By libc's function, so that memory hooks
/// see it: a registration of these pages ends.
pub fn discard(range: Range<usize>) -> bool {
    // SAFETY: the type is that of libc's function; the memory is free.
    unsafe {
        let madvise = mem::transmute::<usize, Madvise>(MADVISE.address());
        madvise(range.start as *mut c_void, range.len(), libc::MADV_REMOVE) == 0
    }
}

/// Bytes of an allocation of libc.
///
/// # Safety
/// The conditions of malloc_usable_size(3).
pub unsafe fn libc_usable_size(memory: *mut c_void) -> usize {
    type UsableSize = unsafe extern "C" fn(*mut c_void) -> usize;
    // SAFETY: the type is that of libc's function; the caller's promise.
    unsafe { mem::transmute::<usize, UsableSize>(USABLE_SIZE.address())(memory) }
}

/// # Safety
/// The conditions of mmap(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    addr: *mut c_void,
    len: usize,
    access: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    if flags & libc::MAP_FIXED != 0 {
        replaced(range_of(addr, len));
    }
    // SAFETY: the type is that of libc's function; the caller's promise.
    unsafe { mem::transmute::<usize, Mmap>(MMAP.address())(addr, len, access, flags, fd, offset) }
}

/// # Safety
/// The conditions of mmap(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    addr: *mut c_void,
    len: usize,
    access: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { mmap(addr, len, access, flags, fd, offset) }
}

/// # Safety
/// The conditions of munmap(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(addr: *mut c_void, len: usize) -> c_int {
    replaced(range_of(addr, len));
    // SAFETY: the type is that of libc's function; the caller's promise.
    unsafe { mem::transmute::<usize, Munmap>(MUNMAP.address())(addr, len) }
}

/// Of memory of the heap: copies it to where it is moved, because what lies behind it in the file is another
/// allocation's. C declares the last parameter as variable: where the caller passes none it is not used.
///
/// # Safety
/// The conditions of mremap(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_len: usize,
    len: usize,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    let range = range_of(old, old_len.max(1));
    let is_ours = may_touch(&range) && !with_heap(|heap| heap.shared_parts(&range)).is_empty();
    // SAFETY: the types are those of libc's functions; the caller's promise; `errno` is the thread's own.
    unsafe {
        if !is_ours {
            if flags & libc::MREMAP_FIXED != 0 {
                replaced(range_of(new, len));
            }
            let next = mem::transmute::<usize, Mremap>(MREMAP.address());
            return next(old, old_len, len, flags, new);
        }
        if len <= old_len && flags & libc::MREMAP_FIXED == 0 {
            munmap(old.wrapping_byte_add(len), old_len - len);
            return old;
        }
        if flags & libc::MREMAP_MAYMOVE == 0 || old_len == 0 {
            *libc::__errno_location() = libc::ENOMEM;
            return libc::MAP_FAILED;
        }
        let fixed = flags & libc::MREMAP_FIXED;
        let (at, place) = match fixed {
            0 => (null_mut(), 0),
            _ => (new, libc::MAP_FIXED),
        };
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | place;
        let moved = mmap(at, len, libc::PROT_READ | libc::PROT_WRITE, kind, -1, 0);
        if moved != libc::MAP_FAILED {
            moved.copy_from_nonoverlapping(old, old_len.min(len));
            munmap(old, old_len);
        }
        moved
    }
}

/// Advice after which private memory reads as zero, at once or some time later: shared memory does so after
/// `MADV_REMOVE`.
///
/// # Safety
/// The conditions of madvise(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(addr: *mut c_void, len: usize, advice: c_int) -> c_int {
    let range = range_of(addr, len);
    // SAFETY: the type is that of libc's function; the caller's promise, here and below.
    let next = |part: Range<usize>, advice| unsafe {
        let madvise = mem::transmute::<usize, Madvise>(MADVISE.address());
        madvise(part.start as *mut c_void, part.len(), advice)
    };
    if !may_touch(&range) || matches!(advice, libc::MADV_REMOVE | libc::MADV_WILLNEED) {
        return next(range, advice);
    }
    if !matches!(
        advice,
        libc::MADV_DONTNEED | libc::MADV_FREE | MADV_DONTNEED_LOCKED
    ) {
        changed(range.clone());
        return next(range, advice);
    }
    // What is shared is removed from the file; between and behind it is what the program has mapped.
    let mut at = range.start;
    for part in with_heap(|heap| heap.shared_parts(&range)) {
        let end = part.end.min(range.end);
        if at < part.start && next(at..part.start, advice) != 0 {
            return -1;
        }
        if next(part.start..end, libc::MADV_REMOVE) != 0 {
            return -1;
        }
        at = end;
    }
    if at < range.end || range.is_empty() {
        return next(at..range.end, advice);
    }
    0
}

/// # Safety
/// The conditions of mprotect(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(addr: *mut c_void, len: usize, access: c_int) -> c_int {
    changed(range_of(addr, len));
    // SAFETY: the type is that of libc's function; the caller's promise.
    unsafe { mem::transmute::<usize, Mprotect>(MPROTECT.address())(addr, len, access) }
}

/// # Safety
/// The conditions of mlock(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock(addr: *const c_void, len: usize) -> c_int {
    changed(range_of(addr.cast_mut(), len));
    // SAFETY: the type is that of libc's function; the caller's promise.
    unsafe { mem::transmute::<usize, Mlock>(MLOCK.address())(addr, len) }
}
