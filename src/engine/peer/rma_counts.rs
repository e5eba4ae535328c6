//! Counts of a peer's remote accesses by message, and whether one of them was refused.

use super::Peer;
use std::sync::atomic::{AtomicU64, Ordering};

/// Remote accesses by message to a peer: parts sent, and parts answered or given up.
#[derive(Default)]
pub struct RmaCounts {
    /// Changed under the lock of the peer's `tx`.
    sent: AtomicU64,
    done: AtomicU64,
    /// Of both, signals whose handling is seen by the peer's position in its ring, not by an answer. Changed in
    /// single-thread mode only.
    signals_sent: AtomicU64,
    signals_done: AtomicU64,
    /// The endpoint that made the accesses up to this number, signals not counted, was closed by force: no flush
    /// reports their refusal. Under the lock of `tx`.
    discounted: AtomicU64,
}

impl RmaCounts {
    /// Whether all accesses have been answered.
    #[inline(always)]
    pub fn is_idle(&self) -> bool {
        // Acquire: pairs with the Release add in `add_done`.
        self.done.load(Ordering::Acquire) >= self.sent.load(Ordering::Relaxed)
    }

    /// Parts sent.
    pub fn sent(&self) -> u64 {
        // Relaxed: the lock of `tx`, which the caller has, orders it.
        self.sent.load(Ordering::Relaxed)
    }

    /// Parts answered or given up.
    pub fn done(&self) -> u64 {
        // Relaxed: used for an estimate alone.
        self.done.load(Ordering::Relaxed)
    }

    /// Counts a part before it is sent: the reply can be handled before this call returns. Returns its number, counted
    /// from 1. The caller has the lock of `tx`.
    pub fn add_sent(&self) -> u64 {
        // Relaxed: `add_done` of its answer follows a message that the peer sends after it.
        self.sent.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A counted part was not sent. The caller has the lock of `tx`.
    pub fn cut_sent(&self) {
        // Relaxed: as in `add_sent`.
        self.sent.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a signal that was sent and is not answered. In single-thread mode.
    #[inline(always)]
    pub fn add_signal(&self) {
        // Relaxed: only this thread changes the counters.
        for counter in [&self.sent, &self.signals_sent] {
            let before = counter.load(Ordering::Relaxed);
            counter.store(before + 1, Ordering::Relaxed);
        }
    }

    /// Signals that were sent and are not answered, ever.
    pub fn signals_sent(&self) -> u64 {
        // Relaxed: only this thread changes the counter.
        self.signals_sent.load(Ordering::Relaxed)
    }

    /// Of them, those that the peer is known to have handled.
    pub fn signals_done(&self) -> u64 {
        // Relaxed: only this thread changes the counter.
        self.signals_done.load(Ordering::Relaxed)
    }

    /// The peer has handled as many signals: counts those among them that are not counted yet as answered.
    pub fn set_signals_done(&self, signals: u64) {
        let new = signals.saturating_sub(self.signals_done());
        // Relaxed: only this thread changes the counter.
        self.signals_done.fetch_add(new, Ordering::Relaxed);
        // Release: pairs with the Acquire load in `is_idle`.
        self.done.fetch_add(new, Ordering::Release);
    }

    /// Counts an answer; returns how many there are.
    pub fn add_done(&self) -> u64 {
        // Release: pairs with the Acquire load in `is_idle`.
        self.done.fetch_add(1, Ordering::Release) + 1
    }
}

impl Peer {
    /// Whether the next flush to end reports that the peer has refused an access.
    #[inline(always)]
    pub fn is_rma_refused(&self) -> bool {
        // Relaxed: set before the answer was counted, which the caller has seen (`RmaCounts::is_idle`).
        self.notes.rma_refused.load(Ordering::Relaxed)
    }

    /// The peer refuses the access whose answer is counted next. The caller has the lock of `tx`.
    pub fn refuse_rma(&self) {
        // Relaxed: the lock orders it, and only this thread counts answers. A signal may be counted after an answer to
        // a later access: the number is that among the other accesses.
        let turn = self.rma.done.load(Ordering::Relaxed) - self.rma.signals_done() + 1;
        if turn > self.rma.discounted.load(Ordering::Relaxed) {
            // Relaxed: `add_done` publishes it.
            self.notes.rma_refused.store(true, Ordering::Relaxed);
        }
    }

    /// The peer has refused a signal that is not answered. The caller has the lock of `tx`.
    pub fn refuse_signal(&self) {
        // Relaxed: `set_signals_done` publishes it.
        self.notes.rma_refused.store(true, Ordering::Relaxed);
    }

    /// No flush reports a refusal of accesses until now, signals that are not answered excepted. The caller has the
    /// lock of `tx`.
    pub fn discount_rma(&self) {
        // Relaxed: the lock orders it.
        let sent = self.rma.sent.load(Ordering::Relaxed) - self.rma.signals_sent();
        self.rma.discounted.store(sent, Ordering::Relaxed);
        self.notes.rma_refused.store(false, Ordering::Relaxed);
    }

    /// Whether a flush that ends now reports a refusal; the next one does not.
    pub fn take_rma_refused(&self) -> bool {
        // Usually false: a load is cheaper than an exchange. Relaxed: as in `is_rma_refused`.
        self.is_rma_refused() && self.notes.rma_refused.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_are_idle_when_all_that_were_sent_are_answered() {
        let rma = RmaCounts::default();
        assert_eq!(
            (rma.is_idle(), rma.add_sent(), rma.add_sent()),
            (true, 1, 2)
        );
        assert_eq!((rma.sent(), rma.add_done(), rma.is_idle()), (2, 1, false));
        rma.cut_sent();
        assert!(rma.is_idle());
    }

    #[test]
    fn a_signal_counts_once_however_often_it_is_seen_to_be_handled() {
        let rma = RmaCounts::default();
        rma.add_signal();
        rma.add_sent();
        rma.add_signal();
        assert_eq!((rma.sent(), rma.signals_sent()), (3, 2));
        for (handled, done) in [(0, 0), (1, 1), (1, 1), (0, 1), (2, 2), (1, 2)] {
            rma.set_signals_done(handled);
            assert_eq!(rma.done(), done, "{handled} handled");
        }
        assert!(!rma.is_idle());
        rma.add_done();
        assert!(rma.is_idle());
    }
}
