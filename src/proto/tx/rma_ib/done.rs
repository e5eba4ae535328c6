//! Completions of IB lanes: what an HCA has sent, read or failed to.

use super::zcopy;
use crate::ctypes::*;
use crate::engine::ib_worker::IbConn;
use crate::engine::request::{self, Op, Request, RmaIb, RmaTofu, TxState, ZcopyState};
use crate::proto::flush;
use crate::tl::Lane;
use crate::tl::Token;
use crate::tl::ib::op_slots::OpKind;
use std::ptr;

/// Handles the completion of send `number`, and of all before it: completes requests that waited for no more, and
/// flushes.
#[inline(never)]
pub fn on_end(connection: &mut IbConn, number: u64) {
    if connection.reply_tx.is_some() {
        return on_end_behind(connection, number);
    }
    let mut tx = connection.peer.get().tx.lock();
    let Some(Lane::Ib(sender)) = tx.lane.as_mut() else {
        return;
    };
    let mut ends = EndedRequests::default();
    sender.on_send_completion(number, |owner| ends.add(owner));
    drop(tx);
    ends.finish();
}

/// [`on_end`] in single-thread mode: requests are completed directly, because no lock is held.
///
/// # Safety
/// Single-thread mode, and no caller up the stack borrows the peer's `tx`.
#[inline(always)]
pub unsafe fn on_end_alone(connection: &mut IbConn, number: u64) {
    // SAFETY: single-thread mode. A callback may change the
    // lane: it is looked up each time.
    let rc_ep = || match unsafe { connection.peer.get().tx.alone().lane.as_mut() } {
        Some(Lane::Ib(sender)) => sender.rc(),
        _ => None,
    };
    // Data that came through registered buffers are copied before any request is completed.
    if connection.reply_tx.is_some() || rc_ep().is_none_or(|rc_ep| rc_ep.has_descs()) {
        return on_end(connection, number);
    }
    if !rc_ep().is_some_and(|rc_ep| rc_ep.advance_completed(number)) {
        return;
    }
    while let Some(rc_ep) = rc_ep() {
        match rc_ep.next_completed() {
            // SAFETY: single-thread mode; the owner of a slot is not freed before it, and is in no list.
            Some(wait) if !wait.owner.is_none() => unsafe {
                end_wait(wait.what, Request::by_token(wait.owner))
            },
            Some(_) => {}
            None if rc_ep.has_flush_markers() => return complete_descs_of(connection),
            None => return,
        }
    }
}

/// Completes the request of an op slot, in single-thread mode.
#[inline(always)]
unsafe fn end_wait(what: OpKind, req: *mut Request) {
    // SAFETY: the caller's request. A get or an atomic in an op slot is a user's request, and one such work request is
    // all of it.
    unsafe {
        match what {
            OpKind::FlushMarker => flush::marker_sent(req),
            OpKind::Read | OpKind::Atomic => request::complete_receive::<false>(req, UCS_OK),
        }
    }
}

/// The rest of a completion: flush markers that wait for other outstanding operations.
#[inline(never)]
fn complete_descs_of(connection: &mut IbConn) {
    let mut ends = EndedRequests::default();
    connection.with_sender(|sender| {
        if let Some(rc_ep) = sender.rc() {
            rc_ep.complete_descs(&mut |owner| ends.add(owner));
        }
    });
    ends.finish();
}

/// [`on_end`] where the sender is not the peer's lane.
#[inline(never)]
fn on_end_behind(connection: &mut IbConn, number: u64) {
    let mut ends = EndedRequests::default();
    connection.with_sender(|sender| sender.on_send_completion(number, |owner| ends.add(owner)));
    ends.finish();
}

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

/// [`on_end`] for a rail, by the numbers of its interface and queue pair.
pub fn on_rail_end(connection: &mut IbConn, (iface, qpn): (usize, u32), number: u64) {
    let mut ends = EndedRequests::default();
    connection.with_sender(|sender| {
        if let Some(rail) = sender.rails.of_queue(iface, qpn) {
            rail.rc_ep
                .on_send_completion(number, |owner| ends.add(owner));
            rail.works();
        }
    });
    ends.finish();
}

/// Completed requests, linked by `next`, which is null in all others: a request is listed once in its life, because
/// [`finish`](Self::finish) completes it or, for a flush, leaves it to answers, which complete it. The callbacks are
/// called without the peer's lock.
struct EndedRequests {
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

impl EndedRequests {
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
                    _ if (*req).extra.is_none() => request::complete_plain(req, UCS_OK),
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
        Op::RmaIb(RmaIb { outstanding, .. }) | Op::RmaTofu(RmaTofu { outstanding, .. }) => {
            *outstanding -= 1;
            *outstanding == 0 && r.offset as usize == r.data.len()
        }
        // One work request is all of it.
        _ => true,
    }
}
