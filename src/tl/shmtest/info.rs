//! What queries and tools print of the transport.

use crate::options::Options;
use crate::tl::Resource;
use crate::tl::contract::FRAGMENT;
use crate::tl::lane_info::LaneInfo;

/// Assumed latency, seconds, and bandwidth, bytes per second.
const ESTIMATE: (f64, f64) = (5e-6, 2e9);

/// A lane.
pub fn lane() -> LaneInfo {
    LaneInfo::memory(c"shmtest", ESTIMATE)
}

/// The transport, if the options allow it. `max_eager`: length of the longest eager message, bytes.
pub fn resources(options: &Options, max_eager: usize) -> Vec<Resource> {
    let resource = || Resource {
        transport: "shmtest",
        device: "memory".into(),
        kind: "intra-node",
        capabilities: vec![
            ("am_bcopy", format!("<= {}K", max_eager >> 10)),
            ("fragments", format!("<= {}K", FRAGMENT >> 10)),
            ("atomics", "executed by the peer".into()),
            ("connection", "on demand, to worker".into()),
            ("error handling", "peer failure".into()),
        ],
    };
    let is_allowed = options.tls.allows("shmtest");
    is_allowed.then(resource).into_iter().collect()
}
