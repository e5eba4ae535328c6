//! Flushes of which the timeline records how long they wait. One that is complete at once is not recorded.

use super::endpoint::{self, FlushOf};
use super::param::{self, Param};
use crate::ctypes::*;
use crate::engine::completion::complete_traced;
use crate::engine::peer::Peer;
use crate::engine::request::Request;
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

/// Flushes a peer.
///
/// # Safety
/// The parameters are those of `ucp_ep_flush_nbx`, of a worker that is not inherited.
#[cold]
pub unsafe fn of_peer(worker: &Worker, peer: &Peer, of: FlushOf, p: &Param) -> ucs_status_ptr_t {
    let args = [
        ("worker", ArgValue::Hex(worker.uid)),
        ("peer", ArgValue::Hex(peer.uid)),
    ];
    // SAFETY: the caller's parameters; the request is new.
    unsafe {
        let start = |req| record(worker, req, OF_PEER, &args, |req| flush::start(req));
        endpoint::flush_dirty(worker, peer, of, p, start)
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
    let args = [("worker", ArgValue::Hex(worker.uid))];
    // SAFETY: the caller's parameters; the request is new.
    unsafe {
        let start = |req| {
            record(worker, req, OF_WORKER, &args, |req| {
                flush::start_all(worker, req)
            })
        };
        endpoint::flush_by(worker, p, start)
    }
}

/// Starts a flush, and records it if it waits.
///
/// # Safety
/// The request is new, and its callback set; with a status `start` leaves it to the caller.
unsafe fn record(
    worker: &Worker,
    req: *mut Request,
    what: OpName,
    args: &[trace::EventArg],
    start: impl FnOnce(*mut Request) -> Option<ucs_status_t>,
) -> Option<ucs_status_t> {
    // SAFETY: the caller's request; `add` gets it, and returns the number for `confirm`.
    unsafe {
        let id = (worker.traced).add(req, (what, trace::now(), args), complete_traced);
        let status = start(req);
        match status {
            Some(_) => drop(worker.traced.take(req, None)),
            None => worker.traced.confirm(req, id, |_| ()),
        }
        status
    }
}
