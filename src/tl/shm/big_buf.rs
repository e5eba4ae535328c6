//! Larger data areas of an inbox, for the peers that send it most.
//!
//! The data area of a ring is small, so that a peer that says little costs little: its lines stay in the two cores' own
//! caches, and every one of them has to be fetched from the other core's. In an area larger than that cache they have
//! left for the one that the cores share by the time they are used again, from where they are faster. On the machine of
//! docs/PERFORMANCE.md, two cores of one complex: windows of 4 KiB 6.4 GB/s in 64 KiB, 24 GB/s in 2 MiB; less than
//! 1 MiB, which is such a cache, gains nothing.
//!
//! An inbox has a few; a sender takes one for its ring when it has sent much ([`HOT`]), populates it, and keeps it as
//! long as the ring.

use crate::sys::sync::{AtomicU32, Ordering};
use std::ptr::NonNull;

/// Areas of an inbox: each is made when a sender asks for it, of 2 MiB that are untouched until they are used.
pub const AREAS: usize = if cfg!(loom) { 1 } else { 8 };
/// Bytes of an area. A power of two, twice the second cache of most processors.
pub const AREA: usize = 2 << 20;
/// Bytes of long records after which a sender asks for one.
pub const HOT: u64 = 512 << 10;

const FREE: u32 = 0;

/// The areas of an inbox, as the ends of one ring see them. The memory is shared with processes that are not trusted.
#[derive(Clone, Copy)]
pub struct BigBufs {
    /// [`AREAS`] words: [`FREE`], or what stands for a ring.
    owners: NonNull<AtomicU32>,
    /// What stands for the ring.
    own: u32,
    /// What knows the memory of areas.
    source: NonNull<()>,
    find: FindBigBuf,
}

/// The memory of the area of this number, mapped now or before; `None` if there is none, or it cannot be mapped.
pub(super) type FindBigBuf = unsafe fn(source: NonNull<()>, number: u8) -> Option<NonNull<u8>>;

/// One of them, which is a ring's.
#[derive(Clone, Copy)]
pub struct BigBuf {
    /// [`AREA`] bytes.
    pub memory: NonNull<u8>,
    /// From 1 on.
    pub number: u8,
}

impl BigBufs {
    /// # Safety
    /// `owners` are [`AREAS`] words and `memory` as many areas, mapped as long as this is used, or what it gives.
    pub unsafe fn new(owners: NonNull<AtomicU32>, memory: NonNull<u8>, ring: usize) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::found_by(owners, ring, memory.cast(), in_a_row) }
    }

    /// As [`new`](Self::new), of areas whose memory `find` knows.
    ///
    /// # Safety
    /// `owners` are [`AREAS`] words; `find` may be called with `source` as long as this is used, and what it gives has
    /// [`AREA`] bytes and is mapped as long.
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

    /// Takes a free one for the ring.
    pub fn claim(&self) -> Option<BigBuf> {
        let number = (1..=AREAS as u8).find(|&number| {
            // Acquire on success: pairs with the Release store in `release`.
            self.owner(number)
                .compare_exchange(FREE, self.own, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        })?;
        let area = self.area(number);
        if area.is_none() {
            // Release: as in `release`. Nothing was written.
            self.owner(number).store(FREE, Ordering::Release);
        }
        area
    }

    /// The one with this number, if it is the ring's.
    pub fn find(&self, number: u8) -> Option<BigBuf> {
        let is_area = (1..=AREAS as u8).contains(&number);
        // Relaxed: the message that names it comes after its claim.
        (is_area && self.owner(number).load(Ordering::Relaxed) == self.own)
            .then(|| self.area(number))
            .flatten()
    }

    /// Gives back all that are the ring's. `discard` frees the memory.
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
        // SAFETY: the constructor's promise; numbers are 1 to AREAS.
        unsafe { self.owners.add(usize::from(number) - 1).as_ref() }
    }

    fn area(&self, number: u8) -> Option<BigBuf> {
        // SAFETY: the constructor's promise.
        let memory = unsafe { (self.find)(self.source, number) }?;
        Some(BigBuf { memory, number })
    }
}

/// The memory of an area, where all lie in a row.
///
/// # Safety
/// [`AREAS`] areas begin at `memory`.
unsafe fn in_a_row(memory: NonNull<()>, number: u8) -> Option<NonNull<u8>> {
    // SAFETY: the caller's promise; numbers are 1 to AREAS.
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
        /// The first area, which loom watches.
        memory: UnsafeCell<()>,
    }

    // SAFETY: the memory is its owner's; loom checks that.
    unsafe impl Sync for Shared {}
    // SAFETY: as above.
    unsafe impl Send for Shared {}

    fn areas(shared: &Shared, ring: usize) -> BigBufs {
        let owners = NonNull::from(&shared.owners).cast();
        // SAFETY: the words live; the memory is not looked at.
        unsafe { BigBufs::new(owners, NonNull::dangling(), ring) }
    }

    fn write_if_claimed(shared: &Shared, ring: usize) -> bool {
        let claimed = areas(shared, ring).claim().is_some();
        if claimed {
            shared.memory.with_mut(|_| ());
        }
        claimed
    }

    /// The receiver discards what is given back before another sender has it, and two never have the same.
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
