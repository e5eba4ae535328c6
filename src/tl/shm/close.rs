//! The word in a ring by which its two ends agree to close it while both workers live.
//!
//! A producer that does not need the ring any more, or has not used it for some time, and whose messages the consumer
//! has taken, offers to close it. Until the consumer has answered, the producer can withdraw the offer: one
//! compare-and-swap decides. After an answer the producer closes the ring, and the consumer frees it for other senders.

use crate::sys::sync::{AtomicU64, Ordering};

/// More messages may arrive.
const OPEN: u64 = 0;
/// The producer does not access the ring any more.
const CLOSED: u64 = 1;
/// The producer offers to close the ring: [`CloseOffer::NoEndpoint`].
const OFFERED: u64 = 2;
/// The consumer agrees and keeps its state of the peer.
const RELEASED: u64 = 3;
/// The consumer agrees and has dropped its state of the peer.
const FORGOTTEN: u64 = 4;
/// The producer offers to close the ring: [`CloseOffer::Unused`].
const OFFERED_UNUSED: u64 = 5;

/// Why a producer offers to close its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseOffer {
    /// Its worker has no endpoint to the consumer's.
    NoEndpoint,
    /// Its worker has endpoints, and has sent nothing for some time.
    Unused,
}

impl CloseOffer {
    fn word(self) -> u64 {
        match self {
            CloseOffer::NoEndpoint => OFFERED,
            CloseOffer::Unused => OFFERED_UNUSED,
        }
    }

    fn of(word: u64) -> Option<Self> {
        match word {
            OFFERED => Some(CloseOffer::NoEndpoint),
            OFFERED_UNUSED => Some(CloseOffer::Unused),
            _ => None,
        }
    }
}

/// A consumer's answer to the offer to close its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseAnswer {
    /// The ring is not used any more.
    Released,
    /// The ring is not used any more, and the consumer has dropped its state of the peer: it treats the next ring as
    /// the first one.
    Forgotten,
    /// The ring, which was not used, is closed; both workers keep what they know of each other.
    GivenBack,
}

/// The close word. Zero is an open ring.
#[repr(transparent)]
pub(super) struct CloseWord(AtomicU64);

