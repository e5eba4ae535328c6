//! The operations on memory of one peer, as they are counted.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Counts modulo 2^32.
///
/// Relaxed everywhere: the counters are changed under the lock of the worker's queues, or the peer's, and read by the
/// thread that holds the peer's lock, which calls again if it finds operations outstanding. The progress thread alone
/// writes and reads `is_cut_short`.
#[derive(Debug, Default)]
pub struct RmaCount {
    /// Operations that a completion will report.
    outstanding: AtomicU32,
    /// Writes that were posted.
    writes: AtomicU32,
    /// Writes that were posted when the last flush was sent, and the last one that the peer has answered.
    asked: AtomicU32,
    answered: AtomicU32,
    /// The provider has ended the connection with an operation outstanding.
    is_cut_short: AtomicBool,
}

impl RmaCount {
    /// Operations that a completion will report.
    pub fn outstanding(&self) -> u32 {
        self.outstanding.load(Ordering::Relaxed)
    }

    /// An operation was posted, which writes the peer's memory or not.
    pub fn posted(&self, writes: bool) {
        self.outstanding.fetch_add(1, Ordering::Relaxed);
        if writes {
            self.writes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A completion has reported an operation.
    pub fn completed(&self) {
        self.outstanding.fetch_sub(1, Ordering::Relaxed);
    }

    /// The provider has ended the connection with an operation outstanding.
    pub fn cut_short(&self) {
        self.is_cut_short.store(true, Ordering::Relaxed);
    }

    /// Whether the provider has ended the connection with an operation outstanding.
    pub fn is_cut_short(&self) -> bool {
        self.is_cut_short.load(Ordering::Relaxed)
    }

    /// Whether writes were posted for which no flush was answered.
    pub fn has_unanswered(&self) -> bool {
        self.writes.load(Ordering::Relaxed) != self.answered.load(Ordering::Relaxed)
    }

    /// The number of writes for which a flush is to be sent. `None`: none is to be, or one was.
    pub fn to_flush(&self) -> Option<u32> {
        let writes = self.writes.load(Ordering::Relaxed);
        let is_asked = self.asked.load(Ordering::Relaxed) == writes;
        (self.has_unanswered() && !is_asked).then_some(writes)
    }

    /// The number of writes of the last flush that was sent, if the peer has not answered it.
    pub fn asked(&self) -> Option<u32> {
        let asked = self.asked.load(Ordering::Relaxed);
        (asked != self.answered.load(Ordering::Relaxed)).then_some(asked)
    }

    /// A flush was sent for so many writes.
    pub fn set_asked(&self, writes: u32) {
        self.asked.store(writes, Ordering::Relaxed);
    }

    /// The peer has answered a flush of so many writes. An answer to no flush is ignored.
    pub fn set_answered(&self, writes: u32) {
        if self.asked.load(Ordering::Relaxed) == writes {
            self.answered.store(writes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_flushed_once() {
        let count = RmaCount::default();
        assert!(count.to_flush().is_none() && !count.has_unanswered());
        count.posted(false);
        assert!(count.to_flush().is_none());
        count.posted(true);
        assert_eq!((count.outstanding(), count.to_flush()), (2, Some(1)));
        assert_eq!(count.asked(), None);
        count.set_asked(1);
        assert_eq!(count.asked(), Some(1));
        assert!(count.to_flush().is_none() && count.has_unanswered());
        count.posted(true);
        count.set_answered(1);
        assert_eq!((count.has_unanswered(), count.to_flush()), (true, Some(2)));
        count.set_answered(2);
        assert!(count.has_unanswered(), "no flush was sent");
        count.set_asked(2);
        count.set_answered(2);
        assert!(!count.has_unanswered() && count.asked().is_none());
        (0..3).for_each(|_| count.completed());
        assert_eq!(count.outstanding(), 0);
    }
}
