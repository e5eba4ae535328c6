//! Big buffers: larger data space of an inbox, for the peers that send most to it.
//!
//! The data space of a ring is small so that a peer that sends little needs little memory: its lines stay in the
//! private caches of the two cores, and each line has to be fetched from the other core's cache. The lines of a big
//! buffer larger than a private cache have moved to the shared cache by the time they are used again, from where they
//! are faster. On the machine of docs/PERFORMANCE.md, two cores of one complex: windows of 4 KiB reach 6.4 GB/s in 64
//! KiB and 24 GB/s in 2 MiB; big buffers of less than 1 MiB, the size of a private cache, gain nothing.
//!
//! An inbox has a few big buffers; a sender takes one for its ring when it has sent much ([`BIG_BUF_AFTER`]), populates
//! it step by step while it sends through the ring, and keeps it as long as the ring.

use crate::sys::sync::{AtomicU32, Ordering};
use std::ptr::NonNull;

/// Big buffers of an inbox: each is created when a sender requests it; its pages are untouched until they are used.
pub const MAX_BIG_BUFS: usize = if cfg!(loom) { 1 } else { 8 };
/// Bytes of a big buffer. A power of two, twice the L2 cache of most processors.
pub const BIG_BUF_BYTES: usize = 2 << 20;
/// Bytes of long records after which a sender requests a big buffer for a record of more than 1 KiB: as many as it has.
pub const BIG_BUF_AFTER: u64 = BIG_BUF_BYTES as u64;
/// [`BIG_BUF_AFTER`] for a shorter record. A big buffer takes 0.6 ms to populate, and more where page faults are slow,
/// while a record of 512 B gains 0.04 us there. After this many bytes a sender has lost about half of that time in its
/// ring.
pub const BIG_BUF_AFTER_SHORT: u64 = 4 << 20;

const FREE: u32 = 0;

/// The big buffers of an inbox, as the ends of one ring see them. Untrusted processes share the memory.
#[derive(Clone, Copy)]
pub struct BigBufs {
    /// [`MAX_BIG_BUFS`] words: [`FREE`], or the id of the owning ring.
    owners: NonNull<AtomicU32>,
    /// The id of this ring: its number plus 1.
    own: u32,
    /// Argument of `find`.
    source: NonNull<()>,
    find: FindBigBuf,
}

/// Returns the memory of the big buffer of this number, which it maps if necessary; `None` if there is no such big
/// buffer, or it cannot be mapped.
pub(super) type FindBigBuf = unsafe fn(source: NonNull<()>, number: u8) -> Option<NonNull<u8>>;

/// A big buffer that a ring owns.
#[derive(Clone, Copy)]
pub struct BigBuf {
    /// [`BIG_BUF_BYTES`] bytes.
    pub memory: NonNull<u8>,
    /// From 1 on.
    pub number: u8,
}

impl BigBufs {
    /// # Safety
    /// `owners` are [`MAX_BIG_BUFS`] words and `memory` is as many big buffers; both are mapped as long as this value
    /// or a big buffer that it returns is used.
    pub unsafe fn new(owners: NonNull<AtomicU32>, memory: NonNull<u8>, ring: usize) -> Self {
        // SAFETY: by the caller, the words and the big buffers are mapped; `in_a_row` returns big buffers of `memory`.
        unsafe { Self::found_by(owners, ring, memory.cast(), in_a_row) }
    }

    /// Creates the view of a ring on big buffers whose memory `find` returns.
    ///
    /// # Safety
    /// `owners` are [`MAX_BIG_BUFS`] words; `find` may be called with `source` as long as this value is used, and what
    /// it returns has [`BIG_BUF_BYTES`] bytes and is mapped as long.
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

    /// Takes a free big buffer for the ring.
    pub fn claim(&self) -> Option<BigBuf> {
        let number = (1..=MAX_BIG_BUFS as u8).find(|&number| {
            // Acquire on success: pairs with the Release store in `release`.
            self.owner(number)
                .compare_exchange(FREE, self.own, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        })?;
        let big_buf = self.big_buf(number);
        if big_buf.is_none() {
            // Release: pairs with the Acquire exchange in `claim` of the next owner. Nothing was written to the big
            // buffer.
            self.owner(number).store(FREE, Ordering::Release);
        }
        big_buf
    }

    /// The big buffer with this number, if the ring owns it.
    pub fn find(&self, number: u8) -> Option<BigBuf> {
        let is_number = (1..=MAX_BIG_BUFS as u8).contains(&number);
        // Relaxed: the message that names the big buffer is published after its claim.
        (is_number && self.owner(number).load(Ordering::Relaxed) == self.own)
            .then(|| self.big_buf(number))
            .flatten()
    }

    /// Frees all big buffers of the ring. `discard` frees the memory.
    pub fn release(&self, mut discard: impl FnMut(BigBuf)) {
        for number in 1..=MAX_BIG_BUFS as u8 {
            if let Some(big_buf) = self.find(number) {
                discard(big_buf);
                // Release: pairs with the Acquire exchange in `claim`; what was discarded comes before.
                self.owner(number).store(FREE, Ordering::Release);
            }
        }
    }

    fn owner(&self, number: u8) -> &AtomicU32 {
        // SAFETY: the constructor's promise: `owners` are `MAX_BIG_BUFS` words; numbers are 1 to AREAS.
        unsafe { self.owners.add(usize::from(number) - 1).as_ref() }
    }

    fn big_buf(&self, number: u8) -> Option<BigBuf> {
        // SAFETY: the constructor's promise: `find` may be called with `source`.
        let memory = unsafe { (self.find)(self.source, number) }?;
        Some(BigBuf { memory, number })
    }
}

/// The memory of a big buffer, where all big buffers are contiguous.
///
/// # Safety
/// [`MAX_BIG_BUFS`] big buffers begin at `memory`.
unsafe fn in_a_row(memory: NonNull<()>, number: u8) -> Option<NonNull<u8>> {
    // SAFETY: by the caller, `MAX_BIG_BUFS` big buffers begin at `memory`; numbers are 1 to AREAS.
    Some(unsafe {
        memory
            .cast::<u8>()
            .add((usize::from(number) - 1) * BIG_BUF_BYTES)
    })
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    struct Shared {
        owners: [AtomicU32; MAX_BIG_BUFS],
        /// The first big buffer; loom checks its accesses.
        memory: UnsafeCell<()>,
    }

    // SAFETY: only the owner of the big buffer accesses the cell; loom checks that.
    unsafe impl Sync for Shared {}
    // SAFETY: only the owner of the big buffer accesses the cell; loom checks that.
    unsafe impl Send for Shared {}

    fn big_bufs(shared: &Shared, ring: usize) -> BigBufs {
        let owners = NonNull::from(&shared.owners).cast();
        // SAFETY: the words outlive the result, and its memory is not accessed.
        unsafe { BigBufs::new(owners, NonNull::dangling(), ring) }
    }

    fn write_if_claimed(shared: &Shared, ring: usize) -> bool {
        let claimed = big_bufs(shared, ring).claim().is_some();
        if claimed {
            shared.memory.with_mut(|_| ());
        }
        claimed
    }

    /// The receiver discards a freed big buffer before another sender owns it, and two senders never own the same one.
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
            big_bufs(&shared, 0).release(|_| shared.memory.with_mut(|_| ()));
            let claimed = others.map(|t| t.join().unwrap());
            assert!(claimed != [true, true]);
        });
    }
}
