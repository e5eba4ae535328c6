//! When a worker that finds no work yields its core.
//!
//! Ranks that poll are meant to have a core each. Where they do not (more ranks than cores, a container with fewer
//! cores than it sees), a waiting rank occupies the core of the rank that it waits for until the kernel preempts it,
//! milliseconds later. So a worker that has polled in vain for a while calls `sched_yield`. A yield to which no other
//! thread responds costs a fraction of a microsecond, and makes the next one later.

use std::time::Duration;

/// Idle clock ticks before the first yield: a thousand progress calls.
const FIRST: u32 = 16;
/// Ticks before the next yield after one that was used: more calls than a short reply takes.
const SOON: u32 = 4;
/// Most ticks before a yield, after unused ones: few enough that a new thread gets the core soon, and enough that
/// yields take no more than hundredths of idle time. That the kernel returns at once does not prove that no other
/// thread wants the core.
const MOST: u32 = 64;
/// A yield that took so long was used: the system call takes a tenth of it.
const TAKEN: Duration = Duration::from_micros(10);

/// When an idle worker yields. Used by the progress thread.
pub struct IdleYield {
    /// Count of events when it was last read.
    seen: u64,
    /// Idle ticks since then.
    looks: u32,
    /// Idle ticks before the next yield.
    limit: u32,
}

impl Default for IdleYield {
    fn default() -> Self {
        Self {
            seen: 0,
            looks: 0,
            limit: FIRST,
        }
    }
}

impl IdleYield {
    /// A clock tick; true: the worker should yield. `happened`, called only where it matters, returns a number that
    /// differs if anything was done since the last call.
    pub fn is_over(&mut self, happened: impl FnOnce() -> u64) -> bool {
        self.looks += 1;
        if self.looks < self.limit {
            return false;
        }
        let happened = happened();
        if happened != self.seen {
            (self.seen, self.looks) = (happened, 0);
            return false;
        }
        true
    }

    /// Records a yield and its duration.
    pub fn offered(&mut self, took: Duration) {
        self.looks = 0;
        self.limit = if took >= TAKEN {
            SOON
        } else {
            (2 * self.limit).min(MOST)
        };
    }
}

/// Failed compare-and-swaps between two checks: all but one in so many only count.
pub const FAILURES_PER_LOOK: u32 = 64;
/// Checks in a row that find only failures before the worker progresses on behalf of a caller that does not.
const PROGRESS_AFTER: u32 = 4;

/// When a worker with failing compare-and-swaps yields or progresses: the word may be a lock whose holder is another
/// process that does not run, or whose release is a message that this worker has to execute. Each of the operations
/// completes inside of its call, so that neither idle progress nor a wait shows that they fail.
#[derive(Default)]
pub struct CasBackoff {
    /// Atomic operations of the worker at the last check.
    operations: u64,
    /// Checks that found enough other operations among them.
    moves: u64,
    /// Checks since the last of those.
    streak: u32,
    /// Progress calls until the next clock tick, at the last check.
    calls: u32,
    idle_yield: IdleYield,
}

/// Action of a worker whose compare-and-swaps fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackoffAction {
    /// Progress the worker: executes requests of peers.
    pub progress: bool,
    /// Yield the core.
    pub offer: bool,
}

impl CasBackoff {
    /// [`FAILURES_PER_LOOK`] more compare-and-swaps have failed. `operations`: atomic operations of the worker, ever;
    /// `calls`: a number that changes with each progress call.
    pub fn look(&mut self, operations: u64, calls: u32) -> BackoffAction {
        let since = operations.wrapping_sub(self.operations);
        let is_progressed = calls != self.calls;
        (self.operations, self.calls) = (operations, calls);
        self.streak += 1;
        // At least half of them succeed: the program proceeds.
        if since >= 2 * u64::from(FAILURES_PER_LOOK) {
            self.streak = 0;
            self.moves += 1;
        }
        let moves = self.moves;
        BackoffAction {
            progress: self.streak >= PROGRESS_AFTER && !is_progressed,
            offer: self.idle_yield.is_over(|| moves),
        }
    }

    /// Records a yield and its duration.
    pub fn offered(&mut self, took: Duration) {
        self.idle_yield.offered(took);
    }

    /// Progress was called on behalf of the caller: `calls` changed without a call of its own.
    pub fn progressed(&mut self, calls: u32) {
        self.calls = calls;
    }
}

/// Unexpected messages before the first yield: as many as programs usually have outstanding.
const FEW: u64 = 64;
/// Most of them before a yield, where the threads that receive them do not use it.
const MANY: u64 = 1 << 20;
/// A yield that took so long was used.
const SERVED: Duration = Duration::from_micros(2);
/// A receiving thread returns the core sooner. One that keeps it for longer computes, and would have got it anyway.
const FOREIGN: Duration = Duration::from_micros(100);

