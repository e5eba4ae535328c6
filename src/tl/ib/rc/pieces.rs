//! Puts and gets of a list of pieces: a batch of work requests, posted by one call.
//!
//! The device copies pieces of a put that are short enough from the user's memory in the call. Others share buffers.

use super::RcEp;
use crate::sys::lock::MtLock;
use crate::tl::ib::bindings::*;
use crate::tl::ib::buffers::Buffer;
use crate::tl::ib::desc::{ReadDesc, ScatterDesc, TxDesc};
use crate::tl::ib::queues::IbvQp;
use crate::tl::rma_pieces::{Piece, RmaPieces};
use std::mem;
use std::ptr::{self, NonNull};

/// Maximum number of work requests of a batch.
const MAX_WRS: usize = 64;
/// Maximum number of batches that an interface keeps, each of about 9 KiB.
const MAX_KEPT_BATCHES: usize = 16;

/// What the work requests of a batch have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Common {
    opcode: ibv_wr_opcode,
    /// 0: each has its own.
    rkey: u32,
}

/// A work request and its memory.
#[repr(C)]
struct Slot {
    wr: ibv_send_wr,
    sge: ibv_sge,
}

/// Work requests that one call posts. Each names its memory and is linked with the next one from the start, so that a
/// piece only takes what differs.
pub struct WrBatch {
    slots: NonNull<[Slot; MAX_WRS]>,
    common: Common,
    /// Number of slots, from the first on, whose work requests have `common`.
    with_common: usize,
    /// `IBV_SEND_FENCE`, or 0.
    fence: u32,
    /// Number of the first send.
    first_id: u64,
    /// Work requests that are to be posted.
    len: usize,
}

// SAFETY: the slots belong to the batch alone.
unsafe impl Send for WrBatch {}

impl Drop for WrBatch {
    fn drop(&mut self) {
        // SAFETY: `new` has made the box, and nothing else frees it.
        drop(unsafe { Box::from_raw(self.slots.as_ptr()) });
    }
}

impl WrBatch {
    #[cold]
    fn new() -> WrBatch {
        // SAFETY: zeroes are valid values of the integers, pointers and unions of both structures.
        let slots = Box::new([const { unsafe { mem::zeroed::<Slot>() } }; MAX_WRS]);
        let slots = NonNull::from(Box::leak(slots));
        let first = slots.as_ptr().cast::<Slot>();
        for i in 0..MAX_WRS {
            // SAFETY: the slot `i` is one of the array; so is the next one, except behind the last.
            unsafe {
                let wr = &raw mut (*first.add(i)).wr;
                (*wr).sg_list = &raw mut (*first.add(i)).sge;
                (*wr).num_sge = 1;
                if i + 1 < MAX_WRS {
                    (*wr).next = &raw mut (*first.add(i + 1)).wr;
                }
            }
        }
        WrBatch {
            slots,
            common: Common { opcode: 0, rkey: 0 },
            with_common: 0,
            fence: 0,
            first_id: 0,
            len: 0,
        }
    }

    fn slots(&mut self) -> &mut [Slot; MAX_WRS] {
        // SAFETY: the array is the batch's own, and lives as long.
        unsafe { self.slots.as_mut() }
    }

    /// Begins a batch. `first_id`: the number of its first send.
    #[inline(always)]
    fn begin(&mut self, common: Common, fence: u32, first_id: u64) {
        (self.fence, self.first_id, self.len) = (fence, first_id, 0);
        if self.common != common {
            (self.common, self.with_common) = (common, 0);
        }
    }

    /// Writes what the work requests of the batch have in common into the first `end` slots, except those that have it.
    #[inline(always)]
    fn write_common(&mut self, end: usize) {
        if self.with_common < end {
            self.write_more_common(end);
        }
    }

    /// [`write_common`](Self::write_common) where there are such slots.
    #[inline(never)]
    fn write_more_common(&mut self, end: usize) {
        let (Common { opcode, rkey }, from) = (self.common, self.with_common);
        for slot in &mut self.slots()[from..end] {
            slot.wr.opcode = opcode;
            slot.wr.wr.rdma.rkey = rkey;
        }
        self.with_common = end;
    }

    /// Appends a work request. The caller has checked that there are less than [`MAX_WRS`].
    fn push(&mut self, sge: ibv_sge, there: u64) {
        let (at, id, fence) = (self.len, self.first_id + self.len as u64, self.fence);
        self.write_common(at + 1);
        let slot = &mut self.slots()[at];
        slot.sge = sge;
        slot.fill(id, fence, there);
        self.len += 1;
    }

