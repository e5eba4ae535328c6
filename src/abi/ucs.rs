//! The functions of libucs that clients of libucp use: names of status codes, memory types and thread modes.

use crate::ctypes::*;
use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;

/// The text for a status code; never NULL, whatever the code.
///
/// The texts are UCX's own: programs print them, and tests compare them.
#[unsafe(no_mangle)]
pub extern "C" fn ucs_status_string(status: MaybeUninit<ucs_status_t>) -> *const c_char {
    // SAFETY: an argument that C passed by value is initialised.
    text(unsafe { status_raw(status) }).as_ptr()
}

/// The text for a status code.
fn text(code: i8) -> &'static CStr {
    match code {
        1 => c"Operation in progress",
        0 => c"Success",
        -1 => c"No pending message",
        -2 => c"No resources are available to initiate the operation",
        -3 => c"Input/output error",
        -4 => c"Out of memory",
        -5 => c"Invalid parameter",
        -6 => c"Destination is unreachable",
        -7 => c"Address not valid",
        -8 => c"Function not implemented",
        -9 => c"Message truncated",
        -10 => c"No progress",
        -11 => c"Provided buffer is too small",
        -12 => c"No such element",
        -13 => c"Failed to connect some of the requested endpoints",
        -14 => c"No such device",
        -15 => c"Device is busy",
        -16 => c"Request canceled",
        -17 => c"Shared memory error",
        -18 => c"Element already exists",
        -19 => c"Index out of range",
        -20 => c"Operation timed out",
        -21 => c"User-defined limit was reached",
        -22 => c"Unsupported operation",
        -23 => c"Operation rejected by remote peer",
        -24 => c"Endpoint is not connected",
        -25 => c"Connection reset by remote peer",
        -80 => c"Endpoint timeout",
        other => unknown(other),
    }
}

/// `Unknown error N`: for each of the 256 codes a text at a stable address.
fn unknown(code: i8) -> &'static CStr {
    const WIDTH: usize = 19;
    static TEXTS: [[u8; WIDTH]; 256] = {
        let mut texts = [*b"Unknown error \0\0\0\0\0"; 256];
        let mut index = 0;
        while index < 256 {
            let code = index as u8 as i8;
            let (mut rest, mut at) = (code.unsigned_abs(), 14);
            if code < 0 {
                texts[index][at] = b'-';
                at += 1;
            }
            let mut unit = if rest >= 100 {
                100
            } else if rest >= 10 {
                10
            } else {
                1
            };
            while unit > 0 {
                texts[index][at] = b'0' + rest / unit;
                rest %= unit;
                unit /= 10;
                at += 1;
            }
            index += 1;
        }
        texts
    };
    CStr::from_bytes_until_nul(&TEXTS[code as u8 as usize]).unwrap_or(c"Unknown error")
}

/// Pointers to constant texts.
#[repr(transparent)]
pub struct Names<const N: usize>([*const c_char; N]);

// SAFETY: the pointers are to literals, which any thread may read.
unsafe impl<const N: usize> Sync for Names<N> {}

/// Name of each memory type, by number; one more entry for "unknown", and NULL.
#[unsafe(no_mangle)]
pub static ucs_memory_type_names: Names<{ MEMORY_TYPE_NAMES.len() + 1 }> = {
    let mut names = [std::ptr::null(); MEMORY_TYPE_NAMES.len() + 1];
    let mut number = 0;
    while number < MEMORY_TYPE_NAMES.len() {
        names[number] = MEMORY_TYPE_NAMES[number].as_ptr();
        number += 1;
    }
    Names(names)
};

/// Name of each thread mode, by number.
#[unsafe(no_mangle)]
pub static ucs_thread_mode_names: Names<3> = Names([
    c"single".as_ptr(),
    c"serialized".as_ptr(),
    c"multi".as_ptr(),
]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_text() {
        assert_eq!(text(-26), c"Unknown error -26");
        assert_eq!(text(-128), c"Unknown error -128");
        assert_eq!(text(5), c"Unknown error 5");
        assert_eq!(text(UCS_ERR_ENDPOINT_TIMEOUT as i8), c"Endpoint timeout");
        assert!((i8::MIN..=i8::MAX).all(|code| !text(code).is_empty()));
    }
}
