//! Failover: an open connection that fails goes on by another interface of both workers.
//!
//! Where an endpoint asks for it (`UCP_ERR_HANDLING_MODE_FAILOVER`), and several interfaces lead to the peer, all but
//! reads in place (`failover_read`) goes by records, which their sender keeps until the peer has acknowledged them.
//! When the connection fails, either end, or both, sends a [`Move`](super::failover_packet::Move) by the next
//! interface, with the number of the packet that it expects: from then on it takes nothing by the former connection.
//! The other end answers with the number that it expects, and both send what the other has not received again: each
//! record arrives once, and in order. Attempts are numbered, so that a late one is dropped; if both ends try different
//! interfaces, the attempt of the worker with the greater uid is taken.

use super::address::OfiPath;
use super::conn::OfiConn;
use super::connect;
use super::failover_handover::has_lane;
use super::failover_session::{MoveAttempt, OfiSession};
use super::iface::OfiIface;
use super::packet::{RESET, bare};
use super::refused_hello;
use super::worker::OfiWorker;
use crate::ctypes::*;
use crate::sys::log;
use crate::tl::LaneTarget;
use crate::tl::sink::Sink;

/// Time in which a connection has to move, milliseconds, unless `UCX_OFI_TIMEOUT` is shorter.
pub const MOVE_MS: u64 = 30_000;
/// Time after which the next way is tried where the peer does not answer, and where the provider reports a failure.
const SILENT_MS: u64 = 2000;
const FAILED_MS: u64 = 250;

impl<P: Copy + Eq> OfiWorker<P> {
    /// Moves connections that have failed, and those that peers move. Called at clock ticks.
    pub(super) fn move_conns<S: Sink<Peer = P>>(&mut self, sink: S, now: u64) {
        for index in 0..=self.others.len() {
            let requests = std::mem::take(&mut self.nth(index).failover.requests);
            for (request, from) in requests {
                self.accept_move((sink, now), index, &request, &from);
            }
        }
        for index in 0..=self.others.len() {
            for parsed in std::mem::take(&mut self.nth(index).failover.hellos) {
                if self.follow_hello(sink, now, index, &parsed) {
                    continue;
                }
                let iface = self.nth(index);
                // A new connection begins with the packet 0: the peer would take the first ones for repeated.
                if parsed.hello.next == 0 {
                    connect::on_lane_hello(iface, sink, &parsed);
                } else if !refused_hello::refuse(iface, &parsed) {
                    iface.failover.hellos.push(parsed);
                }
            }
        }
        for index in 0..=self.others.len() {
            for key in std::mem::take(&mut self.nth(index).failover.resets) {
                self.end_sessions(sink, UCS_ERR_CONNECTION_RESET, |session, _| {
                    session.known_key == key
                });
            }
        }
        for index in 0..=self.others.len() {
            for (link, status) in std::mem::take(&mut self.nth(index).failover.failed) {
                let iface = self.nth(index);
                let number = link.conn;
                let is_due = match iface.of_link(&link).map(|conn| conn.failover.session()) {
                    Some(Some(session)) => is_due(session, now, FAILED_MS),
                    _ => continue,
                };
                match is_due {
                    true => self.try_next_path(sink, now, (index, number), status),
                    false => iface.failover.failed.push((link, status)),
                }
            }
        }
    }

    /// Tries the next way where the peer has not answered for a time.
    pub(super) fn move_late<S: Sink<Peer = P>>(&mut self, sink: S, now: u64) {
        self.end_sessions(sink, UCS_ERR_ENDPOINT_TIMEOUT, |session, timeout| {
            let since = session.silent_since;
            since.is_some_and(|since| now >= since.saturating_add(timeout.min(MOVE_MS)))
        });
        for index in 0..=self.others.len() {
            let is_late = |(number, conn): (usize, &OfiConn<P>)| {
                let attempted = conn.failover.session().filter(|session| {
                    !conn.is_broken && session.attempt.is_some() && is_due(session, now, SILENT_MS)
                });
                attempted.map(|_| number as u32)
            };
            let late: Vec<u32> = self.nth(index).conns.iter().filter_map(is_late).collect();
            for number in late {
                self.try_next_path(sink, now, (index, number), UCS_ERR_ENDPOINT_TIMEOUT);
            }
        }
    }

