//! THE HOT PATH over the Tofu interconnect: what is short rides in a descriptor, straight from the call, as long as the
//! connection is known to be calm. In single-thread mode; what is not the common case is handed back.

pub(super) mod atomics;

use super::ib::{arm_completion, flush_slow, may_be_null, request_of};
use super::{BATCH, am_send_slow, get_slow, is_plain, on_packet, put_slow, tag_send_slow};
use crate::ctypes::*;
use crate::engine::endpoint::{self, Endpoint};
use crate::engine::request::{self, Request, TxState};
use crate::engine::rkey::Rkey;
use crate::engine::stats::PeerEntry;
use crate::engine::tofu_worker::TofuWorker;
use crate::engine::worker::{Rx, Worker};
use crate::op::param::Param;
use crate::op::{am, tofu_rx};
use crate::proto::flush;
use crate::proto::tx::rma_tofu;
use crate::tl::Lane;
use crate::tl::tofu::sender::TofuSender;
use crate::tl::tofu::tni::PIGGYBACK;
use crate::tl::tofu::utofu::{MrqNotice, NOT_FOUND, RMT_PUT, SUCCESS};
use crate::wire::header::Kind;
use crate::wire::stats::StatProtocol;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

/// What sends to the endpoint's peer, if nothing waits in front of it, and where what goes that way is counted. In
/// single-thread mode.
#[inline(always)]
unsafe fn vcq_ops_of<'a>(ep: *const Endpoint) -> Option<(&'a mut TofuSender, &'a PeerEntry)> {
    // SAFETY: the caller's endpoint and mode; no callback runs here.
    let (tx, stats) = unsafe { ((*ep).peer().tx.alone(), (*ep).peer().stats()) };
    match tx.lane.as_mut() {
        Some(Lane::Tofu(sender)) if tx.pending.is_empty() => Some((sender.as_mut(), stats)),
        _ => None,
    }
}

/// As [`super::tag_send`], of `len` bytes that fit into a descriptor, to a peer that has a ring for us.
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
        if let Some((sender, stats)) = vcq_ops_of(ep)
            && sender.send_tiny(Kind::TagEager as u8, tag, buffer.cast(), len)
        {
            stats.of(StatProtocol::Short).add(len);
            return ptr::null_mut();
        }
        tag_send_slow(ep, buffer, count, tag, param)
    }
}

/// As [`super::am_send`], as [`tag_send`], without a header.
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
        if let Some((sender, stats)) = vcq_ops_of(ep) {
            let imm = am::plain_imm(id, (*ep).remote_sn);
            if sender.send_tiny(Kind::AmEager as u8, imm, buffer.cast(), len) {
                stats.of(StatProtocol::Short).add(len);
                return ptr::null_mut();
            }
        }
        am_send_slow(ep, id, ptr::null(), 0, buffer, count, param)
    }
}

/// As [`super::put`], of a buffer that is one piece, with a key that the adapter reaches memory by. In single-thread
/// mode.
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
        if buffer.is_null() {
            return put_slow(ep, buffer, len, addr, rkey, param);
        }
        if len == 8 && put_word::<8>(ep, buffer.cast(), addr, rkey) {
            return ptr::null_mut();
        }
        put_short(ep, buffer, len, addr, rkey, param)
    }
}

/// As [`put`], of a word or of the first half of one, if the connection is known to be calm. False: it has not gone.
#[inline(always)]
unsafe fn put_word<const LEN: usize>(
    ep: *const Endpoint,
    buffer: *const u8,
    addr: u64,
    rkey: *const Rkey,
) -> bool {
    // SAFETY: as there.
    unsafe {
        let peer = (*ep).peer();
        // A fence that finds something under way, and what waits, disturb the sender: no look at either here.
        if !(*ep).has(endpoint::SPECIAL | endpoint::LONG_WAY_RMA)
            && let Some(stadd) = (*rkey).stadd_of_word(addr)
            && let Some(Lane::Tofu(sender)) = peer.tx.alone().lane.as_mut()
            && sender.take_budget()
        {
            // Counted before: what is needed behind the call has to be kept.
            peer.stats().of(StatProtocol::RmaCopy).add(LEN);
            sender.write_word::<LEN>(stadd, buffer);
            return true;
        }
        false
    }
}

