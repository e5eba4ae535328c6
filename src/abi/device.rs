//! Communication started by a device: no transport here supports it; the functions check their arguments and fail.

use crate::ctypes::*;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

/// Whether a list of elements is complete enough for `UCS_ERR_UNSUPPORTED`.
///
/// # Safety
/// `params` is NULL or points to fields as its mask says.
unsafe fn list_is_valid(params: *const ucp_device_mem_list_params_t) -> bool {
    const NEEDED: u64 = UCP_DEVICE_MEM_LIST_PARAMS_FIELD_ELEMENTS as u64
        | UCP_DEVICE_MEM_LIST_PARAMS_FIELD_ELEMENT_SIZE as u64
        | UCP_DEVICE_MEM_LIST_PARAMS_FIELD_NUM_ELEMENTS as u64
        | UCP_DEVICE_MEM_LIST_PARAMS_FIELD_WORKER as u64;
    if params.is_null() {
        return false;
    }
    // SAFETY: the mask is always there, and the fields are read only when their bits are set.
    unsafe {
        (*params).field_mask & NEEDED == NEEDED
            && !(*params).elements.is_null()
            && (*params).element_size != 0
            && (*params).num_elements != 0
            && !(*params).worker.is_null()
    }
}

/// Shows local memory to a device: not offered.
///
/// # Safety
/// `params` is NULL or points to fields as its mask says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_device_local_mem_list_create(
    params: *const ucp_device_mem_list_params_t,
    mem_list_h: *mut ucp_device_local_mem_list_h,
) -> ucs_status_t {
    // SAFETY: the caller's promise.
    let valid = unsafe { list_is_valid(params) } && !mem_list_h.is_null();
    if valid {
        UCS_ERR_UNSUPPORTED
    } else {
        UCS_ERR_INVALID_PARAM
    }
}

/// Shows remote memory to a device: not offered.
///
/// # Safety
/// `params` is NULL or points to fields as its mask says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_device_remote_mem_list_create(
    params: *const ucp_device_mem_list_params_t,
    mem_list_h: *mut ucp_device_remote_mem_list_h,
) -> ucs_status_t {
    // SAFETY: the caller's promise.
    let valid = unsafe { list_is_valid(params) } && !mem_list_h.is_null();
    if valid {
        UCS_ERR_UNSUPPORTED
    } else {
        UCS_ERR_INVALID_PARAM
    }
}

/// Number of elements of a list: 0, as no list exists.
#[unsafe(no_mangle)]
pub extern "C" fn ucp_device_get_mem_list_length(mem_list_h: *const c_void) -> u32 {
    let _ = mem_list_h;
    0
}

/// Releases a list: none exists.
#[unsafe(no_mangle)]
pub extern "C" fn ucp_device_mem_list_release(mem_list_h: *mut c_void) {
    let _ = mem_list_h;
}

/// Whether a counter is in memory that this process can access.
///
/// # Safety
/// `params` is NULL or points to fields as its mask says.
unsafe fn counter_is_on_host(params: *const ucp_device_counter_params_t) -> bool {
    if params.is_null() {
        return true;
    }
    // SAFETY: the mask is always there, and the kind of memory is read only when its bit is set.
    unsafe {
        (*params).field_mask & UCP_DEVICE_COUNTER_PARAMS_FIELD_MEM_TYPE as u64 == 0
            || enum_raw((*params).mem_type) == UCS_MEMORY_TYPE_HOST as u32
    }
}

/// Sets a counter to 0, in host memory only.
///
/// # Safety
/// `params` is NULL or points to fields as its mask says; `counter_ptr` is NULL or leads to an aligned and
/// writable counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_device_counter_init(
    worker: ucp_worker_h,
    params: *const ucp_device_counter_params_t,
    counter_ptr: *mut c_void,
) -> ucs_status_t {
    let counter = counter_ptr.cast::<u64>();
    if worker.is_null() || counter.is_null() || !counter.is_aligned() {
        return UCS_ERR_INVALID_PARAM;
    }
    // SAFETY: the caller's promise; the counter is aligned, and other threads access it atomically.
    unsafe {
        if !counter_is_on_host(params) {
            return UCS_ERR_UNSUPPORTED;
        }
        AtomicU64::from_ptr(counter).store(0, Ordering::Release);
    }
    UCS_OK
}

/// Value of a counter in host memory; 0 where this process cannot read it.
///
/// # Safety
/// `params` is NULL or points to fields as its mask says; `counter_ptr` is NULL or leads to an aligned counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_device_counter_read(
    worker: ucp_worker_h,
    params: *const ucp_device_counter_params_t,
    counter_ptr: *mut c_void,
) -> u64 {
    let counter = counter_ptr.cast::<u64>();
    if worker.is_null() || counter.is_null() || !counter.is_aligned() {
        return 0;
    }
    // SAFETY: the caller's promise; the counter is aligned, and other threads access it atomically.
    unsafe {
        if counter_is_on_host(params) {
            AtomicU64::from_ptr(counter).load(Ordering::Acquire)
        } else {
            0
        }
    }
}
