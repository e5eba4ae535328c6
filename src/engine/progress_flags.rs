//! Pending work of progress, other than messages in rings: one word of bits, so that one load shows that there is none.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Deferred work: see [`ProgressFlags::raise_deferred`].
const DEFERRED: u64 = 1 << 0;
/// There are connections, or peers in `connect_tcp`.
const NETWORKED: u64 = 1 << 1;
/// CMA has copied for the user since the last progress or flush.
const COPIED: u64 = 1 << 2;
/// There are connections by queue pairs.
const IB: u64 = 1 << 3;
/// There are peers in `connect_ib`.
const CONNECT_IB: u64 = 1 << 4;
/// There is a Tofu interface to poll.
const TOFU: u64 = 1 << 5;
/// There are peers at which Tofu rings are to be requested.
const CONNECT_TOFU: u64 = 1 << 6;
/// One request that waits in a pending queue; the bits above count them.
const BACKLOG: u64 = 1 << 7;
/// The worker is inherited from a parent. (So many requests never wait.)
const INHERITED: u64 = 1 << 63;

/// Set by any thread that leaves work, read by the progress thread.
#[derive(Default)]
pub struct ProgressFlags(AtomicU64);

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

    /// In a forked child: the worker is its parent's. Its progress does not take the path of workers with nothing to
    /// do, and an active call of it finds nothing else to do. The requests that wait stay counted: the code that takes
    /// them out of their queues subtracts them.
    pub fn set_inherited(&self) {
        // Relaxed: there is one thread.
        self.0.fetch_and(!(BACKLOG - 1), Ordering::Relaxed);
        self.0.fetch_or(INHERITED, Ordering::Relaxed);
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

    /// The next progress call has to poll the network.
    pub fn raise_network(&self) {
        // Release: pairs with the Acquire load in `is_networked`; publishes the request.
        self.0.fetch_or(NETWORKED, Ordering::Release);
    }

    /// The next progress call and all further ones have to poll the ports. Relaxed: publishes nothing.
    pub fn raise_ib(&self) {
        self.0.fetch_or(IB, Ordering::Relaxed);
    }

    /// A peer was put into `connect_ib`.
    pub fn raise_connect_ib(&self) {
        // Release: pairs with the Acquire in `take_connect_ib`; publishes the entry.
        self.0.fetch_or(IB | CONNECT_IB, Ordering::Release);
    }

    /// Whether peers were put into `connect_ib`; the caller handles them.
    #[inline]
    pub fn take_connect_ib(&self) -> bool {
        // Acquire: pairs with the Release in `raise_connect_ib`.
        let wanted = self.0.load(Ordering::Acquire) & CONNECT_IB != 0;
        if wanted {
            // Release and fence as in `take_deferred`: an entry that is added from here on sets the bit again.
            self.0.fetch_and(!CONNECT_IB, Ordering::Release);
            fence(Ordering::SeqCst);
        }
        wanted
    }

    /// Whether the ports are to be polled.
    #[inline]
    pub fn has_ib(&self) -> bool {
        self.0.load(Ordering::Relaxed) & (IB | CONNECT_IB) != 0
    }

    /// Whether the ports are the only work. Relaxed: the code that handles the bits loads them again.
    #[inline(always)]
    pub fn only_ib(&self) -> bool {
        self.0.load(Ordering::Relaxed) == IB
    }

    /// Progress has polled the ports, and there is no other work. Relaxed: publishes nothing.
    pub fn clear_ib(&self) {
        self.0.fetch_and(!IB, Ordering::Relaxed);
    }

    /// Every progress call has to poll the Tofu interface. Relaxed: publishes nothing.
    pub fn raise_tofu(&self) {
        self.0.fetch_or(TOFU, Ordering::Relaxed);
    }

    /// Whether there is a Tofu interface to poll. Relaxed: publishes nothing.
    #[inline]
    pub fn has_tofu(&self) -> bool {
        self.0.load(Ordering::Relaxed) & TOFU != 0
    }

    /// Whether the Tofu interface is the only work. Relaxed: the code that handles the bits loads them again.
    #[inline(always)]
    pub fn only_tofu(&self) -> bool {
        self.0.load(Ordering::Relaxed) == TOFU
    }

    /// A peer was put into the list of those at which Tofu rings are to be requested.
    pub fn raise_connect_tofu(&self) {
        // Release: pairs with the Acquire in `take_connect_tofu`; publishes the entry.
        self.0.fetch_or(CONNECT_TOFU, Ordering::Release);
    }

    /// Whether peers were put into that list; the caller handles them.
    #[inline]
    pub fn take_connect_tofu(&self) -> bool {
        // Acquire: pairs with the Release in `raise_connect_tofu`.
        let wanted = self.0.load(Ordering::Acquire) & CONNECT_TOFU != 0;
        if wanted {
            // Release and fence as in `take_deferred`: an entry that is added from here on sets the bit again.
            self.0.fetch_and(!CONNECT_TOFU, Ordering::Release);
            fence(Ordering::SeqCst);
        }
        wanted
    }

    /// Whether the network is to be polled.
    #[inline]
    pub fn is_networked(&self) -> bool {
        // Acquire: pairs with the Release in `raise_network`.
        self.0.load(Ordering::Acquire) & NETWORKED != 0
    }

    /// Progress has polled the network; `active`: it has to be polled again. Relaxed: publishes nothing.
    pub fn set_networked(&self, active: bool) {
        let was = self.0.load(Ordering::Relaxed) & NETWORKED != 0;
        if was && !active {
            self.0.fetch_and(!NETWORKED, Ordering::Relaxed);
        } else if active && !was {
            self.0.fetch_or(NETWORKED, Ordering::Relaxed);
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

    /// Whether a flush has to handle something first: copies, or that the worker is inherited.
    #[inline]
    pub fn has_copied_or_is_inherited(&self) -> bool {
        self.0.load(Ordering::Relaxed) & (COPIED | INHERITED) != 0
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

    #[test]
    fn flags_do_not_overlap() {
        let flags = ProgressFlags::default();
        assert!(flags.none());
        flags.queued();
        flags.queued();
        flags.raise_deferred();
        flags.raise_copied();
        flags.raise_network();
        assert!(flags.has_deferred() && flags.is_networked() && flags.backlog() == 2);
        assert!(flags.has_copied());
        flags.clear_copied();
        assert!(!flags.has_copied());
        flags.take_deferred();
        assert!(!flags.has_deferred() && flags.is_networked() && flags.backlog() == 2);
        flags.dequeued(2);
        assert!(!flags.none() && flags.backlog() == 0);
        flags.set_networked(true);
        flags.set_networked(false);
        flags.raise_connect_ib();
        assert!(flags.has_ib() && !flags.only_ib());
        assert!(flags.take_connect_ib() && !flags.take_connect_ib());
        assert!(flags.only_ib() && !flags.is_networked() && flags.backlog() == 0);
        flags.clear_ib();
        assert!(flags.none());
        flags.raise_tofu();
        assert!(flags.only_tofu() && flags.has_tofu() && !flags.has_ib());
        flags.raise_connect_tofu();
        assert!(!flags.only_tofu() && flags.take_connect_tofu() && flags.only_tofu());
        flags.queued();
        flags.set_inherited();
        assert!(flags.is_inherited() && !flags.has_tofu() && !flags.has_deferred());
        flags.dequeued(1);
        assert!(flags.is_inherited() && !flags.none());
    }
}
