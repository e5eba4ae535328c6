//! Receives that copy from the sender's memory by CMA, a piece in each progress call.

use super::{MAX_LISTED, acknowledge, get_device, get_zcopy, put_zcopy, request_data, traced};
use crate::ctypes::*;
use crate::engine::completion;
use crate::engine::peer::{CopyScheme, Peer};
use crate::engine::request::{Extra, Request};
use crate::engine::rndv_rts::RtsSource;
use crate::engine::worker::{TimedGet, Worker};
use crate::proto::rndv_cancel;
use crate::proto::select::rndv::{self as select, RndvOffer, RndvScheme};
use crate::proto::split_copy;
use crate::proto::tx::zcopy;
use crate::sys::cma::{CmaDirection, IoSpan, Spans};
use crate::tl::{CmaFault, CmaGuard, CmaRemote, NextChunk};
use std::ptr;
use std::time::Instant;

/// Maximum number of bytes that one progress call copies, so that other messages are not delayed.
const PULL_STEP: usize = 512 << 10;

/// State of a receive after a piece.
pub(super) enum GetStep {
    /// The receive is complete; the caller owns the request.
    Ended(ucs_status_t),
    /// There is more to copy; the caller owns the request.
    More,
    /// An answer of the sender is awaited, which may have completed the request already.
    Asked,
}

/// First step of a receive: chooses the scheme, and copies a first piece if that is CMA.
pub(super) unsafe fn begin(worker: &Worker, req: *mut Request) -> GetStep {
    // SAFETY: the caller's request.
    let (r, peer) = unsafe { (&mut *req, (*req).peer()) };
    if let Some(recv) = r.rndv_recv_mut() {
        recv.begun = true;
    }
    let recv = *r.rndv_recv();
    if r.info.length > r.data.len() {
        acknowledge(peer, recv.rts_id, UCS_OK);
        return GetStep::Ended(UCS_ERR_MESSAGE_TRUNCATED);
    }
    if peer.status() != UCS_OK {
        return GetStep::Ended(peer.status());
    }
    if r.info.length == 0 {
        acknowledge(peer, recv.rts_id, UCS_OK);
        return GetStep::Ended(UCS_OK);
    }
    let offer = RndvOffer::from(recv.source);
    let contig = worker.is_for_adapters(&r.data);
    match select::scheme(worker, peer, offer, contig, || zcopy::is_possible(peer)) {
        RndvScheme::Cma => {
            let scheme = select::copy_scheme(worker, peer, r.info.length, recv.one_of_many);
            if scheme == CopyScheme::Race
                && let Some(race) = peer.open_split_copy()
            {
                request_data(worker, req, peer, Some(race));
                return GetStep::Asked;
            }
            // The time of one of many messages would be that of others, too.
            let began = (!recv.one_of_many).then(Instant::now);
            // SAFETY: the caller owns the request.
            unsafe { copy(worker, req, scheme, began) }
        }
        _ if rndv_cancel::was_cancelled(peer, recv.rts_id) => {
            GetStep::Ended(UCS_ERR_CONNECTION_RESET)
        }
        // SAFETY: the caller's request, which is large enough for the message.
        scheme => unsafe { begin_remote(worker, req, offer, scheme) },
    }
}

/// First step of a receive for which a device or the sender moves the data: by `scheme`, or by the next one that is
/// possible.
///
/// # Safety
/// The caller owns the request, whose memory is large enough for the message.
unsafe fn begin_remote(
    worker: &Worker,
    req: *mut Request,
    offer: RndvOffer,
    mut scheme: RndvScheme,
) -> GetStep {
    // SAFETY: the caller's request.
    let peer = unsafe { (*req).peer() };
    loop {
        // SAFETY: the caller's promise.
        let step = unsafe {
            match scheme {
                RndvScheme::GetZcopy => get_zcopy::begin(worker, req, peer),
                RndvScheme::PutZcopy => put_zcopy::invite(worker, req, peer),
                RndvScheme::DeviceCopy => get_device::begin(worker, req),
                RndvScheme::Messages | RndvScheme::Cma => {
                    request_data(worker, req, peer, None);
                    Some(GetStep::Asked)
                }
            }
        };
        if let Some(step) = step {
            return step;
        }
        scheme = select::fallback(scheme, offer, || zcopy::is_possible(peer));
    }
}

