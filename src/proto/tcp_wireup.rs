//! TCP connection establishment: connect, hello, answer, and simultaneous connects.
//!
//! If both workers connect at once, the connection of the worker with the larger uid stays if its hello has arrived. No
//! message is sent before the answer to a hello, so that none is lost with the connection that is closed.

use super::{lane_info, select, tx};
use crate::ctypes::*;
use crate::engine::peer::Peer;
use crate::engine::request::PeerRef;
use crate::engine::tcp_worker::{ConnectAttempt, ConnectRetry, TcpConn, TcpConnPhase, TcpWorker};
use crate::engine::worker::Worker;
use crate::sys::epoll::SocketEvent;
use crate::sys::{clock, log};
use crate::tl::Lane;
use crate::tl::tcp::sender::TcpSender;
use crate::tl::tcp::{SharedSocket, socket};
use crate::wire::ib_packet::TcpWireupMsg;
use crate::wire::tcp_hello::{
    self, Answer, CROSSED, MAGIC, TO_QUEUES, TO_WORKER, TcpHello, WELCOME,
};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// Time after which an accepted connection without a complete hello is closed, in milliseconds.
const HALF_OPEN_MS: u64 = 5000;
/// Maximum number of connections accepted in one progress call.
const ACCEPTS: usize = 32;
/// Milliseconds before a connect that the peer has dropped is repeated, times the number of drops.
const RETRY_MS: u64 = 10;
/// Milliseconds to wait for the connection that a peer has announced by `CROSSED`.
const CROSSED_MS: u64 = 2000;

