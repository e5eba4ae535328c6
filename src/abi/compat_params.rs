//! Turns the arguments of deprecated functions into the parameters of those that replaced them.

use crate::abi::request::{ucp_request_check_status, ucp_request_free};
use crate::abi::worker::ucp_worker_progress;
use crate::ctypes::*;
use std::ffi::c_void;
use std::mem::{MaybeUninit, transmute};
use std::ptr::null_mut;

/// No field set.
pub(super) const EMPTY: ucp_request_param_t = ucp_request_param {
    op_attr_mask: 0,
    flags: 0,
    request: null_mut(),
    cb: ucp_request_param_cb { send: None },
    datatype: 0,
    user_data: null_mut(),
    reply_buffer: null_mut(),
    memory_type: MaybeUninit::new(UCS_MEMORY_TYPE_HOST),
    recv_info: ucp_request_param_recv_info { length: null_mut() },
    memh: null_mut(),
    remote_datatype: 0,
    remote: null_mut(),
    remote_count: 0,
};

/// With the callback of a send, put, get, atomic, flush or close.
pub(super) fn with_send_cb(cb: ucp_send_callback_t) -> ucp_request_param_t {
    // SAFETY: `cb` takes the first two of the three arguments it will be called with. The C calling conventions of
    // x86-64 and AArch64 pass all three in registers that the caller owns, so a function that does not read the third
    // works; UCX's own programs rely on the same.
    let send = unsafe { transmute::<ucp_send_callback_t, ucp_send_nbx_callback_t>(cb) };
    let op_attr_mask = if cb.is_some() {
        UCP_OP_ATTR_FIELD_CALLBACK as u32
    } else {
        0
    };
    ucp_request_param {
        op_attr_mask,
        cb: ucp_request_param_cb { send },
        ..EMPTY
    }
}

/// With the callback of a tag receive, which is called even when the message was there already.
pub(super) fn with_tag_recv_cb(cb: ucp_tag_recv_callback_t) -> ucp_request_param_t {
    // SAFETY: as in `with_send_cb`, with four arguments; the third is a pointer on both sides.
    let recv = unsafe { transmute::<ucp_tag_recv_callback_t, ucp_tag_recv_nbx_callback_t>(cb) };
    let callback = if cb.is_some() {
        UCP_OP_ATTR_FIELD_CALLBACK as u32
    } else {
        0
    };
    let op_attr_mask = callback | UCP_OP_ATTR_FLAG_NO_IMM_CMPL as u32;
    ucp_request_param {
        op_attr_mask,
        cb: ucp_request_param_cb { recv },
        ..EMPTY
    }
}

/// With the callback of a stream receive.
pub(super) fn with_stream_recv_cb(cb: ucp_stream_recv_callback_t) -> ucp_request_param_t {
    // SAFETY: as in `with_send_cb`, with four arguments.
    let recv_stream =
        unsafe { transmute::<ucp_stream_recv_callback_t, ucp_stream_recv_nbx_callback_t>(cb) };
    let op_attr_mask = if cb.is_some() {
        UCP_OP_ATTR_FIELD_CALLBACK as u32
    } else {
        0
    };
    ucp_request_param {
        op_attr_mask,
        cb: ucp_request_param_cb { recv_stream },
        ..EMPTY
    }
}

/// Adds a datatype.
pub(super) fn typed(param: ucp_request_param_t, datatype: ucp_datatype_t) -> ucp_request_param_t {
    let op_attr_mask = param.op_attr_mask | UCP_OP_ATTR_FIELD_DATATYPE as u32;
    ucp_request_param {
        op_attr_mask,
        datatype,
        ..param
    }
}

/// Adds flags.
pub(super) fn flagged(param: ucp_request_param_t, flags: u32) -> ucp_request_param_t {
    let op_attr_mask = param.op_attr_mask | UCP_OP_ATTR_FIELD_FLAGS as u32;
    ucp_request_param {
        op_attr_mask,
        flags,
        ..param
    }
}

/// Adds memory that the program supplies for the request.
pub(super) fn placed(param: ucp_request_param_t, request: *mut c_void) -> ucp_request_param_t {
    let op_attr_mask = param.op_attr_mask | UCP_OP_ATTR_FIELD_REQUEST as u32;
    ucp_request_param {
        op_attr_mask,
        request,
        ..param
    }
}

/// Status of an operation whose request is freed at once; it continues without it.
///
/// # Safety
/// An nbx function returned `request`, and it is freed nowhere else.
pub(super) unsafe fn discard_request(request: ucs_status_ptr_t) -> ucs_status_t {
    if UCS_PTR_IS_PTR(request) {
        // SAFETY: the caller passes ownership of the request.
        unsafe { ucp_request_free(request) };
    }
    UCS_PTR_STATUS(request)
}

/// Progresses `worker` until the operation ends.
///
/// # Safety
/// An nbx function returned `request` for `worker`, and it is freed nowhere else.
pub(super) unsafe fn wait(worker: ucp_worker_h, request: ucs_status_ptr_t) -> ucs_status_t {
    if !UCS_PTR_IS_PTR(request) {
        return UCS_PTR_STATUS(request);
    }
    loop {
        // SAFETY: the caller's worker; the request lives until it is freed here.
        unsafe {
            ucp_worker_progress(worker);
            let status = ucp_request_check_status(request);
            if status != UCS_INPROGRESS {
                ucp_request_free(request);
                return status;
            }
        }
    }
}
