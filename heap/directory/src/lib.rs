//! The directory of a shared heap: the table in which `librucp_heap.so` publishes the segments of its process. `libucp`
//! reads it in the same process, to find the segment of registered memory, and in peers of the same host and user,
//! which map it, to copy from and to the segments.
#![no_std]
#![forbid(unsafe_code)]

use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The function of `librucp_heap.so` that returns the directory of this process, a `*const Directory`; null while there
/// is no heap.
pub const SYMBOL: &CStr = c"rucp_heap_directory";

/// Most segments of a heap. Their sizes double, so that few are needed.
pub const MAX_SEGMENTS: usize = 64;

/// First word of a directory, with the version of its layout.
const MAGIC: u64 = u64::from_le_bytes(*b"rucphe01");

const UNUSED: u32 = 0;
const SHARED: u32 = 1;
const WITHDRAWN: u32 = 2;

/// By what peers open a file of the process: its descriptor there, and the low 32 bits of its inode number, which show
/// that the descriptor has not been closed and opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    pub fd: u32,
    pub ino: u32,
}

/// A segment: a sealed memfd, all of which the process has mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub file: FileId,
    /// Where it begins in the process; a multiple of the page size.
    pub base: u64,
    /// Bytes.
    pub len: u64,
}

impl Segment {
    /// The offset of `len` bytes at an address of the process. `None`: they are not all in the segment.
    pub fn offset_of(&self, addr: u64, len: u64) -> Option<u64> {
        let at = addr.wrapping_sub(self.base);
        (at <= self.len && len <= self.len - at).then_some(at)
    }
}

#[repr(C)]
#[derive(Debug)]
struct Entry {
    /// [`UNUSED`], [`SHARED`] or [`WITHDRAWN`], in this order.
    state: AtomicU32,
    fd: AtomicU32,
    ino: AtomicU32,
    _unused: u32,
    base: AtomicU64,
    len: AtomicU64,
}

/// The directory, in memory that is zero at first. Only its process writes it. A peer may write anything: readers check
/// what they read where a file is opened.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Directory {
    magic: AtomicU64,
    fd: AtomicU32,
    ino: AtomicU32,
    entries: [Entry; MAX_SEGMENTS],
}

impl Directory {
    /// Makes zeroed memory a directory, which peers open by `file`.
    pub fn begin(&self, file: FileId) {
        self.fd.store(file.fd, Ordering::Relaxed);
        self.ino.store(file.ino, Ordering::Relaxed);
        // Release: pairs with the Acquire load in `file`.
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// By what peers open the directory. `None`: this is none, or that of another version.
    pub fn file(&self) -> Option<FileId> {
        // Acquire: pairs with the Release store in `begin`.
        (self.magic.load(Ordering::Acquire) == MAGIC).then(|| FileId {
            fd: self.fd.load(Ordering::Relaxed),
            ino: self.ino.load(Ordering::Relaxed),
        })
    }

    /// Publishes the segment of this number, which is not used yet or published anew in a forked child.
    pub fn publish(&self, number: usize, segment: Segment) {
        let entry = &self.entries[number];
        entry.fd.store(segment.file.fd, Ordering::Relaxed);
        entry.ino.store(segment.file.ino, Ordering::Relaxed);
        entry.base.store(segment.base, Ordering::Relaxed);
        entry.len.store(segment.len, Ordering::Relaxed);
        // Release: pairs with the Acquire load in `segment_in`.
        entry.state.store(SHARED, Ordering::Release);
    }

    /// Withdraws a segment: the process has mapped something else in its place.
    pub fn withdraw(&self, number: usize) {
        // Release: pairs with the Acquire load in `segment_in`.
        self.entries[number]
            .state
            .store(WITHDRAWN, Ordering::Release);
    }

    /// The shared segment of this number.
    pub fn segment(&self, number: usize) -> Option<Segment> {
        self.segment_in(number, SHARED..=SHARED)
    }

    /// The segment of this number that the process has mapped, shared or not.
    pub fn mapped(&self, number: usize) -> Option<Segment> {
        self.segment_in(number, SHARED..=WITHDRAWN)
    }

    fn segment_in(&self, number: usize, states: core::ops::RangeInclusive<u32>) -> Option<Segment> {
        let entry = &self.entries[number];
        // Acquire: pairs with the Release stores in `publish` and `withdraw`.
        states
            .contains(&entry.state.load(Ordering::Acquire))
            .then(|| Segment {
                file: FileId {
                    fd: entry.fd.load(Ordering::Relaxed),
                    ino: entry.ino.load(Ordering::Relaxed),
                },
                base: entry.base.load(Ordering::Relaxed),
                len: entry.len.load(Ordering::Relaxed),
            })
    }

    /// The shared segment that has `len` bytes at `addr`, and its number.
    pub fn find(&self, addr: u64, len: u64) -> Option<(usize, Segment)> {
        (0..MAX_SEGMENTS)
            .take_while(|&number| self.mapped(number).is_some())
            .filter_map(|number| Some((number, self.segment(number)?)))
            .find(|(_, segment)| segment.offset_of(addr, len).is_some())
    }
}

const _: () = assert!(UNUSED < SHARED && SHARED < WITHDRAWN);
const _: () = assert!(size_of::<Directory>() == 4096);

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> Directory {
        // What a new file in memory is.
        Directory {
            magic: AtomicU64::new(0),
            fd: AtomicU32::new(0),
            ino: AtomicU32::new(0),
            entries: [const {
                Entry {
                    state: AtomicU32::new(0),
                    fd: AtomicU32::new(0),
                    ino: AtomicU32::new(0),
                    _unused: 0,
                    base: AtomicU64::new(0),
                    len: AtomicU64::new(0),
                }
            }; MAX_SEGMENTS],
        }
    }

    fn segment(base: u64, len: u64) -> Segment {
        let file = FileId { fd: 5, ino: 77 };
        Segment { file, base, len }
    }

    #[test]
    fn zeroed_memory_is_no_directory() {
        let directory = directory();
        assert_eq!((directory.file(), directory.find(0, 0)), (None, None));
        let file = FileId { fd: 3, ino: 9 };
        directory.begin(file);
        assert_eq!(directory.file(), Some(file));
        assert_eq!(directory.find(0, 0), None);
    }

    #[test]
    fn bytes_are_found_in_the_segment_that_has_all_of_them() {
        let directory = directory();
        directory.publish(0, segment(0x1000, 0x1000));
        directory.publish(1, segment(0x2000, 0x1000));
        let found = |addr, len| directory.find(addr, len).map(|(number, _)| number);
        assert_eq!(
            (found(0x1000, 0x1000), found(0x2FFF, 1)),
            (Some(0), Some(1))
        );
        assert_eq!(
            (found(0x1FFF, 2), found(0xFFF, 2), found(0x3000, 1)),
            (None, None, None)
        );
        assert_eq!((found(0x1800, u64::MAX), found(u64::MAX, 2)), (None, None));
    }

    #[test]
    fn a_withdrawn_segment_hides_none_behind_it() {
        let directory = directory();
        directory.publish(0, segment(0x1000, 0x1000));
        directory.publish(1, segment(0x2000, 0x1000));
        directory.withdraw(0);
        assert_eq!(directory.find(0x1000, 1), None);
        assert_eq!(
            directory.find(0x2000, 1),
            Some((1, segment(0x2000, 0x1000)))
        );
        assert_eq!(directory.mapped(0), Some(segment(0x1000, 0x1000)));
    }
}
