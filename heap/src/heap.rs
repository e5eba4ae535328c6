//! The heap of this process: its segments, what is allocated in them, and the lock.

use crate::directory;
use crate::segment::{ALIGNMENT, HeapSegment, UNIT};
use rucp_heap_directory::MAX_SEGMENTS;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
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
    /// By address.
    allocations: Option<HashMap<usize, Allocation>>,
    /// The system has refused a segment: libc allocates what does not fit into the others.
    is_full: bool,
}

/// What was allocated at an address.
struct Allocation {
    segment: usize,
    /// Addresses.
    range: Range<usize>,
}

/// Whether an address may be in the heap. False only if it is not.
#[inline(always)]
pub fn may_contain(addr: usize) -> bool {
    addr >= LOWEST.load(Ordering::Relaxed) && addr < HIGHEST.load(Ordering::Relaxed)
}

impl Heap {
    const fn new() -> Self {
        Self {
            segments: Vec::new(),
            allocations: None,
            is_full: false,
        }
    }

    /// Allocates `size` bytes. `align`: a power of two. Returns the address, and whether the memory is zero. `None`:
    /// libc allocates it.
    pub fn allocate(&mut self, size: usize, align: usize) -> Option<(usize, bool)> {
        let len = size.max(1).checked_next_multiple_of(UNIT)?;
        let align = align.max(UNIT);
        if align > ALIGNMENT {
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

    fn allocate_in(&mut self, segment: usize, len: usize, align: usize) -> Option<(usize, bool)> {
        let made = self.segments[segment].allocate(len, align)?;
        let start = made.range.start;
        let range = made.range;
        let allocations = self.allocations.get_or_insert_with(HashMap::new);
        allocations.insert(start, Allocation { segment, range });
        Some((start, made.is_zero))
    }

    /// A new segment with room for `len` bytes. Returns its number.
    fn add_segment(&mut self, len: usize) -> Option<usize> {
        let number = self.segments.len();
        if self.is_full || number == MAX_SEGMENTS {
            return None;
        }
        let usual = FIRST
            .checked_shl(number as u32)
            .unwrap_or(MAX_SEGMENT)
            .min(MAX_SEGMENT);
        let len = len.max(usual).checked_next_multiple_of(ALIGNMENT)?;
        match self.make_segment(number, len) {
            Ok(()) => Some(number),
            Err(e) => {
                self.is_full = true;
                crate::report(&format!(
                    "no more memory for the shared heap, {} MiB: {e}; further memory is private",
                    len >> 20
                ));
                None
            }
        }
    }

    fn make_segment(&mut self, number: usize, len: usize) -> io::Result<()> {
        let segment = HeapSegment::create(len)?;
        let published = segment.published()?;
        directory::get()?.publish(number, published);
        LOWEST.fetch_min(published.base as usize, Ordering::Relaxed);
        HIGHEST.fetch_max((published.base + published.len) as usize, Ordering::Relaxed);
        self.segments.push(segment);
        Ok(())
    }

    /// Bytes of the allocation at an address. `None`: it is not of this heap.
    pub fn size_of(&self, addr: usize) -> Option<usize> {
        let allocations = self.allocations.as_ref()?;
        Some(allocations.get(&addr)?.range.len())
    }

    /// Frees the allocation at an address. False: it is not of this heap.
    pub fn free(&mut self, addr: usize, discard: impl FnOnce(Range<usize>) -> bool) -> bool {
        let allocations = self.allocations.as_mut();
        match allocations.and_then(|all| all.remove(&addr)) {
            Some(Allocation { segment, range }) => {
                self.segments[segment].free(range, discard);
                true
            }
            None => false,
        }
    }

    /// Whether these addresses touch the heap where it is shared.
    pub fn touches(&self, range: &Range<usize>) -> bool {
        self.touched(range).next().is_some()
    }

    /// The numbers of the shared segments that these addresses touch.
    fn touched(&self, range: &Range<usize>) -> impl Iterator<Item = usize> {
        let (start, end) = (range.start, range.end.max(range.start));
        let of = self.segments.iter().enumerate();
        of.filter(move |(_, segment)| !segment.is_withdrawn() && segment.overlaps(start..end))
            .map(|(number, _)| number)
    }

    /// Withdraws the segments that these addresses touch: the program maps something else there.
    pub fn withdraw(&mut self, range: &Range<usize>) {
        let touched: Vec<usize> = self.touched(range).collect();
        for number in touched {
            self.segments[number].withdraw();
            if let Ok(directory) = directory::get() {
                directory.withdraw(number);
            }
        }
    }

    /// Copies of all segments, for a child.
    pub fn snapshot(&self) -> Vec<io::Result<OwnedFd>> {
        self.segments.iter().map(HeapSegment::snapshot).collect()
    }

    /// In a forked child: has all segments lie in memory of its own.
    ///
    /// # Errors
    /// Those of the system: what follows is still shared with the parent.
    pub fn separate(&mut self, copies: Vec<io::Result<OwnedFd>>) -> io::Result<()> {
        if directory::existing().is_null() {
            return Ok(());
        }
        let directory = directory::separate()?;
        for (number, (segment, copy)) in self.segments.iter_mut().zip(copies).enumerate() {
            let copy = copy.inspect_err(|e| {
                crate::report(&format!(
                    "a child has no copy of the shared heap: {e}; it sees what its parent writes"
                ));
            });
            segment.separate(copy.ok())?;
            match segment.is_withdrawn() {
                true => directory.withdraw(number),
                false => directory.publish(number, segment.published()?),
            }
        }
        Ok(())
    }
}
