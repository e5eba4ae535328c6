//! What queries and tools print of the transport: its lanes and its devices.

use super::options::IbPolicy;
use super::port::{self, Port};
use crate::options::Options;
use crate::tl::Resource;
use crate::tl::contract::FRAGMENT;
use crate::tl::lane_info::{LaneInfo, LaneName, interned};
use std::net::Ipv6Addr;

/// Latency, seconds, one way between two InfiniBand HCAs of the last ten years: from vendors' data, not measured.
const LATENCY: f64 = 1e-6;

/// A lane over a port. `own`: by a queue pair of the peer's own, not by datagrams.
pub fn lane(port: &Port, own: bool) -> LaneInfo {
    LaneInfo {
        name: LaneName {
            transport: if own { c"rc_verbs" } else { c"ud_verbs" },
            device: interned(&port.name),
        },
        latency: LATENCY,
        bandwidth: f64::from(port.mbps) * 1e6 / 8.0,
    }
}

/// The ports that may be used, by each transport that is allowed. `max_eager`: length of the longest eager message,
/// bytes.
pub fn resources(options: &Options, max_eager: usize) -> Vec<Resource> {
    let Some(policy) = IbPolicy::new(options, None) else {
        return Vec::new();
    };
    let ports = port::usable(&options.net_devices, &policy.tuning);
    let allowed = ["rc_verbs", "ud_verbs"]
        .into_iter()
        .filter(|transport| options.tls.allows(transport));
    allowed
        .flat_map(|transport| {
            ports
                .iter()
                .map(move |port| resource(transport, port, max_eager))
        })
        .collect()
}

/// Capabilities of queue pairs on a port.
fn resource(transport: &'static str, port: &Port, max_eager: usize) -> Resource {
    let link = if port.ethernet {
        "Ethernet"
    } else {
        "InfiniBand"
    };
    let gid = Ipv6Addr::from(port.gid.raw);
    let address = match (port.ethernet, gid.to_ipv4_mapped()) {
        (false, _) => format!("LID {}", port.lid),
        (true, Some(v4)) => format!("{v4}, GID {}", port.gid.index),
        (true, None) => format!("{gid}, GID {}", port.gid.index),
    };
    Resource {
        transport,
        device: port.name.clone(),
        kind: "network",
        capabilities: vec![
            ("link", format!("{link}, {} Mb/s", port.mbps)),
            ("address", address),
            ("mtu", format!("{}", port.mtu_bytes())),
            ("am_bcopy", format!("<= {}K", max_eager >> 10)),
            ("fragments", format!("<= {}K", FRAGMENT >> 10)),
            ("atomics", "executed by the peer".into()),
            ("connection", "on demand, to worker".into()),
            ("error handling", "peer failure, keepalive".into()),
        ],
    }
}
