//! What queries and tools print of the transport: its lanes and its devices.

use super::choice::{self, NAMED};
use super::context::OFI;
use super::device::{OfiDelivery, OfiDevice};
use super::packet::RECORD_HEADER;
use crate::options::Options;
use crate::tl::Resource;
use crate::tl::contract::FRAGMENT;
use crate::tl::lane_info::{LaneInfo, LaneName, MAX_LATENCY, interned};

/// Assumed latency of a fabric for high-performance computing, seconds.
const LATENCY: f64 = 2e-6;
/// Assumed speed of an unknown device, bits per second.
const UNKNOWN_SPEED: u64 = 10_000_000_000;

/// The transport of a device, as `UCX_TLS` names it.
fn transport(device: &OfiDevice) -> &'static str {
    let named = NAMED
        .into_iter()
        .find(|name| device.core_provider() == *name);
    named.unwrap_or(OFI)
}

/// A lane through a device.
pub fn lane(device: &OfiDevice) -> LaneInfo {
    let transport = transport(device);
    LaneInfo {
        name: LaneName {
            transport: interned(transport),
            device: interned(&device.domain),
        },
        latency: if transport == OFI {
            MAX_LATENCY
        } else {
            LATENCY
        },
        bandwidth: speed(device) as f64 / 8.0,
    }
}

fn speed(device: &OfiDevice) -> u64 {
    match device.speed {
        0 => UNKNOWN_SPEED,
        speed => speed,
    }
}

/// The devices that may be used. `max_eager`: length of the longest eager message, bytes.
pub fn resources(options: &Options, max_eager: usize) -> Vec<Resource> {
    let devices = choice::usable(options);
    let resource = |device: OfiDevice| resource(&device, max_eager);
    devices.into_iter().map(resource).collect()
}

/// What executes atomic operations.
fn atomics(device: &OfiDevice) -> &'static str {
    match device.clone().with_rma().has_atomics() {
        true => "by the provider or by the peer",
        false => "executed by the peer",
    }
}

/// What moves the data of puts and gets.
fn rma(device: &OfiDevice) -> String {
    let device = device.clone().with_rma();
    match (device.has_rma(), device.delivery()) {
        (false, _) => "executed by the peer".into(),
        (true, OfiDelivery::Unknown) => "gets by the provider, puts executed by the peer".into(),
        (true, _) => "by the provider".into(),
    }
}

fn resource(device: &OfiDevice, max_eager: usize) -> Resource {
    let speed = match device.speed {
        0 => format!("unknown, taken for {} Mb/s", UNKNOWN_SPEED / 1_000_000),
        speed => format!("{} Mb/s", speed / 1_000_000),
    };
    let max_short = device.tx().inject_size.saturating_sub(RECORD_HEADER);
    Resource {
        transport: transport(device),
        device: device.domain.clone(),
        kind: "network",
        capabilities: vec![
            ("provider", device.provider.clone()),
            ("fabric", device.fabric.clone()),
            ("speed", speed),
            ("am_short", format!("<= {max_short}")),
            ("am_bcopy", format!("<= {}K", max_eager >> 10)),
            ("fragments", format!("<= {}K", FRAGMENT >> 10)),
            ("put and get", rma(device)),
            ("atomics", atomics(device).into()),
            ("connection", "on demand, to worker".into()),
            ("error handling", "peer failure, keepalive".into()),
        ],
    }
}
