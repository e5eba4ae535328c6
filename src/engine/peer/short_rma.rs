//! Short puts and gets of memory that is not mapped here: by the kernel's copy, or by message, which the peer executes.
//!
//! A message costs less than a system call, but only while the peer progresses: the access would wait for a peer that
//! computes. A worker therefore notes in its inbox when it progressed last, as soon as one sender requests it, and a
//! sender selects the message only if that is recent and the last ones were answered in time. Accesses behind one by
//! message that is not answered go by message too, so that none overtakes it.

use crate::sys::clock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The peer is at work if it has progressed, or answered, so many nanoseconds ago: it notes that in one progress call
/// of 64.
const RECENT_NS: u64 = 10_000;
/// Longest access by message, bytes: a longer one costs more than the slowest call of the kernel.
const MAX_BYTES: usize = 4096;
/// Bytes of a message for each nanosecond that it takes longer than an empty one: two copies more than the kernel's.
const BYTES_PER_NS: usize = 4;
/// What an empty message and its answer take at least, nanoseconds: they are not tried where the kernel is as fast.
const MIN_MESSAGE_NS: u32 = 250;
/// The kernel is to take so much longer, nanoseconds: a message costs its sender more instructions.
const MARGIN_NS: u32 = 100;
/// Answers that took longer, and each of several by so much, are late, nanoseconds.
const LATE_NS: u64 = 10_000;
const LATE_EACH_NS: u64 = 2_000;
/// Accesses by the kernel after a late answer, and most of them after several.
const MIN_DETOUR: u32 = 64;
const MAX_DETOUR: u32 = 1 << 14;
/// Of so many copies by the kernel one is timed.
const TIMED: u32 = 8;

/// The account of one peer. Relaxed throughout: estimates, of which a lost update does no harm; `used` is set before a
/// message is posted by the thread that looks at it before its next access.
#[derive(Default)]
pub struct ShortRma {
    /// Accesses went by message that may not be answered. Where threads share the worker it stays set: one that has
    /// seen all answered does not know of a message that another one is about to post.
    used: AtomicBool,
    /// The answers to them are awaited: `asked_at` is when the first was made.
    awaited: AtomicBool,
    /// When the first of them was made, and accesses answered before.
    asked_at: AtomicU64,
    asked_from: AtomicU64,
    /// Bytes of the first.
    asked_len: AtomicU32,
    /// When the last ones were answered.
    answered_at: AtomicU64,
    /// Accesses that go by the kernel before the next one by message.
    detour: AtomicU32,
    /// As many after the next late answer.
    penalty: AtomicU32,
    /// What a call of the kernel takes at best, of late; 0: not known.
    kernel_ns: AtomicU32,
    /// What an empty message and its answer take, of late.
    message_ns: AtomicU32,
    copies: AtomicU32,
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

    /// Whether a message of so many bytes costs less than the kernel's copy, and none was late a short while ago.
    #[inline]
    pub fn is_wanted(&self, len: usize) -> bool {
        let kernel = self.kernel_ns.load(Ordering::Relaxed);
        let message = self.message_ns.load(Ordering::Relaxed).max(MIN_MESSAGE_NS);
        let limit = kernel.saturating_sub(message + MARGIN_NS) as usize * BYTES_PER_NS;
        if len > limit.min(MAX_BYTES) {
            return false;
        }
        let detour = self.detour.load(Ordering::Relaxed);
        self.detour
            .store(detour.saturating_sub(1), Ordering::Relaxed);
        detour == 0
    }

    /// Whether an access of so many bytes goes by message; no other one is outstanding. `progressed_at`: when the peer
    /// noted its progress; `done`: accesses answered, ever.
    pub fn choose(&self, len: usize, progressed_at: u64, done: u64) -> bool {
        self.choose_at(clock::monotonic_ns(), len, progressed_at, done)
    }

    fn choose_at(&self, now: u64, len: usize, progressed_at: u64, done: u64) -> bool {
        let seen_at = progressed_at.max(self.answered_at.load(Ordering::Relaxed));
        let is_at_work = now.saturating_sub(seen_at) <= RECENT_NS;
        if is_at_work {
            self.asked_at.store(now, Ordering::Relaxed);
            self.asked_from.store(done, Ordering::Relaxed);
            self.asked_len.store(len as u32, Ordering::Relaxed);
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
            if answers == 1 {
                self.note_message(took as u32);
            }
        }
        self.answered_at.store(now, Ordering::Relaxed);
        self.awaited.store(false, Ordering::Relaxed);
    }

