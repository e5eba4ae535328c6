//! Replies to gets by message. The data are sent in parts, read from memory when there is room for them; if the peer's
//! next change of this memory or its next fence arrives before, the rest is copied first.

use super::registered;
use crate::ctypes::*;
use crate::engine::peer::Peer;
use crate::engine::pointers::PeerRef;
use crate::engine::request::{Callback, Op, Request, TxPayload};
use crate::engine::request_alloc;
use crate::engine::worker::Worker;
use crate::proto::tx::{self, PostResult};
use crate::wire::header::{DataHdr, GetHdr, Kind};
use std::alloc::{self, Layout};

/// Sends the memory that a peer reads.
pub fn send(worker: &Worker, peer: &Peer, addr: u64, h: GetHdr) {
    let source = match registered::source(worker, peer, addr, h.len) {
        Ok(source) => source,
        Err(status) => {
            let head = DataHdr { offset: 0 }.encode();
            return tx::control(peer, Kind::GetRep, status as i8 as u8, h.req, &head);
        }
    };
    // SAFETY: a new request on registered memory of this process.
    unsafe {
        let req = request_alloc::take(worker, std::ptr::null_mut());
        let r = &mut *req;
        tx::set_message(r, Kind::GetRep, UCS_OK as i8 as u8, h.req, &[]);
        (r.peer, r.notify) = (Some(PeerRef::new(peer)), Callback::Internal(on_reply_end));
        (r.op, r.payload) = (Op::GetReply, TxPayload::Fragments);
        r.data = source;
        peer.add_reply_in_place();
        if !matches!(tx::post(req), PostResult::Queued) {
            peer.end_reply_in_place();
            r.data.drop_unused();
            request_alloc::recycle(req);
        }
    }
}

/// Frees the copy of a reply that is complete or has failed.
unsafe fn on_reply_end(req: *mut Request, _status: ucs_status_t) {
    // SAFETY: a request of `send`; its copy, if there is one, is as long as its data.
    unsafe {
        if let Op::GetReplyCopy { copy } = (*req).op {
            if let Ok(layout) = Layout::array::<u8>((*req).data.len()) {
                alloc::dealloc(copy.as_ptr(), layout);
            }
        } else {
            (*req).peer().end_reply_in_place();
        }
        request_alloc::recycle(req);
    }
}
