//! System calls of memory that do not go through libc's functions, whose place this library takes.

use std::ffi::{c_int, c_long};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

const ACCESS: c_int = libc::PROT_READ | libc::PROT_WRITE;

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
    let (start, len) = (range.start as c_long, range.len() as c_long);
    // Refused by systems without them, which changes nothing.
    // SAFETY: the advice does not change what is in memory.
    unsafe {
        libc::syscall(
            libc::SYS_madvise,
            start,
            len,
            c_long::from(libc::MADV_HUGEPAGE),
        )
    };
}
