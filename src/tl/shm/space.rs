//! Circular spaces for the records of a ring that are too long for a slot: positions, and which pages are populated.
//!
//! Records do not wrap. Both ends compute each record's place from the lengths of those before it. A fresh page costs a
//! page fault at either end, 1 us and more, while a record of some hundred bytes takes a tenth of that. So both ends
//! populate a space piece by piece before records reach it: as much again as is in use, at most [`MAX_STEP`] at a time.
//! An area is populated by its producer before the first record lies there, a little of it at a time
//! ([`TxSpace::prepare`]).

use crate::sys::memfd::PAGE;
use crate::sys::populate::{PageAccess, populate};

/// Records start at multiples of this many bytes: a cache line.
const ALIGN: usize = 64;
/// Bytes that are populated at first of a space that is going to be used from end to end.
const FIRST_STEP: usize = 32 << 10;
/// Most bytes that are populated at once, beyond a record that is longer: a tenth of a millisecond at most.
const MAX_STEP: usize = 128 << 10;

/// Where a record of `len` bytes goes in a space of `SIZE` bytes, a power of two, when `at` bytes have been given out:
/// its offset, and the bytes that it takes with those before it that are skipped because it did not fit there.
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
    /// Records that end up to here need nothing, bytes given out since the beginning; [`ALL`] behind the first round.
    until: u32,
}

/// No count of bytes is above it.
const ALL: u32 = u32::MAX;

impl<const SIZE: usize> Populated<SIZE> {
    /// Of a space whose first page is left to a page fault: most peers need no more.
    pub(super) fn first_page() -> Self {
        Self { until: PAGE as u32 }
    }

    /// Of a space that is going to be used from end to end.
    pub(super) fn none() -> Self {
        Self { until: 0 }
    }

    /// Whether a record that ends at `end` lies in populated pages.
    #[inline(always)]
    pub(super) fn covers(&self, end: u32) -> bool {
        end <= self.until
    }

    /// The count of bytes that a producer may give out without asking [`extend`](Self::extend).
    pub(super) fn limit(&self) -> u64 {
        match self.until {
            ALL => u64::MAX,
            until => until.into(),
        }
    }

    /// Populates a space that begins at `start`, so far that a record which ends at `end` is covered.
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
        // SAFETY: the caller's promise.
        unsafe { self.populate_more(start, missing.max(step), access) };
    }

    /// Populates so many bytes more of a space that begins at `start`, if not all is.
    ///
    /// # Safety
    /// As [`extend`](Self::extend).
    unsafe fn populate_more(&mut self, start: *mut u8, more: usize, access: PageAccess) {
        if self.until == ALL {
            return;
        }
        let from = self.until as usize;
        let to = (from + more).min(SIZE);
        // SAFETY: inside of the space.
        let done = unsafe { populate(start.add(from), to - from, access) };
        self.until = if done && to < SIZE { to as u32 } else { ALL };
    }
}

/// The producer's account of a space.
pub(super) struct TxSpace<const SIZE: usize> {
    /// Bytes given out since the beginning.
    head: u64,
    /// `head` may go up to here before [`refill`](Self::refill) and [`extend`](Self::extend).
    limit: u64,
    /// Bytes that the consumer has given back.
    tail: u64,
    populated: Populated<SIZE>,
}

impl<const SIZE: usize> TxSpace<SIZE> {
    pub(super) fn new(populated: Populated<SIZE>) -> Self {
        let limit = populated.limit().min(SIZE as u64);
        Self {
            head: 0,
            limit,
            tail: 0,
            populated,
        }
    }

    /// Of a space that is not mapped: it has room for nothing before [`refill`](Self::refill).
    pub(super) fn unmapped(populated: Populated<SIZE>) -> Self {
        Self {
            limit: 0,
            ..Self::new(populated)
        }
    }

    /// Bytes given out since the beginning.
    pub(super) fn given_out(&self) -> u64 {
        self.head
    }

    /// Offset and end of a record of `len` bytes.
    #[inline(always)]
    fn next(&self, len: usize) -> (usize, u64) {
        let (offset, used) = place::<SIZE>(self.head as usize, len);
        (offset, self.head + used as u64)
    }

    /// Whether there is room for a record of `len` bytes, as far as is known.
    #[inline(always)]
    pub(super) fn has_room(&self, len: usize) -> bool {
        self.next(len).1 <= self.limit
    }

    /// The offset of a record of `len` bytes, if there is room as far as is known.
    #[inline(always)]
    pub(super) fn take(&mut self, len: usize) -> Option<usize> {
        let (offset, end) = self.next(len);
        (end <= self.limit).then(|| {
            self.head = end;
            offset
        })
    }

    /// What the consumer says that it has given back, modulo 2^32. False: it cannot have.
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
            // SAFETY: the caller's promise.
            unsafe { self.populated.extend(start, end as u32, PageAccess::Write) };
            self.set_limit();
        }
    }

    /// Populates so many bytes more of a space that begins at `start`. True when all of it is.
    ///
    /// # Safety
    /// As [`extend`](Self::extend).
    pub(super) unsafe fn prepare(&mut self, start: *mut u8, more: usize) -> bool {
        // SAFETY: the caller's promise.
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
            // SAFETY: `SIZE` bytes.
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

    /// Counts of 32 bits begin anew after 4 GiB.
    #[test]
    fn counts_wrap() {
        let mut memory = vec![0u8; SIZE];
        let mut space = TxSpace::<SIZE>::new(Populated::none());
        // SAFETY: `SIZE` bytes.
        assert!(unsafe { space.prepare(memory.as_mut_ptr(), SIZE) });
        for round in 1..=(1u64 << 32) / SIZE as u64 + 2 {
            assert_eq!(space.take(SIZE), Some(0));
            assert!(!space.has_room(1));
            assert!(space.refill((round * SIZE as u64) as u32));
        }
    }

    #[test]
    fn what_is_populated_doubles() {
        let mut memory = vec![0u8; SIZE];
        let mut populated = Populated::<SIZE>::first_page();
        let mut ends = Vec::new();
        while populated.until != ALL {
            ends.push(populated.until as usize);
            let end = populated.until + 1;
            // SAFETY: `SIZE` bytes.
            unsafe { populated.extend(memory.as_mut_ptr(), end, PageAccess::Write) };
        }
        // A system that cannot do it is asked once.
        assert!(ends == [4096, 8192, 16384, 32768] || ends == [4096]);
    }
}