    /// Appends work requests of the next pieces up to the first that is longer than `inline` and than what is left of
    /// the buffer, if there is one, and so many in all. Pieces of puts up to `inline` are sent as inline data.
    ///
    /// # Safety
    /// The pieces are valid; they are puts if `WRITES`.
    #[inline(never)]
    unsafe fn push_whole<const WRITES: bool>(
        &mut self,
        shared: &mut Option<SharedBuffer>,
        pieces: &mut RmaPieces<'_>,
        inline: usize,
        most: usize,
    ) {
        if pieces.cursor.within > 0 {
            return;
        }
        let (from, len, fence) = (pieces.cursor.next, self.len, self.fence);
        self.write_common(most.min(len + pieces.lengths.len() - from));
        let id = self.first_id + len as u64;
        let here = pieces.here[from..].iter().zip(&pieces.lengths[from..]);
        let each = here.zip(&pieces.there[from..]);
        let (mut ptr, lkey, mut left) = match shared {
            Some(shared) => (shared.buffer.ptr, shared.buffer.lkey, shared.left),
            None => (ptr::null_mut(), 0, 0),
        };
        let mut count = 0;
        for (((&here, &bytes), &there), slot) in each.zip(&mut self.slots()[len..most]) {
            let (addr, key, flags) = if WRITES && bytes <= inline {
                (here, 0, IBV_SEND_INLINE)
            } else if bytes <= left {
                if WRITES {
                    // SAFETY: the caller's piece; the buffer has room for it.
                    unsafe { ptr.copy_from_nonoverlapping(here, bytes) };
                }
                let addr = ptr;
                (ptr, left) = (ptr.wrapping_add(bytes), left - bytes);
                (addr, lkey, 0)
            } else {
                break;
            };
            slot.sge = ibv_sge {
                addr: addr as u64,
                length: bytes as u32,
                lkey: key,
            };
            slot.fill(id + count as u64, fence | flags, there);
            count += 1;
        }
        if let Some(shared) = shared {
            (shared.buffer.ptr, shared.left) = (ptr, left);
            shared.count += if WRITES { 0 } else { count };
        }
        self.len += count;
        pieces.cursor.next += count;
    }

    /// Writes the rkeys of work requests from number `first` on, whose pieces' regions have these numbers.
    #[inline(never)]
    fn write_rkeys(&mut self, first: usize, numbers: &[u8], rkeys: &[u32]) {
        for (slot, &number) in self.slots()[first..].iter_mut().zip(numbers) {
            slot.wr.wr.rdma.rkey = rkeys[usize::from(number)];
        }
    }

    /// Posts the work requests, of which there is at least one. False: the device refuses.
    ///
    /// # Safety
    /// The memory of each is valid: inline data during the call, a registered buffer until the send has completed.
    #[inline(always)]
    unsafe fn post(&mut self, qp: &IbvQp, is_last_signaled: bool) -> bool {
        let first = self.slots.as_ptr().cast::<Slot>();
        // SAFETY: the slots up to the last one are part of the array, linked, and have a work request each; the last
        // one ends the list while it is posted. No reference to the array exists. The memory is the caller's promise.
        unsafe {
            let last = &raw mut (*first.add(self.len - 1)).wr;
            let next = (*last).next;
            (*last).next = ptr::null_mut();
            if is_last_signaled {
                (*last).send_flags |= IBV_SEND_SIGNALED;
            }
            let posted = qp.post_send(&mut *first.cast::<ibv_send_wr>());
            (*last).next = next;
            posted
        }
    }
}

impl Slot {
    /// Writes what differs from other work requests of a batch.
    #[inline(always)]
    fn fill(&mut self, id: u64, flags: u32, there: u64) {
        self.wr.wr_id = id;
        self.wr.send_flags = flags;
        self.wr.wr.rdma.remote_addr = there;
    }
}

/// Batches that are not in use, for the threads that post lists.
pub struct BatchPool {
    kept: MtLock<Vec<WrBatch>>,
}

impl BatchPool {
    /// An empty pool. `mt`: several threads use it.
    pub fn new(mt: bool) -> BatchPool {
        let kept = MtLock::new(mt, Vec::new());
        BatchPool { kept }
    }

    /// A batch for the caller alone.
    fn take(&self) -> WrBatch {
        let kept = self.kept.lock().pop();
        kept.unwrap_or_else(WrBatch::new)
    }

