//! What queries and tools print of the transport: its lanes and its devices.

use super::TcpTarget;
use super::context::TcpContext;
use super::device::{self, TcpDevice};
use super::options::TcpPolicy;
use crate::options::Options;
use crate::tl::Resource;
use crate::tl::contract::AmLimits;
use crate::tl::lane_info::{LaneInfo, LaneName, MAX_LATENCY, interned};

/// Assumed speed of an unknown device, Mb/s.
const UNKNOWN_MBPS: u32 = 10_000;

/// A lane through a network device, if that is known.
fn lane(device: Option<&TcpDevice>) -> LaneInfo {
    let mbps = device.map_or(UNKNOWN_MBPS, |d| d.speed());
    LaneInfo {
        name: LaneName {
            transport: c"tcp",
            device: interned(device.map_or("", |d| &d.name)),
        },
        latency: MAX_LATENCY,
        bandwidth: f64::from(mbps) * 1e6 / 8.0,
    }
}

impl TcpContext {
    /// The lane through the device with this index, if its connection exists; else the one to `target` that would be
    /// made, for which it reads the kernel's routes.
    pub fn lane_to(&self, device: Option<usize>, target: Option<&TcpTarget>) -> Option<LaneInfo> {
        let device = match device {
            Some(index) => self.devices.get(index),
            None => {
                let tcp_path = target?.paths(&self.devices).into_iter().next();
                tcp_path.and_then(|tcp_path| self.devices.get(tcp_path.path.device))
            }
        };
        Some(lane(device))
    }
}

/// The network devices that may be used; none if the kernel does not list them. `adapters`: other names that
/// `UCX_NET_DEVICES` may contain. `longest`: length of the longest message in one record, printed; true:
/// from user memory.
pub fn resources(
    options: &Options,
    adapters: &[&str],
    longest: impl Fn(&AmLimits, bool) -> String,
) -> Vec<Resource> {
    let limits = TcpPolicy::new(options).am_limits;
    let (bcopy, zcopy) = (longest(&limits, false), longest(&limits, true));
    let devices = device::usable(options, adapters).unwrap_or_default();
    let resource = |device: TcpDevice| {
        let addresses: Vec<String> = device.addrs.iter().map(ToString::to_string).collect();
        let speed = match device.mbps {
            Some(mbps) => format!("{mbps} Mb/s"),
            None => format!("unknown, taken for {} Mb/s", device.speed()),
        };
        Resource {
            transport: "tcp",
            device: device.name,
            kind: "network",
            capabilities: vec![
                ("addresses", addresses.join(", ")),
                ("speed", speed),
                ("am_bcopy", format!("<= {bcopy}")),
                ("am_zcopy", format!("<= {zcopy}")),
                ("atomics", "executed by the peer".into()),
                ("connection", "on demand, to worker".into()),
                ("error handling", "peer failure, keepalive".into()),
            ],
        }
    };
    devices.into_iter().map(resource).collect()
}
