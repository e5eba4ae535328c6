//! Pulls: receives that copy from the sender's memory, a piece in each progress.

use super::{MAX_LISTED, acknowledge, get_zcopy, put_zcopy, request_data, rtr_race};
use crate::ctypes::*;
use crate::engine::peer::Peer;
use crate::engine::request::{self, Extra, Request};
use crate::engine::worker::Worker;
use crate::proto::cma::{self, CmaDirection, CmaFault, CmaRemote};
use crate::proto::rndv_cancel::{self, CmaGuard};
use crate::proto::split_copy::{self, NextPiece};
use crate::sys::cma::{IoSpan, Spans};

/// Bytes that one progress call copies at most, so that other messages are not held up.
const PULL_STEP: usize = 512 << 10;

/// What became of a receive after a piece.
pub(super) enum GetStep {
    /// The request is the caller's.
    Ended(ucs_status_t),
    /// The request is the caller's, and has more to copy.
    More,
    /// It went over to messages, which may have ended it by now.
    Asked,
}

/// The first step of a receive: decides how it goes, and copies a first piece if it is by copying.
pub(super) unsafe fn begin(worker: &Worker, req: *mut Request) -> GetStep {
    // SAFETY: the caller's request, whose peer is not freed before it has ended.
    let (r, peer) = unsafe { (&mut *req, &*(*req).peer) };
    r.begun = true;
    if r.info.length > r.data.len() {
        acknowledge(peer, r.remote_id, UCS_OK);
        return GetStep::Ended(UCS_ERR_MESSAGE_TRUNCATED);
    }
    if peer.status() != UCS_OK {
        return GetStep::Ended(peer.status());
    }
    if r.info.length == 0 {
        acknowledge(peer, r.remote_id, UCS_OK);
        return GetStep::Ended(UCS_OK);
    }
    if r.remote == 0 || !peer.cma_usable() || worker.ctx.policy.rndv_by_messages {
        if rndv_cancel::was_cancelled(peer, r.remote_id) {
            return GetStep::Ended(UCS_ERR_CONNECTION_RESET);
        }
        // SAFETY: as above; it is large enough.
        if let Some(read) = unsafe { get_zcopy::begin(worker, req, peer) } {
            return read;
        }
        // SAFETY: as above.
        if unsafe { !put_zcopy::invite(worker, req, peer) } {
            request_data(worker, req, peer, None);
        }
        return GetStep::Asked;
    }
    if rtr_race::is_racing(worker, peer, r.info.length, r.one_of_many)
        && let Some(race) = peer.open_share()
    {
        request_data(worker, req, peer, Some(race));
        return GetStep::Asked;
    }
    // SAFETY: as above.
    unsafe { copy(worker, req) }
}

/// The first step of a receive that copies.
pub(super) unsafe fn copy(worker: &Worker, req: *mut Request) -> GetStep {
    // SAFETY: the caller's request, whose peer is not freed before it has ended.
    let (r, peer) = unsafe { (&mut *req, &*(*req).peer) };
    if rndv_cancel::was_cancelled(peer, r.remote_id) {
        return GetStep::Ended(UCS_ERR_CONNECTION_RESET);
    }
    // SAFETY: as above.
    unsafe {
        split_copy::offer(req, peer);
        // Of many the sender may take this one, and we another: first those that have come are offered.
        if r.one_of_many && r.sharing().is_some() {
            return GetStep::More;
        }
        copy_piece(worker, req)
    }
}

/// The next progress copies on.
pub(super) fn go_on_later(worker: &Worker, req: *mut Request) {
    worker.cma_gets.lock().push_back(req);
    worker.progress_flags.raise_chores();
    worker.wake();
}

/// Moves every receive that copies on by a piece. Returns whether any is left.
pub fn progress_gets(worker: &Worker) -> bool {
    let batch = worker.cma_gets.lock().len();
    for _ in 0..batch {
        let Some(req) = worker.cma_gets.lock().pop_front() else {
            break;
        };
        // SAFETY: out of the list: ours.
        let step = unsafe {
            // Once only: who asks or offers again for as long as a copy is not to be trusted floods the sender.
            if (*req).begun {
                copy_piece(worker, req)
            } else {
                begin(worker, req)
            }
        };
        go_on(worker, req, step);
    }
    !worker.cma_gets.lock().is_empty()
}

/// What follows from a step that progress has made.
pub(super) fn go_on(worker: &Worker, req: *mut Request, step: GetStep) {
    match step {
        // SAFETY: in no list.
        GetStep::Ended(status) => unsafe { request::complete(req, status) },
        GetStep::More => worker.cma_gets.lock().push_back(req),
        GetStep::Asked => {}
    }
}

