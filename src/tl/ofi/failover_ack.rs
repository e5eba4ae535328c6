//! Acknowledgements of a connection with failover.

use super::conn::{OfiConn, with_sender};
use super::failover_session::OfiSession;
use super::iface::OfiIface;
use super::packet::{ACK, Grant, PROBE, bare};
use super::sender::OfiSender;
use crate::tl::sink::Sink;

/// Time after which the peer is asked for an acknowledgement, milliseconds: one may be lost.
pub const ASK_MS: u64 = 1000;
/// Records after which an acknowledgement is sent at once.
const ACK_EVERY: u32 = 16;

/// A record of the connection `own` has arrived, which its sender keeps until it is acknowledged: that is when the
/// completion queue is found empty, or after some records.
pub fn on_kept<P: Copy + Eq>(iface: &mut OfiIface<P>, own: Grant) {
    let Some(conn) = iface.granted(own) else {
        return;
    };
    let (number, key) = (conn.link.conn, conn.key);
    let Some(session) = conn.failover.session_mut() else {
        return;
    };
    session.confirm(key);
    session.unacked += 1;
    let is_due = session.unacked >= ACK_EVERY;
    if !std::mem::replace(&mut session.is_listed, true) {
        iface.acks_due.push(number);
        iface.is_busy = true;
    }
    if is_due {
        send_ack(iface, number);
    }
}

/// The peer of the connection `own` asks for an acknowledgement.
pub fn on_probe<P: Copy + Eq>(iface: &mut OfiIface<P>, own: Grant) {
    on_kept(iface, own);
}

/// Asks the peers for an acknowledgement that have sent none for a time, and forgets former connections. Called several
/// times a second.
pub fn ask<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S, now: u64) {
    let mut probes = Vec::new();
    for (_, conn) in &mut iface.conns {
        let (Some(session), Some(peer), Some(to)) =
            (conn.failover.session_mut(), conn.peer, conn.remote)
        else {
            continue;
        };
        with_sender(sink, peer, OfiSender::forget_drained);
        let first = awaited(sink, peer, session);
        session.waits = match (first, session.waits) {
            (None, _) => None,
            (Some(first), Some((same, since))) if same == first => {
                let is_due = now >= since.saturating_add(ASK_MS) && !conn.is_broken;
                if is_due {
                    probes.push((conn.link.clone(), bare(to, PROBE, conn.link.sent())));
                }
                Some((first, if is_due { now } else { since }))
            }
            (Some(first), _) => Some((first, now)),
        };
    }
    for (link, packet) in probes {
        iface.send_probe(&link, packet);
    }
}

/// Number of the first record that a peer has not acknowledged, or, while the peer has sent nothing since it has moved
/// the connection, any number.
fn awaited<S: Sink>(sink: S, peer: S::Peer, session: &OfiSession) -> Option<u32> {
    let first = with_sender(sink, peer, |sender| sender.unacknowledged()).flatten();
    first.or_else(|| session.silent_since.map(|_| 0))
}

/// Whether a peer is to be [asked](ask) for an acknowledgement if it sends none.
pub fn awaits_ack<S: Sink>(iface: &OfiIface<S::Peer>, sink: S) -> bool {
    iface.conns.iter().any(|(_, conn)| {
        let session = conn.failover.session().zip(conn.peer);
        session.is_some_and(|(session, peer)| awaited(sink, peer, session).is_some())
    })
}

/// Acknowledges what has arrived. Called when the completion queue was found empty.
pub fn send_acks<P: Copy + Eq>(iface: &mut OfiIface<P>) {
    for number in std::mem::take(&mut iface.acks_due) {
        let is_sent = send_ack(iface, number);
        if let Some(session) = session_of(iface, number) {
            session.is_listed = !is_sent;
            if !is_sent {
                iface.acks_due.push(number);
            }
        }
    }
}

fn session_of<P: Copy + Eq>(iface: &mut OfiIface<P>, number: u32) -> Option<&mut OfiSession> {
    let conn = iface.conns.get_mut(number as usize)?;
    conn.failover.session_mut()
}

/// Acknowledges what has arrived on a connection, by its number. False: there is no room now.
fn send_ack<P: Copy + Eq>(iface: &mut OfiIface<P>, number: u32) -> bool {
    let OfiIface { conns, ep, .. } = iface;
    let Some(OfiConn {
        failover,
        link,
        order,
        remote,
        is_broken,
        ..
    }) = conns.get_mut(number as usize)
    else {
        return true;
    };
    let Some(session) = failover.session_mut() else {
        return true;
    };
    // The peer learns the number when the connection is open, or when it moves.
    let Some(to) = remote.filter(|_| !*is_broken && session.unacked > 0) else {
        return true;
    };
    let is_sent = ep.send(&bare(to, ACK, order.next()), link).is_ok();
    if is_sent {
        session.unacked = 0;
    }
    is_sent
}

/// Handles an acknowledgement of the packets before `next` for the connection `own`.
pub fn on_ack<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S, own: Grant, next: u32) {
    if let Some(conn) = iface.granted(own)
        && let Some(session) = conn.failover.session_mut()
        && let Some(peer) = conn.peer
    {
        session.confirm(own.key);
        with_sender(sink, peer, |sender| sender.acknowledged(next));
    }
}
