//! Endpoints: close and flush.

use super::param::{self, Param, status_ptr};
use super::traced_flush;
use crate::ctypes::*;
use crate::engine::completion;
use crate::engine::endpoint::{Endpoint, EndpointRef, EpFlags, UNSAID};
use crate::engine::peer::Peer;
use crate::engine::pointers::{EndpointId, PeerRef};
use crate::engine::request::{CloseFailure, Op, Request};
use crate::engine::request_alloc;
use crate::engine::worker::Worker;
use crate::proto::tx::{self, device_copy, peer_requests};
use crate::proto::{
    answers, close_grace, cm, detach, endpoints, failure, flush, internal, rndv_cancel,
};
use crate::sys::trace::{self, ArgValue};
use crate::sys::{log, process};
use crate::wire::header::{EpImm, Kind};
use std::ptr::NonNull;

/// `ucp_ep_close_nbx`. The handle is invalid from now on.
///
/// # Errors
/// In the pointer: `UCS_ERR_INVALID_PARAM` for a forced close without error handling, `UCS_ERR_NOT_CONNECTED` for an
/// endpoint that is closed.
///
/// # Safety
/// `ep` was returned by this library; its worker exists.
pub unsafe fn close(ep: *mut Endpoint, force: bool, p: &Param) -> ucs_status_ptr_t {
    // SAFETY: endpoints stay allocated as long as their worker exists.
    let (e, worker, peer) = unsafe { (&*ep, (*ep).worker.get(), (*ep).peer()) };
    if e.has(EpFlags::CLOSED) {
        log::error!("ucp_ep_close_nbx: endpoint {ep:p} is already closed");
        return status_ptr(UCS_ERR_NOT_CONNECTED);
    }
    if force && !e.handles_errors() {
        log::error!("ucp_ep_close_nbx: force close needs UCP_ERR_HANDLING_MODE_PEER");
        return status_ptr(UCS_ERR_INVALID_PARAM);
    }
    internal::forget(worker, peer, e);
    if !e.set(EpFlags::CLOSED) {
        // The endpoint was internal, and the peer's endpoint is closed.
        return status_ptr(UCS_ERR_NOT_CONNECTED);
    }
    let began = trace::is_on().then(trace::now);
    let failure = failure_at_close(e, peer);
    if force {
        let taken = peer_requests::take(worker, peer, |r| r.ep == EndpointId::of(ep));
        // SAFETY: the requests were removed from all lists: this thread owns them.
        unsafe { rndv_cancel::end_requests(peer, taken, UCS_ERR_CANCELED) };
    } else {
        peer_requests::forget_endpoint(worker, peer, ep);
    }
    let notified = send_ep_closed(
        worker,
        e,
        peer,
        if force {
            UCS_ERR_CONNECTION_RESET
        } else {
            UCS_OK
        },
    );
    endpoints::unlist(peer, e);
    // SAFETY: the user's endpoint, which no message finds any more.
    unsafe { close_stream(worker, e) };
    let (empty, open) = {
        let eps = peer.eps.lock();
        (eps.all().is_empty(), eps.any_open())
    };
    if empty {
        failure::unwatch(worker, peer);
    }
    if force && !open {
        peer.set_force_closed();
        answers::drop_failure(peer);
        flush::abandon(worker, peer);
    }
    let busy = silence(worker, e);
    // The endpoint may have failed after `failure` was read.
    let failure = if busy && failure == UCS_OK {
        failure_at_close(e, peer)
    } else {
        failure
    };
    // Client and server both acknowledge an orderly close.
    let in_order = e.session() != 0 && !force && !busy && failure == UCS_OK;
    // SAFETY: new requests that name no endpoint.
    let answer = unsafe {
        match if force { UCS_OK } else { failure } {
            status if busy => after_handler(worker, e, status, p),
            UCS_OK if in_order => close_session(worker, e, peer, notified, p),
            UCS_OK if !force => flush_peer(worker, peer, FlushOf::Close(close_failure(e)), p),
            status => status_ptr(status),
        }
    };
    if !in_order {
        cm::close_idle(worker, e, notified, force);
    }
    if let Some(began) = began {
        record_close(e, force, began);
    }
    // SAFETY: an endpoint of the worker, which is in no list any more.
    retire(worker, unsafe { EndpointRef::new(e) });
    answer
}

