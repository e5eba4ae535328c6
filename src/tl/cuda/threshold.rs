//! From which length on messages from memory of a device go by rendezvous: where that costs less than to send them with
//! the request, through pinned host memory of both sides.
//!
//! Only what this process knows counts: the pace between its device and pinned memory is measured once; copies by the
//! driver between its device and others are those that it has made as a receiver, or as the options have them.

use super::context::CudaContext;
use super::cost::{CopyCost, SHORT};
use crate::sys::cuda::{CuDevice, MemoryInfo};
use crate::sys::log;

/// Shortest message that goes by rendezvous because that costs less, bytes: sends of shorter ones complete without the
/// receiver.
pub const MIN_RNDV: usize = 1 << 10;

/// Longest threshold, bytes: a longer one is that no message goes by rendezvous because that costs less.
const MAX_THRESHOLD: f64 = (1u64 << 40) as f64;

/// The cost of the steps between which the threshold selects.
#[derive(Clone, Copy, Debug)]
struct StepCosts {
    /// Of the one copy of a rendezvous, by the receiver's driver or an adapter.
    rendezvous: CopyCost,
    /// Between a device and pinned memory, of which an eager message takes two steps.
    pinned: CopyCost,
    /// Of which an eager message takes one step, and a rendezvous two without data.
    lane: CopyCost,
}

impl StepCosts {
    /// Bytes from which on a rendezvous costs less; `None`: it never does.
    fn threshold(self) -> Option<usize> {
        let StepCosts {
            rendezvous,
            pinned,
            lane,
        } = self;
        let extra_ns = lane.copy_ns + rendezvous.copy_ns - 2.0 * pinned.copy_ns;
        let saved_ns = 2.0 * pinned.byte_ns + lane.byte_ns - rendezvous.byte_ns;
        if extra_ns <= 0.0 && saved_ns >= 0.0 {
            return Some(MIN_RNDV);
        }
        // Where each byte costs more a rendezvous is the cheaper way of short messages only, if of any.
        let bytes = (extra_ns / saved_ns).ceil();
        (saved_ns > 0.0 && bytes <= MAX_THRESHOLD).then_some((bytes as usize).max(MIN_RNDV))
    }
}

/// What copies the bytes of a rendezvous, as printed.
const BY_DRIVER: &str = "by the driver";
const BY_ADAPTER: &str = "by the adapter";

impl CudaContext {
    /// Bytes of the shortest message from memory of a device that goes by rendezvous where the receiver's driver copies
    /// it, by what the ways cost; `usize::MAX`: none. `None`: not known. `lane`: the cost of the lane to the receiver.
    pub fn device_copy_thresh(&self, near: &MemoryInfo, lane: CopyCost) -> Option<usize> {
        let cost = self.choices.driver_cost_near(near.device)?;
        self.thresh_of(near, BY_DRIVER, (cost, self.choices.source()), lane)
    }

    /// [`device_copy_thresh`](Self::device_copy_thresh) where an adapter of either side moves the bytes.
    pub fn zcopy_thresh(&self, near: &MemoryInfo, lane: CopyCost) -> Option<usize> {
        self.thresh_of(near, BY_ADAPTER, (lane, "estimated"), lane)
    }

    /// [`device_copy_thresh`](Self::device_copy_thresh) for the first device of which the costs are known already.
    pub fn known_device_copy_thresh(&self, lane: CopyCost) -> Option<usize> {
        self.known_thresh(|device| self.choices.driver_cost_near(device), lane)
    }

    /// [`zcopy_thresh`](Self::zcopy_thresh) for the first device of which the costs are known already.
    pub fn known_zcopy_thresh(&self, lane: CopyCost) -> Option<usize> {
        self.known_thresh(|_| Some(lane), lane)
    }

    fn known_thresh(
        &self,
        rendezvous: impl Fn(CuDevice) -> Option<CopyCost>,
        lane: CopyCost,
    ) -> Option<usize> {
        let costs = self
            .choices
            .measured_devices()
            .into_iter()
            .find_map(|device| {
                Some(StepCosts {
                    rendezvous: rendezvous(device)?,
                    pinned: self.choices.pinned_line(device)?,
                    lane,
                })
            });
        costs.map(|costs| costs.threshold().unwrap_or(usize::MAX))
    }

