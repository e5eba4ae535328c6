//! Periodic work on IB connections: repeats HELLOs, retransmits packets, detects failed peers, and frees connections
//! that nothing refers to any more.

use super::bindings::{
    IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR, IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR,
    IBV_WC_WR_FLUSH_ERR, ibv_wc_status,
};
use super::conn::{IbConn, IbConnPhase};
use super::connect::{MAX_HELLO_INTERVAL_MS, disconnect, repeat, settle};
use super::failover;
use super::worker::IbWorker;
use crate::ctypes::*;
use crate::sys::{advice, clock, log};
use crate::tl::sink::Sink;

/// What a tick does with a connection after the work on all connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TickAction {
    /// Nothing.
    Keep,
    /// Repeat the HELLO.
    Repeat,
    /// The peer has not acknowledged this side's READY: regard it as acknowledged, because messages are sent anyway.
    Settle,
    /// Free the connection: it has ended and sends nothing any more.
    Retire,
}

/// Periodic work at this time, in coarse milliseconds.
#[cold]
pub fn tick<S: Sink>(ports: &mut IbWorker<S::Peer>, sink: S, now: u64) {
    let (timeout, keepalive) = (ports.longest_silence(), ports.keepalive_ms);
    let mut actions = Vec::new();
    for c in ports.iter() {
        let mut action = advance(c, sink, now, timeout);
        if action == TickAction::Keep && c.phase == IbConnPhase::Open && !c.ended {
            check_liveness(c, sink, now, keepalive, timeout);
        }
        let is_over = c.ended || sink.has_failed(c.peer);
        if is_over {
            // Requests of a failed peer whose memory a device uses are ended first (`failure::handle_failed`).
            action = if c.ended && c.is_cut(sink) {
                TickAction::Retire
            } else {
                TickAction::Keep
            };
        }
        if action != TickAction::Keep {
            actions.push((c.number, action));
        }
    }
    let mut over = Vec::new();
    for (number, action) in actions {
        match action {
            TickAction::Keep => {}
            TickAction::Repeat => {
                failover::turn(ports, number, now);
                repeat(ports, sink, number);
            }
            TickAction::Settle => {
                settle(ports, number);
                disconnect(ports, number);
            }
            TickAction::Retire => over.push(number),
        }
    }
    ports.retire(&over);
}

/// Decides whether a HELLO is due again, or has been repeated for as long as a peer may be silent.
fn advance<S: Sink>(c: &mut IbConn<S::Peer>, sink: S, now: u64, timeout: u64) -> TickAction {
    let peer = c.peer;
    if c.ended || sink.has_failed(peer) || c.is_settled() || now < c.due {
        return TickAction::Keep;
    }
    // A time in which the worker was not progressed does not count: an answer that had arrived was not read either.
    c.since += now - c.due;
    if now - c.since >= timeout {
        // Messages can be sent, and their acknowledgements show whether the peer is alive.
        if c.phase == IbConnPhase::Open {
            return TickAction::Settle;
        }
        if sink.watches_death(peer) || !c.answered && !sink.state(peer).is_wanted {
            log::diag!(
                "worker {:#x} does not answer: no connection",
                sink.uid(peer)
            );
            sink.lane_down(peer, UCS_ERR_ENDPOINT_TIMEOUT);
            return TickAction::Keep;
        }
        // The peer may be computing, and no endpoint handles errors: keep waiting.
        if !c.answered && !std::mem::replace(&mut c.late, true) {
            let waited = now - c.since;
            log::once!(
                Error,
                "worker {:#x} has not answered for {waited} ms: {}",
                sink.uid(peer),
                advice::ON_WAITING
            );
        }
    }
    c.wait = (2 * c.wait).min(MAX_HELLO_INTERVAL_MS);
    c.due = now + c.wait;
    TickAction::Repeat
}

