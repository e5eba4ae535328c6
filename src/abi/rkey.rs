//! Remote keys: packing, unpacking, pointers.

use super::context::context_of;
use super::endpoint::endpoint_of;
use super::memory::memory_of;
use super::output::{inherited, invalid};
use crate::ctypes::*;
use crate::engine::rkey::Rkey;
use crate::op::rkey;
use std::cmp::Ordering;
use std::ffi::{c_int, c_void};

unsafe fn pack(memh: ucp_mem_h, buffer_p: *mut *mut c_void, size_p: *mut usize) -> ucs_status_t {
    // SAFETY: the caller's handle.
    let bytes = rkey::pack(unsafe { memory_of(memh) });
    let len = bytes.len();
    // SAFETY: malloc of a length that is not 0; the copy fits; the caller's pointers.
    unsafe {
        let buffer = libc::malloc(len.max(1)).cast::<u8>();
        if buffer.is_null() {
            return UCS_ERR_NO_MEMORY;
        }
        buffer.copy_from_nonoverlapping(bytes.as_ptr(), len);
        buffer_p.write(buffer.cast());
        size_p.write(len);
    }
    UCS_OK
}

/// The key of a region, to be carried to peers; freed with `ucp_rkey_buffer_release`.
///
/// # Safety
/// A mapped handle; both pointers writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_rkey_pack(
    context: ucp_context_h,
    memh: ucp_mem_h,
    rkey_buffer_p: *mut *mut c_void,
    size_p: *mut usize,
) -> ucs_status_t {
    if context.is_null() || memh.is_null() || rkey_buffer_p.is_null() || size_p.is_null() {
        return invalid(
            "ucp_rkey_pack",
            "context, memh, rkey_buffer_p or size_p is null",
        );
    }
    // SAFETY: the caller's handles.
    unsafe {
        if context_of(context).is_inherited() {
            return inherited("ucp_rkey_pack");
        }
        if !context_of(context)
            .handles
            .lock()
            .contains(&(memh as usize))
        {
            return invalid("ucp_rkey_pack", "a handle that is not mapped");
        }
        pack(memh, rkey_buffer_p, size_p)
    }
}

/// Frees a packed key.
///
/// # Safety
/// Null, or a buffer from `ucp_rkey_pack` that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_rkey_buffer_release(rkey_buffer: *mut c_void) {
    // SAFETY: made by `pack`.
    unsafe { libc::free(rkey_buffer) };
}

/// As `ucp_rkey_pack`. Export to another operating system (a data processing unit) is unsupported.
///
/// # Safety
/// A mapped handle; `params` valid in the fields that its mask names; both pointers writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_memh_pack(
    memh: ucp_mem_h,
    params: *const ucp_memh_pack_params_t,
    buffer_p: *mut *mut c_void,
    buffer_size_p: *mut usize,
) -> ucs_status_t {
    if memh.is_null() || params.is_null() || buffer_p.is_null() || buffer_size_p.is_null() {
        return invalid(
            "ucp_memh_pack",
            "memh, params, buffer_p or buffer_size_p is null",
        );
    }
    // SAFETY: the caller's structure and handle.
    unsafe {
        let flags = if (*params).field_mask & UCP_MEMH_PACK_PARAM_FIELD_FLAGS as u64 != 0 {
            (*params).flags
        } else {
            0
        };
        if flags & UCP_MEMH_PACK_FLAG_EXPORT as u64 != 0 {
            return UCS_ERR_UNSUPPORTED;
        }
        if super::memory::memory_of(memh).is_inherited() {
            return inherited("ucp_memh_pack");
        }
        pack(memh, buffer_p, buffer_size_p)
    }
}

/// Frees what `ucp_memh_pack` made.
///
/// # Safety
/// Null, or such a buffer that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_memh_buffer_release(
    buffer: *mut c_void,
    _params: *const ucp_memh_buffer_release_params_t,
) {
    // SAFETY: made by `pack`.
    unsafe { libc::free(buffer) };
}

/// Makes a packed key usable for an endpoint's peer.
///
/// # Safety
/// A live endpoint; a buffer as `ucp_rkey_pack` made it; `rkey_p` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_ep_rkey_unpack(
    ep: ucp_ep_h,
    rkey_buffer: *const c_void,
    rkey_p: *mut ucp_rkey_h,
) -> ucs_status_t {
    if ep.is_null() || rkey_buffer.is_null() || rkey_p.is_null() {
        return invalid("ucp_ep_rkey_unpack", "ep, rkey_buffer or rkey_p is null");
    }
    // SAFETY: the caller's buffer, handle and pointer.
    unsafe {
        if (*endpoint_of(ep)).worker.get().is_inherited() {
            return inherited("ucp_ep_rkey_unpack");
        }
        match rkey::decode(rkey_buffer.cast()) {
            Ok(packed) => {
                let key = rkey::unpack(&*endpoint_of(ep), packed);
                rkey_p.write(Box::into_raw(Box::new(key)).cast());
                UCS_OK
            }
            Err(status) => status,
        }
    }
}

/// The local address behind a remote one, where the memory is mapped.
///
/// # Safety
/// A live key; `addr_p` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_rkey_ptr(
    rkey: ucp_rkey_h,
    raddr: u64,
    addr_p: *mut *mut c_void,
) -> ucs_status_t {
    if rkey.is_null() || addr_p.is_null() {
        return invalid("ucp_rkey_ptr", "rkey or addr_p is null");
    }
    // SAFETY: the caller's key and pointer.
    unsafe {
        match rkey::pointer(&*rkey.cast::<Rkey>(), raddr) {
            Ok(ptr) => {
                addr_p.write(ptr.cast());
                UCS_OK
            }
            Err(status) => status,
        }
    }
}

/// Frees a key.
///
/// # Safety
/// Null, or a key that was not freed and that no operation uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_rkey_destroy(rkey: ucp_rkey_h) {
    if !rkey.is_null() {
        // SAFETY: made by `ucp_ep_rkey_unpack`.
        drop(unsafe { Box::from_raw(rkey.cast::<Rkey>()) });
    }
}

/// Orders two keys; 0 if they mean the same memory of the same peer.
///
/// # Safety
/// Live keys of this worker; `params` and `result` valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_rkey_compare(
    worker: ucp_worker_h,
    rkey1: ucp_rkey_h,
    rkey2: ucp_rkey_h,
    params: *const ucp_rkey_compare_params_t,
    result: *mut c_int,
) -> ucs_status_t {
    if worker.is_null()
        || rkey1.is_null()
        || rkey2.is_null()
        || params.is_null()
        || result.is_null()
    {
        return invalid("ucp_rkey_compare", "a null pointer");
    }
    // SAFETY: the caller's keys and pointers.
    unsafe {
        if (*params).field_mask != 0 {
            return invalid("ucp_rkey_compare", "an unknown field");
        }
        let order = |key: ucp_rkey_h| (*key.cast::<Rkey>()).identity;
        result.write(match order(rkey1).cmp(&order(rkey2)) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        });
    }
    UCS_OK
}
