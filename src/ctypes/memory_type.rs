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

/// [`MEMORY_TYPE_NAMES`] as text.
pub const MEMORY_TYPE_TEXTS: [&str; MEMORY_TYPE_NAMES.len()] = {
    let mut texts = [""; MEMORY_TYPE_NAMES.len()];
    let mut number = 0;
    while number < texts.len() {
        texts[number] = match MEMORY_TYPE_NAMES[number].to_str() {
            Ok(text) => text,
            Err(_) => panic!("a name is not text"),
        };
        number += 1;
    }
    texts
};

/// What messages call memory of the kind of this number, which may be none.
pub fn memory_text(number: u32) -> String {
    match MEMORY_TYPE_TEXTS.get(number as usize) {
        Some(text) => format!("{text} memory"),
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
