//! Pulls: receives that copy from the sender's memory, a piece in each progress.

use super::{MAX_LISTED, acknowledge, ask, asked, device, read};
use crate::ctypes::*;
use crate::engine::peer::Peer;
use crate::engine::request::{self, Extra, Request};
use crate::engine::worker::Worker;
use crate::proto::attach::{self, Direction, Fault, Remote};
use crate::proto::share::{self, Next};
use crate::proto::withdraw::{self, Copy};
use crate::sys::cma::{Span, Spans};

/// Bytes that one progress call copies at most, so that other messages are not held up.
const PULL_STEP: usize = 512 << 10;

/// What became of a receive after a piece.
pub(super) enum Pull {
    /// The request is the caller's.
    Ended(ucs_status_t),
    /// The request is the caller's, and has more to copy.
    More,
    /// It went over to messages, which may have ended it by now.
    Asked,
}

/// The first step of a receive: decides how it goes, and copies a first piece if it is by copying.
pub(super) unsafe fn begin(worker: &Worker, req: *mut Request) -> Pull {
    // SAFETY: the caller's request, whose peer is not freed before it has ended.
    let (r, peer) = unsafe { (&mut *req, &*(*req).peer) };
    r.begun = true;
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
    if r.remote == 0 || !peer.cma_usable() || worker.ctx.policy.rndv_by_messages {
        if withdraw::was_withdrawn(peer, r.remote_id) {
            return Pull::Ended(UCS_ERR_CONNECTION_RESET);
        }
        // SAFETY: as above; it is large enough.
        if let Some(read) = unsafe { read::begin(worker, req, peer) } {
            return read;
        }
        // SAFETY: as above.
        if unsafe { !device::invite(worker, req, peer) } {
            ask(worker, req, peer, None);
        }
        return Pull::Asked;
    }
    if asked::is_asked_for(worker, peer, r.info.length, r.one_of_many)
        && let Some(race) = peer.open_share()
    {
        ask(worker, req, peer, Some(race));
        return Pull::Asked;
    }
    // SAFETY: as above.
    unsafe { copy(worker, req) }
}

/// The first step of a receive that copies.
pub(super) unsafe fn copy(worker: &Worker, req: *mut Request) -> Pull {
    // SAFETY: the caller's request, whose peer is not freed before it has ended.
    let (r, peer) = unsafe { (&mut *req, &*(*req).peer) };
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

/// The next progress copies on.
pub(super) fn go_on_later(worker: &Worker, req: *mut Request) {
    worker.pulls.lock().push_back(req);
    worker.duties.leave_chores();
    worker.nudge();
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
            // Once only: who asks or offers again for as long as a copy is not to be trusted floods the sender.
            if (*req).begun {
                pull(worker, req)
            } else {
                begin(worker, req)
            }
        };
        go_on(worker, req, step);
    }
    !worker.pulls.lock().is_empty()
}

/// What follows from a step that progress has made.
pub(super) fn go_on(worker: &Worker, req: *mut Request, step: Pull) {
    match step {
        // SAFETY: in no list.
        Pull::Ended(status) => unsafe { request::complete(req, status) },
        Pull::More => worker.pulls.lock().push_back(req),
        Pull::Asked => {}
    }
}

/// Copies the next piece.
unsafe fn pull(worker: &Worker, req: *mut Request) -> Pull {
    // SAFETY: the caller's request, whose peer is not freed before it has ended.
    let (r, peer) = unsafe { (&mut *req, &*(*req).peer) };
    if r.sharing().is_some() {
        // SAFETY: as above.
        return unsafe { pull_shared(worker, req, peer) };
    }
    // It can have been lost, and seen to, before the receive was in the list.
    if peer.status() != UCS_OK {
        return Pull::Ended(peer.status());
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
        let remote = match r.pieces() {
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
            ask(worker, req, peer, None);
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
            ask(worker, req, peer, None);
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
    if count == 0 || r.pieces().is_some() {
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
    r.extra = Some(Box::new(Extra::Pieces(list.into())));
    Ok(())
}