    /// Keeps a batch, up to [`MAX_KEPT_BATCHES`].
    fn put_back(&self, batch: WrBatch) {
        let mut kept = self.kept.lock();
        if kept.len() < MAX_KEPT_BATCHES {
            kept.push(batch);
            return;
        }
        drop(kept);
        drop(batch);
    }
}

/// A buffer that pieces of a batch share.
struct SharedBuffer {
    /// What is left of it.
    buffer: Buffer,
    left: usize,
    /// Its first byte.
    start: *mut u8,
    /// The first of the list's pieces in it, and how many there are if they are gets.
    first: usize,
    count: usize,
}

impl RcEp {
    /// Posts puts or gets of pieces, as many as there is room for and one call takes. The caller has checked that there
    /// is room. `rkeys`: those of the regions. `Some(false)`: the device refuses; `None`: nothing was posted, because
    /// there is no buffer.
    ///
    /// # Safety
    /// The pieces are valid until the request completes.
    pub unsafe fn post_pieces(
        &mut self,
        pieces: &mut RmaPieces<'_>,
        rkeys: &[u32],
    ) -> Option<bool> {
        let opcode = if pieces.writes {
            IBV_WR_RDMA_WRITE
        } else {
            IBV_WR_RDMA_READ
        };
        let is_fenced = self.fenced && self.overtakes(opcode);
        let fence = if is_fenced { IBV_SEND_FENCE } else { 0 };
        let has_one = pieces.numbers.is_empty();
        let rkey = if has_one { rkeys[0] } else { 0 };
        let mut batch = self.iface.batches.take();
        batch.begin(Common { opcode, rkey }, fence, self.posted + 1);
        // SAFETY: the caller's promise.
        let posted = unsafe { self.post_batch(&mut batch, pieces, rkeys) };
        self.iface.batches.put_back(batch);
        posted
    }

    /// [`post_pieces`](Self::post_pieces) by a batch that was begun.
    ///
    /// # Safety
    /// The requirements of `post_pieces`.
    #[inline(always)]
    unsafe fn post_batch(
        &mut self,
        batch: &mut WrBatch,
        pieces: &mut RmaPieces<'_>,
        rkeys: &[u32],
    ) -> Option<bool> {
        // SAFETY: the caller's promise.
        let has_buffers = unsafe { self.fill_batch(batch, pieces, rkeys) };
        if batch.len == 0 {
            return None;
        }
        self.posted += batch.len as u64;
        if !pieces.writes {
            self.reads += batch.len as u32;
            if self.fenced {
                self.revoke_inline_budget();
            }
        }
        let is_due = self.posted - self.last_signaled >= self.moderation();
        let is_signaled = has_buffers || is_due;
        if is_signaled {
            self.note_signaled();
        }
        // SAFETY: each names inline data of the user, which the call copies, or a registered buffer that is in `held`
        // until the last of them has completed.
        Some(unsafe { batch.post(&self.qp, is_signaled) })
    }

    /// Makes the work requests of the next pieces. Returns whether buffers are used.
    ///
    /// # Safety
    /// The requirements of [`post_pieces`](Self::post_pieces).
    unsafe fn fill_batch(
        &mut self,
        batch: &mut WrBatch,
        pieces: &mut RmaPieces<'_>,
        rkeys: &[u32],
    ) -> bool {
        let most = self.room().min(MAX_WRS);
        let inline = if pieces.writes {
            self.qp.max_inline as usize
        } else {
            0
        };
        let longest = self.iface.port.tuning.rc.seg_size;
        let (mut shared, mut has_buffers): (Option<SharedBuffer>, _) = (None, false);
        loop {
            let (first, from) = (batch.len, pieces.cursor.next);
            // SAFETY: the caller's promise.
            unsafe {
                match pieces.writes {
                    true => batch.push_whole::<true>(&mut shared, pieces, inline, most),
                    false => batch.push_whole::<false>(&mut shared, pieces, 0, most),
                }
            }
            if !pieces.numbers.is_empty() {
                batch.write_rkeys(first, &pieces.numbers[from..pieces.cursor.next], rkeys);
            }
            let Some(piece) = pieces.next().filter(|_| batch.len < most) else {
                break;
            };
            // It is not inline data, and has no room in the buffer.
            if let Some(full) = shared.take() {
                self.hold(full, batch, pieces);
            }
            let Some(buffer) = self.iface.packets.lock().get() else {
                break;
            };
            has_buffers = true;
            if piece.is_rest || piece.len > longest {
                let n = piece.len.min(longest);
                // SAFETY: the caller's promise.
                unsafe { self.push_part(buffer, batch, pieces, rkeys, (piece, n)) };
                continue;
            }
            shared = Some(SharedBuffer {
                start: buffer.ptr,
                buffer,
                left: longest,
                first: pieces.cursor.next,
                count: 0,
            });
        }
        if let Some(last) = shared {
            self.hold(last, batch, pieces);
        }
        has_buffers
    }

