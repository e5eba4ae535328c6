//! Reads, writes and atomic operations of a connection, through buffers of the interface.

use super::{IbSender, MAX_INLINE, RcOrUd};
use crate::tl::Token;
use crate::tl::ib::rc::{AmoDesc, ReadDesc, RemoteMem};
use crate::tl::rma_pieces::RmaPieces;

impl IbSender {
    /// Writes up to a buffer's worth of bytes into the peer's memory; returns how many of the `len` bytes, which `fill`
    /// writes from the front. 0: there is no room now, or no RC queue pair; `fill` was not called.
    pub fn write(&mut self, to: RemoteMem, len: usize, fill: impl FnOnce(*mut u8, usize)) -> usize {
        let n = len.min(self.most_at_once());
        let RcOrUd::Rc { rc_ep, .. } = &mut self.transport else {
            return 0;
        };
        if self.broken || !rc_ep.has_room(1) {
            return 0;
        }
        if n <= (rc_ep.qp.max_inline as usize).min(MAX_INLINE) {
            let mut bytes = std::mem::MaybeUninit::<[u8; MAX_INLINE]>::uninit();
            fill(bytes.as_mut_ptr().cast(), n);
            // SAFETY: `fill` has written the `n` bytes, which are at most MAX_INLINE.
            let bytes = unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), n) };
            if !rc_ep.write_inline(bytes, to) {
                self.fail();
            }
            self.refill_inline_budget();
            return n;
        }
        let Some(buffer) = self.iface.packets.lock().get() else {
            return 0;
        };
        fill(buffer.ptr, n);
        if !rc_ep.write_buffer(buffer, n, to) {
            self.fail();
        }
        self.refill_inline_budget();
        n
    }

    /// Posts puts or gets of pieces of a list, by these keys of their regions. False: there is no room now, or no RC
    /// queue pair.
    ///
    /// # Safety
    /// The pieces are valid until the request completes.
    pub unsafe fn post_pieces(&mut self, pieces: &mut RmaPieces<'_>, rkeys: &[u32]) -> bool {
        let RcOrUd::Rc { rc_ep, .. } = &mut self.transport else {
            return false;
        };
        if self.broken || !rc_ep.has_room(1) {
            return false;
        }
        // SAFETY: the caller's promise.
        match unsafe { rc_ep.post_pieces(pieces, rkeys) } {
            Some(true) => {}
            Some(false) => self.fail(),
            None => return false,
        }
        self.refill_inline_budget();
        true
    }

    /// Reads up to a buffer's worth of the `len` bytes in the peer's memory; returns how many.
    /// [`on_send_completion`](Self::on_send_completion) reports `owner` when they are copied. 0: there is no room now,
    /// or no RC queue pair.
    pub fn read(&mut self, from: RemoteMem, into: *mut u8, len: usize, owner: Token) -> usize {
        let n = len.min(self.most_at_once());
        let RcOrUd::Rc { rc_ep, .. } = &mut self.transport else {
            return 0;
        };
        if self.broken || !rc_ep.has_room(1) {
            return 0;
        }
        let Some(buffer) = self.iface.packets.lock().get() else {
            return 0;
        };
        let read = ReadDesc {
            into,
            len: n,
            owner,
            atomic: false,
        };
        if !rc_ep.read(buffer, read, from, n == len) {
            self.fail();
        }
        n
    }

    /// Whether the device of this process can execute atomic operations at the peer's.
    pub fn has_atomics(&self) -> bool {
        self.is_connected() && self.iface.port.hca.has_atomics()
    }

    /// Executes an atomic operation on 8 bytes of the peer's memory; the old value goes to `into`, and
    /// [`on_send_completion`](Self::on_send_completion) reports `owner` then. Both are null if it is not wanted. False:
    /// there is no room now, or no RC queue pair.
    pub fn atomic(&mut self, step: AmoDesc, at: RemoteMem, into: *mut u8, owner: Token) -> bool {
        let RcOrUd::Rc { rc_ep, .. } = &mut self.transport else {
            return false;
        };
        if self.broken || !rc_ep.has_room(1) {
            return false;
        }
        let Some(buffer) = self.iface.packets.lock().get() else {
            return false;
        };
        let old = ReadDesc {
            into,
            len: size_of::<u64>(),
            owner,
            atomic: true,
        };
        if !rc_ep.atomic(buffer, step, old, at) {
            self.fail();
        }
        true
    }
}
