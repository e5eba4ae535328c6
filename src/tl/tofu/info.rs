//! What queries and tools print of the transport: its lanes and its devices.

use super::tni::{self, Tni};
use crate::options::DeviceFilter;
use crate::tl::Resource;
use crate::tl::contract::FRAGMENT;
use crate::tl::lane_info::{LaneInfo, LaneName, interned};

/// Latency, seconds, of a put of 8 bytes between nodes in the study of UCX on Fugaku.
const LATENCY: f64 = 850e-9;
/// Bandwidth of one TNI in that study, bytes per second.
const BANDWIDTH: f64 = 6.8e9;

/// A lane over the TNI of this name.
pub fn lane(tni: &str) -> LaneInfo {
    LaneInfo {
        name: LaneName {
            transport: c"tofu",
            device: interned(tni),
        },
        latency: LATENCY,
        bandwidth: BANDWIDTH,
    }
}

/// The TNIs that may be used. `max_eager`: length of the longest eager message, bytes.
pub fn resources(filter: &DeviceFilter, max_eager: usize) -> Vec<Resource> {
    let tnis = tni::usable(filter);
    tnis.iter().map(|tni| resource(tni, max_eager)).collect()
}

/// Capabilities of rings over a TNI.
fn resource(tni: &Tni, max_eager: usize) -> Resource {
    Resource {
        transport: "tofu",
        device: tni.name.clone(),
        kind: "network",
        capabilities: vec![
            ("mtu", format!("{}", tni.caps.max_mtu)),
            ("am_bcopy", format!("<= {}K", max_eager >> 10)),
            ("fragments", format!("<= {}K", FRAGMENT >> 10)),
            ("put_bcopy", "unlimited".into()),
            ("get_bcopy", "unlimited".into()),
            ("atomics", "executed by the peer".into()),
            ("connection", "on demand, to worker".into()),
            ("error handling", "peer failure, keepalive".into()),
        ],
    }
}
