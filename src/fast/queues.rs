//! THE HOT PATH by queue pairs: what is short goes in a work request that is prepared, and what somebody waits for takes a
//! place of the connection's. In single-thread mode; what is not the common case is handed back.

use super::{am_send_longer, get_slow, put_slow, tag_send_longer};
use crate::ctypes::*;
use crate::engine::datatype::Data;
use crate::engine::endpoint::{self, Endpoint};
use crate::engine::peer::Peer;
use crate::engine::request::{self, Request, Sent};
use crate::engine::rkey::Rkey;
use crate::engine::stats::PeerStats;
use crate::op::param::Param;
use crate::op::{am, amo, endpoint as endpoints, rma};
use crate::proto::flush;
use crate::proto::tx::{device, steered};
use crate::sys::copy::TINY;
use crate::tl::Lane;
use crate::tl::ib::rc::{Remote, Step};
use crate::tl::ib::sender::Sender;
use crate::wire::header::Kind;
use crate::wire::stats::Protocol;
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;

/// The shortest way by a queue pair, if it is open and nothing waits in front of it, and where what goes it is counted. In
/// single-thread mode.
#[inline(always)]
unsafe fn queue_of<'a>(ep: *const Endpoint) -> Option<(&'a mut Sender, &'a PeerStats)> {
    // SAFETY: the caller's endpoint, whose flags say single-thread mode; no callback runs here.
    let (tx, stats) = unsafe { ((*ep).peer().tx.alone(), (*ep).peer().stats()) };
    match tx.lane.as_mut() {
        Some(Lane::Ib(sender)) if tx.pending.is_empty() && sender.is_ready() => {
            Some((sender.as_mut(), stats))
        }
        _ => None,
    }
}

/// As [`super::tag_send`], of `len` bytes that fit there, to a peer that a queue pair leads to.
///
/// # Safety
/// As there.
#[inline(never)]
pub unsafe fn tag_send(
    ep: *const Endpoint,
    buffer: *const c_void,
    count: usize,
    tag: u64,
    param: *const ucp_request_param_t,
    len: usize,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint and buffer; the rest is passed on.
    unsafe {
        match queue_of(ep) {
            Some((sender, stats)) => {
                stats.of(Protocol::Short).add(len);
                sender.send_tiny(Kind::TagEager as u8, tag, buffer.cast(), len);
                std::ptr::null_mut()
            }
            None => tag_send_longer(ep, buffer, count, tag, param),
        }
    }
}

/// As [`super::am_send`], of `len` bytes that fit there and no header, to a peer that a queue pair leads to.
///
/// # Safety
/// As there.
#[inline(never)]
pub unsafe fn am_send(
    ep: *const Endpoint,
    id: u32,
    buffer: *const c_void,
    count: usize,
    param: *const ucp_request_param_t,
    len: usize,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint and buffer; the rest is passed on.
    unsafe {
        match queue_of(ep) {
            Some((sender, stats)) => {
                stats.of(Protocol::Short).add(len);
                let imm = am::plain_imm(id, (*ep).remote_sn);
                sender.send_tiny(Kind::AmEager as u8, imm, buffer.cast(), len);
                std::ptr::null_mut()
            }
            None => am_send_longer(ep, id, std::ptr::null(), 0, buffer, count, param),
        }
    }
}

/// As [`super::put`], of a buffer that is one piece, where a device may reach the memory.
///
/// # Safety
/// As there.
#[inline(never)]
pub unsafe fn put(
    ep: *const Endpoint,
    buffer: *const c_void,
    len: usize,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, key and buffer; the rest is passed on.
    unsafe {
        // What is mapped needs no lock, so that the endpoint's flags do not say whether threads overlap.
        if len <= TINY
            && !(*ep).peer().tx.is_shared()
            && let Some(keys) = (*rkey).device_keys(addr, len)
            && let Some((sender, stats)) = queue_of(ep)
            && let Some(key) = keys.of_port(sender.remote_port())
        {
            stats.of(Protocol::RmaCopy).add(len);
            sender.write_tiny(Remote { addr, key }, buffer.cast(), len);
            return std::ptr::null_mut();
        }
        put_longer(ep, buffer, len, addr, rkey, param)
    }
}

/// As [`put`], of what is copied into a registered buffer.
#[inline(never)]
unsafe fn put_longer(
    ep: *const Endpoint,
    buffer: *const c_void,
    len: usize,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, whose peer outlives it, key and buffer; the rest is passed on.
    unsafe {
        if let Some(keys) = (*rkey).device_keys(addr, len)
            && device::write_now((*ep).peer(), keys, addr, buffer.cast(), len)
        {
            return std::ptr::null_mut();
        }
        if let Some(stadd) = (*rkey).stadd(addr, len)
            && steered::write_now((*ep).peer(), stadd, buffer.cast(), len)
        {
            return std::ptr::null_mut();
        }
        put_slow(ep, buffer, len, addr, rkey, param)
    }
}

