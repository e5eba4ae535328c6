//! libfabric, opened at run time: a host without it has no such transport, and nothing else changes.

use super::bindings::*;
use crate::sys::library::{Library, functions};
use crate::sys::sync::OnceLock;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::Error;

/// The file name in every version of libfabric from 1.0 to 2.x.
const LIBRARY: &CStr = c"libfabric.so.1";

/// The version of the API that the transport asks for: everything that it calls is in 1.15. Later libraries answer with
/// structures that are longer at their ends.
pub const API: u32 = 1 << 16 | 15;

functions! {
    /// The functions that are symbols. The others of the API are inline functions of the headers, which call the tables
    /// inside of the objects.
    pub struct Libfabric;
    getinfo = c"fi_getinfo":
        fn(u32, *const c_char, *const c_char, u64, *const fi_info, *mut *mut fi_info) -> c_int;
    freeinfo = c"fi_freeinfo": fn(*mut fi_info);
    dupinfo = c"fi_dupinfo": fn(*const fi_info) -> *mut fi_info;
    fabric = c"fi_fabric": fn(*mut fi_fabric_attr, *mut *mut fid_fabric, *mut c_void) -> c_int;
    strerror = c"fi_strerror": fn(c_int) -> *const c_char;
    version = c"fi_version": fn() -> u32;
}

impl Libfabric {
    /// The library, if this host has it in version 1.15 or later. It is never unloaded.
    pub fn get() -> Option<&'static Libfabric> {
        static LIBFABRIC: OnceLock<Option<Libfabric>> = OnceLock::new();
        // SAFETY: the library is libfabric, whose functions have the declared types.
        let open = || unsafe { Libfabric::resolve(Library::open(LIBRARY)?) };
        let usable = || {
            // SAFETY: the function has no arguments and no condition.
            open().filter(|fabric| unsafe { (fabric.version)() } >= API)
        };
        LIBFABRIC.get_or_init(usable).as_ref()
    }

    /// The text of an error number, with either sign.
    pub fn error_text(&self, error: c_int) -> String {
        // SAFETY: the function returns a constant string for every number.
        unsafe { text((self.strerror)(error.abs())) }
    }
}

/// The text at a pointer that libfabric has returned; empty for null.
///
/// # Safety
/// `at` is null, or points to a string that stays during the call.
pub unsafe fn text(at: *const c_char) -> String {
    if at.is_null() {
        return String::new();
    }
    // SAFETY: the caller's string.
    let text = unsafe { CStr::from_ptr(at) };
    text.to_string_lossy().into_owned()
}

/// Number and text of an error that a function of libfabric has returned, with either sign.
pub fn error(code: c_int) -> Error {
    let code = code.abs();
    match Libfabric::get() {
        // Numbers from 256 on are libfabric's own.
        Some(fabric) if code >= FI_EOTHER as c_int => Error::other(fabric.error_text(code)),
        _ => Error::from_raw_os_error(code),
    }
}
