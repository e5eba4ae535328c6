//! The lanes of an endpoint, for queries and printing.

use crate::engine::peer::Peer;
use crate::tl::contract::QpTransport;
use crate::tl::lane_info::{LaneInfo, MAX_LATENCY};
use crate::tl::{LaneTarget, ib, shm};

/// The lanes to a peer; that for short messages is the first.
pub fn of(peer: &Peer) -> Vec<LaneInfo> {
    if !peer.uses_inbox() {
        let lane = match peer.qp_transport() {
            QpTransport::None if peer.has_rings() => {
                let tofu = peer.worker().tl.tofu.as_ref();
                tofu.map(|tofu| tofu.lane_info())
            }
            QpTransport::None => by_socket(peer),
            queues => by_port(peer, queues),
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
    let short = shm::info::ring(transport);
    let mut lanes = vec![short];
    if !peer.same_process && peer.cma().is_usable() {
        lanes.push(shm::info::cma());
    }
    lanes
}

/// Seconds that a message of `len` bytes takes on the best lane.
pub fn estimate(peer: &Peer, len: usize) -> f64 {
    let times = of(peer).into_iter().map(|lane| lane.time(len));
    times.reduce(f64::min).unwrap_or(MAX_LATENCY)
}

/// The IB port that reaches a peer, or will.
fn by_port(peer: &Peer, queues: QpTransport) -> Option<LaneInfo> {
    let worker = peer.worker();
    let target = || match peer.target.as_deref() {
        Some(LaneTarget::Ib(target)) => Some(target.path.iface),
        _ => None,
    };
    let port = worker
        .ctx
        .tl
        .ib
        .ports
        .get(peer.dev_index().or_else(target)?)?;
    let by_queue = worker.ctx.tl.ib.by_queue();
    let own = match queues {
        QpTransport::Unknown => by_queue && !peer.fails_over(),
        queues => queues == QpTransport::Own,
    };
    Some(ib::info::lane(port, own))
}

/// The existing TCP connection, whichever side has made it, or the one that would be made.
fn by_socket(peer: &Peer) -> Option<LaneInfo> {
    let tcp = &peer.worker().ctx.tl.tcp;
    tcp.lane_info(peer.dev_index(), peer.socket_target())
}
