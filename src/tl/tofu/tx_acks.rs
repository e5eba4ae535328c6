//! How many posts of a connection are acknowledged: known to have arrived.

use crate::sys::sync::{AtomicBool, AtomicU32, Ordering, dma_mem};

/// Maximum number of outstanding flush requests: flushes of threads that share a worker do not wait for each other's
/// replies.
const MAX_FLUSHES: usize = 8;

/// Counters of one connection. The progress thread counts replies and completions; the thread that holds the peer's
/// lock posts flush requests.
#[derive(Default)]
pub struct TxAcks {
    /// Per outstanding flush request, the number of posts before it.
    flushed_posts: [AtomicU32; MAX_FLUSHES],
    /// Flush requests, and replies, since the beginning, modulo 2^32.
    flushes: AtomicU32,
    replies: AtomicU32,
    /// Acknowledged posts.
    ended: AtomicU32,
    /// Completed reads, atomic operations and writes by rails.
    reads_done: AtomicU32,
    /// A flush waits for some of `reads_done`.
    watched: AtomicBool,
}

impl TxAcks {
    /// Counts a flush reply. It is taken for the reply to the oldest outstanding request: whichever request it belongs
    /// to, the posts before the oldest one have arrived.
    pub fn complete(&self) {
        // Relaxed: no other thread writes it.
        let replies = self.replies.load(Ordering::Relaxed);
        // Written before the request was posted, under the lock of the queue, which this thread has taken since.
        let flushed_posts = dma_mem::settled(&self.flushed_posts[replies as usize % MAX_FLUSHES]);
        // Release: pairs with the loads of `ended`: a thread that sees its posts acknowledged may have another process
        // read the data.
        self.ended.store(flushed_posts, Ordering::Release);
        // Release: pairs with `under_way`: a thread that posts the next request overwrites the word of `flushed_posts`
        // that is read above.
        (self.replies).store(replies.wrapping_add(1), Ordering::Release);
    }

    /// Counts a read, atomic operation or write by a rail that has completed or failed. True: a flush may wait for it.
    #[must_use = "a waiting flush must be progressed"]
    pub fn read_done(&self) -> bool {
        // Release: pairs with the loads of `reads_done`: the data are in memory of this process, and this thread has
        // polled the notice. Acquire: pairs with `watch`.
        self.reads_done.fetch_add(1, Ordering::AcqRel);
        // Relaxed: `watch` stores it before it modifies `reads_done`. If it modifies `reads_done` after this thread, it
        // sees the new count.
        self.watched.load(Ordering::Relaxed)
    }

    /// Number of completed reads, atomic operations and writes by rails.
    pub(super) fn reads_done(&self) -> u32 {
        // Acquire: pairs with `read_done`.
        self.reads_done.load(Ordering::Acquire)
    }

    /// Whether at least `reads` reads, atomic operations and writes by rails have completed: any of them, not only the
    /// first ones.
    pub(super) fn has_read_done(&self, reads: u32) -> bool {
        (self.reads_done().wrapping_sub(reads) as i32) >= 0
    }

    /// From now on `read_done` returns true: a caller that checks `reads_done` after this call misses no completion.
    /// The caller holds the peer's lock.
    pub(super) fn watch(&self) {
        // Relaxed: the read-modify-write publishes it.
        self.watched.store(true, Ordering::Relaxed);
        // Release: pairs with `read_done`. Acquire: pairs with `read_done`, whose data the caller may use. Nothing is
        // added: of this operation and that of `read_done`, the later one sees the earlier one.
        self.reads_done.fetch_add(0, Ordering::AcqRel);
    }

    /// Ends [`watch`](Self::watch). The caller holds the peer's lock.
    pub(super) fn unwatch(&self) {
        // Relaxed: a thread that sees it late checks once in vain.
        self.watched.store(false, Ordering::Relaxed);
    }