/// First step of a receive that copies by CMA. `began`: when the receive began, if its time is measured.
pub(super) unsafe fn copy(
    worker: &Worker,
    req: *mut Request,
    scheme: CopyScheme,
    began: Option<Instant>,
) -> GetStep {
    // SAFETY: the caller's request.
    let (r, peer) = unsafe { (&mut *req, (*req).peer()) };
    if rndv_cancel::was_cancelled(peer, r.rndv_recv().rts_id) {
        return GetStep::Ended(UCS_ERR_CONNECTION_RESET);
    }
    if scheme != CopyScheme::Get {
        // SAFETY: the caller's request, in the state that `rndv::receive` gives it.
        unsafe { split_copy::offer(req, peer) };
    }
    let is_split = r.rndv_recv().split.is_some();
    traced::scheme(worker, req, if is_split { "split copy" } else { "CMA" });
    // Of many messages the sender may copy this one, and the receiver another: first all that have arrived are offered.
    if is_split && r.rndv_recv().one_of_many {
        return GetStep::More;
    }
    if let Some(began) = began {
        let scheme = if is_split {
            CopyScheme::Split
        } else {
            CopyScheme::Get
        };
        *worker.timed_get.lock() = Some(TimedGet { req, scheme, began });
    }
    // SAFETY: the caller owns the request.
    unsafe { copy_piece(worker, req) }
}

/// Called when a receive is complete: adds its time to the measurements, if it is measured.
fn note_time(worker: &Worker, peer: &Peer, r: &Request) {
    let timed = worker
        .timed_get
        .lock()
        .take_if(|timed| ptr::eq(timed.req, r));
    if let Some(TimedGet { scheme, began, .. }) = timed {
        peer.rndv_times.note(r.info.length, scheme, began.elapsed());
    }
}

/// Lets the next progress call copy.
pub(super) fn go_on_later(worker: &Worker, req: *mut Request) {
    worker.cma_gets.lock().push_back(req);
    worker.progress_flags.raise_deferred();
    worker.wake();
}

/// Copies a piece of every receive in the list. Returns whether any is left.
pub fn progress_gets(worker: &Worker) -> bool {
    let batch = worker.cma_gets.lock().len();
    for _ in 0..batch {
        let Some(req) = worker.cma_gets.lock().pop_front() else {
            break;
        };
        // SAFETY: the request was removed from the list: this thread owns it.
        let step = unsafe {
            // Once only: repeated requests and offers, while copies are not trusted, would flood the sender.
            if (*req).rndv_recv().begun {
                copy_piece(worker, req)
            } else {
                begin(worker, req)
            }
        };
        go_on(worker, req, step);
    }
    !worker.cma_gets.lock().is_empty()
}

/// Handles the result of a step in progress.
pub(super) fn go_on(worker: &Worker, req: *mut Request, step: GetStep) {
    match step {
        // SAFETY: the request is in no list.
        GetStep::Ended(status) => unsafe { completion::complete(req, status) },
        GetStep::More => worker.cma_gets.lock().push_back(req),
        GetStep::Asked => {}
    }
}

/// Copies the next piece.
unsafe fn copy_piece(worker: &Worker, req: *mut Request) -> GetStep {
    // SAFETY: the caller's request.
    let (r, peer) = unsafe { (&mut *req, (*req).peer()) };
    if r.rndv_recv().split.is_some() {
        // SAFETY: the caller owns the request.
        return unsafe { copy_split(worker, req, peer) };
    }
    // The peer may have failed before the receive was in the list.
    if peer.status() != UCS_OK {
        return GetStep::Ended(peer.status());
    }
    let (offset, len) = (r.offset as usize, r.info.length);
    let n = PULL_STEP.min(len - offset);
    let Some(copy) = peer.cma().begin_copy() else {
        return GetStep::More;
    };
    if rndv_cancel::was_cancelled(peer, r.rndv_recv().rts_id) {
        return GetStep::Ended(UCS_ERR_CONNECTION_RESET);
    }
    let copied = fetch_list(peer, r).and_then(|()| {
        let remote = remote(r)?;
        // SAFETY: `begin` has checked that the range is inside the target. In the same process the sender's memory is
        // valid until the ATS.
        unsafe {
            peer.cma()
                .copy(CmaDirection::Read, &r.data, remote, offset, n)
        }
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
            acknowledge(peer, r.rndv_recv().rts_id, UCS_OK);
            note_time(worker, peer, r);
            GetStep::Ended(UCS_OK)
        }
        Err(CmaFault::Access(UCS_ERR_UNSUPPORTED)) => {
            request_data(worker, req, peer, None);
            GetStep::Asked
        }
        Err(CmaFault::Access(status)) => {
            acknowledge(peer, r.rndv_recv().rts_id, status);
            GetStep::Ended(status)
        }
        // An error of the receiver's unpack function does not concern the sender.
        Err(CmaFault::Unpack(status)) => {
            acknowledge(peer, r.rndv_recv().rts_id, UCS_OK);
            GetStep::Ended(status)
        }
    }
}

