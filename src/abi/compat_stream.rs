//! Byte streams, deprecated forms.

use super::compat_params::{flagged, typed, with_send_cb, with_stream_recv_cb};
use crate::abi::stream::{ucp_stream_recv_nbx, ucp_stream_send_nbx};
use crate::ctypes::*;
use std::ffi::{c_uint, c_void};

/// Sends bytes; deprecated for `ucp_stream_send_nbx`.
///
/// # Safety
/// The conditions of [`ucp_stream_send_nbx`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_stream_send_nb(
    ep: ucp_ep_h,
    buffer: *const c_void,
    count: usize,
    datatype: ucp_datatype_t,
    cb: ucp_send_callback_t,
    flags: c_uint,
) -> ucs_status_ptr_t {
    let param = flagged(typed(with_send_cb(cb), datatype), flags);
    // SAFETY: the caller keeps the contract of the function called.
    unsafe { ucp_stream_send_nbx(ep, buffer, count, &param) }
}

/// Receives bytes; deprecated for `ucp_stream_recv_nbx`.
///
/// # Safety
/// The conditions of [`ucp_stream_recv_nbx`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_stream_recv_nb(
    ep: ucp_ep_h,
    buffer: *mut c_void,
    count: usize,
    datatype: ucp_datatype_t,
    cb: ucp_stream_recv_callback_t,
    length: *mut usize,
    flags: c_uint,
) -> ucs_status_ptr_t {
    let param = flagged(typed(with_stream_recv_cb(cb), datatype), flags);
    // SAFETY: the caller keeps the contract of the function called.
    unsafe { ucp_stream_recv_nbx(ep, buffer, count, length, &param) }
}
