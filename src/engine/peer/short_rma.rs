//! Protocol of short puts and gets of memory that is not mapped here: a copy by the kernel (CMA), or a message that the
//! peer executes.
//!
//! Which of the two takes less time depends on the machine (the cost of a system call, the distance between the cores)
//! on the direction (a put ends with an answer, a get with its data) and on the length. So both are timed, by direction
//! and size class, and each class uses the faster one; a few accesses of each [`PROBE_PERIOD`] use the other one, which
//! is timed again by them.
//!
//! A message is fast only while the peer progresses: the access would wait for a peer that computes. A worker therefore
//! notes in its inbox when it progressed last, as soon as one sender requests it, and a sender selects the message only
//! if that is recent and the last ones were answered in time. Accesses behind one by message that is not answered go by
//! message too, so that none overtakes it.

use crate::sys::clock;
use crate::sys::cma::CmaDirection;
use once_cell::race::OnceBox;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// The peer is at work if it has progressed, or answered, so many nanoseconds ago: it notes that in one progress call
/// of 64.
const RECENT_NS: u64 = 10_000;
/// Longest access by message, bytes: one message.
const MAX_BYTES: usize = 8 << 10;
/// Longest access of the first size class, bytes: the longest of each further class is twice as long.
const SMALLEST_CLASS_BYTES: usize = 64;
const SIZE_CLASSES: usize = (MAX_BYTES / SMALLEST_CLASS_BYTES).ilog2() as usize + 1;
/// What a message and its answer take at least, nanoseconds: they are not tried where the kernel is as fast.
const MIN_MESSAGE_NS: u32 = 250;
/// The kernel is to take so much longer, nanoseconds: a message costs its sender more instructions than are timed.
const MARGIN_NS: u32 = 50;
/// In each period of so many accesses of a size class, [`PROBES`] of them use the protocol that seems slower.
const PROBE_PERIOD: u32 = 1024;
const PROBES: u32 = 4;
/// One of so many copies by the kernel is timed.
const TIMED_COPY_PERIOD: u32 = 8;
/// One of so many accesses of a size class opens a ring to a peer to which there is none.
const RING_OPEN_PERIOD: u32 = 128;
/// Answers that took longer, and each of several by so much, are late, nanoseconds.
const LATE_NS: u64 = 10_000;
const LATE_EACH_NS: u64 = 2_000;
/// Accesses by the kernel after a late answer, and most of them after several.
const MIN_DETOUR: u32 = 64;
const MAX_DETOUR: u32 = 1 << 12;

/// Times of the accesses of one direction and size class. Relaxed throughout: estimates, of which a lost update does no
/// harm.
#[derive(Default)]
struct ClassTimes {
    /// Of a copy by the kernel, nanoseconds, without interruptions; 0: not measured.
    copy_ns: AtomicU32,
    /// Of a message and its answer, nanoseconds; 0: not measured.
    message_ns: AtomicU32,
    /// Accesses that were counted, modulo 2^32.
    accesses: AtomicU32,
}

impl ClassTimes {
    /// Counts an access: whether a message is the better protocol for it.
    fn prefers_message(&self) -> bool {
        let accesses = self.accesses.load(Ordering::Relaxed).wrapping_add(1);
        self.accesses.store(accesses, Ordering::Relaxed);
        let kernel = self.copy_ns.load(Ordering::Relaxed);
        if kernel <= MIN_MESSAGE_NS + MARGIN_NS {
            return false;
        }
        // 0 before the first measurement, so that a message is tried.
        let message = self.message_ns.load(Ordering::Relaxed);
        (message + MARGIN_NS < kernel) != self.is_probe()
    }

    /// Whether the access that was counted last uses the protocol that seems slower.
    fn is_probe(&self) -> bool {
        self.accesses.load(Ordering::Relaxed) % PROBE_PERIOD >= PROBE_PERIOD - PROBES
    }

    /// Whether the access that was counted last is timed if the kernel copies.
    fn is_timed(&self) -> bool {
        self.accesses.load(Ordering::Relaxed) % TIMED_COPY_PERIOD == 0 || self.is_probe()
    }

    /// Adds the time of a copy by the kernel.
    fn note_copy(&self, nanoseconds: u64) {
        note(&self.copy_ns, nanoseconds, u32::MAX);
    }

    /// Adds the time of a message and its answer. The first one counts as the shortest possible: it may have found the
    /// ring in no cache.
    fn note_message(&self, nanoseconds: u64) {
        note(&self.message_ns, nanoseconds, MIN_MESSAGE_NS);
    }
}

