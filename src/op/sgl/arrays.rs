//! The arrays of a scatter-gather list, as a caller gives them.

use super::SGL;
use crate::ctypes::*;
use crate::engine::rkey::Rkey;
use crate::op::param::Param;
use crate::sys::log;
use std::ffi::c_void;

/// The caller's arrays: `count` elements, each of some blocks of equal length. They belong to the caller until the
/// operation completes, and are read only during the call.
pub(super) struct SglArrays {
    pub count: usize,
    pub buffers: *const *mut c_void,
    pub lengths: *const usize,
    /// Blocks of each element and the bytes from one to the next; null: one block each.
    pub counts: *const usize,
    strides: *const usize,
    /// Memory handle of each element; null: none were given.
    pub memhs: *const ucp_mem_h,
    pub addrs: *const u64,
    /// Bytes of each element as the list of the other side says; null: it does not.
    pub remote_lengths: *const usize,
    pub rkeys: *const ucp_rkey_h,
}

/// Blocks of one element.
pub(super) struct SglElement<'a> {
    pub buffer: *mut u8,
    pub len: usize,
    pub blocks: usize,
    pub stride: usize,
    /// Handle of the memory that all blocks lie in, if the user gave handles.
    pub memh: Option<ucp_mem_h>,
    pub addr: u64,
    pub rkey: &'a Rkey,
}

impl SglElement<'_> {
    /// The bytes from the first block to the end of the last one; `None` beyond the address space.
    pub fn extent(&self) -> Option<(u64, u64)> {
        let before_last = (self.blocks - 1).checked_mul(self.stride)?;
        let len = before_last.checked_add(self.len)?;
        let start = self.buffer as u64;
        Some((start, start.checked_add(len as u64)?))
    }
}

impl SglArrays {
    /// # Errors
    /// What is missing, or that the two sides do not agree.
    pub unsafe fn read(
        local: *const c_void,
        count: usize,
        p: &Param,
    ) -> Result<SglArrays, &'static str> {
        let (remote, remote_count) = p.remote();
        if p.datatype() != SGL || p.remote_datatype() != Some(SGL) {
            return Err("both sides must be scatter-gather lists");
        }
        if p.has(UCP_OP_ATTR_FIELD_MEMH) {
            return Err("a memory handle beside those of the list");
        }
        if local.is_null() || remote.is_null() || remote_count != count {
            return Err("a null list, or not as many elements at both sides");
        }
        // SAFETY: the caller's structures are valid; a field is used only if its bit is set.
        unsafe {
            let l = &*local.cast::<ucp_dt_local_sgl_t>();
            let r = &*remote.cast::<ucp_dt_remote_sgl_t>();
            let blocks = has(l.field_mask, UCP_DT_LOCAL_SGL_FIELD_COUNTS as u64, l.counts);
            let strides = has(
                l.field_mask,
                UCP_DT_LOCAL_SGL_FIELD_STRIDES as u64,
                l.strides,
            );
            let lists = SglArrays {
                count,
                buffers: has(
                    l.field_mask,
                    UCP_DT_LOCAL_SGL_FIELD_BUFFERS as u64,
                    l.buffers,
                ),
                lengths: has(
                    l.field_mask,
                    UCP_DT_LOCAL_SGL_FIELD_LENGTHS as u64,
                    l.lengths,
                ),
                counts: blocks,
                strides,
                memhs: has(l.field_mask, UCP_DT_LOCAL_SGL_FIELD_MEMHS as u64, l.memhs),
                addrs: has(
                    r.field_mask,
                    UCP_DT_REMOTE_SGL_FIELD_REMOTE_ADDRS as u64,
                    r.remote_addrs,
                ),
                rkeys: has(r.field_mask, UCP_DT_REMOTE_SGL_FIELD_RKEYS as u64, r.rkeys),
                remote_lengths: has(
                    r.field_mask,
                    UCP_DT_REMOTE_SGL_FIELD_LENGTHS as u64,
                    r.lengths,
                ),
            };
            let missing = lists.buffers.is_null()
                || lists.lengths.is_null()
                || lists.addrs.is_null()
                || lists.rkeys.is_null();
            if missing || blocks.is_null() != strides.is_null() {
                return Err(
                    "buffers, lengths, remote addresses and keys must be given, counts with strides",
                );
            }
            Ok(lists)
        }
    }

    /// Whether the lengths of all elements are possible, and those of the two sides agree.
    ///
    /// # Safety
    /// The caller's arrays are valid.
    pub unsafe fn lengths_agree(&self) -> bool {
        // SAFETY: the caller's arrays have `count` entries.
        unsafe {
            let agrees =
                |i, len| self.remote_lengths.is_null() || *self.remote_lengths.add(i) == len;
            (0..self.count).all(|i| self.length(i).is_some_and(|len| agrees(i, len)))
        }
    }

    /// Bytes of all elements.
    ///
    /// # Safety
    /// The caller's arrays are valid.
    pub unsafe fn bytes(&self) -> usize {
        (0..self.count).fold(0, |sum: usize, i| {
            // SAFETY: the caller's arrays have `count` entries.
            sum.saturating_add(unsafe { self.length(i) }.unwrap_or(0))
        })
    }

    /// Bytes of an element, all blocks together.
    unsafe fn length(&self, i: usize) -> Option<usize> {
        // SAFETY: the caller's arrays have `count` entries.
        unsafe {
            let blocks = if self.counts.is_null() {
                1
            } else {
                *self.counts.add(i)
            };
            (*self.lengths.add(i)).checked_mul(blocks)
        }
    }

    /// An element; `None` if it is empty.
    pub unsafe fn element(&self, i: usize) -> Result<Option<SglElement<'_>>, ucs_status_t> {
        // SAFETY: the caller's arrays have `count` entries.
        unsafe {
            if self.length(i).unwrap_or(0) == 0 {
                return Ok(None);
            }
            let strided = !self.counts.is_null();
            let rkey = (*self.rkeys.add(i)).cast::<Rkey>().as_ref();
            let (Some(rkey), false) = (rkey, (*self.buffers.add(i)).is_null()) else {
                log::error!("scatter-gather access: element {i} has no buffer or no rkey");
                return Err(UCS_ERR_INVALID_PARAM);
            };
            Ok(Some(SglElement {
                buffer: (*self.buffers.add(i)).cast(),
                len: *self.lengths.add(i),
                blocks: if strided { *self.counts.add(i) } else { 1 },
                stride: if strided { *self.strides.add(i) } else { 0 },
                memh: (!self.memhs.is_null()).then(|| *self.memhs.add(i)),
                addr: *self.addrs.add(i),
                rkey,
            }))
        }
    }
}

fn has<T>(mask: u64, bit: u64, array: *const T) -> *const T {
    if mask & bit != 0 {
        array
    } else {
        std::ptr::null()
    }
}
