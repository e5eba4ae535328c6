//! A segment of the heap: a sealed memfd, mapped, of which ranges are allocated.

use crate::raw;
use range_alloc::RangeAllocator;
use rangemap::RangeSet;
use rucp_heap_directory::{FileId, Segment};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Bytes of the unit of allocation: a multiple of every system's page size.
pub const UNIT: usize = 64 << 10;

/// Segments begin at a multiple of so many bytes, the size of a huge page.
pub const ALIGNMENT: usize = 2 << 20;

/// Bytes of freed memory of a segment that keep their pages. More than that goes back to the system.
const KEPT: usize = 64 << 20;

/// Memory that is allocated: zero, or of unknown content.
pub struct Allocated {
    pub range: Range<usize>,
    pub is_zero: bool,
}

/// A segment. It stays mapped as long as the process lives.
pub struct HeapSegment {
    file: OwnedFd,
    base: usize,
    len: usize,
    /// Offsets in the segment.
    free: RangeAllocator<usize>,
    /// Free offsets whose pages are kept, and are not zero.
    kept: RangeSet<usize>,
    /// Bytes of `kept`.
    kept_bytes: usize,
    /// The process has mapped something else in its place: nothing is allocated there any more.
    is_withdrawn: bool,
}

/// A new sealed memfd: peers that map it rely on its length.
///
/// # Errors
/// `EMFILE`, `ENOMEM`; `EFBIG` where the process may not have files of that length: to extend one would end it.
pub fn make_file(name: &str, len: usize) -> io::Result<OwnedFd> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    if limit.is_some_and(|limit| limit < len as u64) {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::fchmod(&file, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
    rustix::fs::ftruncate(&file, len as u64)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(file)
}

/// By what peers open a file of this process.
pub fn file_id(file: &OwnedFd) -> io::Result<FileId> {
    let ino = rustix::fs::fstat(file)?.st_ino as u32;
    Ok(FileId {
        fd: file.as_raw_fd() as u32,
        ino,
    })
}

/// Maps a file of `len` bytes, shared, at a multiple of [`ALIGNMENT`]. Returns the address.
fn map_aligned(file: BorrowedFd, len: usize) -> io::Result<usize> {
    let room = len + ALIGNMENT;
    let place = raw::reserve(room)?;
    let base = place.next_multiple_of(ALIGNMENT);
    // SAFETY: parts of `place`, which nothing uses yet.
    unsafe {
        let mapped = raw::map_at(file, 0, base..base + len, libc::MAP_SHARED);
        match mapped {
            Ok(()) => {
                raw::release(place..base);
                raw::release(base + len..place + room);
            }
            Err(_) => raw::release(place..place + room),
        }
        mapped.map(|()| base)
    }
}

impl HeapSegment {
    /// A new segment of `len` bytes, a multiple of [`UNIT`], all free and zero.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`.
    pub fn create(len: usize) -> io::Result<Self> {
        let file = make_file("rucp-heap", len)?;
        let base = map_aligned(file.as_fd(), len)?;
        raw::prefer_huge_pages(base..base + len);
        Ok(Self {
            file,
            base,
            len,
            free: RangeAllocator::new(0..len),
            kept: RangeSet::new(),
            kept_bytes: 0,
            is_withdrawn: false,
        })
    }

    /// What its process's directory says of it.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn published(&self) -> io::Result<Segment> {
        Ok(Segment {
            file: file_id(&self.file)?,
            base: self.base as u64,
            len: self.len as u64,
        })
    }

    /// Its addresses.
    fn place(&self) -> Range<usize> {
        self.base..self.base + self.len
    }

    /// Whether some of these addresses are in the segment.
    pub fn overlaps(&self, range: &Range<usize>) -> bool {
        overlap(range, &self.place()) > 0
    }

    /// Whether the process has mapped something else in its place.
    pub fn is_withdrawn(&self) -> bool {
        self.is_withdrawn
    }

    /// Withdraws the segment from peers and from allocation.
    pub fn withdraw(&mut self) {
        self.is_withdrawn = true;
    }

    /// Allocates `len` bytes, a multiple of [`UNIT`], at addresses of this process. `align`: a power of two, from
    /// [`UNIT`] to [`ALIGNMENT`].
    pub fn allocate(&mut self, len: usize, align: usize) -> Option<Allocated> {
        if self.is_withdrawn {
            return None;
        }
        let range = match align {
            UNIT => self.free.allocate_range(len).ok()?,
            _ => self.free.allocate_range_aligned(len, align).ok()?,
        };
        let is_zero = !self.kept.overlaps(&range);
        if !is_zero {
            let kept: usize = self
                .kept
                .overlapping(&range)
                .map(|part| overlap(part, &range))
                .sum();
            self.kept_bytes -= kept;
            self.kept.remove(range.clone());
        }
        Some(Allocated {
            range: self.base + range.start..self.base + range.end,
            is_zero,
        })
    }

    /// Maps a range of addresses of the segment anew, as it was at first: the program has changed how it is mapped.
    pub fn renew(&self, range: Range<usize>) {
        if !self.is_withdrawn {
            let (file, offset) = (self.file.as_fd(), range.start - self.base);
            // It stays as the program has left it if that fails.
            // SAFETY: the segment's own addresses; the same content.
            let _ = unsafe { raw::map_at(file, offset, range, libc::MAP_SHARED) };
        }
    }

    /// Frees what [`allocate`](Self::allocate) has returned. `discard` gives pages of a range of addresses back to the
    /// system.
    pub fn free(&mut self, range: Range<usize>, discard: impl FnOnce(Range<usize>) -> bool) {
        let offsets = range.start - self.base..range.end - self.base;
        self.free.free_range(offsets.clone());
        let keeps = self.kept_bytes + offsets.len() <= KEPT;
        if self.is_withdrawn || (!keeps && discard(range)) {
            return;
        }
        self.kept_bytes += offsets.len();
        self.kept.insert(offsets);
    }

    /// Copies what is allocated into a new file.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`, `ENOSPC`.
    pub fn snapshot(&self) -> io::Result<OwnedFd> {
        let copy = make_file("rucp-heap", self.len)?;
        for range in self.free.allocated_ranges() {
            let mut at = range.start as u64;
            // Pages that were never written are none in the copy.
            while let Ok(data) = rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Data(at)) {
                if data >= range.end as u64 {
                    break;
                }
                let hole = rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Hole(data))?;
                let end = hole.min(range.end as u64);
                self.copy_range(&copy, data as usize..end as usize)?;
                at = end;
                if at >= range.end as u64 {
                    break;
                }
            }
        }
        Ok(copy)
    }

    fn copy_range(&self, copy: &OwnedFd, range: Range<usize>) -> io::Result<()> {
        let mut at = range.start;
        while at < range.end {
            let from = (self.base + at) as *const c_void;
            // By a system call, which fails where a store would end the process.
            // SAFETY: the kernel checks the addresses, which this process has mapped.
            let moved = unsafe { libc::pwrite(copy.as_raw_fd(), from, range.end - at, at as i64) };
            match moved {
                1.. => at += moved as usize,
                0 => return Err(io::ErrorKind::WriteZero.into()),
                _ => return Err(io::Error::last_os_error()),
            }
        }
        Ok(())
    }

    /// In a forked child: maps the copy in place of what the parent shares, and closes the parent's file. Without a
    /// copy: maps the parent's file as private memory.
    ///
    /// # Errors
    /// Those of the system: the memory is still the parent's.
    pub fn separate(&mut self, copy: Option<OwnedFd>) -> io::Result<()> {
        if self.is_withdrawn {
            return Ok(());
        }
        let Some(copy) = copy else {
            self.is_withdrawn = true;
            // SAFETY: the segment's own addresses; the same content.
            return unsafe { raw::map_at(self.file.as_fd(), 0, self.place(), libc::MAP_PRIVATE) };
        };
        // The number stays, so that none that the program has found unused is taken.
        // SAFETY: both descriptors are this library's own.
        if unsafe { libc::dup3(copy.as_raw_fd(), self.file.as_raw_fd(), libc::O_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the segment's own addresses.
        unsafe { raw::map_at(self.file.as_fd(), 0, self.place(), libc::MAP_SHARED) }?;
        // What is free was not copied.
        self.kept.clear();
        self.kept_bytes = 0;
        Ok(())
    }
}

/// Bytes that two ranges share.
pub fn overlap(one: &Range<usize>, other: &Range<usize>) -> usize {
    one.end
        .min(other.end)
        .saturating_sub(one.start.max(other.start))
}
