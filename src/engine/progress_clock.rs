//! How often progress reads the clock.

use super::worker::Rx;
use crate::sys::clock;
use std::mem;

/// Maximum number of progress calls between two reads of the clock. Small enough that the death of a peer is detected
/// in time by a program that begins to call only every 10 ms; a read costs about 25 ns.
const CLOCK_EVERY: u32 = 64;

/// A read of the clock by progress.
#[derive(Clone, Copy)]
pub struct Tick {
    /// Coarse milliseconds.
    pub now: u64,
    /// Whether the clock shows another time than at the last read.
    pub advanced: bool,
}

impl Rx {
    /// Reads the clock, and sets the number of progress calls until the next read.
    pub fn read_clock(&mut self) -> Tick {
        let now = clock::coarse_ms();
        let advanced = now != self.last_tick;
        // The time in which other processes had the core is not the caller's.
        let spent = now.saturating_sub(self.last_tick + mem::take(&mut self.yielded_ms));
        self.clock_interval = clock_interval(self.clock_interval, spent);
        (self.calls, self.last_tick) = (self.clock_interval, now);
        Tick { now, advanced }
    }

    /// Whether the caller progresses so often that the clock is read at the longest interval.
    pub fn is_busy_polling(&self) -> bool {
        self.clock_interval == CLOCK_EVERY
    }
}

/// Progress calls until the next read of the clock, if the last `calls` took so many milliseconds: fewer for a slow
/// caller.
fn clock_interval(calls: u32, milliseconds: u64) -> u32 {
    match milliseconds {
        0..8 => (2 * calls).min(CLOCK_EVERY),
        8..32 => calls,
        _ => (u64::from(calls) * 16 / milliseconds).max(1) as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_caller_reads_the_clock_more_often() {
        assert_eq!(clock_interval(CLOCK_EVERY, 0), CLOCK_EVERY);
        assert_eq!(clock_interval(16, 7), 32);
        assert_eq!(clock_interval(16, 31), 16);
        assert_eq!(clock_interval(CLOCK_EVERY, 64 * 10), 1);
        assert_eq!(clock_interval(1, 10_000), 1);
    }
}
