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
/// that offers cost no more than hundredths of time in which nothing happens. That the kernel comes back at once does not
/// prove that nobody is there.
const MOST: u32 = 64;
/// An offer that took so long was taken: a system call and back takes a tenth.
const TAKEN: Duration = Duration::from_micros(10);

/// The account of one worker. Touched by the thread that progresses.
pub struct Patience {
    /// How much had happened when that was last asked.
    seen: u64,
    /// Looks since then.
    looks: u32,
    /// As many before the next offer.
    limit: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            seen: 0,
            looks: 0,
            limit: FIRST,
        }
    }
}

impl Patience {
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
pub struct Crowd {
    /// Messages that had been laid aside at the last offer.
    seen: u64,
    /// As many more before the next one.
    limit: u64,
}

impl Default for Crowd {
    fn default() -> Self {
        Self {
            seen: 0,
            limit: FEW,
        }
    }
}

impl Crowd {
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
    fn up_to_date() -> Patience {
        let mut patience = Patience::default();
        assert_eq!((1..=FIRST).find(|_| patience.is_over(|| 7)), None);
        patience
    }

    fn looks_until_over(patience: &mut Patience) -> u32 {
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

    #[test]
    fn messages_of_others_are_offers() {
        let mut crowd = Crowd::default();
        let offers = |crowd: &mut Crowd, from: u64, took| {
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
        let mut patience = Patience::default();
        for happened in 1..1000 {
            assert!(!patience.is_over(|| happened));
        }
    }
}
