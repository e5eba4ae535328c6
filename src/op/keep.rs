//! Replies to gets that are not sent yet, before the memory changes: the unsent rest is copied.

use crate::ctypes::*;
use crate::engine::datatype::Data;
use crate::engine::peer::Peer;
use crate::engine::request::{Op, Request};
use std::alloc::{self, Layout};
use std::ptr::NonNull;

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

/// Allocates memory for the whole reply of `len` bytes, not 0, so that offsets stay valid. The sent part is not touched
/// and uses no pages.
pub(super) fn room_for(len: usize) -> Option<NonNull<u8>> {
    let layout = Layout::array::<u8>(len).ok()?;
    // SAFETY: `len` is not 0.
    NonNull::new(unsafe { alloc::alloc(layout) })
}
