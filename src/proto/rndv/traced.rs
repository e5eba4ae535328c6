//! What the timeline records of a rendezvous: the receive as an operation, its scheme, and the arrow from the RTS.

use super::get_cma::{self, GetStep};
use crate::ctypes::*;
use crate::engine::completion::complete_traced;
use crate::engine::peer::Peer;
use crate::engine::request::Request;
use crate::engine::traced_requests::OpName;
use crate::engine::worker::Worker;
use crate::sys::trace::{self, ArgValue, EventPhase};

/// Name of the arrow from an RTS to the receive that it has matched.
pub const RTS_FLOW: &str = "rendezvous";

const RECEIVE: OpName = OpName {
    category: "rndv",
    name: "rndv receive",
};

/// The id of the arrow of an RTS, which both ends compute: of the sender's worker and its request.
pub fn flow(sender: u64, rts: u64) -> u64 {
    sender ^ rts
}

/// Begins a receive: records it, and takes the first step, unless that is left to progress (`later`). `Some(status)` if
/// the receive is complete; then the caller owns the request.
///
/// # Safety
/// The request is one that `fill_rndv` has filled, in no list.
#[cold]
#[inline(never)]
pub unsafe fn receive(
    worker: &Worker,
    req: *mut Request,
    peer: &Peer,
    later: bool,
) -> Option<ucs_status_t> {
    let began = trace::now();
    // SAFETY: the caller's request.
    let step = unsafe {
        let r = &*req;
        let rts = r.rndv_recv().rts_id;
        let args = [
            ("worker", ArgValue::Hex(worker.uid)),
            ("peer", ArgValue::Hex(peer.uid)),
            ("bytes", r.info.length.into()),
            ("tag", ArgValue::Hex(r.info.sender_tag)),
        ];
        let id = worker
            .traced
            .add(req, (RECEIVE, began, &args), complete_traced);
        worker.traced.confirm(req, id, |_| ());
        let step = match later {
            true => GetStep::More,
            false => get_cma::begin(worker, req),
        };
        trace::slice("rndv", "match", began, &args);
        trace::flow(EventPhase::FlowIn, RTS_FLOW, flow(peer.uid, rts), began);
        step
    };
    match step {
        GetStep::Ended(status) => {
            // SAFETY: the receive has ended: this thread owns the request.
            unsafe { worker.traced.take(req, Some(status)) };
            Some(status)
        }
        GetStep::Asked => None,
        GetStep::More => {
            get_cma::go_on_later(worker, req);
            None
        }
    }
}

/// Records how the data of a rendezvous move. The caller owns the request.
#[inline]
pub fn scheme(worker: &Worker, req: *const Request, scheme: &'static str) {
    if trace::is_on() {
        worker.traced.step(req, "scheme", Some(scheme));
    }
}

/// Records what a peer has answered to an RTS. The caller owns the request.
#[inline]
pub fn answer(worker: &Worker, req: *const Request, name: &'static str, scheme: &'static str) {
    if trace::is_on() {
        worker.traced.step(req, name, Some(scheme));
    }
}