/// Starts the connections that are requested or due, and closes half-open ones that have expired.
pub fn start(worker: &Worker, sockets: &mut TcpWorker) {
    let wanted = std::mem::take(&mut *worker.connect_tcp.lock());
    for peer in wanted {
        // SAFETY: peers that were in a list of progress are freed by progress only.
        let peer = unsafe { &*peer };
        connect(
            worker,
            sockets,
            peer,
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
fn connect(worker: &Worker, sockets: &mut TcpWorker, peer: &Peer, mut attempt: ConnectAttempt) {
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
    let paths = target.paths(&worker.ctx.devices);
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
fn link_from(worker: &Worker, sockets: &TcpWorker, peer: &Peer) -> Option<Arc<SharedSocket>> {
    let mut all = sockets.iter();
    let open = all.find(|c| c.phase == TcpConnPhase::Open && c.is_to(peer))?;
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
pub fn on_event(worker: &Worker, sockets: &mut TcpWorker, event: SocketEvent) -> bool {
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

/// Handles the end of a connect: success or failure.
fn on_connected(worker: &Worker, sockets: &mut TcpWorker, token: u64, attempt: ConnectAttempt) {
    let Some(c) = sockets.get(token) else { return };
    let Some(peer) = c.peer() else { return };
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
            c.link.epoll.watch_room(c.link.fd(), token, false);
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
    // SAFETY: `bytes` is readable during the call.
    let sent = unsafe {
        libc::send(
            link.socket.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            libc::MSG_NOSIGNAL,
        )
    };
    match usize::try_from(sent) {
        Ok(n) if n == bytes.len() => Ok(()),
        Ok(_) => Err(ErrorKind::WriteZero.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Reads until `size` bytes are in the buffer; `None`: more have to arrive.
fn recv_hello(c: &mut TcpConn, size: usize, limit: usize) -> io::Result<Option<&[u8]>> {
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
    sockets: &mut TcpWorker,
    token: u64,
    attempt: ConnectAttempt,
) -> bool {
    let Some(c) = sockets.get(token) else {
        return false;
    };
    let Some(peer) = c.peer() else { return false };
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
fn retry(sockets: &mut TcpWorker, peer: &Peer, attempt: ConnectAttempt) {
    let dropped = attempt.dropped + 1;
    let worker = peer.worker();
    if dropped > worker.ctx.policy.connecting.max_conn_retries {
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
            select::message::longest_record(&worker.ctx.policy),
        ))));
        peer.note_traffic(worker);
        tx::log_lanes(worker, peer);
    }
    true
}

/// Accepts connections, as far as there is room for half-open ones.
pub fn accept(sockets: &mut TcpWorker) {
    for _ in 0..ACCEPTS {
        let (socket, from) = match socket::accept(&sockets.listener, &sockets.tuning) {
            Ok(accepted) => accepted,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return,
            // Descriptors may run out: the connections in the backlog are accepted later.
            Err(e) => return log::debug!("cannot accept a connection: {e}"),
        };
        // The socket listens on all devices; connections to addresses of other devices than the worker's are closed.
        let local = socket.local_addr().ok().and_then(|a| a.as_socket());
        let ip = local.map(|a| a.ip().to_canonical());
        if !ip.is_some_and(|ip| sockets.own.contains(&ip)) {
            log::diag!(
                "connection from {} closed: not through a device that UCX_NET_DEVICES allows",
                text(from)
            );
            continue;
        }
        while sockets.half_open.len() >= socket::max_half_open() {
            let oldest = sockets.half_open[0];
            reject(sockets, oldest, "others wait");
        }
        let until = clock::coarse_ms() + HALF_OPEN_MS;
        log::trace!("connection from {}", text(from));
        if let Err(e) = sockets.add(socket, TcpConnPhase::HalfOpen { until }, None, false) {
            log::debug!("cannot watch a connection: {e}");
        }
    }
}

fn text(from: Option<SocketAddr>) -> String {
    from.map_or_else(|| "?".to_owned(), |a| a.to_string())
}

/// Closes an accepted connection.
pub(super) fn reject(sockets: &mut TcpWorker, token: u64, why: &str) {
    if let Some(c) = sockets.remove(token) {
        let from = c.link.socket.peer_addr().ok().and_then(|a| a.as_socket());
        log::diag!("connection from {} closed: {why}", text(from));
    }
}

/// Handles a hello.
fn on_hello(worker: &Worker, sockets: &mut TcpWorker, token: u64) -> bool {
    let secret = sockets.secret;
    let Some(c) = sockets.get(token) else {
        return false;
    };
    let hello = match recv_hello(c, TcpHello::SIZE, TcpHello::SIZE) {
        Ok(Some(bytes)) => TcpHello::decode(bytes),
        Ok(None) => {
            let begun = c.receiver.buffered().len().min(8);
            if c.receiver.buffered()[..begun] != MAGIC.to_le_bytes()[..begun] {
                reject(sockets, token, "unknown protocol");
            }
            return false;
        }
        Err(_) => {
            reject(sockets, token, "closed before the hello");
            return false;
        }
    };
    match hello {
        Some(g) if tcp_hello::is_for(&g, worker.uid, secret) => match g.purpose {
            TO_QUEUES => {
                accept_hello(worker, sockets, token);
                false
            }
            _ if worker.tcp.is_none() => {
                reject(sockets, token, "messages do not go by tcp (UCX_TLS)");
                false
            }
            _ => send_answer(worker, sockets, token, g),
        },
        Some(_) => {
            reject(sockets, token, "wrong secret");
            false
        }
        None => {
            reject(sockets, token, "unknown protocol");
            false
        }
    }
}

/// Handles the hello of a connection for IB wireup. The connection stays half-open until its first complete HELLO.
fn accept_hello(worker: &Worker, sockets: &mut TcpWorker, token: u64) {
    let Some(c) = sockets.get(token) else { return };
    let size = TcpHello::SIZE + TcpWireupMsg::SIZE;
    if recv_hello(c, size, size).is_err() {
        return reject(sockets, token, "closed before the hello");
    }
    let begun = &c.receiver.buffered()[TcpHello::SIZE..];
    if !TcpWireupMsg::may_begin(begun) {
        reject(sockets, token, "unknown protocol");
    } else if worker.ib.is_none() {
        reject(
            sockets,
            token,
            "it requests queue pairs, and there are none",
        );
    } else if begun.len() == TcpWireupMsg::SIZE {
        c.receiver.take(TcpHello::SIZE);
        sockets.accept(token);
    }
}

/// Answers a hello with the right secret: the connection stays, unless that of this side does.
fn send_answer(worker: &Worker, sockets: &mut TcpWorker, token: u64, g: TcpHello) -> bool {
    let own = g.from == worker.uid;
    if !own {
        end_lost(sockets, &g);
    }
    let known = worker.peer_from_incoming(g.from);
    let peer = &*known;
    if !own && ours_stays(worker, sockets, peer) {
        if let Some(c) = sockets.remove(token) {
            let _ = send_hello(&c.link, &answer(worker, peer, CROSSED));
        }
        return false;
    }
    let Some(c) = sockets.get(token) else {
        return false;
    };
    let link = c.link.clone();
    c.receiver.take(TcpHello::SIZE);
    c.losses = g.losses;
    if let Err(e) = send_hello(&link, &answer(worker, peer, WELCOME)) {
        log::debug!("worker {:#x} is gone: {e}", g.from);
        sockets.remove(token);
        return false;
    }
    // SAFETY: the peer of a connection.
    let to_peer = unsafe { PeerRef::new(peer) };
    if own {
        // Of a connection to itself a worker sends on the end that has connected, and receives on this one.
        sockets.set_open(token, to_peer);
        return true;
    }
    drop_attempts(sockets, peer);
    sockets.set_open(token, to_peer);
    // Messages to a peer with an inbox go by shared memory.
    peer.uses_inbox() || open(worker, peer, link)
}

/// Closes connections that the peer has lost already, which was not noticed here.
fn end_lost(sockets: &mut TcpWorker, g: &TcpHello) {
    let lost = |c: &TcpConn| {
        c.phase == TcpConnPhase::Open
            && c.losses < g.losses
            && c.peer().is_some_and(|peer| peer.uid == g.from)
    };
    let tokens: Vec<u64> = sockets
        .iter()
        .filter(|c| lost(c))
        .map(|c| c.link.token)
        .collect();
    for token in tokens {
        log::debug!("worker {:#x} has lost its connection: ended here", g.from);
        close(sockets, token);
    }
}

fn answer(worker: &Worker, peer: &Peer, verdict: u32) -> [u8; Answer::SIZE] {
    Answer {
        magic: MAGIC,
        verdict,
        losses: peer.losses,
        uid: worker.uid,
    }
    .encode()
}

/// Whether a connection that this side has made, or is making, stays.
fn ours_stays(worker: &Worker, sockets: &TcpWorker, peer: &Peer) -> bool {
    let ours = |phase| match phase {
        TcpConnPhase::Open => true,
        TcpConnPhase::HelloSent(_) => worker.uid > peer.uid,
        _ => false,
    };
    sockets.iter().any(|c| c.is_to(peer) && ours(c.phase))
}

/// Drops the attempts to connect to a peer whose own connection is accepted.
fn drop_attempts(sockets: &mut TcpWorker, peer: &Peer) {
    let begun: Vec<u64> = sockets
        .iter()
        .filter(|c| c.is_to(peer) && c.phase != TcpConnPhase::Open)
        .map(|c| c.link.token)
        .collect();
    for token in begun {
        sockets.remove(token);
    }
    sockets.retries.retain(|r| !r.peer.is(peer));
}

/// Closes an open connection that has failed or carried malformed data, and fails the peer.
pub fn close(sockets: &mut TcpWorker, token: u64) {
    let Some(c) = sockets.remove(token) else {
        return;
    };
    c.link.shut();
    let Some(peer) = c.peer() else { return };
    let mut tx = peer.tx.lock();
    if let Some(Lane::Tcp(sender)) = tx.lane.as_mut() {
        sender.shut();
    }
    drop(tx);
    peer.fail(UCS_ERR_CONNECTION_RESET);
}
