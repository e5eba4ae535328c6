//! Flow control of a connection: packets that each end has received and acknowledged.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Credits of a connection: packets counted modulo 2^32. The progress thread receives, the thread that holds the peer's
/// lock sends. Relaxed everywhere: these are counts only; the device transfers the packets that they count.
#[derive(Default)]
pub struct Credits {
    /// Packets that the peer has acknowledged.
    taken: AtomicU32,
    /// Packets that were received from the peer, and the number of them that were acknowledged.
    received: AtomicU32,
    acked: AtomicU32,
    /// The peer has requested an immediate acknowledgment.
    ack_requested: AtomicBool,
}

impl Credits {
    /// Counts one more packet received from the peer.
    #[inline(always)]
    pub fn receive(&self) {
        let n = self.received.load(Ordering::Relaxed);
        self.received.store(n.wrapping_add(1), Ordering::Relaxed);
    }

    /// Records that the peer has requested an acknowledgment.
    pub fn request_ack(&self) {
        self.ack_requested.store(true, Ordering::Relaxed);
    }

    /// Returns the number of packets received, which the caller sends to the peer; they count as acknowledged.
    #[inline(always)]
    pub fn take_ack(&self) -> u32 {
        let n = self.received.load(Ordering::Relaxed);
        self.acked.store(n, Ordering::Relaxed);
        self.ack_requested.store(false, Ordering::Relaxed);
        n
    }

    /// Packets received that were not acknowledged.
    #[inline(always)]
    pub fn unacked(&self) -> u32 {
        let acked = self.acked.load(Ordering::Relaxed);
        self.received.load(Ordering::Relaxed).wrapping_sub(acked)
    }

    /// Whether enough packets are unacknowledged that an acknowledgment is to be sent even without a packet. `window`:
    /// packets that the peer may send.
    #[inline(always)]
    pub fn is_ack_due(&self, window: u32) -> bool {
        self.unacked() >= window / 2
    }

    /// Whether an acknowledgment is due by [`is_ack_due`](Self::is_ack_due) or was requested by the peer.
    #[inline(always)]
    pub fn is_ack_urgent(&self, window: u32) -> bool {
        self.is_ack_due(window) || self.ack_requested.load(Ordering::Relaxed)
    }

    /// Packets of `sent` that the peer has not acknowledged.
    #[inline(always)]
    pub(super) fn in_flight(&self, sent: u32) -> u32 {
        sent.wrapping_sub(self.taken.load(Ordering::Relaxed))
    }

    /// Handles credits from the peer: the lower 16 bits of the number of packets that it has received.
    #[inline(always)]
    pub fn credit(&self, low: u16) {
        let taken = self.taken.load(Ordering::Relaxed);
        let more = low.wrapping_sub(taken as u16);
        // Packets of a connection arrive in order: a smaller value than before has wrapped.
        self.taken
            .store(taken.wrapping_add(more.into()), Ordering::Relaxed);
    }
}
