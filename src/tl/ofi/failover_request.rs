//! What a peer asks of a connection with failover: that it goes on by another interface.

use super::address::OfiLocator;
use super::conn::OfiConn;
use super::connect;
use super::failover_ack;
use super::failover_handover::{DetachedSession, has_lane, record, resume};
use super::failover_packet::{Move, Moved};
use super::failover_session::OfiSession;
use super::iface::OfiIface;
use super::loss;
use super::packet::{Grant, PacketHdr, ParsedHello, RESET};
use super::worker::OfiWorker;
use crate::sys::log;
use crate::tl::sink::Sink;
use std::sync::Arc;

/// Requests of peers to move that are kept until a clock tick.
const MAX_REQUESTS: usize = 1024;

/// Handles a request of a peer to move its connection to this interface: it is taken at the next clock tick.
pub fn on_move<P: Copy + Eq>(iface: &mut OfiIface<P>, body: &[u8]) {
    let Some(request) = Move::parse(body, iface.uid, &iface.own) else {
        loss::on_dropped(iface);
        return log::diag!("a packet by libfabric is dropped: its request is not for this worker");
    };
    if iface.failover.requests.len() < MAX_REQUESTS {
        iface.failover.requests.push(request);
    }
}

/// Handles a packet of a former connection: a reset ends what has moved, if the peer knows no later connection.
pub fn on_former<P>(iface: &mut OfiIface<P>, hdr: &PacketHdr) {
    if hdr.kind == RESET && iface.failover.resets.len() < MAX_REQUESTS {
        iface.failover.resets.push(hdr.grant().key);
    }
}

/// Handles the answer to a request to move, for the connection `own`.
pub fn on_moved<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S, own: Grant, body: &[u8]) {
    let Some(moved) = Moved::decode(body) else {
        return;
    };
    let awaits = |conn: &&mut OfiConn<S::Peer>| conn.remote.is_none();
    if let Some(conn) = iface.granted(own).filter(awaits)
        && conn.failover.session().is_some()
    {
        let number = conn.link.conn;
        resume(iface, sink, number, moved.grant, moved.next);
        // The peer learns that the answer has arrived.
        failover_ack::on_probe(iface, own);
    }
}

impl<P: Copy + Eq> OfiWorker<P> {
    /// Takes the packets out of a connection, named by the index of its interface and its number, that its peer moves
    /// to the interface with the index `to`. `None`: it does not move, and the peer's address there is removed.
    fn detach_for_peer<S: Sink<Peer = P>>(
        &mut self,
        sink: S,
        (at, number): (usize, u32),
        (to, addr): (usize, &(u64, Arc<[u8]>)),
    ) -> Option<DetachedSession<P>> {
        let from = self.nth(at);
        let detached = from.detach_session(sink, number);
        let device = from.device_name.clone();
        let iface = self.nth(to);
        match &detached {
            Some(detached) => record(
                "failover of the peer",
                detached.uid,
                &device,
                &iface.device_name,
            ),
            None => iface.ep.remove(&addr.1),
        }
        detached
    }