/// As [`put`], of 4 bytes, or of whatever rides in a descriptor, and where it has to be seen whether the connection is
/// calm.
#[inline(never)]
unsafe fn put_short(
    ep: *const Endpoint,
    buffer: *const c_void,
    len: usize,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: as there.
    unsafe {
        if len == 4 && put_word::<4>(ep, buffer.cast(), addr, rkey) {
            return ptr::null_mut();
        }
        if len == 0 || !is_plain(ep, rkey) {
            return put_slow(ep, buffer, len, addr, rkey, param);
        }
        if len <= PIGGYBACK
            && let Some(stadd) = (*rkey).stadd(addr, len)
            && let Some((sender, stats)) = vcq_ops_of(ep)
        {
            sender.refill_budget();
            if sender.take_budget() {
                stats.of(StatProtocol::RmaCopy).add(len);
                sender.write_tiny(stadd, buffer.cast(), len);
                return ptr::null_mut();
            }
        }
        put_bcopy(ep, buffer, len, addr, rkey, param)
    }
}

/// As [`put`], in any mode, if nothing has to be waited for, with an endpoint and a key that allow it.
///
/// # Safety
/// As there.
#[inline(never)]
pub unsafe fn put_bcopy(
    ep: *const Endpoint,
    buffer: *const c_void,
    len: usize,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: as there.
    unsafe {
        if let Some(stadd) = (*rkey).stadd(addr, len)
            && rma_tofu::write_now((*ep).peer(), stadd, buffer.cast(), len)
        {
            return ptr::null_mut();
        }
        put_slow(ep, buffer, len, addr, rkey, param)
    }
}

/// As [`super::get`], of a buffer that is one piece, where the adapter reaches the memory.
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
        // What is longer may come to its place without a copy.
        if len <= PIGGYBACK
            && let Some(stadd) = (*rkey).stadd(addr, len)
            && let Some((sender, stats)) = vcq_ops_of(ep)
            && let Some(req) = reader(ep, buffer.cast(), len, &Param::new(param, 0))
        {
            if sender.read(stadd, buffer.cast(), len, req.cast()) == len {
                stats.of(StatProtocol::RmaCopy).add(len);
                return Request::handle(req);
            }
            request::recycle(req);
        }
        get_slow(ep, buffer, len, addr, rkey, param)
    }
}

/// As [`super::ib::flush`], by an endpoint that allows the short way, to a peer that is well.
///
/// # Safety
/// As there. In single-thread mode.
#[inline(never)]
pub unsafe fn flush(ep: *const Endpoint, param: *const ucp_request_param_t) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, whose worker and peer outlive it, and structure; a new request.
    unsafe {
        (*(*ep).worker).progress_flags.clear_copied();
        let Some((sender, _)) = vcq_ops_of(ep) else {
            return flush_slow(ep, param);
        };
        if sender.is_drained() && flush::is_answered_well((*ep).peer()) {
            if may_be_null(param) {
                return ptr::null_mut();
            }
            return flush_slow(ep, param);
        }
        let Some(req) = request_of(ep, &Param::new(param, 0)) else {
            return flush_slow(ep, param);
        };
        (*req).sent = TxState::Flush;
        if sender.flush_marker(req.cast()) {
            return Request::handle(req);
        }
        request::recycle(req);
        flush_slow(ep, param)
    }
}

/// A request that waits for `len` bytes that come to `into` in one operation, if one is at hand.
#[inline(always)]
unsafe fn reader(
    ep: *const Endpoint,
    into: *mut u8,
    len: usize,
    p: &Param,
) -> Option<*mut Request> {
    // SAFETY: the caller's endpoint, whose worker and peer outlive it; a new request.
    unsafe {
        let req = request_of(ep, p)?;
        arm_completion(&mut *req, into, len);
        Some(req)
    }
}