/// Records the call that closes an endpoint, which began at `began`, in the timeline.
#[cold]
fn record_close(e: &Endpoint, force: bool, began: u64) {
    let args = [
        ("worker", ArgValue::Hex(e.worker.get().uid)),
        ("endpoint", ArgValue::Hex((&raw const *e).addr() as u64)),
        ("peer", ArgValue::Hex(e.peer().uid)),
        ("mode", if force { "force" } else { "flush" }.into()),
    ];
    trace::slice("endpoint", "endpoint close", began, &args);
}

/// Starts a flushing close of a client's or server's endpoint. It completes when the peer has acknowledged it.
unsafe fn close_session(
    worker: &Worker,
    e: &Endpoint,
    peer: &Peer,
    notified: bool,
    p: &Param,
) -> ucs_status_ptr_t {
    worker.progress_flags.clear_copied();
    // SAFETY: a new request, complete before it is stored.
    unsafe {
        let req = request_alloc::take(worker, p.external());
        ((*req).notify, (*req).user_data) = (p.notify_send(), p.user_data());
        match cm::close(worker, e, peer, notified, req) {
            Some(status) => param::finish(req, p, status),
            None => Request::handle(req),
        }
    }
}

/// Prevents further calls of the error handler of a closed endpoint. Returns whether another thread is in the handler.
fn silence(worker: &Worker, ep: &Endpoint) -> bool {
    let mut handlers = worker.err_handlers.lock();
    handlers.forget(ep);
    handlers.runs_elsewhere(ep, process::this_thread)
}

/// Completes a close when the endpoint's error handler, which another thread runs, has returned.
unsafe fn after_handler(
    worker: &Worker,
    ep: &Endpoint,
    status: ucs_status_t,
    p: &Param,
) -> ucs_status_ptr_t {
    // SAFETY: a new request, complete before another thread can find it.
    unsafe {
        let req = request_alloc::take(worker, p.external());
        ((*req).notify, (*req).user_data) = (p.notify_send(), p.user_data());
        let mut handlers = worker.err_handlers.lock();
        if handlers.runs_elsewhere(ep, process::this_thread) {
            handlers.wait(req, status);
            return Request::handle(req);
        }
        drop(handlers);
        param::drop_request(req, status)
    }
}

/// Status of a flushing close that begins now, before its flush.
fn failure_at_close(e: &Endpoint, peer: &Peer) -> ucs_status_t {
    match close_failure(e) {
        CloseFailure::Ignored => UCS_OK,
        CloseFailure::Reported => param::why_failed(e, peer),
    }
}

/// Whether a flushing close of an endpoint reports the failure of the peer. An endpoint whose peer closed first and
/// then failed does not, unless it is a client's or server's.
fn close_failure(e: &Endpoint) -> CloseFailure {
    if !e.reports_failures() || e.has(EpFlags::LEFT) && !e.has(EpFlags::FAILED) {
        CloseFailure::Ignored
    } else {
        CloseFailure::Reported
    }
}

/// The operation whose flush of one peer is started.
#[derive(Clone, Copy)]
pub(super) enum FlushOf {
    /// `ucp_ep_flush_nbx` of this endpoint. It fails with the endpoint.
    Flush(EndpointId),
    /// A flushing close. The failure of the peer is reported or not.
    Close(CloseFailure),
}

/// Sends `EpClosed` to the peer, if both sides are connected and handle errors, or are client and server, or if an
/// endpoint is internal at the peer. `status` is `UCS_OK` for an orderly close, else the status with which the peer's
/// endpoint fails. A client and a server that have sent nothing close by the CM connection. Returns whether the message
/// was sent.
fn send_ep_closed(worker: &Worker, e: &Endpoint, peer: &Peer, status: ucs_status_t) -> bool {
    let connected_without_cm = e.session() == 0 && e.remote_err_mode() != UNSAID;
    let reaches_peer = match &peer.tx.lock().lane {
        Some(lane) => !lane.is_peer_dead(),
        None => connected_without_cm,
    };
    // An internal endpoint of the peer is closed with this one, whatever the error handling modes are.
    let answered = status == UCS_OK && e.has_requested_reply();
    let notified = (e.reports_failures() || answered) && peer.status() == UCS_OK && reaches_peer;
    if notified {
        if e.session() != 0 && e.has(EpFlags::FRESH) {
            failure::send_ep_info(worker, e, peer);
        }
        let imm = EpImm {
            sn: e.remote_sn(),
            err_mode: e.err_mode(),
        };
        tx::control(peer, Kind::EpClosed, status as i8 as u8, imm.to_u64(), &[]);
    }
    notified
}

