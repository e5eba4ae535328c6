//! Hot path of puts, gets, atomic operations and flushes by an adapter, for each kind of adapter: short operations are
//! posted straight from the call. In single-thread mode; less frequent cases are left to the slow path.

use super::plain::{
    EIGHT, FOUR, flush_slow, get_slow, is_plain, is_plain_remote, may_be_null, put_slow,
};
use super::request::{arm_completion, request_of};
use super::sender::sender_of;
use crate::ctypes::*;
use crate::engine::endpoint::{Endpoint, EpFlags};
use crate::engine::peer::Peer;
use crate::engine::request::{Request, TxState};
use crate::engine::request_alloc;
use crate::engine::rkey::Rkey;
use crate::op;
use crate::op::param::Param;
use crate::proto::answers;
use crate::proto::tx::rma;
use crate::tl::adapter::AdapterSender;
use crate::tl::rma_short::FlushStep;
use crate::wire::stats::StatProtocol;
use std::ffi::c_void;
use std::ptr;

/// `ucp_put_nbx` of 8 bytes, with a key that has words. `len` is 8; a parameter, so that the others stay in their
/// registers.
///
/// # Safety
/// The arguments are those of `ucp_put_nbx`; single-thread mode.
#[inline(never)]
pub(super) unsafe fn put_words<S: AdapterSender>(
    ep: *const Endpoint,
    buffer: *const c_void,
    len: usize,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, key and buffer; the slow path gets the caller's arguments.
    unsafe {
        if buffer.is_null() {
            return put_slow(ep, buffer, len, addr, rkey, param);
        }
        if put_word::<S, 8>(ep, buffer.cast(), addr, rkey) {
            return ptr::null_mut();
        }
        put_short::<S>(ep, buffer, len, addr, rkey, param)
    }
}

/// `ucp_put_nbx` of a contiguous buffer of another length than 8 bytes, with a key that has words.
///
/// # Safety
/// The arguments are those of `ucp_put_nbx`; single-thread mode.
#[inline(never)]
pub(super) unsafe fn put_bytes<S: AdapterSender>(
    ep: *const Endpoint,
    buffer: *const c_void,
    len: usize,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, key and buffer; the slow path gets the caller's arguments.
    unsafe {
        if buffer.is_null() {
            return put_slow(ep, buffer, len, addr, rkey, param);
        }
        if len > S::MAX_PUT && is_plain(ep, rkey) {
            return put_now::<S>(ep, buffer, len, addr, rkey, param);
        }
        put_short::<S>(ep, buffer, len, addr, rkey, param)
    }
}

/// Puts 8 or 4 bytes, if the sender allows it. False: they are not posted.
#[inline(always)]
unsafe fn put_word<S: AdapterSender, const LEN: usize>(
    ep: *const Endpoint,
    buffer: *const u8,
    addr: u64,
    rkey: *const Rkey,
) -> bool {
    // SAFETY: the caller's endpoint, key and buffer; single-thread mode.
    unsafe {
        let peer = (*ep).peer();
        if !(*ep).has(EpFlags::SPECIAL | EpFlags::SLOW_PATH_RMA)
            && let Some(to) = S::word(&(*rkey).tl, addr)
            && let Some(sender) = S::of(&mut peer.tx.alone().lane)
            && sender.take_word()
        {
            // Counted before the put: nothing has to be saved across that call.
            peer.stats().of(StatProtocol::RmaCopy).add(LEN);
            sender.put_word::<LEN>(to, buffer);
            return true;
        }
        false
    }
}

/// `ucp_put_nbx` of a contiguous buffer: in a work request or descriptor if nothing is pending. The caller has checked
/// that endpoint and key allow the fast path, unless the key has words.
///
/// # Safety
/// The requirements of [`put`](super::rma::put).
#[inline(never)]
pub(super) unsafe fn put_short<S: AdapterSender>(
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
        if S::HAS_WORDS {
            if len == 4 && put_word::<S, 4>(ep, buffer.cast(), addr, rkey) {
                return ptr::null_mut();
            }
            if len == 0 || !is_plain(ep, rkey) {
                return put_slow(ep, buffer, len, addr, rkey, param);
            }
        }
        if len <= S::MAX_PUT {
            if post_put::<S>((*ep).peer(), buffer.cast(), len, addr, &*rkey) {
                return ptr::null_mut();
            }
            if S::RENEWS {
                return put_renewed::<S>(ep, buffer, len, addr, rkey, param);
            }
        }
        if S::HAS_PUT_BCOPY {
            put_bcopy::<S>(ep, buffer, len, addr, rkey, param)
        } else {
            put_now::<S>(ep, buffer, len, addr, rkey, param)
        }
    }
}

