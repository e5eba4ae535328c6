//! Worker destruction: cancels what is open and closes the connections.

use super::{endpoint, sink, traced_progress};
use crate::ctypes::*;
use crate::engine::cm::ConnRequest;
use crate::engine::completion;
use crate::engine::endpoint::{Endpoint, EndpointRef, EpFlags};
use crate::engine::request::Request;
use crate::engine::worker::{Rx, Worker};
use crate::proto::tx::{self, device_copy, peer_requests};
use crate::proto::{cm, internal, proto_info, rndv_cancel};
use crate::sys::log;
use crate::tl::interface::LINGER_MS;
use std::os::fd::AsFd;

/// Destroys a worker.
///
/// # Safety
/// The user does not use the worker, its endpoints and requests any more.
pub unsafe fn worker(worker: Box<Worker>) {
    let w = &*worker;
    traced_progress::finish(w);
    proto_info::print_all_used(w);
    internal::retire_kept(w, 0);
    endpoint::free_retired(w);
    tx::end_moved(w);
    device_copy::settle(w);
    let EndedPeers {
        unflushed,
        open,
        in_flight,
    } = end_peers(w);
    if !in_flight.is_empty() {
        end_zcopies(w, in_flight);
    }
    cm::end_all(w);
    let asking = ConnRequest::take_all(w.uid).len();
    if asking > 0 {
        log::warn!("worker {w:p}: {asking} connection requests were neither accepted nor rejected");
    }
    drop_tagged(w);
    if unflushed > 0 {
        log::warn!("worker {w:p}: {unflushed} pending operations were not flushed");
    }
    if open > 0 {
        log::debug!("worker {w:p}: {open} endpoints were not destroyed");
    }
    drop_requests(w);
    close_interfaces(w);
    // Stub peers belong to CM sessions, and these to the CM state: nothing refers to them any more.
    if let (Some(wake), Some(x)) = (&w.wakeup, w.cm.lock().as_ref()) {
        wake.remove(x.epoll.as_fd());
    }
    if w.cm.lock().take().is_some() {
        // Waits until disconnect messages and rejects are sent on connections that no worker progresses any more.
        crate::tl::cm::deferred_close::settle(LINGER_MS);
    }
    drop(worker);
}

/// What was left when the peers of a worker ended.
#[derive(Default)]
struct EndedPeers {
    /// Operations that were cancelled.
    unflushed: usize,
    /// Endpoints that the user had not closed.
    open: usize,
    /// Requests whose memory devices may still access.
    in_flight: Vec<*mut Request>,
}

/// Disconnects from all peers, cancels the operations and closes the endpoints.
fn end_peers(w: &Worker) -> EndedPeers {
    let mut ended = EndedPeers::default();
    for peer in w.all_peers() {
        let peer = &*peer;
        endpoint::send_disconnect(w, peer);
        w.drop_partials(peer);
        let taken = peer_requests::take(w, peer, |_| true);
        ended.unflushed += taken.len();
        // SAFETY: the requests were removed from all lists: this thread owns them.
        let is_in_flight = |r: &*mut Request| unsafe { tx::zcopy::in_flight(&**r) };
        let (still, taken): (Vec<_>, Vec<_>) = taken.into_iter().partition(is_in_flight);
        ended.in_flight.extend(still);
        // SAFETY: the requests were removed from all lists: this thread owns them.
        unsafe { rndv_cancel::end_requests(peer, taken, UCS_ERR_CANCELED) };
        // Requests that became pending meanwhile are cancelled.
        for req in peer_requests::take(w, peer, |_| true) {
            // SAFETY: the request was removed from all lists: this thread owns it.
            unsafe { completion::complete(req, UCS_ERR_CANCELED) };
        }
        let eps = peer.eps.lock().take();
        for &ep in &eps {
            // SAFETY: an endpoint of the worker, which no message finds any more.
            unsafe { endpoint::close_stream(w, ep.get()) };
        }
        // SAFETY: the endpoints are in no table any more, and their peer, which has failed or goes, uses none of them.
        ended.open += eps.iter().filter(|&&ep| unsafe { retire(ep) }).count();
    }
    ended
}

/// Cancels the posted receives, and drops the unexpected messages.
fn drop_tagged(w: &Worker) {
    let posted = w.matcher.lock().drain_posted();
    for posting in posted {
        // SAFETY: the node was removed from the matcher; a posted node is part of a request.
        unsafe { completion::complete(Request::of_posting(posting), UCS_ERR_CANCELED) };
    }
    let unexpected = w.matcher.lock().drain_unexpected();
    if let Some((tag, message)) = unexpected.first() {
        log::warn!(
            "worker {w:p}: {} unexpected tagged messages were not matched, the first with tag {tag:#x} and {} bytes: \
             receive what is sent before the worker is destroyed",
            unexpected.len(),
            message.len
        );
    }
}

/// Calls the user's `request_cleanup` for the requests of the pool.
fn drop_requests(w: &Worker) {
    let pool = w.pool.lock();
    if pool.in_use() > 0 && !w.params.ignore_leaks {
        log::warn!("worker {w:p}: {} requests were not released", pool.in_use());
    }
    if let Some(cleanup) = w.ctx.request_cleanup {
        // SAFETY: the user's function gets the user's area of every element, like `request_init`.
        pool.for_each(|element| unsafe { cleanup(Request::handle(element.cast())) });
    }
}

/// Closes the connections of all interfaces.
fn close_interfaces(w: &Worker) {
    let mut rx = w.rx.lock();
    stop_events(w, &mut rx);
    rx.tl.close(sink::cold(w), &w.ctx.tl);
}

/// No interface wakes the worker any more.
fn stop_events(w: &Worker, rx: &mut Rx) {
    if let Some(wake) = &w.wakeup {
        (rx.tl).each_descriptor(&mut |fd| wake.remove(fd));
    }
}

/// Completes zcopy requests, after the connections through which devices use their memory are closed.
#[cold]
fn end_zcopies(w: &Worker, in_flight: Vec<*mut Request>) {
    let mut rx = w.rx.lock();
    stop_events(w, &mut rx);
    rx.tl.close_adapters(sink::cold(w), &w.ctx.tl);
    drop(rx);
    for req in in_flight {
        // SAFETY: the caller has removed the requests from all lists: this thread owns them.
        unsafe { completion::complete(req, UCS_ERR_CANCELED) };
    }
}

/// Frees the name of an endpoint, the only memory that it owns. Returns whether the endpoint is not internal.
///
/// # Safety
/// There is no reference to the endpoint.
unsafe fn retire(ep: EndpointRef) -> bool {
    // SAFETY: the caller's promise.
    unsafe { Endpoint::free_name(ep.as_ptr()) };
    !ep.get().has(EpFlags::INTERNAL)
}
