//! What is due at a clock tick: failed peers, peers that do not answer, probes.

use super::choice::IfaceRole;
use super::conn::OfiConn;
use super::connect::{ask_again, end, reset};
use super::failover_ack;
use super::hello::{FailedConnect, HelloAge};
use super::iface::OfiIface;
use super::loss;
use super::packet::{PROBE, bare};
use super::refusal::end_refused;
use super::refused_hello;
use super::rma_completion;
use super::tcp_sockets::{SILENT_INTERVALS, TcpSocket, socket_name};
use super::tx_link::OfiTxLink;
use crate::ctypes::*;
use crate::sys::{advice, log};
use crate::tl::sink::Sink;
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Interval at which connections are looked at, milliseconds.
const LOOK_MS: u64 = 20;
/// Interval at which the lock of a peer is looked at that has not answered, milliseconds.
const CONNECTING_LOOK_MS: u64 = 100;

/// Ends the connections of failed peers, and probes others.
pub fn tick<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S, now: u64) {
    if now < iface.next_look {
        return;
    }
    iface.next_look = now + LOOK_MS;
    drop_failed(iface, sink);
    if now >= iface.next_connecting_look {
        iface.next_connecting_look = now + CONNECTING_LOOK_MS;
        ask_again(iface, now);
        failover_ack::ask(iface, sink, now);
        expire(iface, now);
        forget_late_control(iface, now);
        end_orphaned(iface);
        end_refused(iface, now);
        rma_completion::fail_unreported(iface, sink, now);
        rma_completion::end_dead(iface, sink);
        if let Some(mrs) = &iface.mrs {
            mrs.trim();
        }
    }
    if iface.has_losses {
        loss::look(iface, now);
    }
    if now >= iface.next_probe {
        iface.next_probe = now.saturating_add(iface.keepalive_ms);
        shut_down_silent(iface, sink, now);
        probe(iface, sink);
    }
    iface.remove_ended();
    refused_hello::forget_reset(iface);
}

/// Ends the connections of peers that have failed in the layer above.
fn drop_failed<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S) {
    let mut ended = Vec::new();
    for (_, conn) in &mut iface.conns {
        // One that moves is given up by the attempt, which resets the former connection.
        let session = conn.failover.session();
        let is_moving = session.is_some_and(|session| session.attempt.is_some());
        if !is_moving && conn.peer.is_some_and(|peer| sink.has_failed(peer)) {
            conn.peer = None;
            ended.push((conn.uid, conn.link.clone()));
        }
    }
    for (uid, link) in ended {
        if let Some((link, packet)) = iface.of_link(&link).and_then(|conn| reset(conn)) {
            iface.send_control(&link, packet);
        }
        if iface.by_uid.get(&uid) == Some(&link.conn) {
            end(iface, uid);
        }
    }
}

/// Fails the connections whose peers have ended before they answered, and those without a peer that are not answered in
/// time: a request to connect, or the end of a connection. Where a peer waits for the answer other interfaces connect.
fn expire<P: Copy + Eq>(iface: &mut OfiIface<P>, now: u64) {
    let (mut late, mut unanswered) = (Vec::new(), Vec::new());
    for (_, conn) in &mut iface.conns {
        let is_rail = conn.role == IfaceRole::Rail;
        let awaits = conn.remote.is_none() || conn.peer.is_none() && !conn.has_ended;
        if !awaits || conn.is_broken {
            continue;
        }
        // A connection that moves has a time of its own.
        let is_moving = conn.failover.session().is_some();
        let is_late = !is_moving && now >= conn.begun.saturating_add(iface.timeout_ms);
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
        iface.fail_conn(&link, status);
    }
    for (peer, uid) in unanswered {
        log::diag!("worker {uid:#x} does not answer by libfabric (UCX_OFI_TIMEOUT)");
        iface.unanswered.push(FailedConnect {
            peer,
            uid,
            // It is answered yet, perhaps.
            hello: None,
            status: UCS_ERR_ENDPOINT_TIMEOUT,
            obstacle: format!("no answer in UCX_OFI_TIMEOUT: {}", advice::ON_CONNECTION),
        });
    }
}

/// Gives up the packets of the transport's own that wait for room for longer than `UCX_OFI_TIMEOUT`, of connections
/// that have no peer any more: resets, and answers to requests to move.
fn forget_late_control<P: Copy + Eq>(iface: &mut OfiIface<P>, now: u64) {
    let OfiIface { control, conns, .. } = iface;
    let Some(before) = now.checked_sub(iface.timeout_ms) else {
        return;
    };
    let has_peer = |link: &Arc<OfiTxLink>| {
        let conn = conns.get(link.conn as usize);
        conn.is_some_and(|conn| Arc::ptr_eq(&conn.link, link) && conn.peer.is_some())
    };
    for link in control.forget_late(before, has_peer) {
        // The end of the connection is not acknowledged any more.
        if let Some(conn) = iface.of_link(&link) {
            conn.is_broken = true;
        }
    }
}

