//! Types that only the deprecated functions use.

use super::{from_raw, ucp_listener_accept_callback_t};
use std::ffi::c_void;

/// Callback for an accepted client.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_listener_accept_handler {
    /// Gets the endpoint.
    pub cb: ucp_listener_accept_callback_t,
    /// Its second argument.
    pub arg: *mut c_void,
}
/// Callback for an accepted client.
pub type ucp_listener_accept_handler_t = ucp_listener_accept_handler;

/// Atomics without a reply.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_atomic_post_op {
    /// Add.
    UCP_ATOMIC_POST_OP_ADD,
    /// Bitwise and.
    UCP_ATOMIC_POST_OP_AND,
    /// Bitwise or.
    UCP_ATOMIC_POST_OP_OR,
    /// Bitwise exclusive or.
    UCP_ATOMIC_POST_OP_XOR,
    /// Number of operations.
    UCP_ATOMIC_POST_OP_LAST,
}
pub use ucp_atomic_post_op::*;
/// Atomics without a reply.
pub type ucp_atomic_post_op_t = ucp_atomic_post_op;

from_raw!(ucp_atomic_post_op: UCP_ATOMIC_POST_OP_ADD, UCP_ATOMIC_POST_OP_AND, UCP_ATOMIC_POST_OP_OR,
    UCP_ATOMIC_POST_OP_XOR);

/// Atomics that return the old value.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_atomic_fetch_op {
    /// Add.
    UCP_ATOMIC_FETCH_OP_FADD,
    /// Replace.
    UCP_ATOMIC_FETCH_OP_SWAP,
    /// Replace when equal.
    UCP_ATOMIC_FETCH_OP_CSWAP,
    /// Bitwise and.
    UCP_ATOMIC_FETCH_OP_FAND,
    /// Bitwise or.
    UCP_ATOMIC_FETCH_OP_FOR,
    /// Bitwise exclusive or.
    UCP_ATOMIC_FETCH_OP_FXOR,
    /// Number of operations.
    UCP_ATOMIC_FETCH_OP_LAST,
}
pub use ucp_atomic_fetch_op::*;
/// Atomics that return the old value.
pub type ucp_atomic_fetch_op_t = ucp_atomic_fetch_op;

from_raw!(ucp_atomic_fetch_op: UCP_ATOMIC_FETCH_OP_FADD, UCP_ATOMIC_FETCH_OP_SWAP, UCP_ATOMIC_FETCH_OP_CSWAP,
    UCP_ATOMIC_FETCH_OP_FAND, UCP_ATOMIC_FETCH_OP_FOR, UCP_ATOMIC_FETCH_OP_FXOR);

/// How `ucp_ep_close_nb` closes.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_ep_close_mode {
    /// At once, outstanding operations are cancelled.
    UCP_EP_CLOSE_MODE_FORCE = 0,
    /// After outstanding operations.
    UCP_EP_CLOSE_MODE_FLUSH = 1,
}
pub use ucp_ep_close_mode::*;
