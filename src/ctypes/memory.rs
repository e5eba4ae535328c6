//! Parameters and attributes of registered memory and of remote keys.

use super::{from_raw, ucs_memory_type_t};
use std::ffi::{c_uint, c_void};
use std::mem::MaybeUninit;

/// Which fields of `ucp_mem_map_params_t` are set.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_mem_map_params_field {
    /// `address`
    UCP_MEM_MAP_PARAM_FIELD_ADDRESS = 1 << 0,
    /// `length`
    UCP_MEM_MAP_PARAM_FIELD_LENGTH = 1 << 1,
    /// `flags`
    UCP_MEM_MAP_PARAM_FIELD_FLAGS = 1 << 2,
    /// `prot`
    UCP_MEM_MAP_PARAM_FIELD_PROT = 1 << 3,
    /// `memory_type`
    UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE = 1 << 4,
    /// `exported_memh_buffer`
    UCP_MEM_MAP_PARAM_FIELD_EXPORTED_MEMH_BUFFER = 1 << 5,
}
pub use ucp_mem_map_params_field::*;

/// Flags of `ucp_mem_map`.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_mem_map_flags {
    /// Pages need not be there yet.
    UCP_MEM_MAP_NONBLOCK = 1 << 0,
    /// The library allocates.
    UCP_MEM_MAP_ALLOCATE = 1 << 1,
    /// At `address` and nowhere else.
    UCP_MEM_MAP_FIXED = 1 << 2,
    /// Every process maps the same, so keys may be equal.
    UCP_MEM_MAP_SYMMETRIC_RKEY = 1 << 3,
    /// Pages are locked.
    UCP_MEM_MAP_LOCK = 1 << 4,
}
pub use ucp_mem_map_flags::*;

/// Permitted accesses to mapped memory.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_mem_map_prot {
    /// This process reads.
    UCP_MEM_MAP_PROT_LOCAL_READ = 1 << 0,
    /// This process writes.
    UCP_MEM_MAP_PROT_LOCAL_WRITE = 1 << 1,
    /// Others read.
    UCP_MEM_MAP_PROT_REMOTE_READ = 1 << 8,
    /// Others write.
    UCP_MEM_MAP_PROT_REMOTE_WRITE = 1 << 9,
}
pub use ucp_mem_map_prot::*;

/// Parameters of `ucp_mem_map`.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_mem_map_params {
    /// Which fields are set, from `ucp_mem_map_params_field`.
    pub field_mask: u64,
    /// First byte.
    pub address: *mut c_void,
    /// Number of bytes.
    pub length: usize,
    /// `UCP_MEM_MAP_...`
    pub flags: c_uint,
    /// `UCP_MEM_MAP_PROT_...`
    pub prot: c_uint,
    /// Kind of memory.
    pub memory_type: MaybeUninit<ucs_memory_type_t>,
    /// Memory handle that another process packed with `UCP_MEMH_PACK_FLAG_EXPORT`.
    pub exported_memh_buffer: *const c_void,
}
/// Parameters of `ucp_mem_map`.
pub type ucp_mem_map_params_t = ucp_mem_map_params;

/// Which fields of `ucp_mem_attr_t` are requested.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_mem_attr_field {
    /// `address`
    UCP_MEM_ATTR_FIELD_ADDRESS = 1 << 0,
    /// `length`
    UCP_MEM_ATTR_FIELD_LENGTH = 1 << 1,
    /// `mem_type`
    UCP_MEM_ATTR_FIELD_MEM_TYPE = 1 << 2,
}
pub use ucp_mem_attr_field::*;

/// Attributes of a memory handle.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_mem_attr {
    /// Which fields are requested, from `ucp_mem_attr_field`.
    pub field_mask: u64,
    /// First byte.
    pub address: *mut c_void,
    /// Number of bytes.
    pub length: usize,
    /// Kind of memory.
    pub mem_type: ucs_memory_type_t,
}
/// Attributes of a memory handle.
pub type ucp_mem_attr_t = ucp_mem_attr;

/// Advice on the use of memory.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_mem_advice {
    /// Nothing special.
    UCP_MADV_NORMAL = 0,
    /// Use it soon.
    UCP_MADV_WILLNEED,
}
pub use ucp_mem_advice::*;
/// Advice on the use of memory.
pub type ucp_mem_advice_t = ucp_mem_advice;

from_raw!(ucp_mem_advice: UCP_MADV_NORMAL, UCP_MADV_WILLNEED);

/// Which fields of `ucp_mem_advise_params_t` are set.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_mem_advise_params_field {
    /// `address`
    UCP_MEM_ADVISE_PARAM_FIELD_ADDRESS = 1 << 0,
    /// `length`
    UCP_MEM_ADVISE_PARAM_FIELD_LENGTH = 1 << 1,
    /// `advice`
    UCP_MEM_ADVISE_PARAM_FIELD_ADVICE = 1 << 2,
}
pub use ucp_mem_advise_params_field::*;

/// Parameters of `ucp_mem_advise`.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_mem_advise_params {
    /// Which fields are set, from `ucp_mem_advise_params_field`.
    pub field_mask: u64,
    /// First byte.
    pub address: *mut c_void,
    /// Number of bytes.
    pub length: usize,
    /// The advice.
    pub advice: MaybeUninit<ucp_mem_advice_t>,
}
/// Parameters of `ucp_mem_advise`.
pub type ucp_mem_advise_params_t = ucp_mem_advise_params;

/// Which fields of `ucp_memh_pack_params_t` are set.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_memh_pack_params_field {
    /// `flags`
    UCP_MEMH_PACK_PARAM_FIELD_FLAGS = 1 << 0,
}
pub use ucp_memh_pack_params_field::*;

/// Flags of `ucp_memh_pack`.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_memh_pack_flags {
    /// For another process of the same machine to map.
    UCP_MEMH_PACK_FLAG_EXPORT = 1 << 0,
}
pub use ucp_memh_pack_flags::*;

/// Parameters of `ucp_memh_pack`.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_memh_pack_params {
    /// Which fields are set, from `ucp_memh_pack_params_field`.
    pub field_mask: u64,
    /// From `ucp_memh_pack_flags`.
    pub flags: u64,
}
/// Parameters of `ucp_memh_pack`.
pub type ucp_memh_pack_params_t = ucp_memh_pack_params;

/// Parameters of `ucp_memh_buffer_release`.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_memh_buffer_release_params {
    /// No field exists yet: 0.
    pub field_mask: u64,
}
/// Parameters of `ucp_memh_buffer_release`.
pub type ucp_memh_buffer_release_params_t = ucp_memh_buffer_release_params;

/// Parameters of `ucp_rkey_compare`.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_rkey_compare_params {
    /// No field exists yet: 0.
    pub field_mask: u64,
}
/// Parameters of `ucp_rkey_compare`.
pub type ucp_rkey_compare_params_t = ucp_rkey_compare_params;

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<ucp_mem_map_params>() == 48);
    assert!(offset_of!(ucp_mem_map_params, memory_type) == 32);
    assert!(offset_of!(ucp_mem_map_params, exported_memh_buffer) == 40);
    assert!(size_of::<ucp_mem_attr>() == 32);
    assert!(size_of::<ucp_mem_advise_params>() == 32);
    assert!(size_of::<ucp_memh_pack_params>() == 16);
};
