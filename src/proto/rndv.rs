//! Rendezvous: the receiver copies from the sender's memory, or asks for the data in parts.
//!
//! RTS names the sender's request, the length and where the memory is, in one piece or by the user's
//! list of pieces. The receiver copies with `process_vm_readv` and answers ATS, or it answers RTR and gets DATA
//! through the ring. A sender that learns of the end by ATS completes with the receiver's status.

use super::attach::{self, Direction, Fault, Remote};
use super::share::{self, Next};
use super::tx::{self, Posted};
use super::withdraw::{self, Copy};
use crate::ctypes::*;
use crate::engine::datatype::Data;
use crate::engine::offer::Offer;
use crate::engine::peer::Peer;
use crate::engine::request::{self, Request, Sent};
use crate::engine::worker::Worker;
use crate::sys::cma::{Span, Spans};
use crate::sys::log;
use crate::wire::header::{DataHdr, Kind, RtrHdr, RtsHdr, UNNAMED};
use crate::wire::stats::Protocol;
use std::sync::atomic::Ordering;

/// Bytes that one progress call copies at most, so that other messages are not held up.
const PULL_STEP: usize = 512 << 10;
/// Longest list of pieces that is read by the peer; of longer ones the sender packs messages.
const MAX_LISTED: usize = 4096;

/// What a peer may read by itself: the address of the memory, or of the user's own list of pieces, which
/// stays until the end of the operation as the memory does. 0 if only this process can.
fn readable_at(data: &Data) -> (u64, u32) {
    match *data {
        Data::Contig { ptr, .. } => (ptr as u64, 0),
        Data::Iov { iov, count, .. } if (1..=MAX_LISTED).contains(&count) => {
            (iov as u64, count as u32)
        }
        _ => (0, 0),
    }
}

/// Makes a send request wait for the receiver, and the message an RTS.
///
/// # Safety
/// The request is new.
pub unsafe fn prepare(worker: &Worker, req: *mut Request, kind: Kind, imm: u64) {
    // SAFETY: the caller's new request.
    let r = unsafe { &mut *req };
    let waiting = worker.ids.lock().len() + 1;
    let (addr, pieces) = readable_at(&r.data);
    let head = RtsHdr {
        req: UNNAMED,
        len: r.data.len() as u64,
        addr,
        pieces,
        waiting: waiting.try_into().unwrap_or(u32::MAX),
    };
    (r.sent, r.bare) = (Sent::Await, true);
    tx::set_message(r, kind, 0, imm, &head.encode());
}

/// Starts to receive into `req`, whose data is the target. `Some(status)` if it has ended already;
/// the request is then the caller's.
///
/// # Safety
/// The request is new or taken out of the matcher.
pub unsafe fn receive(
    worker: &Worker,
    req: *mut Request,
    peer: &Peer,
    offer: Offer,
) -> Option<ucs_status_t> {
    // SAFETY: the caller's request, which nobody else knows yet.
    match unsafe {
        aim(&mut *req, peer, offer);
        begin(worker, req)
    } {
        Pull::Ended(status) => Some(status),
        Pull::Asked => None,
        Pull::More => {
            go_on_later(worker, req);
            None
        }
    }
}

/// As [`receive`], but nothing is done before the next progress: the request never ends inside of the
/// caller's call.
///
/// # Safety
/// A new request.
pub unsafe fn receive_later(worker: &Worker, req: *mut Request, peer: &Peer, offer: Offer) {
    // SAFETY: the caller's request, which nobody else knows yet.
    unsafe { aim(&mut *req, peer, offer) };
    go_on_later(worker, req);
}

/// Writes down what is to be received, of which nothing has been yet.
fn aim(r: &mut Request, peer: &Peer, offer: Offer) {
    request::equip(r);
    r.info.length = offer.len;
    r.peer = peer;
    (r.remote, r.remote_id) = (offer.addr, offer.req);
    r.listed = offer.pieces;
    r.one_of_many = offer.one_of_many;
}

fn go_on_later(worker: &Worker, req: *mut Request) {
    worker.pulls.lock().push_back(req);
    // Release: pairs with the Acquire swap in `fast::chores`.
    worker.chores.store(true, Ordering::Release);
    worker.nudge();
}

