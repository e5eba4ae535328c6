//! Parameters and attributes of workers and of their addresses.

use super::{UCP_ENTITY_NAME_MAX, ucp_address_t, ucs_cpu_set_t, ucs_thread_mode_t};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::MaybeUninit;

/// Which fields of `ucp_worker_params_t` are set.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_worker_params_field {
    /// `thread_mode`
    UCP_WORKER_PARAM_FIELD_THREAD_MODE = 1 << 0,
    /// `cpu_mask`
    UCP_WORKER_PARAM_FIELD_CPU_MASK = 1 << 1,
    /// `events`
    UCP_WORKER_PARAM_FIELD_EVENTS = 1 << 2,
    /// `user_data`
    UCP_WORKER_PARAM_FIELD_USER_DATA = 1 << 3,
    /// `event_fd`
    UCP_WORKER_PARAM_FIELD_EVENT_FD = 1 << 4,
    /// `flags`
    UCP_WORKER_PARAM_FIELD_FLAGS = 1 << 5,
    /// `name`
    UCP_WORKER_PARAM_FIELD_NAME = 1 << 6,
    /// `am_alignment`
    UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT = 1 << 7,
    /// `client_id`
    UCP_WORKER_PARAM_FIELD_CLIENT_ID = 1 << 8,
}
pub use ucp_worker_params_field::*;

/// Flags of a worker.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_worker_flags {
    /// Do not log requests that were never freed.
    UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK = 1 << 0,
}
pub use ucp_worker_flags::*;
/// Flags of a worker.
pub type ucp_worker_flags_t = ucp_worker_flags;

/// Parameters of `ucp_worker_create`.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_worker_params {
    /// Which fields are set, from `ucp_worker_params_field`.
    pub field_mask: u64,
    /// What threads will do.
    pub thread_mode: MaybeUninit<ucs_thread_mode_t>,
    /// Processors that it should use.
    pub cpu_mask: ucs_cpu_set_t,
    /// Events to be woken by, from `ucp_wakeup_event_t`.
    pub events: c_uint,
    /// What `event_fd` reports with each event.
    pub user_data: *mut c_void,
    /// The program's own epoll descriptor.
    pub event_fd: c_int,
    /// From `ucp_worker_flags_t`.
    pub flags: u64,
    /// Name for logs.
    pub name: *const c_char,
    /// Alignment of active message data.
    pub am_alignment: usize,
    /// Number that a server sees in a connection request.
    pub client_id: u64,
}
/// Parameters of `ucp_worker_create`.
pub type ucp_worker_params_t = ucp_worker_params;

/// Which fields of `ucp_worker_attr_t` are requested.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_worker_attr_field {
    /// `thread_mode`
    UCP_WORKER_ATTR_FIELD_THREAD_MODE = 1 << 0,
    /// `address` and `address_length`
    UCP_WORKER_ATTR_FIELD_ADDRESS = 1 << 1,
    /// `address_flags`, which the caller fills in
    UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS = 1 << 2,
    /// `max_am_header`
    UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER = 1 << 3,
    /// `name`
    UCP_WORKER_ATTR_FIELD_NAME = 1 << 4,
    /// `max_debug_string`
    UCP_WORKER_ATTR_FIELD_MAX_INFO_STRING = 1 << 5,
}
pub use ucp_worker_attr_field::*;

/// Which parts an address should have.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_worker_address_flags {
    /// Only what other machines can use.
    UCP_WORKER_ADDRESS_FLAG_NET_ONLY = 1 << 0,
}
pub use ucp_worker_address_flags::*;
/// Which parts an address should have.
pub type ucp_worker_address_flags_t = ucp_worker_address_flags;

/// Attributes of a worker.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_worker_attr {
    /// Which fields are requested, from `ucp_worker_attr_field`.
    pub field_mask: u64,
    /// What threads may do.
    pub thread_mode: ucs_thread_mode_t,
    /// Which parts the address should have (filled in by the caller), from `ucp_worker_address_flags_t`.
    pub address_flags: u32,
    /// Its address, to be released with `ucp_worker_release_address`.
    pub address: *mut ucp_address_t,
    /// Bytes of the address.
    pub address_length: usize,
    /// Longest header of an active message.
    pub max_am_header: usize,
    /// Its name.
    pub name: [c_char; UCP_ENTITY_NAME_MAX],
    /// Longest text that `ucp_request_query` writes.
    pub max_debug_string: usize,
}
/// Attributes of a worker.
pub type ucp_worker_attr_t = ucp_worker_attr;

/// Which fields of `ucp_worker_address_attr_t` are requested.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_worker_address_attr_field {
    /// `worker_uid`
    UCP_WORKER_ADDRESS_ATTR_FIELD_UID = 1 << 0,
}
pub use ucp_worker_address_attr_field::*;

/// Attributes of an address.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_worker_address_attr {
    /// Which fields are requested, from `ucp_worker_address_attr_field`.
    pub field_mask: u64,
    /// Number that names the worker.
    pub worker_uid: u64,
}
/// Attributes of an address.
pub type ucp_worker_address_attr_t = ucp_worker_address_attr;

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<ucp_worker_params>() == 200);
    assert!(offset_of!(ucp_worker_params, cpu_mask) == 16);
    assert!(offset_of!(ucp_worker_params, events) == 144);
    assert!(offset_of!(ucp_worker_params, client_id) == 192);
    assert!(size_of::<ucp_worker_attr>() == 80);
    assert!(offset_of!(ucp_worker_attr, address) == 16);
    assert!(offset_of!(ucp_worker_attr, max_debug_string) == 72);
    assert!(size_of::<ucp_worker_address_attr>() == 16);
};
