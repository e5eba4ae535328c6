//! Listeners: need a network transport, which this version does not have.

use super::output::invalid;
use crate::ctypes::*;

/// Checks its parameters as UCP does, then says that there is no transport for it.
///
/// # Safety
/// `params` is null or valid as far as its mask says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_listener_create(
    worker: ucp_worker_h,
    params: *const ucp_listener_params_t,
    listener_p: *mut ucp_listener_h,
) -> ucs_status_t {
    const NAME: &str = "ucp_listener_create";
    if worker.is_null() || params.is_null() || listener_p.is_null() {
        return invalid(NAME, "worker, params or listener_p is null");
    }
    // SAFETY: the mask is always there.
    let mask = unsafe { (*params).field_mask };
    let has = |bit: ucp_listener_params_field| mask & bit as u64 != 0;
    if !has(UCP_LISTENER_PARAM_FIELD_SOCK_ADDR) {
        return invalid(NAME, "no socket address");
    }
    if has(UCP_LISTENER_PARAM_FIELD_ACCEPT_HANDLER) == has(UCP_LISTENER_PARAM_FIELD_CONN_HANDLER) {
        return invalid(
            NAME,
            "exactly one of accept_handler and conn_handler must be given",
        );
    }
    UCS_ERR_UNSUPPORTED
}

/// There is no listener that could be destroyed.
#[unsafe(no_mangle)]
pub extern "C" fn ucp_listener_destroy(_listener: ucp_listener_h) {}

/// There is no listener to ask.
#[unsafe(no_mangle)]
pub extern "C" fn ucp_listener_query(
    listener: ucp_listener_h,
    attr: *mut ucp_listener_attr_t,
) -> ucs_status_t {
    if listener.is_null() || attr.is_null() {
        return invalid("ucp_listener_query", "listener or attr is null");
    }
    UCS_ERR_UNSUPPORTED
}

/// There is no connection request to reject.
#[unsafe(no_mangle)]
pub extern "C" fn ucp_listener_reject(
    listener: ucp_listener_h,
    conn_request: ucp_conn_request_h,
) -> ucs_status_t {
    if listener.is_null() || conn_request.is_null() {
        return invalid("ucp_listener_reject", "listener or conn_request is null");
    }
    UCS_ERR_UNSUPPORTED
}

/// There is no connection request to ask.
#[unsafe(no_mangle)]
pub extern "C" fn ucp_conn_request_query(
    conn_request: ucp_conn_request_h,
    attr: *mut ucp_conn_request_attr_t,
) -> ucs_status_t {
    if conn_request.is_null() || attr.is_null() {
        return invalid("ucp_conn_request_query", "conn_request or attr is null");
    }
    UCS_ERR_UNSUPPORTED
}
