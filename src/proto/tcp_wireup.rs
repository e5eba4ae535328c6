//! TCP connection establishment: connect, hello, answer, and simultaneous connects.
//!
//! If both workers connect at once, the connection of the worker with the larger uid stays if its hello has arrived. No
//! message is sent before the answer to a hello, so that none is lost with the connection that is closed.

mod accept;

use super::{lane_info, select, tx};
use crate::ctypes::*;
use crate::engine::peer::Peer;
use crate::engine::request::PeerRef;
use crate::engine::worker::Worker;
use crate::sys::epoll::SocketEvent;
use crate::sys::{clock, log};
use crate::tl::Lane;
use crate::tl::tcp::conn::{ConnectAttempt, TcpConn, TcpConnPhase};
use crate::tl::tcp::sender::TcpSender;
use crate::tl::tcp::worker::{ConnectRetry, TcpWorker};
use crate::tl::tcp::{SharedSocket, socket};
use crate::wire::tcp_hello::{Answer, CROSSED, MAGIC, TO_WORKER, TcpHello, WELCOME};
use std::io::{self, ErrorKind};
use std::sync::Arc;

pub use accept::accept;
use accept::on_hello;
pub(super) use accept::reject;

/// Milliseconds before a connect that the peer has dropped is repeated, times the number of drops.
const RETRY_MS: u64 = 10;
/// Milliseconds to wait for the connection that a peer has announced by `CROSSED`.
const CROSSED_MS: u64 = 2000;

/// Starts the connections that are requested or due, and closes half-open ones that have expired.
pub fn start(worker: &Worker, sockets: &mut TcpWorker<PeerRef>) {
    let wanted = worker.peer_lists.connect_tcp.lock().take();
    for (peer, ()) in wanted {
        connect(
            worker,
            sockets,
            peer.get(),
            ConnectAttempt {
                candidate: 0,
                dropped: 0,
            },
        );
    }
    if sockets.retries.is_empty() && sockets.half_open.is_empty() {
        return;
    }
    let now = clock::coarse_ms();
    let all = std::mem::take(&mut sockets.retries);
    let (due, later): (Vec<_>, Vec<_>) = all.into_iter().partition(|r| r.at <= now);
    sockets.retries = later;
    for ConnectRetry { peer, dropped, .. } in due {
        connect(
            worker,
            sockets,
            peer.get(),
            ConnectAttempt {
                candidate: 0,
                dropped,
            },
        );
    }
    while let Some(&token) = sockets.half_open.first() {
        match sockets.get(token).map(|c| c.phase) {
            Some(TcpConnPhase::HalfOpen { until }) if until > now => return,
            _ => reject(sockets, token, "no hello in time"),
        }
    }
}

/// Connects to the next address of a peer.
fn connect(
    worker: &Worker,
    sockets: &mut TcpWorker<PeerRef>,
    peer: &Peer,
    mut attempt: ConnectAttempt,
) {
    if !still_wanted(peer) {
        return;
    }
    if let Some(link) = link_from(worker, sockets, peer) {
        open(worker, peer, link);
        return;
    }
    let Some(target) = peer.socket_target() else {
        return peer.fail(UCS_ERR_UNREACHABLE);
    };
    let paths = target.paths(&worker.ctx.tl.tcp.devices);
    // SAFETY: the peer of a connection.
    let to_peer = unsafe { PeerRef::new(peer) };
    while let Some(tcp_path) = paths.get(attempt.candidate) {
        let to = tcp_path.to;
        log::debug!("connecting to worker {:#x} at {to}", peer.uid);
        let made = socket::connect(tcp_path, &sockets.tuning)
            .and_then(|s| sockets.add(s, TcpConnPhase::Connecting(attempt), Some(to_peer), true));
        match made {
            Ok(_) => return,
            // The process is out of descriptors: an error in the log, because it does not concern the peer.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                log::error!("no connection to worker {:#x} at {to}: {e}", peer.uid);
            }
            Err(e) => log::debug!("no connection to worker {:#x} at {to}: {e}", peer.uid),
        }
        attempt.candidate += 1;
    }
    log::diag!("worker {:#x} cannot be reached by tcp", peer.uid);
    peer.fail(UCS_ERR_UNREACHABLE);
}

