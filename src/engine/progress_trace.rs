//! What the timeline records of a worker's progress: calls that take long, gaps between calls while operations are
//! outstanding, and the lengths of its queues ([`trace`]).

use crate::sys::trace::{self, ArgValue, EventArg, EventPhase};

/// Nanoseconds from which on a call of progress is recorded.
const LONG_CALL_NS: u64 = 1_000_000;
/// Nanoseconds from which on the time between two calls is recorded, if operations are outstanding.
const LONG_GAP_NS: u64 = 10_000_000;
/// Nanoseconds between two records of the lengths of the queues.
const SAMPLE_NS: u64 = 1_000_000;

/// Lengths of the queues of a worker.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueLengths {
    /// Requests that the program or the library holds.
    pub requests: u64,
    /// Posted tagged receives.
    pub posted: usize,
    /// Unexpected tagged messages.
    pub unexpected: usize,
    /// Requests that wait for room on their connection, or for a connection.
    pub pending: usize,
    /// Requests that peers know by an id: their data or an answer are to come.
    pub announced: usize,
}

impl QueueLengths {
    /// Whether an operation waits for a call of progress, here or at a peer. Not a request that is complete, and that
    /// the program has not freed.
    fn is_waiting(self) -> bool {
        self.posted > 0 || self.pending > 0 || self.announced > 0
    }

    /// As arguments of an event.
    pub fn args(self) -> [EventArg; 5] {
        [
            ("requests", self.requests.into()),
            ("posted", self.posted.into()),
            ("unexpected", self.unexpected.into()),
            ("pending", self.pending.into()),
            ("announced", self.announced.into()),
        ]
    }
}

/// The last call of progress. The progress thread's.
#[derive(Default)]
pub struct ProgressTrace {
    /// When it began and ended, nanoseconds; 0: there was none.
    began: u64,
    ended: u64,
    /// The thread that called.
    thread: i32,
    /// The call has raised the flag of deferred work itself, to find its end.
    has_raised: bool,
    /// The program has armed the worker since, and may sleep.
    is_armed: bool,
    /// The lengths that were recorded last, and when.
    lengths: QueueLengths,
    sampled: u64,
}

impl ProgressTrace {
    /// The program arms the worker.
    pub fn armed(&mut self) {
        self.is_armed = true;
    }

    /// Whether the deferred work of this call is only the record of its end.
    pub fn has_raised(&self) -> bool {
        self.has_raised
    }

    /// A call begins at `now`. `has_raised`: it has raised the flag of deferred work itself.
    pub fn begin(&mut self, now: u64, has_raised: bool) {
        (self.began, self.ended) = (now, now);
        self.thread = trace::this_thread();
        self.is_armed = false;
        self.has_raised = has_raised;
    }

    /// A call ends at `now`, unless it has more to do, with queues of these lengths. Returns whether they are to be
    /// recorded.
    pub fn end(&mut self, now: u64, lengths: QueueLengths) -> bool {
        self.has_raised = false;
        self.ended = now;
        let is_due = lengths != self.lengths && now - self.sampled >= SAMPLE_NS;
        if is_due {
            self.sampled = now;
        }
        self.lengths = lengths;
        is_due
    }

    /// Records the last call of worker `uid`, if it took long, and the time since, at `now`, if an operation waits
    /// then. One that was begun in between counts, one that is complete does not.
    pub fn record(&self, uid: u64, now: u64, lengths: impl FnOnce() -> QueueLengths) {
        if self.ended == 0 {
            return;
        }
        let name = ("worker", ArgValue::Hex(uid));
        let lasted = self.ended - self.began;
        if lasted >= LONG_CALL_NS {
            let at = (self.began, lasted, self.thread);
            trace::slice_of("progress", "long progress", at, std::slice::from_ref(&name));
        }
        if now - self.ended < LONG_GAP_NS {
            return;
        }
        let lengths = lengths();
        if lengths.is_waiting() {
            let kind = if self.is_armed {
                "poll gap, armed"
            } else {
                "poll gap"
            };
            let [a, b, c, d, e] = lengths.args();
            let args = [name, a, b, c, d, e];
            // The time since the boot of a call's end names the gap.
            let id = uid ^ self.ended;
            trace::operation(EventPhase::Begin, "progress", kind, id, self.ended, &args);
            trace::operation(EventPhase::End, "progress", kind, id, now, &[]);
        }
    }
}
