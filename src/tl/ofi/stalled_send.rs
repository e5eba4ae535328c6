//! A send that the provider does not report, though the peer answers what was sent after it.
//!
//! `tcp;ofi_rxm` connects again when a connection of its own ends, and forgets the messages of which the peer was to
//! read the rest, or had yet to report that it has: nothing reports them. So a peer is asked from time to time while
//! the oldest send to it is not reported. Packets to one peer arrive in order, and the provider of a peer that answers
//! has handled what arrived before the question: each message of the provider's own that such a send takes is exchanged
//! between two questions. After more answers than it takes messages the send is lost. A peer that does not progress
//! does not answer, and is waited for.
#![forbid(unsafe_code)]

/// Answers after which a send is lost. A message of the provider takes three of its own packets at most: its header, a
/// read or a request to write, and the report of its end.
const MAX_ANSWERS: u32 = 5;
/// Longest time between two questions to a peer that does not answer, looks.
const MAX_WAIT: u32 = 16;
/// Begins the numbers of questions, which those of `loss_check` do not have.
const QUESTION: u64 = 1 << 63;
/// Questions are counted modulo a power of two: they have these bits above the number of the packet.
const MAX_ASKED: u32 = u32::MAX >> 1;

/// The oldest send of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StalledSend {
    /// Number of its packet.
    pub number: u32,
    /// Questions since the first look, and those of them that the peer has answered.
    asked: u32,
    answers: u32,
    /// Looks from the next question to the one behind it, if the peer does not answer.
    interval: u32,
    step: StallStep,
}

/// What the next look at a send does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StallStep {
    Ask,
    /// Waits for the answer to the last question, which is asked again after so many looks.
    Await(u32),
}

/// What a look at a send leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallVerdict {
    Waits,
    /// The peer is to be asked now, with this number of a question.
    Asks(u64),
    Lost,
}

impl StalledSend {
    /// The send of this packet is the oldest since now.
    pub fn new(number: u32) -> StalledSend {
        StalledSend {
            number,
            asked: 0,
            answers: 0,
            interval: 1,
            step: StallStep::Ask,
        }
    }

    /// The number of the last question.
    fn last_question(&self) -> u64 {
        QUESTION | u64::from(self.asked) << 32 | u64::from(self.number)
    }

    /// Looks at the send, which was not reported since the last look.
    pub fn look(&mut self) -> StallVerdict {
        if self.answers >= MAX_ANSWERS {
            return StallVerdict::Lost;
        }
        if let StallStep::Await(looks @ 1..) = &mut self.step {
            *looks -= 1;
            return StallVerdict::Waits;
        }
        self.asked = (self.asked + 1) & MAX_ASKED;
        self.step = StallStep::Await(self.interval);
        self.interval = MAX_WAIT.min(self.interval * 2);
        StallVerdict::Asks(self.last_question())
    }

    /// The peer has answered a question. One of `loss_check`, or a former one, does not count.
    pub fn answered(&mut self, question: u64) {
        if self.step != StallStep::Ask && question == self.last_question() {
            self.answers += 1;
            (self.step, self.interval) = (StallStep::Ask, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_behind_which_questions_are_answered_is_lost() {
        let mut send = StalledSend::new(7);
        for _ in 0..MAX_ANSWERS {
            let StallVerdict::Asks(question) = send.look() else {
                panic!("{send:?}");
            };
            send.answered(7);
            send.answered(question);
            send.answered(question);
        }
        assert_eq!(send.look(), StallVerdict::Lost);
    }

    #[test]
    fn a_peer_that_does_not_answer_is_asked_less_and_less_often() {
        let mut send = StalledSend::new(u32::MAX);
        let looks: Vec<_> = (0..10_000).map(|_| send.look()).collect();
        let asks = |verdict: &&StallVerdict| matches!(verdict, StallVerdict::Asks(_));
        assert!(!looks.contains(&StallVerdict::Lost));
        assert_eq!(looks.iter().take(4).filter(asks).count(), 2);
        assert!((580..600).contains(&looks.iter().filter(asks).count()));
    }
}
