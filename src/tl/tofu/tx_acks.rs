//! How much of what a connection has posted is known to have arrived.

use crate::sys::sync::{AtomicBool, AtomicU32, Ordering, dma_mem};

/// Questions that may be under way: so many flushes of threads that share a worker do not wait for each other's
/// answers.
const QUESTIONS: usize = 8;

/// What of a connection has arrived. The progressing thread hears it, whoever holds the peer's lock asks.
#[derive(Default)]
pub struct TxAcks {
    /// Posts that each of the last questions was behind, by its number.
    asked: [AtomicU32; QUESTIONS],
    /// Questions, and answers, since the beginning, modulo 2^32.
    questions: AtomicU32,
    answers: AtomicU32,
    /// Posts that are known to have arrived.
    ended: AtomicU32,
    /// Reads and atomic operations that have come, and what rails have written.
    came: AtomicU32,
    /// Somebody waits for some of those.
    watched: AtomicBool,
}

impl TxAcks {
    /// An answer has come. It is taken for the first one's that is still to come: whichever it is, what was in front of
    /// that has arrived.
    pub fn complete(&self) {
        // Relaxed: nobody else writes it.
        let answers = self.answers.load(Ordering::Relaxed);
        // The lock of the queue, which the question was posted under, is between `post_flush` and this.
        let asked = dma_mem::settled(&self.asked[answers as usize % QUESTIONS]);
        // Release: pairs with the loads of `ended`: who sees that all has arrived may have somebody look for it.
        self.ended.store(asked, Ordering::Release);
        // Release: pairs with `under_way`. Who may ask again changes `asked`, which has to have been read above.
        (self.answers).store(answers.wrapping_add(1), Ordering::Release);
    }

    /// One of the reads, atomic operations or writes by rails has come, or has failed. Whether somebody may wait for
    /// it.
    #[must_use = "who waits is to be told"]
    pub fn read_done(&self) -> bool {
        // Release: pairs with the loads of `came`: what was read is in memory of ours, and the notice of it came to
        // this thread. Acquire: pairs with `watch`.
        self.came.fetch_add(1, Ordering::AcqRel);
        // Relaxed: set before `watch` changed `came`; if it comes to that after this has, it finds one more there.
        self.watched.load(Ordering::Relaxed)
    }

    /// How many of them.
    pub(super) fn came(&self) -> u32 {
        // Acquire: pairs with `read_done`.
        self.came.load(Ordering::Acquire)
    }

    /// Whether this many of them have come, and those in front.
    pub(super) fn has_read_done(&self, reads: u32) -> bool {
        (self.came().wrapping_sub(reads) as i32) >= 0
    }

    /// From now on `read_done` says so. Whoever looks at what has come after this misses nothing. By whoever holds the
    /// peer's lock.
    pub(super) fn watch(&self) {
        // Relaxed: the exchange publishes it.
        self.watched.store(true, Ordering::Relaxed);
        // Release: pairs with `read_done`. Acquire: as in `came`. Nothing is added: it is one of the two in turn that
        // sees the other.
        self.came.fetch_add(0, Ordering::AcqRel);
    }

    /// The opposite. By whoever holds the peer's lock.
    pub(super) fn unwatch(&self) {
        // Relaxed: who sees it late looks in vain.
        self.watched.store(false, Ordering::Relaxed);
    }

    /// Somebody is about to ask whether so many posts have arrived. Before he does: the answer can be faster than this
    /// thread. False: too many have asked.
    pub(super) fn post_flush(&self, posted: u32) -> bool {
        if self.under_way() as usize == QUESTIONS {
            return false;
        }
        let number = self.questions();
        // Relaxed: see `complete`.
        self.asked[number as usize % QUESTIONS].store(posted, Ordering::Relaxed);
        // Relaxed: who asks is alone; the answer comes by the lock of the queue.
        (self.questions).store(number.wrapping_add(1), Ordering::Relaxed);
        true
    }

    /// He has not asked.
    pub(super) fn cancel_flush(&self) {
        // Relaxed, as in `post_flush`.
        (self.questions).store(self.questions().wrapping_sub(1), Ordering::Relaxed);
    }

    pub(super) fn is_flushing(&self) -> bool {
        self.under_way() > 0
    }

    /// Whether an answer that is still to come tells that so many posts have arrived. By who asks.
    pub(super) fn is_flush_posted(&self, posted: u32) -> bool {
        let last = self.questions().wrapping_sub(1) as usize % QUESTIONS;
        // Relaxed: who asks is alone.
        let asked = self.asked[last].load(Ordering::Relaxed);
        self.is_flushing() && (asked.wrapping_sub(posted) as i32) >= 0
    }

    /// Questions that were not answered.
    fn under_way(&self) -> u32 {
        // Acquire: pairs with `complete`.
        let answers = self.answers.load(Ordering::Acquire);
        self.questions().wrapping_sub(answers)
    }

    fn questions(&self) -> u32 {
        // Relaxed: who asks is alone.
        self.questions.load(Ordering::Relaxed)
    }

    /// Posts of which nobody has told that they have arrived.
    pub(super) fn unacked(&self, posted: u32) -> u32 {
        // Relaxed: only how many.
        posted.wrapping_sub(self.ended.load(Ordering::Relaxed))
    }

    pub(super) fn has_ended(&self, posted: u32) -> bool {
        // Acquire: pairs with `complete`.
        self.ended.load(Ordering::Acquire) == posted
    }

    /// Whether this many posts, and what is known to be behind them, have arrived.
    pub(super) fn is_past(&self, posted: u32) -> bool {
        // Acquire: pairs with `complete`.
        let ended = self.ended.load(Ordering::Acquire);
        (ended.wrapping_sub(posted) as i32) >= 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_answer_is_the_first_question_s_that_has_none() {
        let flow = TxAcks::default();
        // Further than numbers of questions go once.
        for posted in 0..3 * QUESTIONS as u32 {
            assert!(
                flow.post_flush(posted + 1)
                    && flow.is_flush_posted(posted + 1)
                    && !flow.is_flush_posted(posted + 2)
            );
            assert!(flow.post_flush(posted + 2) && flow.is_flush_posted(posted + 2));
            flow.complete();
            assert!(flow.is_past(posted + 1) && !flow.is_past(posted + 2) && flow.is_flushing());
            flow.complete();
            assert!(flow.has_ended(posted + 2) && !flow.is_flushing());
        }
    }

    #[test]
    fn no_more_are_asked_than_have_room_and_what_was_not_asked_is_taken_back() {
        let flow = TxAcks::default();
        for posted in 1..=QUESTIONS as u32 {
            assert!(flow.post_flush(posted));
        }
        assert!(!flow.post_flush(99) && !flow.is_flush_posted(99));
        flow.cancel_flush();
        assert!(
            !flow.is_flush_posted(QUESTIONS as u32) && flow.is_flush_posted(QUESTIONS as u32 - 1)
        );
        (1..QUESTIONS).for_each(|_| flow.complete());
        assert!(flow.has_ended(QUESTIONS as u32 - 1) && !flow.is_flushing());
    }
}