/// Sends what is due on an open connection, and probes the peer at the end of a keepalive interval.
fn check_liveness<S: Sink>(
    c: &mut IbConn<S::Peer>,
    sink: S,
    now: u64,
    keepalive: u64,
    timeout: u64,
) {
    let peer = c.peer;
    if sink.has_failed(peer) {
        return;
    }
    let mut probe = false;
    if now - c.probed >= keepalive {
        c.probed = now;
        probe = sink.state(peer).is_probed(&mut c.has_waited);
    }
    let (owes, outlives) = (c.flow.unacked() > 0, !c.paths.is_empty());
    let (mut refused, mut local_port) = (false, None);
    let alive = c.with_sender(sink, |sender| {
        refused = sender.is_broken();
        if probe {
            sender.probe();
        }
        if owes {
            sender.acknowledge();
        }
        let alive = sender.tick(now);
        if outlives {
            local_port = Some(sender.local_port());
        }
        alive
    });
    if let Some(index) = local_port {
        sink.note_device(peer, index);
    }
    if refused {
        let reason = format_args!("the device accepts no more work requests");
        sink.lane_lost(peer, reason, UCS_ERR_CONNECTION_RESET);
    } else if alive == Some(false) {
        let reason = format_args!(
            "nothing was acknowledged for {timeout} ms: {}",
            advice::ON_SILENCE
        );
        sink.lane_lost(peer, reason, UCS_ERR_ENDPOINT_TIMEOUT);
    }
}

/// Whether one more peer may start a connection, with at most `most` of them incomplete. Incomplete ones that have been
/// silent for as long as a peer may be are ended.
pub(super) fn has_room<S: Sink>(ports: &mut IbWorker<S::Peer>, sink: S, most: usize) -> bool {
    if ports.unsettled < most {
        return true;
    }
    let before = clock::coarse_ms().saturating_sub(ports.longest_silence());
    let mut begun = 0;
    for c in ports.iter().filter(|c| c.answered && !c.ended) {
        if c.is_settled() {
            continue;
        }
        let peer = c.peer;
        let state = sink.state(peer);
        c.ended = !state.is_connecting && c.since < before;
        if c.ended && !state.is_wanted {
            sink.lane_down(peer, UCS_ERR_ENDPOINT_TIMEOUT);
        }
        begun += usize::from(!c.ended);
    }
    begun < most
}

/// Fails the peer of a connection that the peer's worker does not have any more.
#[cold]
pub fn on_gone<S: Sink>(sink: S, peer: S::Peer) {
    if !sink.has_failed(peer) {
        let reason = format_args!("the peer has ended it: its own output shows why");
        sink.lane_lost(peer, reason, UCS_ERR_CONNECTION_RESET);
    }
}

/// Fails the peer of a connection after a completion with an error.
#[cold]
pub fn broken<S: Sink>(ports: &mut IbWorker<S::Peer>, sink: S, number: u32, status: ibv_wc_status) {
    let Some((iface, ended, peer)) = ports.get(number).map(|c| (c.iface, c.ended, c.peer)) else {
        return;
    };
    // Flush errors of later operations give no further information.
    if sink.has_failed(peer) || status == IBV_WC_WR_FLUSH_ERR && ended {
        return;
    }
    let verbs = ports.ifaces[iface].port.hca.verbs;
    let text = verbs.status_text(status);
    let (status, advice) = match status {
        IBV_WC_RETRY_EXC_ERR | IBV_WC_RNR_RETRY_EXC_ERR => {
            (UCS_ERR_ENDPOINT_TIMEOUT, advice::ON_SILENCE)
        }
        IBV_WC_REM_ACCESS_ERR | IBV_WC_REM_INV_REQ_ERR => {
            (UCS_ERR_IO_ERROR, advice::ON_REFUSED_ACCESS)
        }
        // Among them an operation that the peer could not execute any more, because its process exits.
        _ => (UCS_ERR_CONNECTION_RESET, advice::ON_END),
    };
    sink.lane_lost(peer, format_args!("{text}: {advice}"), status);
}
