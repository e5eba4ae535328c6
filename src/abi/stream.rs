//! Streams: not in this version.

use super::output::invalid;
use crate::ctypes::*;
use crate::op::param::status_ptr;
use std::ffi::{c_uint, c_void};

fn unsupported(function: &str, handle_is_null: bool) -> ucs_status_ptr_t {
    status_ptr(if handle_is_null {
        invalid(function, "ep or param is null")
    } else {
        UCS_ERR_UNSUPPORTED
    })
}

/// `UCS_ERR_UNSUPPORTED`
///
/// # Safety
/// None of the pointers is followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_stream_send_nbx(
    ep: ucp_ep_h,
    _buffer: *const c_void,
    _count: usize,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    unsupported("ucp_stream_send_nbx", ep.is_null() || param.is_null())
}

/// `UCS_ERR_UNSUPPORTED`
///
/// # Safety
/// None of the pointers is followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_stream_recv_nbx(
    ep: ucp_ep_h,
    _buffer: *mut c_void,
    _count: usize,
    _length: *mut usize,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    unsupported("ucp_stream_recv_nbx", ep.is_null() || param.is_null())
}

/// `UCS_ERR_UNSUPPORTED`
#[unsafe(no_mangle)]
pub extern "C" fn ucp_stream_recv_data_nb(ep: ucp_ep_h, length: *mut usize) -> ucs_status_ptr_t {
    unsupported("ucp_stream_recv_data_nb", ep.is_null() || length.is_null())
}

/// Nothing was given out that could be released.
#[unsafe(no_mangle)]
pub extern "C" fn ucp_stream_data_release(_ep: ucp_ep_h, _data: *mut c_void) {}

/// `UCS_ERR_UNSUPPORTED`
#[unsafe(no_mangle)]
pub extern "C" fn ucp_stream_worker_poll(
    worker: ucp_worker_h,
    poll_eps: *mut ucp_stream_poll_ep_t,
    _max_eps: usize,
    _flags: c_uint,
) -> libc::ssize_t {
    if worker.is_null() || poll_eps.is_null() {
        return invalid("ucp_stream_worker_poll", "worker or poll_eps is null") as isize;
    }
    UCS_ERR_UNSUPPORTED as isize
}

/// `UCS_ERR_UNSUPPORTED`: no request is one of a stream.
#[unsafe(no_mangle)]
pub extern "C" fn ucp_stream_recv_request_test(
    request: *mut c_void,
    length_p: *mut usize,
) -> ucs_status_t {
    if request.is_null() || length_p.is_null() {
        return invalid(
            "ucp_stream_recv_request_test",
            "request or length_p is null",
        );
    }
    UCS_ERR_UNSUPPORTED
}
