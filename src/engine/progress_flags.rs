//! Pending work of progress, other than messages in rings: one word of bits, so that one load shows that there is none.

use crate::tl::IfaceKind;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Deferred work: see [`ProgressFlags::raise_deferred`].
const DEFERRED: u64 = 1 << 0;
/// CMA has copied for the user since the last progress or flush.
const COPIED: u64 = 1 << 1;
/// Devices copy for requests: see [`ProgressFlags::raise_copies`].
const COPIES: u64 = 1 << 2;
/// Progress and flushes leave their short paths: the worker is inherited, or its timeline is recorded.
const ASIDE: u64 = 1 << 3;
/// Interfaces to poll: a bit for each [`IfaceKind`].
const POLLED: u32 = 4;
/// Interfaces that are to connect to peers.
const CONNECTING: u32 = POLLED + IfaceKind::COUNT as u32;
/// One request that waits in a pending queue; the bits above count them.
const BACKLOG: u64 = 1 << (CONNECTING + IfaceKind::COUNT as u32);
/// The worker is inherited from a parent. (So many requests never wait.)
const INHERITED: u64 = 1 << 63;

/// The bit of an interface to poll.
const fn polled(kind: IfaceKind) -> u64 {
    1 << (POLLED + kind as u32)
}

/// The bit of an interface that is to connect to peers.
const fn connecting(kind: IfaceKind) -> u64 {
    1 << (CONNECTING + kind as u32)
}

/// Set by any thread that leaves work, read by the progress thread.
#[derive(Default)]
pub struct ProgressFlags(AtomicU64);

/// The bits of [`ProgressFlags`] at one moment.
#[derive(Clone, Copy)]
pub struct ProgressBits(u64);

impl ProgressBits {
    /// Whether the interface is to be polled.
    #[inline]
    pub fn polls(self, kind: IfaceKind) -> bool {
        self.0 & (polled(kind) | connecting(kind)) != 0
    }

    /// Whether polling the interface is the only work.
    #[inline(always)]
    pub fn only(self, kind: IfaceKind) -> bool {
        self.0 == polled(kind)
    }

    /// Whether [`set_inherited`](ProgressFlags::set_inherited) or [`set_recorded`](ProgressFlags::set_recorded) was
    /// called.
    #[inline(always)]
    pub fn is_aside(self) -> bool {
        self.0 & ASIDE != 0
    }
}