    /// Takes a connection that its peer moves to the interface with this index.
    pub(super) fn accept_move<S: Sink<Peer = P>>(
        &mut self,
        (sink, now): (S, u64),
        index: usize,
        request: &Move,
        from: &OfiLocator,
    ) {
        let own_uid = self.first.uid;
        let Some((at, number)) = self.find_session(request) else {
            return log::diag!(
                "a request of worker {:#x} to move is of no connection",
                request.from
            );
        };
        let Some(conn) = self.nth(at).conns.get(number as usize) else {
            return;
        };
        let Some(session) = conn.failover.session() else {
            return;
        };
        let (to, is_here) = (request.grant, at == index);
        let ahead = request.generation.wrapping_sub(session.generation) as i32;
        match (ahead, conn.remote) {
            // The answer was lost, or is on its way.
            (0, Some(remote)) if is_here && remote == to => return self.answer(index, number),
            // Both ends have begun.
            (0, None) if is_here => {
                let iface = self.nth(index);
                let conn = iface.conns.get_mut(number as usize);
                if let Some(session) = conn.and_then(|conn| conn.failover.session_mut()) {
                    session.silent_since = Some(now);
                }
                resume(iface, sink, number, to, request.next);
                return self.answer(index, number);
            }
            (0, None) if own_uid < request.from => {}
            (1.., _) => {}
            _ => return log::diag!("a request of worker {:#x} to move is late", request.from),
        }
        let uid = request.from;
        let key = session.own_key;
        let is_lane = has_lane(sink, conn);
        let iface = self.nth(index);
        // Where the request cannot be followed the connection stays: it may work, or the peer tries another way.
        let Some(addr) = iface.reach((uid, key, is_lane), from) else {
            return log::diag!("a request of worker {uid:#x} to move is ignored");
        };
        let Some(mut detached) = self.detach_for_peer(sink, (at, number), (index, &addr)) else {
            return;
        };
        detached.session.is_known = true;
        detached.session.generation = request.generation;
        detached.session.unacked = 0;
        detached.session.silent_since = Some(now);
        let iface = self.nth(index);
        let (number, _) = iface.attach_session(detached, from, addr);
        self.answer_with(index, number, to);
        resume(self.nth(index), sink, number, to, request.next);
    }

    /// Moves a connection that this side has opened, and whose answer the peer has not got, to the interface by which
    /// the peer's request has arrived. False: the request is of no such connection.
    pub(super) fn follow_hello<S: Sink<Peer = P>>(
        &mut self,
        sink: S,
        now: u64,
        index: usize,
        parsed: &ParsedHello,
    ) -> bool {
        let (hello, uid) = (&parsed.hello, parsed.hello.from);
        let is_its = |session: &OfiSession| session.peer_key == hello.session;
        let Some((at, number)) = self.find(uid, is_its) else {
            return false;
        };
        let Some(conn) = self.nth(at).conns.get(number as usize) else {
            return false;
        };
        let Some(session) = conn.failover.session() else {
            return false;
        };
        let (to, key) = (hello.grant, session.own_key);
        if session.is_known {
            log::diag!("a request of worker {uid:#x} to connect is late");
            return true;
        }
        // The answer is on its way.
        if at == index && conn.remote == Some(to) {
            connect::answer(self.nth(index), uid, to);
            return true;
        }
        let name = (uid, key, has_lane(sink, conn));
        let Some(addr) = self.nth(index).reach(name, &parsed.from) else {
            return true;
        };
        let Some(mut detached) = self.detach_for_peer(sink, (at, number), (index, &addr)) else {
            return true;
        };
        (detached.session.unacked, detached.session.silent_since) = (0, Some(now));
        let iface = self.nth(index);
        let (number, _) = iface.attach_session(detached, &parsed.from, addr);
        if let Some(conn) = iface.conns.get_mut(number as usize) {
            conn.remote = Some(to);
        }
        connect::answer(iface, uid, to);
        resume(iface, sink, number, to, hello.next);
        true
    }

    /// The connection that a peer asks to move: the index of its interface, and its number.
    fn find_session(&mut self, request: &Move) -> Option<(usize, u32)> {
        self.find(request.from, |session| session.own_key == request.session)
    }

    /// The connection of a peer whose session is such: the index of its interface, and its number.
    fn find(&mut self, uid: u64, is_it: impl Fn(&OfiSession) -> bool) -> Option<(usize, u32)> {
        (0..=self.others.len()).find_map(|index| {
            let conn = self.nth(index).of_uid(uid)?;
            let session = conn.failover.session()?;
            is_it(session).then_some((index, conn.link.conn))
        })
    }

    /// Answers the request of the peer of a connection, by the index of its interface and its number, once more.
    fn answer(&mut self, index: usize, number: u32) {
        let conn = self.nth(index).conns.get(number as usize);
        if let Some(to) = conn.and_then(|conn| conn.remote) {
            self.answer_with(index, number, to);
        }
    }

    fn answer_with(&mut self, index: usize, number: u32, to: Grant) {
        let iface = self.nth(index);
        if let Some(conn) = iface.conns.get(number as usize) {
            let packet = Moved::packet(to, conn.grant(), conn.order.next());
            let link = conn.link.clone();
            iface.send_control(&link, packet);
        }
    }
}
