//! Parameters and attributes of endpoints.

use super::{
    UCP_ENTITY_NAME_MAX, from_raw, ucp_address_t, ucp_conn_request_h, ucp_err_handler_cb_t,
    ucs_sock_addr_t,
};
use std::ffi::{c_char, c_uint, c_void};
use std::mem::MaybeUninit;

/// What is guaranteed when the peer fails.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_err_handling_mode {
    /// Nothing; the fastest.
    UCP_ERR_HANDLING_MODE_NONE,
    /// Every request ends, and the error handler is called.
    UCP_ERR_HANDLING_MODE_PEER,
    /// The guarantees of PEER, after other paths to the peer were tried.
    UCP_ERR_HANDLING_MODE_FAILOVER,
}
pub use ucp_err_handling_mode::*;
/// What is guaranteed when the peer fails.
pub type ucp_err_handling_mode_t = ucp_err_handling_mode;

from_raw!(ucp_err_handling_mode: UCP_ERR_HANDLING_MODE_NONE, UCP_ERR_HANDLING_MODE_PEER,
    UCP_ERR_HANDLING_MODE_FAILOVER);

/// Callback for the failure of an endpoint.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_err_handler {
    /// Called once; may be NULL.
    pub cb: ucp_err_handler_cb_t,
    /// Its first argument, unless the endpoint has `user_data`.
    pub arg: *mut c_void,
}
/// Callback for the failure of an endpoint.
pub type ucp_err_handler_t = ucp_err_handler;

/// Which fields of `ucp_ep_params_t` are set.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_ep_params_field {
    /// `address`
    UCP_EP_PARAM_FIELD_REMOTE_ADDRESS = 1 << 0,
    /// `err_mode`
    UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE = 1 << 1,
    /// `err_handler`
    UCP_EP_PARAM_FIELD_ERR_HANDLER = 1 << 2,
    /// `user_data`
    UCP_EP_PARAM_FIELD_USER_DATA = 1 << 3,
    /// `sockaddr`
    UCP_EP_PARAM_FIELD_SOCK_ADDR = 1 << 4,
    /// `flags`
    UCP_EP_PARAM_FIELD_FLAGS = 1 << 5,
    /// `conn_request`
    UCP_EP_PARAM_FIELD_CONN_REQUEST = 1 << 6,
    /// `name`
    UCP_EP_PARAM_FIELD_NAME = 1 << 7,
    /// `local_sockaddr`
    UCP_EP_PARAM_FIELD_LOCAL_SOCK_ADDR = 1 << 8,
}
pub use ucp_ep_params_field::*;

/// Flags of an endpoint.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_ep_params_flags_field {
    /// Connect to the listener at `sockaddr`.
    UCP_EP_PARAMS_FLAGS_CLIENT_SERVER = 1 << 0,
    /// Never connect an endpoint to itself.
    UCP_EP_PARAMS_FLAGS_NO_LOOPBACK = 1 << 1,
    /// Send the worker's client id to the server.
    UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID = 1 << 2,
}
pub use ucp_ep_params_flags_field::*;

/// Parameters of `ucp_ep_create`.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_ep_params {
    /// Which fields are set, from `ucp_ep_params_field`.
    pub field_mask: u64,
    /// Address of the worker to reach.
    pub address: *const ucp_address_t,
    /// What is guaranteed when the peer fails.
    pub err_mode: MaybeUninit<ucp_err_handling_mode_t>,
    /// Callback for the failure.
    pub err_handler: ucp_err_handler_t,
    /// Argument of the error handler, and of the stream poll.
    pub user_data: *mut c_void,
    /// From `ucp_ep_params_flags_field`.
    pub flags: c_uint,
    /// Address of the listener to reach.
    pub sockaddr: ucs_sock_addr_t,
    /// The connection request to accept.
    pub conn_request: ucp_conn_request_h,
    /// Name for logs.
    pub name: *const c_char,
    /// Address to connect from.
    pub local_sockaddr: ucs_sock_addr_t,
}
/// Parameters of `ucp_ep_create`.
pub type ucp_ep_params_t = ucp_ep_params;

/// A transport and the device it uses.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_transport_entry {
    /// Valid as long as the endpoint is.
    pub transport_name: *const c_char,
    /// Valid as long as the endpoint is.
    pub device_name: *const c_char,
}
/// A transport and the device it uses.
pub type ucp_transport_entry_t = ucp_transport_entry;

