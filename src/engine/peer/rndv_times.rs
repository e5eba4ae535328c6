//! Measured times of rendezvous receives from one peer on this host, by size class and scheme, and the choice by them.
//!
//! Which scheme is fastest depends on the caches that the two cores share, on the cost of a system call and on the
//! speed of CMA: no constant fits all machines. So each size class measures every scheme, uses the fastest, and
//! measures the others now and then.

use once_cell::race::OnceBox;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How the data of a message within the host get to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyScheme {
    /// RTR race: the sender copies into the ring, the receiver out of it.
    Race = 0,
    /// Split copy: CMA by both sides.
    Split = 1,
    /// CMA by the receiver.
    Get = 2,
}

const SCHEMES: [CopyScheme; 3] = [CopyScheme::Race, CopyScheme::Split, CopyScheme::Get];
/// Longest message of the first size class, bytes; that of each further class is twice as long. Longer messages than
/// those of the last class are not measured.
const SMALLEST_CLASS_BYTES: usize = 32 << 10;
const SIZE_CLASSES: usize = 6;
/// Number of times that the first messages of a class measure each scheme. The first one may find nothing in the
/// caches, and pages that are not mapped.
const FIRST_ROUNDS: u32 = 3;
/// One of so many messages of a class after that measures another scheme, in turn.
const PROBE_PERIOD: u32 = 64;

/// The measurements of one size class. Relaxed throughout: estimates, of which a lost update does no harm.
#[derive(Default)]
struct ClassTimes {
    /// Nanoseconds by [`CopyScheme`], without interruptions; 0: not measured.
    ns: [AtomicU32; SCHEMES.len()],
    /// Messages, modulo 2^32.
    messages: AtomicU32,
}

impl ClassTimes {
    /// The scheme with the shortest time; `None`: none was measured.
    fn fastest(&self, is_possible: impl Fn(CopyScheme) -> bool) -> Option<CopyScheme> {
        let times =
            SCHEMES.map(|scheme| (self.ns[scheme as usize].load(Ordering::Relaxed), scheme));
        let known = times
            .into_iter()
            .filter(|&(ns, scheme)| ns != 0 && is_possible(scheme));
        known.min_by_key(|&(ns, _)| ns).map(|(_, scheme)| scheme)
    }

    /// Counts a message and returns its scheme.
    fn next(&self, is_possible: impl Fn(CopyScheme) -> bool) -> Option<CopyScheme> {
        let number = self.messages.load(Ordering::Relaxed);
        self.messages
            .store(number.wrapping_add(1), Ordering::Relaxed);
        let round = match number {
            0..PROBE_PERIOD if number < FIRST_ROUNDS * SCHEMES.len() as u32 => Some(number),
            _ if number % PROBE_PERIOD == 0 => Some(number / PROBE_PERIOD),
            _ => None,
        };
        let probed = round.map(|round| SCHEMES[round as usize % SCHEMES.len()]);
        probed
            .filter(|&scheme| is_possible(scheme))
            .or_else(|| self.fastest(is_possible))
    }

    /// Adds a sample, which counts for at most an eighth more than the estimate: the receive may have been interrupted.
    fn note(&self, scheme: CopyScheme, took: Duration) {
        let sample = u32::try_from(took.as_nanos()).unwrap_or(u32::MAX).max(1);
        let estimate = &self.ns[scheme as usize];
        let most = match estimate.load(Ordering::Relaxed) {
            0 => u32::MAX,
            known => known.saturating_add(known / 8 + 1),
        };
        estimate.store(sample.min(most), Ordering::Relaxed);
    }
}

/// The measurements of one peer.
#[derive(Default)]
pub struct RndvTimes {
    /// By size class. Allocated by the first message that is measured.
    classes: OnceBox<[ClassTimes; SIZE_CLASSES]>,
}

impl RndvTimes {
    /// The size class of a length; `None`: it is not measured.
    fn class_of(len: usize) -> Option<usize> {
        let classes = (len.max(SMALLEST_CLASS_BYTES) - 1) / SMALLEST_CLASS_BYTES;
        let class = classes.checked_ilog2().map_or(0, |log| log as usize + 1);
        (class < SIZE_CLASSES).then_some(class)
    }

    /// The scheme of the next message of `len` bytes; `None`: not measured yet.
    pub fn next(&self, len: usize, is_possible: impl Fn(CopyScheme) -> bool) -> Option<CopyScheme> {
        let class = Self::class_of(len)?;
        self.classes.get_or_init(Box::default)[class].next(is_possible)
    }

