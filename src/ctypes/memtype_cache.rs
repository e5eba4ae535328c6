//! Attributes of a range of memory in the cache of memory types.

use super::{ucs_memory_type_t, ucs_sys_device_t};
use std::ffi::c_void;

/// Attributes of a range of memory.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucs_memory_info {
    /// Kind of the memory.
    pub r#type: ucs_memory_type_t,
    /// Device that has it.
    pub sys_dev: ucs_sys_device_t,
    /// First byte of the allocation.
    pub base_address: *mut c_void,
    /// Its length in bytes.
    pub alloc_length: usize,
    /// From `ucs_mem_flags_t`.
    pub mem_flags: u8,
}
/// Attributes of a range of memory.
pub type ucs_memory_info_t = ucs_memory_info;

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<ucs_memory_info>() == 32);
    assert!(offset_of!(ucs_memory_info, sys_dev) == 4);
    assert!(offset_of!(ucs_memory_info, base_address) == 8);
    assert!(offset_of!(ucs_memory_info, mem_flags) == 24);
};
