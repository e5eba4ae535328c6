//! Fence: what is done behind it takes effect after the remote accesses before it.
//!
//! A peer executes messages in order, so that those behind a fence need nothing, and what needs none goes by message
//! too as long as some are unanswered ([`flush::is_settled`]). But the answer to a read can wait at the peer for room
//! on its way back, while what is behind it is executed: so the peer is told of the fence.

use super::{flush, tx};
use crate::ctypes::*;
use crate::engine::peer::Peer;
use crate::engine::request::{Request, TxState};
use crate::engine::worker::Worker;
use crate::tl::Lane;
use crate::wire::header::Kind;
use std::sync::atomic::{Ordering, fence};

/// Remote accesses after this take effect after those before it. `UCS_ERR_UNSUPPORTED` in a forked child, for a worker
/// of its parent's.
#[inline]
pub fn start(worker: &Worker) -> ucs_status_t {
    if worker.progress_flags.backlog() != 0 {
        if worker.is_inherited() {
            return UCS_ERR_UNSUPPORTED;
        }
        tx::move_backlog(worker);
    }
    // What still waits to be sent may be an access. The answer is noted under the locks, so that what another thread
    // has found before this one's accesses does not replace what this one finds.
    let busy = worker.any_peer_then(
        |p| !flush::is_settled(p),
        |busy| worker.fenced.store(busy, Ordering::Relaxed),
    );
    if busy {
        // Relaxed: read under the lock of the lane that is being made, behind which what waits is posted.
        worker.fences.store(true, Ordering::Relaxed);
        signal_all(worker);
    }
    fence(Ordering::SeqCst);
    UCS_OK
}

#[cold]
fn signal_all(worker: &Worker) {
    worker.all_peers().iter().for_each(|p| signal(p));
}

/// Tells a peer that may have reads to answer, unless it was told since the last of them.
fn signal(peer: &Peer) {
    let mut tx = peer.tx.lock();
    if let Some(Lane::Ib(sender)) = tx.lane.as_mut() {
        sender.fence();
    }
    if let Some(Lane::Tofu(sender)) = tx.lane.as_mut() {
        sender.fence();
    }
    // SAFETY: queued requests live.
    let last = (tx.pending.iter().rev()).find_map(|&req| is_read_or_signaled(unsafe { &*req }));
    let answered = || peer.rma_idle() || !tx.unfenced_gets;
    let needed = last.unwrap_or_else(|| !answered());
    let waits = tx::ib_stripe::is_to_wait(peer, &tx);
    drop(tx);
    if waits {
        tx::queue_fence(peer);
    }
    if needed {
        tx::control(peer, Kind::Fence, 0, 0, &[]);
    }
}

/// Whether what waits to be sent is a read, or may become one, and no fence. `None`: neither.
fn is_read_or_signaled(r: &Request) -> Option<bool> {
    match Kind::from_u8(r.kind) {
        Some(Kind::GetReq) => Some(true),
        Some(Kind::Fence) => Some(false),
        _ if matches!(r.sent, TxState::Copy | TxState::Device) => Some(true),
        _ => None,
    }
}
