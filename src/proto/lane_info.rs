//! The lanes of an endpoint, for queries and printing.

use crate::engine::peer::Peer;
use crate::tl::cuda::CopyCost;
use crate::tl::lane_info::{LaneInfo, LaneState, MAX_LATENCY};
use crate::tl::{LaneTarget, cma_lane, ring_lane};

/// Latency, seconds, and bandwidth, bytes per second, of a lane of which nothing is known.
const UNKNOWN: (f64, f64) = (MAX_LATENCY, 1e9);

/// The lanes to a peer; that for short messages is the first.
pub fn of(peer: &Peer) -> impl Iterator<Item = LaneInfo> {
    let (first, second) = lanes(peer);
    first.into_iter().chain(second)
}

fn lanes(peer: &Peer) -> (Option<LaneInfo>, Option<LaneInfo>) {
    if !peer.uses_inbox() {
        return (by_network(peer), None);
    }
    let worker = peer.worker();
    let transport = if peer.uid == worker.uid {
        c"self"
    } else if worker.ctx.options.tls.allows("posix") {
        c"posix"
    } else {
        c"sysv"
    };
    let has_cma = !peer.same_process && peer.cma().is_usable();
    (Some(ring_lane(transport)), has_cma.then(cma_lane))
}

/// Seconds that a message of `len` bytes takes on the best lane.
pub fn estimate(peer: &Peer, len: usize) -> f64 {
    let times = of(peer).map(|lane| lane.time(len));
    times.reduce(f64::min).unwrap_or(MAX_LATENCY)
}

/// The cost of messages to and from a peer, as estimated for its lane.
pub fn message_cost(peer: &Peer) -> CopyCost {
    let lane = of(peer).next();
    let (latency, bandwidth) = lane.map_or(UNKNOWN, |lane| (lane.latency, lane.bandwidth));
    CopyCost::of_lane(latency, bandwidth)
}

/// The lane through a network that reaches a peer, or will.
fn by_network(peer: &Peer) -> Option<LaneInfo> {
    let worker = peer.worker();
    let state = LaneState {
        device: peer.dev_index(),
        qp_transport: peer.qp_transport(),
        fails_over: peer.fails_over(),
    };
    let fallback = peer.fallback().cloned().map(LaneTarget::from);
    let target = fallback.as_ref().or(peer.target.as_deref());
    worker.ctx.tl.lane_info(&worker.tl, state, target)
}
