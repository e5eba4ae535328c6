//! The tag matcher: which posted receive takes an arriving message, which arrived message a new receive takes.
//!
//! A message matches a receive when their tags agree in the bits of the receive's mask. Of several
//! receives the earliest posted one wins, of several messages the earliest arrived one.
//!
//! Receives that name all 64 bits live in a hash table, all others in one wildcard list; where both
//! offer a candidate, sequence numbers decide. Messages that found no receive are chained twice: in
//! the order of arrival, and in the bucket of their tag, which is all that a full-mask receive has to
//! search. One bucket holds both ends, so that a receive and its message meet in one cache line.
#![forbid(unsafe_code)]

mod slab;

use slab::{List, NIL, Slab};

/// The mask of a receive that names every bit.
const EXACT: u64 = u64::MAX;

/// Buckets of the first table: 1 KiB, allocated when something is first posted or left unexpected.
const MIN_BUCKETS: usize = 64;

/// From here on longer chains cost less than a larger table: the nodes miss the cache anyway.
const MAX_BUCKETS: usize = 1 << 16;

/// The only list that a posted receive is in: its bucket's, or the wildcard list.
const POSTED: usize = 0;
/// The list of all unexpected messages in the order of arrival.
const ARRIVAL: usize = 0;
/// The list of the unexpected messages of one bucket.
const BUCKET: usize = 1;

/// Names a posted receive until it is matched or cancelled; afterwards it names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    index: u32,
    /// The low half of the sequence number: a stale ticket is mistaken for a live one only if its node
    /// is in use again exactly a multiple of 2^32 posts later.
    generation: u32,
}

struct Posted<R> {
    tag: u64,
    mask: u64,
    sequence: u64,
    receive: R,
}

struct Unexpected<U> {
    tag: u64,
    message: U,
}

#[derive(Clone, Copy)]
struct Bucket {
    posted: List,
    unexpected: List,
}

const EMPTY_BUCKET: Bucket = Bucket {
    posted: List::EMPTY,
    unexpected: List::EMPTY,
};

/// Posted receives (`R`: what the owner knows them by) and unexpected messages (`U`) of one worker.
pub struct Matcher<R: Copy, U> {
    /// A power of two of them, or none at all before the first use.
    buckets: Vec<Bucket>,
    /// What turns a 64-bit hash into an index of `buckets`.
    shift: u32,
    wild: List,
    posted: Slab<Posted<R>, 1>,
    exact_len: usize,
    wild_len: usize,
    next_sequence: u64,
    arrivals: List,
    unexpected: Slab<Unexpected<U>, 2>,
    unexpected_len: usize,
}

impl<R: Copy, U> Default for Matcher<R, U> {
    fn default() -> Self {
        Self::new()
    }
}

#[inline]
fn matches(receive_tag: u64, mask: u64, message_tag: u64) -> bool {
    (receive_tag ^ message_tag) & mask == 0
}

/// Tags differ in a few bits (MPI: context, source and tag side by side); the multiplication carries
/// each of them to the top, where the bucket number is taken from.
#[inline]
fn bucket_of(tag: u64, shift: u32) -> usize {
    (tag.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> shift) as usize
}

impl<R: Copy, U> Matcher<R, U> {
    /// A matcher with nothing in it, and nothing allocated.
    pub const fn new() -> Self {
        Matcher {
            buckets: Vec::new(),
            shift: 63,
            wild: List::EMPTY,
            posted: Slab::new(),
            exact_len: 0,
            wild_len: 0,
            next_sequence: 0,
            arrivals: List::EMPTY,
            unexpected: Slab::new(),
            unexpected_len: 0,
        }
    }

    /// Posts a receive behind all others. The caller has made sure that no unexpected message matches.
    #[inline]
    pub fn post(&mut self, tag: u64, mask: u64, receive: R) -> Ticket {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let index = self.posted.insert(Posted {
            tag,
            mask,
            sequence,
            receive,
        });
        if mask == EXACT {
            self.make_room(self.exact_len);
            if let Some(bucket) = self.buckets.get_mut(bucket_of(tag, self.shift)) {
                self.posted.push_back::<POSTED>(&mut bucket.posted, index);
                self.exact_len += 1;
            }
        } else {
            self.posted.push_back::<POSTED>(&mut self.wild, index);
            self.wild_len += 1;
        }
        Ticket {
            index,
            generation: sequence as u32,
        }
    }

