//! What is noted of a peer in flags and counters. Relaxed throughout, unless a function says otherwise: each is a value
//! of its own, which publishes no other data.

use super::Peer;
use bitflags::bitflags;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

bitflags! {
    /// What is noted of a peer at most once.
    #[derive(Clone, Copy)]
    struct OnceNotes: u8 {
        /// An endpoint with error handling was made to it: its death is to be noticed even if nothing is sent.
        const WATCHES_DEATH = 1 << 0;
        /// The cause of its failure was logged.
        const LOSS_LOGGED = 1 << 1;
        /// Failover is requested: its connection, if not made yet, has to survive the loss of a port.
        const FAILOVER = 1 << 2;
    }
}

/// Flags and counters of a peer.
#[derive(Default)]
pub(super) struct PeerNotes {
    /// Parts of messages received, modulo 2^32: while the count grows, the peer is sending.
    parts: AtomicU32,
    /// Recent time to copy a MiB of such parts out of the ring, nanoseconds; 0: not known. Written by progress.
    pub(super) copy_ns_per_mib: AtomicU32,
    /// When an endpoint's creation last found its worker alive, coarse milliseconds modulo 2^32.
    probed_at: AtomicU32,
    /// Replies to its gets that wait for room and are sent from the memory that was read, without a copy.
    replies_in_place: AtomicU32,
    /// Remaining number of long messages from it that are received without an RTR race, before one is tried whatever
    /// the pace. Written by progress and by receives.
    probe_skip: AtomicU8,
    /// [`OnceNotes`].
    once: AtomicU8,
    /// An endpoint to it was closed by force when the user had no other: the worker's flushes do not wait for
    /// operations on it.
    force_closed: AtomicBool,
    /// The user was given an internal endpoint for replies, valid until the worker is destroyed.
    has_reply_endpoint: AtomicBool,
    /// It refused an access without a request: the next flush to end fails.
    pub(super) rma_refused: AtomicBool,
    /// It is in the worker's list of peers without endpoints.
    is_idle: AtomicBool,
    /// It is in the worker's list of peers that a flush of all peers looks at. Changed under the lock of `tx`, or in
    /// single-thread mode.
    is_unflushed: AtomicBool,
}

impl PeerNotes {
    fn has_noted(&self, note: OnceNotes) -> bool {
        self.once.load(Ordering::Relaxed) & note.bits() != 0
    }

    fn note(&self, note: OnceNotes) {
        self.once.fetch_or(note.bits(), Ordering::Relaxed);
    }
}

impl Peer {
    /// Parts of messages received from it, modulo 2^32.
    pub fn parts(&self) -> u32 {
        self.notes.parts.load(Ordering::Relaxed)
    }

    /// Counts a part of a message; returns the new count. Called in progress, which alone writes the counter.
    pub fn count_part(&self) -> u32 {
        let parts = self.parts().wrapping_add(1);
        self.notes.parts.store(parts, Ordering::Relaxed);
        parts
    }

    /// Recent time to copy a MiB of its messages out of the ring, nanoseconds; 0: not known.
    pub fn copy_ns_per_mib(&self) -> u32 {
        self.notes.copy_ns_per_mib.load(Ordering::Relaxed)
    }

    /// Whether its worker was last found alive at this time, coarse milliseconds modulo 2^32.
    pub fn was_probed_at(&self, now: u32) -> bool {
        self.notes.probed_at.load(Ordering::Relaxed) == now
    }

    /// Its worker is alive at this time, coarse milliseconds modulo 2^32.
    pub fn set_probed_at(&self, now: u32) {
        self.notes.probed_at.store(now, Ordering::Relaxed);
    }

    /// Whether it is the turn of a long message to be received by an RTR race whatever the pace: one of `period + 1`
    /// is. Threads may lose each other's counts, which does no harm.
    pub fn is_race_tried(&self, period: u8) -> bool {
        let left = self.notes.probe_skip.load(Ordering::Relaxed);
        let next = if left == 0 { period } else { left - 1 };
        self.notes.probe_skip.store(next, Ordering::Relaxed);
        left == 0
    }

