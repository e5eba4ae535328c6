//! Circular spaces for the records of a ring that are too long for a slot: positions, and which pages are populated.
//!
//! Records do not wrap. Both ends compute each record's offset from the lengths of those before it. A fresh page costs
//! a page fault at either end, 1 us and more, while a record of some hundred bytes takes a tenth of that. Therefore
//! both ends populate a space step by step before records reach it: each step doubles the populated part, at most
//! [`MAX_STEP`] at a time. A big buffer is populated by its producer before the first record is written there, one step
//! at a time ([`TxSpace::prepare`]).

use crate::sys::memfd::PAGE;
use crate::sys::populate::{PageAccess, populate};

/// Records start at multiples of this many bytes: a cache line.
const ALIGN: usize = 64;
/// Bytes that the first step populates in a space that will be used from end to end.
const FIRST_STEP: usize = 32 << 10;
/// Maximum bytes that one step populates, unless a record is longer: takes at most 0.1 ms.
const MAX_STEP: usize = 128 << 10;

/// Position of a record of `len` bytes in a space of `SIZE` bytes, a power of two, of which `at` bytes were allocated
/// since the beginning: its offset, and the bytes that it takes, including those skipped at the end of the space
/// because the record does not fit there.
#[inline(always)]
pub(super) fn place<const SIZE: usize>(at: usize, len: usize) -> (usize, usize) {
    let offset = at & (SIZE - 1);
    let need = len.next_multiple_of(ALIGN);
    let room = SIZE - offset;
    if need <= room {
        (offset, need)
    } else {
        (0, room + need)
    }
}

/// Which part of a space one end has populated.
pub(super) struct Populated<const SIZE: usize> {
    /// Records that end at or before this count, bytes allocated since the beginning, lie in populated pages; [`ALL`]
    /// when the whole space is populated.
    until: u32,
}

/// Larger than any count of bytes.
const ALL: u32 = u32::MAX;

impl<const SIZE: usize> Populated<SIZE> {
    /// For a space whose first page is left to a page fault: most peers need no other page.
    pub(super) fn first_page() -> Self {
        Self { until: PAGE as u32 }
    }

    /// For a space that will be used from end to end.
    pub(super) fn none() -> Self {
        Self { until: 0 }
    }

    /// Whether a record that ends at `end` lies in populated pages.
    #[inline(always)]
    pub(super) fn covers(&self, end: u32) -> bool {
        end <= self.until
    }

    /// The count of bytes that a producer may allocate before it must call [`extend`](Self::extend).
    pub(super) fn limit(&self) -> u64 {
        match self.until {
            ALL => u64::MAX,
            until => until.into(),
        }
    }

    /// Populates a space that begins at `start` so far that a record which ends at `end` is covered.
    ///
    /// # Safety
    /// `SIZE` bytes at `start` are mapped.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn extend(&mut self, start: *mut u8, end: u32, access: PageAccess) {
        let step = match self.until as usize {
            0 => FIRST_STEP,
            until => until.min(MAX_STEP),
        };
        let missing = end.saturating_sub(self.until) as usize;
        // SAFETY: by the caller, `SIZE` bytes at `start` are mapped.
        unsafe { self.populate_more(start, missing.max(step), access) };
    }

    /// Populates `more` further bytes of a space that begins at `start`, or what is left.
    ///
    /// # Safety
    /// `SIZE` bytes at `start` are mapped.
    unsafe fn populate_more(&mut self, start: *mut u8, more: usize, access: PageAccess) {
        if self.until == ALL {
            return;
        }
        let from = self.until as usize;
        let to = (from + more).min(SIZE);
        // SAFETY: `from` is at most `SIZE`, and by the caller `SIZE` bytes at `start` are mapped.
        let done = unsafe { populate(start.add(from), to - from, access) };
        self.until = if done && to < SIZE { to as u32 } else { ALL };
    }
}

/// The producer's state of a space.
pub(super) struct TxSpace<const SIZE: usize> {
    /// Bytes allocated since the beginning.
    head: u64,
    /// `head` may grow to this value before [`refill`](Self::refill) and [`extend`](Self::extend) must be called.
    limit: u64,
    /// Bytes that the consumer has freed since the beginning.
    tail: u64,
    populated: Populated<SIZE>,
}

impl<const SIZE: usize> TxSpace<SIZE> {
    /// For an empty space that is mapped. `populated`: which part of it the producer has populated.
    pub(super) fn new(populated: Populated<SIZE>) -> Self {
        let limit = populated.limit().min(SIZE as u64);
        Self {
            head: 0,
            limit,
            tail: 0,
            populated,
        }
    }

    /// For a space that is not mapped: it has no room before [`refill`](Self::refill).
    pub(super) fn unmapped(populated: Populated<SIZE>) -> Self {
        Self {
            limit: 0,
            ..Self::new(populated)
        }
    }

    /// Bytes allocated since the beginning.
    pub(super) fn given_out(&self) -> u64 {
        self.head
    }