/// The connection that a peer has made while messages to it went by shared memory. The peer would reject a second one.
fn link_from(
    worker: &Worker,
    sockets: &TcpWorker<PeerRef>,
    peer: &Peer,
) -> Option<Arc<SharedSocket>> {
    let mut all = sockets.iter();
    let open = all.find(|c| c.phase == TcpConnPhase::Open && leads_to(c, peer))?;
    // Of a connection to itself a worker sends on the end that has connected.
    (peer.uid != worker.uid).then(|| open.link.clone())
}

fn still_wanted(peer: &Peer) -> bool {
    peer.status() == UCS_OK && {
        let tx = peer.tx.lock();
        tx.connecting && tx.lane.is_none()
    }
}

/// Handles an event of a connection that is not open. True if it is open now.
pub fn on_event(worker: &Worker, sockets: &mut TcpWorker<PeerRef>, event: SocketEvent) -> bool {
    let Some(c) = sockets.get(event.token) else {
        return false;
    };
    match c.phase {
        TcpConnPhase::Connecting(attempt) => on_connected(worker, sockets, event.token, attempt),
        TcpConnPhase::HelloSent(attempt) => {
            return on_answer(worker, sockets, event.token, attempt);
        }
        TcpConnPhase::HalfOpen { .. } => return on_hello(worker, sockets, event.token),
        TcpConnPhase::Open
        | TcpConnPhase::WireupConnecting { .. }
        | TcpConnPhase::WireupOpen { .. } => {}
    }
    false
}

/// Whether a connection leads to this peer.
fn leads_to(c: &TcpConn<PeerRef>, peer: &Peer) -> bool {
    c.peer.is_some_and(|p| p.is(peer))
}

/// Handles the end of a connect: success or failure.
fn on_connected(
    worker: &Worker,
    sockets: &mut TcpWorker<PeerRef>,
    token: u64,
    attempt: ConnectAttempt,
) {
    let Some(c) = sockets.get(token) else { return };
    let Some(peer) = c.peer.map(PeerRef::get) else {
        return;
    };
    let done = socket::connected(&c.link.socket).and_then(|()| {
        let target = peer.socket_target().ok_or(ErrorKind::NotFound)?;
        let hello = TcpHello {
            magic: MAGIC,
            purpose: TO_WORKER,
            losses: peer.losses,
            from: worker.uid,
            to: peer.uid,
            secret: target.locator.secret,
            client_id: worker.params.client_id.unwrap_or(0),
        };
        send_hello(&c.link, &hello.encode())
    });
    match done {
        Ok(()) => {
            c.link.epoll.watch_room(&c.link.socket, token, false);
            c.phase = TcpConnPhase::HelloSent(attempt);
        }
        Err(e) if e.kind() == ErrorKind::NotConnected => {}
        Err(e) => {
            log::debug!("no connection to worker {:#x}: {e}", peer.uid);
            sockets.remove(token);
            let next = ConnectAttempt {
                candidate: attempt.candidate + 1,
                ..attempt
            };
            connect(worker, sockets, peer, next);
        }
    }
}

/// Sends bytes that fit into the send buffer of a new socket.
pub(super) fn send_hello(link: &SharedSocket, bytes: &[u8]) -> io::Result<()> {
    match link.socket.send_with_flags(bytes, libc::MSG_NOSIGNAL)? {
        n if n == bytes.len() => Ok(()),
        _ => Err(ErrorKind::WriteZero.into()),
    }
}

/// Reads until `size` bytes are in the buffer; `None`: more have to arrive.
fn recv_hello(c: &mut TcpConn<PeerRef>, size: usize, limit: usize) -> io::Result<Option<&[u8]>> {
    let missing = limit.saturating_sub(c.receiver.buffered().len());
    // A read of 0 bytes would look like the end of the stream.
    if missing > 0 {
        match c.receiver.read(missing) {
            Err(e) if e.kind() != ErrorKind::WouldBlock => return Err(e),
            _ => {}
        }
    }
    Ok(c.receiver.buffered().get(..size))
}

