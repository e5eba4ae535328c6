//! Flushes that wait for earlier posts, and do not delay later ones.

use super::TofuSender;
use std::collections::VecDeque;
use std::ffi::c_void;

/// A flush: `owner` completes when `posted` posts have arrived and `reads` reads, atomic operations and writes by rails
/// have completed, both counted since the beginning, modulo 2^32.
struct PendingFlush {
    posted: u32,
    reads: u32,
    owner: *mut c_void,
}

/// The pending flushes of a sender, in order. Owners are requests; only the thread that completes them follows the
/// pointers.
#[derive(Default)]
pub(super) struct PendingFlushes(VecDeque<PendingFlush>);

impl PendingFlushes {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The waiting requests.
    pub(super) fn owners(&self) -> impl Iterator<Item = *mut c_void> {
        self.0.iter().map(|waiting| waiting.owner)
    }

    /// Removes and returns the requests that satisfy `wanted`.
    pub(super) fn detach_owner(
        &mut self,
        wanted: impl Fn(*mut c_void) -> bool,
    ) -> Vec<*mut c_void> {
        let found = self.owners().filter(|&owner| wanted(owner)).collect();
        self.0.retain(|waiting| !wanted(waiting.owner));
        found
    }
}

impl TofuSender {
    /// Adds a flush of everything accepted, including reads and writes by rails: [`next_flushed`](Self::next_flushed)
    /// returns `owner` when it is complete. False: nothing is outstanding, or the flush cannot be added now.
    pub fn flush_marker(&mut self, owner: *mut c_void) -> bool {
        if self.rest.is_some() || self.is_drained() {
            return false;
        }
        let waiting = PendingFlush {
            posted: self.posted(),
            reads: self.reads,
            owner,
        };
        self.pending_flushes.0.push_back(waiting);
        if !self.has_read() {
            self.flow.watch();
        }
        // A reply that was handled before the flush was listed does not complete it.
        let flush_posted = !self.is_drained() && self.post_marker_flush();
        if !flush_posted {
            self.pending_flushes.0.pop_back();
        }
        flush_posted
    }

    /// The next complete flush. Called after a reply or a completion was counted; posts a flush request for the others.
    pub fn next_flushed(&mut self) -> Option<*mut c_void> {
        let Some(first) = self.pending_flushes.0.front() else {
            self.flow.unwatch();
            return None;
        };
        if self.flow.is_past(first.posted) && self.flow.has_read_done(first.reads) {
            let owner = first.owner;
            self.pending_flushes.0.pop_front();
            return Some(owner);
        }
        if !self.post_marker_flush() {
            self.iface.leave_unfinished(self.tag.conn);
        }
        None
    }

    /// Posts a flush request for the pending flushes, where none covers the last one. False: not now.
    pub(super) fn post_marker_flush(&mut self) -> bool {
        let Some(&PendingFlush { posted, .. }) = self.pending_flushes.0.back() else {
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