/// Fails the connections on which sends wait for a peer on this host whose process has ended. A provider may wait for
/// ever: `shm` for room in the peer's memory, `tcp;ofi_rxm` for a new connection, after it has lost the old one without
/// an error. What the peer had sent before its end is handled first.
fn end_orphaned<P: Copy + Eq>(iface: &mut OfiIface<P>) {
    let was_empty = iface.was_empty;
    let (mut orphaned, mut is_new) = (Vec::new(), false);
    for (_, conn) in &mut iface.conns {
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
        iface.fail_conn(&link, UCS_ERR_CONNECTION_RESET);
    }
    if is_new {
        // From here on: the queue has to be found empty after the peer's end.
        (iface.was_empty, iface.is_busy) = (false, true);
    }
}

/// Whether an endpoint is to learn of the end of the connection's peer.
fn is_watched<S: Sink>(conn: &OfiConn<S::Peer>, sink: S) -> bool {
    conn.peer.is_some_and(|peer| sink.watches_death(peer))
}

/// Ends the connections of the provider `tcp` to hosts that do not acknowledge any more, if endpoints watch a peer
/// there, or have moved their connection to it while reads are outstanding. The provider then reports what it has not
/// written as failed. Connections to the host that no endpoint watches end as well: a socket does not say of which
/// peer it is.
fn shut_down_silent<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S, now: u64) {
    let Some((own, hosts)) = &mut iface.tcp else {
        return;
    };
    let watched = iface.conns.iter().filter_map(|(_, conn)| {
        let is_waited_for = is_watched(conn, sink) && !conn.is_broken || conn.has_moved_ops();
        socket_name(&conn.name).filter(|_| is_waited_for)
    });
    let peers: HashSet<_> = watched.collect();
    if peers.is_empty() {
        return;
    }
    let sockets = TcpSocket::find(*own, &peers);
    let interval = Duration::from_millis(iface.keepalive_ms);
    sockets
        .iter()
        .for_each(|socket| socket.keep_alive(interval));
    let silences = sockets.iter().filter_map(|socket| {
        let (silence, is_due) = socket.silence()?;
        Some((socket.host, silence, is_due))
    });
    let limit = iface.keepalive_ms.saturating_mul(SILENT_INTERVALS);
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
    // Also where the only connections there are not answered yet, or have moved.
    iface.was_cut |= !unreachable.is_empty();
    fail_conns_to(iface, sink, &unreachable);
}

/// Fails the connections to these hosts that endpoints watch, and those by which something was sent that has not ended.
/// The provider reports no error where it waits for the peer alone: it completes what it has written to a socket, and
/// `ofi_rxm` forgets a connection with the messages that the peer is to read. A connection that is not answered yet has
/// a limit of its own.
fn fail_conns_to<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S, hosts: &HashSet<IpAddr>) {
    let is_there = |conn: &OfiConn<S::Peer>| {
        let is_used = is_watched(conn, sink) || conn.awaits_sends();
        let name = socket_name(&conn.name).filter(|_| is_used && conn.remote.is_some());
        name.is_some_and(|(host, _)| hosts.contains(&host))
    };
    let conns = iface.conns.iter().filter(|(_, conn)| is_there(conn));
    let links: Vec<_> = conns.map(|(_, conn)| conn.link.clone()).collect();
    for link in links {
        iface.fail_conn(&link, UCS_ERR_CONNECTION_RESET);
    }
}

/// Fails the peers whose processes have ended, and probes those that endpoints watch.
fn probe<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S) {
    let mut probes = Vec::new();
    let mut dead = Vec::new();
    for (_, conn) in &iface.conns {
        if !is_watched(conn, sink) || conn.is_broken {
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
        iface.fail_conn(&link, UCS_ERR_CONNECTION_RESET);
    }
    for (link, packet) in probes {
        iface.send_probe(&link, packet);
    }
}

/// The probe of a connection that is open, and its way. It has the number of packets that were sent.
fn probe_of<P>(conn: &OfiConn<P>) -> Option<(Arc<OfiTxLink>, Vec<u8>)> {
    let to = conn.remote.filter(|_| !conn.is_broken)?;
    Some((conn.link.clone(), bare(to, PROBE, conn.link.sent())))
}

/// Probes every open connection.
#[cold]
pub fn probe_all<P: Copy + Eq>(iface: &mut OfiIface<P>) {
    let conns = iface.conns.iter();
    let probes: Vec<_> = conns.filter_map(|(_, conn)| probe_of(conn)).collect();
    for (link, packet) in probes {
        iface.send_probe(&link, packet);
    }
}
