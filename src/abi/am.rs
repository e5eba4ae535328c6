//! Active messages.

use super::endpoint::endpoint_of;
use super::output::{inherited, invalid, invalid_request};
use super::worker::worker_of;
use crate::ctypes::*;
use crate::engine::am::{AmFunction, AmHandler};
use crate::engine::worker::Worker;
use crate::fast::send;
use crate::op::am;
use crate::op::param::{Param, status_ptr};
use std::ffi::{c_uint, c_void};

fn set_handler(worker: &Worker, id: u32, handler: AmHandler) {
    let mut table = worker.am.lock();
    let index = id as usize;
    if table.len() <= index {
        table.resize(index + 1, AmHandler::NONE);
    }
    table[index] = handler;
}

/// Flags that no version of the interface knows.
const UNKNOWN_FLAGS: u32 = !0 << 15;

/// Sets or clears what is done with messages of an id.
///
/// # Safety
/// A live worker; `param` valid in the fields that its mask names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_worker_set_am_recv_handler(
    worker: ucp_worker_h,
    param: *const ucp_am_handler_param_t,
) -> ucs_status_t {
    const NAME: &str = "ucp_worker_set_am_recv_handler";
    if worker.is_null() || param.is_null() {
        return invalid(NAME, "worker or param is null");
    }
    // SAFETY: the caller's handle; each field is read only if its bit is set.
    unsafe {
        let mask = (*param).field_mask;
        let has = |bit: ucp_am_handler_param_field| mask & bit as u64 != 0;
        if !has(UCP_AM_HANDLER_PARAM_FIELD_ID) || !has(UCP_AM_HANDLER_PARAM_FIELD_CB) {
            return invalid(NAME, "id and cb must be given");
        }
        let flags = if has(UCP_AM_HANDLER_PARAM_FIELD_FLAGS) {
            (*param).flags
        } else {
            0
        };
        if (*param).id > u32::from(u16::MAX) || flags & UNKNOWN_FLAGS != 0 {
            return invalid(NAME, "id above 65535, or unknown flags");
        }
        if worker_of(worker).is_inherited() {
            return inherited(NAME);
        }
        if !worker_of(worker).ctx.has(UCP_FEATURE_AM) {
            return invalid(NAME, "the context was created without UCP_FEATURE_AM");
        }
        let handler = AmHandler {
            function: (*param).cb.map_or(AmFunction::None, AmFunction::New),
            arg: if has(UCP_AM_HANDLER_PARAM_FIELD_ARG) {
                (*param).arg
            } else {
                std::ptr::null_mut()
            },
            persistent: flags & UCP_AM_FLAG_PERSISTENT_DATA as u32 != 0,
        };
        set_handler(worker_of(worker), (*param).id, handler);
    }
    UCS_OK
}

/// As `ucp_worker_set_am_recv_handler`, for handlers of the older interface.
///
/// # Safety
/// A live worker.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_worker_set_am_handler(
    worker: ucp_worker_h,
    id: u16,
    cb: ucp_am_callback_t,
    arg: *mut c_void,
    flags: u32,
) -> ucs_status_t {
    const NAME: &str = "ucp_worker_set_am_handler";
    if worker.is_null() || flags & UNKNOWN_FLAGS != 0 {
        return invalid(NAME, "worker is null, or unknown flags");
    }
    // SAFETY: the caller's handle.
    let w = unsafe { worker_of(worker) };
    if w.is_inherited() {
        return inherited(NAME);
    }
    if !w.ctx.has(UCP_FEATURE_AM) {
        return invalid(NAME, "the context was created without UCP_FEATURE_AM");
    }
    let persistent = flags & UCP_AM_FLAG_PERSISTENT_DATA as u32 != 0;
    set_handler(
        w,
        id.into(),
        AmHandler {
            function: cb.map_or(AmFunction::None, AmFunction::Old),
            arg,
            persistent,
        },
    );
    UCS_OK
}

/// Sends.
///
/// # Safety
/// A live endpoint; `param` valid in the fields that its mask names; header and buffer readable until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_am_send_nbx(
    ep: ucp_ep_h,
    id: c_uint,
    header: *const c_void,
    header_length: usize,
    buffer: *const c_void,
    count: usize,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    if ep.is_null() || param.is_null() {
        return invalid_request("ucp_am_send_nbx", "ep or param is null");
    }
    // SAFETY: the caller's promises.
    unsafe {
        send::am_send(
            endpoint_of(ep),
            id,
            header,
            header_length,
            buffer,
            count,
            param,
        )
    }
}

/// Gives the data of a descriptor to a buffer.
///
/// # Safety
/// A live worker; a descriptor that a handler got and kept; the buffer writable until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_am_recv_data_nbx(
    worker: ucp_worker_h,
    data_desc: *mut c_void,
    buffer: *mut c_void,
    count: usize,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    if worker.is_null() || data_desc.is_null() || param.is_null() {
        return invalid_request("ucp_am_recv_data_nbx", "worker, data_desc or param is null");
    }
    // SAFETY: the caller's promises.
    unsafe {
        let w = worker_of(worker);
        if w.is_inherited() {
            return status_ptr(inherited("ucp_am_recv_data_nbx"));
        }
        am::recv_data(
            w,
            data_desc,
            buffer,
            count,
            &Param::new(param, w.extra_op_flags()),
        )
    }
}

/// Frees data that a handler kept.
///
/// # Safety
/// A live worker; a descriptor that a handler kept.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_am_data_release(worker: ucp_worker_h, data: *mut c_void) {
    if worker.is_null() || data.is_null() {
        invalid("ucp_am_data_release", "worker or data is null");
        return;
    }
    // SAFETY: the caller's promises.
    unsafe {
        // A forked child leaves its parent's data as it is.
        if !worker_of(worker).is_inherited() {
            am::release_data(worker_of(worker), data);
        }
    }
}
