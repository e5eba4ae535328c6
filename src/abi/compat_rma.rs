//! Put and get, deprecated forms.

use super::compat_params::{EMPTY, discard_request, wait, with_send_cb};
use crate::abi::rma::{ucp_get_nbx, ucp_put_nbx};
use crate::abi::worker::worker_of_ep;
use crate::ctypes::*;
use std::ffi::c_void;

/// Writes remote memory and progresses until `buffer` may change; deprecated for `ucp_put_nbx`.
///
/// # Safety
/// The conditions of [`ucp_put_nbx`]; not from a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_put(
    ep: ucp_ep_h,
    buffer: *const c_void,
    length: usize,
    remote_addr: u64,
    rkey: ucp_rkey_h,
) -> ucs_status_t {
    // SAFETY: the caller keeps the contract of the function called; no other reference to the request exists.
    unsafe {
        wait(
            worker_of_ep(ep),
            ucp_put_nbx(ep, buffer, length, remote_addr, rkey, &EMPTY),
        )
    }
}

/// Reads remote memory and progresses until it is there; deprecated for `ucp_get_nbx`.
///
/// # Safety
/// The conditions of [`ucp_get_nbx`]; not from a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_get(
    ep: ucp_ep_h,
    buffer: *mut c_void,
    length: usize,
    remote_addr: u64,
    rkey: ucp_rkey_h,
) -> ucs_status_t {
    // SAFETY: the caller keeps the contract of the function called; no other reference to the request exists.
    unsafe {
        wait(
            worker_of_ep(ep),
            ucp_get_nbx(ep, buffer, length, remote_addr, rkey, &EMPTY),
        )
    }
}

/// Writes remote memory; deprecated for `ucp_put_nbx`.
///
/// # Safety
/// The conditions of [`ucp_put_nbx`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_put_nb(
    ep: ucp_ep_h,
    buffer: *const c_void,
    length: usize,
    remote_addr: u64,
    rkey: ucp_rkey_h,
    cb: ucp_send_callback_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller keeps the contract of the function called.
    unsafe { ucp_put_nbx(ep, buffer, length, remote_addr, rkey, &with_send_cb(cb)) }
}

/// Reads remote memory; deprecated for `ucp_get_nbx`.
///
/// # Safety
/// The conditions of [`ucp_get_nbx`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_get_nb(
    ep: ucp_ep_h,
    buffer: *mut c_void,
    length: usize,
    remote_addr: u64,
    rkey: ucp_rkey_h,
    cb: ucp_send_callback_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller keeps the contract of the function called.
    unsafe { ucp_get_nbx(ep, buffer, length, remote_addr, rkey, &with_send_cb(cb)) }
}

/// Writes remote memory without a request; a flush says when `buffer` may change.
///
/// # Safety
/// The conditions of [`ucp_put_nbx`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_put_nbi(
    ep: ucp_ep_h,
    buffer: *const c_void,
    length: usize,
    remote_addr: u64,
    rkey: ucp_rkey_h,
) -> ucs_status_t {
    // SAFETY: the caller keeps the contract of the function called; no other reference to the request exists.
    unsafe { discard_request(ucp_put_nbx(ep, buffer, length, remote_addr, rkey, &EMPTY)) }
}

/// Reads remote memory without a request; a flush says when it is there.
///
/// # Safety
/// The conditions of [`ucp_get_nbx`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_get_nbi(
    ep: ucp_ep_h,
    buffer: *mut c_void,
    length: usize,
    remote_addr: u64,
    rkey: ucp_rkey_h,
) -> ucs_status_t {
    // SAFETY: the caller keeps the contract of the function called; no other reference to the request exists.
    unsafe { discard_request(ucp_get_nbx(ep, buffer, length, remote_addr, rkey, &EMPTY)) }
}
