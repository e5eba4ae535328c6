//! What a connection with failover that goes on by another interface takes with it, and how the other one gets it.

use super::address::OfiLocator;
use super::choice::IfaceRole;
use super::conn::{OfiConn, is_lane, with_sender};
use super::connect;
use super::failover_packet::Move;
use super::failover_session::{ConnFailover, MoveAttempt, OfiSession};
use super::hello::{HelloAge, PendingHello};
use super::iface::{OfiIface, lane_up};
use super::packet::Grant;
use super::reorder::OfiReorder;
use super::sender::OfiSender;
use crate::sys::trace::{self, ArgValue};
use crate::sys::{liveness_lock, log};
use crate::tl::sink::Sink;
use std::io;
use std::sync::Arc;

/// Time after which a request to move is sent again for the first time, milliseconds.
const AGAIN_MS: u64 = 1000;

/// A connection that was taken out of an interface to go on by another one.
pub(super) struct DetachedSession<P> {
    pub(super) peer: P,
    pub(super) uid: u64,
    pub(super) session: Box<OfiSession>,
    pub(super) order: OfiReorder,
    /// Number of the next packet to the peer.
    pub(super) sent: u32,
}

/// The connection with this number carries the packets from now on: the peer, whose end is `to`, expects the packet
/// `next`.
pub(super) fn resume<S: Sink>(
    iface: &mut OfiIface<S::Peer>,
    sink: S,
    number: u32,
    to: Grant,
    next: u32,
) {
    let Some(conn) = iface.conns.get_mut(number as usize) else {
        return;
    };
    (conn.remote, conn.request) = (Some(to), None);
    let (uid, link, Some(peer)) = (conn.uid, conn.link.clone(), conn.peer) else {
        return;
    };
    let Some(session) = conn.failover.session_mut() else {
        return;
    };
    let (attempt, is_lane) = (session.attempt.take(), session.is_lane);
    // Records have arrived before this, and wait for an acknowledgement.
    if session.unacked > 0 && !std::mem::replace(&mut session.is_listed, true) {
        iface.acks_due.push(number);
        iface.is_busy = true;
    }
    if !is_lane {
        return;
    }
    let ep = iface.ep.clone();
    let is_moved = with_sender(sink, peer, |sender| sender.move_to(ep, link, to, next));
    if is_moved == Some(false) {
        return sink.malformed(peer, "a request to move with a wrong number");
    }
    sink.note_device(peer, iface.device);
    let name = &iface.device_name;
    match attempt {
        Some(MoveAttempt { status, device, .. }) => {
            record("failover", uid, &device, name);
            log::once!(
                Warn,
                each(&device, name),
                "worker {uid:#x} is reached by {name} (libfabric) from now on: {device} has failed ({status:?})"
            );
        }
        None => log::debug!("worker {uid:#x} has moved its connection to {name} (libfabric)"),
    }
    if is_moved.is_none() && sink.state(peer).is_connecting {
        lane_up(iface, sink, number);
    }
}

impl<P: Copy + Eq> OfiIface<P> {
    /// Takes the packets out of a connection, which carries them no more. `None`: it does not move.
    pub(super) fn detach_session<S: Sink<Peer = P>>(
        &mut self,
        sink: S,
        number: u32,
    ) -> Option<DetachedSession<P>> {
        let conn = self.conns.get_mut(number as usize)?;
        let peer = conn.peer?;
        let is_lane = has_lane(sink, conn);
        let mut session = conn.failover.take_session()?;
        conn.peer = None;
        (conn.is_broken, conn.request, conn.loss) = (true, None, None);
        (session.is_listed, session.is_lane, session.silent_since) = (false, is_lane, None);
        let mut order = std::mem::take(&mut conn.order);
        order.forget_early();
        let (uid, link) = (conn.uid, conn.link.clone());
        self.control.forget(&link);
        let pause = || with_sender(sink, peer, OfiSender::pause);
        Some(DetachedSession {
            peer,
            uid,
            session,
            order,
            sent: is_lane.then(pause).flatten().unwrap_or_else(|| link.sent()),
        })
    }

