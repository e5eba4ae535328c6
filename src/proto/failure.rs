//! Failed and disconnected peers: detection, and the end of all operations that involve them.

use super::cm::{disconnect, server};
use super::tx::{self, peer_requests};
use super::{close_grace, endpoints, internal, loss_log, release, rndv_cancel};
use crate::ctypes::*;
use crate::engine::completion;
use crate::engine::endpoint::{Endpoint, EndpointRef, EpFlags};
use crate::engine::peer::{Peer, PeerSet};
use crate::engine::pointers::{EndpointId, PeerRef};
use crate::engine::request::{Callback, CloseFailure, Op, Request, TxState, ZcopyState};
use crate::engine::unexpected::PayloadSource;
use crate::engine::worker::{Rx, Worker};
use crate::sys::trace::{self, ArgValue};
use crate::sys::{clock, host, log, process, process_monitor};
use crate::wire::header::{EpImm, Kind};
use crate::wire::list_piece::ListPiece;
use indexmap::IndexSet;
use std::fmt;
use std::time::Duration;

/// Checks that the worker of an address exists; first by a connection to it, if there is one.
///
/// # Errors
/// `UCS_ERR_UNREACHABLE` if it does not.
pub fn exists(peer: &Peer) -> Result<(), ucs_status_t> {
    let now = clock::coarse_ms() as u32;
    // Relaxed: a hint. The worker can die a moment after the check, too.
    let seen = peer.status() == UCS_OK && peer.was_probed_at(now);
    let connected = || peer.status() == UCS_OK && peer.tx.lock().lane.is_some();
    if seen || connected() {
        return Ok(());
    }
    if !peer.is_dead() {
        peer.set_probed_at(now);
        return Ok(());
    }
    let uid = peer.uid;
    loss_log::log_gone(format_args!(
        "worker {uid:#x} is gone. Destination is unreachable"
    ));
    peer.worker().fail_peer(peer, UCS_ERR_CONNECTION_RESET);
    Err(UCS_ERR_UNREACHABLE)
}

/// Fails a peer to which no connection can be made. Where the user's endpoints do not handle errors, the first such
/// failure of the process is logged as an error.
#[cold]
pub fn unreachable(worker: &Worker, peer: &Peer, reason: fmt::Arguments<'_>) {
    if loss_log::is_reported(peer) {
        log::diag!("worker {:#x} cannot be reached: {reason}", peer.uid);
    } else {
        log::once!(
            Error, each log::words(reason),
            "worker {:#x} cannot be reached: {reason}",
            peer.uid
        );
    }
    worker.fail_peer(peer, UCS_ERR_UNREACHABLE);
}

/// Called for an operation on an endpoint that has failed. Where the user does not handle errors, the first such
/// failure of the process is logged as an error; the reason for one that cannot be reached was logged before.
pub fn on_use(ep: &Endpoint, peer: &Peer) {
    if !ep.reports_failures() && peer.status() != UCS_ERR_UNREACHABLE {
        loss_log::log_lost(peer);
    }
}

/// Whether a request is one that the user waits for, and no flush: flushes and closes complete with the peer's end.
fn is_users(r: &Request) -> bool {
    let notify = match trace::is_on() {
        true => r.worker.get().traced.callback(r),
        false => r.notify,
    };
    r.sent != TxState::FlushMarker && !matches!(notify, Callback::Internal(_))
}

/// For endpoints that handle errors: lets the death of a peer's process, and the keepalive interval, wake the worker
/// when it sleeps.
pub fn watch(worker: &Worker, peer: &Peer) {
    let Some(wake) = worker.wakeup.as_ref() else {
        return;
    };
    let interval = worker.ctx.policy.keepalive_ms;
    let keepalive = (interval != u64::MAX).then(|| Duration::from_millis(interval));
    match wake.make_watch(keepalive) {
        Ok(watch) => {
            // A process that is reached by other transports cannot be watched; this process needs no watch.
            let Some(inbox) = peer.inbox.filter(|_| !peer.same_process) else {
                return watch.add_timed(peer.uid);
            };
            let process = inbox.process(host::place());
            watch.add(peer.uid, process.and_then(process_monitor::watch));
            // The process may have died, and its pid may be another's, before it was watched.
            if peer.is_dead() {
                worker.fail_peer(peer, UCS_ERR_CONNECTION_RESET);
            }
        }
        Err(e) => log::once!(
            Warn, each log::words(&e),
            "the death of peer {:#x} will not wake the worker: {e}",
            peer.uid
        ),
    }
}

