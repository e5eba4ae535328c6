//! Connections: the hello of one worker, and the answer of the other.
//!
//! Either worker begins. A hello grants the other an end, and the answer, or the other's own hello if both begin at
//! once, grants one in return.

use super::address::{OfiLocator, OfiTarget};
use super::choice::IfaceRole;
use super::conn::{OfiConn, conn_down};
use super::failover_session::ConnFailover;
use super::hello::{ConnectFor, HelloAge, PendingHello};
use super::iface::{OfiIface, lane_up};
use super::loss;
use super::packet::{self, Grant, PacketHdr, ParsedHello, RESET, bare};
use super::reorder::OfiReorder;
use super::tx_link::OfiTxLink;
use crate::ctypes::*;
use crate::sys::log;
use crate::tl::LaneTarget;
use crate::tl::sink::{PeerContact, Sink};
use std::io;
use std::sync::Arc;

/// Hellos of either kind that are kept until a clock tick.
const MAX_HELLOS: usize = 1024;
/// Time after which a request to connect is sent again for the first time, milliseconds.
const AGAIN_MS: u64 = 1000;

/// Begins to connect to the worker `uid`, which is at `to`.
///
/// # Errors
/// The status with which the peer fails if no other interface reaches it, and why.
pub fn begin<P: Copy + Eq>(
    iface: &mut OfiIface<P>,
    (peer, uid): (P, u64),
    to: &OfiLocator,
    what: ConnectFor,
) -> Result<(), (ucs_status_t, String)> {
    if iface.is_dead {
        return Err((UCS_ERR_UNREACHABLE, "the provider works no more".into()));
    }
    let unreachable = |e: io::Error| (UCS_ERR_UNREACHABLE, e.to_string());
    let addr = iface.ep.insert(&to.name).map_err(unreachable)?;
    let (from, own) = (iface.uid, iface.own.clone());
    let fails_over = matches!(what, ConnectFor::FailoverLane(_));
    if fails_over {
        // The rail of a former peer.
        end(iface, uid);
    }
    let locators = iface.locators.clone().filter(|_| fails_over);
    let conn = iface.add(peer, uid, to, addr);
    let link = conn.link.clone();
    let is_dead = conn.is_dead();
    let mut first = (conn.key, 0);
    if let ConnectFor::FailoverLane(failed) = what {
        if let Some(failed) = failed {
            first = (failed.key, failed.next);
            conn.order = OfiReorder::starting_at(failed.next);
        }
        conn.role = IfaceRole::Lane;
        conn.failover = ConnFailover::Wanted(first.0);
    }
    let names = (from, &own, conn.grant());
    let hello = packet::hello(names, (uid, to), locators.as_deref(), first);
    conn.request = Some(Box::new(PendingHello {
        packet: hello.clone(),
        again: conn.begun + AGAIN_MS,
        interval: AGAIN_MS,
        obstacle: String::new(),
        age: HelloAge::Recent,
    }));
    if is_dead {
        log::diag!("worker {uid:#x} cannot be reached by libfabric: it has ended");
        iface.fail_conn(&link, UCS_ERR_UNREACHABLE);
    } else {
        iface.send_control(&link, hello);
    }
    Ok(())
}

/// Sends a request to connect again that has arrived, as far as the provider knows, and was not answered for a time:
/// the receive has failed, or the peer does not progress. Each time is twice as long as the one before.
pub fn ask_again<P: Copy + Eq>(iface: &mut OfiIface<P>, now: u64) {
    let mut late = Vec::new();
    for (_, conn) in &mut iface.conns {
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
        iface.send_control(&link, packet);
    }
}

/// Ends the connection with the worker `uid`, of which this side needs nothing any more, and resets it for the peer.
pub fn end<P: Copy + Eq>(iface: &mut OfiIface<P>, uid: u64) {
    if let Some(conn) = iface.of_uid(uid) {
        conn.peer = None;
        disconnect(iface, uid);
    }
    iface.by_uid.remove(&uid);
}