/// When a worker that threads share yields because of unexpected messages. Threads that share a core receive in turns:
/// the running one takes messages for itself and adds those for the others to the unexpected ones. The longer it runs,
/// the more of these leave the cache before their receivers read them. So it yields the core to those threads. Used by
/// the progress thread.
pub struct BacklogYield {
    /// Unexpected messages at the last yield, ever counted.
    seen: u64,
    /// Further ones before the next yield.
    limit: u64,
}

impl Default for BacklogYield {
    fn default() -> Self {
        Self {
            seen: 0,
            limit: FEW,
        }
    }
}

impl BacklogYield {
    /// Whether the worker should yield; `aside`: unexpected messages, ever counted.
    #[inline]
    pub fn is_over(&mut self, aside: u64) -> bool {
        let over = aside.wrapping_sub(self.seen) >= self.limit;
        if over {
            self.seen = aside;
        }
        over
    }

    /// Records a yield and its duration.
    pub fn offered(&mut self, took: Duration) {
        self.limit = if (SERVED..FOREIGN).contains(&took) {
            FEW
        } else {
            (2 * self.limit).min(MANY)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that has seen all events.
    fn up_to_date() -> IdleYield {
        let mut idle_yield = IdleYield::default();
        assert_eq!((1..=FIRST).find(|_| idle_yield.is_over(|| 7)), None);
        idle_yield
    }

    fn looks_until_over(idle_yield: &mut IdleYield) -> u32 {
        (1..1000).find(|_| idle_yield.is_over(|| 7)).unwrap()
    }

    #[test]
    fn unused_yields_become_rare() {
        let mut idle_yield = up_to_date();
        for expected in [FIRST, 2 * FIRST, 4 * FIRST] {
            assert_eq!(looks_until_over(&mut idle_yield), expected);
            idle_yield.offered(Duration::from_nanos(300));
        }
        for _ in 0..32 {
            idle_yield.offered(Duration::ZERO);
        }
        assert_eq!(looks_until_over(&mut idle_yield), MOST);
    }

    #[test]
    fn where_others_want_the_core_it_is_offered_soon() {
        let mut idle_yield = up_to_date();
        looks_until_over(&mut idle_yield);
        idle_yield.offered(Duration::from_millis(3));
        assert_eq!(looks_until_over(&mut idle_yield), SOON);
        idle_yield.offered(Duration::ZERO);
        assert_eq!(looks_until_over(&mut idle_yield), 2 * SOON);
    }

    const EACH: u64 = FAILURES_PER_LOOK as u64;

    #[test]
    fn failures_alone_lead_to_progress_and_then_to_an_offer() {
        let mut contention = CasBackoff::default();
        let looks: Vec<_> = (1..=u64::from(FIRST))
            .map(|n| contention.look(n * EACH, 7))
            .collect();
        let progress = looks.iter().position(|relief| relief.progress);
        assert_eq!(progress, Some(PROGRESS_AFTER as usize - 1));
        let offer = looks.iter().position(|relief| relief.offer);
        assert_eq!(offer, Some(FIRST as usize - 1));
        contention.offered(TAKEN);
        let mut n = u64::from(FIRST);
        let next = (1..100).find(|_| {
            n += 1;
            contention.look(n * EACH, 7).offer
        });
        assert_eq!(next, Some(SOON));
    }

    #[test]
    fn a_progressing_caller_gets_no_further_progress() {
        let mut contention = CasBackoff::default();
        let progressed = |n: u32| contention.look(u64::from(n) * EACH, n).progress;
        assert!(!(1..1000).any(progressed));
    }

    #[test]
    fn failures_among_as_many_successes_are_none() {
        let mut contention = CasBackoff::default();
        let relieved = |n: u64| contention.look(n * 2 * EACH, 7) != BackoffAction::default();
        assert!(!(1..1000).any(relieved));
    }

    #[test]
    fn messages_of_others_are_offers() {
        let mut backlog = BacklogYield::default();
        let offers = |backlog: &mut BacklogYield, from: u64, took| {
            let over = |&aside: &u64| backlog.is_over(from + aside);
            let at = (1..=4 * MANY).find(over).unwrap();
            backlog.offered(took);
            at
        };
        assert_eq!(offers(&mut backlog, 0, SERVED), FEW);
        assert_eq!(offers(&mut backlog, FEW, Duration::ZERO), FEW);
        assert_eq!(offers(&mut backlog, 2 * FEW, Duration::ZERO), 2 * FEW);
        for _ in 0..32 {
            backlog.offered(FOREIGN);
        }
        assert_eq!(offers(&mut backlog, 4 * FEW, SERVED), MANY);
        assert_eq!(offers(&mut backlog, 4 * FEW + MANY, SERVED), FEW);
    }

    #[test]
    fn events_restart_the_idle_count() {
        let mut idle_yield = IdleYield::default();
        for happened in 1..1000 {
            assert!(!idle_yield.is_over(|| happened));
        }
    }
}
