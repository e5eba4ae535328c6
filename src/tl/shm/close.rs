//! The word in a ring by which its two ends agree that it goes while both workers live.
//!
//! A producer that needs the ring no more, and whose messages the consumer has taken, offers to close it. As long as
//! the consumer has not answered it can take the offer back: one compare-and-swap decides. After an answer the producer
//! closes the ring, and the consumer gives it to others.

use crate::sys::sync::{AtomicU64, Ordering};

/// More messages may come.
const OPEN: u64 = 0;
/// The producer has gone: it does not look at the ring any more.
const CLOSED: u64 = 1;
/// The producer offers to close the ring.
const OFFERED: u64 = 2;
/// The consumer agrees, but remembers the peer.
const RELEASED: u64 = 3;
/// The consumer agrees, and has forgotten what it knew of the peer.
const FORGOTTEN: u64 = 4;

/// What a consumer has answered to the offer to close its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseAnswer {
    /// The ring is not used any more.
    Released,
    /// Nor does the consumer know anything of the peer: the next ring is the first one.
    Forgotten,
}

/// The word. All zero is an open ring.
#[repr(transparent)]
pub(super) struct CloseWord(AtomicU64);

impl CloseWord {
    #[cfg(all(test, loom))]
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(OPEN))
    }

    /// The producer goes.
    pub(super) fn close(&self) {
        // Release: pairs with the Acquire load in `is_closed`; all messages come before.
        self.0.store(CLOSED, Ordering::Release);
    }

    /// Whether the producer has gone.
    pub(super) fn is_closed(&self) -> bool {
        self.0.load(Ordering::Acquire) == CLOSED
    }

    /// The producer offers to close the ring, of which the consumer has taken everything.
    pub(super) fn offer(&self) {
        // Release: pairs with the Acquire load in `is_offered`; what the producer's owner did with the peer comes
        // before.
        self.0.store(OFFERED, Ordering::Release);
    }

    /// The producer takes its offer back.
    ///
    /// # Errors
    /// The consumer has answered.
    pub(super) fn take_back(&self) -> Result<(), CloseAnswer> {
        // Acquire on failure: pairs with the Release exchange in `agree`.
        let before = self
            .0
            .compare_exchange(OFFERED, OPEN, Ordering::Relaxed, Ordering::Acquire);
        before.map(drop).map_err(answer_of)
    }

    /// What the consumer has answered to the offer, if it has.
    pub(super) fn answer(&self) -> Option<CloseAnswer> {
        // Acquire: pairs with the Release exchange in `agree`.
        let word = self.0.load(Ordering::Acquire);
        (word != OFFERED).then(|| answer_of(word))
    }

    /// Whether the producer offers to close the ring.
    pub(super) fn is_offered(&self) -> bool {
        // Acquire: pairs with the Release store in `offer`.
        self.0.load(Ordering::Acquire) == OFFERED
    }

    /// The consumer, which has taken all messages, agrees. False: the producer has taken its offer back.
    pub(super) fn agree(&self, answer: CloseAnswer) -> bool {
        let word = match answer {
            CloseAnswer::Released => RELEASED,
            CloseAnswer::Forgotten => FORGOTTEN,
        };
        // Release: pairs with the Acquire loads in `take_back` and `answer`; the consumer has done with the ring.
        self.0
            .compare_exchange(OFFERED, word, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

/// The answer that a word stands for. Whatever a hostile consumer writes counts as one.
fn answer_of(word: u64) -> CloseAnswer {
    match word {
        FORGOTTEN => CloseAnswer::Forgotten,
        _ => CloseAnswer::Released,
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    struct Shared {
        word: CloseWord,
        /// Numbers that the producer has used, as the consumer knows them: what both forget.
        numbers: UnsafeCell<u32>,
    }

    // SAFETY: the number is the producer's before the offer and after it was taken back or answered, the consumer's
    // when it agrees; loom checks that.
    unsafe impl Sync for Shared {}
    // SAFETY: as above.
    unsafe impl Send for Shared {}

    /// The producer takes its offer back, and uses the ring again, while the consumer agrees and forgets: exactly one
    /// of them succeeds, and both know which.
    #[test]
    fn loom_an_offer_is_taken_back_or_answered() {
        loom::model(|| {
            let shared = Arc::new(Shared {
                word: CloseWord::new(),
                numbers: UnsafeCell::new(7),
            });
            let consumer = {
                let shared = shared.clone();
                thread::spawn(move || {
                    let offered = shared.word.is_offered();
                    // What it knows it looks at before it agrees.
                    let known = offered.then(|| shared.numbers.with(|n| unsafe { *n }));
                    assert!(known.is_none_or(|n| n == 7));
                    offered && shared.word.agree(CloseAnswer::Forgotten)
                })
            };
            shared.word.offer();
            let taken_back = shared.word.take_back();
            if taken_back == Err(CloseAnswer::Forgotten) {
                // The consumer does not look any more.
                shared.numbers.with_mut(|n| unsafe { *n = 0 });
            }
            let agreed = consumer.join().unwrap();
            assert_eq!(agreed, taken_back.is_err());
            assert!(!shared.word.is_closed());
        });
    }

    /// What the producer finds by looking is what the consumer has said, and the consumer sees the end that follows.
    #[test]
    fn loom_the_ring_is_closed_after_the_answer() {
        loom::model(|| {
            let shared = Arc::new(Shared {
                word: CloseWord::new(),
                numbers: UnsafeCell::new(7),
            });
            shared.word.offer();
            let producer = {
                let shared = shared.clone();
                thread::spawn(move || {
                    let answer = shared.word.answer();
                    if answer == Some(CloseAnswer::Released) {
                        shared.numbers.with_mut(|n| unsafe { *n = 0 });
                        shared.word.close();
                    }
                })
            };
            shared.numbers.with_mut(|n| unsafe { *n = 8 });
            assert!(shared.word.agree(CloseAnswer::Released));
            if shared.word.is_closed() {
                shared.numbers.with(|n| assert_eq!(unsafe { *n }, 0));
            }
            producer.join().unwrap();
        });
    }
}
