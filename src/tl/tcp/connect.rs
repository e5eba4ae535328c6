//! TCP connection establishment: connect, hello, answer, and simultaneous connects.
//!
//! If both workers connect at once, the connection of the worker with the larger uid stays if its hello has arrived. No
//! message is sent before the answer to a hello, so that none is lost with the connection that is closed.

use super::accept::{on_hello, reject};
use super::conn::{ConnectAttempt, TcpConn, TcpConnPhase};
use super::sender::TcpSender;
use super::stream::ReadError;
use super::worker::{ConnectRetry, TcpWorker};
use super::{SharedSocket, device, oob, socket};
use crate::ctypes::*;
use crate::sys::epoll::SocketEvent;
use crate::sys::{advice, clock, log};
use crate::tl::Lane;
use crate::tl::oob::OobSink;
use crate::tl::sink::Sink;
use crate::wire::tcp_hello::{Answer, CROSSED, MAGIC, TO_WORKER, TcpHello, WELCOME};
use std::io::{self, ErrorKind};
use std::sync::Arc;

/// Milliseconds before a connect that the peer has dropped is repeated, times the number of drops.
const RETRY_MS: u64 = 10;
/// Milliseconds to wait for the connection that a peer has announced by `CROSSED`.
const CROSSED_MS: u64 = 2000;

impl<P: Copy + Eq> TcpWorker<P> {
    /// Starts the connections to `wanted` peers and those that are due, and closes half-open ones that have expired.
    pub fn start<S: Sink<Peer = P>>(&mut self, sink: S, wanted: impl Iterator<Item = P>) {
        start(self, sink, wanted);
    }
}

fn start<S: Sink>(
    sockets: &mut TcpWorker<S::Peer>,
    sink: S,
    wanted: impl Iterator<Item = S::Peer>,
) {
    for peer in wanted {
        connect(sockets, sink, peer, ConnectAttempt::default());
    }
    if sockets.retries.is_empty() && sockets.half_open.is_empty() {
        return;
    }
    let now = clock::coarse_ms();
    let all = std::mem::take(&mut sockets.retries);
    let (due, later): (Vec<_>, Vec<_>) = all.into_iter().partition(|r| r.at <= now);
    sockets.retries = later;
    for ConnectRetry { peer, dropped, .. } in due {
        let attempt = ConnectAttempt {
            dropped,
            ..ConnectAttempt::default()
        };
        connect(sockets, sink, peer, attempt);
    }
    while let Some(&token) = sockets.half_open.first() {
        match sockets.get(token).map(|c| c.phase) {
            Some(TcpConnPhase::HalfOpen { until }) if until > now => return,
            _ => reject(sockets, token, "no hello in time"),
        }
    }
}

/// Connects to the next address of a peer.
#[cold]
#[inline(never)]
fn connect<S: Sink>(
    sockets: &mut TcpWorker<S::Peer>,
    sink: S,
    peer: S::Peer,
    mut attempt: ConnectAttempt,
) {
    let state = sink.state(peer);
    if sink.has_failed(peer) || state.has_lane || !state.is_connecting {
        return;
    }
    let uid = sink.uid(peer);
    if let Some(link) = link_from(sockets, peer, uid) {
        open(sockets, sink, peer, link);
        return;
    }
    let Some(target) = sink.contact(peer).socket_target() else {
        return sink.lane_down(peer, UCS_ERR_UNREACHABLE);
    };
    let paths = target.paths(&sockets.devices);
    while let Some(tcp_path) = paths.get(attempt.candidate) {
        let to = tcp_path.to;
        log::debug!("connecting to worker {uid:#x} at {to}");
        let made = socket::connect(tcp_path, &sockets.tuning)
            .and_then(|s| sockets.add(s, TcpConnPhase::Connecting(attempt), Some(peer), true));
        match made {
            Ok(_) => return,
            Err(e) => {
                log::debug!("no connection to worker {uid:#x} at {to}: {e}");
                attempt.error = e.raw_os_error().unwrap_or_default();
            }
        }
        attempt.candidate += 1;
    }
    let to = target.address();
    let to = to.map_or_else(String::new, |to| format!(" at {to}"));
    let error = (attempt.error != 0).then(|| io::Error::from_raw_os_error(attempt.error));
    let advice = advice::on_connection(error.as_ref());
    let error = error.map_or_else(String::new, |e| format!("{e}: "));
    let reason = format_args!("no connection by tcp{to}: {error}{advice}");
    sink.unreachable(peer, reason);
}

/// The connection that a peer has made while messages to it went by shared memory. The peer would reject a second one.
fn link_from<P: Copy + Eq>(sockets: &TcpWorker<P>, peer: P, uid: u64) -> Option<Arc<SharedSocket>> {
    let mut all = sockets.iter();
    let open = all.find(|c| c.phase == TcpConnPhase::Open && c.is_to(peer))?;
    // Of a connection to itself a worker sends on the end that has connected.
    (uid != sockets.uid).then(|| open.link.clone())
}

/// Handles an event of a connection that is not open for messages between the workers. True if it is open now.
#[cold]
#[inline(never)]
pub fn on_event<S: Sink>(
    sockets: &mut TcpWorker<S::Peer>,
    sink: S,
    oob: &mut impl OobSink,
    event: SocketEvent,
) -> bool {
    let Some(c) = sockets.get(event.token) else {
        return false;
    };
    match c.phase {
        TcpConnPhase::Connecting(attempt) => on_connected(sockets, sink, event.token, attempt),
        TcpConnPhase::HelloSent(attempt) => {
            return on_answer(sockets, sink, event.token, attempt);
        }
        TcpConnPhase::HalfOpen { .. } => return on_hello(sockets, sink, oob, event.token),
        TcpConnPhase::OobConnecting { .. } | TcpConnPhase::OobOpen { .. } => {
            oob::on_event(sockets, oob, event.token);
        }
        TcpConnPhase::Open => {}
    }
    false
}

