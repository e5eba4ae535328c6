//! What copies cost: a time for each copy, and a time for each byte, from copies that were measured.
#![forbid(unsafe_code)]

use std::time::Duration;

/// Longest copy that counts as short, bytes: its time is mostly that of each copy.
pub(super) const SHORT: usize = 128 << 10;

/// A copy is estimated from measured ones of its class, of which the longest has at least this share of its bytes.
const SHARE: usize = 4;

/// Time that copies of one kind take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CopyCost {
    /// Of each copy, nanoseconds.
    pub copy_ns: f64,
    /// Of each byte, nanoseconds.
    pub byte_ns: f64,
}

impl CopyCost {
    /// The cost of copies of a lane, of which latency, seconds, and bandwidth, bytes per second, are known.
    pub fn of_lane(latency: f64, bandwidth: f64) -> CopyCost {
        CopyCost {
            copy_ns: latency * 1e9,
            byte_ns: 1e9 / bandwidth,
        }
    }

    /// Nanoseconds of a copy of `len` bytes.
    pub fn time(self, len: usize) -> f64 {
        self.copy_ns + self.byte_ns * len as f64
    }

    /// Microseconds of each copy.
    pub fn us(self) -> f64 {
        self.copy_ns / 1e3
    }

    /// GB/s without the time of each copy.
    pub fn gbps(self) -> f64 {
        1.0 / self.byte_ns
    }
}

/// Nanoseconds of a message of `len` bytes through pinned memory of both hosts, in fragments of `fragment` bytes, by a
/// lane. The devices of both sides cost the same. The slowest of the three sets the pace, once the first fragment has
/// passed the others.
pub(super) fn through_host(device: CopyCost, lane: CopyCost, len: usize, fragment: usize) -> f64 {
    let slowest = device.byte_ns.max(lane.byte_ns);
    let first = fragment.min(len) as f64;
    let others = len as f64 - first;
    let passes = first * (2.0 * device.byte_ns + lane.byte_ns);
    2.0 * device.copy_ns + lane.copy_ns + passes + others * slowest
}

/// The best of the measured copies of one class, and how many there were.
#[derive(Clone, Copy, Debug, Default)]
struct CopyClass {
    count: u32,
    longest: usize,
    /// Bytes and nanoseconds of the copy with the least time for each byte.
    best: Option<(usize, f64)>,
}

impl CopyClass {
    fn add(&mut self, len: usize, ns: f64) {
        self.count += 1;
        self.longest = self.longest.max(len);
        let per_byte = |(len, ns): (usize, f64)| ns / len as f64;
        if self
            .best
            .is_none_or(|best| per_byte((len, ns)) < per_byte(best))
        {
            self.best = Some((len, ns));
        }
    }
}

/// Measured copies of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CopySamples {
    short: CopyClass,
    long: CopyClass,
}

impl CopySamples {
    /// A copy of `len` bytes was measured.
    pub fn add(&mut self, len: usize, took: Duration) {
        let ns = took.as_secs_f64() * 1e9;
        if len > 0 && ns > 0.0 {
            let class = if len <= SHORT {
                &mut self.short
            } else {
                &mut self.long
            };
            class.add(len, ns);
        }
    }

    /// Whether a copy of `len` bytes can be estimated from at least `count` measured ones.
    pub fn cover(&self, len: usize, count: u32) -> bool {
        match len <= SHORT {
            true => self.short.count >= count,
            false => self.long.count >= count && self.long.longest >= len / SHARE,
        }
    }

    /// Whether short copies and long ones were measured.
    pub fn has_both(&self) -> bool {
        self.short.count > 0 && self.long.count > 0
    }

    /// The cost, if a copy was measured: a line through the best short copy and the best long one.
    pub fn cost(&self) -> Option<CopyCost> {
        let of_bytes = |(len, ns): (usize, f64)| CopyCost {
            copy_ns: 0.0,
            byte_ns: ns / len as f64,
        };
        match (self.short.best, self.long.best) {
            (Some((short, short_ns)), Some((long, long_ns))) if long_ns > short_ns => {
                let byte_ns = (long_ns - short_ns) / (long - short) as f64;
                let copy_ns = (short_ns - byte_ns * short as f64).max(0.0);
                Some(CopyCost { copy_ns, byte_ns })
            }
            (short, long) => long.or(short).map(of_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn samples(of: &[(usize, u64)]) -> CopySamples {
        let mut samples = CopySamples::default();
        for &(len, us) in of {
            samples.add(len, Duration::from_micros(us));
        }
        samples
    }

    #[test]
    fn nothing_measured_has_no_cost() {
        assert_eq!(samples(&[]).cost(), None);
        assert_eq!(samples(&[(0, 7), (7, 0)]).cost(), None);
    }

    #[test]
    fn a_short_and_a_long_copy_give_a_line() {
        // 10 us, and 1 ns for each byte.
        let cost = samples(&[(100_000, 110), (1_100_000, 1_110)])
            .cost()
            .unwrap();
        assert!((cost.byte_ns - 1.0).abs() < 1e-9 && (cost.copy_ns - 10_000.0).abs() < 1e-3);
        assert!((cost.time(500_000) - 510_000.0).abs() < 1e-3);
    }

    #[test]
    fn the_fastest_copy_of_a_class_counts() {
        let cost = samples(&[(MIB, 900), (MIB, 300), (MIB, 500)])
            .cost()
            .unwrap();
        assert_eq!(cost.copy_ns, 0.0);
        assert!((cost.time(MIB) - 300_000.0).abs() < 1e-3);
    }

    #[test]
    fn estimates_need_enough_copies_of_about_their_length() {
        let of = samples(&[(MIB, 1), (MIB, 1), (1000, 1)]);
        assert!(of.cover(MIB, 2) && of.cover(4 * MIB, 2) && !of.cover(4 * MIB, 3));
        assert!(!of.cover(4 * MIB + 4, 2), "longer than any");
        assert!(of.cover(SHORT, 1) && !of.cover(SHORT, 2));
    }

    #[test]
    fn the_slowest_stage_sets_the_pace_through_the_host() {
        let cost = |byte_ns| CopyCost {
            copy_ns: 0.0,
            byte_ns,
        };
        // One fragment passes three stages, the others take the time of the slowest.
        assert_eq!(
            through_host(cost(2.0), cost(1.0), 1000, 100),
            100.0 * 5.0 + 900.0 * 2.0
        );
        assert_eq!(
            through_host(cost(1.0), cost(4.0), 1000, 100),
            100.0 * 6.0 + 900.0 * 4.0
        );
        assert_eq!(through_host(cost(1.0), cost(1.0), 10, 100), 30.0);
    }
}
