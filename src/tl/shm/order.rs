//! The order of messages of several senders: a message is not handled before one that its sender may have known of.
//!
//! **Sender.** Each inbox has a counter of epochs. A sender that finds another number there than that of its own last
//! epoch begins a new one: it adds 1 to the counter, and its next message carries the sum. As long as no other sender
//! has done so, its messages belong to its present epoch. A single sender, or one that sends several messages in a row,
//! therefore pays for a load and a comparison. If a sender knows of a message of another one, it also sees that
//! sender's epoch or a later one in the counter, and its own epoch is later: of two messages of which one was sent
//! because of the other, the epochs show which is first.
//!
//! **Receiver.** A message is in a ring before any other sender can know of it. The contents of all rings after a
//! message was seen therefore include all messages that may have to be handled before it. [`Merge`] looks at the rings
//! twice: the messages seen at the first look are handled in the order of the epochs, as long as no message of an
//! earlier epoch is in a ring that was seen empty, or behind the messages that were seen. The next call handles the
//! rest.

use super::ring::Consumer;
use crate::sys::sync::{AtomicU64, Ordering};
use std::cmp::Reverse;
use std::ops::Range;
use std::ptr::NonNull;

/// No sender has this epoch.
const NONE: u64 = u64::MAX;

/// A sender's epoch.
pub struct Epoch {
    /// The receiver's counter, in shared memory.
    counter: NonNull<AtomicU64>,
    /// This sender's epoch.
    own: u64,
    /// The epoch of tiny messages: equal to `own`, or [`NONE`] where `tiny` is false.
    own_tiny: u64,
    tiny: bool,
}

// SAFETY: the counter is an atomic.
unsafe impl Send for Epoch {}

impl Epoch {
    /// The epoch of a sender that has sent nothing yet. `tiny`: [`lasts_for_tiny`](Self::lasts_for_tiny) may be true.
    ///
    /// # Safety
    /// The counter outlives the epoch.
    pub unsafe fn new(counter: NonNull<AtomicU64>, tiny: bool) -> Self {
        Self {
            counter,
            own: NONE,
            own_tiny: NONE,
            tiny,
        }
    }

    #[inline(always)]
    fn current(&self) -> u64 {
        // SAFETY: the counter outlives the epoch.
        // Relaxed: a sender that knows of a message of another one has synchronized with that sender's addition to the
        // counter, and so does not load an older value.
        unsafe { self.counter.as_ref() }.load(Ordering::Relaxed)
    }

    /// Whether the next message belongs to the epoch of the last one.
    #[inline(always)]
    pub fn lasts(&self) -> bool {
        self.current() == self.own
    }

    /// [`lasts`](Self::lasts) for a message sent by `send_tiny`; false where none may be.
    #[inline(always)]
    pub fn lasts_for_tiny(&self) -> bool {
        self.current() == self.own_tiny
    }

    /// Whether messages may be sent by `send_tiny`.
    pub fn is_for_tiny(&self) -> bool {
        self.tiny
    }

    /// Begins an epoch; returns its number, which no other sender has.
    pub fn begin(&mut self) -> u64 {
        // SAFETY: the counter outlives the epoch. Relaxed: whatever the counter orders is synchronized by the messages
        // (see `current`).
        self.own = unsafe { self.counter.as_ref() }
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_add(1);
        if self.tiny {
            self.own_tiny = self.own;
        }
        self.own
    }
}

/// Messages of one ring that are to be handled next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Number of the ring.
    pub ring: usize,
    /// Number of messages.
    pub len: u32,
}

/// The oldest message of a ring, and how many messages the first look saw there, at least one.
#[derive(Clone, Copy)]
struct RingHead {
    epoch: u64,
    ring: usize,
    seen: u32,
}

/// The incoming rings of a worker, by number.
pub trait RingSet {
    fn count(&self) -> usize;
    fn ring(&mut self, number: usize) -> &mut Consumer;
}

/// How many messages of a non-empty ring precede all messages of other rings: `most` at most, 0 where other rings have
/// messages. `others_are_empty` looks at each of these once.
#[inline(always)]
pub fn lone(ring: &Consumer, most: u32, others_are_empty: impl FnOnce() -> bool) -> u32 {
    let seen = seen(ring, most);
    if others_are_empty() { seen } else { 0 }
}

/// How many messages of a non-empty ring have arrived, `most` at most.
#[inline(always)]
fn seen(ring: &Consumer, most: u32) -> u32 {
    match most {
        1 => 1,
        most => ring.visible(most),
    }
}

