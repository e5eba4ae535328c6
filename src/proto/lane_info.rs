//! The lanes of an endpoint, for queries and printing.

use crate::engine::peer::{Peer, QpTransport};
use crate::engine::worker::Worker;
use crate::tl::LaneTarget;
use crate::tl::lane_info::{LaneInfo, LaneName, interned};
use crate::tl::tcp::device;
use std::net::SocketAddr;

// Measured on a virtual machine with 2 cores of an AMD EPYC: 0.085 us by a ring, 9 GB/s by CMA, 12 us by a socket.
// Estimates for a choice between endpoints.
const RING: (f64, f64) = (85e-9, 5e9);
const CMA: (f64, f64) = (600e-9, 9e9);
const TCP_LATENCY: f64 = 12e-6;
/// One way between two InfiniBand HCAs of the last ten years, from vendors' data, not measured.
const HCA_LATENCY: f64 = 1e-6;

/// The lanes to a peer; that for short messages is the first.
pub fn of(peer: &Peer) -> Vec<LaneInfo> {
    if !peer.uses_inbox() {
        let lane = match peer.qp_transport() {
            QpTransport::None if peer.has_rings() => {
                let tofu = peer.worker().tl.tofu.as_ref();
                tofu.map(|tofu| tofu.lane_info())
            }
            QpTransport::None => tcp(peer),
            queues => port(peer, queues),
        };
        return lane.into_iter().collect();
    }
    let worker = peer.worker();
    let transport = if peer.uid == worker.uid {
        c"self"
    } else if worker.ctx.options.tls.allows("posix") {
        c"posix"
    } else {
        c"sysv"
    };
    let short = LaneInfo::memory(transport, RING);
    let mut lanes = vec![short];
    if !peer.same_process && peer.cma_usable() {
        lanes.push(LaneInfo::memory(c"cma", CMA));
    }
    lanes
}

/// Seconds that a message of `len` bytes takes on the best lane.
pub fn estimate(peer: &Peer, len: usize) -> f64 {
    let times = of(peer).into_iter().map(|lane| lane.time(len));
    times.reduce(f64::min).unwrap_or(TCP_LATENCY)
}

/// The IB port that reaches a peer, or will.
fn port(peer: &Peer, queues: QpTransport) -> Option<LaneInfo> {
    let worker = peer.worker();
    let target = || match peer.target.as_deref() {
        Some(LaneTarget::Ib(target)) => Some(target.path.iface),
        _ => None,
    };
    let port = worker.ctx.ib.ports.get(peer.dev_index().or_else(target)?)?;
    let by_queue = worker.ctx.policy.ib.as_ref().is_some_and(|ib| ib.by_queue);
    let own = match queues {
        QpTransport::Unknown => by_queue && !peer.fails_over(),
        queues => queues == QpTransport::Own,
    };
    Some(LaneInfo {
        name: LaneName {
            transport: if own { c"rc_verbs" } else { c"ud_verbs" },
            device: interned(&port.name),
        },
        latency: HCA_LATENCY,
        bandwidth: f64::from(port.mbps) * 1e6 / 8.0,
    })
}

/// The existing TCP connection, whichever side has made it, or the one that would be made, which reads the kernel's
/// routes.
fn tcp(peer: &Peer) -> Option<LaneInfo> {
    let devices = &peer.worker().ctx.tcp.devices;
    let device = match peer.dev_index() {
        Some(dev_index) => devices.get(dev_index),
        None => {
            let tcp_path = peer.socket_target()?.paths(devices).into_iter().next();
            tcp_path.and_then(|tcp_path| devices.get(tcp_path.path.device))
        }
    };
    let mbps = device.map_or(10_000, |d| d.speed());
    Some(LaneInfo {
        name: LaneName {
            transport: c"tcp",
            device: interned(device.map_or("", |d| &d.name)),
        },
        latency: TCP_LATENCY,
        bandwidth: f64::from(mbps) * 1e6 / 8.0,
    })
}

/// Notes the device of a TCP connection from its local address: for a peer that has connected and sent no address
/// nothing else is known.
pub fn note(worker: &Worker, peer: &Peer, local: Option<SocketAddr>) {
    let devices = &worker.ctx.tcp.devices;
    let dev_index = local.and_then(|local| device::at(devices, local));
    peer.set_dev_index(dev_index.unwrap_or(devices.len()));
}