/// The first step of a receive: decides how it goes, and copies a first piece if it is by copying.
unsafe fn begin(worker: &Worker, req: *mut Request) -> Pull {
    // SAFETY: the caller's request; peers live as long as the worker.
    let (r, peer) = unsafe { (&mut *req, &*(*req).peer) };
    if r.info.length > r.data.len() {
        acknowledge(peer, r.remote_id, UCS_OK);
        return Pull::Ended(UCS_ERR_MESSAGE_TRUNCATED);
    }
    if peer.status() != UCS_OK {
        return Pull::Ended(peer.status());
    }
    if r.info.length == 0 {
        acknowledge(peer, r.remote_id, UCS_OK);
        return Pull::Ended(UCS_OK);
    }
    if r.remote == 0 || !peer.cma_usable() {
        if withdraw::was_withdrawn(peer, r.remote_id) {
            return Pull::Ended(UCS_ERR_CONNECTION_RESET);
        }
        ask(worker, req, peer);
        return Pull::Asked;
    }
    if withdraw::was_withdrawn(peer, r.remote_id) {
        return Pull::Ended(UCS_ERR_CONNECTION_RESET);
    }
    // SAFETY: as above.
    unsafe {
        share::offer(req, peer);
        // Of many the sender may take this one, and we another: first those that have come are offered.
        if r.one_of_many && r.sharing().is_some() {
            return Pull::More;
        }
        pull(worker, req)
    }
}

/// What became of a receive after a piece.
enum Pull {
    /// The request is the caller's.
    Ended(ucs_status_t),
    /// The request is the caller's, and has more to copy.
    More,
    /// It went over to messages, which may have ended it by now.
    Asked,
}

/// Copies the next piece.
unsafe fn pull(worker: &Worker, req: *mut Request) -> Pull {
    // SAFETY: the caller's request; peers live as long as the worker.
    let (r, peer) = unsafe { (&mut *req, &*(*req).peer) };
    if r.sharing().is_some() {
        // SAFETY: as above.
        return unsafe { pull_shared(worker, req, peer) };
    }
    let (offset, len) = (r.offset as usize, r.info.length);
    let n = PULL_STEP.min(len - offset);
    let Some(copy) = Copy::begin(peer) else {
        return Pull::More;
    };
    if withdraw::was_withdrawn(peer, r.remote_id) {
        return Pull::Ended(UCS_ERR_CONNECTION_RESET);
    }
    let copied = fetch_list(peer, r).and_then(|()| {
        let remote = match r.pieces.as_deref() {
            Some(list) => Remote::List(list),
            None => Remote::Piece(r.remote),
        };
        // SAFETY: the range is inside the target by the check in `begin`. In the same process the
        // sender's request keeps its memory until we acknowledge.
        unsafe { attach::copy(peer, Direction::Read, &r.data, remote, offset, n) }
    });
    if !copy.end() {
        return Pull::More;
    }
    match copied {
        Ok(()) => {
            r.offset += n as u64;
            if (r.offset as usize) < len {
                return Pull::More;
            }
            acknowledge(peer, r.remote_id, UCS_OK);
            Pull::Ended(UCS_OK)
        }
        Err(Fault::Access(UCS_ERR_UNSUPPORTED)) => {
            ask(worker, req, peer);
            Pull::Asked
        }
        Err(Fault::Access(status)) => {
            acknowledge(peer, r.remote_id, status);
            Pull::Ended(status)
        }
        // What the receiver's own functions refuse is no business of the sender's.
        Err(Fault::Unpack(status)) => {
            acknowledge(peer, r.remote_id, UCS_OK);
            Pull::Ended(status)
        }
    }
}

/// Copies the next pieces of a message that the sender copies too.
unsafe fn pull_shared(worker: &Worker, req: *mut Request, peer: &Peer) -> Pull {
    // SAFETY: the caller's request.
    let r = unsafe { &mut *req };
    let mut moved = 0;
    while moved < PULL_STEP {
        let (range, last) = match share::next(r) {
            Next::Copy(range) => (Some(range), false),
            Next::Wait => return Pull::More,
            Next::Last(range) => (range.inspect(|_| share::refused(peer)), true),
        };
        if let Some((offset, n)) = range
            && r.status == UCS_INPROGRESS
        {
            moved += n;
            // SAFETY: the range is inside the message, which is not longer than the target.
            if let Err(status) = unsafe { copy_trusted(peer, r, offset, n) } {
                r.status = status;
                share::close(r);
            }
        }
        if last {
            return end_shared(worker, req, peer);
        }
    }
    Pull::More
}

/// The message is not to be trusted as it was copied: something was taken back meanwhile, perhaps it.
const DOUBTFUL: ucs_status_t = UCS_ERR_NO_PROGRESS;

