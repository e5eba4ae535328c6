//! Whether the receiver of a message copies it from the sender's memory by the driver, or the sender sends it through
//! pinned host memory: what costs less, as measured for the two devices.
//!
//! The first copies between two devices are made by the driver, and measured by events of their stream. Then the pace
//! between the device and pinned memory is measured once, by reading the memory of the receive, if the lane alone could
//! be faster. Where the host is the better way the driver's copies are tried again from time to time.
//!
//! Puts and gets are always copied by the driver where it can: messages need an owner that progresses.

use super::choice::{CopyWay, DevicePair, PinnedSamples};
use super::context::CudaContext;
use super::cost::{self, CopyCost, CopySamples};
use super::timer::CopyTimer;
use super::track::Track;
use crate::sys::cuda::{CudaError, MemoryInfo, MemoryKind, Pinned};
use crate::sys::log;
use crate::wire::device_handle::DeviceHandle;
use std::ops::RangeInclusive;

/// Copies of each length between a device and pinned memory that are measured.
const PROBES: usize = 2;
/// Length of the short ones, bytes.
const SHORT_PROBE: usize = 32 << 10;
/// Shortest and longest message of which the way is printed, as powers of two.
const PRINTED: RangeInclusive<u32> = 12..=30;

/// The way of a message of `len` bytes that costs less.
fn cheaper(driver: CopyCost, pinned: CopyCost, lane: CopyCost, len: usize) -> CopyWay {
    let fragment = CudaContext::fragment(len, 1);
    match driver.time(len) <= cost::through_host(pinned, lane, len, fragment) {
        true => CopyWay::Driver,
        false => CopyWay::Pinned,
    }
}

/// The way of each length, and from where on another one: in words.
fn ranges(driver: CopyCost, pinned: CopyCost, lane: CopyCost) -> String {
    let mut text = String::new();
    let mut last = None;
    for power in PRINTED {
        let chosen = cheaper(driver, pinned, lane, 1 << power);
        if last == Some(chosen) {
            continue;
        }
        let name = match chosen {
            CopyWay::Driver => "by the driver",
            CopyWay::Pinned => "through pinned host memory",
        };
        match last {
            None => text.push_str(name),
            Some(_) => text.push_str(&format!(", from {} bytes on {name}", 1u64 << power)),
        }
        last = Some(chosen);
    }
    text
}

/// Logs, once for a context of a device, that messages are copied by the driver, whatever that costs.
#[cold]
fn note_unmeasured(near: &MemoryInfo, why: impl std::fmt::Display) {
    log::diag!(
        "the pace of copies between device {} and pinned memory cannot be measured, and is not tried again: {why}",
        near.device
    );
}

impl CudaContext {
    /// The pair of the device of a peer's allocation and of memory of this process. `None`: it is the same device, or
    /// there is none here.
    pub(super) fn pair(&self, handle: &DeviceHandle, near: &MemoryInfo) -> Option<DevicePair> {
        let is_here = near.kind == MemoryKind::Device;
        let here = self
            .ipc
            .as_ref()
            .filter(|_| is_here)?
            .uuid(self.cuda, near.device)?;
        (here != handle.device).then_some(DevicePair {
            of: handle.device,
            near: near.device,
        })
    }

    /// How the receiver of a message gets its data, `len` bytes, from a peer's allocation to its own memory at `addr`.
    /// `lane`: the cost of the lane by which the peer would send them.
    pub fn way(
        &self,
        handle: &DeviceHandle,
        near: &MemoryInfo,
        (addr, len): (u64, usize),
        lane: CopyCost,
    ) -> CopyWay {
        let Some(pair) = self.pair(handle, near) else {
            return CopyWay::Driver;
        };
        let Some(driver) = self.choices.driver_cost(pair, len) else {
            return CopyWay::Driver;
        };
        // No device makes the lane faster.
        let is_open = driver.time(len) > lane.time(len);
        let pinned = is_open.then(|| self.pinned_cost(near, addr, len)).flatten();
        self.print_choice(pair, driver, pinned, lane);
        match pinned.map(|pinned| cheaper(driver, pinned, lane, len)) {
            None | Some(CopyWay::Driver) => CopyWay::Driver,
            Some(CopyWay::Pinned) => self.choices.count_by_host(pair),
        }
    }

    /// The cost of copies between a device and pinned memory, measured at its first use: by reads of its memory, `len`
    /// bytes at `addr`. `None`: they fail, or cannot be measured.
    pub(super) fn pinned_cost(&self, near: &MemoryInfo, addr: u64, len: usize) -> Option<CopyCost> {
        let mut pinned = self.choices.pinned.lock();
        let PinnedSamples { samples, failed_in } = pinned.entry(near.device).or_default();
        let long = len.min(CudaContext::fragment(usize::MAX, 1));
        if !samples.cover(long, 1) {
            let ctx = self.context_of(near).ok()?;
            if *failed_in == Some(ctx) {
                return samples.cost();
            }
            // Memory that belongs to no context is accessible to the devices that the program has named.
            if near.ctx.is_none() && !self.cuda.can_touch(ctx, addr) {
                return None;
            }
            let buffer = self.buffer(ctx).ok()?;
            let track = match self.track(ctx) {
                Ok(track) => track,
                Err(e) => {
                    *failed_in = Some(ctx);
                    note_unmeasured(near, e);
                    self.keep_buffer(buffer);
                    return samples.cost();
                }
            };
            let probed = self.probe(&track, &buffer, addr, long, samples);
            match probed {
                Ok(()) => {
                    if !samples.cover(long, 1) {
                        *failed_in = Some(ctx);
                        note_unmeasured(near, "its events have no times");
                    }
                    self.keep_track(track);
                }
                Err(e) => {
                    *failed_in = Some(ctx);
                    note_unmeasured(near, e);
                    // An error means that its copies have ended, too.
                    let _ = track.drain(self.cuda);
                    track.destroy(self.cuda);
                }
            }
            self.keep_buffer(buffer);
        }
        samples.cost()
    }

