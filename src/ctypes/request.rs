//! Parameters of every non-blocking operation and attributes of the request that it makes.

use super::{
    ucp_am_recv_data_nbx_callback_t, ucp_datatype_t, ucp_mem_h, ucp_send_nbx_callback_t,
    ucp_stream_recv_nbx_callback_t, ucp_tag_recv_info_t, ucp_tag_recv_nbx_callback_t,
    ucs_memory_type_t, ucs_status_t,
};
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;

/// Which fields of `ucp_request_param_t` are set, and how the operation ends.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_op_attr {
    /// `request`
    UCP_OP_ATTR_FIELD_REQUEST = 1 << 0,
    /// `cb`
    UCP_OP_ATTR_FIELD_CALLBACK = 1 << 1,
    /// `user_data`
    UCP_OP_ATTR_FIELD_USER_DATA = 1 << 2,
    /// `datatype`
    UCP_OP_ATTR_FIELD_DATATYPE = 1 << 3,
    /// `flags`
    UCP_OP_ATTR_FIELD_FLAGS = 1 << 4,
    /// `reply_buffer`
    UCP_OP_ATTR_FIELD_REPLY_BUFFER = 1 << 5,
    /// `memory_type`
    UCP_OP_ATTR_FIELD_MEMORY_TYPE = 1 << 6,
    /// `recv_info`
    UCP_OP_ATTR_FIELD_RECV_INFO = 1 << 7,
    /// `memh`
    UCP_OP_ATTR_FIELD_MEMH = 1 << 8,
    /// `remote_datatype`
    UCP_OP_ATTR_FIELD_REMOTE_DATATYPE = 1 << 9,
    /// `remote`
    UCP_OP_ATTR_FIELD_REMOTE = 1 << 10,
    /// `remote_count`
    UCP_OP_ATTR_FIELD_REMOTE_COUNT = 1 << 11,
    /// Always make a request and call back, even when the operation ends at once. So do flushes and closes that have
    /// nothing to do, where UCX gives NULL; a put or a get of no bytes, and a forced close, give NULL here, too.
    UCP_OP_ATTR_FLAG_NO_IMM_CMPL = 1 << 16,
    /// Complete early rather than cheaply.
    UCP_OP_ATTR_FLAG_FAST_CMPL = 1 << 17,
    /// Complete at once or fail with `UCS_ERR_NO_RESOURCE`.
    UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL = 1 << 18,
    /// Many sends are outstanding: bandwidth before latency.
    UCP_OP_ATTR_FLAG_MULTI_SEND = 1 << 19,
}
pub use ucp_op_attr::*;
/// Which fields of `ucp_request_param_t` are set, and how the operation ends.
pub type ucp_op_attr_t = ucp_op_attr;

/// The callback of an operation, by kind.
#[repr(C)]
#[derive(Copy, Clone)]
pub union ucp_request_param_cb {
    /// Of everything that sends.
    pub send: ucp_send_nbx_callback_t,
    /// Of a tag receive.
    pub recv: ucp_tag_recv_nbx_callback_t,
    /// Of a stream receive.
    pub recv_stream: ucp_stream_recv_nbx_callback_t,
    /// Of the data of an active message.
    pub recv_am: ucp_am_recv_data_nbx_callback_t,
}

/// Result of a receive that completes at once, by kind.
#[repr(C)]
#[derive(Copy, Clone)]
pub union ucp_request_param_recv_info {
    /// Of the data of an active message.
    pub length: *mut usize,
    /// Of a tag receive.
    pub tag_info: *mut ucp_tag_recv_info_t,
}

/// Parameters of a non-blocking operation.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_request_param {
    /// Which fields are set and how the operation ends, from `ucp_op_attr_t`.
    pub op_attr_mask: u32,
    /// Flags of the kind of operation.
    pub flags: u32,
    /// End of the memory that the program supplies for the request.
    pub request: *mut c_void,
    /// Called at completion.
    pub cb: ucp_request_param_cb,
    /// Layout of the buffer.
    pub datatype: ucp_datatype_t,
    /// Last argument of the callback.
    pub user_data: *mut c_void,
    /// Buffer for the old value of an atomic.
    pub reply_buffer: *mut c_void,
    /// Kind of memory of the buffer.
    pub memory_type: MaybeUninit<ucs_memory_type_t>,
    /// Result of a receive that completes at once.
    pub recv_info: ucp_request_param_recv_info,
    /// Handle of the memory that the buffer is in.
    pub memh: ucp_mem_h,
    /// Layout of `remote`.
    pub remote_datatype: ucp_datatype_t,
    /// Describes the remote memory.
    pub remote: *const c_void,
    /// Number of elements of `remote`.
    pub remote_count: usize,
}
/// Parameters of a non-blocking operation.
pub type ucp_request_param_t = ucp_request_param;

/// Which fields of `ucp_request_attr_t` are requested.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_request_attr_field {
    /// `debug_string`
    UCP_REQUEST_ATTR_FIELD_INFO_STRING = 1 << 0,
    /// `debug_string_size`
    UCP_REQUEST_ATTR_FIELD_INFO_STRING_SIZE = 1 << 1,
    /// `status`
    UCP_REQUEST_ATTR_FIELD_STATUS = 1 << 2,
    /// `mem_type`
    UCP_REQUEST_ATTR_FIELD_MEM_TYPE = 1 << 3,
}
pub use ucp_request_attr_field::*;
/// Which fields of `ucp_request_attr_t` are requested.
pub type ucp_req_attr_field = ucp_request_attr_field;

/// Attributes of a request.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_request_attr {
    /// Which fields are requested, from `ucp_req_attr_field`.
    pub field_mask: u64,
    /// The caller's buffer for a text about the request.
    pub debug_string: *mut c_char,
    /// Its size.
    pub debug_string_size: usize,
    /// Status of the request.
    pub status: ucs_status_t,
    /// Kind of memory of its buffer.
    pub mem_type: ucs_memory_type_t,
}
/// Attributes of a request.
pub type ucp_request_attr_t = ucp_request_attr;

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<ucp_request_param>() == 96);
    assert!(offset_of!(ucp_request_param, request) == 8);
    assert!(offset_of!(ucp_request_param, cb) == 16);
    assert!(offset_of!(ucp_request_param, datatype) == 24);
    assert!(offset_of!(ucp_request_param, user_data) == 32);
    assert!(offset_of!(ucp_request_param, reply_buffer) == 40);
    assert!(offset_of!(ucp_request_param, memory_type) == 48);
    assert!(offset_of!(ucp_request_param, recv_info) == 56);
    assert!(offset_of!(ucp_request_param, memh) == 64);
    assert!(offset_of!(ucp_request_param, remote_datatype) == 72);
    assert!(size_of::<ucp_request_attr>() == 32);
    assert!(offset_of!(ucp_request_attr, status) == 24);
    assert!(offset_of!(ucp_request_attr, mem_type) == 28);
};
