//! The directory of this process's heap, in a memfd that peers map.

use crate::raw;
use crate::segment::{file_id, make_file};
use rucp_heap_directory::Directory;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The directory, null before the first segment. Unmapped in forked children only.
static DIRECTORY: AtomicPtr<Directory> = AtomicPtr::new(null_mut());

/// The directory, if there is one.
pub fn existing() -> *const Directory {
    // Acquire: pairs with the Release store in `get`.
    DIRECTORY.load(Ordering::Acquire)
}

/// The directory, made by the first call. The caller has locked the heap.
///
/// # Errors
/// `EMFILE`, `ENOMEM`.
pub fn get() -> io::Result<&'static Directory> {
    // SAFETY: mapped as long as the process lives; the fields are atomics.
    if let Some(directory) = unsafe { existing().as_ref() } {
        return Ok(directory);
    }
    let place = raw::reserve(size_of::<Directory>())?;
    let directory = map_new(place)?;
    // Release: pairs with the Acquire load in `existing`.
    DIRECTORY.store(std::ptr::from_ref(directory).cast_mut(), Ordering::Release);
    Ok(directory)
}

/// In a forked child: the directory is the parent's. The child has none until it has a segment of its own.
pub fn separate() {
    let place = DIRECTORY.swap(null_mut(), Ordering::Relaxed);
    // SAFETY: as in `get`.
    let Some(file) = unsafe { place.as_ref() }.and_then(Directory::file) else {
        return;
    };
    // SAFETY: an open number; the program may have closed it and opened another file by it.
    let found = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(file.fd as i32) });
    if found.is_ok_and(|found| found.st_ino as u32 == file.ino) {
        // SAFETY: this library has opened it and uses it no more.
        unsafe { libc::close(file.fd as i32) };
    }
    // SAFETY: this module's page, to which it has no pointer any more.
    unsafe { raw::release(place as usize..place as usize + size_of::<Directory>()) };
}

/// Maps a new directory at an address whose page is this module's.
fn map_new(place: usize) -> io::Result<&'static Directory> {
    let len = size_of::<Directory>();
    let file = make_file("rucp-heap-directory", len)?;
    // SAFETY: the page is this module's.
    unsafe { raw::map_at(file.as_fd(), 0, place..place + len, libc::MAP_SHARED) }?;
    // SAFETY: mapped as long as the process lives, zeroed, and its fields are atomics.
    let directory = unsafe { &*(place as *const Directory) };
    directory.begin(file_id(&file)?);
    // Peers open the file by its descriptor.
    let _ = file.into_raw_fd();
    Ok(directory)
}
