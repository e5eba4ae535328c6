//! A segment of the heap: a sealed memfd, mapped, of which ranges are allocated.

use crate::raw;
use range_alloc::RangeAllocator;
use rangemap::RangeSet;
use rucp_heap_directory::{FileId, Segment};
use rustix::fs::{MemfdFlags, SealFlags, SeekFrom, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use rustix::process::Resource;
use std::ffi::c_int;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Bytes of the unit of allocation: a multiple of every system's page size.
pub const UNIT: usize = 64 << 10;

/// Bytes of the smallest page.
const PAGE: usize = 4 << 10;

/// Segments begin at a multiple of so many bytes, the size of a huge page.
pub const ALIGNMENT: usize = 2 << 20;

/// Bytes of freed memory of a segment that keep their pages. More than that goes back to the system.
const KEPT: usize = 64 << 20;

/// Memory that is allocated: zero, or of unknown content.
pub struct Allocated {
    pub range: Range<usize>,
    pub is_zero: bool,
}

/// How a segment's memory is mapped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Shared. Peers map it, and allocations are made in it.
    Shared,
    /// Shared, but for the parts in whose place the program has mapped something else. Peers do not use it, and
    /// nothing is allocated in it any more.
    Closed,
    /// Private memory of a forked child, as `Closed` else.
    Private,
}

/// A segment. It stays mapped as long as the process lives.
pub struct HeapSegment {
    file: OwnedFd,
    /// What `file` was when it was opened: the program may have closed it, and opened another one by the same number.
    id: FileId,
    base: usize,
    len: usize,
    /// Offsets in the segment.
    free: RangeAllocator<usize>,
    /// Free offsets whose pages are kept, and are not zero.
    kept: RangeSet<usize>,
    /// Bytes of `kept`.
    kept_bytes: usize,
    state: State,
    /// Offsets of what the program has mapped in the segment's place, or unmapped.
    replaced: RangeSet<usize>,
}

/// A copy of the allocated parts of a segment, in private memory, for a child.
pub struct Snapshot {
    /// As long as the segment, without pages where nothing was written.
    place: Range<usize>,
    /// Parts of the segment whose protection differs, by addresses.
    protected: Vec<(Range<usize>, c_int)>,
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        // SAFETY: it was reserved for the snapshot; what a child has moved away is not mapped there any more.
        unsafe { raw::release(self.place.clone()) };
    }
}

