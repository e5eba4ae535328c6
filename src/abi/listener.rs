//! Listeners and connection requests.

use super::output::{inherited, invalid};
use super::socket_address;
use super::worker::worker_of;
use crate::ctypes::*;
use crate::engine::cm::{ConnHandler, ConnRequest, Listener};
use crate::proto::cm;

/// Listens for clients. A listener is destroyed before its worker.
///
/// # Safety
/// A live worker; `params` valid in the fields that its mask names; `listener_p` writable.
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
    // SAFETY: the mask is always there; fields under the mask.
    unsafe {
        let mask = (*params).field_mask;
        let has = |bit: ucp_listener_params_field| mask & bit as u64 != 0;
        if !has(UCP_LISTENER_PARAM_FIELD_SOCK_ADDR) {
            return invalid(NAME, "no socket address");
        }
        let handler = match (
            has(UCP_LISTENER_PARAM_FIELD_CONN_HANDLER),
            has(UCP_LISTENER_PARAM_FIELD_ACCEPT_HANDLER),
        ) {
            (true, false) => ConnHandler::Request((*params).conn_handler),
            (false, true) => ConnHandler::Accepted((*params).accept_handler),
            _ => {
                return invalid(
                    NAME,
                    "exactly one of accept_handler and conn_handler must be given",
                );
            }
        };
        let is_null = match handler {
            ConnHandler::Request(handler) => handler.cb.is_none(),
            ConnHandler::Accepted(handler) => handler.cb.is_none(),
        };
        if is_null {
            return invalid(NAME, "the handler's callback is null");
        }
        let Some(at) = socket_address::read(&(*params).sockaddr) else {
            return invalid(NAME, "no address of a family that is known");
        };
        let worker = worker_of(worker);
        if worker.is_inherited() {
            return inherited(NAME);
        }
        match cm::listen(worker, at, handler) {
            Ok(listener) => {
                listener_p.write(Box::into_raw(listener).cast());
                UCS_OK
            }
            Err(status) => status,
        }
    }
}

/// Stops listening. Requests that the program holds can still be accepted or rejected.
///
/// # Safety
/// A live listener, its worker lives; null does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_listener_destroy(listener: ucp_listener_h) {
    if listener.is_null() {
        return;
    }
    // SAFETY: the caller's handle, which came from `ucp_listener_create`.
    unsafe {
        if (*listener.cast::<Listener>()).worker.get().is_inherited() {
            return;
        }
        let listener = Box::from_raw(listener.cast::<Listener>());
        cm::unlisten(listener.worker.get(), listener.token);
    }
}

/// Returns the address of a listener.
///
/// # Safety
/// A live listener; `attr` valid in the fields that its mask names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_listener_query(
    listener: ucp_listener_h,
    attr: *mut ucp_listener_attr_t,
) -> ucs_status_t {
    if listener.is_null() || attr.is_null() {
        return invalid("ucp_listener_query", "listener or attr is null");
    }
    // SAFETY: the caller's handle; fields under the mask, through raw pointers.
    unsafe {
        if (*attr).field_mask & UCP_LISTENER_ATTR_FIELD_SOCKADDR as u64 != 0 {
            let address = (*listener.cast::<Listener>()).address;
            socket_address::write(&raw mut (*attr).sockaddr, address);
        }
    }
    UCS_OK
}

/// Rejects a client. The request is freed.
///
/// # Safety
/// A live listener.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_listener_reject(
    listener: ucp_listener_h,
    conn_request: ucp_conn_request_h,
) -> ucs_status_t {
    const NAME: &str = "ucp_listener_reject";
    if listener.is_null() || conn_request.is_null() {
        return invalid(NAME, "listener or conn_request is null");
    }
    // SAFETY: the caller's handle, whose worker lives.
    if unsafe { (*listener.cast::<Listener>()).worker.get().is_inherited() } {
        return inherited(NAME);
    }
    match ConnRequest::take(conn_request as usize) {
        Some(mut request) => {
            cm::reject(&mut request.contact, UCS_ERR_REJECTED);
            UCS_OK
        }
        None => invalid(NAME, "this connection request was answered before"),
    }
}

/// Returns attributes of the client of a request.
///
/// # Safety
/// A request that was not accepted or rejected; `attr` valid in the fields that its mask names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_conn_request_query(
    conn_request: ucp_conn_request_h,
    attr: *mut ucp_conn_request_attr_t,
) -> ucs_status_t {
    const NAME: &str = "ucp_conn_request_query";
    if conn_request.is_null() || attr.is_null() {
        return invalid(NAME, "conn_request or attr is null");
    }
    let asked = ConnRequest::with(conn_request as usize, |request| {
        (request.remote, request.hello)
    });
    let Some((remote, hello)) = asked else {
        return invalid(NAME, "this connection request was answered before");
    };
    // SAFETY: fields under the mask, through raw pointers.
    unsafe {
        let mask = (*attr).field_mask;
        let has = |bit: ucp_conn_request_attr_field| mask & bit as u64 != 0;
        if has(UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID) {
            // 0 from a client that sends none, as in UCX.
            (*attr).client_id = hello.client_id;
        }
        if has(UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR) {
            socket_address::write(&raw mut (*attr).client_address, remote);
        }
    }
    UCS_OK
}