    /// Offset and end of a record of `len` bytes.
    #[inline(always)]
    fn next(&self, len: usize) -> (usize, u64) {
        let (offset, used) = place::<SIZE>(self.head as usize, len);
        (offset, self.head + used as u64)
    }

    /// Whether there is room for a record of `len` bytes by the last value read of the consumer.
    #[inline(always)]
    pub(super) fn has_room(&self, len: usize) -> bool {
        self.next(len).1 <= self.limit
    }

    /// Allocates a record of `len` bytes and returns its offset, if there is room by the last value read of the
    /// consumer.
    #[inline(always)]
    pub(super) fn take(&mut self, len: usize) -> Option<usize> {
        let (offset, end) = self.next(len);
        (end <= self.limit).then(|| {
            self.head = end;
            offset
        })
    }

    /// Updates the bytes that the consumer has freed, given modulo 2^32. False: the value is impossible.
    pub(super) fn refill(&mut self, tail: u32) -> bool {
        let under_way = u64::from((self.head as u32).wrapping_sub(tail));
        if under_way > self.head - self.tail {
            return false;
        }
        self.tail = self.head - under_way;
        self.set_limit();
        true
    }

    /// Populates a space that begins at `start` for a record of `len` bytes, if there is room for it.
    ///
    /// # Safety
    /// `SIZE` bytes at `start` are mapped.
    pub(super) unsafe fn extend(&mut self, start: *mut u8, len: usize) {
        let end = self.next(len).1;
        if end - self.tail <= SIZE as u64 && end > self.populated.limit() {
            // SAFETY: by the caller, `SIZE` bytes at `start` are mapped.
            unsafe { self.populated.extend(start, end as u32, PageAccess::Write) };
            self.set_limit();
        }
    }

    /// Populates `more` further bytes of a space that begins at `start`. True when all of it is populated.
    ///
    /// # Safety
    /// `SIZE` bytes at `start` are mapped.
    pub(super) unsafe fn prepare(&mut self, start: *mut u8, more: usize) -> bool {
        // SAFETY: by the caller, `SIZE` bytes at `start` are mapped.
        unsafe { self.populated.populate_more(start, more, PageAccess::Write) };
        self.set_limit();
        self.populated.until == ALL
    }

    fn set_limit(&mut self) {
        self.limit = (self.tail + SIZE as u64).min(self.populated.limit());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SIZE: usize = 64 << 10;

    #[test]
    fn records_do_not_wrap() {
        assert_eq!(place::<SIZE>(0, 1), (0, 64));
        assert_eq!(place::<SIZE>(SIZE - 64, 64), (SIZE - 64, 64));
        assert_eq!(place::<SIZE>(3 * SIZE - 64, 65), (0, 64 + 128));
    }

    #[test]
    fn a_producer_gets_as_much_as_the_consumer_gives_back() {
        let mut memory = vec![0u8; SIZE];
        let mut space = TxSpace::<SIZE>::new(Populated::first_page());
        let mut take = |space: &mut TxSpace<SIZE>, len| {
            // SAFETY: `memory` has `SIZE` bytes.
            unsafe { space.extend(memory.as_mut_ptr(), len) };
            space.take(len)
        };
        assert_eq!(take(&mut space, SIZE / 2), Some(0));
        assert_eq!(take(&mut space, SIZE / 2), Some(SIZE / 2));
        assert_eq!(take(&mut space, 1), None);
        assert!(!space.refill(SIZE as u32 + 64) && !space.refill(u32::MAX));
        assert!(space.refill(64));
        assert_eq!(take(&mut space, 65), None);
        assert_eq!(take(&mut space, 64), Some(0));
        assert!(!space.refill(0), "it had given back more than that");
    }

    /// The counts of 32 bits wrap after 4 GiB.
    #[test]
    fn counts_wrap() {
        let mut memory = vec![0u8; SIZE];
        let mut space = TxSpace::<SIZE>::new(Populated::none());
        // SAFETY: `memory` has `SIZE` bytes.
        assert!(unsafe { space.prepare(memory.as_mut_ptr(), SIZE) });
        for round in 1..=(1u64 << 32) / SIZE as u64 + 2 {
            assert_eq!(space.take(SIZE), Some(0));
            assert!(!space.has_room(1));
            assert!(space.refill((round * SIZE as u64) as u32));
        }
    }

    #[test]
    fn populated_memory_doubles() {
        let mut memory = vec![0u8; SIZE];
        let mut populated = Populated::<SIZE>::first_page();
        let mut ends = Vec::new();
        while populated.until != ALL {
            ends.push(populated.until as usize);
            let end = populated.until + 1;
            // SAFETY: `memory` has `SIZE` bytes.
            unsafe { populated.extend(memory.as_mut_ptr(), end, PageAccess::Write) };
        }
        // Where the system cannot populate, only one call is made.
        assert!(ends == [4096, 8192, 16384, 32768] || ends == [4096]);
    }
}
