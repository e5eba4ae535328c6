//! Flush: completes when everything before it has left this process and RMA has been answered. Flushes of a client's
//! endpoint that is not connected yet wait for the connection, and fail if it fails.
//!
//! A put, and an atomic operation without a result, can have completed when the peer refuses it: the next flush fails
//! with `UCS_ERR_INVALID_ADDR`, once. (In UCX the peer aborts, and the flush fails as well.)

use super::answers;
use super::tx::{self, device_copy, peer_requests};
use crate::ctypes::*;
use crate::engine::completion;
use crate::engine::peer::{Peer, PeerHandle, PeerHold, PeerTx};
use crate::engine::pointers::PeerRef;
use crate::engine::request::{self, Callback, ChildOps, Op, Request, TxState};
use crate::engine::request_alloc;
use crate::engine::worker::{FlushNeed, Worker};
use crate::tl::Lane;

/// Whether a flush of this peer would complete at once with `UCS_OK`.
pub fn is_clean(peer: &Peer) -> bool {
    answers::is_idle_unlocked(peer) && !peer.is_rma_refused() && {
        let tx = peer.tx.lock();
        // A stub peer has no connection.
        let drained = (tx.lane.as_ref()).map_or_else(|| !peer.awaits_server(), Lane::is_drained);
        tx.pending.is_empty() && drained
    }
}

/// Whether every message to this peer has been sent, and RMA among them answered: operations without messages now
/// overtake none. Queued CMA copies do not count; a fence executes those that it orders.
pub fn is_settled(peer: &Peer) -> bool {
    // Under the lock, which another thread holds while it sends pending requests and counts them.
    let tx = peer.tx.lock();
    if peer.rma.is_idle() {
        return is_sent(&tx);
    }
    drop(tx);
    is_settled_slow(peer)
}

/// [`is_settled`] where signals may have been handled that are not known to be.
#[cold]
#[inline(never)]
fn is_settled_slow(peer: &Peer) -> bool {
    let mut tx = peer.tx.lock();
    answers::is_idle(peer, &mut tx) && is_sent(&tx)
}

/// Whether every message was sent.
fn is_sent(tx: &PeerTx) -> bool {
    // SAFETY: queued requests are not freed.
    let is_message =
        |&r: &*mut Request| !matches!(unsafe { (*r).sent }, TxState::Cma | TxState::FlushMarker);
    // An empty queue is not walked: its iterator has two halves.
    (tx.pending.is_empty() || !tx.pending.iter().any(is_message)) && is_drained(tx)
}

fn is_drained(tx: &PeerTx) -> bool {
    tx.lane.as_ref().is_none_or(Lane::is_drained)
}

/// Whether a flush of all peers would complete at once. False where it has to be looked at more closely.
pub fn all_clean(worker: &Worker) -> bool {
    worker.is_clean_then(is_awaited, look, |_| ())
}

/// A look at a peer in the list of unflushed ones, for a flush. The caller has the lock of the list.
#[inline(always)]
fn look(peer: &Peer) -> FlushNeed {
    look_by(peer, |peer, tx| {
        tx.pending.is_empty() && is_drained(tx) && !peer.is_rma_refused()
    })
}

/// [`look`] for a fence, see [`is_settled`].
#[inline(always)]
pub fn look_settled(peer: &Peer) -> FlushNeed {
    look_by(peer, |_, tx| is_sent(tx))
}

/// A look at a peer in the list of unflushed ones; `is_clean`: whether its messages were sent.
#[inline(always)]
fn look_by(peer: &Peer, is_clean: impl FnOnce(&Peer, &PeerTx) -> bool) -> FlushNeed {
    // Not `lock`: another thread may hold it and wait for the list.
    let Some(mut tx) = peer.tx.try_lock() else {
        return FlushNeed::Awaited;
    };
    if peer.status() == UCS_OK {
        if !answers::is_idle(peer, &mut tx) || !is_clean(peer, &tx) {
            return FlushNeed::Awaited;
        }
        let is_quiet = tx.pending.is_empty() && !peer.is_rma_refused();
        if !is_quiet || !tx.lane.as_ref().is_none_or(Lane::drains_in_call) {
            return FlushNeed::Clean;
        }
    }
    peer.end_unflushed();
    FlushNeed::Removed
}

