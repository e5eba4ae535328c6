//! Answers to RMA by message: counted for each peer, with the refusals that the next flush reports.

use crate::ctypes::*;
use crate::engine::completion;
use crate::engine::peer::{AwaitedFlush, Peer};
use crate::engine::request::{Op, Request, TxState};
use crate::wire::header::Kind;

/// Whether all RMA by message has been answered, and no refusal has to be reported by a flush.
#[inline(always)]
pub fn is_answered_well(peer: &Peer) -> bool {
    peer.rma.is_idle() && !peer.is_rma_refused()
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
    let tx = peer.tx.lock();
    peer.rma.is_idle() && !tx.pending.iter().any(is_access)
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
    let _queue = peer.tx.lock();
    peer.discount_rma();
}

/// Handles an answer to a part of RMA.
pub fn answered(peer: &Peer) {
    let done = peer.rma.add_done();
    if peer.short_rma.is_awaited() && peer.rma.is_idle() && is_answered(peer) {
        peer.short_rma.note_answers(done);
        if !peer.tx.is_shared() {
            peer.short_rma.forget();
        }
    }
    loop {
        let mut tx = peer.tx.lock();
        let Some(i) = tx.flushes.iter().position(|flush| flush.target <= done) else {
            return;
        };
        let AwaitedFlush { req, .. } = tx.flushes.remove(i);
        drop(tx);
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
