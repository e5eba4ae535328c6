//! Flushing, changing and closing endpoints, deprecated forms.

use super::compat_params::{EMPTY, flagged, wait, with_send_cb};
use crate::abi::endpoint::{modify_ep, ucp_ep_close_nbx, ucp_ep_flush_nbx};
use crate::abi::worker::worker_of_ep;
use crate::ctypes::*;
use std::ffi::c_uint;

/// Flushes and closes an endpoint and progresses until that is done; deprecated for `ucp_ep_close_nbx`.
///
/// # Safety
/// The conditions of [`ucp_ep_close_nbx`]; not from a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_ep_destroy(ep: ucp_ep_h) {
    // SAFETY: the caller keeps the contract of the functions called; the worker outlives the endpoint.
    // The function has no result for a failure: the endpoint is closed either way.
    unsafe { wait(worker_of_ep(ep), ucp_ep_close_nbx(ep, &EMPTY)) };
}

/// Flushes and closes an endpoint; deprecated for `ucp_ep_close_nbx`.
///
/// # Safety
/// The conditions of [`ucp_ep_close_nbx`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_disconnect_nb(ep: ucp_ep_h) -> ucs_status_ptr_t {
    // SAFETY: the caller keeps the contract of the function called.
    unsafe { ucp_ep_close_nbx(ep, &EMPTY) }
}

/// Closes an endpoint as `ucp_ep_close_mode` says; deprecated for `ucp_ep_close_nbx`.
///
/// # Safety
/// The conditions of [`ucp_ep_close_nbx`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_ep_close_nb(ep: ucp_ep_h, mode: c_uint) -> ucs_status_ptr_t {
    let param = match mode {
        x if x == UCP_EP_CLOSE_MODE_FORCE as c_uint => {
            flagged(EMPTY, UCP_EP_CLOSE_FLAG_FORCE as u32)
        }
        x if x == UCP_EP_CLOSE_MODE_FLUSH as c_uint => EMPTY,
        _ => return UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM),
    };
    // SAFETY: the caller keeps the contract of the function called.
    unsafe { ucp_ep_close_nbx(ep, &param) }
}

/// Changes `user_data` and `err_handler` of an endpoint.
///
/// Its connection and its error handling mode cannot change.
///
/// # Safety
/// `ep` is an open endpoint; `params` points to fields as its mask says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_ep_modify_nb(
    ep: ucp_ep_h,
    params: *const ucp_ep_params_t,
) -> ucs_status_ptr_t {
    const FIXED: u64 = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS as u64
        | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE as u64
        | UCP_EP_PARAM_FIELD_SOCK_ADDR as u64
        | UCP_EP_PARAM_FIELD_CONN_REQUEST as u64
        | UCP_EP_PARAM_FIELD_LOCAL_SOCK_ADDR as u64;
    if ep.is_null() || params.is_null() {
        return UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM);
    }
    // SAFETY: `params` is not NULL and the mask is always there; a field is read only under its bit.
    unsafe {
        let mask = (*params).field_mask;
        if mask & FIXED != 0 {
            return UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM);
        }
        let has = |field: ucp_ep_params_field| mask & field as u64 != 0;
        let user_data = has(UCP_EP_PARAM_FIELD_USER_DATA).then(|| (*params).user_data);
        let err_handler = has(UCP_EP_PARAM_FIELD_ERR_HANDLER).then(|| (*params).err_handler);
        modify_ep(ep, user_data, err_handler);
    }
    UCS_STATUS_PTR(UCS_OK)
}

/// Flushes an endpoint and progresses until that is done; deprecated for `ucp_ep_flush_nbx`.
///
/// # Safety
/// The conditions of [`ucp_ep_flush_nbx`]; not from a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_ep_flush(ep: ucp_ep_h) -> ucs_status_t {
    // SAFETY: the caller keeps the contract of the function called; no other reference to the request exists.
    unsafe { wait(worker_of_ep(ep), ucp_ep_flush_nbx(ep, &EMPTY)) }
}

/// Flushes an endpoint; deprecated for `ucp_ep_flush_nbx`. No flag exists.
///
/// # Safety
/// The conditions of [`ucp_ep_flush_nbx`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_ep_flush_nb(
    ep: ucp_ep_h,
    flags: c_uint,
    cb: ucp_send_callback_t,
) -> ucs_status_ptr_t {
    let _ = flags;
    // SAFETY: the caller keeps the contract of the function called.
    unsafe { ucp_ep_flush_nbx(ep, &with_send_cb(cb)) }
}