    /// Attaches a buffer to the last work request of a batch.
    fn hold(&mut self, shared: SharedBuffer, batch: &WrBatch, pieces: &mut RmaPieces<'_>) {
        let SharedBuffer { first, count, .. } = shared;
        let buffer = Buffer {
            ptr: shared.start,
            ..shared.buffer
        };
        let desc = if pieces.writes {
            TxDesc::Out(buffer)
        } else {
            *pieces.outstanding += 1;
            let scatter = ScatterDesc {
                targets: pieces.targets(first, count),
                owner: pieces.token,
            };
            TxDesc::InPieces(buffer, scatter)
        };
        self.held.push_back((self.posted + batch.len as u64, desc));
    }

    /// Makes the work request of a part of a piece, so many bytes, by a buffer of its own.
    ///
    /// # Safety
    /// The requirements of [`post_pieces`](Self::post_pieces).
    unsafe fn push_part(
        &mut self,
        buffer: Buffer,
        batch: &mut WrBatch,
        pieces: &mut RmaPieces<'_>,
        rkeys: &[u32],
        (piece, len): (Piece, usize),
    ) {
        let desc = if pieces.writes {
            // SAFETY: the caller's piece; the buffer has room for the part.
            unsafe { buffer.ptr.copy_from_nonoverlapping(piece.here, len) };
            TxDesc::Out(buffer)
        } else {
            *pieces.outstanding += 1;
            let read = ReadDesc {
                into: piece.here,
                len,
                owner: pieces.token,
                atomic: false,
            };
            TxDesc::In(buffer, read)
        };
        let sge = ibv_sge {
            addr: buffer.ptr as u64,
            length: len as u32,
            lkey: buffer.lkey,
        };
        batch.push(sge, piece.there);
        if let Some(&number) = pieces.numbers.get(pieces.cursor.next) {
            batch.write_rkeys(batch.len - 1, &[number], rkeys);
        }
        pieces.posted(piece, len);
        self.held.push_back((self.posted + batch.len as u64, desc));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_of_several_threads_are_all_kept() {
        let pool = BatchPool::new(true);
        let place = |batch: &WrBatch| batch.slots.as_ptr() as usize;
        let taken: Vec<_> = (0..MAX_KEPT_BATCHES + 1).map(|_| pool.take()).collect();
        let mut kept: Vec<_> = taken.iter().take(MAX_KEPT_BATCHES).map(place).collect();
        taken.into_iter().for_each(|batch| pool.put_back(batch));
        assert_eq!(pool.kept.lock().len(), MAX_KEPT_BATCHES);
        let again: Vec<_> = (0..MAX_KEPT_BATCHES).map(|_| pool.take()).collect();
        let mut found: Vec<_> = again.iter().map(place).collect();
        kept.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, kept);
    }

    #[test]
    fn a_batch_writes_the_key_into_the_slots_that_it_uses() {
        let keys_of = |batch: &mut WrBatch| {
            let slots = batch.slots();
            // SAFETY: the work requests are of RDMA operations, all fields of which are initialised.
            slots
                .each_ref()
                .map(|slot| (slot.wr.opcode, unsafe { slot.wr.wr.rdma.rkey }))
        };
        let sge = || ibv_sge {
            addr: 0,
            length: 1,
            lkey: 0,
        };
        let mut batch = WrBatch::new();
        // The key of the first batch is still in slots that the second one did not use.
        for (rkey, count) in [(1, MAX_WRS), (2, 3), (1, 5), (1, 9)] {
            let opcode = IBV_WR_RDMA_READ;
            batch.begin(Common { opcode, rkey }, 0, 1);
            (0..count).for_each(|_| batch.push(sge(), 0));
            let keys = keys_of(&mut batch);
            assert!(
                keys[..count].iter().all(|&key| key == (opcode, rkey)),
                "{keys:?}"
            );
            assert_eq!(batch.with_common, count);
        }
    }
}
