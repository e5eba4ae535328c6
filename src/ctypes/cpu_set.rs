//! A set of processors, as a worker is given one.

use std::ffi::c_ulong;

/// One word of a processor set.
pub type ucs_cpu_mask_t = c_ulong;

/// Number of processors that a set can name.
pub const UCS_CPU_SETSIZE: usize = 1024;

/// A set of processors, one bit each.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucs_cpu_set {
    /// The bits, lowest processor first.
    pub ucs_bits: [ucs_cpu_mask_t; 16],
}
/// A set of processors, one bit each.
pub type ucs_cpu_set_t = ucs_cpu_set;

const _: () = assert!(size_of::<ucs_cpu_set>() * 8 == UCS_CPU_SETSIZE);