/// The transports of an endpoint.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_transports {
    /// The caller's array.
    pub entries: *mut ucp_transport_entry_t,
    /// In: its length. Out: how many were filled in.
    pub num_entries: c_uint,
    /// Bytes of an entry in the caller's version of the type.
    pub entry_size: usize,
}
/// The transports of an endpoint.
pub type ucp_transports_t = ucp_transports;

/// Which fields of `ucp_ep_attr_t` are requested.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_ep_attr_field {
    /// `name`
    UCP_EP_ATTR_FIELD_NAME = 1 << 0,
    /// `local_sockaddr`
    UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR = 1 << 1,
    /// `remote_sockaddr`
    UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR = 1 << 2,
    /// `transports`
    UCP_EP_ATTR_FIELD_TRANSPORTS = 1 << 3,
    /// `user_data`
    UCP_EP_ATTR_FIELD_USER_DATA = 1 << 4,
}
pub use ucp_ep_attr_field::*;

/// Attributes of an endpoint.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_ep_attr {
    /// Which fields are requested, from `ucp_ep_attr_field`.
    pub field_mask: u64,
    /// Its name.
    pub name: [c_char; UCP_ENTITY_NAME_MAX],
    /// Its own socket address.
    pub local_sockaddr: libc::sockaddr_storage,
    /// The peer's socket address.
    pub remote_sockaddr: libc::sockaddr_storage,
    /// Its transports.
    pub transports: ucp_transports_t,
    /// What it was created with.
    pub user_data: *mut c_void,
}
/// Attributes of an endpoint.
pub type ucp_ep_attr_t = ucp_ep_attr;

/// How an endpoint is closed.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_ep_close_flags {
    /// At once, outstanding operations are cancelled.
    UCP_EP_CLOSE_FLAG_FORCE = 1 << 0,
}
pub use ucp_ep_close_flags::*;
/// How an endpoint is closed.
pub type ucp_ep_close_flags_t = ucp_ep_close_flags;

/// Which fields of `ucp_ep_evaluate_perf_param_t` are set.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_ep_perf_param_field {
    /// `message_size`
    UCP_EP_PERF_PARAM_FIELD_MESSAGE_SIZE = 1 << 0,
}
pub use ucp_ep_perf_param_field::*;
/// Which fields of `ucp_ep_evaluate_perf_param_t` are set.
pub type ucp_ep_perf_param_field_t = ucp_ep_perf_param_field;

/// Which fields of `ucp_ep_evaluate_perf_attr_t` are requested.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_ep_perf_attr_field {
    /// `estimated_time`
    UCP_EP_PERF_ATTR_FIELD_ESTIMATED_TIME = 1 << 0,
}
pub use ucp_ep_perf_attr_field::*;
/// Which fields of `ucp_ep_evaluate_perf_attr_t` are requested.
pub type ucp_ep_perf_attr_field_t = ucp_ep_perf_attr_field;

/// What to estimate.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_ep_evaluate_perf_param {
    /// Which fields are set, from `ucp_ep_perf_param_field_t`.
    pub field_mask: u64,
    /// Bytes of the message.
    pub message_size: usize,
}
/// What to estimate.
pub type ucp_ep_evaluate_perf_param_t = ucp_ep_evaluate_perf_param;

/// An estimate.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_ep_evaluate_perf_attr {
    /// Which fields are requested, from `ucp_ep_perf_attr_field_t`.
    pub field_mask: u64,
    /// Seconds that the message would take.
    pub estimated_time: f64,
}
/// An estimate.
pub type ucp_ep_evaluate_perf_attr_t = ucp_ep_evaluate_perf_attr;

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<ucp_ep_params>() == 104);
    assert!(offset_of!(ucp_ep_params, err_handler) == 24);
    assert!(offset_of!(ucp_ep_params, local_sockaddr) == 88);
    assert!(size_of::<ucp_ep_attr>() == 328);
    assert!(offset_of!(ucp_ep_attr, transports) == 296);
    assert!(size_of::<ucp_transport_entry>() == 16);
    assert!(size_of::<ucp_ep_evaluate_perf_param>() == 16);
    assert!(size_of::<ucp_ep_evaluate_perf_attr>() == 16);
};