/// Whether a flush of all peers waits for this one.
fn is_awaited(peer: &Peer) -> bool {
    peer.status() == UCS_OK && !is_clean(peer) && !is_abandoned(peer)
}

/// Whether flushes of all peers skip this one, which may never answer: the user has closed all endpoints to it by
/// force. False if a handler got a reply endpoint, while the flush of an orderly close waits, and while a device
/// accesses user memory.
fn is_abandoned(peer: &Peer) -> bool {
    // Relaxed: a close on one thread locks the queue after the store; a flush on another locks it before the load
    // (`start_all`).
    let abandoned = peer.is_force_closed() && !peer.has_reply_endpoint();
    if !abandoned || peer.eps.lock().any_open() {
        return false;
    }
    // SAFETY: requests in lists are not freed, and stay there as long as the list's lock is held.
    let holds = |r: *mut Request| unsafe { (*r).sent == TxState::FlushMarker && !is_child(&*r) };
    let tx = peer.tx.lock();
    let mut waits = tx.pending.iter().any(|&r| holds(r));
    waits |= tx.flushes.iter().any(|flush| holds(flush.req));
    if let Some(lane) = &tx.lane {
        lane.for_each_token(|token| waits |= holds(Request::by_token(token)));
    }
    !waits && !tx::zcopy::any(&tx)
}

/// Whether a request is part of a flush of all peers.
fn is_child(r: &Request) -> bool {
    matches!(r.op, Op::FlushChild { .. })
}

/// Completes the parts of flushes of all peers at a peer that these skip from now on.
#[cold]
pub fn abandon(worker: &Worker, peer: &Peer) {
    if !is_abandoned(peer) {
        return;
    }
    for child in peer_requests::take(worker, peer, is_child) {
        // SAFETY: the request was removed from all lists: this thread owns it.
        unsafe { completion::complete(child, UCS_OK) };
    }
}

/// Starts a flush of one peer. Returns its status if it is complete; then the caller owns the request.
///
/// # Safety
/// The request is new and its `peer` is set.
pub unsafe fn start(req: *mut Request) -> Option<ucs_status_t> {
    // SAFETY: the caller's request is new and in no queue.
    let (peer, mut tx) = unsafe {
        (*req).sent = TxState::FlushMarker;
        tx::queue_of(req)
    };
    if peer.status() != UCS_OK {
        return Some(UCS_OK);
    }
    if tx.pending.is_empty()
        && let Some(lane) = tx.lane.as_mut()
        && lane.flush_marker(Request::token(req))
    {
        return None;
    }
    let drained = (tx.lane.as_mut()).map_or_else(|| !peer.awaits_server(), Lane::drain);
    if !tx.pending.is_empty() || !drained {
        // SAFETY: the caller's request is new and in no queue.
        unsafe { tx::enqueue(peer, &mut tx, req) };
        return None;
    }
    if answers::is_idle(peer, &mut tx) {
        return Some(answers::outcome(peer));
    }
    answers::await_all(peer, &mut tx, req);
    None
}

/// Handles a flush at the head of the pending queue: only answers are left to wait for.
///
/// # Safety
/// The request is in no queue.
#[inline(always)]
pub unsafe fn marker_sent(req: *mut Request) {
    // SAFETY: the caller's request.
    let peer = unsafe { (*req).peer() };
    if peer.rma.is_idle() {
        // SAFETY: the request is in no queue.
        return unsafe { completion::complete_plain(req, answers::outcome(peer)) };
    }
    // SAFETY: the request is in no queue.
    unsafe { await_answers(peer, req) }
}

