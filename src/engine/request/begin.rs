//! Initialisation of a request.

use super::{
    AtomicReqFlags, Callback, Op, ReqFlags, Request, TailOwner, TxMsg, TxPayload, TxState,
};
use crate::ctypes::*;
use crate::engine::datatype::Data;
use crate::engine::matcher::PostedRecv;
use crate::engine::pointers::{EndpointId, WorkerRef};
use std::ffi::c_void;
use std::ptr;

/// Initialises a request.
///
/// # Safety
/// The memory is exclusively the caller's.
#[inline(always)]
pub unsafe fn clear(worker: WorkerRef, (req, flags): (*mut Request, ReqFlags)) -> *mut Request {
    // SAFETY: the caller's promise. Every field is written.
    unsafe {
        req.write(Request {
            flags: AtomicReqFlags::new(flags),
            status: UCS_INPROGRESS,
            sent: TxState::Complete,
            payload: TxPayload::Whole,
            tail_owner: TailOwner::User,
            worker,
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

/// Initialises a tag receive. Writes the fields that one needs until it is matched, but for `posting`, which the
/// matcher writes, and those of [`set_callback`]; the rest is written when it becomes a transfer ([`init_full`]).
///
/// # Safety
/// The memory is exclusively the caller's.
#[inline(always)]
pub unsafe fn fill_receive(
    worker: WorkerRef,
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
        (&raw mut (*req).worker).write(worker);
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

/// Clears the fields that [`fill_receive`] leaves out: the receive becomes a transfer.
pub fn init_full(r: &mut Request) {
    (r.peer, r.ep, r.msg) = (None, EndpointId::NONE, TxMsg::NONE);
    (r.offset, r.next, r.id) = (0, ptr::null_mut(), 0);
    (r.op, r.extra) = (Op::Message, None);
}