    /// Counts a flush request behind `posted` posts. Called before the request is posted: the reply can be handled
    /// before the post returns. False: too many requests are outstanding.
    pub(super) fn post_flush(&self, posted: u32) -> bool {
        if self.under_way() as usize == MAX_FLUSHES {
            return false;
        }
        let number = self.flushes();
        // Relaxed: the lock of the queue, under which the request is posted, orders it before the load in `complete`.
        self.flushed_posts[number as usize % MAX_FLUSHES].store(posted, Ordering::Relaxed);
        // Relaxed: only threads that hold the peer's lock access it.
        (self.flushes).store(number.wrapping_add(1), Ordering::Relaxed);
        true
    }

    /// The request was not posted.
    pub(super) fn cancel_flush(&self) {
        // Relaxed: only threads that hold the peer's lock access it.
        (self.flushes).store(self.flushes().wrapping_sub(1), Ordering::Relaxed);
    }

    /// Whether a flush request is outstanding: its reply has not been counted.
    pub(super) fn is_flushing(&self) -> bool {
        self.under_way() > 0
    }

    /// Whether the reply to an outstanding request acknowledges `posted` posts. The caller holds the peer's lock.
    pub(super) fn is_flush_posted(&self, posted: u32) -> bool {
        let last = self.flushes().wrapping_sub(1) as usize % MAX_FLUSHES;
        // Relaxed: only threads that hold the peer's lock write it.
        let flushed_posts = self.flushed_posts[last].load(Ordering::Relaxed);
        self.is_flushing() && (flushed_posts.wrapping_sub(posted) as i32) >= 0
    }

    /// Number of outstanding requests.
    fn under_way(&self) -> u32 {
        // Acquire: pairs with `complete`, which has read its word of `flushed_posts`.
        let replies = self.replies.load(Ordering::Acquire);
        self.flushes().wrapping_sub(replies)
    }

    fn flushes(&self) -> u32 {
        // Relaxed: only threads that hold the peer's lock access it.
        self.flushes.load(Ordering::Relaxed)
    }

    /// How many of `posted` posts are not acknowledged.
    pub(super) fn unacked(&self, posted: u32) -> u32 {
        // Relaxed: only a number.
        posted.wrapping_sub(self.ended.load(Ordering::Relaxed))
    }

    /// Whether all of the `posted` posts of the connection are acknowledged; `posted` counts every post so far, modulo
    /// 2^32.
    pub(super) fn has_ended(&self, posted: u32) -> bool {
        // Acquire: pairs with `complete`.
        self.ended.load(Ordering::Acquire) == posted
    }

    /// Whether at least `posted` posts are acknowledged.
    pub(super) fn is_past(&self, posted: u32) -> bool {
        // Acquire: pairs with `complete`.
        let ended = self.ended.load(Ordering::Acquire);
        (ended.wrapping_sub(posted) as i32) >= 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_reply_is_for_the_oldest_outstanding_flush() {
        let flow = TxAcks::default();
        // Enough requests to use each word of `flushed_posts` several times.
        for posted in 0..3 * MAX_FLUSHES as u32 {
            assert!(
                flow.post_flush(posted + 1)
                    && flow.is_flush_posted(posted + 1)
                    && !flow.is_flush_posted(posted + 2)
            );
            assert!(flow.post_flush(posted + 2) && flow.is_flush_posted(posted + 2));
            flow.complete();
            assert!(flow.is_past(posted + 1) && !flow.is_past(posted + 2) && flow.is_flushing());
            flow.complete();
            assert!(flow.has_ended(posted + 2) && !flow.is_flushing());
        }
    }

    #[test]
    fn at_most_max_flushes_and_an_unposted_one_is_undone() {
        let flow = TxAcks::default();
        for posted in 1..=MAX_FLUSHES as u32 {
            assert!(flow.post_flush(posted));
        }
        assert!(!flow.post_flush(99) && !flow.is_flush_posted(99));
        flow.cancel_flush();
        assert!(
            !flow.is_flush_posted(MAX_FLUSHES as u32)
                && flow.is_flush_posted(MAX_FLUSHES as u32 - 1)
        );
        (1..MAX_FLUSHES).for_each(|_| flow.complete());
        assert!(flow.has_ended(MAX_FLUSHES as u32 - 1) && !flow.is_flushing());
    }
}
