//! Connections: the hello of one worker, and the answer of the other.
//!
//! Either worker begins. A hello grants the other an end, and the answer, or the other's own hello if both begin at
//! once, grants one in return.

use super::address::{OfiLocator, OfiTarget};
use super::choice::IfaceRole;
use super::conn::OfiConn;
use super::hello::{HelloAge, PendingHello};
use super::loss;
use super::packet::{self, Grant, Hello, PacketHdr, RESET, bare};
use super::tx_link::OfiTxLink;
use super::worker::{OfiWorker, lane_up};
use crate::ctypes::*;
use crate::sys::log;
use crate::tl::LaneTarget;
use crate::tl::sink::Sink;
use std::io;
use std::sync::Arc;

/// Hellos to a rail that are kept until a clock tick.
const MAX_RAIL_HELLOS: usize = 1024;
/// Time after which a request to connect is sent again for the first time, milliseconds.
const AGAIN_MS: u64 = 1000;

/// Begins to connect to the worker `uid`, which is at `to`.
///
/// # Errors
/// The status with which the peer fails if no other interface reaches it, and why.
pub fn begin<P: Copy + Eq>(
    worker: &mut OfiWorker<P>,
    (peer, uid): (P, u64),
    to: &OfiLocator,
) -> Result<(), (ucs_status_t, String)> {
    if worker.is_dead {
        return Err((UCS_ERR_UNREACHABLE, "the provider works no more".into()));
    }
    let unreachable = |e: io::Error| (UCS_ERR_UNREACHABLE, e.to_string());
    let addr = worker.iface.insert(&to.name).map_err(unreachable)?;
    let (from, own) = (worker.uid, worker.own.clone());
    let conn = worker.add(peer, uid, to, addr);
    let link = conn.link.clone();
    let is_dead = conn.is_dead();
    let hello = packet::hello((from, &own, conn.grant()), (uid, to));
    conn.request = Some(Box::new(PendingHello {
        packet: hello.clone(),
        again: conn.begun + AGAIN_MS,
        interval: AGAIN_MS,
        obstacle: String::new(),
        age: HelloAge::Recent,
    }));
    if is_dead {
        log::diag!("worker {uid:#x} cannot be reached by libfabric: it has ended");
        worker.fail_conn(&link, UCS_ERR_UNREACHABLE);
    } else {
        worker.send_control(&link, hello);
    }
    Ok(())
}

/// Sends a request to connect again that has arrived, as far as the provider knows, and was not answered for a time:
/// the receive has failed, or the peer does not progress. Each time is twice as long as the one before.
pub fn ask_again<P: Copy + Eq>(worker: &mut OfiWorker<P>, now: u64) {
    let mut late = Vec::new();
    for (_, conn) in &mut worker.conns {
        let is_sent = conn.link.outstanding() == 0 && !conn.is_broken;
        if let Some(request) = conn.request.as_mut().filter(|_| is_sent)
            && now >= request.again
        {
            request.interval *= 2;
            request.again = now.saturating_add(request.interval);
            late.push((conn.link.clone(), request.packet.clone()));
        }
    }
    for (link, packet) in late {
        worker.send_control(&link, packet);
    }
}

/// Ends the connection with the worker `uid`, of which this side needs nothing any more, and resets it for the peer.
pub fn end<P: Copy + Eq>(worker: &mut OfiWorker<P>, uid: u64) {
    if let Some(conn) = worker.of_uid(uid) {
        conn.peer = None;
        disconnect(worker, uid);
    }
    worker.by_uid.remove(&uid);
}

/// Resets the connection of a peer, by its uid, for the peer. One that the peer has not answered is reset when it
/// does.
fn disconnect<P: Copy + Eq>(worker: &mut OfiWorker<P>, uid: u64) {
    let number = worker.by_uid.get(&uid).copied();
    let conn = number.and_then(|number| worker.conns.get(number as usize));
    if let Some((link, packet)) = conn.and_then(reset) {
        worker.send_control(&link, packet);
    }
}

/// The packet that resets an open connection, and its way. `None`: the peer has not answered, or does not any more.
pub fn reset<P>(conn: &OfiConn<P>) -> Option<(Arc<OfiTxLink>, Vec<u8>)> {
    if conn.is_broken {
        return None;
    }
    last_words(conn)
}

/// The packet that resets a connection that has failed here, and its way: the peer may be there, and know nothing of
/// it.
pub fn last_words<P>(conn: &OfiConn<P>) -> Option<(Arc<OfiTxLink>, Vec<u8>)> {
    let to = conn.remote.filter(|_| !conn.has_ended)?;
    // A provider may wait for ever for a lock that the dead process has held.
    (!conn.is_dead()).then(|| (conn.link.clone(), bare(to, RESET, 0)))
}

