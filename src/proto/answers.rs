//! Answers to RMA by message: counted for each peer, with the refusals that the next flush reports.
//!
//! A signal behind data in mapped memory is not answered ([`Kind::Note`] in a ring of shared memory). The peer has
//! handled it when its position in the ring is behind it, and counts its refusal beside that position. Both are read
//! where something waits for answers: by a flush, a fence, or an access that must not overtake the signal. While a
//! flush waits for them, progress reads them.

use crate::ctypes::*;
use crate::engine::completion;
use crate::engine::peer::{AwaitedFlush, Peer, PeerTx};
use crate::engine::request::{Op, Request, TxState};
use crate::sys::log;
use crate::tl::Lane;
use crate::wire::header::Kind;

/// Whether all RMA by message is known to be answered, and no refusal has to be reported by a flush.
#[inline(always)]
pub fn is_answered_well(peer: &Peer) -> bool {
    peer.rma.is_idle() && !peer.is_rma_refused()
}

/// Whether all RMA by message has been answered; reads the peer's position if signals are not known to be handled.
#[inline(always)]
pub fn is_idle(peer: &Peer, tx: &mut PeerTx) -> bool {
    peer.rma.is_idle() || awaits_position(peer) && is_idle_by_position(peer, tx)
}

#[cold]
#[inline(never)]
fn is_idle_by_position(peer: &Peer, tx: &mut PeerTx) -> bool {
    count_handled(peer, tx);
    peer.rma.is_idle()
}

/// [`is_idle`] for callers without the lock of `tx`.
#[inline(always)]
pub fn is_idle_unlocked(peer: &Peer) -> bool {
    peer.rma.is_idle() || awaits_position(peer) && is_idle_slow(peer)
}

#[cold]
#[inline(never)]
fn is_idle_slow(peer: &Peer) -> bool {
    is_idle(peer, &mut peer.tx.lock())
}

/// Whether signals without an answer are not known to be handled.
#[inline(always)]
fn awaits_position(peer: &Peer) -> bool {
    peer.rma.signals_done() != peer.rma.signals_sent()
}

/// Logs that the peer has refused a signal, the first one of the process as an error.
#[cold]
fn note_refused_signal(peer: &Peer) {
    log::once!(
        Error,
        "worker {:#x} refused a signal: the flag is no aligned word of memory that is mapped there, or was unmapped",
        peer.uid
    );
}

/// Counts the signals without an answer that the peer has handled, by its position in the ring, and notes a refusal.
/// Completes no flush: callbacks do not run in the callers.
fn count_handled(peer: &Peer, tx: &mut PeerTx) {
    if !awaits_position(peer) {
        return;
    }
    let Some(ring) = tx.lane.as_mut().and_then(Lane::ring) else {
        return;
    };
    let Some((handled, refused)) = ring.handled() else {
        return;
    };
    if refused {
        note_refused_signal(peer);
        peer.refuse_signal();
    }
    let done = if handled >= ring.signaled() {
        peer.rma.signals_sent()
    } else {
        // Signals may follow each other without a pause: those in front of a flush are counted when it is reached.
        let reached = tx.flushes.iter().filter(|flush| flush.signaled <= handled);
        reached.map(|flush| flush.signals).max().unwrap_or(0)
    };
    peer.rma.set_signals_done(done);
}

/// Lists a flush that waits for the answers to all RMA sent until now.
#[inline(always)]
pub fn await_all(peer: &Peer, tx: &mut PeerTx, req: *mut Request) {
    let sent_before = peer.rma.sent();
    tx.flushes.push(AwaitedFlush {
        req,
        sent_before,
        target: sent_before,
        signals: 0,
        signaled: 0,
    });
    if awaits_position(peer) {
        await_position(peer, tx);
    }
}

/// The flush that was listed last waits for the peer's position, too.
#[cold]
#[inline(never)]
fn await_position(peer: &Peer, tx: &mut PeerTx) {
    if let Some(flush) = tx.flushes.last_mut()
        && let Some(ring) = tx.lane.as_mut().and_then(Lane::ring)
    {
        (flush.signals, flush.signaled) = (peer.rma.signals_sent(), ring.signaled());
        if std::mem::replace(&mut tx.polls_position, true) {
            return;
        }
        // Counts as a pending request, and as one of the peer's queue.
        let worker = peer.worker();
        worker.progress_flags.queued();
        if !std::mem::replace(&mut tx.in_pending_list, true) {
            worker.peer_lists.pending.lock().push(peer);
        }
    }
}

