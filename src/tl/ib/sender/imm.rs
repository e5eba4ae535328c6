//! Short writes with immediate: the peer gets the immediate after the data.

use super::{IbSender, MAX_INLINE, RcOrUd};
use crate::tl::ib::rc::RemoteMem;

impl IbSender {
    /// Writes up to [`most_at_once`](Self::most_at_once) bytes, which `fill` copies, with an immediate, which counts as
    /// a packet. False: there is no room now, or the connection has no RC queue pair; `fill` was not called.
    #[inline(always)]
    pub fn write_with_imm(
        &mut self,
        to: RemoteMem,
        len: usize,
        word: u32,
        fill: impl FnOnce(*mut u8),
    ) -> bool {
        let RcOrUd::Rc { rc_ep, .. } = &self.transport else {
            return false;
        };
        let written = if len <= (rc_ep.qp.max_inline as usize).min(MAX_INLINE) {
            self.write_inline_with_imm(to, len, word, fill)
        } else {
            self.write_buffer_with_imm(to, len, word, fill)
        };
        match written {
            None => return false,
            Some(true) => self.refill_inline_budget(),
            Some(false) => self.fail(),
        }
        true
    }

    /// Writes inline data with immediate. `None`: there is no room. False: the device refuses.
    #[inline(always)]
    fn write_inline_with_imm(
        &mut self,
        to: RemoteMem,
        len: usize,
        word: u32,
        fill: impl FnOnce(*mut u8),
    ) -> Option<bool> {
        let rc_ep = self.rc_for_zcopy(true)?;
        let mut bytes = std::mem::MaybeUninit::<[u8; MAX_INLINE]>::uninit();
        fill(bytes.as_mut_ptr().cast());
        // SAFETY: `fill` has written the `len` bytes, which are at most MAX_INLINE.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), len) };
        Some(rc_ep.write_inline_with_imm(bytes, to, word))
    }

    /// Writes a buffer with immediate. `None`: there is no room. False: the device refuses.
    fn write_buffer_with_imm(
        &mut self,
        to: RemoteMem,
        len: usize,
        word: u32,
        fill: impl FnOnce(*mut u8),
    ) -> Option<bool> {
        let iface = self.iface.clone();
        let buffer = iface.packets.lock().get()?;
        let Some(rc_ep) = self.rc_for_zcopy(true) else {
            iface.packets.lock().put(buffer);
            return None;
        };
        fill(buffer.ptr);
        Some(rc_ep.write_buffer_with_imm(buffer, len, to, word))
    }
}