    /// Withdraws a receive; `None` when it is no longer posted.
    pub fn cancel(&mut self, ticket: Ticket) -> Option<R> {
        let posted = self.posted.get(ticket.index)?;
        if posted.sequence as u32 != ticket.generation {
            return None;
        }
        if posted.mask == EXACT {
            self.take_exact(ticket.index)
        } else {
            self.take_wild(ticket.index)
        }
    }

    /// Takes the earliest posted receive that matches a message with this tag.
    #[inline]
    pub fn arrive(&mut self, tag: u64) -> Option<R> {
        let exact = match self.buckets.get(bucket_of(tag, self.shift)) {
            Some(bucket) => self
                .posted
                .find::<POSTED>(bucket.posted, |posted| posted.tag == tag),
            None => NIL,
        };
        if self.wild.is_empty() {
            self.take_exact(exact)
        } else {
            self.arrive_among_wild(tag, exact)
        }
    }

    /// `arrive` when wildcard receives are posted too: the earlier one of the two candidates.
    #[inline(never)]
    fn arrive_among_wild(&mut self, tag: u64, exact: u32) -> Option<R> {
        let wild = self
            .posted
            .find::<POSTED>(self.wild, |posted| matches(posted.tag, posted.mask, tag));
        let age = |i| {
            self.posted
                .get(i)
                .map_or(u64::MAX, |posted| posted.sequence)
        };
        if age(wild) < age(exact) {
            self.take_wild(wild)
        } else {
            self.take_exact(exact)
        }
    }

    #[inline]
    fn take_exact(&mut self, index: u32) -> Option<R> {
        let tag = self.posted.get(index)?.tag;
        let bucket = self.buckets.get_mut(bucket_of(tag, self.shift))?;
        self.posted.unlink::<POSTED>(&mut bucket.posted, index);
        self.exact_len -= 1;
        Some(self.posted.remove(index)?.receive)
    }

    fn take_wild(&mut self, index: u32) -> Option<R> {
        self.posted.unlink::<POSTED>(&mut self.wild, index);
        self.wild_len -= 1;
        Some(self.posted.remove(index)?.receive)
    }

    /// Keeps a message that no posted receive matched, behind all others.
    #[inline]
    pub fn push_unexpected(&mut self, tag: u64, message: U) {
        self.make_room(self.unexpected_len);
        let index = self.unexpected.insert(Unexpected { tag, message });
        self.unexpected
            .push_back::<ARRIVAL>(&mut self.arrivals, index);
        if let Some(bucket) = self.buckets.get_mut(bucket_of(tag, self.shift)) {
            self.unexpected
                .push_back::<BUCKET>(&mut bucket.unexpected, index);
        }
        self.unexpected_len += 1;
    }

    /// Takes the earliest arrived message that a receive matches, and its tag.
    #[inline]
    pub fn take_unexpected(&mut self, tag: u64, mask: u64) -> Option<(u64, U)> {
        if self.arrivals.is_empty() {
            return None;
        }
        let index = self.find_unexpected(tag, mask);
        self.remove_unexpected(index)
    }

    /// The earliest arrived message that a receive would match, left where it is.
    pub fn probe(&self, tag: u64, mask: u64) -> Option<(u64, &U)> {
        let found = self.unexpected.get(self.find_unexpected(tag, mask))?;
        Some((found.tag, &found.message))
    }

    fn find_unexpected(&self, tag: u64, mask: u64) -> u32 {
        if mask != EXACT {
            return self
                .unexpected
                .find::<ARRIVAL>(self.arrivals, |u| matches(tag, mask, u.tag));
        }
        match self.buckets.get(bucket_of(tag, self.shift)) {
            Some(bucket) => self
                .unexpected
                .find::<BUCKET>(bucket.unexpected, |u| u.tag == tag),
            None => NIL,
        }
    }

    fn remove_unexpected(&mut self, index: u32) -> Option<(u64, U)> {
        let tag = self.unexpected.get(index)?.tag;
        let bucket = self.buckets.get_mut(bucket_of(tag, self.shift))?;
        self.unexpected
            .unlink::<BUCKET>(&mut bucket.unexpected, index);
        self.unexpected.unlink::<ARRIVAL>(&mut self.arrivals, index);
        self.unexpected_len -= 1;
        Some((tag, self.unexpected.remove(index)?.message))
    }

