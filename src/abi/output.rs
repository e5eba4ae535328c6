//! Text for C: streams, names in fixed fields, messages about invalid parameters.

use crate::ctypes::*;
use crate::op::param::status_ptr;
use crate::sys::log;
use std::ffi::{CStr, c_char};

/// Writes text to a C stream; the C library does the buffering.
///
/// # Safety
/// `stream` is an open stream.
pub unsafe fn write(stream: *mut libc::FILE, text: &str) {
    // SAFETY: the text's bytes; the caller's stream.
    unsafe { libc::fwrite(text.as_ptr().cast(), 1, text.len(), stream) };
}

/// Stores a name, cut to the field, with its terminating zero.
///
/// # Safety
/// `field` is writable.
pub unsafe fn name(field: *mut [c_char; UCP_ENTITY_NAME_MAX], text: &str) {
    let n = text.len().min(UCP_ENTITY_NAME_MAX - 1);
    // SAFETY: the caller's field; at most its length is written.
    unsafe {
        let out = field.cast::<u8>();
        out.copy_from_nonoverlapping(text.as_ptr(), n);
        out.add(n).write(0);
    }
}

/// A C string of the user; `None` for null.
///
/// # Safety
/// Null or NUL-terminated.
pub unsafe fn text(ptr: *const c_char) -> Option<String> {
    if ptr.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    Some(
        unsafe { CStr::from_ptr(ptr) }
            .to_string_lossy()
            .into_owned(),
    )
}

/// Logs an invalid parameter.
#[cold]
#[inline(never)]
pub fn invalid(function: &str, what: &str) -> ucs_status_t {
    log::error!("{function}: {what}");
    UCS_ERR_INVALID_PARAM
}

/// Result of a function in a forked child for a context or a worker of its parent.
#[cold]
#[inline(never)]
pub fn inherited(function: &str) -> ucs_status_t {
    log::debug!("{function}: this process was forked, and its parent made the object");
    UCS_ERR_UNSUPPORTED
}

/// [`invalid`] for functions that return a request: a jump there needs no stack.
#[cold]
#[inline(never)]
pub fn invalid_request(function: &str, what: &str) -> ucs_status_ptr_t {
    status_ptr(invalid(function, what))
}
