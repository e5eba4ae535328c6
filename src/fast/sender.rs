//! Senders of adapters, as the hot path uses them: IB and Tofu.

use crate::engine::endpoint::Endpoint;
use crate::engine::stats::PeerEntry;
use crate::tl::Lane;
use crate::tl::ib::sender::IbSender;
use crate::tl::tofu::sender::TofuSender;
use crate::wire::header::Kind;
use crate::wire::stats::StatProtocol;

/// A sender that posts short records in a work request or descriptor.
pub(super) trait AdapterSender: Sized {
    /// The lane's sender, if there is a lane of this transport.
    fn of(lane: &mut Option<Lane>) -> Option<&mut Self>;

    /// Posts a record of up to [`TINY`](crate::sys::copy::TINY) bytes, and counts it. False: nothing was done. `imm` is
    /// called when the checks have passed, so that its value occupies no register before.
    ///
    /// # Safety
    /// `buffer` is readable for `len` bytes.
    unsafe fn post_tiny(
        &mut self,
        stats: &PeerEntry,
        kind: Kind,
        imm: impl FnOnce() -> u64,
        buffer: *const u8,
        len: usize,
    ) -> bool;
}

impl AdapterSender for IbSender {
    #[inline(always)]
    fn of(lane: &mut Option<Lane>) -> Option<&mut Self> {
        match lane {
            Some(Lane::Ib(sender)) => Some(sender.as_mut()),
            _ => None,
        }
    }

    #[inline(always)]
    unsafe fn post_tiny(
        &mut self,
        stats: &PeerEntry,
        kind: Kind,
        imm: impl FnOnce() -> u64,
        buffer: *const u8,
        len: usize,
    ) -> bool {
        if !self.has_inline_budget() {
            return false;
        }
        // Counted before the send: nothing has to be saved across that call.
        stats.of(StatProtocol::Short).add(len);
        // SAFETY: the caller's buffer has `len` bytes.
        unsafe { self.send_tiny(kind as u8, imm(), buffer, len) };
        true
    }
}

impl AdapterSender for TofuSender {
    #[inline(always)]
    fn of(lane: &mut Option<Lane>) -> Option<&mut Self> {
        match lane {
            Some(Lane::Tofu(sender)) => Some(sender.as_mut()),
            _ => None,
        }
    }

    #[inline(always)]
    unsafe fn post_tiny(
        &mut self,
        stats: &PeerEntry,
        kind: Kind,
        imm: impl FnOnce() -> u64,
        buffer: *const u8,
        len: usize,
    ) -> bool {
        // SAFETY: the caller's buffer has `len` bytes.
        let sent = unsafe { self.send_tiny(kind as u8, imm(), buffer, len) };
        if sent {
            stats.of(StatProtocol::Short).add(len);
        }
        sent
    }
}

/// The sender to the endpoint's peer, if the lane is of its transport and the pending queue is empty, and the peer's
/// statistics.
///
/// # Safety
/// The endpoint is valid, in single-thread mode, and no callback runs while the references live.
#[inline(always)]
pub(super) unsafe fn sender_of<'a, S: AdapterSender + 'a>(
    ep: *const Endpoint,
) -> Option<(&'a mut S, &'a PeerEntry)> {
    // SAFETY: the endpoint is valid, and its peer outlives it; in single-thread mode nothing else borrows `tx`.
    let (tx, stats) = unsafe { ((*ep).peer().tx.alone(), (*ep).peer().stats()) };
    match S::of(&mut tx.lane) {
        Some(sender) if tx.pending.is_empty() => Some((sender, stats)),
        _ => None,
    }
}
