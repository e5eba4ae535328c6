//! The tag matcher against a model that searches plain lists from front to back.

use proptest::prelude::*;
use ucp::engine::matcher::{Matcher, PostedRecv};

const EXACT: u64 = u64::MAX;

/// The specification: the first in its list that matches.
#[derive(Default)]
struct Model {
    posted: Vec<(u64, u64, u32)>,
    unexpected: Vec<(u64, u32)>,
}

fn matches(tag: u64, mask: u64, message: u64) -> bool {
    (tag ^ message) & mask == 0
}

impl Model {
    fn cancel(&mut self, r: u32) -> Option<u32> {
        let at = self.posted.iter().position(|p| p.2 == r)?;
        Some(self.posted.remove(at).2)
    }

    fn arrive(&mut self, tag: u64) -> Option<u32> {
        let at = self.posted.iter().position(|p| matches(p.0, p.1, tag))?;
        Some(self.posted.remove(at).2)
    }

    fn probe(&self, tag: u64, mask: u64) -> Option<(u64, u32)> {
        self.unexpected
            .iter()
            .find(|u| matches(tag, mask, u.0))
            .copied()
    }

    fn take(&mut self, tag: u64, mask: u64) -> Option<(u64, u32)> {
        let at = self
            .unexpected
            .iter()
            .position(|u| matches(tag, mask, u.0))?;
        Some(self.unexpected.remove(at))
    }

    fn retain(&mut self, keep: impl Fn(u32) -> bool) -> Vec<(u64, u32)> {
        let (kept, removed) = self.unexpected.iter().partition(|u| keep(u.1));
        self.unexpected = kept;
        removed
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A client's step: searches unexpected messages, else posts.
    Receive(u64, u64),
    /// The network's step: searches posted receives, else keeps the message.
    Message(u64),
    /// The bare calls, also in states that a worker never reaches.
    Post(u64, u64),
    Arrive(u64),
    Push(u64),
    Take(u64, u64),
    Probe(u64, u64),
    /// One of all receives ever posted, most of them completed.
    Cancel(prop::sample::Index),
    DropEvery(u32),
    DrainPosted,
    DrainUnexpected,
}

/// Tags as Open MPI lays them out: 24 bits of tag, 20 of source, 20 of context, few values in each.
fn tag() -> impl Strategy<Value = u64> {
    let mpi = (0..6u64, 0..4u64, 0..2u64)
        .prop_map(|(tag, source, context)| tag << 40 | source << 20 | context);
    prop_oneof![12 => mpi, 2 => 0..200u64, 1 => any::<u64>()]
}

fn mask() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => Just(EXACT),
        1 => Just(0u64),
        1 => Just(0xFFFF_FF00_000F_FFFFu64),
        1 => Just(0x0000_00FF_FFFF_FFFFu64),
        1 => (0..64u32).prop_map(|bit| !(1u64 << bit)),
        1 => any::<u64>(),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        80 => (tag(), mask()).prop_map(|(t, m)| Step::Receive(t, m)),
        80 => tag().prop_map(Step::Message),
        60 => (tag(), mask()).prop_map(|(t, m)| Step::Post(t, m)),
        30 => tag().prop_map(Step::Arrive),
        60 => tag().prop_map(Step::Push),
        30 => (tag(), mask()).prop_map(|(t, m)| Step::Take(t, m)),
        20 => (tag(), mask()).prop_map(|(t, m)| Step::Probe(t, m)),
        40 => any::<prop::sample::Index>().prop_map(Step::Cancel),
        2 => (2..5u32).prop_map(Step::DropEvery),
        1 => Just(Step::DrainPosted),
        1 => Just(Step::DrainUnexpected),
    ]
}

/// Receives with names, pinned as the matcher requires.
#[derive(Default)]
struct Receives {
    all: Vec<(Box<PostedRecv>, u32)>,
}

impl Receives {
    fn post<U>(&mut self, matcher: &mut Matcher<U>, tag: u64, mask: u64, name: u32) -> usize {
        let mut posting = Box::new(PostedRecv::LOOSE);
        // SAFETY: boxed, and dropped after the matcher.
        unsafe { matcher.post(tag, mask, &raw mut *posting) };
        self.all.push((posting, name));
        self.all.len() - 1
    }

    fn name(&self, posting: *mut PostedRecv) -> Option<u32> {
        let is = |r: &&(Box<PostedRecv>, u32)| std::ptr::eq(&raw const *r.0, posting);
        self.all.iter().find(is).map(|r| r.1)
    }

    fn cancel<U>(&mut self, matcher: &mut Matcher<U>, index: usize) -> Option<u32> {
        let (posting, name) = &mut self.all[index];
        // SAFETY: posted to this matcher.
        unsafe { matcher.cancel(&raw mut **posting) }.then_some(*name)
    }
}

/// Both matchers side by side; names are counted up, so that a wrong one cannot pass for the right one.
#[derive(Default)]
struct Pair {
    real: Matcher<u32>,
    model: Model,
    receives: Receives,
    names: u32,
}