/// Copies the next pieces of a message that the sender copies too.
unsafe fn copy_split(worker: &Worker, req: *mut Request, peer: &Peer) -> GetStep {
    // SAFETY: the caller owns the request.
    let r = unsafe { &mut *req };
    let mut moved = 0;
    while moved < PULL_STEP {
        let (range, last) = match split_copy::next(r) {
            NextChunk::Copy(range) => (Some(range), false),
            NextChunk::Wait => return GetStep::More,
            NextChunk::Last(range) => (range.inspect(|_| peer.cma().note_peer_forbidden()), true),
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

/// Status of a copy that cannot be trusted: a message was cancelled meanwhile, perhaps this one.
const DOUBTFUL: ucs_status_t = UCS_ERR_NO_PROGRESS;

/// Copies a part. `Err` with [`DOUBTFUL`] if the copy cannot be trusted.
unsafe fn copy_trusted(
    peer: &Peer,
    r: &Request,
    offset: usize,
    n: usize,
) -> Result<(), ucs_status_t> {
    let copy = peer.cma().begin_copy().ok_or(DOUBTFUL)?;
    let remote = remote(r).map_err(CmaFault::status)?;
    // SAFETY: the caller's promise: the range is inside the target.
    let copied = unsafe {
        peer.cma()
            .copy(CmaDirection::Read, &r.data, remote, offset, n)
    };
    if copy.end() {
        copied.map_err(CmaFault::status)
    } else {
        Err(DOUBTFUL)
    }
}

fn end_shared(worker: &Worker, req: *mut Request, peer: &Peer) -> GetStep {
    // SAFETY: the caller owns the request.
    let r = unsafe { &mut *req };
    split_copy::end(r, peer);
    let trusted = peer.cma().begin_copy().is_some_and(CmaGuard::end);
    match std::mem::replace(&mut r.status, UCS_INPROGRESS) {
        // The permission for CMA was lost meanwhile.
        UCS_ERR_UNSUPPORTED => {
            request_data(worker, req, peer, None);
            GetStep::Asked
        }
        // The message is copied again, without the sender, unless its cancel is received before.
        DOUBTFUL => GetStep::More,
        UCS_INPROGRESS if !trusted => GetStep::More,
        UCS_INPROGRESS => {
            acknowledge(peer, r.rndv_recv().rts_id, UCS_OK);
            note_time(worker, peer, r);
            GetStep::Ended(UCS_OK)
        }
        status => {
            acknowledge(peer, r.rndv_recv().rts_id, status);
            GetStep::Ended(status)
        }
    }
}

/// What CMA reads of the message: the sender's pieces where they are known, or the memory at an address.
fn remote(r: &Request) -> Result<CmaRemote<'_>, CmaFault> {
    if let Some(list) = r.pieces() {
        return Ok(CmaRemote::List(list));
    }
    let addr = r.rndv_recv().source.cma_addr();
    let addr = addr.ok_or(CmaFault::Access(UCS_ERR_UNSUPPORTED))?;
    Ok(CmaRemote::Piece(addr))
}

/// Fetches the list of the sender's pieces, if there is one and it was not fetched before.
fn fetch_list(peer: &Peer, r: &mut Request) -> Result<(), CmaFault> {
    let RtsSource::Pieces { list: addr, count } = r.rndv_recv().source else {
        return Ok(());
    };
    if r.pieces().is_some() {
        return Ok(());
    }
    let count = count.get() as usize;
    if count > MAX_LISTED {
        return Err(CmaFault::Access(UCS_ERR_IO_ERROR));
    }
    let mut list = vec![IoSpan { addr: 0, len: 0 }; count];
    let bytes = count * size_of::<IoSpan>();
    let mut here = Spans::one(list.as_mut_ptr() as u64, bytes);
    let mut there = Spans::one(addr.get(), bytes);
    // SAFETY: the list has room for the bytes, and any bytes are valid spans. In the same process the sender's list is
    // valid until the answer.
    unsafe {
        peer.cma()
            .transfer(CmaDirection::Read, &mut here, &mut there)
    }
    .map_err(CmaFault::Access)?;
    r.extra = Some(Box::new(Extra::Pieces(list.into())));
    Ok(())
}