/// Called for a new endpoint. If its peer has already failed, progress calls the error handler.
pub fn begin(worker: &Worker, ep: &Endpoint, peer: &Peer) {
    if peer.status() != UCS_OK {
        if ep.reports_failures() {
            fail_endpoint(worker, ep, peer.status());
        }
    } else if ep.handles_errors() {
        if ep.err_mode() == ucp_err_handling_mode_t::UCP_ERR_HANDLING_MODE_FAILOVER as u8 {
            peer.set_failover();
        }
        peer.watch_death();
        watch(worker, peer);
        tx::connect_eagerly(peer);
    }
}

/// Ends what [`watch`] has started.
pub fn unwatch(worker: &Worker, peer: &Peer) {
    if let Some(watch) = worker.wakeup.as_ref().and_then(|w| w.watch()) {
        watch.remove(peer.uid);
    }
}

/// Ends all operations, endpoints and unexpected messages of failed peers. Called in progress.
#[cold]
pub fn handle_failed(worker: &Worker, rx: &mut Rx) {
    let lost = worker.peer_lists.failed.lock().take();
    if !lost.is_empty() {
        let failed: PeerSet = lost.iter().map(|&(peer, ())| peer).collect();
        (rx.tl).end_peers(&|peer: PeerRef| failed.contains(peer.get()));
    }
    for (peer, ()) in lost {
        let peer = peer.get();
        log::debug!("peer {:#x} is lost: {:?}", peer.uid, peer.status());
        if trace::is_on() {
            let args = [
                ("worker", ArgValue::Hex(worker.uid)),
                ("peer", ArgValue::Hex(peer.uid)),
                ("status", format!("{:?}", peer.status()).into()),
            ];
            trace::instant("endpoint", "peer failed", &args);
        }
        unwatch(worker, peer);
        peer.stats().set_failed();
        worker.drop_partials(peer);
        if let Some(cuda) = &worker.ctx.cuda {
            cuda.forget_peer(peer.uid);
        }
        lose_announced(worker, peer);
        // First: memory that a device may still write must not be returned to the user before the lane is closed.
        let mut ended: IndexSet<_> = tx::zcopy::drop_lane(peer).into_iter().collect();
        // A request with a posted part is in both sets.
        ended.extend(peer_requests::take(worker, peer, |_| true));
        let eps = peer.eps.lock().all().to_vec();
        let is_unhandled = |ep: &EndpointRef| {
            !ep.get().reports_failures() && !ep.get().has(EpFlags::INTERNAL | EpFlags::CLOSED)
        };
        // SAFETY: the requests were removed from all lists: this thread owns them.
        if ended.iter().any(|&req| is_users(unsafe { &*req }))
            && peer.status() != UCS_ERR_UNREACHABLE
            && eps.iter().any(is_unhandled)
        {
            loss_log::log_lost(peer);
        }
        for req in ended {
            // SAFETY: the request was removed from all lists: this thread owns it.
            unsafe {
                let status = ending(&*req, peer.status());
                // A TNI accesses the memory of an operation until it reports its completion.
                if !tx::zcopy::detach(peer, req, status) {
                    completion::complete(req, status);
                }
            }
        }
        release::begin(worker, peer);
        internal::end_all(worker, peer);
        let eps = peer.eps.lock().all().to_vec();
        for ep in eps {
            let ep = ep.get();
            // For an endpoint that the peer had closed before, the failure is no error while it is in its close grace.
            if !ep.has(EpFlags::LEFT) {
                fail_endpoint(worker, ep, peer.status());
            }
        }
    }
}

/// The messages that a failed peer has announced and not sent: receives of them end with an error.
fn lose_announced(worker: &Worker, peer: &Peer) {
    let mut lost = 0;
    worker.matcher.lock().change_unexpected(|message| {
        if matches!(message.source, PayloadSource::Rts { peer: of, .. } if of.is(peer)) {
            message.source = PayloadSource::Lost;
            lost += 1;
        }
    });
    // Each of them held a reference.
    (0..lost).for_each(|_| peer.release());
}

