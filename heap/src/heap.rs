//! The heap of this process: its segments, what is allocated in them, and the lock.

use crate::directory;
use crate::memory_calls;
use crate::segment::{ALIGNMENT, HeapSegment, Snapshot, UNIT, overlap};
use rucp_heap_directory::MAX_SEGMENTS;
use rustix::process::Resource;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Allocations of so many bytes are made here, shorter ones by libc.
pub const THRESHOLD: usize = 64 << 10;

/// Bytes of the first segment. Each further one is twice as long as the one before, up to [`MAX_SEGMENT`].
const FIRST: usize = 256 << 20;
const MAX_SEGMENT: usize = 64 << 30;

/// The range of addresses in which all segments lie. Relaxed: a thread that frees memory got its address from the one
/// that allocated it, which has written the range before.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// The heap. Functions of this library lock it for a short time; a fork, from before it until after it.
pub static HEAP: Mutex<Heap> = Mutex::new(Heap::new());

/// The segments and allocations.
pub struct Heap {
    segments: Vec<HeapSegment>,
    /// Number of segments of the parent, in a forked child. The directory does not have them.
    first: usize,
    /// By address.
    allocations: BTreeMap<usize, Allocation>,
    /// Bytes of the shortest segment that the system has refused: libc allocates what needs one as long.
    refused: usize,
    /// Other code has taken the place of this library's functions: nothing is shared any more.
    is_bypassed: bool,
}

/// What was allocated at an address.
struct Allocation {
    segment: usize,
    /// Addresses.
    range: Range<usize>,
    /// The program has changed how a part is mapped: its protection, or advice that lasts.
    is_changed: bool,
}

/// Whether an address may be in the heap. False only if it is not.
#[inline(always)]
pub fn may_contain(addr: usize) -> bool {
    addr >= LOWEST.load(Ordering::Relaxed) && addr < HIGHEST.load(Ordering::Relaxed)
}

/// Bytes of a segment with room for `len`, at least, and usually: of the segment of this number. Where address space is
/// limited, it is as long as the allocation that needs it: what is reserved would be missing elsewhere.
fn segment_len(number: usize, len: usize) -> Option<(usize, usize)> {
    if rustix::process::getrlimit(Resource::As).current.is_some() {
        return Some((len, len));
    }
    let least = len.checked_next_multiple_of(ALIGNMENT)?;
    let usual = (FIRST << number.min(16)).min(MAX_SEGMENT);
    Some((least, least.max(usual)))
}

/// Whether an allocation of `len` bytes is not one that libc would refuse as private memory: longer than the system's
/// memory with swap, or limited by the process's limit of data.
fn is_left_to_us(len: usize) -> bool {
    let system = rustix::system::sysinfo();
    let all = (system.totalram + system.totalswap) as usize * system.mem_unit.max(1) as usize;
    len <= all && rustix::process::getrlimit(Resource::Data).current.is_none()
}

/// Withdraws a segment from the directory. `first`: the number of its first segment.
fn unpublish(number: usize, first: usize) {
    // SAFETY: mapped as long as the heap is locked; its fields are atomics.
    let directory = unsafe { directory::existing().as_ref() };
    if let (Some(directory), true) = (directory, number >= first) {
        directory.withdraw(number - first);
    }
}

impl Heap {
    const fn new() -> Self {
        Self {
            segments: Vec::new(),
            first: 0,
            allocations: BTreeMap::new(),
            refused: usize::MAX,
            is_bypassed: false,
        }
    }

    /// Allocates `size` bytes. `align`: a power of two. Returns the address, and whether the memory is zero. `None`:
    /// libc allocates it.
    pub fn allocate(&mut self, size: usize, align: usize) -> Option<(usize, bool)> {
        let len = size.max(1).checked_next_multiple_of(UNIT)?;
        let align = align.max(UNIT);
        if align > ALIGNMENT || !self.is_reached() {
            return None;
        }
        for number in 0..self.segments.len() {
            if let Some(found) = self.allocate_in(number, len, align) {
                return Some(found);
            }
        }
        let number = self.add_segment(len)?;
        self.allocate_in(number, len, align)
    }

    /// Whether the program's calls that change memory get to this library. If not, it withdraws all segments, and says
    /// so.
    pub fn is_reached(&mut self) -> bool {
        if !self.is_bypassed && !memory_calls::are_reached() {
            self.is_bypassed = true;
            crate::report(
                "another library (libucm of a UCX?) has patched munmap, so that changes of memory are not seen: memory \
                 is private. UCX_MEM_EVENTS=n keeps libucm from that",
            );
            self.leave();
        }
        !self.is_bypassed
    }

