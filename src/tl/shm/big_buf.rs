//! Larger data areas of an inbox, for the peers that send most to it.
//!
//! The data space of a ring is small so that a peer that sends little needs little memory: its lines stay in the
//! private caches of the two cores, and each line has to be fetched from the other core's cache. The lines of an area
//! larger than a private cache have moved to the shared cache by the time they are used again, from where they are
//! faster. On the machine of docs/PERFORMANCE.md, two cores of one complex: windows of 4 KiB reach 6.4 GB/s in 64 KiB
//! and 24 GB/s in 2 MiB; areas of less than 1 MiB, the size of a private cache, gain nothing.
//!
//! An inbox has a few areas; a sender takes one for its ring when it has sent much ([`BIG_BUF_AFTER`]), populates it,
//! and keeps it as long as the ring.

use crate::sys::sync::{AtomicU32, Ordering};
use std::ptr::NonNull;

/// Areas of an inbox: each is created when a sender requests it; its pages are untouched until they are used.
pub const AREAS: usize = if cfg!(loom) { 1 } else { 8 };
/// Bytes of an area. A power of two, twice the L2 cache of most processors.
pub const AREA: usize = 2 << 20;
/// Bytes of long records after which a sender requests an area.
pub const BIG_BUF_AFTER: u64 = 512 << 10;

const FREE: u32 = 0;

/// The areas of an inbox, as the ends of one ring see them. Untrusted processes share the memory.
#[derive(Clone, Copy)]
pub struct BigBufs {
    /// [`AREAS`] words: [`FREE`], or the id of the owning ring.
    owners: NonNull<AtomicU32>,
    /// The id of this ring: its number plus 1.
    own: u32,
    /// Argument of `find`.
    source: NonNull<()>,
    find: FindBigBuf,
}

/// Returns the memory of the area of this number, which it maps if necessary; `None` if there is no such area, or it
/// cannot be mapped.
pub(super) type FindBigBuf = unsafe fn(source: NonNull<()>, number: u8) -> Option<NonNull<u8>>;

/// An area that a ring owns.
#[derive(Clone, Copy)]
pub struct BigBuf {
    /// [`AREA`] bytes.
    pub memory: NonNull<u8>,
    /// From 1 on.
    pub number: u8,
}

impl BigBufs {
    /// # Safety
    /// `owners` are [`AREAS`] words and `memory` is as many areas; both are mapped as long as this value or an area
    /// that it returns is used.
    pub unsafe fn new(owners: NonNull<AtomicU32>, memory: NonNull<u8>, ring: usize) -> Self {
        // SAFETY: by the caller, the words and the areas are mapped; `in_a_row` returns areas of `memory`.
        unsafe { Self::found_by(owners, ring, memory.cast(), in_a_row) }
    }

    /// Creates the view of a ring on areas whose memory `find` returns.
    ///
    /// # Safety
    /// `owners` are [`AREAS`] words; `find` may be called with `source` as long as this value is used, and what it
    /// returns has [`AREA`] bytes and is mapped as long.
    pub(super) unsafe fn found_by(
        owners: NonNull<AtomicU32>,
        ring: usize,
        source: NonNull<()>,
        find: FindBigBuf,
    ) -> Self {
        Self {
            owners,
            own: ring as u32 + 1,
            source,
            find,
        }
    }

    /// Takes a free area for the ring.
    pub fn claim(&self) -> Option<BigBuf> {
        let number = (1..=AREAS as u8).find(|&number| {
            // Acquire on success: pairs with the Release store in `release`.
            self.owner(number)
                .compare_exchange(FREE, self.own, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        })?;
        let area = self.area(number);
        if area.is_none() {
            // Release: pairs with the Acquire exchange in `claim` of the next owner. Nothing was written to the area.
            self.owner(number).store(FREE, Ordering::Release);
        }
        area
    }

    /// The area with this number, if the ring owns it.
    pub fn find(&self, number: u8) -> Option<BigBuf> {
        let is_area = (1..=AREAS as u8).contains(&number);
        // Relaxed: the message that names the area is published after its claim.
        (is_area && self.owner(number).load(Ordering::Relaxed) == self.own)
            .then(|| self.area(number))
            .flatten()
    }

    /// Frees all areas of the ring. `discard` frees the memory.
    pub fn release(&self, mut discard: impl FnMut(BigBuf)) {
        for number in 1..=AREAS as u8 {
            if let Some(area) = self.find(number) {
                discard(area);
                // Release: pairs with the Acquire exchange in `claim`; what was discarded comes before.
                self.owner(number).store(FREE, Ordering::Release);
            }
        }
    }

    fn owner(&self, number: u8) -> &AtomicU32 {
        // SAFETY: the constructor's promise: `owners` are `AREAS` words; numbers are 1 to AREAS.
        unsafe { self.owners.add(usize::from(number) - 1).as_ref() }
    }

    fn area(&self, number: u8) -> Option<BigBuf> {
        // SAFETY: the constructor's promise: `find` may be called with `source`.
        let memory = unsafe { (self.find)(self.source, number) }?;
        Some(BigBuf { memory, number })
    }
}

/// The memory of an area, where all areas are contiguous.
///
/// # Safety
/// [`AREAS`] areas begin at `memory`.
unsafe fn in_a_row(memory: NonNull<()>, number: u8) -> Option<NonNull<u8>> {
    // SAFETY: by the caller, `AREAS` areas begin at `memory`; numbers are 1 to AREAS.
    Some(unsafe { memory.cast::<u8>().add((usize::from(number) - 1) * AREA) })
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    struct Shared {
        owners: [AtomicU32; AREAS],
        /// The first area; loom checks its accesses.
        memory: UnsafeCell<()>,
    }

    // SAFETY: only the owner of the area accesses the cell; loom checks that.
    unsafe impl Sync for Shared {}
    // SAFETY: only the owner of the area accesses the cell; loom checks that.
    unsafe impl Send for Shared {}

    fn areas(shared: &Shared, ring: usize) -> BigBufs {
        let owners = NonNull::from(&shared.owners).cast();
        // SAFETY: the words outlive the result, and its memory is not accessed.
        unsafe { BigBufs::new(owners, NonNull::dangling(), ring) }
    }

    fn write_if_claimed(shared: &Shared, ring: usize) -> bool {
        let claimed = areas(shared, ring).claim().is_some();
        if claimed {
            shared.memory.with_mut(|_| ());
        }
        claimed
    }

    /// The receiver discards a freed area before another sender owns it, and two senders never own the same one.
    #[test]
    fn loom_one_owner_at_a_time() {
        loom::model(|| {
            let shared = Arc::new(Shared {
                owners: std::array::from_fn(|_| AtomicU32::new(FREE)),
                memory: UnsafeCell::new(()),
            });
            assert!(write_if_claimed(&shared, 0));
            let others = [1, 2].map(|ring| {
                let shared = shared.clone();
                thread::spawn(move || write_if_claimed(&shared, ring))
            });
            areas(&shared, 0).release(|_| shared.memory.with_mut(|_| ()));
            let claimed = others.map(|t| t.join().unwrap());
            assert!(claimed != [true, true]);
        });
    }
}