    /// Measures copies of `long` bytes and of fewer from `addr` to a buffer, and waits for them.
    ///
    /// # Errors
    /// Those of the driver.
    fn probe(
        &self,
        track: &Track,
        buffer: &Pinned,
        addr: u64,
        long: usize,
        samples: &mut CopySamples,
    ) -> Result<(), CudaError> {
        let _current = self.cuda.enter(track.ctx)?;
        let timer = CopyTimer::new(self.cuda)?;
        let lens = [SHORT_PROBE.min(long), long];
        let mut measured = Ok(());
        for len in lens.into_iter().flat_map(|len| [len; PROBES]) {
            measured = timer.begin(self.cuda, track).and_then(|()| {
                // SAFETY: the buffer has room for a fragment, and stays until the copy has ended: the timer's end waits
                // for it, and after an error the caller does.
                unsafe {
                    self.cuda
                        .copy(buffer.ptr() as u64, addr, len, &track.stream)
                }?;
                timer.end(self.cuda, track)?;
                timer.wait(self.cuda)
            });
            if measured.is_err() {
                break;
            }
            if let Some(took) = timer.elapsed(self.cuda) {
                samples.add(len, took);
            }
        }
        timer.destroy(self.cuda);
        measured
    }

    /// Prints what is known of a pair, and the ways that follow, if that has changed and is asked for. `pinned`: absent
    /// if the lane alone takes longer than the driver.
    fn print_choice(
        &self,
        pair: DevicePair,
        driver: CopyCost,
        pinned: Option<CopyCost>,
        lane: CopyCost,
    ) {
        if !self.choices.prints {
            return;
        }
        let (ways, host) = match pinned {
            None => ("by the driver".to_owned(), String::new()),
            Some(pinned) => {
                let (gbps, us) = (pinned.gbps(), pinned.copy_ns / 1e3);
                let host = format!(
                    "through pinned host memory {gbps:.2} GB/s after {us:.1} us (measured), "
                );
                (ranges(driver, pinned, lane), host)
            }
        };
        if !self.choices.is_first_print(pair, &ways) {
            return;
        }
        let how = self.choices.source();
        let from = (self.ipc.as_ref()).and_then(|ipc| ipc.device(self.cuda, &pair.of));
        let from = from.map_or("another device".to_owned(), |number| {
            format!("device {number}")
        });
        log::asked(&format!(
            "CUDA: from {from} of a peer to device {}: by the driver {:.2} GB/s after {:.1} us ({how}), {host}by the \
             lane {:.2} GB/s (estimated); messages {ways}",
            pair.near,
            driver.gbps(),
            driver.copy_ns / 1e3,
            lane.gbps(),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: CopyCost = CopyCost {
        copy_ns: 5e3,
        byte_ns: 0.01,
    };
    const MIDDLE: CopyCost = CopyCost {
        copy_ns: 5e3,
        byte_ns: 0.1,
    };
    const SLOW: CopyCost = CopyCost {
        copy_ns: 5e3,
        byte_ns: 10.0,
    };

    #[test]
    fn the_cheaper_way_follows_the_costs() {
        assert_eq!(cheaper(FAST, MIDDLE, MIDDLE, 1 << 20), CopyWay::Driver);
        assert_eq!(cheaper(SLOW, MIDDLE, MIDDLE, 1 << 20), CopyWay::Pinned);
        assert_eq!(
            cheaper(MIDDLE, FAST, SLOW, 1 << 20),
            CopyWay::Driver,
            "the lane is slow"
        );
    }

    #[test]
    fn ranges_name_the_length_from_which_on_a_way_is_taken() {
        assert_eq!(ranges(FAST, MIDDLE, MIDDLE), "by the driver");
        assert_eq!(ranges(SLOW, MIDDLE, MIDDLE), "through pinned host memory");
        let early = CopyCost {
            copy_ns: 0.0,
            byte_ns: 1.0,
        };
        let text = "by the driver, from 32768 bytes on through pinned host memory";
        assert_eq!(ranges(early, MIDDLE, MIDDLE), text);
        let late = CopyCost {
            copy_ns: 1e6,
            byte_ns: 0.01,
        };
        let text = "through pinned host memory, from 16777216 bytes on by the driver";
        assert_eq!(ranges(late, MIDDLE, MIDDLE), text);
    }
}