impl Pair {
    fn name(&mut self) -> u32 {
        self.names += 1;
        self.names
    }

    fn post(&mut self, tag: u64, mask: u64) {
        let r = self.name();
        self.receives.post(&mut self.real, tag, mask, r);
        self.model.posted.push((tag, mask, r));
    }

    fn push(&mut self, tag: u64) {
        let u = self.name();
        self.real.push_unexpected(tag, u);
        self.model.unexpected.push((tag, u));
    }

    fn arrive(&mut self, tag: u64) -> Result<bool, TestCaseError> {
        let found = self.receives.name(self.real.arrive(tag));
        prop_assert_eq!(found, self.model.arrive(tag));
        Ok(found.is_some())
    }

    fn take(&mut self, tag: u64, mask: u64) -> Result<bool, TestCaseError> {
        let found = self.real.take_unexpected(tag, mask);
        prop_assert_eq!(found, self.model.take(tag, mask));
        Ok(found.is_some())
    }

    fn run(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Receive(tag, mask) if !self.take(tag, mask)? => self.post(tag, mask),
            Step::Message(tag) if !self.arrive(tag)? => self.push(tag),
            Step::Receive(..) | Step::Message(_) => {}
            Step::Post(tag, mask) => self.post(tag, mask),
            Step::Push(tag) => self.push(tag),
            Step::Arrive(tag) => drop(self.arrive(tag)?),
            Step::Take(tag, mask) => drop(self.take(tag, mask)?),
            Step::Probe(tag, mask) => {
                let found = self.real.probe(tag, mask).map(|(t, u)| (t, *u));
                prop_assert_eq!(found, self.model.probe(tag, mask));
            }
            Step::Cancel(_) if self.receives.all.is_empty() => {}
            Step::Cancel(which) => {
                let index = which.index(self.receives.all.len());
                let found = self.receives.cancel(&mut self.real, index);
                prop_assert_eq!(found, self.model.cancel(self.receives.all[index].1));
            }
            Step::DropEvery(n) => {
                let removed = self.real.retain_unexpected(|u| u % n != 0);
                prop_assert_eq!(removed, self.model.retain(|u| u % n != 0));
            }
            Step::DrainPosted => self.drain_posted()?,
            Step::DrainUnexpected => {
                prop_assert_eq!(
                    self.real.drain_unexpected(),
                    std::mem::take(&mut self.model.unexpected)
                );
            }
        }
        prop_assert_eq!(self.real.posted_len(), self.model.posted.len());
        prop_assert_eq!(self.real.unexpected_len(), self.model.unexpected.len());
        Ok(())
    }

    fn drain_posted(&mut self) -> Result<(), TestCaseError> {
        let expected: Vec<u32> = self.model.posted.drain(..).map(|p| p.2).collect();
        let drained = self.real.drain_posted();
        let names: Vec<u32> = drained
            .into_iter()
            .filter_map(|p| self.receives.name(p))
            .collect();
        prop_assert_eq!(names, expected);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn behaves_like_the_model(steps in prop::collection::vec(step(), 0..800)) {
        let mut pair = Pair::default();
        for step in steps {
            pair.run(step)?;
        }
        pair.drain_posted()?;
        prop_assert_eq!(pair.real.drain_unexpected(), pair.model.unexpected);
    }
}

/// The table grows in the middle of a list: the order must not change.
#[test]
fn order_survives_growth() {
    let (mut m, mut receives) = (Matcher::new(), Receives::default());
    for i in 0..2000u32 {
        receives.post(&mut m, u64::from(i) % 7, EXACT, i);
        m.push_unexpected(u64::from(i) % 5, i);
    }
    for i in 0..2000u32 {
        assert_eq!(receives.name(m.arrive(u64::from(i) % 7)), Some(i));
        let tag = u64::from(i) % 5;
        assert_eq!(m.take_unexpected(tag, EXACT), Some((tag, i)));
    }
    assert_eq!((m.posted_len(), m.unexpected_len()), (0, 0));
}

#[test]
fn the_earlier_of_exact_and_wildcard_receive_wins() {
    let (mut m, mut receives): (Matcher<()>, _) = (Matcher::new(), Receives::default());
    receives.post(&mut m, 5, EXACT, 1);
    receives.post(&mut m, 0, 0, 2);
    receives.post(&mut m, 5, EXACT, 3);
    let found: Vec<_> = (0..4).map(|_| receives.name(m.arrive(5))).collect();
    assert_eq!(found, [Some(1), Some(2), Some(3), None]);
}

#[test]
fn a_matched_receive_cannot_be_cancelled() {
    let (mut m, mut receives): (Matcher<()>, _) = (Matcher::new(), Receives::default());
    let first = receives.post(&mut m, 1, EXACT, 10);
    assert_eq!(receives.name(m.arrive(1)), Some(10));
    let second = receives.post(&mut m, 1, EXACT, 11);
    assert_eq!(receives.cancel(&mut m, first), None);
    assert_eq!(receives.cancel(&mut m, second), Some(11));
    assert_eq!(receives.cancel(&mut m, second), None);
    assert_eq!(m.posted_len(), 0);
}