    /// Drops the unexpected messages that `keep` refuses (those of a dead peer) and returns them with
    /// their tags, earliest first. The order of the others stays.
    pub fn retain_unexpected(&mut self, mut keep: impl FnMut(&U) -> bool) -> Vec<(u64, U)> {
        let mut removed = Vec::new();
        let mut i = self.arrivals.head();
        while let Some(u) = self.unexpected.get(i) {
            let kept = keep(&u.message);
            let next = self.unexpected.next::<ARRIVAL>(i);
            if !kept {
                removed.extend(self.remove_unexpected(i));
            }
            i = next;
        }
        removed
    }

    /// Withdraws all receives, earliest posted first.
    pub fn drain_posted(&mut self) -> Vec<R> {
        let mut lists = vec![self.wild];
        lists.extend(
            self.buckets
                .iter_mut()
                .map(|b| std::mem::replace(&mut b.posted, List::EMPTY)),
        );
        self.wild = List::EMPTY;
        self.exact_len = 0;
        self.wild_len = 0;
        let mut drained = Vec::new();
        for list in lists {
            let mut i = list.head();
            while i != NIL {
                let next = self.posted.next::<POSTED>(i);
                drained.extend(self.posted.remove(i));
                i = next;
            }
        }
        drained.sort_unstable_by_key(|posted| posted.sequence);
        drained.into_iter().map(|posted| posted.receive).collect()
    }

    /// Takes all unexpected messages with their tags, earliest arrived first.
    pub fn drain_unexpected(&mut self) -> Vec<(u64, U)> {
        self.retain_unexpected(|_| false)
    }

    /// How many receives are posted.
    #[inline]
    pub fn posted_len(&self) -> usize {
        self.exact_len + self.wild_len
    }

    /// How many messages wait for a receive.
    #[inline]
    pub fn unexpected_len(&self) -> usize {
        self.unexpected_len
    }

    /// Doubles the table when `len` entries fill it (about one an entry), before another one is linked.
    #[inline]
    fn make_room(&mut self, len: usize) {
        if len >= self.buckets.len() && self.buckets.len() < MAX_BUCKETS {
            self.grow();
        }
    }

    /// Rehashes into a larger table. Walking every list from its head keeps the order: the receives of
    /// a new bucket all come from one old bucket, the messages come in order of arrival.
    #[cold]
    fn grow(&mut self) {
        let size = (self.buckets.len() * 2).max(MIN_BUCKETS);
        let old = std::mem::replace(&mut self.buckets, vec![EMPTY_BUCKET; size]);
        self.shift = u64::BITS - size.trailing_zeros();
        for bucket in old {
            let mut i = bucket.posted.head();
            while let Some(posted) = self.posted.get(i) {
                let to = bucket_of(posted.tag, self.shift);
                let next = self.posted.next::<POSTED>(i);
                if let Some(bucket) = self.buckets.get_mut(to) {
                    self.posted.push_back::<POSTED>(&mut bucket.posted, i);
                }
                i = next;
            }
        }
        let mut i = self.arrivals.head();
        while let Some(u) = self.unexpected.get(i) {
            if let Some(bucket) = self.buckets.get_mut(bucket_of(u.tag, self.shift)) {
                self.unexpected
                    .push_back::<BUCKET>(&mut bucket.unexpected, i);
            }
            i = self.unexpected.next::<ARRIVAL>(i);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::bucket_of;

    /// The longest chain when `tags` fill a table of as many buckets.
    fn longest(tags: Vec<u64>) -> usize {
        let size = tags.len().next_power_of_two();
        let mut chains = vec![0; size];
        for tag in tags {
            chains[bucket_of(tag, u64::BITS - size.trailing_zeros())] += 1;
        }
        chains.into_iter().max().unwrap_or(0)
    }

    /// Every tag that has values below the given counts in the fields that begin at the given bits.
    fn layout(fields: &[(u32, u64)]) -> Vec<u64> {
        fields.iter().fold(vec![0], |tags, &(shift, count)| {
            tags.iter()
                .flat_map(|tag| (0..count).map(move |value| tag | value << shift))
                .collect()
        })
    }

    #[test]
    fn tags_of_mpi_libraries_spread() {
        // Open MPI: tag from bit 40, source from bit 20, context from bit 0. MPICH: context, source, tag.
        let layouts: [&[(u32, u64)]; 6] = [
            &[(40, 4096)],
            &[(20, 4096)],
            &[(0, 4096)],
            &[(40, 16), (20, 256)],
            &[(40, 64), (20, 16), (0, 4)],
            &[(44, 4), (31, 32), (0, 32)],
        ];
        for fields in layouts {
            assert!(
                longest(layout(fields)) <= 8,
                "{fields:?}: a chain of {}",
                longest(layout(fields))
            );
        }
    }
}
