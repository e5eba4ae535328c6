//! Tagged messages, deprecated forms.

use super::compat_params::{EMPTY, placed, typed, with_send_cb, with_tag_recv_cb};
use crate::abi::tag::{
    ucp_tag_msg_recv_nbx, ucp_tag_recv_nbx, ucp_tag_send_nbx, ucp_tag_send_sync_nbx,
};
use crate::ctypes::*;
use std::ffi::c_void;

/// Sends a message; deprecated for `ucp_tag_send_nbx`.
///
/// # Safety
/// The conditions of [`ucp_tag_send_nbx`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_tag_send_nb(
    ep: ucp_ep_h,
    buffer: *const c_void,
    count: usize,
    datatype: ucp_datatype_t,
    tag: ucp_tag_t,
    cb: ucp_send_callback_t,
) -> ucs_status_ptr_t {
    let param = typed(with_send_cb(cb), datatype);
    // SAFETY: the caller keeps the contract of the function called.
    unsafe { ucp_tag_send_nbx(ep, buffer, count, tag, &param) }
}

/// Sends a message with the caller's request, in front of `req`; deprecated for `ucp_tag_send_nbx`.
///
/// # Safety
/// As [`ucp_tag_send_nbx`] with `UCP_OP_ATTR_FIELD_REQUEST`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_tag_send_nbr(
    ep: ucp_ep_h,
    buffer: *const c_void,
    count: usize,
    datatype: ucp_datatype_t,
    tag: ucp_tag_t,
    req: *mut c_void,
) -> ucs_status_t {
    let mut param = placed(typed(EMPTY, datatype), req);
    param.op_attr_mask |= UCP_OP_ATTR_FLAG_FAST_CMPL as u32;
    // SAFETY: the caller keeps the contract of the function called.
    UCS_PTR_STATUS(unsafe { ucp_tag_send_nbx(ep, buffer, count, tag, &param) })
}

/// Sends a message and ends when it was matched; deprecated for `ucp_tag_send_sync_nbx`.
///
/// # Safety
/// The conditions of [`ucp_tag_send_sync_nbx`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_tag_send_sync_nb(
    ep: ucp_ep_h,
    buffer: *const c_void,
    count: usize,
    datatype: ucp_datatype_t,
    tag: ucp_tag_t,
    cb: ucp_send_callback_t,
) -> ucs_status_ptr_t {
    let param = typed(with_send_cb(cb), datatype);
    // SAFETY: the caller keeps the contract of the function called.
    unsafe { ucp_tag_send_sync_nbx(ep, buffer, count, tag, &param) }
}

/// Receives a message, always with a request and a callback; deprecated for `ucp_tag_recv_nbx`.
///
/// # Safety
/// The conditions of [`ucp_tag_recv_nbx`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_tag_recv_nb(
    worker: ucp_worker_h,
    buffer: *mut c_void,
    count: usize,
    datatype: ucp_datatype_t,
    tag: ucp_tag_t,
    tag_mask: ucp_tag_t,
    cb: ucp_tag_recv_callback_t,
) -> ucs_status_ptr_t {
    let param = typed(with_tag_recv_cb(cb), datatype);
    // SAFETY: the caller keeps the contract of the function called.
    unsafe { ucp_tag_recv_nbx(worker, buffer, count, tag, tag_mask, &param) }
}

/// Receives a message with the caller's request, in front of `req`; deprecated for `ucp_tag_recv_nbx`.
///
/// `UCS_OK` means that the receive was posted; `ucp_tag_recv_request_test` returns its completion.
///
/// # Safety
/// As [`ucp_tag_recv_nbx`] with `UCP_OP_ATTR_FIELD_REQUEST`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_tag_recv_nbr(
    worker: ucp_worker_h,
    buffer: *mut c_void,
    count: usize,
    datatype: ucp_datatype_t,
    tag: ucp_tag_t,
    tag_mask: ucp_tag_t,
    req: *mut c_void,
) -> ucs_status_t {
    let param = placed(typed(with_tag_recv_cb(None), datatype), req);
    // SAFETY: the caller keeps the contract of the function called.
    let posted = unsafe { ucp_tag_recv_nbx(worker, buffer, count, tag, tag_mask, &param) };
    if UCS_PTR_IS_ERR(posted) {
        UCS_PTR_STATUS(posted)
    } else {
        UCS_OK
    }
}

/// Receives a message that a probe found; deprecated for `ucp_tag_msg_recv_nbx`.
///
/// # Safety
/// The conditions of [`ucp_tag_msg_recv_nbx`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_tag_msg_recv_nb(
    worker: ucp_worker_h,
    buffer: *mut c_void,
    count: usize,
    datatype: ucp_datatype_t,
    message: ucp_tag_message_h,
    cb: ucp_tag_recv_callback_t,
) -> ucs_status_ptr_t {
    let param = typed(with_tag_recv_cb(cb), datatype);
    // SAFETY: the caller keeps the contract of the function called.
    unsafe { ucp_tag_msg_recv_nbx(worker, buffer, count, message, &param) }
}