impl CloseWord {
    #[cfg(all(test, loom))]
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(OPEN))
    }

    /// Closes the ring; the producer does not access it afterwards.
    pub(super) fn close(&self) {
        // Release: pairs with the Acquire load in `is_closed`; all messages come before.
        self.0.store(CLOSED, Ordering::Release);
    }

    /// Whether the producer has closed the ring.
    pub(super) fn is_closed(&self) -> bool {
        self.0.load(Ordering::Acquire) == CLOSED
    }

    /// Offers to close the ring, of which the consumer has taken all messages.
    pub(super) fn offer(&self, offer: CloseOffer) {
        // Release: pairs with the Acquire load in `offered`; what the producer's worker did with the peer comes before.
        self.0.store(offer.word(), Ordering::Release);
    }

    /// Withdraws this offer of the producer.
    ///
    /// # Errors
    /// The consumer has already agreed.
    pub(super) fn withdraw(&self, offer: CloseOffer) -> Result<(), CloseAnswer> {
        let offered = offer.word();
        // Acquire on failure: pairs with the Release exchange in `agree`.
        let before = self
            .0
            .compare_exchange(offered, OPEN, Ordering::Relaxed, Ordering::Acquire);
        before.map(drop).map_err(|word| answer_of(offer, word))
    }

    /// The consumer's answer to this offer, if there is one.
    pub(super) fn answer(&self, offer: CloseOffer) -> Option<CloseAnswer> {
        // Acquire: pairs with the Release exchange in `agree`.
        let word = self.0.load(Ordering::Acquire);
        (word != offer.word()).then(|| answer_of(offer, word))
    }

    /// The producer's offer to close the ring, if there is one.
    pub(super) fn offered(&self) -> Option<CloseOffer> {
        // Acquire: pairs with the Release store in `offer`.
        CloseOffer::of(self.0.load(Ordering::Acquire))
    }

    /// Agrees to this offer; the consumer has taken all messages. False: the producer has withdrawn it.
    pub(super) fn agree(&self, offer: CloseOffer, answer: CloseAnswer) -> bool {
        let word = match answer {
            CloseAnswer::Released | CloseAnswer::GivenBack => RELEASED,
            CloseAnswer::Forgotten => FORGOTTEN,
        };
        // Release: pairs with the Acquire loads in `withdraw` and `answer`; the consumer's accesses to the ring come
        // before.
        self.0
            .compare_exchange(offer.word(), word, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

/// The answer to an offer that a word means. Any other value, which only a hostile consumer writes, counts as
/// `Released`; that to an offer of a producer with endpoints is always the same.
fn answer_of(offer: CloseOffer, word: u64) -> CloseAnswer {
    match (offer, word) {
        (CloseOffer::Unused, _) => CloseAnswer::GivenBack,
        (CloseOffer::NoEndpoint, FORGOTTEN) => CloseAnswer::Forgotten,
        (CloseOffer::NoEndpoint, _) => CloseAnswer::Released,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// An answer is for the offer that it was given to, and a producer with endpoints is never forgotten.
    #[test]
    fn an_answer_is_for_one_offer() {
        use CloseAnswer::{Forgotten, GivenBack, Released};
        use CloseOffer::{NoEndpoint, Unused};
        for (offer, other) in [(NoEndpoint, Unused), (Unused, NoEndpoint)] {
            let word = CloseWord(AtomicU64::new(OPEN));
            assert_eq!(word.offered(), None);
            word.offer(offer);
            assert_eq!((word.offered(), word.answer(offer)), (Some(offer), None));
            assert!(!word.agree(other, Released));
            assert_eq!(word.withdraw(offer), Ok(()));
            assert!(!word.agree(offer, Released), "withdrawn");
            word.offer(offer);
            assert!(word.agree(offer, Forgotten));
            let answer = match offer {
                NoEndpoint => Forgotten,
                Unused => GivenBack,
            };
            assert_eq!((word.offered(), word.answer(offer)), (None, Some(answer)));
            assert_eq!(word.withdraw(offer), Err(answer));
        }
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
        /// State of the peer at the consumer: which numbers the producer has used. Both ends reset it.
        numbers: UnsafeCell<u32>,
    }

    // SAFETY: only the producer accesses the number before the offer and after it was withdrawn or answered, only the
    // consumer when it agrees; loom checks that.
    unsafe impl Sync for Shared {}
    // SAFETY: the cell is accessed by one thread at a time, as for `Sync`.
    unsafe impl Send for Shared {}

    /// The producer withdraws its offer and uses the ring again, while the consumer agrees and resets: exactly one of
    /// them succeeds, and both know which.
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
                    let offered = shared.word.offered() == Some(CloseOffer::NoEndpoint);
                    // The consumer reads its state before it agrees.
                    let known = offered.then(|| shared.numbers.with(|n| unsafe { *n }));
                    assert!(known.is_none_or(|n| n == 7));
                    offered
                        && shared
                            .word
                            .agree(CloseOffer::NoEndpoint, CloseAnswer::Forgotten)
                })
            };
            shared.word.offer(CloseOffer::NoEndpoint);
            let withdrawn = shared.word.withdraw(CloseOffer::NoEndpoint);
            if withdrawn == Err(CloseAnswer::Forgotten) {
                // The consumer does not access the state any more.
                shared.numbers.with_mut(|n| unsafe { *n = 0 });
            }
            let agreed = consumer.join().unwrap();
            assert_eq!(agreed, withdrawn.is_err());
            assert!(!shared.word.is_closed());
        });
    }

    /// The producer reads the answer that the consumer has written, and the consumer sees the close that follows.
    #[test]
    fn loom_the_ring_is_closed_after_the_answer() {
        loom::model(|| {
            let shared = Arc::new(Shared {
                word: CloseWord::new(),
                numbers: UnsafeCell::new(7),
            });
            shared.word.offer(CloseOffer::NoEndpoint);
            let producer = {
                let shared = shared.clone();
                thread::spawn(move || {
                    let answer = shared.word.answer(CloseOffer::NoEndpoint);
                    if answer == Some(CloseAnswer::Released) {
                        shared.numbers.with_mut(|n| unsafe { *n = 0 });
                        shared.word.close();
                    }
                })
            };
            shared.numbers.with_mut(|n| unsafe { *n = 8 });
            assert!(
                shared
                    .word
                    .agree(CloseOffer::NoEndpoint, CloseAnswer::Released)
            );
            if shared.word.is_closed() {
                shared.numbers.with(|n| assert_eq!(unsafe { *n }, 0));
            }
            producer.join().unwrap();
        });
    }
}