/// Resets the connection of a peer, by its uid, for the peer. One that the peer has not answered is reset when it
/// does.
fn disconnect<P: Copy + Eq>(iface: &mut OfiIface<P>, uid: u64) {
    let number = iface.by_uid.get(&uid).copied();
    let conn = number.and_then(|number| iface.conns.get(number as usize));
    if let Some((link, packet)) = conn.and_then(reset) {
        iface.send_control(&link, packet);
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
pub fn on_hello<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S, body: &[u8]) {
    let Some(parsed) = packet::parse_hello(body, iface.uid, &iface.own) else {
        loss::on_dropped(iface);
        return log::diag!("a packet by libfabric is dropped: its hello is not for this worker");
    };
    if iface.role == IfaceRole::Rail && parsed.locators.is_none() {
        // The peer's lane is one of another interface.
        if iface.rail_hellos.len() < MAX_HELLOS {
            iface.rail_hellos.push(parsed);
        }
    } else if may_have_moved(iface, &parsed) {
        if iface.failover.hellos.len() < MAX_HELLOS {
            iface.failover.hellos.push(parsed);
        }
    } else {
        on_lane_hello(iface, sink, &parsed);
    }
}

/// Whether a hello may be of a connection that this side has opened, and that another interface has: the peer has not
/// got the answer.
fn may_have_moved<P: Copy + Eq>(iface: &OfiIface<P>, parsed: &ParsedHello) -> bool {
    let hello = &parsed.hello;
    let number = iface.by_uid.get(&hello.from);
    let conn = number.and_then(|&number| iface.conns.get(number as usize));
    let has_moved =
        |conn: &OfiConn<P>| conn.failover.has_moved() && conn.remote == Some(hello.grant);
    parsed.locators.is_some() && (hello.session != hello.grant.key || conn.is_some_and(has_moved))
}

/// Handles the hello of a peer for a lane, which is of no connection that another interface has.
pub fn on_lane_hello<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S, parsed: &ParsedHello) {
    let (uid, to) = (parsed.hello.from, parsed.hello.grant);
    let rail = iface
        .of_uid(uid)
        .filter(|conn| conn.role == IfaceRole::Rail);
    if let Some((Some(peer), link)) = rail.map(|conn| (conn.peer, conn.link.clone())) {
        conn_down(IfaceRole::Rail, sink, peer, &link, UCS_ERR_CONNECTION_RESET);
        end(iface, uid);
    }
    let known = iface.of_uid(uid).map(|conn| {
        // One that is asked to move was open.
        let was_open = conn.remote.is_some() || conn.failover.session().is_some();
        (conn.remote, conn.peer, was_open)
    });
    match known {
        // The answer was lost, or is on its way.
        Some((Some(remote), ..)) if remote == to => return answer(iface, uid, to),
        // The peer has lost the former connection, and begins again.
        Some((_, Some(peer), true)) => {
            log::debug!("worker {uid:#x} connects again: the former connection is ended");
            if let Some(conn) = iface.of_uid(uid) {
                conn.peer = None;
            }
            iface.by_uid.remove(&uid);
            sink.lane_down(peer, UCS_ERR_CONNECTION_RESET);
        }
        Some((None, Some(peer), _)) if sink.has_failed(peer) => end(iface, uid),
        // Both have begun.
        Some((None, ..)) => return open(iface, sink, parsed, parsed.locators.is_some(), true),
        _ => {}
    }
    accept(iface, sink, parsed);
}

/// Handles the hello that a peer which has a lane here has sent to a rail.
pub fn on_rail_hello<S: Sink>(
    iface: &mut OfiIface<S::Peer>,
    sink: S,
    peer: S::Peer,
    parsed: &ParsedHello,
) {
    let (uid, to, from) = (parsed.hello.from, parsed.hello.grant, &parsed.from);
    let known = iface.of_uid(uid).map(|conn| (conn.remote, conn.peer));
    match known {
        // The answer was lost, or is on its way.
        Some((Some(remote), _)) if remote == to => return answer(iface, uid, to),
        // The peer has lost the former connection, and begins again; or it is another peer.
        Some((Some(_), _)) => end(iface, uid),
        Some((None, of)) if of != Some(peer) => end(iface, uid),
        // Both have begun.
        Some((None, _)) => return open(iface, sink, parsed, false, true),
        None => {}
    }
    match iface.ep.insert(&from.name) {
        Ok(addr) => {
            iface.add(peer, uid, from, addr);
            open(iface, sink, parsed, false, false);
        }
        Err(e) => log::diag!("a rail of worker {uid:#x} is refused: {e}"),
    }
}

