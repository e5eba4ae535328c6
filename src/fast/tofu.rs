//! Hot path over the Tofu interconnect, in single-thread mode: short operations are posted straight from the call
//! in a descriptor, within the sender's budget. All other cases take the slow path.

pub(super) mod atomics;

use super::arrival::Called;
use super::plain::{flush_slow, get_slow, is_plain, may_be_null, put_slow};
use super::progress::inlined;
use super::request::{arm_completion, request_of};
use super::sender::sender_of;
use super::shm::BATCH;
use crate::ctypes::*;
use crate::engine::endpoint::{Endpoint, EpFlags};
use crate::engine::request::{self, Request, TxState};
use crate::engine::rkey::Rkey;
use crate::engine::worker::{Rx, Worker};
use crate::op;
use crate::op::param::Param;
use crate::proto::answers;
use crate::proto::tx::rma_tofu;
use crate::tl::Lane;
use crate::tl::tofu::receive::short::{self, Polled};
use crate::tl::tofu::sender::TofuSender;
use crate::tl::tofu::tni::PIGGYBACK;
use crate::wire::stats::StatProtocol;
use std::ffi::c_void;
use std::ptr;

/// `ucp_put_nbx` of a contiguous buffer, with a key by which the TNI accesses the memory.
///
/// # Safety
/// The arguments are those of `ucp_put_nbx`; single-thread mode.
#[inline(never)]
pub unsafe fn put(
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
        if len == 8 && put_word::<8>(ep, buffer.cast(), addr, rkey) {
            return ptr::null_mut();
        }
        put_short(ep, buffer, len, addr, rkey, param)
    }
}

/// Puts 8 or 4 bytes, if the sender's budget allows it. False: they are not posted.
#[inline(always)]
unsafe fn put_word<const LEN: usize>(
    ep: *const Endpoint,
    buffer: *const u8,
    addr: u64,
    rkey: *const Rkey,
) -> bool {
    // SAFETY: the caller's endpoint, key and buffer; single-thread mode.
    unsafe {
        let peer = (*ep).peer();
        // A fence with outstanding operations, and requests that become pending, end the budget: neither is checked
        // here.
        if !(*ep).has(EpFlags::SPECIAL | EpFlags::SLOW_PATH_RMA)
            && let Some(stadd) = (*rkey).tl.tofu.stadd_of_word(addr)
            && let Some(Lane::Tofu(sender)) = peer.tx.alone().lane.as_mut()
            && sender.take_budget()
        {
            // Counted before the put: nothing has to be saved across that call.
            peer.stats().of(StatProtocol::RmaCopy).add(LEN);
            sender.write_word::<LEN>(stadd, buffer);
            return true;
        }
        false
    }
}

