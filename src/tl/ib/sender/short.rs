//! Short puts through a buffer, within the inline budget.

use super::{IbSender, MAX_INLINE};
use crate::tl::ib::rc::RemoteMem;

impl IbSender {
    /// Writes bytes that fit into one buffer and are too long for inline data, within the inline budget. False: the
    /// length is not so, or the inline budget is used up.
    ///
    /// # Safety
    /// `len` bytes at `from` are readable.
    #[inline(always)]
    pub unsafe fn write_short(&mut self, to: RemoteMem, from: *const u8, len: usize) -> bool {
        let fits = len <= self.most_at_once;
        let Some(rc_ep) = self.ready_rc().filter(|_| fits) else {
            return false;
        };
        if len <= (rc_ep.qp.max_inline as usize).min(MAX_INLINE) {
            return false;
        }
        let Some(Some(buffer)) = rc_ep.through(len) else {
            return false;
        };
        // SAFETY: by the caller, `from` is readable; the buffer has room for `len` bytes.
        unsafe { buffer.ptr.copy_from_nonoverlapping(from, len) };
        if !rc_ep.write_buffer(buffer, len, to) {
            self.fail();
        }
        true
    }
}