/// Sends `EpClosed` for each open endpoint of a worker that is destroyed: a peer that sleeps needs the message.
pub fn send_disconnect(worker: &Worker, peer: &Peer) {
    let eps = peer.eps.lock().all().to_vec();
    for ep in eps {
        let e = ep.get();
        if !e.has(EpFlags::CLOSED | EpFlags::INTERNAL | EpFlags::FAILED) {
            send_ep_closed(worker, e, peer, UCS_ERR_CONNECTION_RESET);
        }
    }
}

/// Cancels the stream receives of an endpoint.
///
/// # Safety
/// The endpoint is valid, and no message can find it any more.
pub unsafe fn close_stream(worker: &Worker, ep: &Endpoint) {
    // SAFETY: the caller's endpoint is valid; the requests were removed from it: this thread owns them.
    unsafe {
        let waiting = worker.streams.lock().close(ep);
        for req in waiting {
            completion::complete(req, UCS_ERR_CANCELED);
        }
    }
}

/// Frees an endpoint that was not returned to the user.
///
/// The endpoint is new: nothing was sent, and only its peer's table names it.
pub fn discard(worker: &Worker, ep: EndpointRef) {
    endpoints::unlist(ep.get().peer(), ep.get());
    retire(worker, ep);
}

/// Frees an endpoint when no progress call, of another thread or further up the stack, can use it.
fn retire(worker: &Worker, ep: EndpointRef) {
    worker.closed_eps.lock().push(ep);
    if let Some(_alone) = worker.rx.try_lock() {
        return free_retired(worker);
    }
    worker.progress_flags.raise_deferred();
}

/// Frees the endpoints that were closed. The caller holds `rx`, or is the only user of the worker, and uses none of
/// them.
pub fn free_retired(worker: &Worker) {
    let retired = std::mem::take(&mut *worker.closed_eps.lock());
    for ep in retired {
        let e = ep.get();
        // Progress may have added the endpoint to these lists while it was being closed.
        endpoints::unlist(e.peer(), e);
        // SAFETY: an endpoint of the worker, which no message finds any more.
        unsafe { close_stream(worker, e) };
        worker.err_handlers.lock().forget(e);
        close_grace::forget(worker, e);
        // Before the session is freed, and with it the stub peer of an endpoint that was never connected.
        let peer = e.peer();
        detach::note_idle(worker, peer);
        peer.release();
        cm::endpoint_freed(worker, e.session());
        let memory = ep.as_ptr();
        // SAFETY: the endpoint is closed, and the list had the last use of it: there is no reference to it any more.
        // `CLOSED` stays readable until the pool reuses the memory.
        unsafe {
            Endpoint::free_name(memory);
            worker
                .ep_pool
                .lock()
                .put(NonNull::new_unchecked(memory.cast()));
        }
    }
}

/// Flushes what was sent to the endpoint's peer.
///
/// # Safety
/// The parameters are those of `ucp_ep_flush_nbx`.
pub unsafe fn flush(ep: *const Endpoint, p: &Param) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint is valid.
    match unsafe { param::open_endpoint(ep) } {
        // SAFETY: a new request.
        Ok((worker, peer)) => unsafe {
            flush_peer(worker, peer, FlushOf::Flush(EndpointId::of(ep)), p)
        },
        Err(status) => status_ptr(status),
    }
}