/// Status of a request of a failed peer: one that had failed before, and waited for its device, keeps that status. A
/// close gives what it would give if it began now.
fn ending(r: &Request, status: ucs_status_t) -> ucs_status_t {
    if matches!(r.op, Op::EpClose(CloseFailure::Ignored)) {
        return UCS_OK;
    }
    match r.transfer().map(|t| t.fate) {
        Some(ZcopyState::Ends(earlier)) => earlier,
        _ => status,
    }
}

/// Fails an endpoint. Progress calls its error handler, once.
pub fn fail_endpoint(worker: &Worker, ep: &Endpoint, status: ucs_status_t) {
    if ep.has(EpFlags::CLOSED | EpFlags::INTERNAL) || !ep.fail(status) {
        return;
    }
    if trace::is_on() {
        let args = [
            ("endpoint", ArgValue::Hex((&raw const *ep).addr() as u64)),
            ("peer", ArgValue::Hex(ep.peer().uid)),
            ("status", format!("{status:?}").into()),
        ];
        trace::instant("endpoint", "endpoint failed", &args);
    }
    end_stream(worker, ep, status);
    if ep.reports_failures() && ep.err_cb().is_some() {
        // SAFETY: an endpoint of the worker, which takes it out of the list when it is closed.
        let due = unsafe { EndpointRef::new(ep) };
        worker.err_handlers.lock().push(due, status);
        worker.progress_flags.raise_deferred();
        worker.wake();
    } else if ep.handles_errors() {
        log::once!(
            Error, each status as i8,
            "endpoint {:p} failed and has no error handler: {:?}: give one to ucp_ep_create (err_handler.cb)",
            ep,
            status
        );
    } else {
        log::diag!("endpoint {:p}: the peer is gone: {:?}", ep, status);
    }
    disconnect::answer(worker, ep);
}

/// Ends the posted stream receives of a failed endpoint. Bytes that have arrived can still be received.
fn end_stream(worker: &Worker, ep: &Endpoint, status: ucs_status_t) {
    let mut streams = worker.streams.lock();
    // SAFETY: the caller's endpoint is valid.
    let waiting = unsafe { streams.of(ep) }.end(status);
    drop(streams);
    for req in waiting {
        // SAFETY: the request was removed from the stream: this thread owns it.
        unsafe { completion::complete(req, status) };
    }
}

/// Calls pending error handlers. Returns their number.
#[cold]
pub fn call_handlers(worker: &Worker) -> u32 {
    let mut count = 0;
    loop {
        let Some((ep, status)) = worker.err_handlers.lock().begin(process::this_thread) else {
            return count;
        };
        let e = ep.get();
        if let Some(cb) = e.err_cb() {
            // SAFETY: the user's function, with the arguments that UCP specifies.
            unsafe { cb(e.user_data(), ep.as_ptr().cast(), status) };
            count += 1;
        }
        let closes = worker.err_handlers.lock().end();
        for (close, status) in closes {
            // SAFETY: the request is in no list.
            unsafe { completion::complete(close, status) };
        }
        // Only progress frees the endpoint, though its handler may have closed it.
        disconnect::answer(worker, e);
    }
}

/// Sends the endpoint's error handling mode to the peer, or the proof that it is the server's endpoint of a client.
/// Called at the first use of a `FRESH` endpoint.
#[cold]
pub fn send_ep_info(worker: &Worker, ep: &Endpoint, peer: &Peer) {
    if ep.session() == 0 {
        send_err_mode(ep, peer);
    } else {
        server::send_cm_proof(worker, ep, peer);
    }
    // Cleared last: messages of other threads must not precede this one.
    ep.clear(EpFlags::FRESH);
}

fn send_err_mode(ep: &Endpoint, peer: &Peer) {
    let imm = EpImm {
        sn: ep.remote_sn(),
        err_mode: ep.err_mode(),
    };
    tx::control(peer, Kind::EpInfo, 0, imm.to_u64(), &[]);
}

