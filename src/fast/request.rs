//! Requests of operations that one work request of an adapter completes.

use crate::engine::datatype::Data;
use crate::engine::endpoint::Endpoint;
use crate::engine::pointers::{EndpointId, PeerRef};
use crate::engine::request::{Op, Request, TxState};
use crate::engine::request_alloc;
use crate::op::param::Param;

/// A new request for an operation of the endpoint, if the pool has a free one or the user supplies it.
#[inline(always)]
pub(super) unsafe fn request_of(ep: *const Endpoint, p: &Param) -> Option<*mut Request> {
    // SAFETY: the caller's endpoint is valid, and its worker and peer outlive it; the request is new.
    unsafe {
        let req = request_alloc::take_no_alloc((*ep).worker.get(), p.external())?;
        ((*req).peer, (*req).ep) = (Some(PeerRef::new((*ep).peer())), EndpointId::of(ep));
        ((*req).notify, (*req).user_data) = (p.notify_send(), p.user_data());
        Some(req)
    }
}

/// Prepares a request that ends when one work request has written `len` bytes to `into`.
#[inline(always)]
pub(super) fn arm_completion(r: &mut Request, into: *mut u8, len: usize) {
    r.data = Data::Contig { ptr: into, len };
    (r.sent, r.op, r.info.length) = (TxState::AwaitReply, Op::SinglePost, len);
}
