//! Periodic work on IB connections: repeats HELLOs, retransmits packets, detects failed peers, and frees connections
//! that nothing refers to any more.

use super::hello::MAX_HELLO_INTERVAL_MS;
use super::{disconnect, ib_failover, repeat, settle};
use crate::ctypes::*;
use crate::engine::ib_worker::{IbConn, IbConnPhase, IbWorker};
use crate::engine::peer::Peer;
use crate::engine::worker::Worker;
use crate::sys::{clock, log};
use crate::tl::ib::bindings::{
    IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR, IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR,
    IBV_WC_WR_FLUSH_ERR, ibv_wc_status,
};
use std::sync::atomic::Ordering;

/// What a tick does with a connection after the work on all connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
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
pub fn tick(worker: &Worker, ports: &mut IbWorker, now: u64) {
    let (timeout, keepalive) = (ports.longest_silence(), worker.ctx.policy.keepalive_ms);
    let mut steps = Vec::new();
    for c in ports.iter() {
        let mut step = advance(c, now, timeout);
        if step == Step::Keep && c.phase == IbConnPhase::Open && !c.ended {
            check_liveness(c, now, keepalive, timeout);
        }
        let is_over = c.ended || c.peer.get().status() != UCS_OK;
        if is_over {
            // Requests of a failed peer whose memory a device uses are ended first (`failure::handle_failed`).
            step = if c.ended && c.is_cut() {
                Step::Retire
            } else {
                Step::Keep
            };
        }
        if step != Step::Keep {
            steps.push((c.number, step));
        }
    }
    let mut over = Vec::new();
    for (number, step) in steps {
        match step {
            Step::Keep => {}
            Step::Repeat => {
                ib_failover::turn(worker, ports, number, now);
                repeat(worker, ports, number);
            }
            Step::Settle => {
                settle(ports, number);
                disconnect(ports, number);
            }
            Step::Retire => over.push(number),
        }
    }
    ports.retire(&over);
}

/// Whether the user has no open endpoint to a peer by which its failure would be noticed.
fn has_no_endpoint(peer: &Peer) -> bool {
    !peer.eps.lock().any_open()
}

/// Whether nothing waits for a connection to a peer any more.
fn is_unwanted(peer: &Peer) -> bool {
    !peer.is_held() && peer.inbox.is_none() && peer.tx.lock().pending.is_empty()
}

/// Decides whether a HELLO is due again, or has been repeated for as long as a peer may be silent.
fn advance(c: &mut IbConn, now: u64, timeout: u64) -> Step {
    let peer = c.peer.get();
    if c.ended || peer.status() != UCS_OK || c.is_settled() || now < c.due {
        return Step::Keep;
    }
    // A time in which the worker was not progressed does not count: an answer that had arrived was not read either.
    c.since += now - c.due;
    if now - c.since >= timeout {
        // Messages can be sent, and their acknowledgements show whether the peer is alive.
        if c.phase == IbConnPhase::Open {
            return Step::Settle;
        }
        // Relaxed: set once; the next round sees it.
        if peer.watch_death.load(Ordering::Relaxed) || !c.answered && is_unwanted(peer) {
            log::diag!("worker {:#x} does not answer: no connection", peer.uid);
            peer.fail(UCS_ERR_ENDPOINT_TIMEOUT);
            return Step::Keep;
        }
        // The peer may be computing, and no endpoint handles errors: keep waiting.
        if !c.answered && !std::mem::replace(&mut c.late, true) {
            let waited = now - c.since;
            log::error!(
                "worker {:#x} has not answered for {waited} ms: waiting for it",
                peer.uid
            );
        }
    }
    c.wait = (2 * c.wait).min(MAX_HELLO_INTERVAL_MS);
    c.due = now + c.wait;
    Step::Repeat
}

