//! The tag matcher: which posted receive takes an arriving message, which arrived message a new receive takes.
//!
//! A message matches a receive when their tags agree in the bits of the receive's mask. Of several
//! receives the earliest posted one wins, of several messages the earliest arrived one.
//!
//! Receives that name all 64 bits are kept in a hash table, all others in one wildcard chain; where both have a
//! candidate, sequence numbers decide. Messages that found no receive are in two lists: in the order of arrival, and in
//! the bucket of their tag, which is all that a full-mask receive has to search. One bucket holds both ends, so that a
//! receive and its message meet in one cache line.

mod node_pool;
mod posted;

use node_pool::{ListEnds, NIL, NodePool};
use posted::PostedList;
pub use posted::PostedRecv;
use std::ptr;

/// The mask of a receive that names every bit.
const EXACT: u64 = u64::MAX;

/// Buckets of the first table: 1.5 KiB, allocated when something is first posted or left unexpected.
const MIN_BUCKETS: usize = 64;

/// From here on longer chains cost less than a larger table: the nodes miss the cache anyway.
const MAX_BUCKETS: usize = 1 << 16;

/// The list of all unexpected messages in the order of arrival.
const ARRIVAL: usize = 0;
/// The list of the unexpected messages of one bucket.
const BUCKET: usize = 1;

struct UnexpectedNode<U> {
    tag: u64,
    message: U,
}

#[derive(Clone, Copy)]
struct Bucket {
    posted: PostedList,
    unexpected: ListEnds,
}

const EMPTY_BUCKET: Bucket = Bucket {
    posted: PostedList::EMPTY,
    unexpected: ListEnds::EMPTY,
};

/// Posted receives and unexpected messages (`U`: what the owner keeps of them) of one worker.
pub struct Matcher<U> {
    /// A power of two of them, or none at all before the first use.
    buckets: Vec<Bucket>,
    /// Shift that makes an index of `buckets` from a 64-bit hash.
    shift: u32,
    wild: PostedList,
    exact_len: usize,
    wild_len: usize,
    next_sequence: u64,
    arrivals: ListEnds,
    unexpected: NodePool<UnexpectedNode<U>, 2>,
    unexpected_len: usize,
}

// SAFETY: the chains lead to receives that belong to the matcher from `post` on; they carry no thread affinity.
unsafe impl<U: Send> Send for Matcher<U> {}

impl<U> Default for Matcher<U> {
    fn default() -> Self {
        Self::new()
    }
}

#[inline(always)]
fn matches(receive_tag: u64, mask: u64, message_tag: u64) -> bool {
    (receive_tag ^ message_tag) & mask == 0
}

/// Tags differ in a few bits (MPI: context, source and tag side by side); the multiplication carries
/// each of them to the top, where the bucket number is taken from.
#[inline(always)]
fn bucket_of(tag: u64, shift: u32) -> usize {
    (tag.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> shift) as usize
}

impl<U> Matcher<U> {
    /// A matcher with nothing in it, and nothing allocated.
    pub const fn new() -> Self {
        Matcher {
            buckets: Vec::new(),
            shift: 63,
            wild: PostedList::EMPTY,
            exact_len: 0,
            wild_len: 0,
            next_sequence: 0,
            arrivals: ListEnds::EMPTY,
            unexpected: NodePool::new(),
            unexpected_len: 0,
        }
    }

    /// Posts a receive behind all others. The caller has made sure that no unexpected message matches.
    ///
    /// # Safety
    /// `receive` is writable and not posted. It stays where it is and is not touched until the matcher
    /// has given it back: by `arrive`, `cancel` or `drain_posted`.
    pub unsafe fn post(&mut self, tag: u64, mask: u64, receive: *mut PostedRecv) {
        if mask == EXACT {
            self.make_room(self.exact_len);
        }
        // SAFETY: the caller's promise. There is a table if the receive needs one.
        unsafe { self.post_short(tag, mask, receive) };
    }

