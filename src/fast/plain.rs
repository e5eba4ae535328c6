//! What the hot paths of RMA, atomic operations and flushes ask before they take an operation, and the slow path that
//! takes the others.

use crate::ctypes::*;
use crate::engine::endpoint::{Endpoint, EpFlags};
use crate::engine::peer::Peer;
use crate::engine::rkey::Rkey;
use crate::engine::worker::Worker;
use crate::op::param::Param;
use crate::op::{endpoint as endpoints, rma, sgl};
use crate::sys::cma::CmaDirection;
use std::ffi::c_void;

/// Datatypes of words of 4 and of 8 bytes.
pub(super) const FOUR: u64 = 4 << 3;
pub(super) const EIGHT: u64 = 8 << 3;

/// Whether RMA with this key can take the fast path.
///
/// # Safety
/// The endpoint is valid.
#[inline(always)]
pub(super) unsafe fn is_plain(ep: *const Endpoint, rkey: *const Rkey) -> bool {
    // SAFETY: the caller's endpoint is valid; its worker outlives it.
    let (e, worker) = unsafe { (&*ep, (*ep).worker.get()) };
    !rkey.is_null() && !e.has(EpFlags::SPECIAL | EpFlags::SLOW_PATH_RMA) && !worker.is_fenced()
}

/// Whether an adapter of the endpoint's peer can execute an operation on `len` bytes now. `slow_path`: the endpoint's
/// flag for words of that length. Not while RMA and atomic operations by message are outstanding, which the adapter
/// would overtake.
#[inline(always)]
pub(super) fn is_plain_remote(
    e: &Endpoint,
    worker: &Worker,
    peer: &Peer,
    slow_path: EpFlags,
    addr: u64,
    len: usize,
) -> bool {
    // The flags of an endpoint do not say whether threads share the peer: access to mapped memory needs no lock.
    let plain = !peer.tx.is_shared() && !e.has(EpFlags::SPECIAL | slow_path) && !worker.is_fenced();
    plain && addr % len as u64 == 0 && peer.rma.is_idle()
}

/// Whether a flush that has nothing to do returns NULL.
///
/// # Safety
/// `param` points to a readable structure.
#[inline(always)]
pub(super) unsafe fn may_be_null(param: *const ucp_request_param_t) -> bool {
    // SAFETY: the mask is readable in every parameter structure.
    let mask = unsafe { (*param).op_attr_mask };
    mask & UCP_OP_ATTR_FLAG_NO_IMM_CMPL as u32 == 0
}

/// `ucp_put_nbx` as the slow path does it.
///
/// # Safety
/// The parameters are valid as UCP requires.
#[cold]
#[inline(never)]
pub(super) unsafe fn put_slow(
    ep: *const Endpoint,
    buffer: *const c_void,
    count: usize,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint and structure are valid, the worker outlives the endpoint, and the caller's other
    // promises are those that the callees require.
    unsafe {
        let p = &Param::new(param, (*ep).worker.get().extra_op_flags());
        if sgl::is(p) {
            return sgl::access(ep, CmaDirection::Write, (buffer, count), (addr, rkey), p);
        }
        rma::put(ep, buffer, count, addr, rkey, p)
    }
}

/// `ucp_get_nbx` as the slow path does it.
///
/// # Safety
/// The parameters are valid as UCP requires.
#[cold]
#[inline(never)]
pub(super) unsafe fn get_slow(
    ep: *const Endpoint,
    buffer: *mut c_void,
    count: usize,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint and structure are valid, the worker outlives the endpoint, and the caller's other
    // promises are those that the callees require.
    unsafe {
        let p = &Param::new(param, (*ep).worker.get().extra_op_flags());
        if sgl::is(p) {
            return sgl::access(ep, CmaDirection::Read, (buffer, count), (addr, rkey), p);
        }
        rma::get(ep, buffer, count, addr, rkey, p)
    }
}

/// `ucp_ep_flush_nbx` as the slow path does it.
///
/// # Safety
/// The parameters are valid as UCP requires.
#[cold]
#[inline(never)]
pub(super) unsafe fn flush_slow(
    ep: *const Endpoint,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's promises are those that the callee requires.
    unsafe { endpoints::flush(ep, &Param::new(param, 0)) }
}
