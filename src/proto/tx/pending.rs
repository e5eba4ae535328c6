//! Pending queues: requests of a peer that are sent when there is room.

use super::{advance, count_message, rma_sw};
use crate::ctypes::*;
use crate::engine::completion;
use crate::engine::peer::{Peer, PeerTx};
use crate::engine::request::{Request, TxState};
use crate::engine::worker::Worker;
use crate::proto::{answers, flush};
use crate::sys::cma::MAX_SPANS;

/// Maximum number of requests of one peer that are sent under one lock.
const BATCH: usize = 16;

/// Requests that were sent under one lock, or copied.
type SentRequests = [*mut Request; MAX_SPANS];

/// Sends what waits for room, and completes what was sent, and flushes that waited for a peer's position in its ring.
/// Returns the number of requests that were sent, and of those flushes.
#[cold]
pub fn progress_backlog(worker: &Worker) -> u32 {
    let mut count = 0;
    if worker.progress_flags.is_inherited() {
        return count;
    }
    // Peers that stay in the list are appended to it.
    let pending = &worker.peer_lists.pending;
    let peers = pending.lock().len();
    for _ in 0..peers {
        let Some(peer) = pending.lock().pop() else {
            break;
        };
        count += progress_peer(worker, peer.get());
        // True in a child that was forked in a callback.
        if worker.progress_flags.is_inherited() {
            break;
        }
    }
    count
}

/// Sends what waits outside of progress, where no callback may run: the next progress call completes what was sent. All
/// peers are tried: one that progress handles on another thread is in no list.
#[cold]
pub fn move_backlog(worker: &Worker) {
    for peer in worker.all_peers() {
        let peer = &*peer;
        let mut verdict = Ok(true);
        while verdict == Ok(true) {
            let mut tx = peer.tx.lock();
            if tx.pending.is_empty() || peer.status() != UCS_OK {
                break;
            }
            let mut moved: SentRequests = [std::ptr::null_mut(); _];
            let n;
            (n, verdict) = advance_some(worker, peer, &mut tx, &mut moved);
            if n > 0 {
                // Requests with an answer are completed by it, possibly as soon as the lock is released.
                // SAFETY: the requests were removed from the queue: this thread owns them.
                let ends = |&&req: &&*mut Request| unsafe { (*req).sent } != TxState::AwaitReply;
                let mut list = worker.flushed_done.lock();
                list.extend(moved[..n].iter().filter(ends));
                drop(list);
                worker.progress_flags.raise_deferred();
            }
        }
        if let Err(status) = verdict {
            worker.fail_peer(peer, status);
        }
    }
    worker.wake();
}

/// Completes what [`move_backlog`] has sent. Called in progress.
pub fn end_moved(worker: &Worker) {
    let moved = std::mem::take(&mut *worker.flushed_done.lock());
    for req in moved {
        // SAFETY: the request was removed from its queue: this thread owns it.
        unsafe { sent(req) };
    }
}

fn progress_peer(worker: &Worker, peer: &Peer) -> u32 {
    let mut count = 0;
    if peer.tx.lock().polls_position {
        count += answers::progress_position(peer);
        // A callback may have forked.
        if worker.progress_flags.is_inherited() {
            return count;
        }
    }
    let mut tx = peer.tx.lock();
    // Requests that callbacks queue meanwhile wait for the next call, or this one might not end.
    let mut left = tx.pending.len();
    batch(&mut tx, true);
    drop(tx);
    loop {
        let mut ended: SentRequests = [std::ptr::null_mut(); _];
        let mut tx = peer.tx.lock();
        let (n, verdict) = advance_some(worker, peer, &mut tx, &mut ended);
        left = left.saturating_sub(n);
        let go_on = verdict == Ok(true) && left > 0 && !tx.pending.is_empty();
        if verdict.is_err() {
            tx.in_pending_list = false;
            if std::mem::take(&mut tx.polls_position) {
                worker.progress_flags.dequeued(1);
            }
        } else if !go_on {
            batch(&mut tx, false);
            tx.in_pending_list = !tx.pending.is_empty() || tx.polls_position;
            if tx.in_pending_list {
                worker.peer_lists.pending.lock().push(peer);
            }
        }
        drop(tx);
        count += n as u32;
        for &req in &ended[..n] {
            // SAFETY: the request was removed from the queue: this thread owns it.
            unsafe { sent(req) };
        }
        match verdict {
            Ok(_) if go_on && !worker.progress_flags.is_inherited() => {}
            Ok(_) => return count,
            Err(status) => {
                worker.fail_peer(peer, status);
                return count + 1;
            }
        }
    }
}

/// Sends the first requests of a queue and removes those that are sent: their number, and whether there was room for
/// all that were tried.
fn advance_some(
    worker: &Worker,
    peer: &Peer,
    tx: &mut PeerTx,
    ended: &mut SentRequests,
) -> (usize, Result<bool, ucs_status_t>) {
    let (n, verdict) = advance_first(peer, tx, ended);
    if n > 0 {
        peer.stats().set_pending(tx.pending.len());
        worker.progress_flags.dequeued(n);
    }
    (n, verdict)
}

/// [`advance_some`] without the counters.
fn advance_first(
    peer: &Peer,
    tx: &mut PeerTx,
    ended: &mut SentRequests,
) -> (usize, Result<bool, ucs_status_t>) {
    for n in 0..BATCH {
        let Some(&req) = tx.pending.front() else {
            return (n, Ok(true));
        };
        // SAFETY: a queued request is not freed.
        if unsafe { (*req).sent } == TxState::Cma {
            if n > 0 {
                return (n, Ok(true));
            }
            let (copied, all) = rma_sw::copy_some(peer, tx, ended);
            return (copied, all.map(|()| true));
        }
        // SAFETY: a queued request is not freed.
        match unsafe { advance(peer, tx, req) } {
            Ok(true) => {
                tx.pending.pop_front();
                // SAFETY: the request was removed from the queue: this thread owns it.
                count_message(peer, unsafe { &*req });
                ended[n] = req;
            }
            no => return (n, no),
        }
    }
    (BATCH, Ok(true))
}

/// Whether a descriptor of the worker becomes readable when the pending queue of a peer can progress: room in a socket,
/// an established connection. Room in a ring causes no event.
pub fn is_watched(peer: &Peer) -> bool {
    let tx = peer.tx.lock();
    let watched = match &tx.lane {
        Some(lane) => lane.has_room_event(),
        None => tx.connecting,
    };
    watched || tx.pending.is_empty()
}

/// Announces to the lane that several messages follow, or have followed.
#[inline(always)]
pub fn batch(tx: &mut PeerTx, on: bool) {
    if let Some(lane) = tx.lane.as_mut() {
        lane.batch(on);
    }
}

/// Handles a queued request that was sent.
unsafe fn sent(req: *mut Request) {
    // SAFETY: the caller owns the request.
    match unsafe { (*req).sent } {
        // SAFETY: the request is in no queue.
        TxState::Complete | TxState::FenceMarker => unsafe { completion::complete(req, UCS_OK) },
        // SAFETY: the request is in no queue.
        TxState::FlushMarker => unsafe { flush::marker_sent(req) },
        TxState::AwaitReply | TxState::Rma => {}
        // SAFETY: the request is in no queue.
        TxState::Cma => unsafe { completion::complete(req, (*req).status) },
    }
}
