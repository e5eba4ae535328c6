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
    // SAFETY: the endpoint is valid, and its peer outlives it.
    let peer = unsafe { (*ep).peer() };
    // SAFETY: in single-thread mode nothing else borrows `tx`.
    let (tx, stats) = (unsafe { peer.tx.alone() }, peer.stats());
    match S::of(&mut tx.lane) {
        Some(sender) if tx.pending.is_empty() => Some((sender, stats)),
        _ => None,
    }
}

/// [`sender_of`] a peer whose lane is of this transport.
///
/// # Safety
/// The requirements of [`sender_of`]; the caller has found the lane to be of this transport, and no callback has run
/// since.
#[inline(always)]
pub(super) unsafe fn known_sender<'a, S: LaneSender + 'a>(
    ep: *const Endpoint,
) -> Option<(&'a mut S, &'a PeerEntry)> {
    // SAFETY: the endpoint is valid, and its peer outlives it.
    let peer = unsafe { (*ep).peer() };
    // SAFETY: in single-thread mode nothing else borrows `tx`.
    let tx = unsafe { peer.tx.alone() };
    // SAFETY: only a callback could have changed the lane.
    let sender = unsafe { S::of(&mut tx.lane).unwrap_unchecked() };
    tx.pending.is_empty().then(|| (sender, peer.stats()))
}