    /// Withdraws a receive; false when it is not posted (any more).
    ///
    /// # Safety
    /// `receive` was posted to this matcher, or is [`PostedRecv::LOOSE`].
    pub unsafe fn cancel(&mut self, receive: *mut PostedRecv) -> bool {
        // SAFETY: the caller's promise.
        let (posted, exact) = unsafe { ((*receive).is_posted(), (*receive).mask == EXACT) };
        if posted && exact {
            self.take_exact(receive);
        } else if posted {
            self.take_wild(receive);
        }
        posted
    }

    /// Takes the earliest posted receive that matches a message with this tag; null if there is none.
    #[inline(always)]
    pub fn arrive(&mut self, tag: u64) -> *mut PostedRecv {
        if !self.wild.is_empty() {
            return self.arrive_among_wild(tag);
        }
        let Some(bucket) = self.buckets.get_mut(bucket_of(tag, self.shift)) else {
            return ptr::null_mut();
        };
        let found = bucket.posted.take(|posting| posting.tag == tag);
        if !found.is_null() {
            self.exact_len -= 1;
        }
        found
    }

    /// `arrive` when wildcard receives are posted too: the earlier one of the two candidates.
    #[inline(never)]
    fn arrive_among_wild(&mut self, tag: u64) -> *mut PostedRecv {
        let wild = self
            .wild
            .find(|posting| matches(posting.tag, posting.mask, tag));
        let exact = match self.buckets.get(bucket_of(tag, self.shift)) {
            Some(bucket) => bucket.posted.find(|posting| posting.tag == tag),
            None => ptr::null_mut(),
        };
        // SAFETY: null, or members of their chains.
        let age = |p: *mut PostedRecv| unsafe { p.as_ref() }.map_or(u64::MAX, |p| p.sequence);
        if age(wild) < age(exact) {
            self.take_wild(wild);
            return wild;
        }
        if !exact.is_null() {
            self.take_exact(exact);
        }
        exact
    }

    /// `receive` is in the bucket of its tag.
    fn take_exact(&mut self, receive: *mut PostedRecv) {
        // SAFETY: a member lives.
        let tag = unsafe { (*receive).tag };
        if let Some(bucket) = self.buckets.get_mut(bucket_of(tag, self.shift)) {
            // SAFETY: in this chain.
            unsafe { bucket.posted.unlink(receive) };
            self.exact_len -= 1;
        }
    }

    /// `receive` is in the wildcard chain.
    fn take_wild(&mut self, receive: *mut PostedRecv) {
        // SAFETY: in this chain.
        unsafe { self.wild.unlink(receive) };
        self.wild_len -= 1;
    }

    /// Whether no message waits, and another receive can be posted as it is.
    #[inline(always)]
    pub fn can_post(&self) -> bool {
        self.arrivals.is_empty() && self.exact_len < self.buckets.len()
    }

    /// Posts a receive after [`can_post`](Self::can_post) has returned true: nothing is called.
    ///
    /// # Safety
    /// `receive` is writable and not posted. It stays where it is and is not touched until the matcher has given it
    /// back.
    #[inline(always)]
    pub unsafe fn post_short(&mut self, tag: u64, mask: u64, receive: *mut PostedRecv) {
        // SAFETY: the caller's promise.
        unsafe { receive.write(self.next_posting(tag, mask)) };
        let chain = if mask == EXACT {
            let Some(bucket) = self.buckets.get_mut(bucket_of(tag, self.shift)) else {
                return;
            };
            self.exact_len += 1;
            &mut bucket.posted
        } else {
            self.wild_len += 1;
            &mut self.wild
        };
        // SAFETY: writable and not posted; from now on it belongs to the matcher.
        unsafe { chain.push_back(receive) };
    }

    #[inline(always)]
    fn next_posting(&mut self, tag: u64, mask: u64) -> PostedRecv {
        let sequence = self.next_sequence;
        self.next_sequence = sequence + 1;
        PostedRecv::new(tag, mask, sequence)
    }