    /// Whether replies to its gets wait that are sent from the memory that was read.
    #[inline]
    pub fn has_replies_in_place(&self) -> bool {
        self.notes.replies_in_place.load(Ordering::Relaxed) != 0
    }

    /// Counts a reply to its get that is sent from the memory that was read. Only the progress thread reads the count.
    pub fn add_reply_in_place(&self) {
        self.notes.replies_in_place.fetch_add(1, Ordering::Relaxed);
    }

    /// A reply that was counted is copied, sent or dropped.
    pub fn end_reply_in_place(&self) {
        self.notes.replies_in_place.fetch_sub(1, Ordering::Relaxed);
    }

    /// Something may be on the way to it from now on: a flush of all peers looks at it. The caller has the lock of
    /// `tx`, or the worker is in single-thread mode. Stub peers are looked at in any case.
    #[inline(always)]
    pub fn note_unflushed(&self) {
        if !self.notes.is_unflushed.load(Ordering::Relaxed) {
            self.list_unflushed();
        }
    }

    #[cold]
    #[inline(never)]
    fn list_unflushed(&self) {
        if !self.is_stub() {
            self.notes.is_unflushed.store(true, Ordering::Relaxed);
            self.worker().peer_lists.unflushed.lock().push(self);
        }
    }

    /// Nothing is on the way to it: it is about to be removed from that list. The caller has the lock of `tx`, and that
    /// of the list.
    pub fn end_unflushed(&self) {
        self.notes.is_unflushed.store(false, Ordering::Relaxed);
    }

    /// Whether the cause of its failure was logged. It is noted before the failure.
    pub fn is_loss_logged(&self) -> bool {
        self.notes.has_noted(OnceNotes::LOSS_LOGGED)
    }

    /// Notes that the cause of its failure, which follows, was logged.
    pub fn note_loss_logged(&self) {
        self.notes.note(OnceNotes::LOSS_LOGGED);
    }

    /// Whether its death is to be noticed even if nothing is sent. It is set once: the next call sees it.
    pub fn watches_death(&self) -> bool {
        self.notes.has_noted(OnceNotes::WATCHES_DEATH)
    }

    /// An endpoint with error handling is made to it.
    pub fn watch_death(&self) {
        self.notes.note(OnceNotes::WATCHES_DEATH);
    }

    /// Whether an endpoint to it was closed by force when the user had no other.
    pub fn is_force_closed(&self) -> bool {
        self.notes.force_closed.load(Ordering::Relaxed)
    }

    /// The user's only endpoint to it is closed by force.
    pub fn set_force_closed(&self) {
        self.notes.force_closed.store(true, Ordering::Relaxed);
    }

    /// Whether the user was given an internal endpoint for replies.
    pub fn has_reply_endpoint(&self) -> bool {
        self.notes.has_reply_endpoint.load(Ordering::Relaxed)
    }

    /// The user is given an internal endpoint for replies. Read by this thread, or by a thread that the user has
    /// synchronized with it.
    pub fn set_has_reply_endpoint(&self) {
        self.notes.has_reply_endpoint.store(true, Ordering::Relaxed);
    }

    /// Neither worker has an endpoint to the other any more.
    pub fn forget_endpoints(&self) {
        self.notes.force_closed.store(false, Ordering::Relaxed);
        self.notes
            .has_reply_endpoint
            .store(false, Ordering::Relaxed);
    }

    /// It enters the worker's list of peers without endpoints, whose lock orders it. False: it is there already.
    pub fn set_idle(&self) -> bool {
        !self.notes.is_idle.swap(true, Ordering::Relaxed)
    }

    /// It has left the worker's list of peers without endpoints.
    pub fn clear_idle(&self) {
        self.notes.is_idle.store(false, Ordering::Relaxed);
    }

    /// Requests failover for its connection, which is about to be made.
    pub fn set_failover(&self) {
        self.notes.note(OnceNotes::FAILOVER);
    }

    /// Whether failover is requested for its connection. It is set before a connection is requested, whose lock
    /// publishes it; a later change has no effect.
    pub fn fails_over(&self) -> bool {
        self.notes.has_noted(OnceNotes::FAILOVER)
    }
}
