//! Completion of a request: its callback is called, and its memory is freed when library and user have both released
//! it.

use super::request::{Callback, ReqFlags, Request};
use super::request_alloc::recycle;
use crate::ctypes::*;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// Completes a request: sets the status, calls the callback, and frees the memory if the user released the handle
/// before. No lock may be held: the callback may call anything but progress.
///
/// # Safety
/// The request is in no queue, list or table any more and has not ended.
pub unsafe fn complete(req: *mut Request, status: ucs_status_t) {
    // SAFETY: the caller's promise; the request stays allocated until `recycle`. It ends once; requests
    // do not outlive their worker.
    unsafe {
        let r = &mut *req;
        let status = r.data.finish(status);
        r.drop_extra();
        r.status = status;
        if let Callback::Internal(f) = r.notify {
            return f(req, status);
        }
        run_callback(r.worker.get().mt, req);
    }
}

/// The callback of a request whose completion the timeline records: records it, and calls the request's own callback,
/// or frees the request.
///
/// # Safety
/// The conditions of [`complete`], which calls it as `Callback::Internal`.
pub unsafe fn complete_traced(req: *mut Request, status: ucs_status_t) {
    // SAFETY: the caller's promise; requests do not outlive their worker. What is taken from the table has its own
    // callback again.
    unsafe {
        let worker = (*req).worker.get();
        if worker.traced.take(req, Some(status)) {
            match (*req).notify {
                Callback::Internal(f) => f(req, status),
                _ => run_callback(worker.mt, req),
            }
        }
    }
}

/// [`complete`] for a request whose data is one piece or empty and that owns nothing else to free.
///
/// # Safety
/// The conditions of [`complete`].
#[inline(always)]
pub unsafe fn complete_plain(req: *mut Request, status: ucs_status_t) {
    // SAFETY: the caller's promise.
    unsafe {
        (*req).status = status;
        if let Callback::Internal(f) = (*req).notify {
            return f(req, status);
        }
        run_callback((*req).worker.get().mt, req);
    }
}

/// [`complete`] for a tag receive that owns nothing to free: its data is one piece, or is finished.
///
/// # Safety
/// The conditions of [`complete`]; `MT` says whether threads overlap in the request's worker.
#[inline(always)]
pub unsafe fn complete_receive<const MT: bool>(req: *mut Request, status: ucs_status_t) {
    // SAFETY: the caller's promise.
    unsafe {
        (*req).status = status;
        run_callback(MT, req);
    }
}

/// Publishes the completion. The status is written before.
///
/// # Safety
/// The conditions of [`complete`].
#[inline(always)]
unsafe fn run_callback(mt: bool, req: *mut Request) {
    // SAFETY: the request stays allocated until `recycle`.
    unsafe {
        if let Callback::None = (*req).notify {
            let before = (*req).flags.raise(mt, ReqFlags::COMPLETED);
            if before.contains(ReqFlags::RELEASED) {
                recycle_released(req);
            }
        } else {
            call_back(mt, req);
        }
    }
}

#[inline(never)]
unsafe fn call_back(mt: bool, req: *mut Request) {
    // SAFETY: the request stays allocated until `recycle`: IN_CALLBACK keeps `release` from freeing it.
    unsafe {
        let status = (*req).status;
        let due = DueCallback {
            notify: (*req).notify,
            user_data: (*req).user_data,
            info: (*req).info,
        };
        // From here on the user sees the completion and may free external memory, at the latest in the callback.
        let flags = &(*req).flags;
        let before = flags.raise(mt, ReqFlags::COMPLETED | ReqFlags::IN_CALLBACK);
        if !before.contains(ReqFlags::NO_CALLBACK) {
            due.call(req, status);
        }
        // External memory may be gone.
        if before.contains(ReqFlags::EXTERNAL) {
            return;
        }
        let before = (*req).flags.lower(mt, ReqFlags::IN_CALLBACK);
        if before.contains(ReqFlags::RELEASED) {
            recycle(req);
        }
    }
}