    /// Keeps a message that no posted receive matched, behind all others.
    #[inline]
    pub fn push_unexpected(&mut self, tag: u64, message: U) {
        self.make_room(self.unexpected_len);
        let index = self.unexpected.insert(UnexpectedNode { tag, message });
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

    /// Calls `take` with the message that `take_unexpected` would return, and its tag, in place. If it returns a value,
    /// it has taken what the message owned, and the message is removed; else the message stays.
    #[inline]
    pub fn consume_unexpected<R>(
        &mut self,
        tag: u64,
        mask: u64,
        take: impl FnOnce(u64, &mut U) -> Option<R>,
    ) -> Option<R> {
        let index = self.find_unexpected(tag, mask);
        let found = self.unexpected.get_mut(index)?;
        let (tag, taken) = (found.tag, take(found.tag, &mut found.message)?);
        self.unlink_unexpected(tag, index);
        self.unexpected.forget(index);
        Some(taken)
    }

    /// Whether no message waits.
    #[inline(always)]
    pub fn none_unexpected(&self) -> bool {
        self.arrivals.is_empty()
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
        self.unlink_unexpected(tag, index);
        Some((tag, self.unexpected.remove(index)?.message))
    }

    /// `index` is in the list of arrivals.
    #[inline]
    fn unlink_unexpected(&mut self, tag: u64, index: u32) {
        if let Some(bucket) = self.buckets.get_mut(bucket_of(tag, self.shift)) {
            self.unexpected
                .unlink::<BUCKET>(&mut bucket.unexpected, index);
        }
        self.unexpected.unlink::<ARRIVAL>(&mut self.arrivals, index);
        self.unexpected_len -= 1;
    }

    /// Calls `change` with each unexpected message, earliest first.
    pub fn change_unexpected(&mut self, mut change: impl FnMut(&mut U)) {
        let mut i = self.arrivals.head();
        while let Some(u) = self.unexpected.get_mut(i) {
            change(&mut u.message);
            i = self.unexpected.next::<ARRIVAL>(i);
        }
    }

    /// Drops the unexpected messages that `keep` refuses and returns them with their tags, earliest first. The order of
    /// the others stays.
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

    /// Calls `see` with posted receives, the earliest one of each chain first, until it has seen `most` of them: those
    /// without a full mask first, then those of the buckets from number `from` on. Returns the number of the bucket at
    /// which it stopped; 0: it has seen all.
    pub fn walk_posted(
        &self,
        from: usize,
        most: usize,
        mut see: impl FnMut(*mut PostedRecv, u64),
    ) -> usize {
        let mut left = most;
        let mut walk = |chain: &PostedList| {
            chain.walk(|receive, tag| {
                let go_on = left > 0;
                if go_on {
                    left -= 1;
                    see(receive, tag);
                }
                go_on
            })
        };
        if self.posted_len() == 0 || !walk(&self.wild) {
            return 0;
        }
        let at = (self.buckets.iter().enumerate().skip(from)).find(|(_, b)| !walk(&b.posted));
        at.map_or(0, |(at, _)| at)
    }

    /// The tag of the earliest arrived message that waits.
    pub fn first_unexpected(&self) -> Option<u64> {
        self.unexpected
            .get(self.arrivals.head())
            .map(|first| first.tag)
    }

    /// Withdraws all receives, earliest posted first.
    pub fn drain_posted(&mut self) -> Vec<*mut PostedRecv> {
        let mut drained = Vec::new();
        let chains = self.buckets.iter_mut().map(|bucket| &mut bucket.posted);
        for chain in chains.chain([&mut self.wild]) {
            drained.extend(std::iter::from_fn(|| chain.pop_front()));
        }
        (self.exact_len, self.wild_len) = (0, 0);
        // SAFETY: the receives belong to the matcher until this function returns them.
        drained.sort_unstable_by_key(|&posting| unsafe { (*posting).sequence });
        drained
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
    #[inline(always)]
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
        for mut bucket in old {
            while let Some(posting) = bucket.posted.pop_front() {
                // SAFETY: a posted receive belongs to the matcher; it is moved from one chain to another.
                unsafe {
                    let PostedRecv {
                        tag,
                        mask,
                        sequence,
                        ..
                    } = *posting;
                    posting.write(PostedRecv::new(tag, mask, sequence));
                    if let Some(to) = self.buckets.get_mut(bucket_of(tag, self.shift)) {
                        to.posted.push_back(posting);
                    }
                }
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
