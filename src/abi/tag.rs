//! Tagged messages.

use super::endpoint::endpoint_of;
use super::output::{inherited, invalid, invalid_request};
use super::worker::worker_of;
use crate::ctypes::*;
use crate::engine::unexpected::DetachedMsg;
use crate::fast::{recv, send};
use crate::op;
use crate::op::param::{Param, status_ptr};
use std::ffi::{c_int, c_void};

/// Sends; completes when the buffer can be used again.
///
/// # Safety
/// A live endpoint; `param` valid in the fields that its mask names; the buffer readable until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_tag_send_nbx(
    ep: ucp_ep_h,
    buffer: *const c_void,
    count: usize,
    tag: ucp_tag_t,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    if ep.is_null() || param.is_null() {
        return invalid_request("ucp_tag_send_nbx", "ep or param is null");
    }
    // SAFETY: the caller's promises.
    unsafe { send::tag_send(endpoint_of(ep), buffer, count, tag, param) }
}

/// Sends; completes when a receive has taken the message.
///
/// # Safety
/// As `ucp_tag_send_nbx`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_tag_send_sync_nbx(
    ep: ucp_ep_h,
    buffer: *const c_void,
    count: usize,
    tag: ucp_tag_t,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    if ep.is_null() || param.is_null() {
        return invalid_request("ucp_tag_send_sync_nbx", "ep or param is null");
    }
    // SAFETY: the caller's promises.
    unsafe {
        let extra = (*endpoint_of(ep)).worker.get().extra_op_flags();
        op::tag::send(
            endpoint_of(ep),
            buffer,
            count,
            tag,
            &Param::new(param, extra),
            true,
        )
    }
}

/// Receives a message whose tag agrees in the bits of the mask.
///
/// # Safety
/// A live worker; `param` valid in the fields that its mask names; the buffer writable until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_tag_recv_nbx(
    worker: ucp_worker_h,
    buffer: *mut c_void,
    count: usize,
    tag: ucp_tag_t,
    tag_mask: ucp_tag_t,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    if worker.is_null() || param.is_null() {
        return invalid_request("ucp_tag_recv_nbx", "worker or param is null");
    }
    // SAFETY: the caller's promises.
    unsafe { recv::tag_recv(worker_of(worker), buffer, count, tag, tag_mask, param) }
}

/// Finds an unexpected message, without progress.
///
/// # Safety
/// A live worker; `info` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_tag_probe_nb(
    worker: ucp_worker_h,
    tag: ucp_tag_t,
    tag_mask: ucp_tag_t,
    remove: c_int,
    info: *mut ucp_tag_recv_info_t,
) -> ucp_tag_message_h {
    if worker.is_null() {
        invalid("ucp_tag_probe_nb", "worker is null");
        return std::ptr::null_mut();
    }
    // SAFETY: the caller's promises.
    unsafe {
        if worker_of(worker).is_inherited() {
            return std::ptr::null_mut();
        }
        op::tag::probe(worker_of(worker), tag, tag_mask, remove != 0, info)
    }
}

/// Receives a message that a probe has removed.
///
/// # Safety
/// As `ucp_tag_recv_nbx`; `message` from a probe with `remove`, not received before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_tag_msg_recv_nbx(
    worker: ucp_worker_h,
    buffer: *mut c_void,
    count: usize,
    message: ucp_tag_message_h,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    if worker.is_null() || message.is_null() || param.is_null() {
        return invalid_request("ucp_tag_msg_recv_nbx", "worker, message or param is null");
    }
    // SAFETY: the caller's promises; the message is made by `probe`.
    unsafe {
        if worker_of(worker).is_inherited() {
            return status_ptr(inherited("ucp_tag_msg_recv_nbx"));
        }
        let (w, removed) = (
            worker_of(worker),
            Box::from_raw(message.cast::<DetachedMsg>()),
        );
        op::tag::recv_removed(
            w,
            buffer,
            count,
            removed,
            &Param::new(param, w.extra_op_flags()),
        )
    }
}
