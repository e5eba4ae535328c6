//! Communication started by a device, the host's part: lists of memory and counters. No kernel can post: see
//! `op::device_list`.

use super::output::{inherited, invalid};
use super::worker::worker_of;
use crate::ctypes::*;
use crate::op::device_counter::{self, CounterParams};
use crate::op::device_list;
use std::ffi::c_void;

/// Makes a list of registered memory of one device. Its handle is an address of that device.
///
/// # Safety
/// `params` is NULL or points to fields as its mask says, and what they name is live; `mem_list_h` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_device_local_mem_list_create(
    params: *const ucp_device_mem_list_params_t,
    mem_list_h: *mut ucp_device_local_mem_list_h,
) -> ucs_status_t {
    const NAME: &str = "ucp_device_local_mem_list_create";
    if params.is_null() || mem_list_h.is_null() {
        return invalid(NAME, "params or mem_list_h is null");
    }
    // SAFETY: the caller's parameters and pointer.
    unsafe {
        match device_list::create_local(NAME, params) {
            Ok(handle) => {
                mem_list_h.write(handle as ucp_device_local_mem_list_h);
                UCS_OK
            }
            Err(status) => status,
        }
    }
}

/// Makes a list of memory of peers, in which an element without key and endpoint is a gap. Its handle is an address of
/// the device of the current context, or of the first one.
///
/// # Safety
/// `params` is NULL or points to fields as its mask says, and what they name is live; `mem_list_h` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_device_remote_mem_list_create(
    params: *const ucp_device_mem_list_params_t,
    mem_list_h: *mut ucp_device_remote_mem_list_h,
) -> ucs_status_t {
    const NAME: &str = "ucp_device_remote_mem_list_create";
    if params.is_null() || mem_list_h.is_null() {
        return invalid(NAME, "params or mem_list_h is null");
    }
    // SAFETY: the caller's parameters and pointer.
    unsafe {
        match device_list::create_remote(NAME, params) {
            Ok(handle) => {
                mem_list_h.write(handle as ucp_device_remote_mem_list_h);
                UCS_OK
            }
            Err(status) => status,
        }
    }
}

/// Number of elements of a list, 0 for what is not a list.
#[unsafe(no_mangle)]
pub extern "C" fn ucp_device_get_mem_list_length(mem_list_h: *const c_void) -> u32 {
    device_list::length(mem_list_h as u64).unwrap_or_else(|| {
        invalid("ucp_device_get_mem_list_length", "not a list");
        0
    })
}

/// Releases a list. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn ucp_device_mem_list_release(mem_list_h: *mut c_void) {
    if !mem_list_h.is_null() && !device_list::release(mem_list_h as u64) {
        invalid("ucp_device_mem_list_release", "not a list");
    }
}

/// The caller's parameters of a counter.
///
/// # Safety
/// `params` is NULL or points to fields as its mask says.
unsafe fn counter_params(params: *const ucp_device_counter_params_t) -> CounterParams {
    // SAFETY: a field is read only if its bit is set.
    unsafe {
        let mask = match params.is_null() {
            true => 0,
            false => (*params).field_mask,
        };
        let has = |bit: ucp_device_counter_params_field| mask & bit as u64 != 0;
        CounterParams {
            memory_type: has(UCP_DEVICE_COUNTER_PARAMS_FIELD_MEM_TYPE)
                .then(|| enum_raw((*params).mem_type)),
            memh: has(UCP_DEVICE_COUNTER_PARAMS_FIELD_MEMH).then(|| (*params).memh),
        }
    }
}

/// Sets a counter of 8 bytes to 0, in memory of any kind.
///
/// # Safety
/// `worker` is NULL or live; `params` is NULL or points to fields as its mask says; `counter_ptr` is NULL or leads to a
/// counter in memory of the kind that they say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_device_counter_init(
    worker: ucp_worker_h,
    params: *const ucp_device_counter_params_t,
    counter_ptr: *mut c_void,
) -> ucs_status_t {
    const NAME: &str = "ucp_device_counter_init";
    if worker.is_null() || counter_ptr.is_null() {
        return invalid(NAME, "worker or counter_ptr is null");
    }
    // SAFETY: the caller's handle, parameters and memory.
    unsafe {
        let w = worker_of(worker);
        if w.is_inherited() {
            return inherited(NAME);
        }
        let params = counter_params(params);
        match device_counter::init(w, NAME, params, counter_ptr as u64) {
            Ok(()) => UCS_OK,
            Err(status) => status,
        }
    }
}

/// Value of a counter, in memory of any kind; 0 where it cannot be read, with a line in the log.
///
/// # Safety
/// `worker` is NULL or live; `params` is NULL or points to fields as its mask says; `counter_ptr` is NULL or leads to a
/// counter in memory of the kind that they say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_device_counter_read(
    worker: ucp_worker_h,
    params: *const ucp_device_counter_params_t,
    counter_ptr: *mut c_void,
) -> u64 {
    const NAME: &str = "ucp_device_counter_read";
    if worker.is_null() || counter_ptr.is_null() {
        invalid(NAME, "worker or counter_ptr is null");
        return 0;
    }
    // SAFETY: the caller's handle, parameters and memory.
    unsafe {
        let (w, params) = (worker_of(worker), counter_params(params));
        if w.is_inherited() {
            inherited(NAME);
            return 0;
        }
        device_counter::read(w, NAME, params, counter_ptr as u64).unwrap_or(0)
    }
}
