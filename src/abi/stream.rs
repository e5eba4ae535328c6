//! Byte streams.

use super::endpoint::endpoint_of;
use super::output::{inherited, invalid, invalid_request};
use super::worker::worker_of;
use crate::ctypes::*;
use crate::engine::request::{ReqFlags, Request};
use crate::fast::send;
use crate::op::param::{Param, status_ptr};
use crate::op::stream;
use std::ffi::{c_uint, c_void};

/// Sends bytes; completes when the buffer can be used again.
///
/// # Safety
/// A live endpoint; `param` valid in the fields that its mask names; the buffer readable until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_stream_send_nbx(
    ep: ucp_ep_h,
    buffer: *const c_void,
    count: usize,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    if ep.is_null() || param.is_null() {
        return invalid_request("ucp_stream_send_nbx", "ep or param is null");
    }
    // SAFETY: the caller's promises.
    unsafe { send::stream_send(endpoint_of(ep), buffer, count, param) }
}

/// Receives whole elements of the first message that waits, at least one, or all with `UCP_STREAM_RECV_FLAG_WAITALL`.
///
/// `length` is written when the receive ends at once.
///
/// # Safety
/// A live endpoint; `param` valid in the fields that its mask names; the buffer writable until completion; `length` is
/// null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_stream_recv_nbx(
    ep: ucp_ep_h,
    buffer: *mut c_void,
    count: usize,
    length: *mut usize,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    if ep.is_null() || param.is_null() {
        return invalid_request("ucp_stream_recv_nbx", "ep or param is null");
    }
    // SAFETY: the caller's promises.
    unsafe {
        let ep = endpoint_of(ep);
        let p = Param::new(param, (*ep).worker.get().extra_op_flags());
        stream::recv(ep, buffer, count, length, &p)
    }
}

/// Returns the next received bytes, valid until `ucp_stream_data_release`; null if there are none.
///
/// # Safety
/// A live endpoint; `length` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_stream_recv_data_nb(
    ep: ucp_ep_h,
    length: *mut usize,
) -> ucs_status_ptr_t {
    if ep.is_null() || length.is_null() {
        return invalid_request("ucp_stream_recv_data_nb", "ep or length is null");
    }
    // SAFETY: the caller's promises.
    unsafe {
        if (*endpoint_of(ep)).worker.get().is_inherited() {
            return status_ptr(inherited("ucp_stream_recv_data_nb"));
        }
        stream::recv_data(endpoint_of(ep), length)
    }
}

/// Frees the bytes that `ucp_stream_recv_data_nb` returned.
///
/// # Safety
/// A live endpoint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_stream_data_release(ep: ucp_ep_h, data: *mut c_void) {
    if ep.is_null() || data.is_null() {
        invalid("ucp_stream_data_release", "ep or data is null");
        return;
    }
    // SAFETY: the caller's endpoint.
    unsafe {
        // A forked child does not change its parent's data.
        if !(*endpoint_of(ep)).worker.get().is_inherited() {
            stream::release_data(endpoint_of(ep), data);
        }
    }
}

/// Writes endpoints with bytes that were not returned before to `poll_eps`, and returns their number.
///
/// # Safety
/// A live worker; `max_eps` entries are writable at `poll_eps`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_stream_worker_poll(
    worker: ucp_worker_h,
    poll_eps: *mut ucp_stream_poll_ep_t,
    max_eps: usize,
    _flags: c_uint,
) -> libc::ssize_t {
    if worker.is_null() || (poll_eps.is_null() && max_eps > 0) {
        return invalid("ucp_stream_worker_poll", "worker or poll_eps is null") as isize;
    }
    // SAFETY: the caller's promises.
    unsafe {
        let w = worker_of(worker);
        if w.is_inherited() {
            return inherited("ucp_stream_worker_poll") as isize;
        }
        if !w.ctx.has(UCP_FEATURE_STREAM) {
            return invalid(
                "ucp_stream_worker_poll",
                "the context was created without UCP_FEATURE_STREAM",
            ) as isize;
        }
        stream::poll(w, poll_eps, max_eps) as isize
    }
}

/// `UCS_INPROGRESS`, or the status of a stream receive, and then the number of bytes that it got.
///
/// # Safety
/// A live request; `length_p` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_stream_recv_request_test(
    request: *mut c_void,
    length_p: *mut usize,
) -> ucs_status_t {
    if request.is_null() || length_p.is_null() {
        return invalid(
            "ucp_stream_recv_request_test",
            "request or length_p is null",
        );
    }
    // SAFETY: the caller's handle and pointer.
    unsafe {
        let r = &*Request::of(request);
        let status = r.state();
        if status != UCS_INPROGRESS && r.flags.has(ReqFlags::STREAM_RECV) {
            length_p.write(r.info.length);
        }
        status
    }
}
