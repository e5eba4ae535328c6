//! What a peer reads of this worker's memory by message: sent in parts, as it is when there is room for them, or as it
//! was when the peer's next change of this memory, or its next fence, arrived.

use super::rx_dispatch;
use crate::ctypes::*;
use crate::engine::datatype::Data;
use crate::engine::peer::Peer;
use crate::engine::request::{self, Callback, Request};
use crate::engine::worker::Worker;
use crate::proto::tx::{self, PostResult};
use crate::tl::Lane;
use crate::wire::header::{DataHdr, GetHdr, Kind};
use std::alloc::{self, Layout};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// Sends the memory that a peer wants to read.
pub fn send(worker: &Worker, peer: &Peer, addr: u64, h: GetHdr) {
    if !rx_dispatch::allowed(worker, peer, addr, h.len, "read") {
        let status = UCS_ERR_INVALID_ADDR as i8 as u8;
        let head = DataHdr { offset: 0 }.encode();
        return tx::control(peer, Kind::GetRep, status, h.req, &head);
    }
    // SAFETY: a new request on registered memory of this process.
    unsafe {
        let req = request::take(worker, std::ptr::null_mut());
        let r = &mut *req;
        tx::set_message(r, Kind::GetRep, UCS_OK as i8 as u8, h.req, &[]);
        (r.peer, r.stream, r.notify) = (peer, true, Callback::Internal(ended));
        r.data = Data::Contig {
            ptr: addr as *mut u8,
            len: h.len as usize,
        };
        // Relaxed: only the progress thread asks.
        peer.replies_in_place.fetch_add(1, Ordering::Relaxed);
        if !matches!(tx::post(req), PostResult::Queued) {
            peer.replies_in_place.fetch_sub(1, Ordering::Relaxed);
            request::recycle(req);
        }
    }
}

/// The peer is about to change memory by message: its earlier reads do not see that.
#[inline]
pub fn keep_before_change(peer: &Peer) {
    if peer.replies_in_place.load(Ordering::Relaxed) != 0 {
        keep(peer);
    }
}

/// The peer has come to a fence, or to a change: what is behind it must not be seen by what it has read before. So what
/// waits for room is copied. (It could wait for its reads instead; but its own answers would have to pass what waits,
/// or two peers would wait for each other.)
pub fn keep(peer: &Peer) {
    let mut tx = peer.tx.lock();
    // SAFETY: queued requests live.
    let lies = |&&req: &&*mut Request| lies_in_place(unsafe { &*req });
    let begun = tx.pending.front().is_some_and(|req| lies(&req));
    if begun && let Some(Lane::Tcp(sender)) = tx.lane.as_mut() {
        // A frame of it may be half written.
        sender.settle();
    }
    for &req in tx.pending.iter().filter(lies) {
        // SAFETY: as above; the peer's lock is held.
        keep_rest(peer, unsafe { &mut *req });
    }
}

/// Whether it is a reply that lies where it was read.
fn lies_in_place(r: &Request) -> bool {
    r.stream && r.kind == Kind::GetRep as u8 && r.tail.is_null()
}

/// Copies what has not been sent of a reply; its `tail` is the copy. Without memory for it the read fails.
fn keep_rest(peer: &Peer, r: &mut Request) {
    let (sent, len) = (r.offset as usize, r.data.len());
    let Some(ptr) = r.data.as_contig().filter(|_| sent < len) else {
        return;
    };
    let Some(copy) = room_for(len) else {
        (r.data, r.offset, r.aux) = (Data::EMPTY, 0, UCS_ERR_NO_MEMORY as i8 as u8);
        return;
    };
    let copy = copy.as_ptr();
    // SAFETY: registered memory of this process, and as much of our own.
    unsafe { std::ptr::copy_nonoverlapping(ptr.add(sent), copy.add(sent), len - sent) };
    (r.data, r.tail) = (Data::Contig { ptr: copy, len }, copy);
    peer.replies_in_place.fetch_sub(1, Ordering::Relaxed);
}

/// For the whole, so that offsets stay what they are: the part that was sent is not touched, and takes no memory.
fn room_for(len: usize) -> Option<NonNull<u8>> {
    let layout = Layout::array::<u8>(len).ok()?;
    // SAFETY: there is something left to be sent: it is not empty.
    NonNull::new(unsafe { alloc::alloc(layout) })
}

/// A reply is sent, or will not be.
unsafe fn ended(req: *mut Request, _status: ucs_status_t) {
    // SAFETY: a request of `send`; its copy, if there is one, is as long as its data.
    unsafe {
        let (copy, len) = ((*req).tail, (*req).data.len());
        if copy.is_null() {
            (*(*req).peer)
                .replies_in_place
                .fetch_sub(1, Ordering::Relaxed);
        } else if let Ok(layout) = Layout::array::<u8>(len) {
            alloc::dealloc(copy.cast_mut(), layout);
        }
        request::recycle(req);
    }
}