/// Handles the hello of a peer.
pub fn on_hello<S: Sink>(worker: &mut OfiWorker<S::Peer>, sink: S, body: &[u8]) {
    let Some((hello, from)) = packet::parse_hello(body, worker.uid, &worker.own) else {
        loss::on_dropped(worker);
        return log::diag!("a packet by libfabric is dropped: its hello is not for this worker");
    };
    if worker.role == IfaceRole::Rail {
        // The peer's lane is one of another interface.
        if worker.rail_hellos.len() < MAX_RAIL_HELLOS {
            worker.rail_hellos.push((hello, from));
        }
        return;
    }
    let (uid, to) = (hello.from, hello.grant());
    let known = worker.of_uid(uid).map(|conn| (conn.remote, conn.peer));
    match known {
        // The answer was lost, or is on its way.
        Some((Some(remote), _)) if remote == to => return answer(worker, uid, to),
        // The peer has lost the former connection, and begins again.
        Some((Some(_), Some(peer))) => {
            log::debug!("worker {uid:#x} connects again: the former connection is ended");
            if let Some(conn) = worker.of_uid(uid) {
                conn.peer = None;
            }
            worker.by_uid.remove(&uid);
            sink.lane_down(peer, UCS_ERR_CONNECTION_RESET);
        }
        Some((None, Some(peer))) if sink.has_failed(peer) => end(worker, uid),
        // Both have begun.
        Some((None, _)) => return open(worker, sink, uid, to, true),
        _ => {}
    }
    accept(worker, sink, uid, &from, to);
}

/// Handles the hello that a peer which has a lane here has sent to a rail.
pub fn on_rail_hello<S: Sink>(
    worker: &mut OfiWorker<S::Peer>,
    sink: S,
    peer: S::Peer,
    hello: &Hello,
    from: &OfiLocator,
) {
    let (uid, to) = (hello.from, hello.grant());
    let known = worker.of_uid(uid).map(|conn| (conn.remote, conn.peer));
    match known {
        // The answer was lost, or is on its way.
        Some((Some(remote), _)) if remote == to => return answer(worker, uid, to),
        // The peer has lost the former connection, and begins again; or it is another peer.
        Some((Some(_), _)) => end(worker, uid),
        Some((None, of)) if of != Some(peer) => end(worker, uid),
        // Both have begun.
        Some((None, _)) => return open(worker, sink, uid, to, true),
        None => {}
    }
    match worker.iface.insert(&from.name) {
        Ok(addr) => {
            worker.add(peer, uid, from, addr);
            open(worker, sink, uid, to, false);
        }
        Err(e) => log::diag!("a rail of worker {uid:#x} is refused: {e}"),
    }
}

/// Makes a connection of a peer's, and answers.
fn accept<S: Sink>(
    worker: &mut OfiWorker<S::Peer>,
    sink: S,
    uid: u64,
    from: &OfiLocator,
    to: Grant,
) {
    let target = OfiTarget::only(worker.index, from.clone());
    let Some(peer) = sink.peer(uid, LaneTarget::Ofi(target)) else {
        return;
    };
    let addr = match worker.iface.insert(&from.name) {
        Ok(addr) => addr,
        Err(e) => {
            log::diag!("the hello of worker {uid:#x} is dropped: {e}");
            return sink.incoming_refused(peer);
        }
    };
    worker.add(peer, uid, from, addr);
    sink.incoming_up(peer);
    open(worker, sink, uid, to, false);
}

/// Opens the connection with the worker `uid`, whose end is `to`, and answers. `begun`: this side has begun, and wants
/// a lane.
fn open<S: Sink>(worker: &mut OfiWorker<S::Peer>, sink: S, uid: u64, to: Grant, begun: bool) {
    let Some(conn) = worker.of_uid(uid) else {
        return;
    };
    conn.remote = Some(to);
    conn.request = None;
    let (number, peer) = (conn.link.conn, conn.peer);
    answer(worker, uid, to);
    if begun || peer.is_some_and(|peer| sink.state(peer).is_connecting) {
        lane_up(worker, sink, number);
    }
}

/// Answers the request of the worker `uid`, whose end is `to`.
fn answer<P: Copy + Eq>(worker: &mut OfiWorker<P>, uid: u64, to: Grant) {
    if let Some(conn) = worker.of_uid(uid) {
        let (link, packet) = (conn.link.clone(), packet::accept(to, conn.grant()));
        worker.send_control(&link, packet);
    }
}

/// Handles a peer's answer to a hello.
pub fn on_accept<S: Sink>(worker: &mut OfiWorker<S::Peer>, sink: S, hdr: &PacketHdr, body: &[u8]) {
    let Some(accept) = packet::Accept::decode(body) else {
        return;
    };
    let own = hdr.grant();
    let Some(conn) = worker.granted(own).filter(|conn| conn.remote.is_none()) else {
        return;
    };
    conn.remote = Some(Grant {
        conn: accept.conn,
        key: accept.key,
    });
    conn.request = None;
    if conn.peer.is_some() {
        if let Some(peer) = conn.peer
            && worker.role == IfaceRole::Lane
        {
            sink.incoming_up(peer);
        }
        lane_up(worker, sink, own.conn);
    } else if let Some((link, packet)) = reset(conn) {
        // The peer has failed here meanwhile.
        worker.send_control(&link, packet);
    }
}
