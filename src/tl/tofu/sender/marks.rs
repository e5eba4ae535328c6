//! Flushes that wait behind what was posted, and hold nobody up who comes behind them.

use super::Sender;
use std::collections::VecDeque;
use std::ffi::c_void;

/// One of them: who hears when so many posts have arrived, and so much of what is counted as a read has come, both
/// since the beginning and modulo 2^32.
struct Waiting {
    posted: u32,
    reads: u32,
    owner: *mut c_void,
}

/// A sender's, in order. Owners are ends of requests; they are followed by whoever is told of them.
#[derive(Default)]
pub(super) struct Marks(VecDeque<Waiting>);

impl Marks {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those who wait.
    pub(super) fn owners(&self) -> impl Iterator<Item = *mut c_void> {
        self.0.iter().map(|waiting| waiting.owner)
    }

    /// Those of whom this is true wait no more: who they are.
    pub(super) fn disown(&mut self, wanted: impl Fn(*mut c_void) -> bool) -> Vec<*mut c_void> {
        let found = self.owners().filter(|&owner| wanted(owner)).collect();
        self.0.retain(|waiting| !wanted(waiting.owner));
        found
    }
}

impl Sender {
    /// Has `owner` told from [`next_marked`](Self::next_marked) when all that was accepted has arrived, also what rails
    /// write, and what was read has come. False: nothing is to be waited for, or it cannot be told of now.
    pub fn mark(&mut self, owner: *mut c_void) -> bool {
        if self.rest.is_some() || self.is_drained() {
            return false;
        }
        let waiting = Waiting {
            posted: self.posted(),
            reads: self.reads,
            owner,
        };
        self.marks.0.push_back(waiting);
        if !self.has_read() {
            self.flow.watch();
        }
        // Whoever heard that all is there before this was listed tells nobody of it.
        let is_told = !self.is_drained() && self.ask_for_marks();
        if !is_told {
            self.marks.0.pop_back();
        }
        is_told
    }

    /// The next flush that has nothing in front of it any more. For whoever has heard that something has arrived: those
    /// that are left will be told of.
    pub fn next_marked(&mut self) -> Option<*mut c_void> {
        let Some(first) = self.marks.0.front() else {
            self.flow.unwatch();
            return None;
        };
        if self.flow.is_past(first.posted) && self.flow.has_come(first.reads) {
            let owner = first.owner;
            self.marks.0.pop_front();
            return Some(owner);
        }
        if !self.ask_for_marks() {
            self.iface.leave_unfinished(self.mark.link);
        }
        None
    }

    /// Has it told when what marks wait for has arrived. False: not now.
    pub(super) fn ask_for_marks(&mut self) -> bool {
        let Some(&Waiting { posted, .. }) = self.marks.0.back() else {
            return true;
        };
        if !self.is_told_of(posted) {
            self.ask();
        }
        // In this order, as there. Who hears an answer that does not tell asks again.
        self.broken || self.flow.is_asking() || self.flow.is_past(posted)
    }
}
