//! Flags of stream receives and the result of the stream poll.

use super::ucp_ep_h;
use std::ffi::{c_uint, c_void};

/// Flags of a stream receive.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_stream_recv_flags {
    /// Complete only when the whole buffer is full.
    UCP_STREAM_RECV_FLAG_WAITALL = 1 << 0,
}
pub use ucp_stream_recv_flags::*;
/// Flags of a stream receive.
pub type ucp_stream_recv_flags_t = ucp_stream_recv_flags;

/// An endpoint that has stream data.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_stream_poll_ep {
    /// The endpoint.
    pub ep: ucp_ep_h,
    /// The `user_data` that it was created with.
    pub user_data: *mut c_void,
    /// None exists yet.
    pub flags: c_uint,
    /// Reserved.
    pub reserved: [u8; 16],
}
/// An endpoint that has stream data.
pub type ucp_stream_poll_ep_t = ucp_stream_poll_ep;

const _: () = assert!(size_of::<ucp_stream_poll_ep>() == 40);
