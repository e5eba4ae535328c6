//! Senders of adapters, as the hot path uses them: IB and Tofu.

use crate::engine::peer::Peer;
use crate::tl::LaneSender;

/// The sender to a peer, if the lane is of its transport and the pending queue is empty.
///
/// # Safety
/// Single-thread mode, and no callback runs while the references live.
#[expect(clippy::mut_from_ref, reason = "the sender lies in the cell of `tx`")]
#[inline(always)]
pub(super) unsafe fn sender_of<S: LaneSender>(peer: &Peer) -> Option<&mut S> {
    // SAFETY: in single-thread mode nothing else borrows `tx`.
    let tx = unsafe { peer.tx.alone() };
    match S::of(&mut tx.lane) {
        Some(sender) if tx.pending.is_empty() => Some(sender),
        _ => None,
    }
}

/// [`sender_of`] a peer whose lane is of this transport.
///
/// # Safety
/// The requirements of [`sender_of`]; the caller has found the lane to be of this transport, and no callback has run
/// since.
#[expect(clippy::mut_from_ref, reason = "the sender lies in the cell of `tx`")]
#[inline(always)]
pub(super) unsafe fn known_sender<S: LaneSender>(peer: &Peer) -> Option<&mut S> {
    // SAFETY: in single-thread mode nothing else borrows `tx`.
    let tx = unsafe { peer.tx.alone() };
    // SAFETY: only a callback could have changed the lane.
    let sender = unsafe { S::of(&mut tx.lane).unwrap_unchecked() };
    tx.pending.is_empty().then_some(sender)
}
