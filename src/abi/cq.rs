//! Completion queues.

use super::output::{inherited, invalid};
use super::worker::worker_of;
use crate::ctypes::*;
use crate::engine::cq::Cq;
use crate::fast::progress;
use std::ffi::c_void;
use std::mem::MaybeUninit;

/// The queue behind a handle.
///
/// # Safety
/// A handle of a queue whose worker lives.
unsafe fn cq_of<'a>(handle: ucpx_cq_h) -> &'a Cq {
    // SAFETY: the caller's promise.
    unsafe { &*handle.cast::<Cq>().cast_const() }
}

/// The queue that the `user_data` of an operation begins with.
///
/// # Safety
/// It points to the handle of a queue whose worker lives.
unsafe fn cq_at<'a>(user_data: *mut c_void) -> &'a Cq {
    // SAFETY: the caller's promise.
    unsafe { cq_of(user_data.cast::<ucpx_cq_h>().read()) }
}

/// The status of a completed operation.
///
/// # Safety
/// It is initialised.
unsafe fn status_of(status: MaybeUninit<ucs_status_t>) -> ucs_status_t {
    // SAFETY: the caller's promise.
    ucs_status_t::from_raw(unsafe { status_raw(status) })
}

/// Creates a completion queue of a worker; `UCS_ERR_ALREADY_EXISTS` if there is one with that number. Destroyed before
/// the worker.
///
/// # Safety
/// A live worker; `params` null or valid in the fields that its mask names; `cq_p` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucpx_cq_create(
    worker: ucp_worker_h,
    params: *const ucpx_cq_params_t,
    cq_p: *mut ucpx_cq_h,
) -> ucs_status_t {
    if worker.is_null() || cq_p.is_null() {
        return invalid("ucpx_cq_create", "worker or cq_p is null");
    }
    // SAFETY: the caller's handle and structures; a field is read only if its bit is set.
    unsafe {
        let given = !params.is_null() && (*params).field_mask & UCPX_CQ_PARAM_FIELD_ID as u64 != 0;
        let id = if given { (*params).id } else { 0 };
        let worker = worker_of(worker);
        if worker.is_inherited() {
            return inherited("ucpx_cq_create");
        }
        let Some(cq) = worker.open_cq(id) else {
            return UCS_ERR_ALREADY_EXISTS;
        };
        cq_p.write((&raw const *cq).cast_mut().cast());
    }
    UCS_OK
}

/// Takes up to `count` entries, the oldest first, and returns their number. Progresses the worker if there are none.
///
/// # Safety
/// A live queue; room for so many entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucpx_cq_poll(
    cq: ucpx_cq_h,
    entries: *mut ucpx_cq_entry_t,
    count: usize,
) -> usize {
    if cq.is_null() || entries.is_null() {
        invalid("ucpx_cq_poll", "cq or entries is null");
        return 0;
    }
    // SAFETY: the caller's handle and memory.
    let (cq, out) = unsafe {
        let out = entries.cast::<MaybeUninit<ucpx_cq_entry_t>>();
        (cq_of(cq), std::slice::from_raw_parts_mut(out, count))
    };
    if !cq.is_empty_alone() {
        return poll_slow(cq, out);
    }
    match progress::take_signals(cq.worker(), cq.id(), out) {
        Some(n) => n,
        None => poll_empty(cq, out),
    }
}

/// [`ucpx_cq_poll`] of a queue that may have entries.
#[inline(never)]
fn poll_slow(cq: &Cq, out: &mut [MaybeUninit<ucpx_cq_entry_t>]) -> usize {
    match cq.take(out) {
        0 => poll_empty(cq, out),
        n => n,
    }
}

/// [`ucpx_cq_poll`] of a queue without entries.
#[inline(never)]
fn poll_empty(cq: &Cq, out: &mut [MaybeUninit<ucpx_cq_entry_t>]) -> usize {
    progress::progress(cq.worker());
    cq.take(out)
}

/// Destroys a queue, with its entries. No outstanding operation may have it as its target.
///
/// # Safety
/// A live queue, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucpx_cq_destroy(cq: ucpx_cq_h) {
    // A forked child does not change its parent's queue.
    // SAFETY: the caller's handle.
    if !cq.is_null() && !unsafe { cq_of(cq) }.worker().is_inherited() {
        // SAFETY: the caller's handle.
        unsafe { cq_of(cq) }.close();
    }
}

/// Adds a completion to the queue that `user_data` points to; `got`: the tag and the length that were received.
///
/// # Safety
/// The promises of `ucpx_cq_push_send` and its siblings.
unsafe fn push(
    user_data: *mut c_void,
    request: *mut c_void,
    status: MaybeUninit<ucs_status_t>,
    got: (u64, usize),
) {
    // SAFETY: the caller's promise.
    let (cq, status) = unsafe { (cq_at(user_data), status_of(status)) };
    cq.worker()
        .complete_in_cq(cq, request, status, user_data, got);
}

/// For `cb.send` of sends, puts, gets, atomics, flushes and closes; `user_data` points to a `ucpx_cq_h`.
///
/// # Safety
/// Called by the library, or by a callback of the user with its own arguments. `user_data` as documented.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucpx_cq_push_send(
    request: *mut c_void,
    status: MaybeUninit<ucs_status_t>,
    user_data: *mut c_void,
) {
    // SAFETY: the caller's promise.
    unsafe { push(user_data, request, status, (0, 0)) };
}

/// For `cb.recv` of tag receives; `user_data` points to a `ucpx_cq_h`.
///
/// # Safety
/// Called by the library, or by a callback of the user with its own arguments. `user_data` as documented.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucpx_cq_push_tag_recv(
    request: *mut c_void,
    status: MaybeUninit<ucs_status_t>,
    info: *const ucp_tag_recv_info_t,
    user_data: *mut c_void,
) {
    // SAFETY: the library's structure, the user's promise.
    unsafe {
        let got = ((*info).sender_tag, (*info).length);
        push(user_data, request, status, got);
    }
}

/// For `cb.recv_stream` and `cb.recv_am`; `user_data` points to a `ucpx_cq_h`.
///
/// # Safety
/// Called by the library, or by a callback of the user with its own arguments. `user_data` as documented.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucpx_cq_push_recv(
    request: *mut c_void,
    status: MaybeUninit<ucs_status_t>,
    length: usize,
    user_data: *mut c_void,
) {
    // SAFETY: the caller's promise.
    unsafe { push(user_data, request, status, (0, length)) };
}