/// Flushes a peer.
unsafe fn flush_peer(worker: &Worker, peer: &Peer, of: FlushOf, p: &Param) -> ucs_status_ptr_t {
    if worker.progress_flags.concerns_flush() {
        worker.progress_flags.clear_copied();
        // SAFETY: the caller's parameters.
        if let Some(request) = unsafe { flush_copies(worker, Some(peer), p) } {
            return request;
        }
        if trace::is_on() {
            // SAFETY: the caller's parameters.
            return unsafe { traced_flush::of_peer(worker, peer, of, p) };
        }
    }
    // SAFETY: the caller's parameters.
    unsafe { flush_dirty(worker, peer, of, p, |req| flush::start(req)) }
}

/// Flushes a peer by `start`, unless it is clean.
///
/// # Safety
/// The parameters are those of `ucp_ep_flush_nbx`; `start` has the contract of [`flush::start`].
#[inline(always)]
pub(super) unsafe fn flush_dirty(
    worker: &Worker,
    peer: &Peer,
    of: FlushOf,
    p: &Param,
    start: impl FnOnce(*mut Request) -> Option<ucs_status_t>,
) -> ucs_status_ptr_t {
    if peer.status() != UCS_OK || flush::is_clean(peer) {
        // Requests may have moved from a stub peer to the peer that replaced it.
        return match peer.successor() {
            // SAFETY: the caller's parameters are those that the callee requires.
            Some(successor) => unsafe { flush_peer(worker, successor, of, p) },
            // SAFETY: `p` has the parameters of a flush or a close.
            None => unsafe { param::end_immediately(worker, p, UCS_OK) },
        };
    }
    // SAFETY: a new request, complete before it is started.
    unsafe {
        flush_by(worker, p, |req| {
            (*req).peer = Some(PeerRef::new(peer));
            match of {
                FlushOf::Flush(ep) => (*req).ep = ep,
                FlushOf::Close(failure) => (*req).op = Op::EpClose(failure),
            }
            start(req)
        })
    }
}

/// Starts a flush by a new request: `start` returns the status if it is complete.
///
/// # Safety
/// `p` has the parameters of a flush or a close; with a status `start` leaves the request to the caller.
#[inline(always)]
pub(super) unsafe fn flush_by(
    worker: &Worker,
    p: &Param,
    start: impl FnOnce(*mut Request) -> Option<ucs_status_t>,
) -> ucs_status_ptr_t {
    // SAFETY: a new request, complete before it is started.
    unsafe {
        let req = request_alloc::take(worker, p.external());
        ((*req).notify, (*req).user_data) = (p.notify_send(), p.user_data());
        match start(req) {
            Some(status) => param::finish(req, p, status),
            None => Request::handle(req),
        }
    }
}

/// Flushes a peer, or all peers, where devices copy for puts or gets. `None`: none does.
///
/// # Safety
/// The parameters are those of a flush or a close.
#[cold]
#[inline(never)]
unsafe fn flush_copies(
    worker: &Worker,
    peer: Option<&Peer>,
    p: &Param,
) -> Option<ucs_status_ptr_t> {
    if !device_copy::has_accesses(worker, peer) {
        return None;
    }
    // SAFETY: the caller's parameters.
    Some(unsafe { flush_by(worker, p, |req| flush::start_with_copies(worker, peer, req)) })
}

/// Flushes all peers.
///
/// # Safety
/// The parameters are those of `ucp_worker_flush_nbx`.
pub unsafe fn flush_worker(worker: &Worker, p: &Param) -> ucs_status_ptr_t {
    if worker.progress_flags.concerns_flush() {
        if worker.is_inherited() {
            return status_ptr(UCS_ERR_UNSUPPORTED);
        }
        worker.progress_flags.clear_copied();
        // SAFETY: the caller's parameters.
        if let Some(request) = unsafe { flush_copies(worker, None, p) } {
            return request;
        }
        if trace::is_on() {
            // SAFETY: the caller's parameters.
            return unsafe { traced_flush::of_worker(worker, p) };
        }
    }
    if flush::all_clean(worker) {
        // SAFETY: `p` has the parameters of a flush.
        return unsafe { param::end_immediately(worker, p, UCS_OK) };
    }
    // SAFETY: the caller's parameters.
    unsafe { flush_by(worker, p, |req| flush::start_all(worker, req)) }
}
