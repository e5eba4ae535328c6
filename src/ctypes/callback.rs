//! The functions of the program that the library calls.

use super::{ucp_am_recv_param_t, ucp_conn_request_h, ucp_ep_h, ucp_tag_recv_info_t, ucs_status_t};
use std::ffi::{c_uint, c_void};
use std::mem::MaybeUninit;

/// Prepares the user area of a request, once in the request's life.
pub type ucp_request_init_callback_t = Option<unsafe extern "C" fn(request: *mut c_void)>;

/// Releases what the init callback made, when the pool is freed.
pub type ucp_request_cleanup_callback_t = Option<unsafe extern "C" fn(request: *mut c_void)>;

/// A send of the nb family completed.
pub type ucp_send_callback_t =
    Option<unsafe extern "C" fn(request: *mut c_void, status: ucs_status_t)>;

/// A send, put, get, atomic, flush or close completed.
pub type ucp_send_nbx_callback_t = Option<
    unsafe extern "C" fn(request: *mut c_void, status: ucs_status_t, user_data: *mut c_void),
>;

/// An endpoint failed.
pub type ucp_err_handler_cb_t =
    Option<unsafe extern "C" fn(arg: *mut c_void, ep: ucp_ep_h, status: ucs_status_t)>;

/// A client was accepted: `ep` is its endpoint.
pub type ucp_listener_accept_callback_t =
    Option<unsafe extern "C" fn(ep: ucp_ep_h, arg: *mut c_void)>;

/// A client requests a connection.
pub type ucp_listener_conn_callback_t =
    Option<unsafe extern "C" fn(conn_request: ucp_conn_request_h, arg: *mut c_void)>;

/// A stream receive of the nb family completed.
pub type ucp_stream_recv_callback_t =
    Option<unsafe extern "C" fn(request: *mut c_void, status: ucs_status_t, length: usize)>;

/// A stream receive completed.
pub type ucp_stream_recv_nbx_callback_t = Option<
    unsafe extern "C" fn(
        request: *mut c_void,
        status: ucs_status_t,
        length: usize,
        user_data: *mut c_void,
    ),
>;

/// A tag receive of the nb family completed.
pub type ucp_tag_recv_callback_t = Option<
    unsafe extern "C" fn(
        request: *mut c_void,
        status: ucs_status_t,
        info: *mut ucp_tag_recv_info_t,
    ),
>;

/// A tag receive completed.
pub type ucp_tag_recv_nbx_callback_t = Option<
    unsafe extern "C" fn(
        request: *mut c_void,
        status: ucs_status_t,
        tag_info: *const ucp_tag_recv_info_t,
        user_data: *mut c_void,
    ),
>;

/// The data of an active message arrived.
pub type ucp_am_recv_data_nbx_callback_t = Option<
    unsafe extern "C" fn(
        request: *mut c_void,
        status: ucs_status_t,
        length: usize,
        user_data: *mut c_void,
    ),
>;

/// An active message for a handler of the nb family arrived.
pub type ucp_am_callback_t = Option<
    unsafe extern "C" fn(
        arg: *mut c_void,
        data: *mut c_void,
        length: usize,
        reply_ep: ucp_ep_h,
        flags: c_uint,
    ) -> MaybeUninit<ucs_status_t>,
>;

/// An active message arrived.
pub type ucp_am_recv_callback_t = Option<
    unsafe extern "C" fn(
        arg: *mut c_void,
        header: *const c_void,
        header_length: usize,
        data: *mut c_void,
        length: usize,
        param: *const ucp_am_recv_param_t,
    ) -> MaybeUninit<ucs_status_t>,
>;
