//! Remote atomics.

use super::endpoint::endpoint_of;
use super::output::invalid_request;
use crate::ctypes::*;
use crate::engine::rkey::Rkey;
use crate::fast::atomics;
use std::ffi::c_void;
use std::mem::MaybeUninit;

/// One atomic operation on a peer's memory.
///
/// # Safety
/// A live endpoint and key; `param` valid in the fields that its mask names; buffers valid until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_atomic_op_nbx(
    ep: ucp_ep_h,
    opcode: MaybeUninit<ucp_atomic_op_t>,
    buffer: *const c_void,
    count: usize,
    remote_addr: u64,
    rkey: ucp_rkey_h,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    if ep.is_null() || param.is_null() {
        return invalid_request("ucp_atomic_op_nbx", "ep or param is null");
    }
    // SAFETY: the caller's promises; an argument is initialised.
    unsafe {
        atomics::atomic(
            endpoint_of(ep),
            enum_raw(opcode),
            buffer,
            count,
            remote_addr,
            rkey.cast::<Rkey>(),
            param,
        )
    }
}
