//! Hot path over IB queue pairs: short messages go in a prepared work request, and operations that complete take one of
//! the connection's op slots. In single-thread mode; less frequent cases are left to the slow path.

pub(super) mod atomics;

use super::arrival::on_packet;
use super::plain::{get_slow, put_slow};
use super::request::{arm_completion, request_of};
use super::sender::sender_of;
use crate::ctypes::*;
use crate::engine::endpoint::Endpoint;
use crate::engine::ib_worker::{IbConnPhase, IbWorker};
use crate::engine::peer::Peer;
use crate::engine::request::{self, Request};
use crate::engine::rkey::Rkey;
use crate::engine::worker::Worker;
use crate::op::param::Param;
use crate::op::{ib_rx, rma};
use crate::proto::tx::rma_ib;
use crate::sys::copy::TINY;
use crate::tl::Lane;
use crate::tl::Message;
use crate::tl::ib::bindings::{IBV_WC_RECV, IBV_WC_SUCCESS, ibv_wc};
use crate::tl::ib::iface::IbIface;
use crate::tl::ib::rc::{RcEp, RemoteMem};
use crate::tl::ib::sender::IbSender;
use crate::tl::reassembly::split;
use crate::wire::stats::StatProtocol;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

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

/// Polls the worker's only IB interface, if no other work waits. Returns the number of events.
///
/// # Safety
/// Single-thread mode; no progress call up the stack borrows the worker's `rx`; `iface` belongs to the worker's ports.
#[inline(never)]
pub unsafe fn poll(worker: &Worker, iface: NonNull<IbIface>) -> u32 {
    // SAFETY: `iface` belongs to the worker's ports, which outlive this call.
    let iface = unsafe { iface.as_ref() };
    let mut wcs = [const { MaybeUninit::<ibv_wc>::uninit() }; ib_rx::BATCH];
    // Usually the CQ is empty, and this is all that the call does.
    let n = iface.arrived(&mut wcs);
    if n > 0 {
        // SAFETY: the device has written `n` entries; the rest is the caller's promise.
        return unsafe { take_packets(worker, iface, wcs.get_unchecked(..n)) };
    }
    if iface.has_signaled() {
        let n = iface.poll_send_cq(&mut wcs);
        if n > 0 {
            // SAFETY: the device has written `n` entries; the rest is the caller's promise.
            return unsafe { take_completions(worker, wcs.get_unchecked(..n)) };
        }
    }
    0
}

/// Handles arrivals: on the fast path up to the first completion that it does not handle, the rest on the slow path.
///
/// # Safety
/// The requirements of [`poll`]; all entries of `wcs` were written.
#[inline(never)]
#[allow(
    clippy::redundant_closure,
    reason = "a closure is inlined, as a function that two places name is not"
)]
unsafe fn take_packets(worker: &Worker, iface: &IbIface, wcs: &[MaybeUninit<ibv_wc>]) -> u32 {
    // SAFETY: single-thread mode; no progress call up the stack borrows `rx`.
    let rx = unsafe { worker.rx.alone() };
    let Some(ports) = rx.ib.as_deref_mut() else {
        return 0;
    };
    worker.rx.hold(true);
    let mut rest = wcs;
    // Send completions are handled before arrivals: `ib_rx::take` does that.
    if !iface.has_signaled() && !iface.has_own_receives() {
        while let [wc, others @ ..] = rest {
            // SAFETY: all entries of `wcs` were written.
            if !unsafe { take_packet(worker, iface, ports, wc.assume_init_ref()) } {
                break;
            }
            rest = others;
        }
        // SAFETY: single-thread mode.
        unsafe { iface.refill_single_threaded() };
    }
    let mut count = (wcs.len() - rest.len()) as u32;
    if !rest.is_empty() || ports.acks_pending() > 0 {
        // SAFETY: all entries of `wcs` were written.
        count += unsafe { ib_rx::take(worker, ports, 0, rest, |w, m| on_packet::<false>(w, m)) };
    }
    worker.rx.hold(false);
    rx.events += u64::from(count);
    count
}

/// Handles a packet that holds a whole message of the most frequent kinds, from the connection that was looked up last.
/// False: it is something else, and nothing was done.
#[inline(always)]
unsafe fn take_packet(worker: &Worker, iface: &IbIface, ports: &mut IbWorker, wc: &ibv_wc) -> bool {
    if (wc.status, wc.opcode) != (IBV_WC_SUCCESS, IBV_WC_RECV) {
        return false;
    }
    let Some(mut c) = ports.of_same_queue(0, wc.qp_num) else {
        return false;
    };
    // SAFETY: connections are not moved, and none is removed while `c` is borrowed. The interface reported this
    // completion, and its receive buffer is not returned yet.
    let (c, packet) = unsafe { (c.as_mut(), iface.packet_single_threaded(wc)) };
    let Some((head, bytes)) = split(packet) else {
        return false;
    };
    if c.phase != IbConnPhase::Open || c.ended || !c.assembly.is_empty() || head.len != bytes.len()
    {
        return false;
    }
    let flow = &*c.flow;
    // The slow path may apply the same credit again: that has no effect.
    flow.credit(head.credit);
    let m = Message {
        kind: head.kind,
        aux: head.aux,
        imm: head.imm,
        len: bytes.len(),
        record: bytes.as_ptr(),
    };
    if !on_packet::<false>(worker, m) {
        return false;
    }
    flow.receive();
    // SAFETY: the packet is not read after this.
    unsafe {
        c.peer.get().stats().received.add(bytes.len());
        iface.done_single_threaded(wc);
    }
    if flow.is_ack_due(c.limits.window) {
        ib_rx::schedule_ack(ports, c.number);
    }
    true
}

/// Handles completions of sends of the worker's only IB interface.
///
/// # Safety
/// The requirements of [`take_packets`].
#[inline(never)]
unsafe fn take_completions(worker: &Worker, wcs: &[MaybeUninit<ibv_wc>]) -> u32 {
    // SAFETY: single-thread mode; no progress call up the stack borrows `rx`.
    let rx = unsafe { worker.rx.alone() };
    let Some(ports) = rx.ib.as_deref_mut() else {
        return 0;
    };
    worker.rx.hold(true);
    // SAFETY: the device has written all entries.
    let count = unsafe { ib_rx::take_these_ends(ports, 0, wcs) };
    worker.rx.hold(false);
    rx.events += u64::from(count);
    count
}