    /// The fastest scheme for one of many messages of `len` bytes; `None`: not measured yet. A split copy costs both
    /// sides more system calls than a copy by the receiver, and while the sender copies it sends nothing: of many
    /// messages it is faster only if it is much faster for one.
    pub fn fastest_of_many(&self, len: usize) -> Option<CopyScheme> {
        let class = &self.classes.get()?[Self::class_of(len)?];
        let fastest = class.fastest(|_| true)?;
        let [_, split, get] =
            SCHEMES.map(|scheme| class.ns[scheme as usize].load(Ordering::Relaxed));
        let is_close = get != 0 && get < split.saturating_add(split / 2);
        Some(match fastest {
            CopyScheme::Split if is_close => CopyScheme::Get,
            fastest => fastest,
        })
    }

    /// Adds the time of a receive of `len` bytes, from the RTS to completion.
    pub fn note(&self, len: usize, scheme: CopyScheme, took: Duration) {
        if let (Some(class), Some(classes)) = (Self::class_of(len), self.classes.get()) {
            classes[class].note(scheme, took);
        }
    }

    /// Adds the time that a receive of `len` bytes waited for a sender that did not answer, after which another scheme
    /// moves the data: it took longer by that.
    pub fn note_late(&self, len: usize, scheme: CopyScheme, waited: Duration) {
        let class = Self::class_of(len).and_then(|class| self.classes.get()?.get(class));
        let Some((class, other)) = class.and_then(|c| Some((c, c.fastest(|s| s != scheme)?)))
        else {
            // How long the other scheme takes is not known.
            return;
        };
        let ns = class.ns[other as usize].load(Ordering::Relaxed);
        class.note(scheme, waited + Duration::from_nanos(ns.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CopyScheme::{Get, Race, Split};

    /// Receives so many messages that take so many microseconds by each scheme: how many used each one.
    fn receive(times: &RndvTimes, messages: u32, len: usize, us: [u64; 3]) -> [u32; 3] {
        let mut used = [0; 3];
        for _ in 0..messages {
            let scheme = times.next(len, |_| true).unwrap_or(Race);
            used[scheme as usize] += 1;
            times.note(len, scheme, Duration::from_micros(us[scheme as usize]));
        }
        used
    }

    #[test]
    fn lengths_have_classes() {
        let kib = |n: usize| RndvTimes::class_of(n << 10);
        assert_eq!([kib(1), kib(32), kib(33), kib(64)], [0, 0, 1, 1].map(Some));
        assert_eq!([kib(65), kib(128), kib(512)], [2, 2, 4].map(Some));
        assert_eq!([kib(513), kib(1024), kib(1025)], [Some(5), Some(5), None]);
    }

    #[test]
    fn the_fastest_scheme_is_used() {
        for (us, fastest) in [([9, 6, 5], Get), ([8, 17, 30], Race), ([50, 16, 31], Split)] {
            let times = RndvTimes::default();
            receive(&times, 64, 100 << 10, us);
            let used = receive(&times, 6400, 100 << 10, us);
            assert!(used[fastest as usize] >= 6300, "{us:?}: {used:?}");
            assert_eq!(times.fastest_of_many(100 << 10), Some(fastest));
            assert_eq!(times.fastest_of_many(32 << 10), None, "another class");
        }
    }

    #[test]
    fn many_messages_are_split_only_if_one_is_much_faster() {
        let times = RndvTimes::default();
        receive(&times, 1000, 64 << 10, [50, 26, 31]);
        assert_eq!(times.fastest_of_many(64 << 10), Some(Get));
    }

    #[test]
    fn a_sender_that_does_not_answer_makes_the_race_the_slowest() {
        let times = RndvTimes::default();
        for _ in 0..1000 {
            match times.next(64 << 10, |_| true).unwrap_or(Race) {
                Race => times.note_late(64 << 10, Race, Duration::from_micros(2)),
                scheme => times.note(64 << 10, scheme, Duration::from_micros(10)),
            }
            assert_ne!(times.fastest_of_many(64 << 10), Some(Race));
        }
    }

    #[test]
    fn a_change_is_detected() {
        let times = RndvTimes::default();
        receive(&times, 1000, 64 << 10, [8, 17, 30]);
        receive(&times, 2000, 64 << 10, [80, 17, 12]);
        assert_eq!(times.fastest_of_many(64 << 10), Some(Get));
        receive(&times, 2000, 64 << 10, [8, 17, 12]);
        assert_eq!(times.fastest_of_many(64 << 10), Some(Race));
    }

    #[test]
    fn an_interrupt_does_not_change_the_choice() {
        let times = RndvTimes::default();
        receive(&times, 1000, 64 << 10, [8, 17, 30]);
        times.note(64 << 10, Race, Duration::from_millis(4));
        assert_eq!(times.fastest_of_many(64 << 10), Some(Race));
    }

    #[test]
    fn an_impossible_scheme_is_not_chosen() {
        let times = RndvTimes::default();
        receive(&times, 1000, 64 << 10, [8, 17, 30]);
        for _ in 0..200 {
            assert_ne!(times.next(64 << 10, |scheme| scheme != Race), Some(Race));
        }
    }
}
