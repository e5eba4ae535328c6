//! The library itself: its version and what it can.

use super::output::invalid;
use crate::ctypes::*;
use std::ffi::{c_char, c_uint};

/// Version that programs see: the newest 1.x that any known client requires, so that none warns of an old library (NIXL
/// is built for 1.23, ucxx rejects less than 1.18).
pub const VERSION: (u32, u32, u32) = (1, 23, 0);

/// Version of this implementation.
pub const RUCP_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Fills the fields of `attr` that its mask names.
///
/// # Safety
/// `attr` is null or valid in the fields that its mask names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_lib_query(attr: *mut ucp_lib_attr_t) -> ucs_status_t {
    if attr.is_null() {
        return invalid("ucp_lib_query", "attr is null");
    }
    // SAFETY: fields under the mask.
    unsafe {
        if (*attr).field_mask & UCP_LIB_ATTR_FIELD_MAX_THREAD_LEVEL as u64 != 0 {
            (&raw mut (*attr).max_thread_level).write(ucs_thread_mode_t::UCS_THREAD_MODE_MULTI);
        }
    }
    UCS_OK
}

/// The version in numbers. Null pointers are skipped.
///
/// # Safety
/// Each pointer is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_get_version(
    major_version: *mut c_uint,
    minor_version: *mut c_uint,
    release_number: *mut c_uint,
) {
    for (out, value) in [
        (major_version, VERSION.0),
        (minor_version, VERSION.1),
        (release_number, VERSION.2),
    ] {
        // SAFETY: the caller's promise.
        if let Some(out) = unsafe { out.as_mut() } {
            *out = value;
        }
    }
}

/// The version as a static string.
#[unsafe(no_mangle)]
pub extern "C" fn ucp_get_version_string() -> *const c_char {
    const { assert!(matches!(VERSION, (1, 23, 0))) };
    c"1.23.0".as_ptr()
}