/// Handles the error handling mode of the peer's endpoint.
pub fn on_ep_info(worker: &Worker, peer: &Peer, info: EpImm) {
    let ep = endpoints::reply_endpoint(worker, peer, info.sn);
    let ep = ep.get();
    ep.set_remote_err_mode(info.err_mode);
    if !ep.has(EpFlags::INTERNAL) && ep.mismatched() {
        refuse(worker, ep, peer);
    }
}

/// Fails an endpoint whose error handling mode differs from that of the peer's endpoint, on both sides.
pub fn refuse(worker: &Worker, ep: &Endpoint, peer: &Peer) {
    log::once!(
        Error,
        each(ep.err_mode(), ep.remote_err_mode()),
        "endpoint {:p}: error handling mode {} here, {} at the peer",
        ep,
        ep.err_mode(),
        ep.remote_err_mode()
    );
    let imm = EpImm {
        sn: ep.remote_sn(),
        err_mode: ep.err_mode(),
    };
    tx::control(
        peer,
        Kind::EpClosed,
        UCS_ERR_UNSUPPORTED as i8 as u8,
        imm.to_u64(),
        &[],
    );
    end_endpoint(worker, peer, ep, UCS_ERR_UNSUPPORTED);
}

/// Handles the close of the peer's endpoint: in order (`UCS_OK`), by force (`UCS_ERR_CONNECTION_RESET`), or with the
/// status of a refusal.
pub fn on_ep_closed(worker: &Worker, peer: &Peer, sn: u32, status: ucs_status_t) {
    let Some(ep) = peer.ep_by_sn(sn) else {
        return;
    };
    let ep = ep.get();
    internal::end(worker, peer, ep);
    match status {
        UCS_OK | UCS_ERR_CONNECTION_RESET if !ep.reports_failures() => {}
        // Clients and servers are notified at once, like in UCX.
        UCS_OK if ep.session() == 0 => close_grace::begin(worker, ep),
        UCS_OK => end_session(worker, peer, ep),
        status => end_endpoint(worker, peer, ep, status),
    }
}

/// Fails a client's or a server's endpoint that its peer has closed in order: active messages announced by RTS are
/// cancelled.
pub fn end_session(worker: &Worker, peer: &Peer, ep: &Endpoint) {
    let own = EndpointId::of(ep);
    let is_offer = |r: &Request| r.ep == own && r.msg.is(Kind::AmRts);
    let offers = peer_requests::take(worker, peer, is_offer);
    // SAFETY: the requests were removed from all lists: this thread owns them.
    unsafe { rndv_cancel::end_requests(peer, offers, UCS_ERR_CANCELED) };
    end_endpoint(worker, peer, ep, UCS_ERR_CONNECTION_RESET);
}

/// Ends the requests of an endpoint, and fails the endpoint.
pub fn end_endpoint(worker: &Worker, peer: &Peer, ep: &Endpoint, status: ucs_status_t) {
    let own = EndpointId::of(ep);
    let taken = peer_requests::take(worker, peer, |r| r.ep == own);
    // SAFETY: the requests were removed from all lists: this thread owns them.
    let ends_list = (taken.iter()).any(|&r| unsafe { is_last_piece(&*r) });
    if ends_list && peer.status() == UCS_OK {
        tx::control(peer, Kind::Fence, 0, 0, &[]);
    }
    // SAFETY: this thread owns the requests.
    unsafe { rndv_cancel::end_requests(peer, taken, status) };
    fail_endpoint(worker, ep, status);
}

/// Whether a request is the last piece of a list, whose other pieces the peer may have collected.
fn is_last_piece(r: &Request) -> bool {
    let is_access = r.msg.is(Kind::PutReq) || r.msg.is(Kind::GetReq);
    is_access && ListPiece::from_aux(r.msg.aux) == ListPiece::Last
}

/// Fails a peer that has sent malformed data.
#[cold]
pub fn fail_corrupt(peer: &Peer, what: &str) {
    // In a forked child the memory that peers write is empty, which is no error of the peer.
    if peer.worker().progress_flags.is_inherited() {
        return;
    }
    log::once!(
        Error, each what,
        "worker {:#x} (pid {}) sent {what}: closing the connection",
        peer.uid,
        peer.inbox.map_or(0, |l| l.id.pid)
    );
    peer.worker().fail_peer(peer, UCS_ERR_CONNECTION_RESET);
}