/// Copies a part. [`DOUBTFUL`]: see there.
unsafe fn copy_trusted(
    peer: &Peer,
    r: &Request,
    offset: usize,
    n: usize,
) -> Result<(), ucs_status_t> {
    let copy = Copy::begin(peer).ok_or(DOUBTFUL)?;
    let remote = Remote::Piece(r.remote);
    // SAFETY: the caller's promise: the range is inside of the target.
    let copied = unsafe { attach::copy(peer, Direction::Read, &r.data, remote, offset, n) };
    if copy.end() {
        copied.map_err(Fault::status)
    } else {
        Err(DOUBTFUL)
    }
}

fn end_shared(worker: &Worker, req: *mut Request, peer: &Peer) -> Pull {
    // SAFETY: the caller's request.
    let r = unsafe { &mut *req };
    share::end(r, peer);
    let trusted = Copy::begin(peer).is_some_and(Copy::end);
    match std::mem::replace(&mut r.status, UCS_INPROGRESS) {
        // The right to copy was withdrawn meanwhile.
        UCS_ERR_UNSUPPORTED => {
            ask(worker, req, peer);
            Pull::Asked
        }
        // Once more, alone, unless it ends as withdrawn before.
        DOUBTFUL => Pull::More,
        UCS_INPROGRESS if !trusted => Pull::More,
        UCS_INPROGRESS => {
            acknowledge(peer, r.remote_id, UCS_OK);
            Pull::Ended(UCS_OK)
        }
        status => {
            acknowledge(peer, r.remote_id, status);
            Pull::Ended(status)
        }
    }
}

/// Fetches the list of the sender's pieces, if there is one and it is not here yet.
fn fetch_list(peer: &Peer, r: &mut Request) -> Result<(), Fault> {
    let count = r.listed as usize;
    if count == 0 || r.pieces.is_some() {
        return Ok(());
    }
    if count > MAX_LISTED {
        return Err(Fault::Access(UCS_ERR_IO_ERROR));
    }
    let mut list = vec![Span { addr: 0, len: 0 }; count];
    let bytes = count * size_of::<Span>();
    let mut here = Spans::one(list.as_mut_ptr() as u64, bytes);
    let mut there = Spans::one(r.remote, bytes);
    // SAFETY: the list has room for what is fetched, and any bytes are spans. In the same process the
    // sender keeps its list until we answer.
    unsafe { attach::transfer(peer, Direction::Read, &mut here, &mut there) }
        .map_err(Fault::Access)?;
    r.pieces = Some(list.into());
    Ok(())
}

/// Asks the sender for the data in messages.
fn ask(worker: &Worker, req: *mut Request, peer: &Peer) {
    // SAFETY: the caller's request.
    let r = unsafe { &mut *req };
    r.offset = 0;
    let offer = r.remote_id;
    // SAFETY: ours until it has a name.
    let id = unsafe { request::name(worker, req) };
    tx::control(peer, Kind::Rtr, 0, offer, &RtrHdr { recv: id }.encode());
    if peer.status() != UCS_OK {
        // It can have been lost, and seen to, before the request was in the table: once more.
        worker.lost.lock().push(peer);
        // Release: pairs with the Acquire swap in `fast::chores`.
        worker.chores.store(true, Ordering::Release);
        worker.nudge();
    }
}

/// Tells the sender how a rendezvous ended.
pub fn acknowledge(peer: &Peer, req: u64, status: ucs_status_t) {
    tx::control(peer, Kind::Ats, status as i8 as u8, req, &[]);
}

/// Moves every receive that copies on by a piece. Returns whether any is left.
pub fn progress_pulls(worker: &Worker) -> bool {
    let batch = worker.pulls.lock().len();
    for _ in 0..batch {
        let Some(req) = worker.pulls.lock().pop_front() else {
            break;
        };
        // SAFETY: out of the list: ours.
        let step = unsafe {
            if (*req).offset == 0 && (*req).sharing().is_none() {
                begin(worker, req)
            } else {
                pull(worker, req)
            }
        };
        match step {
            // SAFETY: in no list.
            Pull::Ended(status) => unsafe { request::complete(req, status) },
            Pull::More => worker.pulls.lock().push_back(req),
            Pull::Asked => {}
        }
    }
    !worker.pulls.lock().is_empty()
}

/// The request that a peer names, if it is that peer's business.
pub fn named(worker: &Worker, peer: &Peer, id: u64) -> Option<*mut Request> {
    // SAFETY: requests in the table live.
    worker
        .ids
        .lock()
        .get(id)
        .filter(|&req| std::ptr::eq(unsafe { (*req).peer }, peer))
}

