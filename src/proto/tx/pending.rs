//! Requests that wait in their peers' queues: moved on when there is room.

use super::{advance, count_message, fail_peer, rma_sw};
use crate::ctypes::*;
use crate::engine::peer::{Peer, PeerTx};
use crate::engine::request::{self, Request, TxState};
use crate::engine::worker::Worker;
use crate::proto::flush;
use crate::sys::cma::MAX_SPANS;
use crate::tl::Lane;

/// Messages of one peer that are sent under one lock.
const BATCH: usize = 16;

/// Requests that have been sent under one lock, or copied.
type SentRequests = [*mut Request; MAX_SPANS];

/// Moves what waits for room, and ends what has moved. Returns the number of requests that got somewhere.
#[cold]
pub fn progress_backlog(worker: &Worker) -> u32 {
    let mut count = 0;
    if worker.progress_flags.is_inherited() {
        return count;
    }
    // Those that go on waiting are put back behind them.
    let peers = worker.pending_peers.lock().len();
    for _ in 0..peers {
        let Some(peer) = worker.pending_peers.lock().pop_front() else {
            break;
        };
        // SAFETY: peers that lists of progress name are not freed.
        count += progress_peer(worker, unsafe { &*peer });
        // A callback has forked, and this is the child.
        if worker.progress_flags.is_inherited() {
            break;
        }
    }
    count
}

/// Moves what waits outside of progress, where no callback may run: the next progress ends what has moved. All peers
/// are looked at: one that another thread's progress has in hand is in no list.
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
                // What the peer answers is the answer's to end, which can come as soon as the lock is given up.
                // SAFETY: out of the queue: ours.
                let ends = |&&req: &&*mut Request| unsafe { (*req).sent } != TxState::Await;
                let mut list = worker.flushed_done.lock();
                list.extend(moved[..n].iter().filter(ends));
                drop(list);
                worker.progress_flags.raise_chores();
            }
        }
        if let Err(status) = verdict {
            fail_peer(peer, status);
        }
    }
    worker.wake();
}

/// Ends what [`move_backlog`] has moved. Runs in progress.
pub fn end_moved(worker: &Worker) {
    let moved = std::mem::take(&mut *worker.flushed_done.lock());
    for req in moved {
        // SAFETY: out of its queue: ours.
        unsafe { sent(req) };
    }
}

fn progress_peer(worker: &Worker, peer: &Peer) -> u32 {
    let mut count = 0;
    let mut tx = peer.tx.lock();
    // What callbacks send meanwhile waits for the next call, or this one might never end.
    let mut left = tx.pending.len();
    cork(&mut tx, true);
    drop(tx);
    loop {
        let mut ended: SentRequests = [std::ptr::null_mut(); _];
        let mut tx = peer.tx.lock();
        let (n, verdict) = advance_some(worker, peer, &mut tx, &mut ended);
        left = left.saturating_sub(n);
        let go_on = verdict == Ok(true) && left > 0 && !tx.pending.is_empty();
        if verdict.is_err() {
            tx.in_pending_list = false;
        } else if !go_on {
            cork(&mut tx, false);
            tx.in_pending_list = !tx.pending.is_empty();
            if tx.in_pending_list {
                worker.pending_peers.lock().push_back(peer);
            }
        }
        drop(tx);
        count += n as u32;
        for &req in &ended[..n] {
            // SAFETY: out of the queue: ours.
            unsafe { sent(req) };
        }
        match verdict {
            Ok(_) if go_on && !worker.progress_flags.is_inherited() => {}
            Ok(_) => return count,
            Err(status) => {
                fail_peer(peer, status);
                return count + 1;
            }
        }
    }
}

/// Moves the first requests of a queue on and takes out those that have been sent: how many, and whether there was
/// room for all that were looked at.
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

/// As [`advance_some`], which counts them.
fn advance_first(
    peer: &Peer,
    tx: &mut PeerTx,
    ended: &mut SentRequests,
) -> (usize, Result<bool, ucs_status_t>) {
    for n in 0..BATCH {
        let Some(&req) = tx.pending.front() else {
            return (n, Ok(true));
        };
        // SAFETY: a queued request lives.
        if unsafe { (*req).sent } == TxState::Copy {
            if n > 0 {
                return (n, Ok(true));
            }
            let (copied, all) = rma_sw::copy_some(peer, tx, ended);
            return (copied, all.map(|()| true));
        }
        // SAFETY: a queued request lives.
        match unsafe { advance(peer, tx, req) } {
            Ok(true) => {
                tx.pending.pop_front();
                // SAFETY: out of the queue: ours.
                count_message(peer, unsafe { &*req });
                ended[n] = req;
            }
            no => return (n, no),
        }
    }
    (BATCH, Ok(true))
}

/// Whether a descriptor of the worker's becomes ready when what waits in a peer's queue can go on: room in a socket, a
/// connection. Rings are looked at, nobody tells of room in them.
pub fn is_watched(peer: &Peer) -> bool {
    let tx = peer.tx.lock();
    let watched = match &tx.lane {
        Some(Lane::Tcp(sender)) => sender.is_watched(),
        Some(Lane::Shm(_) | Lane::Tofu(_)) => false,
        // What they wait for comes with a completion, or a timer.
        Some(Lane::Ib(_)) => true,
        None => tx.connecting,
    };
    watched || tx.pending.is_empty()
}

/// Several messages go to a socket together.
fn cork(tx: &mut PeerTx, on: bool) {
    if let Some(Lane::Tcp(sender)) = tx.lane.as_mut() {
        if on { sender.cork() } else { sender.uncork() }
    }
}

/// A queued request has been sent.
unsafe fn sent(req: *mut Request) {
    // SAFETY: the caller's request.
    match unsafe { (*req).sent } {
        // SAFETY: in no queue any more.
        TxState::Complete | TxState::Fence => unsafe { request::complete(req, UCS_OK) },
        // SAFETY: as above.
        TxState::Flush => unsafe { flush::marker_sent(req) },
        TxState::Await | TxState::Device => {}
        // SAFETY: as above.
        TxState::Copy => unsafe { request::complete(req, (*req).status) },
    }
}