    /// A message and its answer, and nothing else, took so many nanoseconds.
    fn note_message(&self, took: u32) {
        let bytes = self.asked_len.load(Ordering::Relaxed);
        let sample = took.saturating_sub(bytes / BYTES_PER_NS as u32);
        let known = self.message_ns.load(Ordering::Relaxed).max(MIN_MESSAGE_NS);
        let message = sample.min(known + known / 8);
        self.message_ns.store(message, Ordering::Relaxed);
    }

    /// Whether the next copy of so many bytes by the kernel is to be timed.
    pub fn is_timed(&self, len: usize) -> bool {
        let copies = self.copies.load(Ordering::Relaxed);
        self.copies.store(copies.wrapping_add(1), Ordering::Relaxed);
        len <= MAX_BYTES && copies % TIMED == 0
    }

    /// A short copy by the kernel took so long. One that was interrupted does not count for more than the last ones.
    pub fn note_copy(&self, nanoseconds: u64) {
        let known = self.kernel_ns.load(Ordering::Relaxed);
        let sample = nanoseconds.min(u32::MAX.into()) as u32;
        let kernel = match known {
            0 => sample,
            _ => sample.min(known.saturating_add(known / 16)),
        };
        self.kernel_ns.store(kernel.max(1), Ordering::Relaxed);
        // Messages that were slow once are tried again.
        let message = self.message_ns.load(Ordering::Relaxed);
        self.message_ns
            .store(message - message / 64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    #[test]
    fn a_peer_that_computes_is_reached_by_the_kernel() {
        let rma = ShortRma::default();
        assert!(!rma.choose_at(MILLISECOND, 8, 0, 0));
        assert!(!rma.choose_at(MILLISECOND, 8, MILLISECOND - RECENT_NS - 1, 0));
        assert!(!rma.is_used());
        assert!(rma.choose_at(MILLISECOND, 8, MILLISECOND - RECENT_NS, 0));
        assert!(rma.is_used() && rma.is_awaited());
        rma.note_answers_at(2 * MILLISECOND, 1);
        assert!(rma.is_used() && !rma.is_awaited());
        rma.forget();
        assert!(!rma.is_used());
    }

    #[test]
    fn a_peer_that_just_answered_is_progressing() {
        let rma = ShortRma::default();
        assert!(rma.choose_at(MILLISECOND, 8, MILLISECOND, 0));
        rma.note_answers_at(MILLISECOND + 300, 1);
        assert!(rma.choose_at(MILLISECOND + 500, 8, 0, 1));
    }

    #[test]
    fn short_accesses_use_messages_where_cma_is_slow() {
        let rma = ShortRma::default();
        assert!(!rma.is_wanted(8), "not before a call was timed");
        let least = MIN_MESSAGE_NS + MARGIN_NS;
        for (kernel, longest) in [(least, 0), (least + 100, 400), (1700, MAX_BYTES)] {
            rma.kernel_ns.store(kernel, Ordering::Relaxed);
            assert!(!rma.is_wanted(longest + 1));
            assert!(rma.is_wanted(longest));
        }
    }

    #[test]
    fn late_answers_lead_to_detours_that_grow_and_are_forgotten() {
        let rma = ShortRma::default();
        rma.note_copy(1700);
        let detour = |took| {
            rma.choose_at(MILLISECOND, 8, MILLISECOND, 0);
            rma.note_answers_at(MILLISECOND + took, 1);
            (0..1 << 20).find(|_| rma.is_wanted(8)).unwrap()
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
    }

    #[test]
    fn answers_to_many_take_longer() {
        let rma = ShortRma::default();
        rma.note_copy(1700);
        assert!(rma.choose_at(MILLISECOND, 8, MILLISECOND, 10));
        rma.note_answers_at(MILLISECOND + LATE_NS + 64 * LATE_EACH_NS, 74);
        assert!(rma.is_wanted(8));
    }

    #[test]
    fn an_interrupt_does_not_make_the_kernel_slow() {
        let rma = ShortRma::default();
        rma.note_copy(400);
        rma.note_copy(40_000);
        assert!(!rma.is_wanted(MAX_BYTES));
        rma.note_copy(375);
        assert!(rma.is_wanted(100));
        assert!(!rma.is_wanted(101));
    }

    #[test]
    fn slow_messages_are_left_alone_and_tried_again() {
        let rma = ShortRma::default();
        let message = || {
            rma.choose_at(MILLISECOND, 400, MILLISECOND, 0);
            rma.note_answers_at(MILLISECOND + 1000, 1);
        };
        rma.note_copy(800);
        let messages = (0..100).take_while(|_| rma.is_wanted(8)).map(|_| message());
        assert!((1..20).contains(&messages.count()));
        let copies = (0..10_000).find(|_| {
            rma.note_copy(800);
            rma.is_wanted(8)
        });
        assert!(copies.is_some());
    }
}