/// Takes what the interconnect tells, if nothing else is to be done.
///
/// # Safety
/// In single-thread mode, and nobody up the stack has what progress has.
#[inline(never)]
pub unsafe fn poll(worker: &Worker, rx: &mut Rx) -> u32 {
    let Some(rings) = rx.tofu.as_deref_mut().filter(|rings| rings.has_budget()) else {
        return poll_all(worker, rx);
    };
    // SAFETY: the caller's promise.
    let queue = unsafe { rings.iface.queue.alone() };
    if queue.has_more() {
        return poll_all(worker, rx);
    }
    // Mostly nothing has come, and to find that out is all that is to be done.
    let mut notice = MaybeUninit::<MrqNotice>::uninit();
    // SAFETY: the caller's promise; the interface keeps the queue.
    let code = unsafe { rings.line.poll_mrq(&mut notice) };
    match code {
        // Nobody tells of room for the rest of a record.
        NOT_FOUND if !queue.is_sending() && !rings.iface.has_unfinished() => 0,
        NOT_FOUND => poll_all(worker, rx),
        // SAFETY: there is a notice.
        code => take(worker, rx, code, unsafe { notice.assume_init_ref() }),
    }
}

/// Looks at everything that may have come.
#[inline(never)]
fn poll_all(worker: &Worker, rx: &mut Rx) -> u32 {
    worker.rx.hold(true);
    let count = tofu_rx::progress(worker, rx, on_packet::<false>);
    worker.rx.hold(false);
    rx.events += u64::from(count);
    count
}

/// Handles what a notice tells. Who is told of something in every call has more waiting: that is handled, too.
#[inline(never)]
fn take(worker: &Worker, rx: &mut Rx, code: i32, notice: &MrqNotice) -> u32 {
    let calls = rx.calls;
    let Some(rings) = rx.tofu.as_deref_mut() else {
        return 0;
    };
    worker.rx.hold(true);
    let in_a_row = std::mem::replace(&mut rings.credited_at, calls) == calls + 1;
    let mut count = handle(worker, rings, code, notice);
    if in_a_row {
        count += take_more(worker, rx);
    }
    worker.rx.hold(false);
    rx.events += u64::from(count);
    count
}

/// Handles what one notice tells: how much.
#[inline(always)]
#[allow(
    clippy::redundant_closure,
    reason = "a closure is inlined, as a function that two places name is not"
)]
fn handle(worker: &Worker, rings: &mut TofuWorker, code: i32, notice: &MrqNotice) -> u32 {
    if (code, notice.notice_type) != (SUCCESS, RMT_PUT) {
        return tofu_rx::on_flush_reply(worker, rings, code, notice, on_packet::<false>);
    }
    // SAFETY: single-thread mode, and nothing of the user's runs here.
    unsafe { rings.iface.queue.alone() }.has_reply();
    tofu_rx::arrived(worker, rings, notice.rmt_stadd, |w, m| {
        on_packet::<false>(w, m)
    });
    1
}

/// Handles what other notices tell, and whatever else there is if it is not all of that kind. In single-thread mode, by
/// who has what progress has.
#[inline(never)]
fn take_more(worker: &Worker, rx: &mut Rx) -> u32 {
    let mut count = 0;
    for _ in 0..BATCH {
        let Some(rings) = rx.tofu.as_deref_mut().filter(|rings| rings.has_budget()) else {
            break;
        };
        // SAFETY: single-thread mode.
        if unsafe { rings.iface.queue.alone() }.has_more() {
            break;
        }
        let mut notice = MaybeUninit::<MrqNotice>::uninit();
        // SAFETY: as above; the interface keeps the queue.
        let code = unsafe { rings.line.poll_mrq(&mut notice) };
        if code == NOT_FOUND {
            return count;
        }
        // SAFETY: there is a notice.
        count += handle(worker, rings, code, unsafe { notice.assume_init_ref() });
    }
    count + tofu_rx::progress(worker, rx, on_packet::<false>)
}
