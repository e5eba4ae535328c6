//! Completed operations of lanes, whichever device has executed them: requests that waited for no more are completed.

use super::zcopy;
use crate::ctypes::*;
use crate::engine::completion;
use crate::engine::request::{Op, Request, TxState, ZcopyState};
use crate::proto::flush;
use crate::tl::Token;
use crate::tl::sink::Completions;
use std::ptr;

/// Handles the arrival of the data of one get of a request.
///
/// # Safety
/// The request waits for it.
pub unsafe fn on_read(owner: Token) {
    let mut ends = EndedRequests::default();
    // SAFETY: the waiting request is not freed.
    let peer = unsafe { (*Request::by_token(owner)).peer() };
    let tx = peer.tx.lock();
    ends.add(owner);
    drop(tx);
    ends.finish();
}

/// Handles the failure of an operation in place: the device no longer accesses the memory. The request fails with the
/// status of its peer.
///
/// # Safety
/// The request waits for the operation.
#[cold]
pub unsafe fn on_failed(owner: Token) {
    // SAFETY: the waiting request is not freed.
    let peer = unsafe { (*Request::by_token(owner)).peer() };
    let tx = peer.tx.lock();
    let status = match peer.status() {
        UCS_OK => UCS_ERR_IO_ERROR,
        status => status,
    };
    // SAFETY: the waiting request is not freed, and the lock is held.
    if let Some(t) = unsafe { (*Request::by_token(owner)).transfer_mut() }
        && matches!(t.fate, ZcopyState::Posted)
    {
        t.fate = ZcopyState::Ends(status);
    }
    drop(tx);
    // SAFETY: the request waits for the operation.
    unsafe { on_read(owner) }
}

/// Completed requests, linked by `next`, which is null in all others: a request is listed once in its life, because
/// [`finish`](Self::finish) completes it or, for a flush, leaves it to answers, which complete it. The callbacks are
/// called without the peer's lock.
pub struct EndedRequests {
    first: *mut Request,
    last: *mut Request,
}

impl Default for EndedRequests {
    fn default() -> Self {
        EndedRequests {
            first: ptr::null_mut(),
            last: ptr::null_mut(),
        }
    }
}

impl Completions for EndedRequests {
    /// Counts a completed operation of a request. The peer's lock is held.
    #[inline(always)]
    fn add(&mut self, owner: Token) {
        let req = Request::by_token(owner);
        // SAFETY: the waiting request is not freed; the peer's lock is held, under which gets are posted, too.
        if !unsafe { has_ended(&mut *req) } {
            return;
        }
        if self.last.is_null() {
            self.first = req;
        } else {
            // SAFETY: the requests in the list are not freed before `finish`.
            unsafe { (*self.last).next = req };
        }
        self.last = req;
    }

    /// Completes the requests.
    #[inline(always)]
    fn finish(self) {
        let mut next = self.first;
        while !next.is_null() {
            // SAFETY: the request is in no other list: this thread owns it.
            unsafe {
                let req = next;
                next = (*req).next;
                match (*req).sent {
                    TxState::FlushMarker => flush::marker_sent(req),
                    // Without an extra there is nothing to free.
                    _ if (*req).extra.is_none() => completion::complete_plain(req, UCS_OK),
                    _ => zcopy::end(req),
                }
            }
        }
    }
}

/// Counts a completed operation of a request. Returns whether it was the last.
#[inline(always)]
fn has_ended(r: &mut Request) -> bool {
    if r.sent == TxState::FlushMarker {
        return true;
    }
    if let Some(t) = r.transfer_mut() {
        return zcopy::wr_done(t);
    }
    match &mut r.op {
        Op::Rma(rma) => {
            rma.outstanding -= 1;
            rma.outstanding == 0 && r.offset as usize == r.data.len()
        }
        Op::RmaList(list) => list.end_one(),
        // One work request is all of it.
        _ => true,
    }
}
