//! Requests: state, cancellation, release, description.

use super::output::invalid;
use super::worker::worker_of;
use crate::ctypes::*;
use crate::engine::completion;
use crate::engine::memory::memory_type_of;
use crate::engine::request::{self, ReqFlags, Request};
use crate::op::tag;
use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

/// In progress, or how it ended.
///
/// # Safety
/// A live request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_request_check_status(request: *mut c_void) -> ucs_status_t {
    if request.is_null() {
        return invalid("ucp_request_check_status", "request is null");
    }
    // SAFETY: the caller's handle.
    unsafe { (*Request::of(request)).state() }
}

/// As `ucp_request_check_status`, as a truth value.
///
/// # Safety
/// A live request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_request_is_completed(request: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { (ucp_request_check_status(request) != UCS_INPROGRESS).into() }
}

/// State, and for a tag receive that has ended what was received.
///
/// # Safety
/// A live request; `info` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_request_test(
    request: *mut c_void,
    info: *mut ucp_tag_recv_info_t,
) -> ucs_status_t {
    if request.is_null() {
        return invalid("ucp_request_test", "request is null");
    }
    // SAFETY: the caller's handle and pointer.
    unsafe {
        let r = &*Request::of(request);
        let status = r.state();
        if status != UCS_INPROGRESS && !info.is_null() && r.flags.has(ReqFlags::TAG_RECV) {
            info.write(r.info);
        }
        status
    }
}

/// Same function as `ucp_request_test`, for a tag receive.
///
/// # Safety
/// The conditions of `ucp_request_test`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_tag_recv_request_test(
    request: *mut c_void,
    info: *mut ucp_tag_recv_info_t,
) -> ucs_status_t {
    // SAFETY: the caller's promise.
    unsafe { ucp_request_test(request, info) }
}

/// Cancels a receive that is not matched; other operations continue.
///
/// # Safety
/// A live worker and a request of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_request_cancel(worker: ucp_worker_h, request: *mut c_void) {
    if worker.is_null() || request.is_null() {
        return;
    }
    // SAFETY: the caller's handles.
    unsafe {
        let req = Request::of(request);
        let flags = (*req).flags.load(Ordering::Acquire);
        let waits = flags & (ReqFlags::COMPLETED | ReqFlags::TAG_RECV) == ReqFlags::TAG_RECV;
        // MPICH 5 cancels sends by a handle that it never set: what is no receive of this worker's is let alone.
        let ours = std::ptr::eq((*req).worker.get(), worker.cast_const().cast());
        // A forked child leaves its parent's requests as they are.
        if waits && ours && !worker_of(worker).is_inherited() {
            tag::cancel(worker_of(worker), req);
        }
    }
}

/// Frees a request. If it is not complete, its callback is dropped.
///
/// # Safety
/// A request that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_request_free(request: *mut c_void) {
    if request.is_null() {
        invalid("ucp_request_free", "request is null");
        return;
    }
    // SAFETY: the caller's handle.
    unsafe { completion::release(Request::of(request), true) };
}

/// Frees a request. If it is not complete, its callback is still called.
///
/// # Safety
/// A request that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_request_release(request: *mut c_void) {
    if request.is_null() {
        invalid("ucp_request_release", "request is null");
        return;
    }
    // SAFETY: the caller's handle.
    unsafe { completion::release(Request::of(request), false) };
}

/// Fills the fields of `attr` that its mask names.
///
/// # Safety
/// A live request; `attr` valid in the fields that its mask names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_request_query(
    request: *mut c_void,
    attr: *mut ucp_request_attr_t,
) -> ucs_status_t {
    const NAME: &str = "ucp_request_query";
    if request.is_null() || attr.is_null() {
        return invalid(NAME, "request or attr is null");
    }
    // SAFETY: the caller's handle; fields under the mask, through raw pointers.
    unsafe {
        let (r, mask) = (&*Request::of(request), (*attr).field_mask);
        let has = |bit: ucp_request_attr_field| mask & bit as u64 != 0;
        if r.flags.has(ReqFlags::RELEASED) {
            return invalid(NAME, "the request was released");
        }
        if has(UCP_REQUEST_ATTR_FIELD_INFO_STRING) {
            if !has(UCP_REQUEST_ATTR_FIELD_INFO_STRING_SIZE)
                || ((*attr).debug_string.is_null() && (*attr).debug_string_size > 0)
            {
                return invalid(NAME, "a text without its size, or a null pointer");
            }
            if (*attr).debug_string_size > 0 {
                let text = request::describe(r);
                let n = text.len().min((*attr).debug_string_size - 1);
                let out = (*attr).debug_string.cast::<u8>();
                out.copy_from_nonoverlapping(text.as_ptr(), n);
                out.add(n).write(0);
            }
        }
        if has(UCP_REQUEST_ATTR_FIELD_STATUS) {
            (&raw mut (*attr).status).write(r.state());
        }
        if has(UCP_REQUEST_ATTR_FIELD_MEM_TYPE) {
            (&raw mut (*attr).mem_type).write(memory_type_of(r.data.kind()));
        }
    }
    UCS_OK
}
