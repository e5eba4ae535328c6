//! Kinds of memory that a buffer may lie in.

use super::from_raw;
use std::ffi::CStr;

/// Kinds of memory that a buffer may lie in.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucs_memory_type {
    /// The processor's memory.
    UCS_MEMORY_TYPE_HOST,
    /// CUDA device memory.
    UCS_MEMORY_TYPE_CUDA,
    /// CUDA memory that moves by itself.
    UCS_MEMORY_TYPE_CUDA_MANAGED,
    /// ROCm device memory.
    UCS_MEMORY_TYPE_ROCM,
    /// ROCm memory that moves by itself.
    UCS_MEMORY_TYPE_ROCM_MANAGED,
    /// Memory on the network adapter.
    UCS_MEMORY_TYPE_RDMA,
    /// Level Zero host memory.
    UCS_MEMORY_TYPE_ZE_HOST,
    /// Level Zero device memory.
    UCS_MEMORY_TYPE_ZE_DEVICE,
    /// Level Zero memory that moves by itself.
    UCS_MEMORY_TYPE_ZE_MANAGED,
    /// Gaudi device memory.
    UCS_MEMORY_TYPE_GAUDI,
    /// Number of kinds; also "let the library find out".
    UCS_MEMORY_TYPE_LAST,
}
pub use ucs_memory_type::*;
/// Kinds of memory that a buffer may lie in.
pub type ucs_memory_type_t = ucs_memory_type;

/// "Let the library find out" (5 in programs built against UCX before the later kinds were added).
pub const UCS_MEMORY_TYPE_UNKNOWN: ucs_memory_type_t = UCS_MEMORY_TYPE_LAST;

/// Name of each kind, by number; the last one is that of [`UCS_MEMORY_TYPE_UNKNOWN`].
pub const MEMORY_TYPE_NAMES: [&CStr; UCS_MEMORY_TYPE_LAST as usize + 1] = [
    c"host",
    c"cuda",
    c"cuda-managed",
    c"rocm",
    c"rocm-managed",
    c"rdma",
    c"ze-host",
    c"ze-device",
    c"ze-managed",
    c"gaudi",
    c"unknown",
];

/// What messages call memory of the kind of this number, which may be none.
pub fn memory_text(number: u32) -> String {
    let name = MEMORY_TYPE_NAMES.get(number as usize);
    match name.and_then(|name| name.to_str().ok()) {
        Some(name) => format!("{name} memory"),
        None => format!("memory of type {number}"),
    }
}

from_raw!(ucs_memory_type: UCS_MEMORY_TYPE_HOST, UCS_MEMORY_TYPE_CUDA, UCS_MEMORY_TYPE_CUDA_MANAGED,
    UCS_MEMORY_TYPE_ROCM, UCS_MEMORY_TYPE_ROCM_MANAGED, UCS_MEMORY_TYPE_RDMA, UCS_MEMORY_TYPE_ZE_HOST,
    UCS_MEMORY_TYPE_ZE_DEVICE, UCS_MEMORY_TYPE_ZE_MANAGED, UCS_MEMORY_TYPE_GAUDI, UCS_MEMORY_TYPE_LAST);

/// Properties of a piece of memory.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucs_mem_flags {
    /// A device can register it.
    UCS_MEM_FLAG_REGISTRABLE = 1 << 0,
}
pub use ucs_mem_flags::*;
/// Properties of a piece of memory.
pub type ucs_mem_flags_t = ucs_mem_flags;