/// `ucp_put_nbx` of 4 bytes, or of what a descriptor carries, where the budget may have to be renewed first.
#[inline(never)]
unsafe fn put_short(
    ep: *const Endpoint,
    buffer: *const c_void,
    len: usize,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, key and buffer; single-thread mode; the slow path gets the caller's arguments.
    unsafe {
        if len == 4 && put_word::<4>(ep, buffer.cast(), addr, rkey) {
            return ptr::null_mut();
        }
        if len == 0 || !is_plain(ep, rkey) {
            return put_slow(ep, buffer, len, addr, rkey, param);
        }
        if len <= PIGGYBACK
            && let Some(stadd) = (*rkey).tl.tofu.stadd(addr, len)
            && let Some((sender, stats)) = sender_of::<TofuSender>(ep)
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

/// `ucp_put_nbx` in any thread mode, of a contiguous buffer, by an endpoint and a key that allow the fast path: posted
/// at once if nothing is pending.
///
/// # Safety
/// The arguments are those of `ucp_put_nbx`.
#[inline(never)]
pub unsafe fn put_bcopy(
    ep: *const Endpoint,
    buffer: *const c_void,
    len: usize,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, key and buffer; the slow path gets the caller's arguments.
    unsafe {
        if let Some(stadd) = (*rkey).tl.tofu.stadd(addr, len)
            && rma_tofu::write_now((*ep).peer(), stadd, buffer.cast(), len)
        {
            return ptr::null_mut();
        }
        put_slow(ep, buffer, len, addr, rkey, param)
    }
}

/// `ucp_get_nbx` into a contiguous buffer, where the TNI accesses the memory.
///
/// # Safety
/// The arguments are those of `ucp_get_nbx`; single-thread mode.
#[inline(never)]
pub unsafe fn get(
    ep: *const Endpoint,
    buffer: *mut c_void,
    len: usize,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, key, buffer and parameters; the slow path gets the caller's arguments.
    unsafe {
        // The slow path can receive longer data without a copy.
        if len <= PIGGYBACK
            && let Some(stadd) = (*rkey).tl.tofu.stadd(addr, len)
            && let Some((sender, stats)) = sender_of::<TofuSender>(ep)
            && let Some(req) = reader(ep, buffer.cast(), len, &Param::new(param, 0))
        {
            if sender.read(stadd, buffer.cast(), len, Request::token(req)) == len {
                stats.of(StatProtocol::RmaCopy).add(len);
                return Request::handle(req);
            }
            request::recycle(req);
        }
        get_slow(ep, buffer, len, addr, rkey, param)
    }
}

/// `ucp_ep_flush_nbx` by an endpoint that allows the fast path, to a peer that has not failed.
///
/// # Safety
/// The arguments are those of `ucp_ep_flush_nbx`; single-thread mode.
#[inline(never)]
pub unsafe fn flush(ep: *const Endpoint, param: *const ucp_request_param_t) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, whose worker and peer outlive it, and parameters; the request is new.
    unsafe {
        (*ep).worker.get().progress_flags.clear_copied();
        let Some((sender, _)) = sender_of::<TofuSender>(ep) else {
            return flush_slow(ep, param);
        };
        if sender.is_drained() && answers::is_answered_well((*ep).peer()) {
            if may_be_null(param) {
                return ptr::null_mut();
            }
            return flush_slow(ep, param);
        }
        let Some(req) = request_of(ep, &Param::new(param, 0)) else {
            return flush_slow(ep, param);
        };
        (*req).sent = TxState::FlushMarker;
        if sender.flush_marker(Request::token(req)) {
            return Request::handle(req);
        }
        request::recycle(req);
        flush_slow(ep, param)
    }
}

/// A request that waits for `len` bytes, which one operation brings to `into`, if one is free without allocation.
#[inline(always)]
unsafe fn reader(
    ep: *const Endpoint,
    into: *mut u8,
    len: usize,
    p: &Param,
) -> Option<*mut Request> {
    // SAFETY: the caller's endpoint, whose worker and peer outlive it; the request is new.
    unsafe {
        let req = request_of(ep, p)?;
        arm_completion(&mut *req, into, len);
        Some(req)
    }
}

/// Polls the MRQ, and other sources only if they may have something.
///
/// # Safety
/// Single-thread mode, and no caller holds progress, or a reference to the queue.
#[inline(never)]
pub unsafe fn poll(worker: &Worker, rx: &mut Rx) -> u32 {
    let polled = match rx.tofu.as_deref_mut() {
        // SAFETY: single-thread mode, and no other reference to the queue lives.
        Some(rings) => unsafe { short::poll(rings) },
        None => Polled::All,
    };
    match polled {
        Polled::Idle => 0,
        Polled::All => poll_all(worker, rx),
        // SAFETY: the caller's promise.
        Polled::Notice(code) => unsafe { take(worker, rx, code) },
    }
}

/// Polls everything of the interconnect.
#[inline(never)]
fn poll_all(worker: &Worker, rx: &mut Rx) -> u32 {
    worker.rx.hold(true);
    let count = op::tofu::progress(worker, rx, Called::<false>);
    worker.rx.hold(false);
    rx.events += u64::from(count);
    count
}

/// Handles the worker's notice. If the previous call has received one, too, more are likely to be there: they are
/// handled at once, and then, unless the MRQ is empty, everything else.
///
/// # Safety
/// As for [`poll`].
#[inline(never)]
unsafe fn take(worker: &Worker, rx: &mut Rx, code: i32) -> u32 {
    let calls = rx.calls;
    let Some(rings) = rx.tofu.as_deref_mut() else {
        return 0;
    };
    worker.rx.hold(true);
    let in_a_row = std::mem::replace(&mut rings.credited_at, calls) == calls + 1;
    // SAFETY: the caller's promise; the hold keeps callbacks from progress.
    let mut count = unsafe { short::handle(rings, inlined(worker), code) };
    if in_a_row {
        // SAFETY: the caller's promise.
        count += unsafe { take_more(worker, rx) };
    }
    worker.rx.hold(false);
    rx.events += u64::from(count);
    count
}

/// Handles further notices, and then, unless the MRQ is empty, everything else.
///
/// # Safety
/// As for [`poll`]; the caller holds progress.
#[inline(never)]
unsafe fn take_more(worker: &Worker, rx: &mut Rx) -> u32 {
    let Some(rings) = rx.tofu.as_deref_mut() else {
        return 0;
    };
    // SAFETY: the caller's promise.
    let (count, is_empty) = unsafe { short::handle_more(rings, inlined(worker), BATCH) };
    if is_empty {
        return count;
    }
    count + op::tofu::progress(worker, rx, Called::<false>)
}
