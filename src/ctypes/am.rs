//! Flags of active messages and parameters of their handlers.

use super::ucp_am_recv_callback_t;
use std::ffi::{c_uint, c_void};

/// Flags of a handler.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_am_cb_flags {
    /// Call it with whole messages.
    UCP_AM_FLAG_WHOLE_MSG = 1 << 0,
    /// It may keep the data of any message.
    UCP_AM_FLAG_PERSISTENT_DATA = 1 << 1,
}
pub use ucp_am_cb_flags::*;

/// Flags of a send.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_send_am_flags {
    /// Give the receiver an endpoint to answer by.
    UCP_AM_SEND_FLAG_REPLY = 1 << 0,
    /// Send the data at once.
    UCP_AM_SEND_FLAG_EAGER = 1 << 1,
    /// Send it by rendezvous.
    UCP_AM_SEND_FLAG_RNDV = 1 << 2,
    /// The header may change as soon as the send returns.
    UCP_AM_SEND_FLAG_COPY_HEADER = 1 << 3,
}
pub use ucp_send_am_flags::*;

/// Older name of `UCP_AM_SEND_FLAG_REPLY`.
pub const UCP_AM_SEND_REPLY: u32 = UCP_AM_SEND_FLAG_REPLY as u32;

/// Flags that a handler of the nb family gets.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_cb_param_flags {
    /// It may keep the data.
    UCP_CB_PARAM_FLAG_DATA = 1 << 0,
}
pub use ucp_cb_param_flags::*;

/// Which fields of `ucp_am_recv_param_t` are set, and what `data` is.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_am_recv_attr {
    /// `reply_ep`
    UCP_AM_RECV_ATTR_FIELD_REPLY_EP = 1 << 0,
    /// The handler may keep the data.
    UCP_AM_RECV_ATTR_FLAG_DATA = 1 << 16,
    /// The data is still at the sender.
    UCP_AM_RECV_ATTR_FLAG_RNDV = 1 << 17,
}
pub use ucp_am_recv_attr::*;
/// Which fields of `ucp_am_recv_param_t` are set, and what `data` is.
pub type ucp_am_recv_attr_t = ucp_am_recv_attr;

/// Which fields of `ucp_am_handler_param_t` are set.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_am_handler_param_field {
    /// `id`
    UCP_AM_HANDLER_PARAM_FIELD_ID = 1 << 0,
    /// `flags`
    UCP_AM_HANDLER_PARAM_FIELD_FLAGS = 1 << 1,
    /// `cb`
    UCP_AM_HANDLER_PARAM_FIELD_CB = 1 << 2,
    /// `arg`
    UCP_AM_HANDLER_PARAM_FIELD_ARG = 1 << 3,
}
pub use ucp_am_handler_param_field::*;

/// Parameters of `ucp_worker_set_am_recv_handler`.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_am_handler_param {
    /// Which fields are set, from `ucp_am_handler_param_field`.
    pub field_mask: u64,
    /// Messages with this number.
    pub id: c_uint,
    /// From `ucp_am_cb_flags`.
    pub flags: u32,
    /// The handler; NULL takes it away.
    pub cb: ucp_am_recv_callback_t,
    /// Its first argument.
    pub arg: *mut c_void,
}
/// Parameters of `ucp_worker_set_am_recv_handler`.
pub type ucp_am_handler_param_t = ucp_am_handler_param;

const _: () = assert!(size_of::<ucp_am_handler_param>() == 32);