/// Sends what is due on an open connection, and probes the peer: if an endpoint handles errors, or if there is no
/// endpoint that would notice its failure, so that the connection would exist for ever.
fn check_liveness(c: &mut IbConn, now: u64, keepalive: u64, timeout: u64) {
    let peer = c.peer.get();
    if peer.status() != UCS_OK {
        return;
    }
    let probe = now - c.probed >= keepalive
        && (peer.watch_death.load(Ordering::Relaxed) || has_no_endpoint(peer));
    if probe {
        c.probed = now;
    }
    let (owes, outlives) = (c.flow.unacked() > 0, !c.paths.is_empty());
    let mut refused = false;
    let alive = c.with_sender(|sender| {
        refused = sender.is_broken();
        if probe {
            sender.probe();
        }
        if owes {
            sender.acknowledge();
        }
        let alive = sender.tick(now);
        if outlives {
            peer.set_dev_index(sender.local_port());
        }
        alive
    });
    if refused {
        log_loss(peer, "the device accepts no more work requests");
        peer.fail(UCS_ERR_CONNECTION_RESET);
    } else if alive == Some(false) {
        log_loss(peer, &format!("nothing was acknowledged for {timeout} ms"));
        peer.fail(UCS_ERR_ENDPOINT_TIMEOUT);
    }
}

/// Whether one more peer may start a connection, with at most `most` of them incomplete. Incomplete ones that have been
/// silent for as long as a peer may be are ended.
pub(super) fn has_room(ports: &mut IbWorker, most: usize) -> bool {
    if ports.unsettled < most {
        return true;
    }
    let before = clock::coarse_ms().saturating_sub(ports.longest_silence());
    let mut begun = 0;
    for c in ports.iter().filter(|c| c.answered && !c.ended) {
        if c.is_settled() {
            continue;
        }
        let peer = c.peer.get();
        let wanted = peer.tx.lock().connecting;
        c.ended = !wanted && c.since < before;
        if c.ended && is_unwanted(peer) {
            peer.fail(UCS_ERR_ENDPOINT_TIMEOUT);
        }
        begun += usize::from(!c.ended);
    }
    begun < most
}

/// Logs a failed connection, as an error if no error handler is called: the log alone explains why the program hangs.
fn log_loss(peer: &Peer, why: &str) {
    let uid = peer.uid;
    // Relaxed: set once, before anything is sent that the user waits for.
    if peer.watch_death.load(Ordering::Relaxed) || has_no_endpoint(peer) {
        log::diag!("connection to worker {uid:#x}: {why}")
    } else {
        log::error!("connection to worker {uid:#x}: {why}: nothing can be sent there any more")
    }
}

/// Fails the peer of a connection that the peer's worker does not have any more.
#[cold]
pub fn on_gone(peer: &Peer) {
    if peer.status() == UCS_OK {
        log_loss(peer, "the peer has lost it");
        peer.fail(UCS_ERR_CONNECTION_RESET);
    }
}

/// Fails the peer of a connection after a completion with an error.
#[cold]
pub fn broken(ports: &mut IbWorker, number: u32, status: ibv_wc_status) {
    let Some((iface, ended, peer)) = ports.get(number).map(|c| (c.iface, c.ended, c.peer)) else {
        return;
    };
    let peer = peer.get();
    // Flush errors of later operations give no further information.
    if peer.status() != UCS_OK || status == IBV_WC_WR_FLUSH_ERR && ended {
        return;
    }
    let verbs = ports.ifaces[iface].port.hca.verbs;
    log_loss(peer, &verbs.status_text(status));
    peer.fail(match status {
        IBV_WC_RETRY_EXC_ERR | IBV_WC_RNR_RETRY_EXC_ERR => UCS_ERR_ENDPOINT_TIMEOUT,
        IBV_WC_REM_ACCESS_ERR | IBV_WC_REM_INV_REQ_ERR => UCS_ERR_IO_ERROR,
        // Among them an operation that the peer could not execute any more, because its process exits.
        _ => UCS_ERR_CONNECTION_RESET,
    });
}
