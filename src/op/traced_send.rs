//! Sends by rendezvous, and long puts and gets, that the timeline records from their begin to their completion.

use super::param::{self, Param};
use crate::ctypes::*;
use crate::engine::completion::complete_traced;
use crate::engine::peer::Peer;
use crate::engine::request::{Op, Request};
use crate::engine::traced_requests::OpName;
use crate::engine::worker::Worker;
use crate::proto::proto_info;
use crate::proto::rndv::traced::{self, RTS_FLOW};
use crate::proto::tx::PostResult;
use crate::sys::cma::CmaDirection;
use crate::sys::trace::{self, ArgValue, EventPhase};
use crate::wire::header::{AmImm, Kind};

/// Bytes of the shortest put or get that is recorded.
pub const LONG_RMA: usize = 64 << 10;

const SEND: OpName = OpName {
    category: "rndv",
    name: "rndv send",
};
const PUT: OpName = OpName {
    category: "rma",
    name: "put",
};
const GET: OpName = OpName {
    category: "rma",
    name: "get",
};

/// What the timeline calls an operation; `None`: it does not record it.
fn name_of(r: &Request) -> Option<OpName> {
    let is_long = r.data.len() >= LONG_RMA;
    match (&r.op, r.msg.kind()) {
        (_, Some(Kind::TagRts | Kind::AmRts)) => Some(SEND),
        (Op::Rma(_), _) if is_long && r.is_read() => Some(GET),
        (Op::Rma(_), _) if is_long => Some(PUT),
        (_, Some(Kind::GetReq)) if is_long => Some(GET),
        (_, Some(Kind::PutReq)) if is_long => Some(PUT),
        _ => None,
    }
}

/// Posts a request of a recorded worker that is complete in all fields: a part of [`param::start`].
///
/// # Safety
/// The requirements of [`param::start`].
#[cold]
#[inline(never)]
pub unsafe fn post(req: *mut Request, p: &Param) -> PostResult {
    // SAFETY: the caller's request.
    let r = unsafe { &*req };
    let Some(what) = name_of(r) else {
        // SAFETY: the caller's request.
        return unsafe { param::post_as_requested(req, p) };
    };
    let (worker, len, peer) = (r.worker.get(), r.data.len(), r.peer());
    let is_rts = what.category == SEND.category;
    let answered = r.is_answered();
    let target = match r.msg.kind() {
        Some(Kind::TagRts) => ("tag", ArgValue::Hex(r.msg.imm)),
        Some(Kind::AmRts) => (
            "active message",
            u32::from(AmImm::from_u64(r.msg.imm).id).into(),
        ),
        _ => (
            "memory",
            if r.data.as_contig().is_some() {
                "one piece"
            } else {
                "pieces"
            }
            .into(),
        ),
    };
    let args = [
        ("worker", ArgValue::Hex(worker.uid)),
        ("peer", ArgValue::Hex(peer.uid)),
        ("bytes", len.into()),
        ("lanes", proto_info::lanes(peer).messages.to_string().into()),
        target,
    ];
    let began = trace::now();
    // SAFETY: the caller's request, which no other thread finds yet.
    let (id, posted) = unsafe {
        let id = worker
            .traced
            .add(req, (what, began, &args), complete_traced);
        (id, param::post_as_requested(req, p))
    };
    let ended = match posted {
        PostResult::Done if !answered => Some(UCS_OK),
        PostResult::Failed(status) => Some(status),
        PostResult::Done | PostResult::Queued => None,
    };
    let mut rts = 0;
    if ended.is_none() || len >= LONG_RMA {
        // SAFETY: `add` got the request, and returned the number.
        unsafe { worker.traced.confirm(req, id, |r| rts = r.id) };
    }
    if let Some(status) = ended {
        // SAFETY: the request has ended: this thread owns it.
        unsafe { worker.traced.take(req, Some(status)) };
    }
    if is_rts {
        trace::slice("rndv", "RTS", began, &args);
        // 0: another thread has completed the send.
        if rts != 0 {
            let flow = traced::flow(worker.uid, rts);
            trace::flow(EventPhase::FlowOut, RTS_FLOW, flow, began);
        }
    }
    posted
}