/// The earliest of the messages that the rings have now, and those behind it of the same epoch, `most` at most; of ring
/// `from`, which has some, the oldest one. `None`: none is to be handled before all rings were merged.
///
/// For few messages of few rings: nothing is listed or sorted, and the rings are looked at about once.
#[inline(never)]
pub fn earliest(rings: &mut impl RingSet, from: usize, most: u32) -> Option<Run> {
    let (count, mut epoch) = (rings.count(), rings.ring(from).epoch()?);
    let mut run = Run { ring: from, len: 1 };
    for ring in (from + 1..count).chain(0..from) {
        if let Some(found) = rings.ring(ring).epoch().filter(|&found| found < epoch) {
            let len = seen(rings.ring(ring), most);
            (run, epoch) = (Run { ring, len }, found);
        }
    }
    // What the sender of that message knew of may have come to a ring that was looked at before.
    let is_late = match run.ring >= from {
        true => has_earlier(rings, from..run.ring, epoch),
        false => has_earlier(rings, from..count, epoch) || has_earlier(rings, 0..run.ring, epoch),
    };
    if is_late {
        return None;
    }
    if run.len > 1 {
        run.len = rings.ring(run.ring).same_epoch(run.len);
    }
    (run.len > 0).then_some(run)
}

/// Whether one of the rings `at` has a message of an earlier epoch.
fn has_earlier(rings: &mut impl RingSet, mut at: Range<usize>, epoch: u64) -> bool {
    at.any(|ring| rings.ring(ring).epoch().is_some_and(|found| found < epoch))
}

/// One pass over a worker's rings. The memory is kept from pass to pass.
#[derive(Default)]
pub struct Merge {
    /// Rings with messages to handle; the earliest last.
    heads: Vec<RingHead>,
    /// Rings that the first look saw empty.
    empty: Vec<usize>,
    /// The rings of the first look.
    at: Range<usize>,
    /// The earliest epoch that the first look did not see: nothing of a later epoch is handled.
    limit: u64,
}

impl Merge {
    /// The first look, at some of the rings: about `most` messages are to be handled.
    pub fn look(&mut self, rings: &mut impl RingSet, at: Range<usize>, most: u32) {
        self.heads.clear();
        self.empty.clear();
        self.limit = u64::MAX;
        for ring in at.clone() {
            match rings.ring(ring).epoch() {
                Some(epoch) => self.heads.push(RingHead {
                    epoch,
                    ring,
                    seen: 1,
                }),
                None => self.empty.push(ring),
            }
        }
        self.at = at;
        self.keep_earliest(most);
        self.heads.sort_unstable_by_key(|h| Reverse(h.epoch));
        self.count(rings, most);
    }

    /// Leaves the rings of which no message is among the `most` earliest for another call: they are not sorted, which
    /// would take longer than to handle a few messages if the rings are many.
    fn keep_earliest(&mut self, most: u32) {
        let most = most as usize;
        if most < self.heads.len() {
            let (_, later, _) = self.heads.select_nth_unstable_by_key(most, |h| h.epoch);
            self.limit = later.epoch;
            self.heads.truncate(most);
        }
    }

    /// Counts the messages of the rings that come first, until `most` are found. Of the other rings only the oldest
    /// message was seen.
    fn count(&mut self, rings: &mut impl RingSet, most: u32) {
        let mut left = most;
        for head in self.heads.iter_mut().rev() {
            if left < 2 {
                return;
            }
            head.seen = rings.ring(head.ring).visible(left).max(1);
            left -= head.seen;
        }
    }

    /// The second look, at every ring that the first look did not see or saw empty, including rings that were added
    /// since.
    pub fn look_again(&mut self, rings: &mut impl RingSet) {
        let others = (0..self.at.start).chain(self.at.end..rings.count());
        for number in others.chain(self.empty.iter().copied()) {
            if let Some(epoch) = rings.ring(number).epoch() {
                self.limit = self.limit.min(epoch);
            }
        }
    }

    /// Whether the messages of the first look have to wait for messages that it did not see.
    pub fn is_blocked(&self) -> bool {
        self.heads.last().is_some_and(|h| h.epoch > self.limit)
    }

    /// The next messages to handle, at most `most`. They stay in the ring until [`taken`](Self::taken).
    pub fn next(&self, rings: &mut impl RingSet, most: u32) -> Option<Run> {
        let head = self.heads.last().filter(|h| h.epoch <= self.limit)?;
        let most = most.min(head.seen);
        let alone = self.heads.len() == 1 && self.limit == u64::MAX;
        let len = match most {
            2.. if !alone => rings.ring(head.ring).same_epoch(most),
            _ => most,
        };
        (len > 0).then_some(Run {
            ring: head.ring,
            len,
        })
    }

    /// Records that the messages of the last run were taken out of their ring.
    pub fn taken(&mut self, rings: &mut impl RingSet, run: Run) {
        let Some(mut head) = self.heads.pop() else {
            return;
        };
        head.seen -= run.len.min(head.seen);
        // None: the ring is empty, or was stopped.
        let Some(epoch) = rings.ring(run.ring).epoch() else {
            return;
        };
        if head.seen == 0 {
            // The first look did not see the messages behind them.
            self.limit = self.limit.min(epoch);
        } else {
            head.epoch = epoch;
            let at = self.heads.partition_point(|h| h.epoch > epoch);
            self.heads.insert(at, head);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
pub(super) mod tests;
