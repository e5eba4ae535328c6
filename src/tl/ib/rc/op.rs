//! Reads and atomic operations: by an op slot, or through a buffer.

use super::RcEp;
use crate::sys::copy::TINY;
use crate::tl::Token;
use crate::tl::ib::bindings::*;
use crate::tl::ib::buffers::Buffer;
use crate::tl::ib::desc::{AmoDesc, ReadDesc, RemoteMem, TxDesc};
use crate::tl::ib::op_slots::OpSlots;

impl RcEp {
    /// Whether a slot with bytes is free; allocates the slots if necessary.
    #[inline(always)]
    pub fn has_op_slot(&mut self) -> bool {
        match &self.waits {
            Some(waits) if waits.has_bytes() => true,
            _ => self.make_op_slots(),
        }
    }

    #[inline(never)]
    fn make_op_slots(&mut self) -> bool {
        let waits = self.waits.get_or_insert_with(OpSlots::new);
        if waits.is_to_read() {
            return false;
        }
        let Some(buffer) = self.iface.places.lock().get() else {
            return false;
        };
        waits.use_buffer(buffer);
        waits.has_slot()
    }

    /// The buffer that a read of `len` bytes by a slot needs: `Some(None)` if the slot's own bytes suffice. `None`: no
    /// buffer can be registered.
    #[inline(always)]
    pub fn through(&mut self, len: usize) -> Option<Option<Buffer>> {
        match len {
            ..=TINY => Some(None),
            _ => self.iface.packets.lock().get().map(Some),
        }
    }

    /// Reads up to [`TINY`] bytes, or as many as the buffer has, by a slot. The caller has checked the inline budget
    /// and that a slot is free. False: the device refuses.
    #[inline(always)]
    pub fn read_short(
        &mut self,
        from: RemoteMem,
        into: (*mut u8, usize),
        buffer: Option<Buffer>,
        owner: Token,
    ) -> bool {
        let Some(waits) = &mut self.waits else {
            return false;
        };
        self.posted += 1;
        self.reads += 1;
        let wr = waits.read(self.posted, from, into, buffer, owner);
        wr.wr_id = self.posted;
        // SAFETY: the only entry names the slot, or the buffer that the slot keeps: registered memory, which is not
        // accessed here until the read has completed.
        let posted = unsafe { self.qp.post_send(wr) };
        self.note_signaled();
        if self.fenced {
            self.revoke_inline_budget();
        }
        posted
    }

    /// Executes an atomic operation by a slot; `into` and `owner` are null if the result is not wanted. The caller has
    /// checked the inline budget and that a slot is free. False: the device refuses.
    #[inline(always)]
    pub fn atomic_short(
        &mut self,
        step: AmoDesc,
        at: RemoteMem,
        into: *mut u8,
        owner: Token,
    ) -> bool {
        let Some(waits) = &mut self.waits else {
            return false;
        };
        self.posted += 1;
        self.atomics += 1;
        let (wr, signaled) = waits.atomic(self.posted, step, at, into, owner);
        wr.wr_id = self.posted;
        // SAFETY: the only entry names the slot: registered memory, which is not accessed here until the operation has
        // completed.
        let posted = unsafe { self.qp.post_send(wr) };
        if signaled {
            self.note_signaled();
        }
        if self.fenced {
            self.revoke_inline_budget();
        }
        posted
    }

    /// Reads into a buffer, whose bytes are copied to the target when the read has completed. The caller has checked
    /// that there is room. `last`: the request completes with this read, so it is signaled. False: the device refuses.
    pub fn read(&mut self, buffer: Buffer, read: ReadDesc, from: RemoteMem, last: bool) -> bool {
        let mut sge = ibv_sge {
            addr: buffer.ptr as u64,
            length: read.len as u32,
            lkey: buffer.lkey,
        };
        self.silent += 1;
        self.reads += 1;
        if self.fenced {
            self.revoke_inline_budget();
        }
        self.held
            .push_back((self.posted + 1, TxDesc::In(buffer, read)));
        let signaled = last || self.is_signal_due();
        self.post_remote(&mut sge, IBV_WR_RDMA_READ, 0, signaled, from)
    }

    /// Executes an atomic operation on 8 bytes, which are aligned to 8 bytes; the old value is copied to `old.into`,
    /// null if it is not wanted. The caller has checked that there is room. False: the device refuses.
    pub fn atomic(&mut self, buffer: Buffer, step: AmoDesc, old: ReadDesc, at: RemoteMem) -> bool {
        let sge = ibv_sge {
            addr: buffer.ptr as u64,
            length: size_of::<u64>() as u32,
            lkey: buffer.lkey,
        };
        self.silent += 1;
        let signaled = !old.into.is_null() || self.is_signal_due();
        self.held
            .push_back((self.posted + 1, TxDesc::In(buffer, old)));
        let posted = self.post_work(&mut [sge], step.opcode(), 0, signaled, |wr| {
            step.fill(wr, at)
        });
        self.atomics += 1;
        if self.fenced {
            self.revoke_inline_budget();
        }
        posted
    }

    /// Whether the operation can take effect before the reads that were posted: only reads, and atomic operations among
    /// themselves, are ordered by the device.
    #[inline(always)]
    pub(super) fn overtakes(&self, opcode: ibv_wr_opcode) -> bool {
        match opcode {
            IBV_WR_RDMA_READ => false,
            IBV_WR_ATOMIC_FETCH_AND_ADD | IBV_WR_ATOMIC_CMP_AND_SWP => self.reads > 0,
            _ => self.reads + self.atomics > 0,
        }
    }
}
