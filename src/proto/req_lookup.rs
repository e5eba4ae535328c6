//! Look-up of requests by the id in a peer's message: found in the table, removed from it, or borrowed while data are
//! stored.

use crate::ctypes::*;
use crate::engine::completion;
use crate::engine::datatype::Data;
use crate::engine::peer::Peer;
use crate::engine::request::Request;
use crate::engine::worker::Worker;
use crate::proto::answers;
use crate::sys::log;
use crate::wire::header::{DataHdr, Kind};
use std::time::Instant;

/// One of so many parts is timed: two reads of the clock take a tenth of the time of a part.
const TIMED: u32 = 8;
/// Minimum length of timed parts, bytes: for shorter ones the clock would take most of the time.
const LONG_PART: usize = 4 << 10;

/// The request with this id, if it is one of this peer.
pub fn find(worker: &Worker, peer: &Peer, id: u64) -> Option<*mut Request> {
    // SAFETY: requests in the table are not freed.
    worker
        .ids
        .lock()
        .get(id)
        .filter(|&req| unsafe { (*req).is_to(peer) })
}

/// Whether the request with this id is a rendezvous announced to this peer: the peer may request the data of no other.
pub fn is_offer(worker: &Worker, peer: &Peer, id: u64) -> bool {
    // SAFETY: requests in the table are not freed while its lock is held.
    let offers = |req: *mut Request| unsafe {
        let kind = (*req).msg.kind();
        (*req).is_to(peer) && matches!(kind, Some(Kind::TagRts | Kind::AmRts))
    };
    worker.ids.lock().get(id).is_some_and(offers)
}

/// Removes the request with this id from the table. A pending request is not removed: its id was not sent, the peer has
/// guessed it.
pub fn take(worker: &Worker, peer: &Peer, id: u64) -> Option<*mut Request> {
    take_if(worker, peer, id, |_| true)
}

/// [`take`] of a request whose message is of this kind: no other is removed.
pub fn take_of_kind(worker: &Worker, peer: &Peer, id: u64, kind: Kind) -> Option<*mut Request> {
    take_if(worker, peer, id, |r| r.msg.is(kind))
}

/// [`take`] of a request that `fits`.
#[inline(always)]
fn take_if(
    worker: &Worker,
    peer: &Peer,
    id: u64,
    fits: impl Fn(&Request) -> bool,
) -> Option<*mut Request> {
    // SAFETY: requests in the table are not freed while its lock is held.
    let fits = |&req: &*mut Request| unsafe { (*req).is_to(peer) && fits(&*req) };
    let req = if peer.tx.is_shared() || !peer.tx.lock().pending.is_empty() {
        let found = worker.ids.lock().get(id).filter(fits)?;
        if peer.tx.lock().pending.contains(&found) {
            return None;
        }
        worker.ids.lock().remove(id)
    } else {
        // Single-thread mode: nothing becomes pending meanwhile.
        worker.ids.lock().remove_if(id, fits)
    }?;
    // SAFETY: the request was in the table: this thread owns it.
    unsafe { (*req).id = 0 };
    Some(req)
}

/// A request while a part of its data is stored. It cannot be found, and so not completed, meanwhile: no part is
/// written into memory that was returned to the user.
pub struct BorrowedReq<'a> {
    worker: &'a Worker,
    peer: &'a Peer,
    id: u64,
    req: *mut Request,
}

/// Borrows the request with the id in a message of this kind.
pub fn borrow<'a>(
    worker: &'a Worker,
    peer: &'a Peer,
    id: u64,
    kind: Kind,
) -> Option<BorrowedReq<'a>> {
    let read = kind == Kind::GetRep;
    // SAFETY: requests in the table are not freed.
    let fits =
        |r: &*mut Request| unsafe { (**r).is_to(peer) && (**r).msg.is(Kind::GetReq) == read };
    let req = worker.ids.lock().borrow(id, fits)?;
    Some(BorrowedReq {
        worker,
        peer,
        id,
        req,
    })
}

impl BorrowedReq<'_> {
    fn request(&self) -> &Request {
        // SAFETY: the request is not freed, and is this thread's until it is returned.
        unsafe { &*self.req }
    }

    /// The memory for the data.
    pub fn data(&self) -> &Data {
        &self.request().data
    }

    /// Whether `n` bytes at `offset` are inside the expected data.
    pub fn has_room(&self, offset: usize, n: usize) -> bool {
        let end = offset.checked_add(n);
        let ok = end.is_some_and(|end| end <= self.request().info.length);
        if !ok {
            log::once!(
                Error,
                "peer {:#x} sent data beyond the end of a message",
                self.peer.uid
            );
        }
        ok
    }

    /// Counts a part of `n` bytes that was stored, or refused by the user's function. With the last one the request
    /// completes.
    pub fn received(&mut self, n: usize, stored: Result<(), ucs_status_t>) {
        // SAFETY: the request is not freed, and is this thread's until it is returned.
        let r = unsafe { &mut *self.req };
        if let Err(status) = stored {
            r.status = status;
        }
        r.offset += n as u64;
        let whole = r.offset as usize >= r.info.length;
        let status = match r.status {
            UCS_INPROGRESS => UCS_OK,
            status => status,
        };
        let read = r.msg.is(Kind::GetReq);
        self.return_borrowed();
        // Another thread may have completed it since.
        if whole && let Some(req) = take(self.worker, self.peer, self.id) {
            // SAFETY: the request was removed from the table: this thread owns it.
            unsafe { completion::complete(req, status) };
            if read {
                answers::answered(self.peer);
            }
        }
    }

    fn return_borrowed(&mut self) {
        let req = std::mem::replace(&mut self.req, std::ptr::null_mut());
        if !req.is_null() {
            self.worker.ids.lock().return_borrowed(self.id, req);
        }
    }
}

impl Drop for BorrowedReq<'_> {
    fn drop(&mut self) {
        self.return_borrowed();
    }
}

/// Handles a DATA message, or the reply to a get.
///
/// # Safety
/// `n` bytes are readable at `bytes`.
pub unsafe fn on_part(
    worker: &Worker,
    peer: &Peer,
    id: u64,
    kind: Kind,
    hdr: DataHdr,
    bytes: *const u8,
    n: usize,
) {
    let Some(mut borrowed) = borrow(worker, peer, id, kind) else {
        return;
    };
    let parts = peer.count_part();
    let offset = hdr.offset as usize;
    if borrowed.has_room(offset, n) {
        let is_timed = parts % TIMED == 0
            && n >= LONG_PART
            && peer.inbox.is_some()
            && borrowed.data().as_contig().is_some();
        let began = is_timed.then(Instant::now);
        // SAFETY: `has_room` has checked the range.
        let stored = unsafe { borrowed.data().unpack(offset, bytes, n) };
        if let Some(began) = began {
            peer.note_copy_pace(n, began.elapsed());
        }
        borrowed.received(n, stored);
    }
}
