//! Hot path of tagged receives: posts them, or takes a message that has arrived.

use super::length::{SPECIAL, bytes_of};
use crate::ctypes::*;
use crate::engine::datatype::Data;
use crate::engine::pointers::WorkerRef;
use crate::engine::request::{self, Request};
use crate::engine::request_alloc;
use crate::engine::worker::Worker;
use crate::op::param::{Param, status_ptr};
use crate::op::tag;
use std::ffi::c_void;

/// Bits of `op_attr_mask` that exclude the fast path of a receive.
const SPECIAL_RECEIVE: u32 =
    SPECIAL & !(UCP_OP_ATTR_FLAG_NO_IMM_CMPL as u32) | UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL as u32;

/// `ucp_tag_recv_nbx`: posts the receive, if no unexpected message waits.
///
/// # Safety
/// The parameters are valid as UCP requires.
#[inline(always)]
pub unsafe fn tag_recv(
    worker: &Worker,
    buffer: *mut c_void,
    count: usize,
    tag: u64,
    mask: u64,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's structure and memory are valid. `fast_path_recv` says single-thread mode: no callback runs
    // here. The request is not moved while it is posted, and does not outlive its worker.
    unsafe {
        let p = Param::new(param, 0);
        if worker.fast_path_recv()
            && let Some(len) = bytes_of(&p, count, SPECIAL_RECEIVE)
            && (len == 0 || !buffer.is_null())
            && worker.matcher.alone().can_post()
            && (p.has(UCP_OP_ATTR_FIELD_REQUEST) || worker.pool.alone().has_some())
        {
            let ptr = buffer.cast();
            let memory = request_alloc::memory_single_threaded(worker, p.external());
            let req =
                request::fill_receive(WorkerRef::new(worker), memory, Data::Contig { ptr, len });
            request::set_callback(req, p.notify_tag_recv(), p.user_data());
            let posting = &raw mut (*req).posting;
            worker.matcher.alone().post_short(tag, mask, posting);
            return Request::handle(req);
        }
        tag_recv_slow(worker, buffer, count, tag, mask, param)
    }
}

#[inline(never)]
unsafe fn tag_recv_slow(
    worker: &Worker,
    buffer: *mut c_void,
    count: usize,
    tag: u64,
    mask: u64,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's structure is valid, and its other promises are those that the callees require.
    unsafe {
        let p = Param::new(param, worker.extra_op_flags());
        if worker.ctx.has(UCP_FEATURE_TAG)
            && let Some(len) = bytes_of(&p, count, SPECIAL_RECEIVE)
            && (len == 0 || !buffer.is_null())
        {
            let ptr = buffer.cast();
            if worker.mt
                && let Some(req) = post_shared(worker, Data::Contig { ptr, len }, tag, mask, &p)
            {
                return Request::handle(req);
            }
            if let Some(status) = tag::take_immediately::<true>(worker, tag, mask, (ptr, len), &p) {
                return status_ptr(status);
            }
        }
        tag::recv(worker, buffer, count, tag, mask, &p)
    }
}

/// Posts a receive in a worker that threads share, if no unexpected message waits and the pool has a free request.
unsafe fn post_shared(
    worker: &Worker,
    data: Data,
    tag: u64,
    mask: u64,
    p: &Param,
) -> Option<*mut Request> {
    let mut matcher = worker.matcher.lock();
    if !matcher.can_post() {
        return None;
    }
    // SAFETY: the caller's memory is valid. The request is not moved while it is posted, and does not outlive its
    // worker.
    unsafe {
        let memory = request_alloc::memory_no_alloc(worker, p.external())?;
        let req = request::fill_receive(WorkerRef::new(worker), memory, data);
        request::set_callback(req, p.notify_tag_recv(), p.user_data());
        matcher.post_short(tag, mask, &raw mut (*req).posting);
        Some(req)
    }
}
