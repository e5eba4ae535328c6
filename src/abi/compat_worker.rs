//! Flushing workers and allocating requests, deprecated forms.

use super::compat_params::{EMPTY, wait, with_send_cb};
use crate::abi::worker::ucp_worker_flush_nbx;
use crate::ctypes::*;
use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;

/// Flushes a worker and progresses until that is done; deprecated for `ucp_worker_flush_nbx`.
///
/// # Safety
/// The conditions of [`ucp_worker_flush_nbx`]; not from a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_worker_flush(worker: ucp_worker_h) -> ucs_status_t {
    // SAFETY: the caller keeps the contract of the function called; no other reference to the request exists.
    unsafe { wait(worker, ucp_worker_flush_nbx(worker, &EMPTY)) }
}

/// Flushes a worker; deprecated for `ucp_worker_flush_nbx`. No flag exists.
///
/// # Safety
/// The conditions of [`ucp_worker_flush_nbx`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_worker_flush_nb(
    worker: ucp_worker_h,
    flags: c_uint,
    cb: ucp_send_callback_t,
) -> ucs_status_ptr_t {
    let _ = flags;
    // SAFETY: the caller keeps the contract of the function called.
    unsafe { ucp_worker_flush_nbx(worker, &with_send_cb(cb)) }
}

/// Returns NULL, as UCX does: a program supplies its own memory for a request.
#[unsafe(no_mangle)]
pub extern "C" fn ucp_request_alloc(worker: ucp_worker_h) -> *mut c_void {
    let _ = worker;
    null_mut()
}
