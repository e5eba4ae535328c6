//! The shared heap of this process: memory that `librucp_heap.so`, where it is preloaded, gives the program for large
//! allocations, and that peers can map.

use super::dl_objects;
use super::memfd::MemfdId;
use crate::sys::sync::OnceLock;
use rucp_heap_directory::{Directory, FileId, SYMBOL, Segment};
use std::mem;

/// The function of `librucp_heap.so`.
type FindDirectory = extern "C" fn() -> *const Directory;

/// Whether the library is preloaded.
pub fn is_loaded() -> bool {
    find_directory().is_some()
}

fn find_directory() -> Option<FindDirectory> {
    static FOUND: OnceLock<usize> = OnceLock::new();
    let address = *FOUND.get_or_init(|| dl_objects::global_symbol(SYMBOL));
    // SAFETY: the symbol is of that type in `librucp_heap.so`, which alone has the name, and which is not unloaded.
    (address != 0).then(|| unsafe { mem::transmute::<usize, FindDirectory>(address) })
}

/// The directory. `None`: the library is not preloaded, or shares nothing.
pub fn directory() -> Option<&'static Directory> {
    let find = find_directory()?;
    // SAFETY: the library unmaps it in a forked child only, before other code of that runs; its fields are atomics.
    unsafe { find().as_ref() }
}

/// By what peers open the directory.
pub fn directory_id() -> Option<MemfdId> {
    let file = directory()?.file()?;
    Some(memfd_of(std::process::id(), file))
}

/// By what a file of the heap of process `pid` is opened.
pub fn memfd_of(pid: u32, FileId { fd, ino }: FileId) -> MemfdId {
    MemfdId { pid, fd, ino }
}

/// The segment that has the bytes from `start` to before `end`.
pub fn segment_of(start: u64, end: u64) -> Option<Segment> {
    let (_, segment) = directory()?.find(start, end.checked_sub(start)?)?;
    Some(segment)
}
