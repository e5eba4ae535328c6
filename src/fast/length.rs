//! Length of an operation whose parameters the fast path handles.

use crate::ctypes::*;
use crate::engine::context::ASK_DRIVER;
use crate::op::param::Param;

/// Bits of `op_attr_mask` that exclude the fast path, unless [`bytes_of`] finds their values to be simple.
pub(super) const SPECIAL: u32 = UCP_OP_ATTR_FIELD_DATATYPE as u32
    | UCP_OP_ATTR_FIELD_MEMORY_TYPE as u32
    | UCP_OP_ATTR_FLAG_NO_IMM_CMPL as u32
    | ASK_DRIVER
    | HINTS;

/// [`SPECIAL`] for active messages, whose `flags` field excludes the fast path too.
pub(super) const SPECIAL_AM: u32 = SPECIAL | UCP_OP_ATTR_FIELD_FLAGS as u32;

/// The caller's hints; blocking sends of MPI set `FAST_CMPL`. Short messages ignore them: they complete inside of the
/// call. Both at once are an error, which the slow path reports.
const HINTS: u32 = UCP_OP_ATTR_FLAG_FAST_CMPL as u32 | UCP_OP_ATTR_FLAG_MULTI_SEND as u32;

/// Bytes of `count` elements, if the buffer is contiguous and no bit of [`SPECIAL`] matters; else `None`.
#[inline(always)]
pub(super) fn plain_length(p: &Param, count: usize) -> Option<usize> {
    bytes_of(p, count, SPECIAL)
}

/// Bytes of `count` elements as [`bytes_of`] computes them; `usize::MAX` instead of `None`, which no fast path accepts.
#[inline(always)]
pub(super) fn tiny_length(p: &Param, count: usize, special: u32) -> usize {
    bytes_of(p, count, special).unwrap_or(usize::MAX)
}

/// Bytes of `count` elements, if the buffer is contiguous host memory and no bit of `special` matters; else `None`.
#[inline(always)]
pub(super) fn bytes_of(p: &Param, count: usize, special: u32) -> Option<usize> {
    if p.mask & special == 0 {
        return Some(count);
    }
    let plain = UCP_OP_ATTR_FIELD_DATATYPE as u32 | UCP_OP_ATTR_FIELD_MEMORY_TYPE as u32 | HINTS;
    if p.mask & (special & !plain) != 0 || p.mask & HINTS == HINTS {
        return None;
    }
    let datatype = p.datatype();
    if datatype & 7 != 0 || p.memory_type() != 0 {
        return None;
    }
    count.checked_mul((datatype >> 3) as usize)
}
