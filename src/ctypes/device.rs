//! Parameters of the functions that prepare communication started by a device.

use super::{ucp_ep_h, ucp_mem_h, ucp_rkey_h, ucp_worker_h, ucs_memory_type_t};
use std::ffi::c_void;
use std::mem::MaybeUninit;

/// Which fields of `ucp_device_mem_list_elem_t` are set.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_device_mem_list_elem_field {
    /// `memh`
    UCP_DEVICE_MEM_LIST_ELEM_FIELD_MEMH = 1 << 0,
    /// `rkey`
    UCP_DEVICE_MEM_LIST_ELEM_FIELD_RKEY = 1 << 1,
    /// `local_addr`
    UCP_DEVICE_MEM_LIST_ELEM_FIELD_LOCAL_ADDR = 1 << 2,
    /// `remote_addr`
    UCP_DEVICE_MEM_LIST_ELEM_FIELD_REMOTE_ADDR = 1 << 3,
    /// `length`
    UCP_DEVICE_MEM_LIST_ELEM_FIELD_LENGTH = 1 << 4,
    /// `ep`
    UCP_DEVICE_MEM_LIST_ELEM_FIELD_EP = 1 << 5,
}
pub use ucp_device_mem_list_elem_field::*;

/// One piece of memory for a device.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_device_mem_list_elem {
    /// Which fields are set, from `ucp_device_mem_list_elem_field`.
    pub field_mask: u64,
    /// Handle of the local memory.
    pub memh: ucp_mem_h,
    /// Local address.
    pub local_addr: *mut c_void,
    /// Number of bytes.
    pub length: usize,
    /// Remote address.
    pub remote_addr: u64,
    /// Key of the remote memory.
    pub rkey: ucp_rkey_h,
    /// Endpoint that leads there.
    pub ep: ucp_ep_h,
}
/// One piece of memory for a device.
pub type ucp_device_mem_list_elem_t = ucp_device_mem_list_elem;

/// Which fields of `ucp_device_mem_list_params_t` are set.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_device_mem_list_params_field {
    /// `elements`
    UCP_DEVICE_MEM_LIST_PARAMS_FIELD_ELEMENTS = 1 << 0,
    /// `element_size`
    UCP_DEVICE_MEM_LIST_PARAMS_FIELD_ELEMENT_SIZE = 1 << 1,
    /// `num_elements`
    UCP_DEVICE_MEM_LIST_PARAMS_FIELD_NUM_ELEMENTS = 1 << 2,
    /// `worker`
    UCP_DEVICE_MEM_LIST_PARAMS_FIELD_WORKER = 1 << 3,
}
pub use ucp_device_mem_list_params_field::*;

/// Pieces of memory for a device.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_device_mem_list_params {
    /// Which fields are set, from `ucp_device_mem_list_params_field`.
    pub field_mask: u64,
    /// Bytes of an element in the caller's version of the type.
    pub element_size: usize,
    /// Number of elements.
    pub num_elements: usize,
    /// The worker that they belong to.
    pub worker: ucp_worker_h,
    /// The elements.
    pub elements: *const ucp_device_mem_list_elem_t,
}
/// Pieces of memory for a device.
pub type ucp_device_mem_list_params_t = ucp_device_mem_list_params;

/// Which fields of `ucp_device_counter_params_t` are set.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_device_counter_params_field {
    /// `mem_type`
    UCP_DEVICE_COUNTER_PARAMS_FIELD_MEM_TYPE = 1 << 0,
    /// `memh`
    UCP_DEVICE_COUNTER_PARAMS_FIELD_MEMH = 1 << 1,
}
pub use ucp_device_counter_params_field::*;

/// The memory that has a counter.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_device_counter_params {
    /// Which fields are set, from `ucp_device_counter_params_field`.
    pub field_mask: u64,
    /// Kind of memory.
    pub mem_type: MaybeUninit<ucs_memory_type_t>,
    /// Handle of the memory.
    pub memh: ucp_mem_h,
}
/// The memory that has a counter.
pub type ucp_device_counter_params_t = ucp_device_counter_params;

const _: () = {
    assert!(size_of::<ucp_device_mem_list_elem>() == 56);
    assert!(size_of::<ucp_device_mem_list_params>() == 40);
    assert!(size_of::<ucp_device_counter_params>() == 24);
};
