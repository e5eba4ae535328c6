//! The check of a connection for lost packets: what it waits for, and when it ends.
#![forbid(unsafe_code)]

use super::packet::Sent;
use super::reorder::OfiReorder;

/// Interval at which a peer is asked again, milliseconds: its answer may be lost, too.
const ASK_MS: u64 = 500;
/// Longest such interval where an answer is waited for without an end.
const MAX_ASK_MS: u64 = 16_000;
/// How often a peer is asked that has to answer.
const MAX_ATTEMPTS: u32 = 20;

/// Why packets of a connection may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Packets before this one have not arrived.
    Gap { before: u32 },
    /// A packet was dropped.
    Dropped,
    /// The provider has reported an error of a receive.
    FailedReceive,
}

/// What a check waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckStep {
    /// The peer's answer. It was asked so often, and is to be asked again at `next`, coarse milliseconds.
    Answer { asked: u32, next: u64 },
    /// All packets before `number`, which have left the peer; the interface was found without a packet so often.
    Packets { number: u32, looks: u32 },
}

/// A check of a connection for lost packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossCheck {
    evidence: Evidence,
    /// How many packets the interface had dropped when it began: the number of the question.
    pub question: u64,
    step: CheckStep,
}

/// What a look at a check leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossVerdict {
    Waits,
    /// The peer is to be asked now.
    Asks,
    /// No packet is lost.
    Complete,
    Lost,
}

impl LossCheck {
    /// A check that asks the peer at `next`, coarse milliseconds. `question`: how many packets the interface has
    /// dropped.
    pub fn new(evidence: Evidence, question: u64, next: u64) -> LossCheck {
        LossCheck {
            evidence,
            question,
            step: CheckStep::Answer { asked: 0, next },
        }
    }

    /// Looks at the check. `is_empty`: the interface was found without a packet since the last look; `looks`: how often
    /// it has to be before a packet counts as lost.
    pub fn look(
        &mut self,
        order: &OfiReorder,
        now: u64,
        is_empty: bool,
        max_looks: u32,
    ) -> LossVerdict {
        let is_sure = self.evidence == Evidence::FailedReceive;
        let is_closed_gap = self.is_closed_gap(order);
        match &mut self.step {
            CheckStep::Packets { number, .. } if order.has_all_before(*number) => {
                LossVerdict::Complete
            }
            CheckStep::Packets { looks, .. } => {
                *looks += u32::from(is_empty);
                match *looks >= max_looks {
                    true => LossVerdict::Lost,
                    false => LossVerdict::Waits,
                }
            }
            CheckStep::Answer { .. } if is_closed_gap => LossVerdict::Complete,
            CheckStep::Answer { next, .. } if now < *next => LossVerdict::Waits,
            CheckStep::Answer { asked, .. } if is_sure && *asked >= MAX_ATTEMPTS => {
                LossVerdict::Lost
            }
            CheckStep::Answer { asked, next } => {
                let interval = match is_sure {
                    true => ASK_MS,
                    false => MAX_ASK_MS.min(ASK_MS << (*asked).min(5)),
                };
                *asked = asked.saturating_add(1);
                *next = now + interval;
                LossVerdict::Asks
            }
        }
    }

    /// Whether there was a gap, which is closed.
    fn is_closed_gap(&self, order: &OfiReorder) -> bool {
        matches!(self.evidence, Evidence::Gap { before } if order.has_all_before(before))
    }

    /// Handles an answer: the peer has sent the packets before `number`. Returns whether all of them have arrived.
    pub fn answered(&mut self, number: u32, sent: &Sent, order: &OfiReorder, now: u64) -> bool {
        if sent.question != self.question || !matches!(self.step, CheckStep::Answer { .. }) {
            return false;
        }
        self.step = match sent.has_left() {
            true => CheckStep::Packets { number, looks: 0 },
            // It is there, and packets are on their way.
            false => CheckStep::Answer {
                asked: 0,
                next: now + ASK_MS,
            },
        };
        order.has_all_before(number)
    }
}

#[cfg(test)]
mod tests {
    use super::super::reorder::SeqArrival;
    use super::*;

    const LOOKS: u32 = 12;

    fn sent(question: u64, has_left: bool) -> Sent {
        Sent {
            question,
            has_left: has_left.into(),
        }
    }

    #[test]
    fn a_packet_of_another_program_ends_no_connection() {
        let order = OfiReorder::default();
        let mut check = LossCheck::new(Evidence::Dropped, 7, 0);
        let mut asked = 0;
        for now in 0..3_600_000 / 20 {
            match check.look(&order, now * 20, true, LOOKS) {
                LossVerdict::Asks => asked += 1,
                verdict => assert_eq!(verdict, LossVerdict::Waits),
            }
        }
        assert!((220..240).contains(&asked), "{asked} questions in an hour");
        assert!(
            !check.answered(1, &sent(6, true), &order, 0),
            "a former question"
        );
        assert!(!check.answered(1, &sent(7, false), &order, 0));
        for now in 0..100 {
            assert_ne!(
                check.look(&order, now, true, LOOKS),
                LossVerdict::Lost,
                "packets are on their way"
            );
        }
        assert!(
            check.answered(0, &sent(7, true), &order, 0),
            "nothing was sent"
        );
    }

    #[test]
    fn a_packet_that_has_left_and_does_not_arrive_is_lost() {
        let mut order = OfiReorder::default();
        let mut check = LossCheck::new(Evidence::Dropped, 7, 0);
        assert_eq!(check.look(&order, 0, true, LOOKS), LossVerdict::Asks);
        assert!(!check.answered(2, &sent(7, true), &order, 0));
        let mut late = check;
        for _ in 0..1000 {
            assert_eq!(
                check.look(&order, u64::MAX, false, LOOKS),
                LossVerdict::Waits,
                "others arrive"
            );
        }
        for _ in 1..LOOKS {
            assert_eq!(check.look(&order, 0, true, LOOKS), LossVerdict::Waits);
        }
        assert_eq!(check.look(&order, 0, true, LOOKS), LossVerdict::Lost);
        assert_eq!(order.arrive(1, b"1"), SeqArrival::Early);
        assert_eq!(order.arrive(0, b"0"), SeqArrival::Now);
        assert!(order.pop().is_some());
        assert_eq!(late.look(&order, 0, true, LOOKS), LossVerdict::Complete);
    }

    #[test]
    fn after_a_failed_receive_an_answer_is_due() {
        let order = OfiReorder::default();
        let mut check = LossCheck::new(Evidence::FailedReceive, 1, 0);
        let verdicts = (0..).map(|i| check.look(&order, i * ASK_MS, true, LOOKS));
        let asked = verdicts.take_while(|&verdict| verdict == LossVerdict::Asks);
        assert_eq!(asked.count(), MAX_ATTEMPTS as usize);
    }

    #[test]
    fn a_gap_that_is_closed_in_time_leads_to_no_question() {
        let mut order = OfiReorder::default();
        let gap = LossCheck::new(Evidence::Gap { before: 1 }, 0, 1000);
        assert_eq!(
            gap.clone().look(&order, 999, true, LOOKS),
            LossVerdict::Waits
        );
        assert_eq!(
            gap.clone().look(&order, 1000, true, LOOKS),
            LossVerdict::Asks
        );
        assert_eq!(order.arrive(0, b"0"), SeqArrival::Now);
        assert_eq!(
            gap.clone().look(&order, 1000, true, LOOKS),
            LossVerdict::Complete
        );
    }
}
