//! Lists whose pieces are all copied by the kernel (CMA), many with one call.
//!
//! A list that is not of this kind, or in which something is wrong, is left to the general way.

use super::arrays::SglArrays;
use super::check::{self, Bounds, ListKeys};
use super::{SglOp, short};
use crate::ctypes::*;
use crate::engine::rkey::{Rkey, RkeyAccess};
use crate::sys::cma;
use std::slice;

/// The keys of memory that only the kernel, or a message, reaches.
struct KernelKeys;

impl SglOp<'_> {
    /// Whether the kernel can copy all pieces of a list, and none of them is empty.
    ///
    /// # Safety
    /// The arrays are valid.
    pub(super) unsafe fn is_for_kernel(&self, lists: &SglArrays) -> bool {
        let (worker, peer) = (self.worker, self.peer);
        let may_copy = lists.counts.is_null()
            && !self.p.is_kind_open()
            && !worker.is_fenced()
            && !self.p.has(UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL)
            && !peer.same_process
            && peer.cma().is_usable()
            && !short::is_unanswered(peer);
        // SAFETY: the caller's promise.
        may_copy && unsafe { check::check(lists, (worker, peer), false, &mut KernelKeys) }.is_some()
    }

    /// Copies the pieces of such a list. If the kernel does not allow it they go by messages.
    ///
    /// # Errors
    /// Those of [`flush`](Self::flush).
    ///
    /// # Safety
    /// [`is_for_kernel`](Self::is_for_kernel) has returned true; the user's memory is valid.
    pub(super) unsafe fn copy_by_kernel(&mut self, lists: &SglArrays) -> Result<(), ucs_status_t> {
        // SAFETY: the caller's promise: each array has `count` entries; pointers are as wide as addresses.
        let (buffers, addrs, lengths) = unsafe {
            (
                slice::from_raw_parts(lists.buffers.cast::<u64>(), lists.count),
                slice::from_raw_parts(lists.addrs, lists.count),
                slice::from_raw_parts(lists.lengths, lists.count),
            )
        };
        let mut next = 0;
        while next < lists.count {
            let addrs = (&buffers[next..], &addrs[next..]);
            let lists = (&mut self.local, &mut self.remote);
            next += cma::fill_pair(lists, addrs, &lengths[next..]);
            // SAFETY: the caller's promise.
            unsafe { self.flush() }?;
        }
        Ok(())
    }
}

impl ListKeys for KernelKeys {
    /// All addresses: only the peer's kernel knows which of them exist.
    #[inline(always)]
    fn bounds(&mut self, rkey: &Rkey) -> Option<Bounds> {
        let is_by_kernel = rkey.access == RkeyAccess::Any
            && rkey.len == 0
            && !rkey.same_process
            && !rkey.tl.has_adapter_keys();
        is_by_kernel.then_some(Bounds::ALL)
    }
}