/// As [`super::get`], of a buffer that is one piece, where a device may reach the memory.
///
/// # Safety
/// As there.
#[inline(never)]
pub unsafe fn get(
    ep: *const Endpoint,
    buffer: *mut c_void,
    len: usize,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, key, buffer and structure; the rest is passed on.
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

/// The shortest way by a queue pair for something that somebody waits for, as [`queue_of`].
#[inline(always)]
unsafe fn place_of(peer: &Peer) -> Option<NonNull<Sender>> {
    // SAFETY: as there.
    let tx = unsafe { peer.tx.alone() };
    match tx.lane.as_mut() {
        Some(Lane::Ib(sender)) if tx.pending.is_empty() => {
            let sender = sender.as_mut();
            sender.has_place().then(|| NonNull::from(sender))
        }
        _ => None,
    }
}

/// A request of the endpoint's.
#[inline(always)]
unsafe fn request_of(ep: *const Endpoint, p: &Param) -> *mut Request {
    // SAFETY: the caller's endpoint, whose worker and peer outlive it; a new request.
    unsafe {
        let req = request::take(&*(*ep).worker, p.external());
        ((*req).peer, (*req).ep) = ((*ep).peer(), ep);
        ((*req).notify, (*req).user_data) = (p.notify_send(), p.user_data());
        req
    }
}

/// Makes a request wait for `len` bytes that one work request brings to `into`.
#[inline(always)]
fn awaits(r: &mut Request, into: *mut u8, len: usize) {
    r.data = Data::Contig { ptr: into, len };
    (r.sent, r.offset, r.remote, r.info.length) = (Sent::Await, len as u64, 1, len);
}

/// As [`get`], of what fits into one buffer of a device's, if nothing is in the way: the request's handle.
#[inline(always)]
unsafe fn get_short(
    ep: *const Endpoint,
    buffer: *mut c_void,
    len: usize,
    addr: u64,
    rkey: &Rkey,
    param: *const ucp_request_param_t,
) -> Option<ucs_status_ptr_t> {
    // SAFETY: the caller's endpoint, buffer and structure; a new request.
    unsafe {
        let peer = (*ep).peer();
        // What is mapped needs no lock, so that the endpoint's flags do not say whether threads overlap.
        if peer.tx.is_shared() {
            return None;
        }
        let keys = rkey.device_keys(addr, len)?;
        let sender = place_of(peer)?.as_ptr();
        if len > (*sender).most_at_once() {
            return None;
        }
        let key = keys.of_port((*sender).remote_port())?;
        // The user's `request_init` may run here, which must not call us.
        let req = request_of(ep, &Param::new(param, 0));
        awaits(&mut *req, buffer.cast(), len);
        if !(*sender).read_short(Remote { addr, key }, (buffer.cast(), len), req.cast()) {
            request::put(req);
            return None;
        }
        peer.stats().of(Protocol::RmaCopy).add(len);
        Some(Request::handle(req))
    }
}

/// `ucp_ep_flush_nbx`
///
/// # Safety
/// As there.
#[inline(always)]
pub unsafe fn flush(ep: *const Endpoint, param: *const ucp_request_param_t) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, whose worker and peer outlive it, and structure; a new request.
    unsafe {
        let peer = (*ep).peer();
        if !peer.tx.is_shared()
            && !(*ep).has(endpoint::SPECIAL)
            && let Some(Lane::Ib(sender)) = peer.tx.alone().lane.as_mut()
            && peer.status() == UCS_OK
            && peer.tx.alone().pending.is_empty()
        {
            (*(*ep).worker).duties.forget_copies();
            let sender: *mut Sender = &raw mut **sender;
            if (*sender).can_mark() {
                let req = request_of(ep, &Param::new(param, 0));
                (*req).sent = Sent::Flush;
                (*sender).mark(req.cast());
                return Request::handle(req);
            }
            if (*sender).is_drained() && flush::is_answered_well(peer) {
                return ptr::null_mut();
            }
        }
        flush_slow(ep, param)
    }
}

#[cold]
#[inline(never)]
unsafe fn flush_slow(ep: *const Endpoint, param: *const ucp_request_param_t) -> ucs_status_ptr_t {
    // SAFETY: passed on.
    unsafe { endpoints::flush(ep, &Param::new(param, 0)) }
}

