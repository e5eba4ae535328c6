//! Replies to gets by message. The data are sent in parts, read from memory when there is room for them; if the peer's
//! next change of this memory or its next fence arrives before, the rest is copied first.

use super::{device_target, rx_dispatch};
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
    let source = match rx_dispatch::allowed(worker, addr, h.len) {
        true => Ok(Data::Contig {
            ptr: addr as *mut u8,
            len: h.len as usize,
        }),
        false => device_target::source(worker, peer, addr, h.len),
    };
    let source = match source {
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

/// Called before a change of memory by a message of the peer: earlier gets of the peer must not see it.
#[inline]
pub fn keep_before_change(peer: &Peer) {
    if peer.has_replies_in_place() {
        keep(peer);
    }
}

/// Called at a fence or a change of the peer: gets before it must not see what follows it. The unsent rest of each
/// reply is copied. (Waiting for the replies instead would block others behind them: two peers could wait for each
/// other.)
pub fn keep(peer: &Peer) {
    let mut tx = peer.tx.lock();
    // SAFETY: queued requests are not freed.
    let lies = |&&req: &&*mut Request| lies_in_place(unsafe { &*req });
    let begun = tx.pending.front().is_some_and(|req| lies(&req));
    if begun && let Some(lane) = tx.lane.as_mut() {
        // A record of the reply may be partly sent.
        lane.settle();
    }
    for &req in tx.pending.iter().filter(lies) {
        // SAFETY: queued requests are not freed, and the peer's lock is held.
        keep_rest(peer, unsafe { &mut *req });
    }
}

/// Whether the request is a reply that is sent from the memory that the peer reads.
fn lies_in_place(r: &Request) -> bool {
    matches!(r.op, Op::GetReply)
}

/// Copies the unsent rest of a reply. Without memory for it the get fails.
fn keep_rest(peer: &Peer, r: &mut Request) {
    let (sent, len) = (r.offset as usize, r.data.len());
    if sent >= len {
        return;
    }
    let Some(copy) = room_for(len) else {
        return refuse_rest(r, UCS_ERR_NO_MEMORY);
    };
    // SAFETY: registered memory of this process, and a new block of `len` bytes, which takes the place of the data.
    let status = unsafe {
        r.data.pack(sent, copy.as_ptr().add(sent), len - sent);
        r.data.finish(UCS_OK)
    };
    r.data = Data::Contig {
        ptr: copy.as_ptr(),
        len,
    };
    r.op = Op::GetReplyCopy { copy };
    peer.end_reply_in_place();
    if status != UCS_OK {
        r.msg.aux = status as i8 as u8;
    }
}

/// Answers the rest of a get with an error.
fn refuse_rest(r: &mut Request, status: ucs_status_t) {
    // SAFETY: the data are replaced.
    unsafe { r.data.drop_unused() };
    (r.data, r.offset, r.msg.aux) = (Data::EMPTY, 0, status as i8 as u8);
}

/// Allocates memory for the whole reply, so that offsets stay valid. The sent part is not touched and uses no pages.
fn room_for(len: usize) -> Option<NonNull<u8>> {
    let layout = Layout::array::<u8>(len).ok()?;
    // SAFETY: `len` is not 0: there is something left to send.
    NonNull::new(unsafe { alloc::alloc(layout) })
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