/// Takes the request that a peer names out of the table. A peer cannot know the name of one that
/// still waits to be sent: it guessed.
pub fn take_named(worker: &Worker, peer: &Peer, id: u64) -> Option<*mut Request> {
    let req = named(worker, peer, id)?;
    if peer.tx.lock().pending.contains(&req) {
        return None;
    }
    worker.ids.lock().remove(id)?;
    // SAFETY: it lived in the table.
    unsafe { (*req).id = 0 };
    Some(req)
}

/// ATS or the answer to a synchronous send: the receiver has what it wants.
pub fn on_ats(worker: &Worker, peer: &Peer, id: u64, status: ucs_status_t) {
    if let Some(req) = take_named(worker, peer, id) {
        // SAFETY: out of the table: ours. It has been sent: the peer knows its name.
        unsafe {
            let kind = Kind::from_u8((*req).kind);
            if matches!(kind, Some(Kind::TagRts | Kind::AmRts)) && status == UCS_OK {
                peer.stats().of(Protocol::RndvCopy).add((*req).data.len());
            }
            request::complete(req, status)
        };
    }
}

/// RTR: the receiver wants the data in messages.
pub fn on_rtr(worker: &Worker, peer: &Peer, id: u64, recv: u64) {
    let Some(req) = take_named(worker, peer, id) else {
        return;
    };
    // SAFETY: out of the table: ours.
    unsafe {
        let r = &mut *req;
        tx::set_message(r, Kind::Data, 0, recv, &[]);
        (r.stream, r.bare, r.offset, r.sent) = (true, false, 0, Sent::Complete);
        match tx::post(req) {
            Posted::Done => request::complete(req, UCS_OK),
            Posted::Failed(status) => request::complete(req, status),
            Posted::Queued => {}
        }
    }
}

/// A request that a peer names, while a part of its data is put in place. Nobody else can end it
/// meanwhile, because nobody finds it; so no part is written into memory that has gone back to the user.
pub struct Lent<'a> {
    worker: &'a Worker,
    peer: &'a Peer,
    id: u64,
    req: *mut Request,
}

/// Takes the request that a message of this kind names for a moment.
pub fn lend<'a>(worker: &'a Worker, peer: &'a Peer, id: u64, kind: Kind) -> Option<Lent<'a>> {
    let read = kind == Kind::GetRep;
    // SAFETY: requests in the table live.
    let fits = |r: &*mut Request| unsafe {
        std::ptr::eq((**r).peer, peer) && ((**r).kind == Kind::GetReq as u8) == read
    };
    let req = worker.ids.lock().lend(id, fits)?;
    Some(Lent {
        worker,
        peer,
        id,
        req,
    })
}

impl Lent<'_> {
    fn request(&self) -> &Request {
        // SAFETY: it lives, and is ours until it is given back.
        unsafe { &*self.req }
    }

    /// Where the data goes.
    pub fn data(&self) -> &Data {
        &self.request().data
    }

    /// Whether `n` bytes at `offset` are inside of what is expected.
    pub fn has_room(&self, offset: usize, n: usize) -> bool {
        let end = offset.checked_add(n);
        let ok = end.is_some_and(|end| end <= self.request().info.length);
        if !ok {
            log::error!(
                "peer {:#x} sent data beyond the end of a message",
                self.peer.uid
            );
        }
        ok
    }

    /// A part of `n` bytes is in its place, or was refused by the user's own function. With the
    /// last one the request ends.
    pub fn landed(&mut self, n: usize, stored: Result<(), ucs_status_t>) {
        // SAFETY: as in `request`.
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
        let read = r.kind == Kind::GetReq as u8;
        self.give_back();
        // Another thread may have ended it since.
        if whole && let Some(req) = take_named(self.worker, self.peer, self.id) {
            // SAFETY: out of the table: ours.
            unsafe { request::complete(req, status) };
            if read {
                super::flush::answered(self.peer);
            }
        }
    }

    fn give_back(&mut self) {
        let req = std::mem::replace(&mut self.req, std::ptr::null_mut());
        if !req.is_null() {
            self.worker.ids.lock().give_back(self.id, req);
        }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// DATA or the answer to a read: a part of what was asked for.
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
    let Some(mut lent) = lend(worker, peer, id, kind) else {
        return;
    };
    let offset = hdr.offset as usize;
    if lent.has_room(offset, n) {
        // SAFETY: the range is inside the target.
        let stored = unsafe { lent.data().unpack(offset, bytes, n) };
        lent.landed(n, stored);
    }
}
