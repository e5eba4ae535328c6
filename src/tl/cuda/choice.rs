//! What a context knows of the cost of copies between its devices and those of peers, by which `selection` selects.
#![forbid(unsafe_code)]

use super::cost::{CopyCost, CopySamples};
use crate::options::Options;
use crate::sys::cuda::{CuContext, CuDevice};
use crate::wire::device_handle::UUID;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

/// Copies of a class by which a way is estimated: the first one between two devices takes longer.
const MEASURED: u32 = 3;
/// Length of messages by which the cost of pairs is compared, bytes: about the longest of one record.
const COMPARED: usize = 24 << 10;
/// One of so many messages of a pair that goes through the host is copied by the driver, and measured.
const TRIED: u32 = 64;

/// How the receiver of a message gets its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyWay {
    /// It copies them from the sender's memory.
    Driver,
    /// The sender sends them, through pinned host memory of both sides.
    Pinned,
}

/// A device of a peer, and another device, by which this process copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DevicePair {
    pub of: [u8; UUID],
    pub near: CuDevice,
}

/// What is known of a pair.
#[derive(Default)]
struct PairState {
    /// Copies by the driver.
    samples: CopySamples,
    /// The next copy by the driver is measured.
    is_due: bool,
    /// Messages through the host since the last copy by the driver.
    by_host: u32,
    /// The last line that was printed.
    printed: String,
}

/// The cost of copies by the driver.
enum DriverCost {
    Measured,
    /// As the options have it.
    Stated(CopyCost),
}

/// Copies between a device and pinned memory, as measured.
#[derive(Default)]
pub(super) struct PinnedSamples {
    pub samples: CopySamples,
    /// The context in which they could not be measured: that is not tried again.
    pub failed_in: Option<CuContext>,
}

/// The ways, by what was measured.
pub(super) struct CopyChoices {
    driver: DriverCost,
    pairs: Mutex<HashMap<DevicePair, PairState>>,
    /// Copies between devices and pinned memory.
    pub(super) pinned: Mutex<HashMap<CuDevice, PinnedSamples>>,
    /// `UCX_PROTO_INFO` asks for choices.
    pub(super) prints: bool,
    /// The last threshold of rendezvous that was printed, by the device and by what copies.
    thresholds: Mutex<HashMap<(CuDevice, &'static str), Option<usize>>>,
}

impl CopyChoices {
    /// Nothing is measured.
    pub fn new(options: &Options) -> CopyChoices {
        let latency = options.cuda.ipc_latency.as_secs_f64();
        let driver = match options.cuda.ipc_bandwidth.rate() {
            Some(bandwidth) => DriverCost::Stated(CopyCost::of_lane(latency, bandwidth)),
            None => DriverCost::Measured,
        };
        CopyChoices {
            driver,
            pairs: Mutex::default(),
            pinned: Mutex::default(),
            thresholds: Mutex::default(),
            prints: matches!(
                options.proto_info.as_str(),
                "y" | "yes" | "on" | "1" | "used"
            ),
        }
    }

    /// Whether a copy of `len` bytes of a pair is to be measured.
    pub fn measures(&self, pair: DevicePair, len: usize) -> bool {
        match self.driver {
            DriverCost::Stated(_) => false,
            DriverCost::Measured => {
                let mut pairs = self.pairs.lock();
                let state = pairs.entry(pair).or_default();
                state.is_due || !state.samples.cover(len, MEASURED)
            }
        }
    }

    /// A copy of a pair was measured.
    pub fn add(&self, pair: DevicePair, len: usize, took: Duration) {
        let mut pairs = self.pairs.lock();
        let state = pairs.entry(pair).or_default();
        state.samples.add(len, took);
        state.is_due = false;
    }

    /// The cost of a copy of `len` bytes by the driver. `None`: not measured yet.
    pub fn driver_cost(&self, pair: DevicePair, len: usize) -> Option<CopyCost> {
        if let DriverCost::Stated(cost) = self.driver {
            return Some(cost);
        }
        let pairs = self.pairs.lock();
        let samples = &pairs.get(&pair)?.samples;
        samples.cost().filter(|_| samples.cover(len, MEASURED))
    }

    /// The cost of copies by the driver between a device of this process and that of a peer from which they are the
    /// fastest: as the options have it, or measured. `None`: of none both short and long ones were measured, without
    /// which the time of each copy is not known.
    pub fn driver_cost_near(&self, device: CuDevice) -> Option<CopyCost> {
        if let DriverCost::Stated(cost) = self.driver {
            return Some(cost);
        }
        let pairs = self.pairs.lock();
        let of_device = pairs.iter().filter(|(pair, _)| pair.near == device);
        let costs = of_device
            .map(|(_, PairState { samples, .. })| samples)
            .filter(|samples| samples.cover(COMPARED, MEASURED) && samples.has_both())
            .filter_map(CopySamples::cost);
        costs.min_by(|a, b| a.time(COMPARED).total_cmp(&b.time(COMPARED)))
    }

