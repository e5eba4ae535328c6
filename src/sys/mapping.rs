//! Memory in this process's address space that is unmapped on drop.
//!
//! It is unmapped by libc's function, so that the memory hooks ([`super::mem_monitor`]) note it: the program may have
//! sent from memory that the library has allocated for it, and its registration ends with the mapping.

use super::fork;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::fd::AsFd;
use std::ptr::{NonNull, null_mut};

const ACCESS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Mapped memory, unmapped on drop.
pub struct Mapping {
    ptr: NonNull<u8>,
    len: usize,
    in_children: Option<fork::PrivateInChild>,
}

// SAFETY: a mapping is plain memory; its users synchronise their accesses.
unsafe impl Send for Mapping {}
// SAFETY: a mapping is plain memory, to which `Mapping` only hands out a pointer.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// First byte.
    pub fn ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// First byte, which is never at address 0.
    pub fn start(&self) -> NonNull<u8> {
        self.ptr
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Maps `len` bytes of a file from `offset`, a multiple of the page size, for reading and writing, shared. `at`: at
    /// this address, in place of what is mapped there.
    ///
    /// # Errors
    /// `ENOMEM` and the other errors of mmap(2).
    ///
    /// # Safety
    /// `len` bytes at `at` are the caller's to replace.
    pub unsafe fn of_file(
        file: impl AsFd,
        offset: u64,
        len: usize,
        at: Option<NonNull<u8>>,
    ) -> io::Result<Self> {
        let (hint, fixed) = place(at);
        // SAFETY: a fresh mapping; at a fixed address the caller's promise.
        let ptr = unsafe { mmap(hint, len, ACCESS, MapFlags::SHARED | fixed, file, offset) }?;
        // SAFETY: mapped above.
        unsafe { Self::mapped(ptr, len) }
    }

    /// Maps `len` bytes, zero, for reading and writing, of no file. `kind`: shared or private, and reserved or not.
    /// `at`: at this address, in place of what is mapped there.
    ///
    /// # Errors
    /// `ENOMEM` and the other errors of mmap(2).
    ///
    /// # Safety
    /// `len` bytes at `at` are the caller's to replace.
    pub unsafe fn anonymous(
        len: usize,
        kind: MapFlags,
        at: Option<NonNull<u8>>,
    ) -> io::Result<Self> {
        let (hint, fixed) = place(at);
        // SAFETY: a fresh mapping; at a fixed address the caller's promise.
        let ptr = unsafe { mmap_anonymous(hint, len, ACCESS, kind | fixed) }?;
        // SAFETY: mapped above.
        unsafe { Self::mapped(ptr, len) }
    }

    /// # Safety
    /// `len` bytes at `ptr` were just mapped.
    unsafe fn mapped(ptr: *mut c_void, len: usize) -> io::Result<Self> {
        let ptr = NonNull::new(ptr.cast()).ok_or(ErrorKind::InvalidInput)?;
        // SAFETY: the caller's promise; the mapping has no other owner yet.
        Ok(unsafe { Self::from_raw(ptr, len) })
    }

    /// A mapping that was made elsewhere.
    ///
    /// # Safety
    /// `len` bytes at `ptr` are mapped, and nothing else unmaps them.
    pub unsafe fn from_raw(ptr: NonNull<u8>, len: usize) -> Self {
        let in_children = None;
        Self {
            ptr,
            len,
            in_children,
        }
    }

    /// The mapping, which forked children do not share: they find private memory there, zero.
    pub fn without_children(mut self) -> Self {
        // SAFETY: mapped until it is dropped, for reading and writing.
        let private = || unsafe { fork::PrivateInChild::new(self.ptr, self.len) };
        self.in_children = (self.len > 0).then(private);
        self
    }

    /// Its first `at` bytes, whole pages, and the rest: each is unmapped separately. `at` is at most its length.
    pub fn split(self, at: usize) -> (Self, Self) {
        assert!(at <= self.len);
        let mut whole = std::mem::ManuallyDrop::new(self);
        let private = whole.in_children.take().is_some();
        // SAFETY: inside of the mapping, or at its end.
        let behind = unsafe { whole.ptr.add(at) };
        let part = |ptr, len| {
            // SAFETY: a part of a mapping, which nothing else unmaps.
            let part = unsafe { Self::from_raw(ptr, len) };
            if private {
                part.without_children()
            } else {
                part
            }
        };
        (part(whole.ptr, at), part(behind, whole.len - at))
    }

    /// Keeps these bytes of it, whole pages, and unmaps the others.
    pub fn cut(self, range: Range<usize>) -> Self {
        let end = range.end.min(self.len);
        self.split(end).0.split(range.start).1
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // Before munmap: another mapping may get the addresses at once.
        self.in_children = None;
        if self.len > 0 {
            // SAFETY: the range was mapped and is unmapped once.
            let _ = unsafe { munmap(self.ptr.as_ptr().cast(), self.len) };
        }
    }
}

/// The address to pass to the kernel, and the flag that makes it the place of the mapping.
fn place(at: Option<NonNull<u8>>) -> (*mut c_void, MapFlags) {
    match at {
        Some(at) => (at.as_ptr().cast(), MapFlags::FIXED),
        None => (null_mut(), MapFlags::empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::memfd::{Memfd, PAGE};

    /// Whether a page of this process is mapped.
    fn is_mapped(page: *mut u8) -> bool {
        let mut state = 0u8;
        // SAFETY: one byte for one page, mapped or not.
        unsafe { libc::mincore(page.cast(), 1, &mut state) == 0 }
    }

    #[test]
    fn a_part_stays_mapped() {
        let file = Memfd::create(4 * PAGE).unwrap();
        let map = file.map(0, 4 * PAGE, None).unwrap();
        // SAFETY: four pages.
        let pages = [0, 1, 2, 3].map(|page| unsafe { map.ptr().add(page * PAGE) });
        let (first, rest) = map.split(PAGE);
        let last = rest.cut(2 * PAGE..3 * PAGE);
        assert_eq!((first.ptr(), last.ptr()), (pages[0], pages[3]));
        assert_eq!(pages.map(is_mapped), [true, false, false, true]);
        drop((first, last));
        assert_eq!(pages.map(is_mapped), [false; 4]);
    }
}