/// Completes a flush when all RMA sent to the peer until now has been answered.
#[inline(never)]
unsafe fn await_answers(peer: &Peer, req: *mut Request) {
    let mut tx = peer.tx.lock();
    // Read again under the lock, under which `answered` searches the list.
    if answers::is_idle(peer, &mut tx) {
        drop(tx);
        // SAFETY: the request is in no queue.
        return unsafe { completion::complete(req, answers::outcome(peer)) };
    }
    answers::await_all(peer, &mut tx, req);
    drop(tx);
    // A forced close by another thread could not find the request while it was in no list: checked again.
    abandon(peer.worker(), peer);
}

/// Starts a flush of all peers: children of `parent`, one for each peer with something to flush. Returns the status if
/// it is complete; then the caller owns the request.
///
/// # Safety
/// The request is new.
pub unsafe fn start_all(worker: &Worker, parent: *mut Request) -> Option<ucs_status_t> {
    let mut dirty = worker.unflushed_peers();
    dirty.retain(|p| {
        // Requests of a stub peer may have moved to a peer that was checked before.
        let p = p.successor().unwrap_or(p);
        is_awaited(p)
    });
    // SAFETY: the caller's request is new.
    unsafe { start_children(worker, parent, &dirty, None) }
}

/// Starts a flush of a peer, or of all peers, that waits for puts and gets for which devices copy. Returns the status
/// if it is complete; then the caller owns the request.
///
/// # Safety
/// The request is new.
#[cold]
pub unsafe fn start_with_copies(
    worker: &Worker,
    peer: Option<&Peer>,
    parent: *mut Request,
) -> Option<ucs_status_t> {
    let mut dirty = match peer {
        Some(peer) => vec![PeerHandle::Settled(PeerHold::new(peer))],
        None => worker.unflushed_peers(),
    };
    dirty.retain(|p| is_awaited(p.successor().unwrap_or(p)));
    // SAFETY: the caller's request is new.
    unsafe { start_children(worker, parent, &dirty, Some(peer)) }
}

/// Starts the parts of a flush: for peers, and for copies of devices, if `copies` says of which peer, or of all.
/// Returns the status if it is complete; then the caller owns the request.
///
/// # Safety
/// The request is new.
unsafe fn start_children(
    worker: &Worker,
    parent: *mut Request,
    dirty: &[PeerHandle],
    copies: Option<Option<&Peer>>,
) -> Option<ucs_status_t> {
    // The parent counts as a child until all are started, so that none can complete it early.
    // SAFETY: the caller's request is new.
    unsafe { (*parent).op = Op::Parent(ChildOps::new(dirty.len() as u64 + 1)) };
    if let Some(of) = copies {
        // SAFETY: the parent has children to count yet.
        unsafe { device_copy::await_accesses(worker, of, parent) };
    }
    for peer in dirty {
        // SAFETY: the child is a new request.
        unsafe {
            let child = request_alloc::take(worker, std::ptr::null_mut());
            (*child).peer = Some(PeerRef::new(peer));
            (*child).op = Op::FlushChild { parent };
            (*child).notify = Callback::Internal(child_done);
            if let Some(status) = start(child) {
                child_done(child, status);
            }
        }
        // Another thread may have closed the peer's endpoints by force since the check. Both threads lock the queue:
        // the second one sees what the first did, and completes the child.
        abandon(worker, peer);
    }
    // SAFETY: the caller's request is not freed before the count is 0.
    unsafe { request::count_child(parent, UCS_OK) }
}

/// Completes the part of a flush of all peers for one of them. The flush fails if a peer has refused an access; its
/// endpoints report a failed peer.
unsafe fn child_done(child: *mut Request, status: ucs_status_t) {
    // SAFETY: the parent is not freed before its last child completes; this thread owns the child.
    unsafe {
        let Op::FlushChild { parent } = (*child).op else {
            return request_alloc::recycle(child);
        };
        request_alloc::recycle(child);
        let refused = match status {
            UCS_ERR_INVALID_ADDR => status,
            _ => UCS_OK,
        };
        if let Some(status) = request::count_child(parent, refused) {
            completion::complete(parent, status);
        }
    }
}