/// A callback with its arguments, kept outside of the request, which may be freed when it is complete.
struct DueCallback {
    notify: Callback,
    user_data: *mut c_void,
    info: ucp_tag_recv_info_t,
}

impl DueCallback {
    unsafe fn call(&self, req: *mut Request, status: ucs_status_t) {
        let (handle, user_data, info) = (Request::handle(req), self.user_data, &self.info);
        // SAFETY: the arguments are those that UCP specifies for the callback.
        unsafe {
            match self.notify {
                Callback::Send(f) => f(handle, status, user_data),
                Callback::TagRecv(f) => f(handle, status, info, user_data),
                Callback::Length(f) => f(handle, status, info.length, user_data),
                Callback::None | Callback::Internal(_) => {}
            }
        }
    }
}

/// The user frees a handle. `silent`: a callback that was not called yet is dropped.
///
/// # Safety
/// A handle from this library that was not given back before.
#[inline(always)]
pub unsafe fn release(req: *mut Request, silent: bool) {
    // SAFETY: allocated until given back.
    unsafe {
        // Acquire: pairs with the AcqRel of `raise` and `lower`. After completion no other thread writes them.
        let flags = (*req).flags.load(Ordering::Acquire);
        const UNLIKELY: ReqFlags = ReqFlags::IN_CALLBACK
            .union(ReqFlags::RELEASED)
            .union(ReqFlags::EXTERNAL)
            .union(ReqFlags::SHARED);
        if flags & (ReqFlags::COMPLETED | UNLIKELY) == ReqFlags::COMPLETED {
            let element = NonNull::new_unchecked(req.cast());
            (*req).worker.get().pool.alone().put(element);
        } else {
            release_early(req, silent);
        }
    }
}

#[inline(never)]
unsafe fn release_early(req: *mut Request, silent: bool) {
    // SAFETY: allocated until given back.
    let r = unsafe { &*req };
    // Acquire: pairs with the AcqRel of `raise` and `lower`. If it is complete no change of the flags is needed.
    let flags = r.flags.load(Ordering::Acquire);
    let ended = ReqFlags::COMPLETED | ReqFlags::IN_CALLBACK | ReqFlags::RELEASED;
    if flags & ended == ReqFlags::COMPLETED {
        // SAFETY: ended, and its callback has returned.
        return unsafe { recycle(req) };
    }
    let mt = flags.contains(ReqFlags::SHARED);
    let mut change = ReqFlags::RELEASED;
    change.set(ReqFlags::NO_CALLBACK, silent);
    if r.flags.raise(mt, change) & ended == ReqFlags::COMPLETED {
        // SAFETY: ended, and its callback has returned.
        unsafe { recycle(req) };
    }
}

/// [`recycle`] for a handle that the user freed before completion, which is rare.
#[cold]
#[inline(never)]
unsafe fn recycle_released(req: *mut Request) {
    // SAFETY: the caller's promise.
    unsafe { recycle(req) };
}

/// Frees a request that completed inside of the call that made it, without a callback. External memory may still be
/// read by the user: Open MPI's blocking receive polls the request that it gave, whatever the call returned.
///
/// Returns the status of the operation, which was `status` before.
///
/// # Safety
/// The conditions of [`complete`].
pub unsafe fn abandon(req: *mut Request, status: ucs_status_t) -> ucs_status_t {
    // SAFETY: the caller's promise.
    unsafe {
        let status = (*req).data.finish(status);
        (*req).drop_extra();
        (*req).status = status;
        (*req).flags.complete();
        recycle(req);
        status
    }
}

/// Callback of requests of the library that are never passed to the user: frees the request.
///
/// # Safety
/// The conditions of [`recycle`]; used as `Callback::Internal`.
pub unsafe fn discard(req: *mut Request, _status: ucs_status_t) {
    // SAFETY: the caller's promise.
    unsafe { recycle(req) };
}