    fn allocate_in(&mut self, segment: usize, len: usize, align: usize) -> Option<(usize, bool)> {
        let made = self.segments[segment].allocate(len, align)?;
        let start = made.range.start;
        let allocation = Allocation {
            segment,
            range: made.range,
            is_changed: false,
        };
        self.allocations.insert(start, allocation);
        Some((start, made.is_zero))
    }

    /// A new segment with room for `len` bytes. Returns its number.
    fn add_segment(&mut self, len: usize) -> Option<usize> {
        let number = self.segments.len();
        let (least, usual) = segment_len(number, len)?;
        if least >= self.refused || number - self.first == MAX_SEGMENTS || !is_left_to_us(len) {
            return None;
        }
        let made = match self.make_segment(number, usual) {
            Err(_) if least < usual => self.make_segment(number, least),
            made => made,
        };
        if let Err(e) = made {
            if self.refused == usize::MAX {
                let needed = least >> 10;
                crate::report(&format!(
                    "no segment of {needed} KiB for the shared heap: {e}; what needs one is private"
                ));
            }
            self.refused = least;
            return None;
        }
        Some(number)
    }

    fn make_segment(&mut self, number: usize, len: usize) -> io::Result<()> {
        let segment = HeapSegment::create(len)?;
        let published = segment.published();
        directory::get()?.publish(number - self.first, published);
        LOWEST.fetch_min(published.base as usize, Ordering::Relaxed);
        HIGHEST.fetch_max((published.base + published.len) as usize, Ordering::Relaxed);
        self.segments.push(segment);
        Ok(())
    }

    /// Bytes of the allocation at an address. `None`: it is not of this heap.
    pub fn size_of(&self, addr: usize) -> Option<usize> {
        Some(self.allocations.get(&addr)?.range.len())
    }

    /// Frees the allocation at an address. False: it is not of this heap.
    pub fn free(&mut self, addr: usize, discard: impl Fn(Range<usize>) -> bool) -> bool {
        let Some(freed) = self.allocations.remove(&addr) else {
            return false;
        };
        let segment = &mut self.segments[freed.segment];
        if freed.is_changed {
            segment.renew(freed.range.clone());
        }
        segment.free(freed.range, discard);
        true
    }

    /// Notes that the program changes how these addresses are mapped, without mapping anything else there.
    pub fn note_change(&mut self, range: &Range<usize>) {
        let before_end = self.allocations.range_mut(..range.end).rev();
        for (_, allocation) in before_end {
            if allocation.range.end <= range.start {
                break;
            }
            allocation.is_changed |= overlap(&allocation.range, range) > 0;
        }
    }

    /// The parts of a range of addresses that are shared memory of the heap.
    pub fn shared_parts(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        let all = self.segments.iter();
        all.flat_map(|segment| segment.shared_parts(range))
            .collect()
    }

    /// Withdraws all segments, whose memory stays as it is.
    fn leave(&mut self) {
        for (number, segment) in self.segments.iter_mut().enumerate() {
            segment.leave();
            unpublish(number, self.first);
        }
    }

    /// Withdraws the segments that these addresses touch: the program maps something else there.
    pub fn withdraw(&mut self, range: &Range<usize>) {
        for (number, segment) in self.segments.iter_mut().enumerate() {
            if segment.overlaps(range) {
                segment.withdraw(range);
                unpublish(number, self.first);
            }
        }
    }

    /// Copies of all segments, for a child.
    pub fn snapshot(&mut self) -> Vec<io::Result<Option<Snapshot>>> {
        if !self.is_reached() {
            self.segments
                .iter_mut()
                .for_each(HeapSegment::find_replaced);
        }
        let changed = self.allocations.values().any(|one| one.is_changed);
        let all = self.segments.iter();
        all.map(|segment| segment.snapshot(changed)).collect()
    }

    /// In a forked child: has all segments lie in memory of its own.
    ///
    /// # Errors
    /// Those of the snapshots and of the system: what follows is still shared with the parent.
    pub fn separate(&mut self, copies: Vec<io::Result<Option<Snapshot>>>) -> io::Result<()> {
        let mut lost = None;
        for (segment, copy) in self.segments.iter_mut().zip(copies) {
            match copy {
                Ok(Some(copy)) => segment.separate(copy)?,
                Ok(None) => {}
                Err(e) => {
                    lost.get_or_insert(e);
                    segment.separate_without_copy()?;
                }
            }
        }
        if let Some(e) = lost {
            crate::report(&format!(
                "no memory for a child's copy of the shared heap: {e}; it may see what its parent writes"
            ));
        }
        self.first = self.segments.len();
        directory::separate();
        Ok(())
    }
}
