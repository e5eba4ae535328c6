//! What is due at a clock tick: failed peers, peers that do not answer, probes.

use super::choice::IfaceRole;
use super::conn::OfiConn;
use super::connect::{ask_again, end, reset};
use super::hello::{FailedConnect, HelloAge};
use super::loss;
use super::packet::{PROBE, bare};
use super::rma_completion;
use super::tcp_sockets::{SILENT_INTERVALS, TcpSocket, socket_name};
use super::tx_link::OfiTxLink;
use super::worker::OfiWorker;
use crate::ctypes::*;
use crate::sys::log;
use crate::tl::sink::Sink;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// Interval at which connections are looked at, milliseconds.
const LOOK_MS: u64 = 20;
/// Interval at which the lock of a peer is looked at that has not answered, milliseconds.
const CONNECTING_LOOK_MS: u64 = 100;

/// Ends the connections of failed peers, and probes others.
pub fn tick<S: Sink>(worker: &mut OfiWorker<S::Peer>, sink: S, now: u64) {
    if now < worker.next_look {
        return;
    }
    worker.next_look = now + LOOK_MS;
    drop_failed(worker, sink);
    if now >= worker.next_connecting_look {
        worker.next_connecting_look = now + CONNECTING_LOOK_MS;
        ask_again(worker, now);
        expire(worker, now);
        end_orphaned(worker);
        rma_completion::end_dead(worker, sink);
        if let Some(mrs) = &worker.mrs {
            mrs.trim();
        }
    }
    if worker.has_losses {
        loss::look(worker, now);
    }
    if now >= worker.next_probe {
        worker.next_probe = now.saturating_add(worker.keepalive_ms);
        shut_down_silent(worker, sink, now);
        probe(worker, sink);
    }
    worker.remove_ended();
}

/// Ends the connections of peers that have failed in the layer above.
fn drop_failed<S: Sink>(worker: &mut OfiWorker<S::Peer>, sink: S) {
    let mut ended = Vec::new();
    for (_, conn) in &mut worker.conns {
        if conn.peer.is_some_and(|peer| sink.has_failed(peer)) {
            conn.peer = None;
            ended.push((conn.uid, conn.link.clone()));
        }
    }
    for (uid, link) in ended {
        if let Some((link, packet)) = worker.of_link(&link).and_then(|conn| reset(conn)) {
            worker.send_control(&link, packet);
        }
        if worker.by_uid.get(&uid) == Some(&link.conn) {
            end(worker, uid);
        }
    }
}

/// Fails the connections whose peers have ended before they answered, and those without a peer that are not answered in
/// time: a request to connect, or the end of a connection. Where a peer waits for the answer other interfaces connect.
fn expire<P: Copy + Eq>(worker: &mut OfiWorker<P>, now: u64) {
    let (mut late, mut unanswered) = (Vec::new(), Vec::new());
    let is_rail = worker.role == IfaceRole::Rail;
    for (_, conn) in &mut worker.conns {
        let awaits = conn.remote.is_none() || conn.peer.is_none() && !conn.has_ended;
        if !awaits || conn.is_broken {
            continue;
        }
        let is_late = now >= conn.begun.saturating_add(worker.timeout_ms);
        if conn.is_dead() {
            late.push((conn.link.clone(), UCS_ERR_UNREACHABLE));
        } else if conn.remote.is_none() && is_late {
            match (conn.peer, &mut conn.request) {
                (Some(_), Some(_)) if is_rail => {
                    late.push((conn.link.clone(), UCS_ERR_ENDPOINT_TIMEOUT));
                }
                (Some(peer), Some(request)) if request.age != HelloAge::Expired => {
                    request.age = HelloAge::Expired;
                    unanswered.push((peer, conn.uid));
                }
                (Some(_), Some(_)) => {}
                _ => late.push((conn.link.clone(), UCS_ERR_ENDPOINT_TIMEOUT)),
            }
        }
    }
    for (link, status) in late {
        worker.fail_conn(&link, status);
    }
    for (peer, uid) in unanswered {
        log::diag!("worker {uid:#x} does not answer by libfabric (UCX_OFI_TIMEOUT)");
        worker.unanswered.push(FailedConnect {
            peer,
            uid,
            status: UCS_ERR_ENDPOINT_TIMEOUT,
            obstacle: "no answer in UCX_OFI_TIMEOUT".into(),
        });
    }
}

