//! Replies to gets by message. The data are sent in parts, read from memory when there is room for them; if the peer's
//! next change of this memory or its next fence arrives before, the rest is copied first.

use super::registered;
use crate::ctypes::*;
use crate::engine::datatype::Data;
use crate::engine::peer::Peer;
use crate::engine::pointers::PeerRef;
use crate::engine::request::{Callback, Op, Request, TxPayload};
use crate::engine::request_alloc;
use crate::engine::worker::Worker;
use crate::proto::tx::{self, PostResult};
use crate::wire::header::{DataHdr, GetHdr, Kind};
use std::alloc::{self, Layout};
use std::ptr::NonNull;

/// Sends the memory that a peer reads.
pub fn send(worker: &Worker, peer: &Peer, addr: u64, h: GetHdr) {
    match registered::source(worker, peer, addr, h.len) {
        // SAFETY: registered memory of this process.
        Ok(source) => unsafe { post(worker, peer, h.req, source, Op::GetReply) },
        Err(status) => refuse(peer, h.req, status),
    }
}

/// Sends a copy of the memory that a peer reads by its request `req`, and frees it.
///
/// # Safety
/// The copy is a block of so many bytes, not 0, of the global allocator, and nothing else uses it.
pub(super) unsafe fn send_copy(
    worker: &Worker,
    peer: &Peer,
    req: u64,
    (copy, len): (NonNull<u8>, usize),
) {
    let ptr = copy.as_ptr();
    let (data, op) = (Data::Contig { ptr, len }, Op::GetReplyCopy { copy });
    // SAFETY: the caller's block, which the request owns from now on.
    unsafe { post(worker, peer, req, data, op) };
}

/// Refuses a get.
pub(super) fn refuse(peer: &Peer, req: u64, status: ucs_status_t) {
    let head = DataHdr { offset: 0 }.encode();
    tx::control(peer, Kind::GetRep, status as i8 as u8, req, &head);
}

/// Posts the reply to a get. `op`: whether it is sent from the memory that the peer reads, or from a copy.
///
/// # Safety
/// The data are readable until the request ends; it owns a copy.
#[inline(always)]
unsafe fn post(worker: &Worker, peer: &Peer, id: u64, data: Data, op: Op) {
    // SAFETY: a new request; the caller's data.
    unsafe {
        let req = request_alloc::take(worker, std::ptr::null_mut());
        let r = &mut *req;
        tx::set_message(r, Kind::GetRep, UCS_OK as i8 as u8, id, &[]);
        (r.peer, r.notify) = (Some(PeerRef::new(peer)), Callback::Internal(on_reply_end));
        (r.op, r.payload, r.data) = (op, TxPayload::Fragments, data);
        if matches!(r.op, Op::GetReply) {
            peer.add_reply_in_place();
        }
        if !matches!(tx::post_answer(req), PostResult::Queued) {
            r.data.drop_unused();
            on_reply_end(req, UCS_OK);
        }
    }
}

/// Frees a copy of memory that was read.
///
/// # Safety
/// The block is of so many bytes, of the global allocator, and is not used again.
pub(super) unsafe fn free_copy(copy: NonNull<u8>, len: usize) {
    if let Ok(layout) = Layout::array::<u8>(len) {
        // SAFETY: the caller's block.
        unsafe { alloc::dealloc(copy.as_ptr(), layout) };
    }
}

/// Frees the copy of a reply that is complete or has failed.
unsafe fn on_reply_end(req: *mut Request, _status: ucs_status_t) {
    // SAFETY: a request of `post`; its copy, if there is one, is as long as its data.
    unsafe {
        if let Op::GetReplyCopy { copy } = (*req).op {
            free_copy(copy, (*req).data.len());
        } else {
            (*req).peer().end_reply_in_place();
        }
        request_alloc::recycle(req);
    }
}