/// Posts a put of up to [`MAX_PUT`](crate::tl::rma_short::RmaShort::MAX_PUT) bytes, if nothing is pending. False:
/// nothing was done.
///
/// # Safety
/// No callback runs; single-thread mode if keys have words; `len` bytes are readable at `data`.
#[inline(always)]
unsafe fn post_put<S: AdapterSender>(
    peer: &Peer,
    data: *const u8,
    len: usize,
    addr: u64,
    rkey: &Rkey,
) -> bool {
    // SAFETY: single-thread mode, as tested; the caller's bytes.
    unsafe {
        if is_alone::<S>(peer)
            && let Some(sender) = sender_of::<S>(peer)
            && let Some(to) = sender.remote(&rkey.tl, addr, len)
        {
            let count = || peer.stats().of(StatProtocol::RmaCopy).add(len);
            return sender.put_short(to, data, len, count);
        }
        false
    }
}

/// [`put_short`] by a sender that has refused the put, once in many. A function of its own: a call in that one would
/// have to save the parameters.
#[cold]
#[inline(never)]
unsafe fn put_renewed<S: AdapterSender>(
    ep: *const Endpoint,
    buffer: *const c_void,
    len: usize,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, whose peer outlives it, and its other promises, which the callees require.
    unsafe {
        let peer = (*ep).peer();
        if is_alone::<S>(peer)
            && let Some(sender) = sender_of::<S>(peer)
        {
            sender.renew_put();
        }
        match post_put::<S>(peer, buffer.cast(), len, addr, &*rkey) {
            true => ptr::null_mut(),
            false => put_now::<S>(ep, buffer, len, addr, rkey, param),
        }
    }
}

/// Whether the peer is in single-thread mode. The flags of an endpoint do not say whether threads share the peer:
/// access to mapped memory needs no lock.
#[inline(always)]
fn is_alone<S: AdapterSender>(peer: &Peer) -> bool {
    S::HAS_WORDS || !peer.tx.is_shared()
}

/// Puts `len` bytes that are copied into a registered buffer, if there is one.
#[inline(never)]
unsafe fn put_bcopy<S: AdapterSender>(
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
        let peer = (*ep).peer();
        if is_alone::<S>(peer)
            && let Some(sender) = sender_of::<S>(peer)
            && let Some(to) = sender.remote(&(*rkey).tl, addr, len)
            && sender.put_bcopy(to, buffer.cast(), len)
        {
            peer.stats().of(StatProtocol::RmaCopy).add(len);
            return ptr::null_mut();
        }
        put_now::<S>(ep, buffer, len, addr, rkey, param)
    }
}

/// Puts `len` bytes in any thread mode; takes the slow path if the operation would have to wait.
///
/// # Safety
/// The requirements of [`put`](super::rma::put).
#[inline(never)]
pub(super) unsafe fn put_now<S: AdapterSender>(
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
        let key = &(*rkey).tl;
        let put = |sender: &mut S| match sender.remote(key, addr, len) {
            Some(to) => sender.put_at(to, buffer.cast(), len),
            None => false,
        };
        if rma::put_now((*ep).peer(), len, put) {
            return ptr::null_mut();
        }
        put_slow(ep, buffer, len, addr, rkey, param)
    }
}

/// `ucp_get_nbx` into a contiguous buffer, if the adapter accesses the memory and nothing is pending; else on the slow
/// path.
///
/// # Safety
/// The requirements of [`get`](super::rma::get).
#[inline(never)]
pub(super) unsafe fn get<S: AdapterSender>(
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
        if let Some(handle) = get_short::<S>(ep, (buffer.cast(), len), addr, &*rkey, param) {
            return handle;
        }
        if S::HAS_GET_ONCE {
            let (from, p) = ((&(*rkey).tl, addr), Param::new(param, 0));
            let got = op::rma::get_now(
                ep,
                (buffer.cast(), len),
                &p,
                |sender: &S| sender.can_get_once(from.0, addr, len),
                |sender, into, token| sender.get_once(from, (into, len), token),
            );
            if let Some(handle) = got {
                return handle;
            }
        }
        get_slow(ep, buffer, len, addr, rkey, param)
    }
}

