//! System calls of memory that do not go through libc's functions, whose place this library takes.

use std::ffi::{c_int, c_long, c_void};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

/// How the heap's memory may be accessed.
pub const ACCESS: c_int = libc::PROT_READ | libc::PROT_WRITE;

/// Every parameter has the width of a register: the rest of one would be random.
///
/// # Safety
/// The conditions of mmap(2).
unsafe fn mmap(
    at: usize,
    len: usize,
    access: c_int,
    flags: c_int,
    (fd, offset): (c_int, usize),
) -> io::Result<usize> {
    let (at, len, access) = (at as c_long, len as c_long, c_long::from(access));
    let (flags, fd, offset) = (c_long::from(flags), c_long::from(fd), offset as c_long);
    // SAFETY: the caller's promise.
    match unsafe { libc::syscall(libc::SYS_mmap, at, len, access, flags, fd, offset) } {
        -1 => Err(io::Error::last_os_error()),
        start => Ok(start as usize),
    }
}

/// Maps a file from an offset on, in place of what is mapped at these addresses. `kind`: `MAP_SHARED` or `MAP_PRIVATE`.
///
/// # Errors
/// `ENOMEM`.
///
/// # Safety
/// The addresses are the caller's to replace.
pub unsafe fn map_at(
    file: BorrowedFd,
    offset: usize,
    place: Range<usize>,
    kind: c_int,
) -> io::Result<()> {
    let flags = kind | libc::MAP_NORESERVE | libc::MAP_FIXED;
    let from = (file.as_raw_fd(), offset);
    // SAFETY: the caller's promise.
    unsafe { mmap(place.start, place.len(), ACCESS, flags, from) }.map(|_| ())
}

/// Reserves addresses, without memory.
///
/// # Errors
/// `ENOMEM`.
pub fn reserve(len: usize) -> io::Result<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh mapping.
    unsafe { mmap(0, len, libc::PROT_NONE, flags, (-1, 0)) }
}

/// Private memory, zero, without pages.
///
/// # Errors
/// `ENOMEM`.
pub fn reserve_memory(len: usize) -> io::Result<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh mapping.
    unsafe { mmap(0, len, ACCESS, flags, (-1, 0)) }
}

/// Moves pages of private memory to an address, in place of what is mapped there.
///
/// # Errors
/// `ENOMEM`.
///
/// # Safety
/// Both are the caller's, and nothing uses the memory at `from`.
pub unsafe fn move_to(from: Range<usize>, to: usize) -> io::Result<()> {
    let (start, len, to) = (from.start as c_long, from.len() as c_long, to as c_long);
    let flags = c_long::from(libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED);
    // SAFETY: the caller's promise.
    match unsafe { libc::syscall(libc::SYS_mremap, start, len, len, flags, to) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Protects pages.
///
/// # Safety
/// Nothing accesses them otherwise.
pub unsafe fn protect(range: Range<usize>, access: c_int) {
    let (start, len) = (range.start as c_long, range.len() as c_long);
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_mprotect, start, len, c_long::from(access)) };
}

/// Advises the system of pages; what it refuses changes nothing.
///
/// # Safety
/// What the advice does to the memory is the caller's to do.
unsafe fn advise(range: Range<usize>, advice: c_int) {
    let (start, len) = (range.start as c_long, range.len() as c_long);
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_madvise, start, len, c_long::from(advice)) };
}

/// Gives pages of private memory back to the system.
pub fn forget(range: Range<usize>) {
    // SAFETY: the caller's memory is free.
    unsafe { advise(range, libc::MADV_DONTNEED) };
}

/// Copies memory of this process, page by page, and leaves out what cannot be read.
pub fn copy_readable(from: usize, to: usize, len: usize) {
    const PIECE: usize = 4 << 10;
    // SAFETY: no parameters.
    let me = unsafe { libc::getpid() };
    for at in (0..len).step_by(PIECE) {
        let part = PIECE.min(len - at);
        let piece = |start: usize| libc::iovec {
            iov_base: (start + at) as *mut c_void,
            iov_len: part,
        };
        let (here, there) = (piece(to), piece(from));
        // SAFETY: the caller's memory at `to`; the kernel checks the other.
        unsafe { libc::process_vm_readv(me, &here, 1, &there, 1, 0) };
    }
}

/// A mapping of this process, as far as it lies in a range of addresses.
pub struct Mapped {
    pub part: Range<usize>,
    /// `PROT_*`.
    pub access: c_int,
    /// Low half of the number of its file; 0: it has none.
    pub ino: u32,
}

/// What is mapped in a range of addresses.
pub fn mapped(range: &Range<usize>) -> Vec<Mapped> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let parse = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let letters = fields.next()?;
        let ino = fields.nth(2)?.parse::<u64>().ok()? as u32;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let part = number(start)?.max(range.start)..number(end)?.min(range.end);
        let has = |letter: char, bit: c_int| if letters.contains(letter) { bit } else { 0 };
        let access =
            has('r', libc::PROT_READ) | has('w', libc::PROT_WRITE) | has('x', libc::PROT_EXEC);
        (!part.is_empty()).then_some(Mapped { part, access, ino })
    };
    maps.lines().filter_map(parse).collect()
}

/// Gives reserved addresses back.
///
/// # Safety
/// Nothing uses them.
pub unsafe fn release(range: Range<usize>) {
    if !range.is_empty() {
        // SAFETY: the caller's promise.
        unsafe {
            libc::syscall(
                libc::SYS_munmap,
                range.start as c_long,
                range.len() as c_long,
            )
        };
    }
}

/// Has huge pages lie behind these addresses, where the system gives them to shared memory.
pub fn prefer_huge_pages(range: Range<usize>) {
    // SAFETY: the advice does not change what is in memory.
    unsafe { advise(range, libc::MADV_HUGEPAGE) };
}