/// The name of a put or a get.
fn name_of_access(direction: CmaDirection) -> OpName {
    match direction {
        CmaDirection::Write => PUT,
        CmaDirection::Read => GET,
    }
}

/// Records a put or get that was copied inside of the call, from `began` to now.
#[cold]
pub fn record_copy(
    direction: CmaDirection,
    len: usize,
    peer: u64,
    scheme: &'static str,
    began: u64,
) {
    let OpName { category, name } = name_of_access(direction);
    let args = [
        ("peer", ArgValue::Hex(peer)),
        ("bytes", len.into()),
        ("scheme", scheme.into()),
    ];
    trace::slice(category, name, began, &args);
}

/// A scatter-gather put or get that the timeline records.
#[derive(Clone, Copy)]
pub struct TracedList {
    /// Nanoseconds of the events' clock.
    began: u64,
    bytes: usize,
    elements: usize,
}

impl TracedList {
    /// An access of so many bytes that begins now. `None`: it is too short to be recorded.
    #[cold]
    pub fn begin(bytes: usize, elements: usize) -> Option<TracedList> {
        (bytes >= LONG_RMA).then(|| TracedList {
            began: trace::now(),
            bytes,
            elements,
        })
    }

    /// Records the access, which has ended inside of the call.
    #[cold]
    pub fn record_copy(self, direction: CmaDirection, peer: u64, scheme: &'static str) {
        let OpName { category, name } = name_of_access(direction);
        let args = [
            ("peer", ArgValue::Hex(peer)),
            ("bytes", self.bytes.into()),
            ("elements", self.elements.into()),
            ("scheme", scheme.into()),
        ];
        trace::slice(category, name, self.began, &args);
    }

    /// Records the access until its request completes. Returns the number for
    /// [`confirm`](crate::engine::traced_requests::TracedRequests::confirm).
    ///
    /// # Safety
    /// The request's callback is set, and no other thread completes the request during this call.
    #[cold]
    pub unsafe fn add(self, peer: &Peer, direction: CmaDirection, parent: *mut Request) -> u64 {
        // SAFETY: the caller's request; a request does not outlive its worker.
        let worker = unsafe { (*parent).worker.get() };
        let args = [
            ("worker", ArgValue::Hex(worker.uid)),
            ("peer", ArgValue::Hex(peer.uid)),
            ("bytes", self.bytes.into()),
            ("elements", self.elements.into()),
            ("lanes", proto_info::lanes(peer).messages.to_string().into()),
        ];
        let what = (name_of_access(direction), self.began, &args[..]);
        // SAFETY: the caller's promise.
        unsafe { worker.traced.add(parent, what, complete_traced) }
    }
}

/// Begins the copy by a device of a put or get of `len` bytes, and records it until it completes. False: `begin` has
/// returned false, nothing was begun, and nothing is recorded.
///
/// # Safety
/// The caller owns the request, whose callback is set, until `begin` is called; it has one if that returns false.
#[cold]
#[inline(never)]
pub unsafe fn begin_copy(
    (worker, peer): (&Worker, &Peer),
    direction: CmaDirection,
    len: usize,
    req: *mut Request,
    begin: impl FnOnce() -> bool,
) -> bool {
    let args = [
        ("worker", ArgValue::Hex(worker.uid)),
        ("peer", ArgValue::Hex(peer.uid)),
        ("bytes", len.into()),
        ("scheme", "cuda_ipc".into()),
    ];
    let what = (name_of_access(direction), trace::now(), &args[..]);
    // SAFETY: the caller's request. `add` got it, and returned the number for `confirm`; if nothing was begun it is the
    // caller's, and in the table.
    unsafe {
        let id = worker.traced.add(req, what, complete_traced);
        let begun = begin();
        match begun {
            true => worker.traced.confirm(req, id, |_| ()),
            false => drop(worker.traced.take(req, None)),
        }
        begun
    }
}