/// Makes a connection of a peer's, and answers.
fn accept<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S, parsed: &ParsedHello) {
    let (uid, from) = (parsed.hello.from, &parsed.from);
    let Some(peer) = sender_of(iface, sink, parsed) else {
        return;
    };
    let addr = match iface.ep.insert(&from.name) {
        Ok(addr) => addr,
        Err(e) => {
            log::diag!("the hello of worker {uid:#x} is dropped: {e}");
            return sink.incoming_refused(peer);
        }
    };
    iface.add(peer, uid, from, addr).role = IfaceRole::Lane;
    sink.incoming_up(peer);
    let fails_over = parsed.locators.is_some() || wants_failover(&sink.contact(peer), iface.uid);
    open(iface, sink, parsed, fails_over, false);
}

/// The peer that has sent a hello.
fn sender_of<S: Sink>(iface: &OfiIface<S::Peer>, sink: S, parsed: &ParsedHello) -> Option<S::Peer> {
    let all = OfiTarget::between(iface.locators.as_deref(), parsed.locators.as_ref());
    let target = all.unwrap_or_else(|| OfiTarget::only(iface.index, parsed.from.clone()));
    sink.peer(parsed.hello.from, LaneTarget::Ofi(target))
}

/// Whether the connection to a peer is to go on by another interface if one fails. `own`: uid of this worker.
pub fn wants_failover(contact: &PeerContact, own: u64) -> bool {
    let has_others = match &contact.target {
        Some(LaneTarget::Ofi(target)) => target.all_paths().nth(1).is_some(),
        _ => false,
    };
    contact.fails_over && has_others && contact.uid != own
}

/// Opens the connection with the sender of a hello, and answers. `fails_over`: the peer wants failover, or this side
/// does; `begun`: this side has begun, and wants a lane.
fn open<S: Sink>(
    iface: &mut OfiIface<S::Peer>,
    sink: S,
    parsed: &ParsedHello,
    fails_over: bool,
    begun: bool,
) {
    let (uid, to) = (parsed.hello.from, parsed.hello.grant);
    let Some(conn) = iface.of_uid(uid) else {
        return;
    };
    conn.remote = Some(to);
    conn.request = None;
    if fails_over || conn.failover.is_wanted() {
        conn.set_failover(parsed.hello.session, 0);
    }
    let (number, peer) = (conn.link.conn, conn.peer);
    if let Some(peer) = peer.filter(|_| conn.failover.session().is_some()) {
        sink.note_failover(peer);
    }
    answer(iface, uid, to);
    if begun || peer.is_some_and(|peer| sink.state(peer).is_connecting) {
        lane_up(iface, sink, number);
    }
}

/// Answers the request of the worker `uid`, whose end is `to`.
pub fn answer<P: Copy + Eq>(iface: &mut OfiIface<P>, uid: u64, to: Grant) {
    if let Some(conn) = iface.of_uid(uid) {
        let session = conn.failover.session();
        let failover = session.map(|session| (session.own_key, session.generation));
        let packet = packet::accept(to, conn.grant(), failover);
        let link = conn.link.clone();
        iface.send_control(&link, packet);
    }
}

/// Handles a peer's answer to a hello.
pub fn on_accept<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S, hdr: &PacketHdr, body: &[u8]) {
    let Some(accept) = packet::Accept::decode(body) else {
        return;
    };
    let own = hdr.grant();
    let awaits =
        |conn: &&mut OfiConn<S::Peer>| conn.remote.is_none() && conn.failover.session().is_none();
    let Some(conn) = iface.granted(own).filter(awaits) else {
        return;
    };
    (conn.remote, conn.request) = (Some(accept.grant), None);
    if accept.fails_over() {
        conn.set_failover(accept.session, accept.generation);
        conn.peer
            .into_iter()
            .for_each(|peer| sink.note_failover(peer));
    }
    if conn.peer.is_some() {
        if let Some(peer) = conn.peer
            && conn.role == IfaceRole::Lane
        {
            sink.incoming_up(peer);
        }
        lane_up(iface, sink, own.conn);
    } else if let Some((link, packet)) = reset(conn) {
        // The peer has failed here meanwhile.
        iface.send_control(&link, packet);
    }
}