    /// `by`: what moves the bytes of a rendezvous at `cost`, which is known from `source`.
    fn thresh_of(
        &self,
        near: &MemoryInfo,
        by: &'static str,
        (cost, source): (CopyCost, &str),
        lane: CopyCost,
    ) -> Option<usize> {
        let costs = StepCosts {
            rendezvous: cost,
            pinned: self.pinned_line(near)?,
            lane,
        };
        let threshold = costs.threshold();
        self.print_threshold(near, by, (costs, source), threshold);
        Some(threshold.unwrap_or(usize::MAX))
    }

    /// The cost of copies between a device and pinned memory, short and long ones: measured with the first allocation
    /// that is long enough, `near`. `None`: not measured yet, or that fails.
    fn pinned_line(&self, near: &MemoryInfo) -> Option<CopyCost> {
        if let Some(known) = self.choices.pinned_line(near.device) {
            return Some(known);
        }
        if near.len <= SHORT as u64 {
            return None;
        }
        self.pinned_cost(near, near.start, usize::try_from(near.len).ok()?)?;
        self.choices.pinned_line(near.device)
    }

    /// Prints a threshold and its terms, if that is asked for and the last one that was printed is less than half or
    /// more than twice as long.
    fn print_threshold(
        &self,
        near: &MemoryInfo,
        by: &'static str,
        (costs, source): (StepCosts, &str),
        threshold: Option<usize>,
    ) {
        let device = near.device;
        if !self.choices.prints || !self.choices.is_new_threshold((device, by), threshold) {
            return;
        }
        let from = match threshold {
            Some(bytes) => format!("from {bytes} bytes on by rendezvous"),
            None => "eager up to a record".to_owned(),
        };
        let step = |cost: CopyCost| format!("{:.2} GB/s after {:.1} us", cost.gbps(), cost.us());
        log::asked(&format!(
            "CUDA: messages from device {device} {from}: {by} {} ({source}), through pinned host memory twice {} \
             (measured), by the lane {} (estimated)",
            step(costs.rendezvous),
            step(costs.pinned),
            step(costs.lane),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(copy_ns: f64, byte_ns: f64) -> CopyCost {
        CopyCost { copy_ns, byte_ns }
    }

    fn threshold(rendezvous: CopyCost, pinned: CopyCost, lane: CopyCost) -> Option<usize> {
        let costs = StepCosts {
            rendezvous,
            pinned,
            lane,
        };
        costs.threshold()
    }

    #[test]
    fn both_ways_cost_the_same_at_the_threshold() {
        let (by_driver, pinned, lane) = (cost(20e3, 0.25), cost(5e3, 0.5), cost(1e3, 0.25));
        let bytes = threshold(by_driver, pinned, lane).unwrap();
        let eager = 2.0 * pinned.time(bytes) + lane.time(bytes);
        let rendezvous = 2.0 * lane.copy_ns + by_driver.time(bytes);
        assert_eq!(bytes, 11_000);
        assert!((eager - rendezvous).abs() < 2.0, "{eager} {rendezvous}");
    }

    #[test]
    fn short_messages_are_eager_and_so_are_all_where_each_byte_costs_more() {
        let (pinned, lane) = (cost(5e3, 0.5), cost(1e3, 0.25));
        assert_eq!(threshold(cost(0.0, 0.1), pinned, lane), Some(MIN_RNDV));
        assert_eq!(threshold(cost(9_001.0, 0.1), pinned, lane), Some(MIN_RNDV));
        assert_eq!(threshold(cost(20e3, 5.0), pinned, lane), None);
        assert_eq!(threshold(cost(0.0, 5.0), pinned, lane), None);
        assert_eq!(threshold(cost(20e3, 1.25), pinned, lane), None, "the same");
        let tiny = f64::from_bits(1.25f64.to_bits() - 1);
        assert_eq!(threshold(cost(20e3, tiny), pinned, lane), None);
    }
}
