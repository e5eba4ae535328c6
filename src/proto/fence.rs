//! Fence: operations after it take effect after the RMA and atomics before it.
//!
//! A peer executes messages in order. RMA that needs no messages goes by message, too, as long as messages are
//! unanswered ([`flush::is_settled`]). But the reply to a get can wait at the peer for room, while messages after it
//! are executed: a `Fence` message makes the peer copy the data of its pending replies. Copies of devices are not
//! ordered with anything else: a fence waits for them, which takes no progress of the peer.

use super::{flush, tx};
use crate::ctypes::*;
use crate::engine::peer::{Peer, PeerTx};
use crate::engine::request::{Request, TxState};
use crate::engine::worker::Worker;
use crate::sys::trace::{self, ArgValue};
use crate::wire::header::Kind;
use std::sync::atomic::{Ordering, fence};

/// Orders operations after this call behind those before it. `UCS_ERR_UNSUPPORTED` in a forked child, for a worker of
/// the parent.
#[inline]
pub fn start(worker: &Worker) -> ucs_status_t {
    if worker.progress_flags.concerns_fence() {
        if worker.is_inherited() {
            return UCS_ERR_UNSUPPORTED;
        }
        tx::device_copy::wait_for_accesses(worker);
        tx::move_backlog(worker);
    }
    // A pending request may be RMA. The result is stored under the locks, so that a stale result of another thread does
    // not replace it.
    let is_clean = worker.is_clean_then(
        |p| !flush::is_settled(p),
        flush::look_settled,
        |is_clean| worker.set_fenced(!is_clean),
    );
    if !is_clean {
        worker.set_fences_new_lanes();
        signal_all(worker);
    }
    fence(Ordering::SeqCst);
    UCS_OK
}

#[cold]
fn signal_all(worker: &Worker) {
    if trace::is_on() {
        trace::instant("flush", "fence", &[("worker", ArgValue::Hex(worker.uid))]);
    }
    worker.unflushed_peers().iter().for_each(|p| signal(p));
}

/// Sends a `Fence` to a peer that may have gets to answer, unless one was sent after the last of them.
fn signal(peer: &Peer) {
    let mut tx = peer.tx.lock();
    if let Some(lane) = tx.lane.as_mut() {
        lane.fence();
    }
    // SAFETY: queued requests are not freed.
    let last = (tx.pending.iter().rev()).find_map(|&req| is_read_or_signaled(unsafe { &*req }));
    let answered = || peer.rma.is_idle() || !tx.unfenced_gets;
    let needed = last.unwrap_or_else(|| !answered());
    let waits = queues(peer, &tx);
    drop(tx);
    if waits {
        tx::queue_fence(peer);
    }
    if needed {
        tx::control(peer, Kind::Fence, 0, 0, &[]);
    }
}

/// Whether a fence has to be queued, because operations before it may be by rails, or by a device that does not order
/// them.
fn queues(peer: &Peer, tx: &PeerTx) -> bool {
    let (context, is_pending) = (&peer.worker().ctx.tl, !tx.pending.is_empty());
    match &tx.lane {
        Some(lane) => lane.queues_fence(context, is_pending),
        None => is_pending && (context.stripes_rma() || peer.has_rings()),
    }
}

/// Whether a pending request is a get, or may become one (true), or a fence (false). `None`: neither.
fn is_read_or_signaled(r: &Request) -> Option<bool> {
    match r.msg.kind() {
        Some(Kind::GetReq) => Some(true),
        Some(Kind::Fence) => Some(false),
        _ if matches!(r.sent, TxState::Cma | TxState::Rma) => Some(true),
        _ => None,
    }
}