/// Whether a flush waits for the peer's position.
fn is_polled(peer: &Peer, tx: &PeerTx) -> bool {
    let done = peer.rma.signals_done();
    tx.flushes.iter().any(|flush| flush.signals > done)
}

/// Reads the position of a peer for which flushes wait, and completes those that it has reached. Returns their number.
/// Called in progress.
#[cold]
pub fn progress_position(peer: &Peer) -> u32 {
    let mut tx = peer.tx.lock();
    count_handled(peer, &mut tx);
    drop(tx);
    let count = complete_flushes(peer, peer.rma.done());
    let mut tx = peer.tx.lock();
    if tx.polls_position && !is_polled(peer, &tx) {
        tx.polls_position = false;
        peer.worker().progress_flags.dequeued(1);
    }
    count
}

/// Whether no RMA by message is pending or outstanding: an operation of a device now overtakes none. Earlier operations
/// of devices are not considered.
pub fn is_answered(peer: &Peer) -> bool {
    let is_access = |&r: &*mut Request| {
        // SAFETY: queued requests are not freed.
        let r = unsafe { &*r };
        r.sent != TxState::Rma
            && matches!(
                r.msg.kind(),
                Some(Kind::PutReq | Kind::GetReq | Kind::AmoReq | Kind::Signal)
            )
    };
    // Under the lock, which another thread holds while it sends pending requests and counts them.
    let mut tx = peer.tx.lock();
    is_idle(peer, &mut tx) && !tx.pending.iter().any(is_access)
}

/// Stores the turn of a get: its number among all RMA that was sent to the peer, counted from 1.
pub fn set_turn(r: &mut Request, turn: u64) {
    if r.msg.is(Kind::GetReq) {
        r.op = Op::AmGet { turn };
    }
}

/// Handles the cancel of a get that was sent: it counts as answered, but flushes that were started before it still wait
/// for as many other answers.
pub fn discount_cancelled(peer: &Peer, r: &Request) {
    let turn = match r.op {
        Op::AmGet { turn } => turn,
        _ => 0,
    };
    let mut tx = peer.tx.lock();
    for flush in &mut tx.flushes {
        if flush.sent_before < turn {
            flush.target += 1;
        }
    }
    drop(tx);
    answered(peer);
}

/// Handles an answer to a part of RMA without a request.
pub fn notified(peer: &Peer, status: ucs_status_t) {
    if status != UCS_OK {
        refuse(peer);
    }
    answered(peer);
}

/// Notes that the peer refuses the access that it answers now.
#[cold]
fn refuse(peer: &Peer) {
    let _queue = peer.tx.lock();
    peer.refuse_rma();
}

/// Called when the last endpoint to a peer was closed by force: later flushes report no refusal of accesses until now.
/// (A peer answers in the order of the messages, except gets.)
pub fn drop_failure(peer: &Peer) {
    let mut tx = peer.tx.lock();
    if let Some(ring) = tx.lane.as_mut().and_then(Lane::ring) {
        ring.discount_refusals();
    }
    peer.discount_rma();
}

/// Handles an answer to a part of RMA.
pub fn answered(peer: &Peer) {
    let done = peer.rma.add_done();
    if peer.short_rma.is_awaited() && is_answered(peer) {
        peer.short_rma.note_answers(done);
        if !peer.tx.is_shared() {
            peer.short_rma.forget();
        }
    }
    complete_flushes(peer, done);
}

/// Completes the flushes that waited for as many answers as there are, or fewer. Returns their number.
#[inline(always)]
fn complete_flushes(peer: &Peer, done: u64) -> u32 {
    let mut count = 0;
    loop {
        let mut tx = peer.tx.lock();
        let Some(i) = tx.flushes.iter().position(|flush| flush.target <= done) else {
            return count;
        };
        let AwaitedFlush { req, signals, .. } = tx.flushes.remove(i);
        // The answer to a later access may have been counted in place of a signal, which precedes it: the peer has
        // handled that signal, and its refusal is visible.
        if signals != 0 {
            count_handled(peer, &mut tx);
        }
        drop(tx);
        count += 1;
        // SAFETY: the request was removed from its only list: this thread owns it.
        unsafe { completion::complete(req, outcome(peer)) };
    }
}

/// Status of a flush that completes now.
pub fn outcome(peer: &Peer) -> ucs_status_t {
    if peer.take_rma_refused() {
        UCS_ERR_INVALID_ADDR
    } else {
        UCS_OK
    }
}