/// A new sealed memfd: peers that map it rely on its length.
///
/// # Errors
/// `EMFILE`, `ENOMEM`; `EFBIG` where the process may not have files of that length: to extend one would end it.
pub fn make_file(name: &str, len: usize) -> io::Result<OwnedFd> {
    let limit = rustix::process::getrlimit(Resource::Fsize).current;
    if limit.is_some_and(|limit| limit < len as u64) {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let file = with_high_number(file);
    rustix::fs::fchmod(&file, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
    rustix::fs::ftruncate(&file, len as u64)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(file)
}

/// The same file by a high number: programs use the lowest ones for files of their own without asking whether they are
/// free.
fn with_high_number(file: OwnedFd) -> OwnedFd {
    let limit = rustix::process::getrlimit(Resource::Nofile).current;
    let first = limit.unwrap_or(1024).min(4096) as i32 / 2;
    rustix::io::fcntl_dupfd_cloexec(&file, first).unwrap_or(file)
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
        let id = file_id(&file)?;
        Ok(Self {
            file,
            id,
            base,
            len,
            free: RangeAllocator::new(0..len),
            kept: RangeSet::new(),
            kept_bytes: 0,
            state: State::Shared,
            replaced: RangeSet::new(),
        })
    }

    /// What its process's directory says of it.
    pub fn published(&self) -> Segment {
        Segment {
            file: self.id,
            base: self.base as u64,
            len: self.len as u64,
        }
    }

    /// Whether the descriptor still is that of the segment.
    fn has_file(&self) -> bool {
        file_id(&self.file).is_ok_and(|id| id == self.id)
    }

    /// Its addresses.
    fn place(&self) -> Range<usize> {
        self.base..self.base + self.len
    }

    /// Whether some of these addresses are in the segment.
    pub fn overlaps(&self, range: &Range<usize>) -> bool {
        overlap(range, &self.place()) > 0
    }

    /// The parts of a range of addresses that are the segment's shared memory.
    pub fn shared_parts(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        let own = range.start.max(self.base)..range.end.min(self.base + self.len);
        if own.is_empty() || self.state == State::Private {
            return Vec::new();
        }
        let offsets = own.start - self.base..own.end - self.base;
        let parts = self.replaced.gaps(&offsets);
        parts.map(|part| self.addresses(&part)).collect()
    }

    /// The addresses of these offsets.
    fn addresses(&self, offsets: &Range<usize>) -> Range<usize> {
        self.base + offsets.start..self.base + offsets.end
    }

    /// Withdraws the segment from peers and from allocation: the program maps something else at these addresses.
    pub fn withdraw(&mut self, range: &Range<usize>) {
        let end = (range.end.min(self.base + self.len) - self.base).next_multiple_of(PAGE);
        let start = range.start.max(self.base) - self.base;
        if start < end {
            self.replaced.insert(start..end);
        }
        self.leave();
    }

    /// Withdraws the segment from peers and from allocation.
    pub fn leave(&mut self) {
        if self.state == State::Shared {
            self.state = State::Closed;
        }
    }

    /// Allocates `len` bytes, a multiple of [`UNIT`], at addresses of this process. `align`: a power of two, from
    /// [`UNIT`] to [`ALIGNMENT`].
    pub fn allocate(&mut self, len: usize, align: usize) -> Option<Allocated> {
        if self.state != State::Shared {
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
        if self.state == State::Shared && self.has_file() {
            let (file, offset) = (self.file.as_fd(), range.start - self.base);
            // It stays as the program has left it if that fails.
            // SAFETY: the segment's own addresses; the same content.
            let _ = unsafe { raw::map_at(file, offset, range, libc::MAP_SHARED) };
        }
    }

    /// Frees what [`allocate`](Self::allocate) has returned. `discard` gives pages of a range of addresses back to the
    /// system.
    pub fn free(&mut self, range: Range<usize>, discard: impl Fn(Range<usize>) -> bool) {
        let offsets = range.start - self.base..range.end - self.base;
        self.free.free_range(offsets.clone());
        match self.state {
            State::Shared => {
                let keeps = self.kept_bytes + offsets.len() <= KEPT;
                if keeps || !discard(range) {
                    self.kept_bytes += offsets.len();
                    self.kept.insert(offsets);
                }
            }
            State::Closed => {
                for part in self.shared_parts(&range) {
                    discard(part);
                }
            }
            State::Private => {
                for part in self.replaced.gaps(&offsets) {
                    raw::forget(self.addresses(&part));
                }
            }
        }
    }

    /// Copies what is allocated and was written, for a child. `changed`: whether the protection of a part may differ.
    /// `None`: the child needs no copy, because the memory is private.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn snapshot(&self, changed: bool) -> io::Result<Option<Snapshot>> {
        if self.state == State::Private {
            return Ok(None);
        }
        let start = raw::reserve_memory(self.len)?;
        let copy = Snapshot {
            place: start..start + self.len,
            protected: match changed {
                true => self.protections(),
                false => Vec::new(),
            },
        };
        let has_file = self.has_file();
        for range in self.free.allocated_ranges() {
            for part in self.replaced.gaps(&range) {
                match has_file {
                    true => self.copy_written(part, start)?,
                    false => {
                        raw::copy_readable(self.base + part.start, start + part.start, part.len())
                    }
                }
            }
        }
        Ok(Some(copy))
    }

    /// The parts that may not be both read and written, and how they may be accessed.
    fn protections(&self) -> Vec<(Range<usize>, c_int)> {
        let all = raw::mapped(&self.place()).into_iter();
        let own = all.filter(|mapped| mapped.ino == self.id.ino && mapped.access != raw::ACCESS);
        own.map(|mapped| (mapped.part, mapped.access)).collect()
    }

    /// Finds what was mapped in the segment's place without this library's knowledge.
    pub fn find_replaced(&mut self) {
        if self.state == State::Private {
            return;
        }
        let mut replaced = RangeSet::new();
        replaced.insert(0..self.len);
        for mapped in raw::mapped(&self.place()) {
            if mapped.ino == self.id.ino {
                replaced.remove(mapped.part.start - self.base..mapped.part.end - self.base);
            }
        }
        self.replaced = replaced;
    }

    /// Copies the pages of a part that were written, from the file: the program may have protected the mapping.
    fn copy_written(&self, part: Range<usize>, to: usize) -> io::Result<()> {
        let mut at = part.start as u64;
        while at < part.end as u64 {
            let data = match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
                Ok(data) if data < part.end as u64 => data,
                Ok(_) | Err(Errno::NXIO) => return Ok(()),
                Err(e) => return Err(e.into()),
            };
            let hole = rustix::fs::seek(&self.file, SeekFrom::Hole(data))?;
            at = hole.min(part.end as u64);
            let mut done = data;
            while done < at {
                let place = (to + done as usize) as *mut u8;
                // SAFETY: the snapshot is as long as the segment, and this function alone uses it.
                let room = unsafe { std::slice::from_raw_parts_mut(place, (at - done) as usize) };
                match rustix::io::pread(&self.file, room, done)? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    n => done += n as u64,
                }
            }
        }
        Ok(())
    }

    /// In a forked child: puts the copy in place of what the parent shares. The memory is private from then on.
    ///
    /// # Errors
    /// `ENOMEM`: the memory, or a part of it, is still the parent's.
    pub fn separate(&mut self, copy: Snapshot) -> io::Result<()> {
        for part in self.replaced.gaps(&(0..self.len)) {
            let from = copy.place.start + part.start..copy.place.start + part.end;
            // SAFETY: the snapshot is used no more; the place is the segment's own.
            unsafe { raw::move_to(from, self.base + part.start) }?;
        }
        for (range, access) in &copy.protected {
            // SAFETY: as the program had protected it in the parent.
            unsafe { raw::protect(range.clone(), *access) };
        }
        self.end_sharing();
        Ok(())
    }

    /// In a forked child without a copy: what the parent writes later may be seen, and nothing that the child writes is
    /// the parent's.
    ///
    /// # Errors
    /// `ENOMEM`, `EBADF`: the memory, or a part of it, is still the parent's.
    pub fn separate_without_copy(&mut self) -> io::Result<()> {
        if !self.has_file() {
            return Err(Errno::BADF.into());
        }
        for part in self.replaced.gaps(&(0..self.len)) {
            let (file, place) = (self.file.as_fd(), self.addresses(&part));
            // SAFETY: the segment's own addresses; the same content.
            unsafe { raw::map_at(file, part.start, place, libc::MAP_PRIVATE) }?;
        }
        self.end_sharing();
        Ok(())
    }

    /// The memory is this child's alone from now on.
    fn end_sharing(&mut self) {
        self.kept.clear();
        self.kept_bytes = 0;
        self.state = State::Private;
        if self.has_file() {
            // SAFETY: the segment uses the descriptor no more: no file has the inode 0.
            unsafe { libc::close(self.file.as_raw_fd()) };
            self.id.ino = 0;
        }
    }
}

/// Bytes that two ranges share.
pub fn overlap(one: &Range<usize>, other: &Range<usize>) -> usize {
    one.end
        .min(other.end)
        .saturating_sub(one.start.max(other.start))
}
