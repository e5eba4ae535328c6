//! Memory of requests: of the worker's pool, or of the user.

use super::datatype::Data;
use super::matcher::PostedRecv;
use super::pointers::WorkerRef;
use super::request::{Callback, ReqFlags, Request, clear, fill_receive, set_callback};
use super::worker::Worker;
use std::ffi::c_void;
use std::ptr::NonNull;

/// Takes a request from the worker's pool, or the user's memory, and clears it. No lock may be held: the user's
/// `request_init` may run.
///
/// # Safety
/// `external`, if not null, is the end of `REQUEST_SIZE` writable, 8-byte aligned bytes.
#[inline]
pub unsafe fn take(worker: &Worker, external: *mut c_void) -> *mut Request {
    // SAFETY: the caller's promise; the request's memory is exclusive now. The worker has it, or the user promises that
    // the worker outlives the operation.
    unsafe { clear(WorkerRef::new(worker), memory(worker, external)) }
}

/// [`take`] in single mode, if that calls no function: the pool has a free request, or the memory is the user's.
///
/// # Safety
/// `external`, if not null, is the end of `REQUEST_SIZE` writable, 8-byte aligned bytes; single mode.
#[inline(always)]
pub unsafe fn take_no_alloc(worker: &Worker, external: *mut c_void) -> Option<*mut Request> {
    // SAFETY: the caller's promise. The worker has the memory, or the user promises that the worker outlives the
    // operation.
    unsafe {
        let at_hand = !external.is_null() || worker.pool.alone().has_some();
        at_hand.then(|| {
            clear(
                WorkerRef::new(worker),
                memory_single_threaded(worker, external),
            )
        })
    }
}

/// Takes a request for a tag receive, posted nowhere yet.
///
/// # Safety
/// The conditions of [`take`].
#[inline]
pub unsafe fn take_receive(
    worker: &Worker,
    external: *mut c_void,
    data: Data,
    notify: Callback,
    user_data: *mut c_void,
) -> *mut Request {
    // SAFETY: the caller's promise. The worker has the memory, or the user promises that the worker outlives the
    // operation.
    unsafe {
        let req = fill_receive(WorkerRef::new(worker), memory(worker, external), data);
        set_callback(req, notify, user_data);
        (&raw mut (*req).posting).write(PostedRecv::LOOSE);
        req
    }
}

/// Memory for a request, of the worker's pool or the user's, and the flags that it begins with.
///
/// # Safety
/// `external`, if not null, is the end of `REQUEST_SIZE` writable, 8-byte aligned bytes.
#[inline(always)]
unsafe fn memory(worker: &Worker, external: *mut c_void) -> (*mut Request, ReqFlags) {
    let mut shared = ReqFlags::empty();
    shared.set(ReqFlags::SHARED, worker.mt);
    if !external.is_null() {
        return (Request::of(external), ReqFlags::EXTERNAL | shared);
    }
    (from_pool(worker).as_ptr().cast(), shared)
}

/// [`memory`] in single mode, if the pool has a free request.
///
/// # Safety
/// `external`, if not null, is the end of `REQUEST_SIZE` writable, 8-byte aligned bytes; single mode.
#[inline(always)]
pub unsafe fn memory_single_threaded(
    worker: &Worker,
    external: *mut c_void,
) -> (*mut Request, ReqFlags) {
    if !external.is_null() {
        return (Request::of(external), ReqFlags::EXTERNAL);
    }
    // SAFETY: the caller's promise.
    let element = unsafe { worker.pool.alone().get_some() };
    (element.cast(), ReqFlags::empty())
}

/// [`memory`] in a worker that threads share, if the pool has a free request: calls no function.
///
/// # Safety
/// `external`, if not null, is the end of `REQUEST_SIZE` writable, 8-byte aligned bytes.
#[inline]
pub unsafe fn memory_no_alloc(
    worker: &Worker,
    external: *mut c_void,
) -> Option<(*mut Request, ReqFlags)> {
    if !external.is_null() {
        return Some((Request::of(external), ReqFlags::EXTERNAL | ReqFlags::SHARED));
    }
    let element = worker.pool.lock().pop()?;
    Some((element.as_ptr().cast(), ReqFlags::SHARED))
}

/// An element of the worker's pool.
#[inline(always)]
fn from_pool(worker: &Worker) -> NonNull<u8> {
    loop {
        let element = worker.pool.lock().pop();
        match element {
            Some(element) => return element,
            None => grow(worker),
        }
    }
}

/// Allocates a chunk of requests. The user's `request_init` runs under no lock.
#[cold]
fn grow(worker: &Worker) {
    let fresh = worker.pool.lock().allocate();
    fresh.elements().for_each(|e| worker.init_request(e));
    worker.pool.lock().add(fresh);
}

/// Returns the memory to the pool.
///
/// # Safety
/// The request is referenced nowhere any more.
#[inline]
pub unsafe fn recycle(req: *mut Request) {
    // SAFETY: the caller's promise.
    unsafe {
        if !(*req).flags.has(ReqFlags::EXTERNAL) {
            (*req)
                .worker
                .get()
                .pool
                .lock()
                .put(NonNull::new_unchecked(req.cast()));
        }
    }
}