/// Copies the next piece.
unsafe fn copy_piece(worker: &Worker, req: *mut Request) -> GetStep {
    // SAFETY: the caller's request, whose peer is not freed before it has ended.
    let (r, peer) = unsafe { (&mut *req, &*(*req).peer) };
    if r.sharing().is_some() {
        // SAFETY: as above.
        return unsafe { copy_split(worker, req, peer) };
    }
    // It can have been lost, and seen to, before the receive was in the list.
    if peer.status() != UCS_OK {
        return GetStep::Ended(peer.status());
    }
    let (offset, len) = (r.offset as usize, r.info.length);
    let n = PULL_STEP.min(len - offset);
    let Some(copy) = CmaGuard::begin(peer) else {
        return GetStep::More;
    };
    if rndv_cancel::was_cancelled(peer, r.remote_id) {
        return GetStep::Ended(UCS_ERR_CONNECTION_RESET);
    }
    let copied = fetch_list(peer, r).and_then(|()| {
        let remote = match r.pieces() {
            Some(list) => CmaRemote::List(list),
            None => CmaRemote::Piece(r.remote),
        };
        // SAFETY: the range is inside the target by the check in `begin`. In the same process the
        // sender's request keeps its memory until we acknowledge.
        unsafe { cma::copy(peer, CmaDirection::Read, &r.data, remote, offset, n) }
    });
    if !copy.end() {
        return GetStep::More;
    }
    match copied {
        Ok(()) => {
            r.offset += n as u64;
            if (r.offset as usize) < len {
                return GetStep::More;
            }
            acknowledge(peer, r.remote_id, UCS_OK);
            GetStep::Ended(UCS_OK)
        }
        Err(CmaFault::Access(UCS_ERR_UNSUPPORTED)) => {
            request_data(worker, req, peer, None);
            GetStep::Asked
        }
        Err(CmaFault::Access(status)) => {
            acknowledge(peer, r.remote_id, status);
            GetStep::Ended(status)
        }
        // What the receiver's own functions refuse is no business of the sender's.
        Err(CmaFault::Unpack(status)) => {
            acknowledge(peer, r.remote_id, UCS_OK);
            GetStep::Ended(status)
        }
    }
}

/// Copies the next pieces of a message that the sender copies too.
unsafe fn copy_split(worker: &Worker, req: *mut Request, peer: &Peer) -> GetStep {
    // SAFETY: the caller's request.
    let r = unsafe { &mut *req };
    let mut moved = 0;
    while moved < PULL_STEP {
        let (range, last) = match split_copy::next(r) {
            NextPiece::Copy(range) => (Some(range), false),
            NextPiece::Wait => return GetStep::More,
            NextPiece::Last(range) => (range.inspect(|_| split_copy::refused(peer)), true),
        };
        if let Some((offset, n)) = range
            && r.status == UCS_INPROGRESS
        {
            moved += n;
            // SAFETY: the range is inside the message, which is not longer than the target.
            if let Err(status) = unsafe { copy_trusted(peer, r, offset, n) } {
                r.status = status;
                split_copy::close(r);
            }
        }
        if last {
            return end_shared(worker, req, peer);
        }
    }
    GetStep::More
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
    let copy = CmaGuard::begin(peer).ok_or(DOUBTFUL)?;
    let remote = CmaRemote::Piece(r.remote);
    // SAFETY: the caller's promise: the range is inside of the target.
    let copied = unsafe { cma::copy(peer, CmaDirection::Read, &r.data, remote, offset, n) };
    if copy.end() {
        copied.map_err(CmaFault::status)
    } else {
        Err(DOUBTFUL)
    }
}

fn end_shared(worker: &Worker, req: *mut Request, peer: &Peer) -> GetStep {
    // SAFETY: the caller's request.
    let r = unsafe { &mut *req };
    split_copy::end(r, peer);
    let trusted = CmaGuard::begin(peer).is_some_and(CmaGuard::end);
    match std::mem::replace(&mut r.status, UCS_INPROGRESS) {
        // The right to copy was withdrawn meanwhile.
        UCS_ERR_UNSUPPORTED => {
            request_data(worker, req, peer, None);
            GetStep::Asked
        }
        // Once more, alone, unless it ends as withdrawn before.
        DOUBTFUL => GetStep::More,
        UCS_INPROGRESS if !trusted => GetStep::More,
        UCS_INPROGRESS => {
            acknowledge(peer, r.remote_id, UCS_OK);
            GetStep::Ended(UCS_OK)
        }
        status => {
            acknowledge(peer, r.remote_id, status);
            GetStep::Ended(status)
        }
    }
}

/// Fetches the list of the sender's pieces, if there is one and it is not here yet.
fn fetch_list(peer: &Peer, r: &mut Request) -> Result<(), CmaFault> {
    let count = r.listed as usize;
    if count == 0 || r.pieces().is_some() {
        return Ok(());
    }
    if count > MAX_LISTED {
        return Err(CmaFault::Access(UCS_ERR_IO_ERROR));
    }
    let mut list = vec![IoSpan { addr: 0, len: 0 }; count];
    let bytes = count * size_of::<IoSpan>();
    let mut here = Spans::one(list.as_mut_ptr() as u64, bytes);
    let mut there = Spans::one(r.remote, bytes);
    // SAFETY: the list has room for what is fetched, and any bytes are spans. In the same process the
    // sender keeps its list until we answer.
    unsafe { cma::transfer(peer, CmaDirection::Read, &mut here, &mut there) }
        .map_err(CmaFault::Access)?;
    r.extra = Some(Box::new(Extra::Pieces(list.into())));
    Ok(())
}
