//! What progress has to do besides taking messages from rings, in one word, so that one look tells that it is nothing.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Something seldom: see [`ProgressFlags::raise_chores`].
const CHORES: u64 = 1 << 0;
/// There are connections, or peers in `dials`.
const NETWORKED: u64 = 1 << 1;
/// The kernel has copied for the user since the last progress or flush.
const COPIED: u64 = 1 << 2;
/// There are connections by queue pairs.
const PORTS: u64 = 1 << 3;
/// There are peers in `pairings`.
const PAIRINGS: u64 = 1 << 4;
/// There is an interconnect to be looked at.
const RINGS: u64 = 1 << 5;
/// There are peers in `connect_tofu`.
const OPENINGS: u64 = 1 << 6;
/// One request that waits for its turn to be sent; the bits above count them.
const BACKLOG: u64 = 1 << 7;
/// The worker is a parent's. (So many requests never wait.)
const INHERITED: u64 = 1 << 63;

/// Set by any thread that leaves something to do, looked at by the one that progresses.
#[derive(Default)]
pub struct ProgressFlags(AtomicU64);

impl ProgressFlags {
    /// Whether there is none. Relaxed: the code that handles them loads it again.
    #[inline(always)]
    pub fn none(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// There is something in the worker's `pulls`, `asked`, `pushes`, `moved`, `lost`, `handlers` or `retired`, or
    /// due in `left`.
    pub fn raise_chores(&self) {
        // Release: pairs with the Acquire load in `chores`; what is to be done comes before.
        self.0.fetch_or(CHORES, Ordering::Release);
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

    /// Whether chores were left.
    pub fn chores(&self) -> bool {
        // Acquire: pairs with the Release in `raise_chores`.
        self.0.load(Ordering::Acquire) & CHORES != 0
    }

    /// The caller goes to do the chores: what is left from here on is another turn's.
    pub fn take_chores(&self) {
        self.0.fetch_and(!CHORES, Ordering::Release);
        // The looks at the lists come after this: what is not seen there raises the bit again.
        fence(Ordering::SeqCst);
    }

    /// The network is to be looked at by the next progress.
    pub fn raise_network(&self) {
        // Release: pairs with the Acquire load in `is_networked`; what was asked for comes before.
        self.0.fetch_or(NETWORKED, Ordering::Release);
    }

    /// The ports are to be looked at by the next progress, and by those that follow. Relaxed: nothing is handed over.
    pub fn raise_ib(&self) {
        self.0.fetch_or(PORTS, Ordering::Relaxed);
    }

    /// A peer was put into `pairings`.
    pub fn raise_connect_ib(&self) {
        // Release: pairs with the Acquire in `take_connect_ib`; what was asked for comes before.
        self.0.fetch_or(PORTS | PAIRINGS, Ordering::Release);
    }

    /// Whether peers were put into `pairings`; the caller handles them.
    #[inline]
    pub fn take_connect_ib(&self) -> bool {
        // Acquire: pairs with the Release in `raise_connect_ib`.
        let wanted = self.0.load(Ordering::Acquire) & PAIRINGS != 0;
        if wanted {
            // Release, and the fence, as in `take_chores`: who is put there from here on is another turn's.
            self.0.fetch_and(!PAIRINGS, Ordering::Release);
            fence(Ordering::SeqCst);
        }
        wanted
    }

    /// Whether the ports are to be looked at.
    #[inline]
    pub fn has_ib(&self) -> bool {
        self.0.load(Ordering::Relaxed) & (PORTS | PAIRINGS) != 0
    }

    /// Whether to look at the ports is all that there is to do. Relaxed: as in [`none`](Self::none).
    #[inline(always)]
    pub fn only_ib(&self) -> bool {
        self.0.load(Ordering::Relaxed) == PORTS
    }

    /// Progress has looked at the ports, and there is nothing more. Relaxed: nothing is handed over.
    pub fn clear_ib(&self) {
        self.0.fetch_and(!PORTS, Ordering::Relaxed);
    }

    /// The interconnect is to be looked at by every progress. Relaxed: nothing is handed over.
    pub fn raise_tofu(&self) {
        self.0.fetch_or(RINGS, Ordering::Relaxed);
    }

    /// Whether it is. Relaxed: as above.
    #[inline]
    pub fn has_tofu(&self) -> bool {
        self.0.load(Ordering::Relaxed) & RINGS != 0
    }

    /// Whether to look at it is all that there is to do. Relaxed: as in [`none`](Self::none).
    #[inline(always)]
    pub fn only_tofu(&self) -> bool {
        self.0.load(Ordering::Relaxed) == RINGS
    }

    /// A peer was put into `connect_tofu`.
    pub fn raise_connect_tofu(&self) {
        // Release: pairs with the Acquire in `take_connect_tofu`; what was asked for comes before.
        self.0.fetch_or(OPENINGS, Ordering::Release);
    }

    /// Whether peers were put into `connect_tofu`; whoever asks sees to them.
    #[inline]
    pub fn take_connect_tofu(&self) -> bool {
        // Acquire: pairs with the Release in `raise_connect_tofu`.
        let wanted = self.0.load(Ordering::Acquire) & OPENINGS != 0;
        if wanted {
            // Release, and the fence, as in `take_chores`: who is put there from here on is another turn's.
            self.0.fetch_and(!OPENINGS, Ordering::Release);
            fence(Ordering::SeqCst);
        }
        wanted
    }

    /// Whether the network is to be looked at.
    #[inline]
    pub fn is_networked(&self) -> bool {
        // Acquire: pairs with the Release in `raise_network`.
        self.0.load(Ordering::Acquire) & NETWORKED != 0
    }

    /// Progress has looked at the network; whether it is to do so again. Relaxed: nothing is handed over.
    pub fn set_networked(&self, active: bool) {
        let was = self.0.load(Ordering::Relaxed) & NETWORKED != 0;
        if was && !active {
            self.0.fetch_and(!NETWORKED, Ordering::Relaxed);
        } else if active && !was {
            self.0.fetch_or(NETWORKED, Ordering::Relaxed);
        }
    }

    /// The kernel has copied for the user: what comes next can wait for more of its kind. Relaxed, here and below: only
    /// when something is done hangs on it.
    pub fn raise_copied(&self) {
        self.0.fetch_or(COPIED, Ordering::Relaxed);
    }

    /// Whether it has, since the last [`clear_copied`](Self::clear_copied).
    #[inline]
    pub fn has_copied(&self) -> bool {
        self.0.load(Ordering::Relaxed) & COPIED != 0
    }

    /// Whether a flush has something to see to first: copies, or that the worker is inherited.
    #[inline]
    pub fn has_copied_or_is_inherited(&self) -> bool {
        self.0.load(Ordering::Relaxed) & (COPIED | INHERITED) != 0
    }

    /// The user waits: what comes next is a new turn's.
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

    /// So many of those that were [`queued`](Self::queued) wait no more.
    pub fn dequeued(&self, requests: usize) {
        (self.0).fetch_sub(requests as u64 * BACKLOG, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_do_not_overlap() {
        let duties = ProgressFlags::default();
        assert!(duties.none());
        duties.queued();
        duties.queued();
        duties.raise_chores();
        duties.raise_copied();
        duties.raise_network();
        assert!(duties.chores() && duties.is_networked() && duties.backlog() == 2);
        assert!(duties.has_copied());
        duties.clear_copied();
        assert!(!duties.has_copied());
        duties.take_chores();
        assert!(!duties.chores() && duties.is_networked() && duties.backlog() == 2);
        duties.dequeued(2);
        assert!(!duties.none() && duties.backlog() == 0);
        duties.set_networked(true);
        duties.set_networked(false);
        duties.raise_connect_ib();
        assert!(duties.has_ib() && !duties.only_ib());
        assert!(duties.take_connect_ib() && !duties.take_connect_ib());
        assert!(duties.only_ib() && !duties.is_networked() && duties.backlog() == 0);
        duties.clear_ib();
        assert!(duties.none());
        duties.raise_tofu();
        assert!(duties.only_tofu() && duties.has_tofu() && !duties.has_ib());
        duties.raise_connect_tofu();
        assert!(!duties.only_tofu() && duties.take_connect_tofu() && duties.only_tofu());
        duties.queued();
        duties.set_inherited();
        assert!(duties.is_inherited() && !duties.has_tofu() && !duties.chores());
        duties.dequeued(1);
        assert!(duties.is_inherited() && !duties.none());
    }
}