/// Replaces an estimate by a new sample, which is limited: the first one to `first`, later ones to an eighth more than
/// the estimate, because the operation may have been interrupted.
fn note(estimate: &AtomicU32, nanoseconds: u64, first: u32) {
    let sample = u32::try_from(nanoseconds).unwrap_or(u32::MAX).max(1);
    let most = match estimate.load(Ordering::Relaxed) {
        0 => first,
        known => known.saturating_add(known / 8 + 1),
    };
    estimate.store(sample.min(most), Ordering::Relaxed);
}

/// The size class of a length of at most [`MAX_BYTES`].
fn class_of(len: usize) -> usize {
    (len.max(SMALLEST_CLASS_BYTES) - 1).ilog2() as usize + 1 - SMALLEST_CLASS_BYTES.ilog2() as usize
}

/// What an access does. The number is the row of [`ShortRma::classes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShortKind {
    Put = 0,
    Get = 1,
}

/// The measurements of one peer. Relaxed throughout: estimates, of which a lost update does no harm; `used` is set
/// before a message is posted by the thread that looks at it before its next access.
#[derive(Default)]
pub struct ShortRma {
    /// Accesses went by message that may not be answered. Where threads share the worker it stays set: one that has
    /// seen all answered does not know of a message that another one is about to post.
    used: AtomicBool,
    /// The answers to them are awaited: `asked_at` is when the first was made.
    awaited: AtomicBool,
    /// Kind and size class of the first of these accesses.
    asked_kind: AtomicU8,
    asked_class: AtomicU8,
    /// When the first of them was made, and accesses answered before.
    asked_at: AtomicU64,
    asked_from: AtomicU64,
    /// When the last ones were answered.
    answered_at: AtomicU64,
    /// Accesses that go by the kernel before the next one by message.
    detour: AtomicU32,
    /// As many after the next late answer.
    penalty: AtomicU32,
    /// By kind and size class. Allocated by the first copy that is timed.
    classes: OnceBox<[[ClassTimes; SIZE_CLASSES]; 2]>,
}

/// An access that may go by message.
#[derive(Clone, Copy)]
pub struct ShortAccess {
    pub kind: ShortKind,
    pub len: usize,
}

impl ShortAccess {
    /// A put or get of `len` bytes.
    pub fn new(direction: CmaDirection, len: usize) -> Self {
        let kind = match direction {
            CmaDirection::Write => ShortKind::Put,
            CmaDirection::Read => ShortKind::Get,
        };
        ShortAccess { kind, len }
    }

    /// Its indices in [`ShortRma::classes`]; `None`: it is longer than [`MAX_BYTES`].
    fn class(self) -> Option<(usize, usize)> {
        (self.len <= MAX_BYTES).then(|| (self.kind as usize, class_of(self.len)))
    }
}

impl ShortRma {
    /// Whether accesses went by message that may not be answered.
    #[inline]
    pub fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// They are answered, and no thread can have posted another one meanwhile.
    pub fn forget(&self) {
        self.used.store(false, Ordering::Relaxed);
    }

