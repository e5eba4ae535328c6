//! Flush: everything before it has left this process, and remote accesses have been answered. Flushes of a client's
//! endpoint that is not connected yet wait until it is, and fail if it cannot be.
//!
//! A put has ended, and an atomic operation without a result, when the peer refuses it: the flush that follows fails
//! with `UCS_ERR_INVALID_ADDR`, once. (UCX lets the peer die of it, and the flush fails as well.)

use super::{failure, tx};
use crate::ctypes::*;
use crate::engine::peer::{Peer, PeerTx};
use crate::engine::request::{self, Callback, Request, TxState};
use crate::engine::worker::Worker;
use crate::tl::Lane;
use crate::wire::header::{GetHdr, Kind};
use std::sync::atomic::{AtomicU8, Ordering};

/// Whether a flush of this peer would end at once, and well.
pub fn is_clean(peer: &Peer) -> bool {
    is_answered_well(peer) && {
        let tx = peer.tx.lock();
        // Nothing is connected to a placeholder.
        let drained = (tx.lane.as_ref()).map_or_else(|| !peer.awaits_server(), Lane::is_drained);
        tx.pending.is_empty() && drained
    }
}

/// Whether all remote accesses by message have been answered, and none was refused that a flush has to tell of.
#[inline(always)]
pub fn is_answered_well(peer: &Peer) -> bool {
    peer.rma_idle() && !peer.rma_refused.load(Ordering::Relaxed)
}

/// Whether every message to this peer has been sent, and remote accesses among them answered: what is done without
/// messages now overtakes none. Copies that wait are no messages; a fence has those carried out that it is to order.
pub fn is_settled(peer: &Peer) -> bool {
    // SAFETY: queued requests live.
    let is_message =
        |&r: &*mut Request| !matches!(unsafe { (*r).sent }, TxState::Copy | TxState::Flush);
    // Under the lock, behind which another thread counts what it sends of those that waited.
    let tx = peer.tx.lock();
    peer.rma_idle() && !tx.pending.iter().any(is_message) && is_drained(&tx)
}

/// Whether no remote access by message is under way or waits: what a device does now overtakes none, and not what
/// it was told to do before.
pub fn is_answered(peer: &Peer) -> bool {
    let is_access = |&r: &*mut Request| {
        // SAFETY: queued requests live.
        let r = unsafe { &*r };
        let kind = Kind::from_u8(r.kind);
        r.sent != TxState::Device
            && matches!(
                kind,
                Some(Kind::PutReq | Kind::GetReq | Kind::AmoReq | Kind::Signal)
            )
    };
    // Under the lock, behind which another thread counts what it sends of those that waited.
    let tx = peer.tx.lock();
    peer.rma_idle() && !tx.pending.iter().any(is_access)
}

fn is_drained(tx: &PeerTx) -> bool {
    tx.lane.as_ref().is_none_or(Lane::is_drained)
}

/// Whether a flush of all peers would end at once.
pub fn all_clean(worker: &Worker) -> bool {
    !worker.any_peer(is_awaited)
}

/// Whether a flush of all peers waits for this one.
fn is_awaited(peer: &Peer) -> bool {
    peer.status() == UCS_OK && !is_clean(peer) && !is_abandoned(peer)
}

/// Whether flushes of all peers pass this one over, which may never answer: all that the user has had there he has
/// closed by force. Not if he was given an endpoint to answer on, while the flush of an orderly close waits there,
/// nor while a device works on memory that may be the user's again after a flush.
fn is_abandoned(peer: &Peer) -> bool {
    // Relaxed: who closes while another thread flushes has the lock of the queue behind it, as the other has in
    // front (`start_all`).
    let forsaken =
        peer.force_closed.load(Ordering::Relaxed) && !peer.answered.load(Ordering::Relaxed);
    if !forsaken || peer.eps.lock().any_open() {
        return false;
    }
    // SAFETY: requests in lists live, and stay there as long as their lock is held.
    let holds = |r: *mut Request| unsafe { (*r).sent == TxState::Flush && !is_child(&*r) };
    let tx = peer.tx.lock();
    let mut waits = tx.pending.iter().any(|&r| holds(r));
    waits |= tx.flushes.iter().any(|&(_, r)| holds(r));
    waits |= match tx.lane.as_ref() {
        Some(Lane::Ib(sender)) => sender.owners().any(|owner| holds(owner.cast())),
        Some(Lane::Tofu(sender)) => (sender.waiting().into_iter()).any(|owner| holds(owner.cast())),
        _ => false,
    };
    !waits && !tx::zcopy::any(&tx)
}

/// Whether it is a part of a flush of all peers. (The flush of a close between a client and a server is internal,
/// too, and has no parent.)
fn is_child(r: &Request) -> bool {
    r.sent == TxState::Flush && matches!(r.notify, Callback::Internal(_)) && r.remote != 0
}

