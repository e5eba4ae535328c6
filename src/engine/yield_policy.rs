//! How long a worker that sees nothing come keeps its core to itself.
//!
//! Ranks that poll are meant to have a core each. Where they do not (more ranks than cores, a container that was given
//! less than it sees), one that waits keeps the one it waits for from running until the kernel takes the core away from
//! it, milliseconds later. So whoever has polled for a while in vain offers its core to others. An offer that nobody
//! takes costs a fraction of a microsecond, and makes the next one come later.

use std::time::Duration;

/// Looks at the clock in vain before the first offer: a thousand calls of progress.
const FIRST: u32 = 16;
/// Looks before the next offer, where others took the last one: more calls than a short answer takes.
const SOON: u32 = 4;
/// Most looks before an offer, where nobody takes them: few enough that others that come are soon noticed, and so many
/// that offers cost no more than hundredths of time in which nothing happens. That the kernel comes back at once does
/// not prove that nobody is there.
const MOST: u32 = 64;
/// An offer that took so long was taken: a system call and back takes a tenth.
const TAKEN: Duration = Duration::from_micros(10);

/// The account of one worker. Touched by the thread that progresses.
pub struct IdleYield {
    /// How much had happened when that was last asked.
    seen: u64,
    /// Looks since then.
    looks: u32,
    /// As many before the next offer.
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
    /// A look at the clock: whether it is time to offer the core to others. `happened`, asked only where it may be: a
    /// number that is another one if anything was done since it was asked last.
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

    /// The core was offered, and it took so long to have it back.
    pub fn offered(&mut self, took: Duration) {
        self.looks = 0;
        self.limit = if took >= TAKEN {
            SOON
        } else {
            (2 * self.limit).min(MOST)
        };
    }
}

/// Failed compare-and-swaps between two looks at the account: all but one in so many cost no more than a count.
pub const FAILURES_PER_LOOK: u32 = 64;
/// Looks in a row at nothing but failures before the worker progresses by itself, for a caller who does not.
const PROGRESS_AFTER: u32 = 4;

/// The account of a worker's compare-and-swaps that find another value than they want: a lock that another process
/// holds, which may not be running, or whose release is a message that this worker has to execute. Each of them ends
/// inside of its call, so that neither idle progress nor a wait tells that nothing comes of them.
#[derive(Default)]
pub struct CasBackoff {
    /// Atomic operations of the worker at the last look.
    operations: u64,
    /// Looks that found enough others among them.
    moves: u64,
    /// Looks since the last of those.
    streak: u32,
    /// Calls to the next look at the clock, as progress counts them, at the last look.
    calls: u32,
    patience: IdleYield,
}

/// What a worker does whose compare-and-swaps fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackoffAction {
    /// Executes what peers ask for.
    pub progress: bool,
    /// Offers its core to others.
    pub offer: bool,
}

impl CasBackoff {
    /// [`FAILURES_PER_LOOK`] compare-and-swaps more have failed. `operations`: atomic operations of the worker, ever;
    /// `calls`: a number that another one follows with each call of progress.
    pub fn look(&mut self, operations: u64, calls: u32) -> BackoffAction {
        let since = operations.wrapping_sub(self.operations);
        let is_progressed = calls != self.calls;
        (self.operations, self.calls) = (operations, calls);
        self.streak += 1;
        // Half of them succeed: the program gets on.
        if since >= 2 * u64::from(FAILURES_PER_LOOK) {
            self.streak = 0;
            self.moves += 1;
        }
        let moves = self.moves;
        BackoffAction {
            progress: self.streak >= PROGRESS_AFTER && !is_progressed,
            offer: self.patience.is_over(|| moves),
        }
    }

    /// The core was offered, and it took so long to have it back.
    pub fn offered(&mut self, took: Duration) {
        self.patience.offered(took);
    }

    /// Progress was made for the caller: not the caller's own.
    pub fn progressed(&mut self, calls: u32) {
        self.calls = calls;
    }
}

/// Messages that are laid aside before the first offer: as many as programs like to have under way.
const FEW: u64 = 64;
/// Most of them before an offer, where threads that they may be for do not take it.
const MANY: u64 = 1 << 20;
/// An offer that took so long was taken.
const SERVED: Duration = Duration::from_micros(2);
/// A thread that receives is back sooner. Who keeps the core for longer computes, and was to have it anyway.
const FOREIGN: Duration = Duration::from_micros(100);

/// The account of a worker that threads share, of messages that nobody waits for. Threads that share a core receive in
/// turns: while the one whose turn it is takes messages for itself, it lays those for the others aside. The longer it
/// does, the more: they leave the cache, and whoever receives them later fetches them again. So it offers the core
/// to those whom they may be for. Touched by the thread that progresses.
pub struct BacklogYield {
    /// Messages that had been laid aside at the last offer.
    seen: u64,
    /// As many more before the next one.
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
    /// Whether it is time to offer the core to others; `aside`: messages laid aside, ever.
    #[inline]
    pub fn is_over(&mut self, aside: u64) -> bool {
        let over = aside.wrapping_sub(self.seen) >= self.limit;
        if over {
            self.seen = aside;
        }
        over
    }

    /// The core was offered, and it took so long to have it back.
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

    /// One that knows of all that has happened.
    fn up_to_date() -> IdleYield {
        let mut patience = IdleYield::default();
        assert_eq!((1..=FIRST).find(|_| patience.is_over(|| 7)), None);
        patience
    }

    fn looks_until_over(patience: &mut IdleYield) -> u32 {
        (1..1000).find(|_| patience.is_over(|| 7)).unwrap()
    }

    #[test]
    fn offers_that_nobody_takes_become_rare() {
        let mut patience = up_to_date();
        for expected in [FIRST, 2 * FIRST, 4 * FIRST] {
            assert_eq!(looks_until_over(&mut patience), expected);
            patience.offered(Duration::from_nanos(300));
        }
        for _ in 0..32 {
            patience.offered(Duration::ZERO);
        }
        assert_eq!(looks_until_over(&mut patience), MOST);
    }

    #[test]
    fn where_others_want_the_core_it_is_offered_soon() {
        let mut patience = up_to_date();
        looks_until_over(&mut patience);
        patience.offered(Duration::from_millis(3));
        assert_eq!(looks_until_over(&mut patience), SOON);
        patience.offered(Duration::ZERO);
        assert_eq!(looks_until_over(&mut patience), 2 * SOON);
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
    fn a_caller_who_progresses_does_so_alone() {
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
        let mut crowd = BacklogYield::default();
        let offers = |crowd: &mut BacklogYield, from: u64, took| {
            let over = |&aside: &u64| crowd.is_over(from + aside);
            let at = (1..=4 * MANY).find(over).unwrap();
            crowd.offered(took);
            at
        };
        assert_eq!(offers(&mut crowd, 0, SERVED), FEW);
        assert_eq!(offers(&mut crowd, FEW, Duration::ZERO), FEW);
        assert_eq!(offers(&mut crowd, 2 * FEW, Duration::ZERO), 2 * FEW);
        for _ in 0..32 {
            crowd.offered(FOREIGN);
        }
        assert_eq!(offers(&mut crowd, 4 * FEW, SERVED), MANY);
        assert_eq!(offers(&mut crowd, 4 * FEW + MANY, SERVED), FEW);
    }

    #[test]
    fn what_happens_renews_it() {
        let mut patience = IdleYield::default();
        for happened in 1..1000 {
            assert!(!patience.is_over(|| happened));
        }
    }
}
