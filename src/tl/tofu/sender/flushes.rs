//! Flushes that wait behind what was posted, and hold nobody up who comes behind them.

use super::TofuSender;
use std::collections::VecDeque;
use std::ffi::c_void;

/// One of them: who hears when so many posts have arrived, and so much of what is counted as a read has come, both
/// since the beginning and modulo 2^32.
struct PendingFlush {
    posted: u32,
    reads: u32,
    owner: *mut c_void,
}

/// A sender's, in order. Owners are ends of requests; they are followed by whoever is told of them.
#[derive(Default)]
pub(super) struct PendingFlushes(VecDeque<PendingFlush>);

impl PendingFlushes {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those who wait.
    pub(super) fn owners(&self) -> impl Iterator<Item = *mut c_void> {
        self.0.iter().map(|waiting| waiting.owner)
    }

    /// Those of whom this is true wait no more: who they are.
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
    /// Has `owner` told from [`next_flushed`](Self::next_flushed) when all that was accepted has arrived, also what
    /// rails write, and what was read has come. False: nothing is to be waited for, or it cannot be told of now.
    pub fn flush_marker(&mut self, owner: *mut c_void) -> bool {
        if self.rest.is_some() || self.is_drained() {
            return false;
        }
        let waiting = PendingFlush {
            posted: self.posted(),
            reads: self.reads,
            owner,
        };
        self.marks.0.push_back(waiting);
        if !self.has_read() {
            self.flow.watch();
        }
        // Whoever heard that all is there before this was listed tells nobody of it.
        let is_told = !self.is_drained() && self.post_marker_flush();
        if !is_told {
            self.marks.0.pop_back();
        }
        is_told
    }

    /// The next flush that has nothing in front of it any more. For whoever has heard that something has arrived: those
    /// that are left will be told of.
    pub fn next_flushed(&mut self) -> Option<*mut c_void> {
        let Some(first) = self.marks.0.front() else {
            self.flow.unwatch();
            return None;
        };
        if self.flow.is_past(first.posted) && self.flow.has_read_done(first.reads) {
            let owner = first.owner;
            self.marks.0.pop_front();
            return Some(owner);
        }
        if !self.post_marker_flush() {
            self.iface.leave_unfinished(self.mark.link);
        }
        None
    }

    /// Has it told when what marks wait for has arrived. False: not now.
    pub(super) fn post_marker_flush(&mut self) -> bool {
        let Some(&PendingFlush { posted, .. }) = self.marks.0.back() else {
            return true;
        };
        if !self.is_acked(posted) {
            self.post_flush();
        }
        // In this order, as there. Who hears an answer that does not tell asks again.
        self.broken || self.flow.is_flushing() || self.flow.is_past(posted)
    }
}
