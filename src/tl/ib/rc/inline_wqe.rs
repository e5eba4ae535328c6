//! The prepared work request of the shortest sends and writes, and the budget within which it is posted.

use super::RcEp;
use crate::sys::copy::{self, TINY};
use crate::tl::ib::bindings::*;
use crate::tl::ib::desc::RemoteMem;
use crate::wire::packet_hdr::HEAD;

/// Bytes of the prepared inline work request: a header and up to [`TINY`] bytes.
const READY: usize = HEAD + TINY;

/// The prepared work request of the shortest sends and writes, in which only a few words change.
pub(super) struct InlineWqe {
    wr: ibv_send_wr,
    sge: ibv_sge,
    bytes: [u8; READY],
}

// SAFETY: the pointers lead to fields of the same allocation, which does not move.
unsafe impl Send for InlineWqe {}

impl InlineWqe {
    /// The work request without destination and length. Boxed, because it contains pointers to its own fields.
    pub(super) fn new() -> Box<InlineWqe> {
        let mut ready = Box::new(InlineWqe {
            wr: ibv_send_wr::default(),
            sge: ibv_sge::default(),
            bytes: [0; READY],
        });
        ready.sge.addr = ready.bytes.as_ptr() as u64;
        ready.wr.sg_list = &raw mut ready.sge;
        ready.wr.num_sge = 1;
        ready.wr.send_flags = IBV_SEND_INLINE;
        ready
    }
}

impl RcEp {
    /// Whether the inline budget is not used up: one more send has room and need not be signaled.
    #[inline(always)]
    pub fn has_inline_budget(&self) -> bool {
        self.posted < self.until
    }

    /// Sets the inline budget: how many sends need no check, at most `packets`.
    pub fn refill_inline_budget(&mut self, packets: usize) {
        let silent = self
            .moderation()
            .saturating_sub(self.posted - self.last_signaled + 1);
        let waits = self.fenced && self.reads + self.atomics > 0;
        let most = if waits || (self.qp.max_inline as usize) < READY {
            0
        } else {
            self.room().min(packets) as u64
        };
        self.until = self.posted + most.min(silent);
    }

    /// Clears the inline budget: the device has refused a send, or sends have to wait for reads.
    pub fn revoke_inline_budget(&mut self) {
        self.until = 0;
    }

    /// Sends a header and up to [`TINY`] bytes within the inline budget. False: the device refuses.
    ///
    /// # Safety
    /// `len` bytes at `from` are readable.
    #[inline(always)]
    pub unsafe fn post_tiny(&mut self, head: [u8; HEAD], from: *const u8, len: usize) -> bool {
        let ready = &mut *self.ready;
        ready.bytes[..HEAD].copy_from_slice(&head);
        // SAFETY: by the caller, `from` is readable for `len` bytes; the array has room for TINY bytes behind the
        // header.
        unsafe { copy::tiny(ready.bytes.as_mut_ptr().add(HEAD), from, len) };
        ready.sge.length = (HEAD + len) as u32;
        ready.wr.opcode = IBV_WR_SEND;
        self.post_inline_wqe()
    }

    /// Writes up to [`TINY`] bytes to the peer's memory within the inline budget. False: the device refuses.
    ///
    /// # Safety
    /// `len` bytes at `from` are readable.
    #[inline(always)]
    pub unsafe fn write_tiny(&mut self, to: RemoteMem, from: *const u8, len: usize) -> bool {
        let ready = &mut *self.ready;
        // SAFETY: by the caller, `from` is readable for `len` bytes; the array has room for TINY bytes.
        unsafe { copy::tiny(ready.bytes.as_mut_ptr(), from, len) };
        ready.sge.length = len as u32;
        ready.wr.opcode = IBV_WR_RDMA_WRITE;
        (ready.wr.wr.rdma.remote_addr, ready.wr.wr.rdma.rkey) = (to.addr, to.key);
        self.post_inline_wqe()
    }

    #[inline(always)]
    fn post_inline_wqe(&mut self) -> bool {
        self.posted += 1;
        self.ready.wr.wr_id = self.posted;
        // SAFETY: the only entry names `ready.bytes`, whose first `sge.length` bytes are written; inline data.
        unsafe { self.qp.post_send(&mut self.ready.wr) }
    }
}
