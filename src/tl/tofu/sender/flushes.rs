//! Flushes that wait for earlier posts, and do not delay later ones.

use super::{ReadGate, TofuSender};
use crate::tl::Token;
use std::collections::VecDeque;

/// A flush: `owner` completes when `posted` posts have arrived and `reads` reads, atomic operations and writes by rails
/// have completed, both counted since the beginning, modulo 2^32.
struct PendingFlush {
    posted: u32,
    reads: u32,
    owner: Token,
}

/// The pending flushes of a sender, in order. Owners are requests; only the thread that completes them follows the
/// pointers.
#[derive(Default)]
pub(super) struct PendingFlushes {
    all: VecDeque<PendingFlush>,
    /// For the first of `all`, after which reads were posted: the age of the edata tags of what each waits for. Later
    /// reads may complete first, so that the number of completed ones does not show that the earlier ones have.
    seals: VecDeque<u16>,
    /// The last age: from 1, modulo 2^16, without 0.
    age: u16,
}

impl PendingFlushes {
    /// Whether no request waits for a flush.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether reads that are posted now are known to be later than those that the flushes wait for.
    pub(super) fn is_sealed(&self) -> bool {
        self.all.len() == self.seals.len()
    }

    /// The waiting requests.
    pub(super) fn owners(&self) -> impl Iterator<Item = Token> {
        self.all.iter().map(|waiting| waiting.owner)
    }

    /// Removes and returns the requests that satisfy `wanted`.
    pub(super) fn detach_owner(&mut self, wanted: impl Fn(Token) -> bool) -> Vec<Token> {
        let found = self.owners().filter(|&owner| wanted(owner)).collect();
        let mut owners = self.all.iter().map(|waiting| waiting.owner);
        let mut next = || owners.next().is_some_and(&wanted);
        self.seals.retain(|_| !next());
        self.all.retain(|waiting| !wanted(waiting.owner));
        found
    }

    /// Seals the flushes that are not sealed yet: returns the age of what they wait for. One that `has_read` all waits
    /// only for what earlier flushes wait for, which has an earlier age.
    fn seal(&mut self, has_read: impl Fn(&PendingFlush) -> bool) -> u16 {
        let (earlier, age) = (self.age, self.age.checked_add(1).unwrap_or(1));
        self.age = age;
        let last = self.all.iter().skip(self.seals.len());
        let ages = last.map(|flush| if has_read(flush) { earlier } else { age });
        self.seals.extend(ages);
        age
    }
}

impl TofuSender {
    /// Adds a flush of everything accepted, including reads and writes by rails: [`next_flushed`](Self::next_flushed)
    /// returns `owner` when it is complete. False: nothing is outstanding, or the flush cannot be added now.
    pub fn flush_marker(&mut self, owner: Token) -> bool {
        if self.rest.is_some() || self.is_drained() {
            return false;
        }
        let waiting = PendingFlush {
            posted: self.posted(),
            reads: self.reads,
            owner,
        };
        self.pending_flushes.all.push_back(waiting);
        if !self.has_read() {
            self.flow.watch();
            if self.gate == ReadGate::Open {
                self.gate = ReadGate::Flush;
            }
        }
        // A reply that was handled before the flush was listed does not complete it.
        let flush_posted = !self.is_drained() && self.post_marker_flush();
        if !flush_posted {
            self.pending_flushes.all.pop_back();
        }
        flush_posted
    }

    /// Called before a read, atomic operation or write by a rail is posted after a flush: seals the outstanding ones,
    /// for which the pending flushes wait.
    #[inline(always)]
    pub(super) fn seal_flushes(&mut self) {
        if !self.pending_flushes.is_sealed() && !self.has_read() {
            self.seal();
        }
    }

    #[inline(never)]
    fn seal(&mut self) {
        // Exact: a read that is posted while a flush has something to wait for is posted behind a seal.
        let has_read = |flush: &PendingFlush| self.flow.has_read_done(flush.reads);
        let (conn, age) = (self.tag.conn, self.pending_flushes.seal(has_read));
        // The next atomic operation takes another tag.
        self.slot = 0;
        self.iface.queue.lock().seal(conn, age);
        for rail in &self.iface.rails {
            rail.queue.lock().seal(conn, age);
        }
    }

    /// Removes the seal of the first flush, if the reads, atomic operations and writes by rails before the flush have
    /// completed.
    #[inline(never)]
    fn unseal_first(&mut self) -> bool {
        let conn = self.tag.conn;
        let mut rails = self.iface.rails.iter();
        let is_complete = self.pending_flushes.seals.front().is_none_or(|&age| {
            !self.iface.queue.lock().has_sealed(conn, age)
                && !rails.any(|rail| rail.queue.lock().has_sealed(conn, age))
        });
        if is_complete {
            self.pending_flushes.seals.pop_front();
        }
        is_complete
    }

    /// The next complete flush. Called after a reply or a completion was counted; posts a flush request for the others.
    pub fn next_flushed(&mut self) -> Option<Token> {
        let Some(&PendingFlush {
            posted,
            reads,
            owner,
        }) = self.pending_flushes.all.front()
        else {
            self.flow.unwatch();
            if self.gate == ReadGate::Flush {
                self.gate = ReadGate::Open;
            }
            return None;
        };
        if self.flow.is_past(posted)
            && self.flow.has_read_done(reads)
            && (self.pending_flushes.seals.is_empty() || self.unseal_first())
        {
            self.pending_flushes.all.pop_front();
            return Some(owner);
        }
        if !self.post_marker_flush() {
            self.iface.leave_unfinished(self.tag.conn);
        }
        None
    }

    /// Posts a flush request for the pending flushes, where none covers the last one. False: not now.
    pub(super) fn post_marker_flush(&mut self) -> bool {
        let Some(&PendingFlush { posted, .. }) = self.pending_flushes.all.back() else {
            return true;
        };
        if !self.is_acked(posted) {
            self.post_flush();
        }
        // In this order: the reply to a request that is not outstanding any more has been counted. If a reply does not
        // cover the last flush, `next_flushed` posts another request.
        self.broken || self.flow.is_flushing() || self.flow.is_past(posted)
    }
}
