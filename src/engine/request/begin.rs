//! Initialisation of a request, in memory of the worker's pool or of the user.

use super::{
    AtomicReqFlags, Callback, EndpointId, Op, ReqFlags, Request, TailOwner, TxMsg, TxPayload,
    TxState, WorkerRef,
};
use crate::ctypes::*;
use crate::engine::datatype::Data;
use crate::engine::matcher::PostedRecv;
use crate::engine::worker::Worker;
use std::ffi::c_void;
use std::ptr::{self, NonNull};

/// Takes a request from the worker's pool, or the user's memory, and clears it. No lock may be held: the user's
/// `request_init` may run.
///
/// # Safety
/// `external`, if not null, is the end of `REQUEST_SIZE` writable, 8-byte aligned bytes.
#[inline]
pub unsafe fn take(worker: &Worker, external: *mut c_void) -> *mut Request {
    // SAFETY: the caller's promise; the request's memory is exclusive now.
    unsafe { clear(worker, memory(worker, external)) }
}

/// [`take`] in single mode, if that calls no function: the pool has a free request, or the memory is the user's.
///
/// # Safety
/// `external`, if not null, is the end of `REQUEST_SIZE` writable, 8-byte aligned bytes; single mode.
#[inline(always)]
pub unsafe fn take_no_alloc(worker: &Worker, external: *mut c_void) -> Option<*mut Request> {
    // SAFETY: the caller's promise.
    unsafe {
        let at_hand = !external.is_null() || worker.pool.alone().has_some();
        at_hand.then(|| clear(worker, memory_single_threaded(worker, external)))
    }
}

/// Initialises a request.
///
/// # Safety
/// The memory is exclusively the caller's.
#[inline(always)]
unsafe fn clear(worker: &Worker, (req, flags): (*mut Request, ReqFlags)) -> *mut Request {
    // SAFETY: the caller's promise. Every field is written. The worker has the memory, or the user promises that the
    // worker outlives the operation.
    unsafe {
        req.write(Request {
            flags: AtomicReqFlags::new(flags),
            status: UCS_INPROGRESS,
            sent: TxState::Complete,
            payload: TxPayload::Whole,
            tail_owner: TailOwner::User,
            worker: WorkerRef::new(worker),
            posting: PostedRecv::LOOSE,
            notify: Callback::None,
            user_data: ptr::null_mut(),
            data: Data::EMPTY,
            info: ucp_tag_recv_info_t {
                sender_tag: 0,
                length: 0,
            },
            peer: None,
            ep: EndpointId::NONE,
            msg: TxMsg::NONE,
            op: Op::Message,
            extra: None,
            offset: 0,
            next: ptr::null_mut(),
            id: 0,
        });
    }
    req
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
    // SAFETY: the caller's promise.
    unsafe {
        let req = fill_receive(worker, memory(worker, external), data);
        set_callback(req, notify, user_data);
        (&raw mut (*req).posting).write(PostedRecv::LOOSE);
        req
    }
}

/// Initialises a tag receive. Writes the fields that one needs until it is matched, but for `posting`, which the
/// matcher writes, and those of [`set_callback`]; the rest is written when it becomes a transfer ([`init_full`]).
///
/// # Safety
/// The memory is exclusively the caller's.
#[inline(always)]
pub unsafe fn fill_receive(
    worker: &Worker,
    (req, flags): (*mut Request, ReqFlags),
    data: Data,
) -> *mut Request {
    // SAFETY: the request's memory is exclusive now. No reference is made to fields that are not written.
    unsafe {
        (&raw mut (*req).flags).write(AtomicReqFlags::new(flags | ReqFlags::TAG_RECV));
        (&raw mut (*req).status).write(UCS_INPROGRESS);
        (&raw mut (*req).sent).write(TxState::Complete);
        (&raw mut (*req).payload).write(TxPayload::Whole);
        (&raw mut (*req).tail_owner).write(TailOwner::User);
        (&raw mut (*req).extra).write(None);
        (&raw mut (*req).worker).write(WorkerRef::new(worker));
        (&raw mut (*req).data).write(data);
    }
    req
}

/// Sets the callback of a receive that [`fill_receive`] made.
///
/// # Safety
/// The request is the caller's.
#[inline(always)]
pub unsafe fn set_callback(req: *mut Request, notify: Callback, user_data: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe {
        (&raw mut (*req).notify).write(notify);
        (&raw mut (*req).user_data).write(user_data);
    }
}

/// Clears the fields that [`take_receive`] leaves out: the receive becomes a transfer.
pub fn init_full(r: &mut Request) {
    (r.peer, r.ep, r.msg) = (None, EndpointId::NONE, TxMsg::NONE);
    (r.offset, r.next, r.id) = (0, ptr::null_mut(), 0);
    (r.op, r.extra) = (Op::Message, None);
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