/// Fails the connections on which sends wait for a peer on this host whose process has ended. A provider may wait for
/// ever: `shm` for room in the peer's memory, `tcp;ofi_rxm` for a new connection, after it has lost the old one without
/// an error. What the peer had sent before its end is handled first.
fn end_orphaned<P: Copy + Eq>(worker: &mut OfiWorker<P>) {
    let was_empty = worker.was_empty;
    let (mut orphaned, mut is_new) = (Vec::new(), false);
    for (_, conn) in &mut worker.conns {
        if !conn.awaits_sends() || conn.remote.is_none() {
            continue;
        }
        if conn.lost_lock && was_empty {
            orphaned.push(conn.link.clone());
        } else if conn.lost_lock || conn.is_dead() {
            conn.lost_lock = true;
            is_new = true;
        }
    }
    for link in orphaned {
        log::diag!("the process of a peer has ended with sends to it outstanding");
        worker.fail_conn(&link, UCS_ERR_CONNECTION_RESET);
    }
    if is_new {
        // From here on: the queue has to be found empty after the peer's end.
        (worker.was_empty, worker.is_busy) = (false, true);
    }
}

/// Ends the connections of the provider `tcp` to hosts that do not acknowledge any more, if endpoints watch a peer
/// there. The provider then reports what was sent by them as failed. Connections to the host that no endpoint watches
/// end as well: a socket does not say of which peer it is.
fn shut_down_silent<S: Sink>(worker: &mut OfiWorker<S::Peer>, sink: S, now: u64) {
    let Some((own, hosts)) = &mut worker.tcp else {
        return;
    };
    let watched = worker.conns.iter().filter_map(|(_, conn)| {
        let watches = conn.peer.is_some_and(|peer| sink.watches_death(peer));
        socket_name(&conn.name).filter(|_| watches && !conn.is_broken)
    });
    let peers: HashSet<_> = watched.collect();
    if peers.is_empty() {
        return;
    }
    let sockets = TcpSocket::find(*own, &peers);
    let interval = Duration::from_millis(worker.keepalive_ms);
    sockets
        .iter()
        .for_each(|socket| socket.keep_alive(interval));
    let silences = sockets.iter().filter_map(|socket| {
        let (silence, is_due) = socket.silence()?;
        Some((socket.host, silence, is_due))
    });
    let limit = worker.keepalive_ms.saturating_mul(SILENT_INTERVALS);
    let unreachable = hosts.look(silences, now, limit);
    for socket in sockets
        .iter()
        .filter(|socket| unreachable.contains(&socket.host))
    {
        log::diag!(
            "host {} does not acknowledge: its connection ends",
            socket.host
        );
        socket.shut_down();
    }
}

/// Fails the peers whose processes have ended, and probes those that endpoints watch.
fn probe<S: Sink>(worker: &mut OfiWorker<S::Peer>, sink: S) {
    let mut probes = Vec::new();
    let mut dead = Vec::new();
    for (_, conn) in &worker.conns {
        let watches = conn.peer.is_some_and(|peer| sink.watches_death(peer));
        if !watches || conn.is_broken {
            continue;
        }
        if conn.is_dead() {
            dead.push(conn.link.clone());
        } else if conn.link.outstanding() == 0 {
            probes.extend(probe_of(conn));
        }
    }
    for link in dead {
        log::diag!("the process of a peer has ended");
        worker.fail_conn(&link, UCS_ERR_CONNECTION_RESET);
    }
    for (link, packet) in probes {
        send_probe(worker, &link, packet);
    }
}

/// The probe of a connection that is open, and its way. It has the number of packets that were sent.
fn probe_of<P>(conn: &OfiConn<P>) -> Option<(Arc<OfiTxLink>, Vec<u8>)> {
    let to = conn.remote.filter(|_| !conn.is_broken)?;
    Some((conn.link.clone(), bare(to, PROBE, conn.link.sent())))
}

/// Probes every open connection.
#[cold]
pub fn probe_all<P: Copy + Eq>(worker: &mut OfiWorker<P>) {
    let conns = worker.conns.iter();
    let probes: Vec<_> = conns.filter_map(|(_, conn)| probe_of(conn)).collect();
    for (link, packet) in probes {
        send_probe(worker, &link, packet);
    }
}

/// Sends a probe, unless packets to the peer wait for room: their completions report as much.
fn send_probe<P: Copy + Eq>(worker: &mut OfiWorker<P>, link: &Arc<OfiTxLink>, packet: Vec<u8>) {
    let is_queued = worker
        .control
        .iter()
        .any(|(other, _)| Arc::ptr_eq(other, link));
    if !is_queued {
        worker.send_control(link, packet);
    }
}