/// Ends what flushes of all peers have begun at a peer that they wait for no longer.
#[cold]
pub fn abandon(worker: &Worker, peer: &Peer) {
    if !is_abandoned(peer) {
        return;
    }
    for child in failure::take_requests(worker, peer, is_child) {
        // SAFETY: taken out of every list.
        unsafe { request::complete(child, UCS_OK) };
    }
}

/// What a flush says that ends now.
fn outcome(peer: &Peer) -> ucs_status_t {
    // Relaxed: set before the answer was counted, which the caller has seen (`Peer::rma_idle`).
    let refused = &peer.rma_refused;
    // Mostly not: a look is cheaper than an exchange.
    match refused.load(Ordering::Relaxed) && refused.swap(false, Ordering::Relaxed) {
        true => UCS_ERR_INVALID_ADDR,
        false => UCS_OK,
    }
}

/// Starts a flush of one peer. What it says if it has ended already; the request is then the caller's.
///
/// # Safety
/// The request is new and its `peer` is set.
pub unsafe fn start(req: *mut Request) -> Option<ucs_status_t> {
    // SAFETY: the caller's request, in no queue.
    let (peer, mut tx) = unsafe {
        (*req).sent = TxState::Flush;
        tx::queue_of(req)
    };
    if peer.status() != UCS_OK {
        return Some(UCS_OK);
    }
    if tx.pending.is_empty()
        && let Some(lane) = tx.lane.as_mut()
        && lane.mark(req.cast())
    {
        return None;
    }
    let drained = (tx.lane.as_mut()).map_or_else(|| !peer.awaits_server(), Lane::drain);
    if !tx.pending.is_empty() || !drained {
        // SAFETY: the caller's promise.
        unsafe { tx::enqueue(peer, &mut tx, req) };
        return None;
    }
    if peer.rma_idle() {
        return Some(outcome(peer));
    }
    wait(peer, &mut tx, req);
    None
}

/// A flush has come to the head of the queue: what is left are answers.
///
/// # Safety
/// The request is in no queue.
#[inline(always)]
pub unsafe fn marker_sent(req: *mut Request) {
    // SAFETY: the caller's request, whose peer is not freed before it has ended.
    let peer = unsafe { &*(*req).peer };
    if peer.rma_idle() {
        // SAFETY: in no queue.
        return unsafe { request::complete_plain(req, outcome(peer)) };
    }
    // SAFETY: as above.
    unsafe { await_answers(peer, req) }
}

/// Ends a flush when what the peer was asked to do until now has been answered.
#[inline(never)]
unsafe fn await_answers(peer: &Peer, req: *mut Request) {
    let mut tx = peer.tx.lock();
    // Looked at under the lock, as `answered` looks at the list.
    if peer.rma_idle() {
        drop(tx);
        // SAFETY: in no queue.
        return unsafe { request::complete(req, outcome(peer)) };
    }
    wait(peer, &mut tx, req);
    drop(tx);
    // As in `start_all`: while it was in no list a forced close by another thread did not find it.
    // SAFETY: peers do not outlive their worker.
    abandon(unsafe { &*peer.worker }, peer);
}

/// Where a sent access that has a name keeps its turn: behind its header.
const TURN: std::ops::Range<usize> = 24..32;
const _: () = assert!(GetHdr::SIZE <= TURN.start);

/// Which access of all that were sent to the peer, counted from 1, a request is that asks for an answer.
pub fn set_turn(r: &mut Request, turn: u64) {
    if r.kind == Kind::GetReq as u8 {
        r.head[TURN].copy_from_slice(&turn.to_le_bytes());
    }
}

/// A get that was sent is given up: it counts as answered, but not for flushes in front of it, which still wait for
/// as many answers as before.
pub fn given_up(peer: &Peer, r: &Request) {
    let turn = r.head[TURN]
        .first_chunk()
        .map_or(0, |turn| u64::from_le_bytes(*turn));
    let mut tx = peer.tx.lock();
    for (target, req) in &mut tx.flushes {
        // SAFETY: a flush in the list lives.
        if unsafe { (**req).offset } < turn {
            *target += 1;
        }
    }
    drop(tx);
    answered(peer);
}

/// Lists a flush that waits for the answers to all that was sent until now.
fn wait(peer: &Peer, tx: &mut PeerTx, req: *mut Request) {
    let target = peer.rma_sent.load(Ordering::Relaxed);
    // SAFETY: the caller's request. What was sent before it, whatever becomes of the target.
    unsafe { (*req).offset = target };
    tx.flushes.push((target, req));
}

