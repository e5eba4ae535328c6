//! RMA and atomics in the turn of the pending queue: what those by an HCA and those by a TNI have in common.

use super::{rma_sw, set_message, zcopy};
use crate::engine::peer::Peer;
use crate::engine::request::{Op, Request, TxPayload, TxState, ZcopyRole};
use crate::wire::header::{AmoHdr, Kind};
use crate::wire::stats::StatProtocol;

/// Makes a request an atomic operation of the HCA or TNI for which the rkey or STADD of `op` is valid; it becomes a
/// message if the lane does not reach that one.
pub(super) fn set_atomic(r: &mut Request, addr: u64, head: &AmoHdr, op: Op) {
    set_message(r, Kind::AmoReq, 0, addr, &head.encode());
    (r.sent, r.op) = (TxState::Rma, op);
}

/// Called when an atomic operation was posted: from here on it is no message. Counted as mapped, because the target's
/// processor executes nothing.
pub(super) fn atomic_posted(peer: &Peer, r: &mut Request, len: usize) {
    peer.stats().of(StatProtocol::AmoMapped).add(len);
    r.msg.drop_kind();
    r.sent = if r.is_read() {
        TxState::AwaitReply
    } else {
        TxState::Complete
    };
    r.op = Op::SinglePost;
}

/// Makes a request RMA or a rendezvous by messages, because no queue pair can execute it.
pub(super) fn give_up(r: &mut Request) {
    if let Op::AmoIb { fetch, .. } | Op::AmoTofu { fetch, .. } = r.op {
        r.op = Op::Message;
        (r.sent, r.payload) = if fetch {
            (TxState::AwaitReply, TxPayload::HeaderOnly)
        } else {
            (TxState::Complete, TxPayload::Whole)
        };
        return;
    }
    match r.transfer().map(|t| t.role) {
        Some(ZcopyRole::Deliver) => return zcopy::fall_back_to_am(r, r.msg.imm),
        Some(ZcopyRole::Fetch) => return zcopy::rtr_am(r),
        _ => {}
    }
    r.extra = None;
    let (direction, addr) = match &r.op {
        Op::RmaIb(rma) => (rma.direction, rma.remote_addr),
        Op::RmaTofu(rma) => (rma.direction, rma.remote_addr),
        _ => return,
    };
    r.op = Op::Message;
    rma_sw::set_am(r, direction, addr);
}