    /// Whether the answers to the last of them are awaited.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Relaxed)
    }

    fn times(&self, access: ShortAccess) -> Option<&ClassTimes> {
        let (kind, class) = access.class()?;
        self.classes.get()?[kind].get(class)
    }

    /// Counts an access. Returns whether a message takes less time than the kernel's copy, and no recent one was late.
    pub fn is_wanted(&self, access: ShortAccess) -> bool {
        if !self.times(access).is_some_and(ClassTimes::prefers_message) {
            return false;
        }
        let detour = self.detour.load(Ordering::Relaxed);
        self.detour
            .store(detour.saturating_sub(1), Ordering::Relaxed);
        detour == 0
    }

    /// Whether the access that was counted last opens a ring to the peer.
    pub fn opens_ring(&self, access: ShortAccess) -> bool {
        (self.times(access))
            .is_some_and(|times| times.accesses.load(Ordering::Relaxed) % RING_OPEN_PERIOD == 0)
    }

    /// Whether an access goes by message; no other one is outstanding. `progressed_at`: when the peer noted its
    /// progress; `done`: accesses answered, ever.
    pub fn choose(&self, access: ShortAccess, progressed_at: u64, done: u64) -> bool {
        self.choose_at(clock::monotonic_ns(), access, progressed_at, done)
    }

    fn choose_at(&self, now: u64, access: ShortAccess, progressed_at: u64, done: u64) -> bool {
        let seen_at = progressed_at.max(self.answered_at.load(Ordering::Relaxed));
        let is_at_work = now.saturating_sub(seen_at) <= RECENT_NS;
        if is_at_work && let Some((kind, class)) = access.class() {
            self.asked_at.store(now, Ordering::Relaxed);
            self.asked_from.store(done, Ordering::Relaxed);
            self.asked_kind.store(kind as u8, Ordering::Relaxed);
            self.asked_class.store(class as u8, Ordering::Relaxed);
            self.awaited.store(true, Ordering::Relaxed);
            self.used.store(true, Ordering::Relaxed);
        }
        is_at_work
    }

    /// All that was sent is answered; `done`: accesses answered, ever.
    pub fn note_answers(&self, done: u64) {
        self.note_answers_at(clock::monotonic_ns(), done);
    }

    fn note_answers_at(&self, now: u64, done: u64) {
        let took = now.saturating_sub(self.asked_at.load(Ordering::Relaxed));
        let answers = done.saturating_sub(self.asked_from.load(Ordering::Relaxed));
        let penalty = self.penalty.load(Ordering::Relaxed).max(MIN_DETOUR);
        if took > LATE_NS + answers.saturating_mul(LATE_EACH_NS) {
            self.detour.store(penalty, Ordering::Relaxed);
            self.penalty
                .store((2 * penalty).min(MAX_DETOUR), Ordering::Relaxed);
        } else {
            // Halved after some 45 timely answers.
            self.penalty
                .store(penalty - penalty.div_ceil(64), Ordering::Relaxed);
            // Otherwise the time is not that of the first access alone.
            if answers == 1
                && let Some(classes) = self.classes.get()
            {
                let kind = usize::from(self.asked_kind.load(Ordering::Relaxed));
                let class = usize::from(self.asked_class.load(Ordering::Relaxed));
                classes[kind][class].note_message(took);
            }
        }
        self.answered_at.store(now, Ordering::Relaxed);
        self.awaited.store(false, Ordering::Relaxed);
    }

    /// Whether the copy by the kernel for this access is to be timed.
    pub fn is_timed(&self, access: ShortAccess) -> bool {
        access.len <= MAX_BYTES && self.times(access).is_none_or(ClassTimes::is_timed)
    }

    /// The copy by the kernel for this access took so long.
    pub fn note_copy(&self, access: ShortAccess, nanoseconds: u64) {
        if let Some((kind, class)) = access.class() {
            self.classes.get_or_init(Box::default)[kind][class].note_copy(nanoseconds);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    fn of(len: usize) -> ShortAccess {
        ShortAccess {
            kind: ShortKind::Put,
            len,
        }
    }

    /// Makes so many accesses, each of which takes so long by the kernel and by message: how many went by message.
    fn messages(rma: &ShortRma, accesses: u32, len: usize, kernel: u64, message: u64) -> u32 {
        let mut by_message = 0;
        for _ in 0..accesses {
            if rma.is_wanted(of(len)) {
                assert!(rma.choose_at(MILLISECOND, of(len), MILLISECOND, 0));
                rma.note_answers_at(MILLISECOND + message, 1);
                by_message += 1;
            } else if rma.is_timed(of(len)) {
                rma.note_copy(of(len), kernel);
            }
        }
        by_message
    }

    #[test]
    fn lengths_have_classes() {
        let firsts = [1, 65, 129, 257, 513, 1025, 2049, 4097];
        assert_eq!(firsts.len(), SIZE_CLASSES);
        for (class, first) in firsts.into_iter().enumerate() {
            assert_eq!(class_of(first), class);
            assert_eq!(class_of(SMALLEST_CLASS_BYTES << class), class);
        }
        assert_eq!(class_of(MAX_BYTES), SIZE_CLASSES - 1);
    }

    #[test]
    fn a_peer_that_computes_is_reached_by_cma() {
        let rma = ShortRma::default();
        assert!(!rma.choose_at(MILLISECOND, of(8), 0, 0));
        assert!(!rma.choose_at(MILLISECOND, of(8), MILLISECOND - RECENT_NS - 1, 0));
        assert!(!rma.is_used());
        assert!(rma.choose_at(MILLISECOND, of(8), MILLISECOND - RECENT_NS, 0));
        assert!(rma.is_used() && rma.is_awaited());
        rma.note_answers_at(2 * MILLISECOND, 1);
        assert!(rma.is_used() && !rma.is_awaited());
        rma.forget();
        assert!(!rma.is_used());
    }

    #[test]
    fn a_peer_that_just_answered_is_progressing() {
        let rma = ShortRma::default();
        assert!(rma.choose_at(MILLISECOND, of(8), MILLISECOND, 0));
        rma.note_answers_at(MILLISECOND + 300, 1);
        assert!(rma.choose_at(MILLISECOND + 500, of(8), 0, 1));
    }

    #[test]
    fn each_class_uses_the_faster_protocol() {
        let rma = ShortRma::default();
        const N: u32 = 10 * PROBE_PERIOD;
        for (len, kernel, message, is_message) in [
            (8, 1600, 700, true),
            (4096, 1700, 1400, true),
            (8192, 1900, 2500, false),
            (1024, 290, 300, false),
            (256, 400, 390, false),
        ] {
            let by_message = messages(&rma, N, len, kernel, message);
            let others = if is_message {
                N - by_message
            } else {
                by_message
            };
            assert!(others <= N / 64, "{len} bytes: {by_message} by message");
        }
    }

    #[test]
    fn slow_first_messages_do_not_decide() {
        let rma = ShortRma::default();
        messages(&rma, 16, 8, 1600, 5000);
        assert!(messages(&rma, 100, 8, 1600, 700) >= 100 - PROBES);
    }

    #[test]
    fn a_protocol_that_becomes_faster_is_detected() {
        let rma = ShortRma::default();
        messages(&rma, 100 * PROBE_PERIOD, 2048, 1600, 3000);
        messages(&rma, 2 * PROBE_PERIOD, 2048, 1600, 700);
        assert!(messages(&rma, PROBE_PERIOD, 2048, 1600, 700) >= PROBE_PERIOD - PROBES);
        messages(&rma, 2 * PROBE_PERIOD, 2048, 400, 700);
        assert!(messages(&rma, PROBE_PERIOD, 2048, 400, 700) <= PROBES);
    }

    #[test]
    fn cma_that_is_faster_than_any_message_is_kept() {
        let rma = ShortRma::default();
        assert_eq!(messages(&rma, 10 * PROBE_PERIOD, 8, 200, 1), 0);
    }

    #[test]
    fn puts_and_gets_are_timed_apart() {
        let rma = ShortRma::default();
        let get = ShortAccess {
            kind: ShortKind::Get,
            len: 8,
        };
        let gets = |accesses: u32| -> u32 {
            let mut by_message = 0;
            for _ in 0..accesses {
                if rma.is_wanted(get) {
                    assert!(rma.choose_at(MILLISECOND, get, MILLISECOND, 0));
                    rma.note_answers_at(MILLISECOND + 1000, 1);
                    by_message += 1;
                } else if rma.is_timed(get) {
                    rma.note_copy(get, 560);
                }
            }
            by_message
        };
        messages(&rma, 2 * PROBE_PERIOD, 8, 560, 450);
        gets(2 * PROBE_PERIOD);
        assert!(gets(PROBE_PERIOD) <= PROBES);
        assert!(messages(&rma, PROBE_PERIOD, 8, 560, 450) >= PROBE_PERIOD - PROBES);
    }

    #[test]
    fn late_answers_lead_to_detours_that_grow_and_are_forgotten() {
        let rma = ShortRma::default();
        rma.note_copy(of(8), 1700);
        let detour = |took| {
            rma.choose_at(MILLISECOND, of(8), MILLISECOND, 0);
            rma.note_answers_at(MILLISECOND + took, 1);
            let left = rma.detour.load(Ordering::Relaxed);
            rma.detour.store(0, Ordering::Relaxed);
            left
        };
        assert_eq!(detour(LATE_NS), 0);
        assert_eq!(detour(MILLISECOND), MIN_DETOUR);
        assert_eq!(detour(MILLISECOND), 2 * MIN_DETOUR);
        for _ in 0..32 {
            detour(MILLISECOND);
        }
        assert_eq!(detour(MILLISECOND), MAX_DETOUR);
        for _ in 0..1000 {
            detour(500);
        }
        assert_eq!(detour(MILLISECOND), MIN_DETOUR);
        rma.detour.store(MIN_DETOUR, Ordering::Relaxed);
        assert_eq!((0..1000).find(|_| rma.is_wanted(of(8))), Some(MIN_DETOUR));
    }

    #[test]
    fn answers_to_many_take_longer() {
        let rma = ShortRma::default();
        rma.note_copy(of(8), 1700);
        assert!(rma.choose_at(MILLISECOND, of(8), MILLISECOND, 10));
        rma.note_answers_at(MILLISECOND + LATE_NS + 64 * LATE_EACH_NS, 74);
        assert!(rma.is_wanted(of(8)));
    }

    #[test]
    fn an_interrupt_does_not_make_a_protocol_slow() {
        let rma = ShortRma::default();
        messages(&rma, 2 * PROBE_PERIOD, 8, 400, 500);
        rma.note_copy(of(8), 40_000);
        assert!(messages(&rma, 100, 8, 400, 500) == 0);
    }
}
