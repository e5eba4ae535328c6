//! Senders of adapters (IB and Tofu) and rings of shared memory, as the hot path uses them.

use crate::engine::peer::Peer;
use crate::sys::copy;
use crate::tl::{LaneSender, RingSender};
use crate::wire::header::Kind;

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

/// Sends a message that is only a header, and that the peer answers. False: the ring has no room for it, or an error,
/// which the slow path finds again.
#[inline(always)]
pub(super) fn send_counted<const LEN: usize>(
    peer: &Peer,
    ring: &mut RingSender,
    kind: Kind,
    imm: u64,
    head: &[u8; LEN],
) -> bool {
    // Counted before the send: the reply can be handled before the store.
    peer.note_unflushed();
    peer.rma.add_sent();
    let sent = ring.send(kind as u8, 0, imm, LEN, |record| {
        // SAFETY: the record has room for the header.
        unsafe { copy::to_shared(record, head.as_ptr(), LEN) };
    });
    let sent = sent == Ok(true);
    if !sent {
        peer.rma.cut_sent();
    }
    sent
}
