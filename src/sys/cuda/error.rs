//! Errors of the driver.

use super::driver::{CuFunctions, CuResult};
use std::ffi::CStr;
use std::fmt;
use std::ptr;

/// A call of the driver that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaError {
    /// Name of the function.
    pub call: &'static str,
    pub code: CuResult,
    /// The driver's text, which it never frees.
    text: Option<&'static CStr>,
}

impl CudaError {
    /// The error of a call that returned `code`, which is not 0.
    #[cold]
    pub fn new(functions: &CuFunctions, call: &'static str, code: CuResult) -> CudaError {
        let mut text = ptr::null();
        // SAFETY: a place for the address; needs neither a device nor a context.
        let found = unsafe { (functions.error_string)(code, &raw mut text) };
        CudaError {
            call,
            code,
            // SAFETY: a terminated text in the driver's read-only data: its library is never closed.
            text: (found == 0 && !text.is_null()).then(|| unsafe { CStr::from_ptr(text) }),
        }
    }
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.call)?;
        match self.text {
            Some(text) => write!(f, "{}", text.to_string_lossy()),
            None => write!(f, "error {}", self.code),
        }
    }
}

impl std::error::Error for CudaError {}
