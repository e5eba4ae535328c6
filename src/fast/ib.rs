//! Hot path over IB queue pairs: short messages go in a prepared work request, and operations that complete take one of
//! the connection's op slots. In single-thread mode; less frequent cases are left to the slow path.

pub(super) mod atomics;

use super::plain::{get_slow, put_slow};
use super::request::{arm_completion, request_of};
use super::sender::sender_of;
use crate::ctypes::*;
use crate::engine::endpoint::Endpoint;
use crate::engine::peer::Peer;
use crate::engine::request::{self, Request};
use crate::engine::rkey::Rkey;
use crate::op::param::Param;
use crate::op::rma;
use crate::proto::tx::rma_ib;
use crate::sys::copy::TINY;
use crate::tl::Lane;
use crate::tl::ib::rc::{RcEp, RemoteMem};
use crate::tl::ib::sender::IbSender;
use crate::wire::stats::StatProtocol;
use std::ffi::c_void;
use std::ptr;

/// `ucp_put_nbx` of a contiguous buffer: by RC if the rkey has device keys and nothing is pending, else on the slow
/// path.
///
/// # Safety
/// The requirements of [`put`](super::rma::put).
#[inline(never)]
pub unsafe fn put(
    ep: *const Endpoint,
    buffer: *const c_void,
    len: usize,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, key and buffer are valid, and its other promises are those that the callees
    // require.
    unsafe {
        // The flags of an endpoint do not say whether threads share the peer: access to mapped memory needs no lock.
        if len <= TINY
            && !(*ep).peer().tx.is_shared()
            && let Some(keys) = (*rkey).tl.device_keys(addr, len)
            && let Some((sender, stats)) = sender_of::<IbSender>(ep)
            && let Some(key) = keys.of_port(sender.remote_port())
            && let Some(rc_ep) = sender.ready_rc()
        {
            stats.of(StatProtocol::RmaCopy).add(len);
            if !rc_ep.write_tiny(RemoteMem { addr, key }, buffer.cast(), len) {
                sender.fail();
            }
            return ptr::null_mut();
        }
        put_bcopy(ep, buffer, len, addr, rkey, param)
    }
}

/// Puts `len` bytes that are copied into a registered buffer, if there is one.
#[inline(never)]
unsafe fn put_bcopy(
    ep: *const Endpoint,
    buffer: *const c_void,
    len: usize,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, key and buffer are valid, the peer outlives the endpoint, and the caller's other
    // promises are those that the callees require.
    unsafe {
        if !(*ep).peer().tx.is_shared()
            && let Some(keys) = (*rkey).tl.device_keys(addr, len)
            && let Some((sender, stats)) = sender_of::<IbSender>(ep)
            && let Some(key) = keys.of_port(sender.remote_port())
            && sender.write_short(RemoteMem { addr, key }, buffer.cast(), len)
        {
            stats.of(StatProtocol::RmaCopy).add(len);
            return ptr::null_mut();
        }
        put_now(ep, buffer, len, addr, rkey, param)
    }
}

/// Puts `len` bytes in any thread mode; takes the slow path if the operation would have to wait.
#[inline(never)]
unsafe fn put_now(
    ep: *const Endpoint,
    buffer: *const c_void,
    len: usize,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, key and buffer are valid, and its other promises are those that the callees
    // require.
    unsafe {
        if let Some(keys) = (*rkey).tl.device_keys(addr, len)
            && rma_ib::write_now((*ep).peer(), keys, addr, buffer.cast(), len)
        {
            return std::ptr::null_mut();
        }
        put_slow(ep, buffer, len, addr, rkey, param)
    }
}

/// `ucp_get_nbx` into a contiguous buffer: by RC if the rkey has device keys and nothing is pending, else on the slow
/// path.
///
/// # Safety
/// The requirements of [`get`](super::rma::get).
#[inline(never)]
pub unsafe fn get(
    ep: *const Endpoint,
    buffer: *mut c_void,
    len: usize,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, key, buffer and structure are valid, and its other promises are those that the
    // callees require.
    unsafe {
        if let Some(handle) = get_short(ep, buffer, len, addr, &*rkey, param) {
            return handle;
        }
        match rma::read_now(ep, buffer, len, addr, &*rkey, &Param::new(param, 0)) {
            Some(handle) => handle,
            None => get_slow(ep, buffer, len, addr, rkey, param),
        }
    }
}

/// The IB sender of the peer and its RC connection, which has a free op slot, if the pending queue is empty. In
/// single-thread mode.
#[inline(always)]
pub(super) unsafe fn slot_of(peer: &Peer) -> Option<(*mut IbSender, *mut RcEp)> {
    // SAFETY: single-thread mode, as the caller has checked; no callback runs here.
    let tx = unsafe { peer.tx.alone() };
    match tx.lane.as_mut() {
        Some(Lane::Ib(sender)) if tx.pending.is_empty() => {
            let sender: *mut IbSender = sender.as_mut();
            // SAFETY: the sender belongs to the lane. The caller uses the two pointers one at a time.
            let rc_ep = unsafe { (*sender).rc_with_slot()? };
            Some((sender, rc_ep))
        }
        _ => None,
    }
}

/// `ucp_get_nbx` of a length that fits into one registered buffer: the request's handle. `None`: nothing was done.
#[inline(always)]
unsafe fn get_short(
    ep: *const Endpoint,
    buffer: *mut c_void,
    len: usize,
    addr: u64,
    rkey: &Rkey,
    param: *const ucp_request_param_t,
) -> Option<ucs_status_ptr_t> {
    // SAFETY: the caller's endpoint, buffer and structure are valid; the request is new.
    unsafe {
        let peer = (*ep).peer();
        // The flags of an endpoint do not say whether threads share the peer: access to mapped memory needs no lock.
        if peer.tx.is_shared() {
            return None;
        }
        let keys = rkey.tl.device_keys(addr, len)?;
        let (sender, rc_ep) = slot_of(peer)?;
        if len > (*sender).most_at_once() {
            return None;
        }
        let key = keys.of_port((*sender).remote_port())?;
        let req = request_of(ep, &Param::new(param, 0))?;
        let Some(through) = (*rc_ep).through(len) else {
            request::recycle(req);
            return None;
        };
        arm_completion(&mut *req, buffer.cast(), len);
        let into = (buffer.cast(), len);
        if !(*rc_ep).read_short(RemoteMem { addr, key }, into, through, Request::token(req)) {
            (*sender).fail();
        }
        peer.stats().of(StatProtocol::RmaCopy).add(len);
        Some(Request::handle(req))
    }
}