/// Handles the peer's answer to a hello.
fn on_answer(
    worker: &Worker,
    sockets: &mut TcpWorker<PeerRef>,
    token: u64,
    attempt: ConnectAttempt,
) -> bool {
    let Some(c) = sockets.get(token) else {
        return false;
    };
    let Some(peer) = c.peer.map(PeerRef::get) else {
        return false;
    };
    // Messages may follow in the same segment.
    let answer = match recv_hello(c, Answer::SIZE, usize::MAX) {
        Ok(None) => return false,
        Ok(Some(bytes)) => Answer::decode(bytes),
        Err(e) => {
            log::debug!("worker {:#x} dropped the connection: {e}", peer.uid);
            sockets.remove(token);
            retry(sockets, peer, attempt);
            return false;
        }
    };
    match answer {
        Some(a) if a.verdict == WELCOME && a.uid == peer.uid => {
            c.receiver.take(Answer::SIZE);
            c.losses = a.losses;
            let link = c.link.clone();
            // SAFETY: the peer of a connection.
            sockets.set_open(token, unsafe { PeerRef::new(peer) });
            open(worker, peer, link)
        }
        Some(a) if a.verdict == CROSSED => {
            sockets.remove(token);
            sockets.retries.push(ConnectRetry {
                // SAFETY: the peer of a connection that is to be made.
                peer: unsafe { PeerRef::new(peer) },
                at: clock::coarse_ms() + CROSSED_MS,
                dropped: attempt.dropped,
            });
            false
        }
        _ => {
            log::diag!("unexpected reply at the address of worker {:#x}", peer.uid);
            sockets.remove(token);
            peer.fail(UCS_ERR_UNREACHABLE);
            false
        }
    }
}

/// Repeats a connect that the peer has accepted and closed without an answer: it has too many half-open connections, or
/// is another worker than before.
fn retry(sockets: &mut TcpWorker<PeerRef>, peer: &Peer, attempt: ConnectAttempt) {
    let dropped = attempt.dropped + 1;
    let worker = peer.worker();
    if dropped > worker.ctx.tl.tcp.policy.max_conn_retries {
        log::diag!("worker {:#x} rejects the connection", peer.uid);
        return peer.fail(UCS_ERR_UNREACHABLE);
    }
    sockets.retries.push(ConnectRetry {
        // SAFETY: the peer of a connection that is to be made.
        peer: unsafe { PeerRef::new(peer) },
        at: clock::coarse_ms() + RETRY_MS * u64::from(dropped),
        dropped,
    });
}

/// Makes a connection the lane to a peer. Always true.
fn open(worker: &Worker, peer: &Peer, link: Arc<SharedSocket>) -> bool {
    let mut tx = peer.tx.lock();
    tx.connecting = false;
    if tx.lane.is_none() {
        let local = link.socket.local_addr().ok().and_then(|a| a.as_socket());
        lane_info::note(worker, peer, local);
        tx.lane = Some(Lane::Tcp(Box::new(TcpSender::new(
            link,
            select::message::longest_record(&worker.ctx.tl.tcp.policy),
        ))));
        peer.note_traffic(worker);
        tx::log_lanes(worker, peer);
    }
    true
}

/// Closes an open connection that has failed or carried malformed data, and fails the peer.
pub fn close(sockets: &mut TcpWorker<PeerRef>, token: u64) {
    let Some(c) = sockets.remove(token) else {
        return;
    };
    c.link.shut();
    let Some(peer) = c.peer.map(PeerRef::get) else {
        return;
    };
    let mut tx = peer.tx.lock();
    if let Some(Lane::Tcp(sender)) = tx.lane.as_mut() {
        sender.shut();
    }
    drop(tx);
    peer.fail(UCS_ERR_CONNECTION_RESET);
}