impl ProgressFlags {
    /// Whether no bit is set. Relaxed: the code that handles the bits loads them again.
    #[inline(always)]
    pub fn none(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// There is deferred work: an entry in the worker's `cma_gets`, `rtr_races`, `split_pushes`, `flushed_done`,
    /// `PeerLists::failed`, `err_handlers` or `closed_eps`, or one in `grace_eps` is due.
    pub fn raise_deferred(&self) {
        // Release: pairs with the Acquire load in `has_deferred`; publishes the entry.
        self.0.fetch_or(DEFERRED, Ordering::Release);
    }

    /// There is an entry in the worker's `device_copies`. Under the lock of that list.
    pub fn raise_copies(&self) {
        // Relaxed: the lock publishes the entry.
        self.0.fetch_or(COPIES, Ordering::Relaxed);
    }

    /// There is none any more. Under the lock of the list.
    pub fn clear_copies(&self) {
        self.0.fetch_and(!COPIES, Ordering::Relaxed);
    }

    /// Whether there is an entry in `device_copies`. Relaxed: the caller takes the lock of the list.
    pub fn has_copies(&self) -> bool {
        self.0.load(Ordering::Relaxed) & COPIES != 0
    }

    /// Whether there is deferred work, or an entry in `device_copies`.
    pub fn has_deferred_or_copies(&self) -> bool {
        // Acquire: pairs with the Release in `raise_deferred`.
        self.0.load(Ordering::Acquire) & (DEFERRED | COPIES) != 0
    }

    /// [`raise_deferred`](Self::raise_deferred) without an entry. Returns whether there was no deferred work.
    pub fn raise_deferred_again(&self) -> bool {
        // Relaxed: publishes nothing.
        self.0.fetch_or(DEFERRED, Ordering::Relaxed) & DEFERRED == 0
    }

    /// In a forked child: the worker is its parent's. Its progress does not take the path of workers with nothing to
    /// do, and an active call of it finds nothing else to do. The requests that wait stay counted: the code that takes
    /// them out of their queues subtracts them.
    pub fn set_inherited(&self) {
        // Relaxed: there is one thread.
        self.0.fetch_and(!(BACKLOG - 1), Ordering::Relaxed);
        self.0.fetch_or(INHERITED | ASIDE, Ordering::Relaxed);
    }

    /// The timeline of the worker is recorded: progress and flushes leave their short paths.
    pub fn set_recorded(&self) {
        // Relaxed: no other thread has the worker yet.
        self.0.fetch_or(ASIDE, Ordering::Relaxed);
    }

    /// Whether [`set_inherited`](Self::set_inherited) or [`set_recorded`](Self::set_recorded) was called.
    #[inline(always)]
    pub fn is_aside(&self) -> bool {
        // Relaxed: neither is ever undone, and the latter is before other threads have the worker.
        self.0.load(Ordering::Relaxed) & ASIDE != 0
    }

    /// Whether [`set_inherited`](Self::set_inherited) was called.
    #[inline(always)]
    pub fn is_inherited(&self) -> bool {
        self.0.load(Ordering::Relaxed) & INHERITED != 0
    }

    /// Whether there is deferred work.
    pub fn has_deferred(&self) -> bool {
        // Acquire: pairs with the Release in `raise_deferred`.
        self.0.load(Ordering::Acquire) & DEFERRED != 0
    }

    /// Clears the bit; the caller then does the deferred work. What is added from here on sets the bit again.
    pub fn take_deferred(&self) {
        self.0.fetch_and(!DEFERRED, Ordering::Release);
        // SeqCst: the lists are read after the bit is cleared; an entry that is not seen there sets the bit again.
        fence(Ordering::SeqCst);
    }

    /// The next progress call and all further ones have to poll an interface.
    pub fn raise(&self, kind: IfaceKind) {
        // Release: pairs with the Acquire load in `now`; publishes what is to be polled.
        self.0.fetch_or(polled(kind), Ordering::Release);
    }

    /// A peer was put into the list of those to which the interface is to connect, or work into that of rails.
    pub fn raise_connect(&self, kind: IfaceKind) {
        // Release: pairs with the Acquire in `take_connect`; publishes the entry.
        self.0
            .fetch_or(polled(kind) | connecting(kind), Ordering::Release);
    }

    /// Whether there are entries in those lists.
    #[inline]
    pub fn has_connects(&self, kind: IfaceKind) -> bool {
        // Acquire: pairs with the Release in `raise_connect`.
        self.0.load(Ordering::Acquire) & connecting(kind) != 0
    }

    /// [`has_connects`](Self::has_connects) for a caller that handles the entries.
    #[inline]
    pub fn take_connect(&self, kind: IfaceKind) -> bool {
        let wanted = self.has_connects(kind);
        if wanted {
            // Release and fence as in `take_deferred`: an entry that is added from here on sets the bit again.
            self.0.fetch_and(!connecting(kind), Ordering::Release);
            fence(Ordering::SeqCst);
        }
        wanted
    }

    /// Whether the interface is to be polled.
    #[inline]
    pub fn has(&self, kind: IfaceKind) -> bool {
        self.now().polls(kind)
    }

    /// All bits, at one moment.
    #[inline]
    pub fn now(&self) -> ProgressBits {
        // Acquire: pairs with the Release in `raise` and `raise_connect`.
        ProgressBits(self.0.load(Ordering::Acquire))
    }

    /// Whether polling the interface is the only work. Relaxed: the code that handles the bits loads them again.
    #[inline(always)]
    pub fn only(&self, kind: IfaceKind) -> bool {
        self.0.load(Ordering::Relaxed) == polled(kind)
    }

    /// Progress has polled the interface; `is_active`: whether it has to be polled again.
    pub fn update(&self, kind: IfaceKind, is_active: impl Fn() -> bool) {
        // Relaxed: publishes nothing.
        let is_polled = self.0.load(Ordering::Relaxed) & polled(kind) != 0;
        match (is_active(), is_polled) {
            (true, false) => self.raise(kind),
            (false, true) => {
                // AcqRel and SeqCst: what another thread added before this bit was cleared is seen here; what it adds
                // later sets the bit.
                self.0.fetch_and(!polled(kind), Ordering::AcqRel);
                fence(Ordering::SeqCst);
                if is_active() {
                    self.raise(kind);
                }
            }
            (true, true) | (false, false) => {}
        }
    }

    /// CMA has copied for the user: operations of the next kind may wait for more. Relaxed, here and below: the bit
    /// only affects when work is done.
    pub fn raise_copied(&self) {
        self.0.fetch_or(COPIED, Ordering::Relaxed);
    }

    /// Whether CMA has copied since the last [`clear_copied`](Self::clear_copied).
    #[inline]
    pub fn has_copied(&self) -> bool {
        self.0.load(Ordering::Relaxed) & COPIED != 0
    }

    /// Whether a flush has to handle something first: copies, or that the worker is inherited or recorded.
    #[inline]
    pub fn concerns_flush(&self) -> bool {
        self.0.load(Ordering::Relaxed) & (COPIED | COPIES | ASIDE) != 0
    }

    /// Whether a fence has to handle something first: requests that wait, or copies of devices.
    #[inline]
    pub fn concerns_fence(&self) -> bool {
        self.0.load(Ordering::Relaxed) & (!(BACKLOG - 1) | COPIES) != 0
    }

    /// The user waits: clears the bit.
    #[inline]
    pub fn clear_copied(&self) {
        if self.has_copied() {
            self.0.fetch_and(!COPIED, Ordering::Relaxed);
        }
    }

    /// Requests that wait in the queues of all peers. Relaxed: the peers' locks guard the queues.
    #[inline]
    pub fn backlog(&self) -> usize {
        (self.0.load(Ordering::Relaxed) / BACKLOG) as usize
    }

    /// One more request waits.
    pub fn queued(&self) {
        self.0.fetch_add(BACKLOG, Ordering::Relaxed);
    }

    /// So many [`queued`](Self::queued) requests do not wait any more.
    pub fn dequeued(&self, requests: usize) {
        (self.0).fetch_sub(requests as u64 * BACKLOG, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: IfaceKind = IfaceKind::ALL[0];
    const LAST: IfaceKind = IfaceKind::SOCKETS;

    #[test]
    fn work_that_is_added_while_the_bit_is_cleared_sets_it_again() {
        let flags = ProgressFlags::default();
        let calls = std::cell::Cell::new(0);
        // Another thread's entry is seen by the second look.
        let is_active = || calls.replace(calls.get() + 1) > 0;
        flags.raise(LAST);
        flags.update(LAST, is_active);
        assert!(flags.has(LAST));
    }

    #[test]
    fn flags_do_not_overlap() {
        let flags = ProgressFlags::default();
        assert!(flags.none());
        flags.queued();
        flags.queued();
        flags.raise_deferred();
        flags.raise_copied();
        flags.raise(LAST);
        assert!(flags.has_deferred() && flags.has(LAST) && flags.backlog() == 2);
        assert!(flags.has_copied());
        flags.clear_copied();
        assert!(!flags.has_copied());
        assert!(!flags.has_copies());
        flags.raise_copies();
        assert!(flags.has_copies() && flags.has_deferred_or_copies());
        flags.take_deferred();
        assert!(flags.has_copies() && flags.has_deferred_or_copies());
        flags.clear_copies();
        assert!(!flags.has_deferred_or_copies());
        assert!(!flags.has_deferred() && flags.has(LAST) && flags.backlog() == 2);
        flags.dequeued(2);
        assert!(!flags.none() && flags.backlog() == 0);
        flags.update(LAST, || true);
        flags.update(LAST, || false);
        assert!(flags.none());
        for &kind in IfaceKind::ALL {
            flags.raise_connect(kind);
            assert!(flags.has(kind) && !flags.only(kind) && flags.has_connects(kind));
            assert!(flags.take_connect(kind) && !flags.take_connect(kind));
            assert!(flags.only(kind) && flags.backlog() == 0);
            let others = IfaceKind::ALL
                .iter()
                .copied()
                .filter(|&other| other != kind);
            assert!(others.clone().all(|other| !flags.has(other)));
            flags.update(kind, || false);
            assert!(flags.none());
        }
        flags.raise(FIRST);
        flags.queued();
        flags.set_inherited();
        assert!(flags.is_inherited() && !flags.has(FIRST) && !flags.has_deferred());
        flags.dequeued(1);
        assert!(flags.is_inherited() && !flags.none());
    }
}