    /// The peer's interface `to` as libfabric names it, for the packets of the session with this own key. `None`:
    /// they do not go by this interface.
    pub(super) fn reach(
        &mut self,
        (uid, own_key, is_lane): (u64, u64, bool),
        to: &OfiLocator,
    ) -> Option<(u64, Arc<[u8]>)> {
        let lock = to.liveness.key_here(&self.own.liveness);
        let is_dead = lock.is_some_and(|key| !liveness_lock::is_held(key));
        // Both ends have opened connections by two interfaces while one of them was late: the lane ends the other one.
        let other = self.of_uid(uid).and_then(|conn| conn.failover.session());
        let is_other = other.is_some_and(|other| other.own_key != own_key);
        if is_dead || self.is_dead || is_other && !is_lane {
            return None;
        }
        let refused = |e: &io::Error| {
            let name = &self.device_name;
            log::diag!("{name} does not reach worker {uid:#x}: {e}");
        };
        self.ep.insert(&to.name).inspect_err(refused).ok()
    }

    /// Adds the connection by which packets go on, to the peer's interface `to`, which libfabric knows by `addr`.
    /// Returns its number, and the packet that it expects next.
    pub(super) fn attach_session(
        &mut self,
        detached: DetachedSession<P>,
        to: &OfiLocator,
        addr: (u64, Arc<[u8]>),
    ) -> (u32, u32) {
        // A rail, or a second connection.
        connect::end(self, detached.uid);
        let conn = self.add(detached.peer, detached.uid, to, addr);
        conn.role = IfaceRole::Lane;
        conn.link.continue_at(detached.sent);
        (conn.order, conn.failover) = (detached.order, ConnFailover::On(detached.session));
        (conn.link.conn, conn.order.next())
    }

    /// Sends a request to move to the peer's interface `to`, which libfabric knows by `addr`.
    pub(super) fn request_move(
        &mut self,
        now: u64,
        mut detached: DetachedSession<P>,
        to: &OfiLocator,
        addr: (u64, Arc<[u8]>),
    ) {
        detached.session.generation = detached.session.generation.wrapping_add(1);
        let (uid, session, generation) = (
            detached.uid,
            detached.session.peer_key,
            detached.session.generation,
        );
        let (number, next) = self.attach_session(detached, to, addr);
        let (from, own) = (self.uid, self.own.clone());
        let Some(conn) = self.conns.get_mut(number as usize) else {
            return;
        };
        let names = (from, &own, conn.grant());
        let packet = Move::packet(names, (uid, to), (session, generation, next));
        let link = conn.link.clone();
        conn.request = Some(Box::new(PendingHello {
            packet: packet.clone(),
            again: now + AGAIN_MS,
            interval: AGAIN_MS,
            obstacle: String::new(),
            age: HelloAge::Recent,
        }));
        let name = &self.device_name;
        log::diag!("worker {uid:#x} is asked to go on by {name} (libfabric)");
        self.send_control(&link, packet);
    }
}

/// Records in the timeline that the connection with a worker goes from one device to another.
pub(super) fn record(what: &'static str, uid: u64, from: &str, to: &str) {
    if trace::is_on() {
        let device = |name: &str| ArgValue::from(name.to_owned());
        let args = [
            ("worker", ArgValue::Hex(uid)),
            ("from", device(from)),
            ("to", device(to)),
        ];
        trace::instant("wire", what, &args);
    }
}

/// Whether the records to the peer of a connection go by it, or wait until it has moved; true where there is no lane.
pub fn has_lane<S: Sink>(sink: S, conn: &OfiConn<S::Peer>) -> bool {
    let moving = conn
        .failover
        .session()
        .filter(|session| session.attempt.is_some());
    match (moving, conn.peer) {
        (Some(session), _) => session.is_lane,
        (None, Some(peer)) => is_lane(sink, peer, &conn.link),
        (None, None) => false,
    }
}