/// Handles the end of a connect: success or failure.
fn on_connected<S: Sink>(
    sockets: &mut TcpWorker<S::Peer>,
    sink: S,
    token: u64,
    attempt: ConnectAttempt,
) {
    let (uid, client_id) = (sockets.uid, sockets.client_id);
    let Some(c) = sockets.get(token) else { return };
    let Some(peer) = c.peer else { return };
    let done = socket::connected(&c.link.socket).and_then(|()| {
        let contact = sink.contact(peer);
        let target = contact.clone().socket_target().ok_or(ErrorKind::NotFound)?;
        let hello = TcpHello {
            magic: MAGIC,
            purpose: TO_WORKER,
            losses: contact.losses,
            from: uid,
            to: contact.uid,
            secret: target.locator.secret,
            client_id,
        };
        c.link.send_whole(&hello.encode())
    });
    match done {
        Ok(()) => {
            c.link.epoll.watch_room(&c.link.socket, token, false);
            c.phase = TcpConnPhase::HelloSent(attempt);
        }
        Err(e) if e.kind() == ErrorKind::NotConnected => {}
        Err(e) => {
            log::debug!("no connection to worker {:#x}: {e}", sink.uid(peer));
            sockets.remove(token);
            let next = ConnectAttempt {
                candidate: attempt.candidate + 1,
                error: e.raw_os_error().unwrap_or_default(),
                ..attempt
            };
            connect(sockets, sink, peer, next);
        }
    }
}

/// Reads until `size` bytes are in the buffer; `None`: more have to arrive.
pub(super) fn recv_hello<P>(
    c: &mut TcpConn<P>,
    size: usize,
    limit: usize,
) -> io::Result<Option<&[u8]>> {
    let missing = limit.saturating_sub(c.receiver.buffered().len());
    // A read of 0 bytes would look like the end of the stream.
    if missing > 0 {
        match c.receiver.read(missing) {
            Ok(_) | Err(ReadError::WouldBlock) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(c.receiver.buffered().get(..size))
}

/// Handles the peer's answer to a hello.
fn on_answer<S: Sink>(
    sockets: &mut TcpWorker<S::Peer>,
    sink: S,
    token: u64,
    attempt: ConnectAttempt,
) -> bool {
    let Some(c) = sockets.get(token) else {
        return false;
    };
    let Some(peer) = c.peer else { return false };
    let uid = sink.uid(peer);
    // Messages may follow in the same segment.
    let answer = match recv_hello(c, Answer::SIZE, usize::MAX) {
        Ok(None) => return false,
        Ok(Some(bytes)) => Answer::decode(bytes),
        Err(e) => {
            log::debug!("worker {uid:#x} dropped the connection: {e}");
            sockets.remove(token);
            retry(sockets, sink, peer, attempt);
            return false;
        }
    };
    match answer {
        Some(a) if a.verdict == WELCOME && a.uid == uid => {
            c.receiver.take(Answer::SIZE);
            c.losses = a.losses;
            let link = c.link.clone();
            sockets.set_open(token, peer);
            open(sockets, sink, peer, link);
            true
        }
        Some(a) if a.verdict == CROSSED => {
            sockets.remove(token);
            sockets.retries.push(ConnectRetry {
                peer,
                at: clock::coarse_ms() + CROSSED_MS,
                dropped: attempt.dropped,
            });
            false
        }
        _ => {
            sockets.remove(token);
            let reason =
                "another program answers at its address: find out whether its process has ended";
            sink.unreachable(peer, format_args!("{reason}"));
            false
        }
    }
}

/// Repeats a connect that the peer has accepted and closed without an answer: it has too many half-open connections, or
/// is another worker than before.
fn retry<S: Sink>(
    sockets: &mut TcpWorker<S::Peer>,
    sink: S,
    peer: S::Peer,
    attempt: ConnectAttempt,
) {
    let dropped = attempt.dropped + 1;
    if dropped > sockets.max_conn_retries {
        let reason = "it closes each connection by tcp: find out whether its process has ended, or lacks descriptors";
        return sink.unreachable(peer, format_args!("{reason}"));
    }
    sockets.retries.push(ConnectRetry {
        peer,
        at: clock::coarse_ms() + RETRY_MS * u64::from(dropped),
        dropped,
    });
}

/// Makes a connection the lane to a peer, unless it has one.
pub(super) fn open<S: Sink>(
    sockets: &TcpWorker<S::Peer>,
    sink: S,
    peer: S::Peer,
    link: Arc<SharedSocket>,
) {
    if sink.state(peer).has_lane {
        return;
    }
    let local = link.socket.local_addr().ok().and_then(|a| a.as_socket());
    let device = local.and_then(|local| device::at(&sockets.devices, local));
    let device = device.unwrap_or(sockets.devices.len());
    let sender = TcpSender::new(link, sink.longest_record());
    // Another connection may have become the lane: this one only receives.
    let _ = sink.lane_up(peer, Lane::Tcp(Box::new(sender)), Some(device));
}

/// Closes an open connection that has failed or carried malformed data, and fails the peer.
pub fn close<S: Sink>(sockets: &mut TcpWorker<S::Peer>, sink: S, token: u64) {
    let Some(c) = sockets.remove(token) else {
        return;
    };
    c.link.shut();
    let Some(peer) = c.peer else { return };
    sink.with_lane(peer, |lane| {
        if let Lane::Tcp(sender) = lane {
            sender.shut();
        }
    });
    sink.lane_down(peer, UCS_ERR_CONNECTION_RESET);
}
