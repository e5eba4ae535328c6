//! The protocol of short puts and gets of memory that is not mapped here: CMA, or a message that the target executes.

use super::param::Param;
use crate::ctypes::*;
use crate::engine::peer::{Peer, ShortAccess};
use crate::proto::answers;
use crate::proto::select::rma::RmaPath;
use crate::proto::tx;
use crate::tl::Lane;

/// Whether short accesses for which CMA was possible went by message and are not answered. The accesses behind them
/// go by message as well, so that the order is kept.
pub(super) fn is_unanswered(peer: &Peer) -> bool {
    if !peer.short_rma.is_used() {
        return false;
    }
    if !answers::is_answered(peer) {
        return true;
    }
    if !peer.tx.is_shared() {
        peer.short_rma.forget();
    }
    false
}

/// Whether a short access for which CMA is possible goes by message, because the peer progresses and a message is
/// faster.
pub(super) fn goes_by_message(peer: &Peer, path: &RmaPath, access: ShortAccess, p: &Param) -> bool {
    if !matches!(path, RmaPath::Cma)
        || p.has(UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL)
        || !peer.short_rma.is_wanted(access)
    {
        return false;
    }
    let mut tx = peer.tx.lock();
    // A program that only puts and gets sends no other message that opens a ring.
    if tx.lane.is_none() && peer.short_rma.opens_ring(access) {
        tx::open_ring(peer, &mut tx);
    }
    let Some(progressed_at) = tx.lane.as_ref().and_then(Lane::progressed_at) else {
        return false;
    };
    let is_idle = answers::is_idle(peer, &mut tx);
    drop(tx);
    let done = peer.rma.done();
    is_idle && peer.short_rma.choose(access, progressed_at, done)
}
