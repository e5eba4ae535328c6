//! Senders of adapters, as the hot path uses them: IB and Tofu.

use crate::engine::endpoint::Endpoint;
use crate::engine::stats::PeerEntry;
use crate::tl::LaneSender;

/// The sender to the endpoint's peer, if the lane is of its transport and the pending queue is empty, and the peer's
/// statistics.
///
/// # Safety
/// The endpoint is valid, in single-thread mode, and no callback runs while the references live.
#[inline(always)]
pub(super) unsafe fn sender_of<'a, S: LaneSender + 'a>(
    ep: *const Endpoint,
) -> Option<(&'a mut S, &'a PeerEntry)> {
    // SAFETY: the endpoint is valid, and its peer outlives it; in single-thread mode nothing else borrows `tx`.
    let (tx, stats) = unsafe { ((*ep).peer().tx.alone(), (*ep).peer().stats()) };
    match S::of(&mut tx.lane) {
        Some(sender) if tx.pending.is_empty() => Some((sender, stats)),
        _ => None,
    }
}