    /// Ends the connections whose sessions are such, given `UCX_OFI_TIMEOUT`: the peers fail whose lanes they are.
    fn end_sessions<S: Sink<Peer = P>>(
        &mut self,
        sink: S,
        status: ucs_status_t,
        is_over: impl Fn(&OfiSession, u64) -> bool,
    ) {
        for iface in self.all_mut() {
            let (timeout, mut ended) = (iface.timeout_ms, Vec::new());
            for (_, conn) in &mut iface.conns {
                let session = conn.failover.session();
                if !session.is_some_and(|session| is_over(session, timeout)) {
                    continue;
                }
                let is_lane = has_lane(sink, conn);
                if let Some(peer) = conn.peer.take() {
                    log::diag!("worker {:#x} has left its connection: {status:?}", conn.uid);
                    (conn.is_broken, conn.request) = (true, None);
                    // A request to move, or what else would follow the reset.
                    iface.control.forget(&conn.link);
                    ended.push((peer, is_lane, connect::last_words(conn)));
                }
            }
            for (peer, is_lane, last) in ended {
                if let Some((link, packet)) = last.filter(|_| !iface.is_dead) {
                    iface.send_control(&link, packet);
                }
                if is_lane {
                    sink.lane_down(peer, status);
                }
            }
        }
    }

    /// The interface with this index among those of the worker.
    pub(super) fn nth(&mut self, index: usize) -> &mut OfiIface<P> {
        match index {
            0 => &mut self.first,
            n => &mut self.others[n - 1],
        }
    }

    /// Tries to move a connection, named by the index of its interface and its number, by the next way to the peer.
    /// `status`: that of the failure.
    fn try_next_path<S: Sink<Peer = P>>(
        &mut self,
        sink: S,
        now: u64,
        (index, number): (usize, u32),
        status: ucs_status_t,
    ) {
        let iface = self.nth(index);
        let (device, timeout) = (iface.device_name.clone(), iface.timeout_ms);
        let Some(conn) = iface.conns.get(number as usize) else {
            return;
        };
        let (link, remote) = (conn.link.clone(), conn.remote);
        let Some(mut detached) = iface.detach_session(sink, number) else {
            return;
        };
        let (peer, key, is_lane) = (
            detached.peer,
            detached.session.own_key,
            detached.session.is_lane,
        );
        let attempt = match (detached.session.attempt.take(), remote) {
            (Some(attempt), _) => attempt,
            (None, Some(to)) => MoveAttempt {
                status,
                device,
                last: (index, link, to),
                until: now.saturating_add(timeout.min(MOVE_MS)),
                tried: now,
            },
            (None, None) if is_lane => return sink.lane_down(peer, status),
            (None, None) => return,
        };
        if now < attempt.until && !sink.has_failed(peer) {
            for path in paths_from(&sink.contact(peer).target, index) {
                let iface = self.nth(path.iface);
                if let Some(addr) = iface.reach((detached.uid, key, is_lane), &path.to) {
                    let tried = now;
                    detached.session.attempt = Some(MoveAttempt { tried, ..attempt });
                    return iface.request_move(now, detached, &path.to, addr);
                }
            }
        }
        self.give_up(sink, (peer, is_lane), &attempt);
    }

    /// A connection cannot be moved: the peer fails at both ends, if its lane is this connection.
    fn give_up<S: Sink<Peer = P>>(
        &mut self,
        sink: S,
        (peer, is_lane): (P, bool),
        attempt: &MoveAttempt,
    ) {
        let (index, link, to) = &attempt.last;
        let iface = self.nth(*index);
        if !iface.is_dead {
            iface.send_control(link, bare(*to, RESET, 0));
        }
        let (device, status) = (&attempt.device, attempt.status);
        log::diag!("{device} (libfabric) has failed, and no other device leads to the peer");
        if is_lane {
            sink.lane_down(peer, status);
        }
    }
}

/// Whether the next way may be tried `after` milliseconds behind the present one.
fn is_due(session: &OfiSession, now: u64, after: u64) -> bool {
    let tried = session.attempt.as_ref().map(|attempt| attempt.tried);
    tried.is_none_or(|tried| now >= tried.saturating_add(after))
}

/// All ways to a peer, from the one behind that by the interface with this index on: that one is the last.
fn paths_from(target: &Option<LaneTarget>, index: usize) -> Vec<OfiPath> {
    let mut paths: Vec<OfiPath> = match target {
        Some(LaneTarget::Ofi(target)) => target.all_paths().cloned().collect(),
        _ => Vec::new(),
    };
    let place = paths.iter().position(|path| path.iface == index);
    paths.rotate_left(place.map_or(0, |place| place + 1));
    paths
}
