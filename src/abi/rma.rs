//! Remote memory access.

use super::endpoint::endpoint_of;
use super::output::invalid_request;
use crate::ctypes::*;
use crate::engine::rkey::Rkey;
use crate::fast::rma;
use std::ffi::c_void;

/// Writes to a peer's memory; completes when the buffer can be used again.
///
/// # Safety
/// A live endpoint and key; `param` valid in the fields that its mask names; the buffer readable until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_put_nbx(
    ep: ucp_ep_h,
    buffer: *const c_void,
    count: usize,
    remote_addr: u64,
    rkey: ucp_rkey_h,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    if ep.is_null() || param.is_null() {
        return invalid_request("ucp_put_nbx", "ep or param is null");
    }
    // SAFETY: the caller's promises.
    unsafe {
        rma::put(
            endpoint_of(ep),
            buffer,
            count,
            remote_addr,
            rkey.cast::<Rkey>(),
            param,
        )
    }
}

/// Reads a peer's memory; completes when the data is here.
///
/// # Safety
/// A live endpoint and key; `param` valid in the fields that its mask names; the buffer writable until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_get_nbx(
    ep: ucp_ep_h,
    buffer: *mut c_void,
    count: usize,
    remote_addr: u64,
    rkey: ucp_rkey_h,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    if ep.is_null() || param.is_null() {
        return invalid_request("ucp_get_nbx", "ep or param is null");
    }
    // SAFETY: the caller's promises.
    unsafe {
        rma::get(
            endpoint_of(ep),
            buffer,
            count,
            remote_addr,
            rkey.cast::<Rkey>(),
            param,
        )
    }
}
