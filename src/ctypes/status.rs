//! Status codes and the pointer that is either a request or a status code.

use std::ffi::c_void;

/// Outcome of an operation; one byte wide, in structs too.
#[repr(i8)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucs_status_t {
    /// Done.
    UCS_OK = 0,
    /// Accepted and not finished yet.
    UCS_INPROGRESS = 1,
    /// No message is waiting.
    UCS_ERR_NO_MESSAGE = -1,
    /// A resource is used up for the moment.
    UCS_ERR_NO_RESOURCE = -2,
    /// Input or output failed.
    UCS_ERR_IO_ERROR = -3,
    /// Memory is used up.
    UCS_ERR_NO_MEMORY = -4,
    /// An argument makes no sense.
    UCS_ERR_INVALID_PARAM = -5,
    /// No transport reaches the peer, or the memory.
    UCS_ERR_UNREACHABLE = -6,
    /// An address is not valid.
    UCS_ERR_INVALID_ADDR = -7,
    /// Not implemented.
    UCS_ERR_NOT_IMPLEMENTED = -8,
    /// The message was longer than the buffer.
    UCS_ERR_MESSAGE_TRUNCATED = -9,
    /// Nothing moved.
    UCS_ERR_NO_PROGRESS = -10,
    /// The caller's buffer is too short for the result.
    UCS_ERR_BUFFER_TOO_SMALL = -11,
    /// There is no such element.
    UCS_ERR_NO_ELEM = -12,
    /// Some of several connections failed.
    UCS_ERR_SOME_CONNECTS_FAILED = -13,
    /// There is no such device.
    UCS_ERR_NO_DEVICE = -14,
    /// In use, or events are waiting.
    UCS_ERR_BUSY = -15,
    /// Canceled before it was complete.
    UCS_ERR_CANCELED = -16,
    /// A shared memory segment could not be made or attached.
    UCS_ERR_SHMEM_SEGMENT = -17,
    /// It exists already.
    UCS_ERR_ALREADY_EXISTS = -18,
    /// An index is out of bounds.
    UCS_ERR_OUT_OF_RANGE = -19,
    /// It took too long.
    UCS_ERR_TIMED_OUT = -20,
    /// More than the limit allows.
    UCS_ERR_EXCEEDS_LIMIT = -21,
    /// Not offered here.
    UCS_ERR_UNSUPPORTED = -22,
    /// The peer rejected the connection.
    UCS_ERR_REJECTED = -23,
    /// There is no connection.
    UCS_ERR_NOT_CONNECTED = -24,
    /// The peer is gone.
    UCS_ERR_CONNECTION_RESET = -25,
    /// First code of the link failures.
    UCS_ERR_FIRST_LINK_FAILURE = -40,
    /// Last code of the link failures.
    UCS_ERR_LAST_LINK_FAILURE = -59,
    /// First code of the endpoint failures.
    UCS_ERR_FIRST_ENDPOINT_FAILURE = -60,
    /// The peer stopped answering.
    UCS_ERR_ENDPOINT_TIMEOUT = -80,
    /// Last code of the endpoint failures.
    UCS_ERR_LAST_ENDPOINT_FAILURE = -89,
    /// Below every code.
    UCS_ERR_LAST = -100,
}
pub use ucs_status_t::*;

/// NULL (done), an error code as a pointer, or the request of an operation in progress.
pub type ucs_status_ptr_t = *mut c_void;

const _: () = assert!(size_of::<ucs_status_t>() == 1);

impl ucs_status_t {
    const ALL: [Self; 33] = [
        UCS_OK,
        UCS_INPROGRESS,
        UCS_ERR_NO_MESSAGE,
        UCS_ERR_NO_RESOURCE,
        UCS_ERR_IO_ERROR,
        UCS_ERR_NO_MEMORY,
        UCS_ERR_INVALID_PARAM,
        UCS_ERR_UNREACHABLE,
        UCS_ERR_INVALID_ADDR,
        UCS_ERR_NOT_IMPLEMENTED,
        UCS_ERR_MESSAGE_TRUNCATED,
        UCS_ERR_NO_PROGRESS,
        UCS_ERR_BUFFER_TOO_SMALL,
        UCS_ERR_NO_ELEM,
        UCS_ERR_SOME_CONNECTS_FAILED,
        UCS_ERR_NO_DEVICE,
        UCS_ERR_BUSY,
        UCS_ERR_CANCELED,
        UCS_ERR_SHMEM_SEGMENT,
        UCS_ERR_ALREADY_EXISTS,
        UCS_ERR_OUT_OF_RANGE,
        UCS_ERR_TIMED_OUT,
        UCS_ERR_EXCEEDS_LIMIT,
        UCS_ERR_UNSUPPORTED,
        UCS_ERR_REJECTED,
        UCS_ERR_NOT_CONNECTED,
        UCS_ERR_CONNECTION_RESET,
        UCS_ERR_FIRST_LINK_FAILURE,
        UCS_ERR_LAST_LINK_FAILURE,
        UCS_ERR_FIRST_ENDPOINT_FAILURE,
        UCS_ERR_ENDPOINT_TIMEOUT,
        UCS_ERR_LAST_ENDPOINT_FAILURE,
        UCS_ERR_LAST,
    ];

    /// The status with this code; an unknown code becomes `UCS_ERR_IO_ERROR`.
    pub fn from_raw(raw: i8) -> Self {
        let known = Self::ALL.iter().find(|status| **status as i8 == raw);
        known.copied().unwrap_or(UCS_ERR_IO_ERROR)
    }

    /// Whether this is a failure, that is neither `UCS_OK` nor `UCS_INPROGRESS`.
    pub const fn is_err(self) -> bool {
        (self as i8) < 0
    }
}

/// The status as a pointer: NULL for `UCS_OK`, the code itself for an error.
pub const fn UCS_STATUS_PTR(status: ucs_status_t) -> ucs_status_ptr_t {
    std::ptr::without_provenance_mut(status as isize as usize)
}

/// Whether the pointer carries an error code.
pub fn UCS_PTR_IS_ERR(ptr: ucs_status_ptr_t) -> bool {
    ptr.addr() >= UCS_ERR_LAST as isize as usize
}

/// Whether the pointer is a request.
pub fn UCS_PTR_IS_PTR(ptr: ucs_status_ptr_t) -> bool {
    !ptr.is_null() && !UCS_PTR_IS_ERR(ptr)
}

/// The status that a pointer stands for: a request is `UCS_INPROGRESS`.
pub fn UCS_PTR_STATUS(ptr: ucs_status_ptr_t) -> ucs_status_t {
    if UCS_PTR_IS_PTR(ptr) {
        UCS_INPROGRESS
    } else {
        ucs_status_t::from_raw(ptr.addr() as i8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_survives_the_pointer() {
        for status in ucs_status_t::ALL
            .into_iter()
            .filter(|s| *s != UCS_INPROGRESS)
        {
            let ptr = UCS_STATUS_PTR(status);
            assert_eq!(UCS_PTR_STATUS(ptr), status);
            assert_eq!(UCS_PTR_IS_ERR(ptr), status.is_err());
            assert!(!UCS_PTR_IS_PTR(ptr));
        }
    }

    #[test]
    fn unknown_codes_are_io_errors() {
        assert_eq!(ucs_status_t::from_raw(-99), UCS_ERR_IO_ERROR);
        assert_eq!(ucs_status_t::from_raw(2), UCS_ERR_IO_ERROR);
    }
}