/// The peer has answered one part of a remote access that no request waits for.
pub fn notified(peer: &Peer, status: ucs_status_t) {
    if status != UCS_OK {
        refuse(peer);
    }
    answered(peer);
}

/// The peer has refused the access that it answers now.
#[cold]
fn refuse(peer: &Peer) {
    let _queue = peer.tx.lock();
    // Relaxed: under the lock, and counted by this thread.
    let turn = peer.rma_done.load(Ordering::Relaxed) + 1;
    if turn > peer.rma_excused.load(Ordering::Relaxed) {
        // Relaxed: `answered` publishes it.
        peer.rma_refused.store(true, Ordering::Relaxed);
    }
}

/// The last endpoint to a peer was closed by force: flushes of later ones tell nothing of the accesses until now.
/// (A peer answers in the order in which it was asked, but for reads.)
pub fn drop_failure(peer: &Peer) {
    let _queue = peer.tx.lock();
    // Relaxed: under the lock.
    let sent = peer.rma_sent.load(Ordering::Relaxed);
    peer.rma_excused.store(sent, Ordering::Relaxed);
    peer.rma_refused.store(false, Ordering::Relaxed);
}

/// The peer has answered one part of a remote access.
pub fn answered(peer: &Peer) {
    // Release: pairs with the Acquire load in `Peer::rma_idle`.
    let done = peer.rma_done.fetch_add(1, Ordering::Release) + 1;
    if peer.short_rma.is_awaited() && peer.rma_idle() && is_answered(peer) {
        peer.short_rma.note_answers(done);
        if !peer.tx.is_shared() {
            peer.short_rma.forget();
        }
    }
    loop {
        let mut tx = peer.tx.lock();
        let Some(i) = tx.flushes.iter().position(|&(target, _)| target <= done) else {
            return;
        };
        let (_, req) = tx.flushes.remove(i);
        drop(tx);
        // SAFETY: taken out of its only list.
        unsafe { request::complete(req, outcome(peer)) };
    }
}

/// Starts a flush of all peers: children of `parent`, one per peer that is not clean. What it says if it has ended
/// already; the request is then the caller's.
///
/// # Safety
/// The request is new.
pub unsafe fn start_all(worker: &Worker, parent: *mut Request) -> Option<ucs_status_t> {
    let mut dirty = worker.all_peers();
    dirty.retain(|p| {
        // What waited at a placeholder can have moved on to a peer that we have looked at already.
        let p = p.successor().unwrap_or(p);
        is_awaited(p)
    });
    // The parent counts as a child until all are started, so that none can end it early.
    // SAFETY: the caller's request.
    unsafe { (*parent).remote = dirty.len() as u64 + 1 };
    for peer in &dirty {
        // SAFETY: a new request of our own.
        unsafe {
            let child = request::take(worker, std::ptr::null_mut());
            (*child).peer = &raw const **peer;
            (*child).remote = parent as u64;
            (*child).notify = Callback::Internal(child_done);
            if let Some(status) = start(child) {
                child_done(child, status);
            }
        }
        // Another thread may have left it by force since it was looked at. Whoever has the lock of its queue second
        // sees what the other did: that one the child, or this one that it is forsaken.
        abandon(worker, peer);
    }
    // SAFETY: as in `child_done`; the caller's request lives.
    unsafe { (count_down(parent) == 0).then(|| sum(parent)) }
}

/// What a flush of all peers says: that one refused an access. That one was lost is said to its endpoints.
///
/// # Safety
/// The request lives, and its children have ended.
unsafe fn sum(parent: *mut Request) -> ucs_status_t {
    // SAFETY: the caller's request.
    match unsafe { (*parent).aux } {
        0 => UCS_OK,
        _ => UCS_ERR_INVALID_ADDR,
    }
}

unsafe fn child_done(child: *mut Request, status: ucs_status_t) {
    // SAFETY: a child's parent lives until its last child ends; the child is ours.
    unsafe {
        let parent = (*child).remote as *mut Request;
        request::recycle(child);
        if status == UCS_ERR_INVALID_ADDR {
            // Relaxed: `count_down` publishes it. Atomic as the count is.
            AtomicU8::from_ptr(&raw mut (*parent).aux).store(1, Ordering::Relaxed);
        }
        if count_down(parent) == 0 {
            request::complete(parent, sum(parent));
        }
    }
}

/// Children end in progress, which is one thread at a time, and in `start_all`, which can overlap
/// with it: hence atomic.
unsafe fn count_down(parent: *mut Request) -> u64 {
    // SAFETY: the parent lives; the field is used as an atomic from `start_all` on.
    let left = unsafe { std::sync::atomic::AtomicU64::from_ptr(&raw mut (*parent).remote) };
    // AcqRel: the last one sees what all others did.
    left.fetch_sub(1, Ordering::AcqRel) - 1
}