/// What an atomic operation that goes the shortest way may have in its mask.
const SIMPLE: u32 = UCP_OP_ATTR_FIELD_DATATYPE as u32
    | UCP_OP_ATTR_FIELD_REPLY_BUFFER as u32
    | UCP_OP_ATTR_FIELD_REQUEST as u32
    | UCP_OP_ATTR_FIELD_CALLBACK as u32
    | UCP_OP_ATTR_FIELD_USER_DATA as u32;

/// `ucp_atomic_op_nbx`
///
/// # Safety
/// As there.
#[inline(always)]
pub unsafe fn atomic(
    ep: *const Endpoint,
    op: u32,
    buffer: *const c_void,
    count: usize,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, whose worker outlives it, buffers, key and structure.
    unsafe {
        let p = Param::new(param, 0);
        if p.mask & !SIMPLE == 0
            && p.datatype() == (size_of::<u64>() as u64) << 3
            && count == 1
            && !buffer.is_null()
            && let Some(rkey) = rkey.as_ref()
            && let Some(step) = step_of(op, buffer.cast(), p.reply_buffer().cast())
            && let Some(handle) = atomic_short(ep, step, addr, rkey, &p)
        {
            return handle;
        }
        atomic_slow(ep, op, buffer, count, addr, rkey, param)
    }
}

#[cold]
#[inline(never)]
unsafe fn atomic_slow(
    ep: *const Endpoint,
    op: u32,
    buffer: *const c_void,
    count: usize,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, whose worker outlives it; the rest is passed on.
    unsafe {
        let p = Param::new(param, (*(*ep).worker).extra_op_flags);
        amo::atomic(ep, op, buffer, count, addr, rkey, &p)
    }
}

/// What a device does of an operation on 8 bytes, with the operands where UCP has them.
#[inline(always)]
unsafe fn step_of(op: u32, operand: *const u64, reply: *const u64) -> Option<Step> {
    const ADD: u32 = ucp_atomic_op_t::UCP_ATOMIC_OP_ADD as u32;
    const CSWAP: u32 = ucp_atomic_op_t::UCP_ATOMIC_OP_CSWAP as u32;
    // SAFETY: the caller's buffers.
    let operand = unsafe { operand.read_unaligned() };
    match op {
        ADD => Some(Step::Add(operand)),
        CSWAP if !reply.is_null() => Some(Step::CompareSwap {
            compare: operand,
            // SAFETY: as above.
            swap: unsafe { reply.read_unaligned() },
        }),
        _ => None,
    }
}

/// As [`atomic`], if a device of the peer's executes it and nothing is in the way: what the call returns.
#[inline(always)]
unsafe fn atomic_short(
    ep: *const Endpoint,
    step: Step,
    addr: u64,
    rkey: &Rkey,
    p: &Param,
) -> Option<ucs_status_ptr_t> {
    const LEN: usize = size_of::<u64>();
    // SAFETY: the caller's endpoint, whose worker and peer outlive it, buffers and structure; a new request.
    unsafe {
        let (worker, peer) = (&*(*ep).worker, (*ep).peer());
        let plain = !peer.tx.is_shared()
            && !(*ep).has(endpoint::SPECIAL)
            && worker.takes_shortest_way(UCP_FEATURE_AMO64)
            && !worker.fenced.load(Ordering::Relaxed);
        // What is mapped, or under way by message, is not for a device now.
        if !plain || addr % LEN as u64 != 0 || rkey.len != 0 || !peer.rma_idle() {
            return None;
        }
        let keys = rkey.device_keys(addr, LEN)?;
        let sender = place_of(peer)?.as_ptr();
        let port = (*sender).remote_port();
        let key = keys.of_port(port)?;
        if !keys.atomics.has_port(port) || !(*sender).has_atomics() {
            return None;
        }
        let reply: *mut u8 = p.reply_buffer().cast();
        let fetches = p.has(UCP_OP_ATTR_FIELD_REPLY_BUFFER);
        if fetches == reply.is_null() {
            return None;
        }
        let at = Remote { addr, key };
        // Who is in the peer's place does nothing, as where memory is mapped.
        peer.stats().of(Protocol::AmoMapped).add(LEN);
        if !fetches {
            (*sender).atomic_short(step, at, ptr::null_mut(), ptr::null_mut());
            return Some(ptr::null_mut());
        }
        let req = request_of(ep, p);
        awaits(&mut *req, reply, LEN);
        (*sender).atomic_short(step, at, reply, req.cast());
        Some(Request::handle(req))
    }
}