/// `ucp_get_nbx` by one operation in single-thread mode: the request's handle. `None`: nothing was done.
#[inline(always)]
unsafe fn get_short<S: AdapterSender>(
    ep: *const Endpoint,
    into: (*mut u8, usize),
    addr: u64,
    rkey: &Rkey,
    param: *const ucp_request_param_t,
) -> Option<ucs_status_ptr_t> {
    let len = into.1;
    // SAFETY: the caller's endpoint, buffer and structure are valid; the request is new.
    unsafe {
        let peer = (*ep).peer();
        if len > S::MAX_GET || !is_alone::<S>(peer) {
            return None;
        }
        let sender = sender_of::<S>(peer)?;
        let slot = sender.get_slot(len)?;
        let from = sender.remote(&rkey.tl, addr, len)?;
        let req = request_of(ep, &Param::new(param, 0))?;
        arm_completion(&mut *req, into.0, len);
        // The peer is loaded again: kept until here, it would have to be saved.
        let count = || (*ep).peer().stats().of(StatProtocol::RmaCopy).add(len);
        if !sender.get_short(slot, from, into, Request::token(req), count) {
            request_alloc::recycle(req);
            return None;
        }
        Some(Request::handle(req))
    }
}

/// `ucp_atomic_op_nbx`, if an adapter of the peer executes it and nothing has to be waited for. `None`: nothing was
/// done.
///
/// # Safety
/// The arguments are those of `ucp_atomic_op_nbx`, with a count of 1 and an operand that is not null; the memory is not
/// mapped here.
#[inline(always)]
pub(super) unsafe fn atomic<S: AdapterSender>(
    ep: *const Endpoint,
    op: u32,
    operand: *const c_void,
    addr: u64,
    rkey: &Rkey,
    p: &Param,
) -> Option<ucs_status_ptr_t> {
    let (size, slow_path) = match p.datatype() {
        FOUR if S::HAS_AMO32 => (4, EpFlags::SLOW_PATH_AMO32),
        EIGHT => (8, EpFlags::SLOW_PATH_AMO64),
        _ => return None,
    };
    let len = usize::from(size);
    // SAFETY: the caller's endpoint, whose worker and peer outlive it, buffers and parameters; the request is new.
    unsafe {
        let (worker, peer) = ((*ep).worker.get(), (*ep).peer());
        if !is_plain_remote(&*ep, worker, peer, slow_path, addr, len) {
            return None;
        }
        let sender = sender_of::<S>(peer)?;
        let at = sender.amo_slot(&rkey.tl, addr, len)?;
        let reply: *mut u8 = p.reply_buffer().cast();
        let fetches = p.has(UCP_OP_ATTR_FIELD_REPLY_BUFFER);
        if fetches == reply.is_null() {
            return None;
        }
        let amo = S::amo(&worker.ctx.tl, (op, size), operand.cast(), reply)?;
        // Counted as mapped: the target's processor executes nothing.
        let count = || {
            let stats = (*ep).peer().stats();
            stats.of(StatProtocol::AmoMapped).add(len);
        };
        if !fetches {
            return sender
                .amo_short(at, amo, None, count)
                .then_some(ptr::null_mut());
        }
        // The user's `request_init` may run here; it must not call UCP functions.
        let req = request_of(ep, p)?;
        arm_completion(&mut *req, reply, len);
        if !sender.amo_short(at, amo, Some((reply, Request::token(req))), count) {
            request_alloc::recycle(req);
            return None;
        }
        Some(Request::handle(req))
    }
}

/// `ucp_ep_flush_nbx` by an endpoint that allows the fast path, to a peer that has not failed and has no pending
/// requests.
///
/// # Safety
/// The arguments are those of `ucp_ep_flush_nbx`; single-thread mode; `sender` is that of the peer's lane.
#[inline(always)]
pub(super) unsafe fn flush<S: AdapterSender>(
    ep: *const Endpoint,
    param: *const ucp_request_param_t,
    sender: *mut S,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, whose worker and peer outlive it, and parameters; the request is new.
    unsafe {
        (*ep).worker.get().progress_flags.clear_copied();
        let step = (*sender).flush_step();
        if step == FlushStep::Marker
            && let Some(req) = request_of(ep, &Param::new(param, 0))
        {
            (*req).sent = TxState::FlushMarker;
            if (*sender).flush_short(Request::token(req)) {
                return Request::handle(req);
            }
            request_alloc::recycle(req);
        }
        if step == FlushStep::Drained
            && answers::is_answered_well((*ep).peer())
            && may_be_null(param)
        {
            return ptr::null_mut();
        }
        flush_slow(ep, param)
    }
}
