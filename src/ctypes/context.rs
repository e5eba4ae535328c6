//! Parameters and attributes of the library and of contexts.

use super::{
    UCP_ENTITY_NAME_MAX, ucp_request_cleanup_callback_t, ucp_request_init_callback_t,
    ucs_thread_mode_t,
};
use std::ffi::{c_char, c_int};

/// Which fields of `ucp_params_t` are set.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_params_field {
    /// `features`
    UCP_PARAM_FIELD_FEATURES = 1 << 0,
    /// `request_size`
    UCP_PARAM_FIELD_REQUEST_SIZE = 1 << 1,
    /// `request_init`
    UCP_PARAM_FIELD_REQUEST_INIT = 1 << 2,
    /// `request_cleanup`
    UCP_PARAM_FIELD_REQUEST_CLEANUP = 1 << 3,
    /// `tag_sender_mask`
    UCP_PARAM_FIELD_TAG_SENDER_MASK = 1 << 4,
    /// `mt_workers_shared`
    UCP_PARAM_FIELD_MT_WORKERS_SHARED = 1 << 5,
    /// `estimated_num_eps`
    UCP_PARAM_FIELD_ESTIMATED_NUM_EPS = 1 << 6,
    /// `estimated_num_ppn`
    UCP_PARAM_FIELD_ESTIMATED_NUM_PPN = 1 << 7,
    /// `name`
    UCP_PARAM_FIELD_NAME = 1 << 8,
    /// `node_local_id`
    UCP_PARAM_FIELD_NODE_LOCAL_ID = 1 << 9,
}
pub use ucp_params_field::*;

/// What a context will be used for.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_feature {
    /// Tagged messages.
    UCP_FEATURE_TAG = 1 << 0,
    /// Put and get.
    UCP_FEATURE_RMA = 1 << 1,
    /// 32-bit atomics.
    UCP_FEATURE_AMO32 = 1 << 2,
    /// 64-bit atomics.
    UCP_FEATURE_AMO64 = 1 << 3,
    /// Sleeping until something happens.
    UCP_FEATURE_WAKEUP = 1 << 4,
    /// Byte streams.
    UCP_FEATURE_STREAM = 1 << 5,
    /// Active messages.
    UCP_FEATURE_AM = 1 << 6,
    /// Memory handles that another process of the machine can take over.
    UCP_FEATURE_EXPORTED_MEMH = 1 << 7,
    /// Communication started by a device.
    UCP_FEATURE_DEVICE = 1 << 8,
}
pub use ucp_feature::*;

/// Parameters of `ucp_init`.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_params {
    /// Which fields are set, from `ucp_params_field`.
    pub field_mask: u64,
    /// What the context will be used for, from `ucp_feature`.
    pub features: u64,
    /// Bytes of the program's own in every request.
    pub request_size: usize,
    /// Prepares them.
    pub request_init: ucp_request_init_callback_t,
    /// Undoes that.
    pub request_cleanup: ucp_request_cleanup_callback_t,
    /// Bits of the tag that name the sender.
    pub tag_sender_mask: u64,
    /// Whether several threads use workers of this context at once.
    pub mt_workers_shared: c_int,
    /// How many endpoints to expect.
    pub estimated_num_eps: usize,
    /// How many processes of the program to expect on each machine.
    pub estimated_num_ppn: usize,
    /// Name for logs.
    pub name: *const c_char,
    /// Number of this process among those of the program on this machine.
    pub node_local_id: usize,
}
/// Parameters of `ucp_init`.
pub type ucp_params_t = ucp_params;

/// Which fields of `ucp_lib_attr_t` are requested.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_lib_attr_field {
    /// `max_thread_level`
    UCP_LIB_ATTR_FIELD_MAX_THREAD_LEVEL = 1 << 0,
}
pub use ucp_lib_attr_field::*;

/// Attributes of the library.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_lib_attr {
    /// Which fields are requested, from `ucp_lib_attr_field`.
    pub field_mask: u64,
    /// The most that threads may do.
    pub max_thread_level: ucs_thread_mode_t,
}
/// Attributes of the library.
pub type ucp_lib_attr_t = ucp_lib_attr;

/// Which fields of `ucp_context_attr_t` are requested.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_context_attr_field {
    /// `request_size`
    UCP_ATTR_FIELD_REQUEST_SIZE = 1 << 0,
    /// `thread_mode`
    UCP_ATTR_FIELD_THREAD_MODE = 1 << 1,
    /// `memory_types`
    UCP_ATTR_FIELD_MEMORY_TYPES = 1 << 2,
    /// `name`
    UCP_ATTR_FIELD_NAME = 1 << 3,
    /// `device_counter_size`
    UCP_ATTR_FIELD_DEVICE_COUNTER_SIZE = 1 << 4,
}
pub use ucp_context_attr_field::*;

/// Attributes of a context.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_context_attr {
    /// Which fields are requested, from `ucp_context_attr_field`.
    pub field_mask: u64,
    /// Bytes that the library needs before a request that the program allocates.
    pub request_size: usize,
    /// What threads may do.
    pub thread_mode: ucs_thread_mode_t,
    /// Kinds of memory that it can handle, a bit each.
    pub memory_types: u64,
    /// Its name.
    pub name: [c_char; UCP_ENTITY_NAME_MAX],
    /// Bytes of a device counter.
    pub device_counter_size: usize,
}
/// Attributes of a context.
pub type ucp_context_attr_t = ucp_context_attr;

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<ucp_params>() == 88);
    assert!(offset_of!(ucp_params, mt_workers_shared) == 48);
    assert!(offset_of!(ucp_params, node_local_id) == 80);
    assert!(size_of::<ucp_lib_attr>() == 16);
    assert!(size_of::<ucp_context_attr>() == 72);
    assert!(offset_of!(ucp_context_attr, device_counter_size) == 64);
};
