//! Hot path of puts and gets: a copy in mapped memory; other keys are for [`adapter`]s.

use super::adapter;
use super::length::{SPECIAL, plain_length};
use super::plain::{get_slow, is_plain, put_slow};
use crate::ctypes::*;
use crate::engine::endpoint::Endpoint;
use crate::engine::rkey::Rkey;
use crate::op::param::Param;
use crate::proto::select::rma::{RmaPath, by_key};
use crate::tl::adapter::{RkeySender, StaddSender};
use crate::wire::stats::StatProtocol;
use std::ffi::c_void;

/// `ucp_put_nbx`
///
/// # Safety
/// The parameters are valid as UCP requires.
#[inline(always)]
pub unsafe fn put(
    ep: *const Endpoint,
    buffer: *const c_void,
    count: usize,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's structure is valid. With a configuration that adds flags, `SLOW_PATH_RMA` is set in the
    // endpoint.
    let p = unsafe { Param::new(param, 0) };
    // SAFETY: the caller's key is valid, and its other promises are those that the callees require.
    unsafe {
        if rkey.is_null() {
            return put_slow(ep, buffer, count, addr, rkey, param);
        }
        if p.mask & SPECIAL == 0 && (*rkey).tl.has_words() {
            return match count {
                8 => adapter::put_words::<StaddSender>(ep, buffer, count, addr, rkey, param),
                _ => adapter::put_bytes::<StaddSender>(ep, buffer, count, addr, rkey, param),
            };
        }
    }
    let len = plain_length(&p, count).unwrap_or(0);
    // SAFETY: the caller's endpoint, key and buffer are valid; the peer outlives its endpoints.
    unsafe {
        if len != 0 && !buffer.is_null() && is_plain(ep, rkey) {
            let path = by_key(&*rkey, addr, len);
            if let RmaPath::Mapped(local) = path {
                // Counted before the copy, which may be a function call.
                (*ep).peer().stats().of(StatProtocol::RmaMapped).add(len);
                return copied(local, buffer.cast(), len);
            }
            if p.mask & SPECIAL == 0 {
                // Without words threads may overlap.
                if let RmaPath::Adapter(_) = path {
                    return adapter::put_now::<StaddSender>(ep, buffer, len, addr, rkey, param);
                }
                return adapter::put_short::<RkeySender>(ep, buffer, len, addr, rkey, param);
            }
        }
    }
    // SAFETY: the caller's promises are those that the callee requires.
    unsafe { put_slow(ep, buffer, count, addr, rkey, param) }
}

/// `ucp_get_nbx`
///
/// # Safety
/// The parameters are valid as UCP requires.
#[inline(always)]
pub unsafe fn get(
    ep: *const Endpoint,
    buffer: *mut c_void,
    count: usize,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's structure is valid. With a configuration that adds flags, `SLOW_PATH_RMA` is set in the
    // endpoint.
    let p = unsafe { Param::new(param, 0) };
    let len = plain_length(&p, count).unwrap_or(0);
    // SAFETY: the caller's endpoint, key and buffer are valid; the peer outlives its endpoints.
    unsafe {
        if len != 0
            && !p.has(UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL)
            && !buffer.is_null()
            && is_plain(ep, rkey)
        {
            if let RmaPath::Mapped(local) = by_key(&*rkey, addr, len) {
                // Counted before the copy, which may be a function call.
                (*ep).peer().stats().of(StatProtocol::RmaMapped).add(len);
                return copied(buffer.cast(), local, len);
            }
            if p.mask & SPECIAL == 0 {
                if (*rkey).tl.has_words() {
                    return adapter::get::<StaddSender>(ep, buffer, len, addr, rkey, param);
                }
                return adapter::get::<RkeySender>(ep, buffer, len, addr, rkey, param);
            }
        }
    }
    // SAFETY: the caller's promises are those that the callee requires.
    unsafe { get_slow(ep, buffer, count, addr, rkey, param) }
}

/// Copies, and returns the value of a completed operation. Words of 4 and 8 bytes are moved by one access, because
/// programs poll on them; other lengths as memory. The ranges may overlap: a program can access its own memory.
#[inline(always)]
pub(super) unsafe fn copied(dst: *mut u8, src: *const u8, len: usize) -> ucs_status_ptr_t {
    // SAFETY: the caller's ranges have `len` bytes.
    unsafe {
        if len == 8 {
            dst.cast::<u64>()
                .write_unaligned(src.cast::<u64>().read_unaligned());
        } else if len == 4 {
            dst.cast::<u32>()
                .write_unaligned(src.cast::<u32>().read_unaligned());
        } else {
            return copied_slow(dst, src, len);
        }
    }
    std::ptr::null_mut()
}

/// Not inlined, so that copies of words need no stack frame.
#[inline(never)]
unsafe fn copied_slow(dst: *mut u8, src: *const u8, len: usize) -> ucs_status_ptr_t {
    // SAFETY: the caller's ranges have `len` bytes.
    unsafe { std::ptr::copy(src, dst, len) };
    std::ptr::null_mut()
}
