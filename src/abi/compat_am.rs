//! Active messages, deprecated forms.

use super::compat_params::{flagged, typed, with_send_cb};
use crate::abi::am::ucp_am_send_nbx;
use crate::ctypes::*;
use std::ffi::{c_uint, c_void};
use std::ptr::null;

/// Sends an active message without a header; deprecated for `ucp_am_send_nbx`.
///
/// The data is sent eagerly, whatever its length: a handler of `ucp_worker_set_am_handler` cannot receive a rendezvous.
///
/// # Safety
/// The conditions of [`ucp_am_send_nbx`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_am_send_nb(
    ep: ucp_ep_h,
    id: u16,
    buffer: *const c_void,
    count: usize,
    datatype: ucp_datatype_t,
    cb: ucp_send_callback_t,
    flags: c_uint,
) -> ucs_status_ptr_t {
    let flags = (flags & !(UCP_AM_SEND_FLAG_RNDV as u32)) | UCP_AM_SEND_FLAG_EAGER as u32;
    let param = flagged(typed(with_send_cb(cb), datatype), flags);
    // SAFETY: the caller keeps the contract of the function called.
    unsafe { ucp_am_send_nbx(ep, id.into(), null(), 0, buffer, count, &param) }
}