    /// Devices of which copies from or to pinned memory were measured, in the order of their numbers.
    pub fn measured_devices(&self) -> Vec<CuDevice> {
        let mut devices: Vec<CuDevice> = self.pinned.lock().keys().copied().collect();
        devices.sort_unstable();
        devices
    }

    /// The cost of copies between a device and pinned memory, if short and long ones were measured.
    pub fn pinned_line(&self, device: CuDevice) -> Option<CopyCost> {
        let pinned = self.pinned.lock();
        let samples = &pinned.get(&device)?.samples;
        samples.cost().filter(|_| samples.has_both())
    }

    /// Whether the last threshold that was printed is less than half or more than twice this one, or there was none.
    /// Then this one is the last from now on.
    pub fn is_new_threshold(&self, of: (CuDevice, &'static str), threshold: Option<usize>) -> bool {
        let mut thresholds = self.thresholds.lock();
        let is_new = match (thresholds.get(&of), threshold) {
            (Some(&Some(last)), Some(new)) => last.min(new) < last.max(new) / 2,
            (Some(&last), new) => last != new,
            (None, _) => true,
        };
        if is_new {
            thresholds.insert(of, threshold);
        }
        is_new
    }

    /// Counts a message through the host. The driver, if it is tried again.
    pub fn count_by_host(&self, pair: DevicePair) -> CopyWay {
        let mut pairs = self.pairs.lock();
        let state = pairs.entry(pair).or_default();
        state.by_host = (state.by_host + 1) % TRIED;
        state.is_due = state.by_host == 0;
        match state.is_due {
            true => CopyWay::Driver,
            false => CopyWay::Pinned,
        }
    }

    /// How the cost of copies by the driver is known, in words.
    pub fn source(&self) -> &'static str {
        match self.driver {
            DriverCost::Measured => "measured",
            DriverCost::Stated(_) => "UCX_CUDA_IPC_BW",
        }
    }

    /// Whether another text of a pair was printed last, or none. This one is the last from now on.
    pub fn is_first_print(&self, pair: DevicePair, text: &str) -> bool {
        let mut pairs = self.pairs.lock();
        let state = pairs.entry(pair).or_default();
        let is_first = state.printed != text;
        if is_first {
            text.clone_into(&mut state.printed);
        }
        is_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEAR: CuDevice = 0;
    const MIB: usize = 1 << 20;

    /// Measured: the time of copies of some lengths, microseconds, from several devices.
    fn measured(devices: &[&[(usize, u64)]]) -> CopyChoices {
        let choices = CopyChoices::new(&Options::default());
        for (i, copies) in devices.iter().enumerate() {
            let pair = DevicePair {
                of: [i as u8; UUID],
                near: NEAR,
            };
            for &(len, us) in *copies {
                for _ in 0..MEASURED {
                    choices.add(pair, len, Duration::from_micros(us));
                }
            }
        }
        choices
    }

    #[test]
    fn short_copies_alone_have_no_time_of_each_copy() {
        assert_eq!(measured(&[]).driver_cost_near(NEAR), None);
        let short = [(64 << 10, 20)];
        assert_eq!(measured(&[&short]).driver_cost_near(NEAR), None);
        let both = measured(&[&[(64 << 10, 20), (MIB, 35)]]);
        let cost = both.driver_cost_near(NEAR).unwrap();
        assert!(cost.us() > 18.0 && cost.gbps() > 60.0, "{cost:?}");
        assert_eq!(both.driver_cost_near(NEAR + 1), None);
    }

    #[test]
    fn the_device_with_the_fastest_copy_of_a_record_counts() {
        // More bytes a second, but a later beginning.
        let far: &[(usize, u64)] = &[(64 << 10, 51), (MIB, 60)];
        let near: &[(usize, u64)] = &[(64 << 10, 8), (MIB, 100)];
        for devices in [[far, near], [near, far]] {
            let cost = measured(&devices).driver_cost_near(NEAR).unwrap();
            assert!(cost.us() < 3.0, "{cost:?}");
        }
    }

    #[test]
    fn a_threshold_is_new_when_the_last_printed_one_is_twice_as_long_or_half() {
        let choices = measured(&[]);
        let is_new = |threshold| choices.is_new_threshold((NEAR, "by"), threshold);
        assert!(is_new(Some(10_000)) && choices.is_new_threshold((NEAR + 1, "by"), Some(10_000)));
        // Little by little: each is compared with the printed one.
        let slowly = [14_000, 19_000, 20_001].map(|threshold| is_new(Some(threshold)));
        assert_eq!(slowly, [false, false, false]);
        assert!(is_new(Some(20_002)) && !is_new(Some(10_001)) && is_new(Some(10_000)));
        assert!(is_new(None) && !is_new(None) && is_new(Some(usize::MAX)));
    }
}
