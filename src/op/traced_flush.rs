//! Flushes of which the timeline records how long they wait. One that is complete at once is not recorded.

use super::param::{self, Param};
use crate::ctypes::*;
use crate::engine::completion::complete_traced;
use crate::engine::endpoint::Endpoint;
use crate::engine::peer::Peer;
use crate::engine::pointers::{EndpointId, PeerRef};
use crate::engine::request::Request;
use crate::engine::request_alloc;
use crate::engine::traced_requests::OpName;
use crate::engine::worker::Worker;
use crate::proto::flush;
use crate::sys::trace::{self, ArgValue};

const OF_PEER: OpName = OpName {
    category: "flush",
    name: "flush endpoint",
};
const OF_WORKER: OpName = OpName {
    category: "flush",
    name: "flush worker",
};

/// Flushes a peer. The flush fails with the failure of `ep`, unless that is null.
///
/// # Safety
/// The parameters are those of `ucp_ep_flush_nbx`, of a worker that is not inherited.
#[cold]
pub unsafe fn of_peer(
    worker: &Worker,
    peer: &Peer,
    ep: *const Endpoint,
    p: &Param,
) -> ucs_status_ptr_t {
    if peer.status() != UCS_OK || flush::is_clean(peer) {
        return match peer.successor() {
            // SAFETY: the caller's parameters.
            Some(successor) => unsafe { of_peer(worker, successor, ep, p) },
            // SAFETY: `p` has the parameters of a flush or a close.
            None => unsafe { param::end_immediately(worker, p, UCS_OK) },
        };
    }
    let began = trace::now();
    // SAFETY: a new request, complete before it is started.
    unsafe {
        let req = request_alloc::take(worker, p.external());
        ((*req).peer, (*req).ep) = (Some(PeerRef::new(peer)), EndpointId::of(ep));
        ((*req).notify, (*req).user_data) = (p.notify_send(), p.user_data());
        let id = worker.traced.add(req, (OF_PEER, began), complete_traced);
        let status = flush::start(req);
        let args = [
            ("worker", ArgValue::Hex(worker.uid)),
            ("peer", ArgValue::Hex(peer.uid)),
        ];
        finish(worker, req, p, (id, status), &args)
    }
}

/// Flushes all peers.
///
/// # Safety
/// The parameters are those of `ucp_worker_flush_nbx`, of a worker that is not inherited.
#[cold]
pub unsafe fn of_worker(worker: &Worker, p: &Param) -> ucs_status_ptr_t {
    if flush::all_clean(worker) {
        // SAFETY: `p` has the parameters of a flush.
        return unsafe { param::end_immediately(worker, p, UCS_OK) };
    }
    let began = trace::now();
    // SAFETY: a new request, complete before it is started.
    unsafe {
        let req = request_alloc::take(worker, p.external());
        ((*req).notify, (*req).user_data) = (p.notify_send(), p.user_data());
        let id = worker.traced.add(req, (OF_WORKER, began), complete_traced);
        let status = flush::start_all(worker, req);
        let args = [("worker", ArgValue::Hex(worker.uid))];
        finish(worker, req, p, (id, status), &args)
    }
}

/// Records a flush that waits, or completes it.
///
/// # Safety
/// With a status the caller owns the request; `p` has the parameters of a flush or a close.
unsafe fn finish(
    worker: &Worker,
    req: *mut Request,
    p: &Param,
    (id, status): (u64, Option<ucs_status_t>),
    args: &[trace::EventArg],
) -> ucs_status_ptr_t {
    match status {
        // SAFETY: the caller's promise.
        Some(status) => unsafe {
            worker.traced.take(req, None);
            param::finish(req, p, status)
        },
        None => {
            // SAFETY: `add` got the request, and returned the number.
            unsafe { worker.traced.confirm(req, id, args, |_| ()) };
            Request::handle(req)
        }
    }
}
