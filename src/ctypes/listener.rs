//! Parameters and attributes of listeners and connection requests.

use super::{ucp_listener_accept_handler_t, ucp_listener_conn_callback_t, ucs_sock_addr_t};
use std::ffi::c_void;

/// Callback for a client that requests a connection.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_listener_conn_handler {
    /// Gets the connection request.
    pub cb: ucp_listener_conn_callback_t,
    /// Its second argument.
    pub arg: *mut c_void,
}
/// Callback for a client that requests a connection.
pub type ucp_listener_conn_handler_t = ucp_listener_conn_handler;

/// Which fields of `ucp_listener_params_t` are set.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_listener_params_field {
    /// `sockaddr`
    UCP_LISTENER_PARAM_FIELD_SOCK_ADDR = 1 << 0,
    /// `accept_handler`
    UCP_LISTENER_PARAM_FIELD_ACCEPT_HANDLER = 1 << 1,
    /// `conn_handler`
    UCP_LISTENER_PARAM_FIELD_CONN_HANDLER = 1 << 2,
}
pub use ucp_listener_params_field::*;

/// Parameters of `ucp_listener_create`.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_listener_params {
    /// Which fields are set, from `ucp_listener_params_field`.
    pub field_mask: u64,
    /// Address on which it listens.
    pub sockaddr: ucs_sock_addr_t,
    /// Gets an endpoint for each client.
    pub accept_handler: ucp_listener_accept_handler_t,
    /// Gets a connection request for each client.
    pub conn_handler: ucp_listener_conn_handler_t,
}
/// Parameters of `ucp_listener_create`.
pub type ucp_listener_params_t = ucp_listener_params;

/// Which fields of `ucp_listener_attr_t` are requested.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_listener_attr_field {
    /// `sockaddr`
    UCP_LISTENER_ATTR_FIELD_SOCKADDR = 1 << 0,
}
pub use ucp_listener_attr_field::*;

/// Attributes of a listener.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_listener_attr {
    /// Which fields are requested, from `ucp_listener_attr_field`.
    pub field_mask: u64,
    /// Address on which it listens.
    pub sockaddr: libc::sockaddr_storage,
}
/// Attributes of a listener.
pub type ucp_listener_attr_t = ucp_listener_attr;

/// Which fields of `ucp_conn_request_attr_t` are requested.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_conn_request_attr_field {
    /// `client_address`
    UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR = 1 << 0,
    /// `client_id`
    UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID = 1 << 1,
}
pub use ucp_conn_request_attr_field::*;

/// Attributes of a connection request.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_conn_request_attr {
    /// Which fields are requested, from `ucp_conn_request_attr_field`.
    pub field_mask: u64,
    /// The client's socket address.
    pub client_address: libc::sockaddr_storage,
    /// The client id of the client's worker.
    pub client_id: u64,
}
/// Attributes of a connection request.
pub type ucp_conn_request_attr_t = ucp_conn_request_attr;

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<ucp_listener_params>() == 56);
    assert!(offset_of!(ucp_listener_params, conn_handler) == 40);
    assert!(size_of::<ucp_listener_attr>() == 136);
    assert!(size_of::<ucp_conn_request_attr>() == 144);
    assert!(offset_of!(ucp_conn_request_attr, client_id) == 136);
};
