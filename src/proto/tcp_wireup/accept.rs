//! Accepted TCP connections: the hello of the other end, and the answer to it.

use super::{close, leads_to, open, recv_hello, send_hello};
use crate::engine::peer::Peer;
use crate::engine::request::PeerRef;
use crate::engine::worker::Worker;
use crate::sys::{clock, log};
use crate::tl::tcp::conn::{TcpConn, TcpConnPhase};
use crate::tl::tcp::socket;
use crate::tl::tcp::worker::TcpWorker;
use crate::wire::ib_packet::TcpWireupMsg;
use crate::wire::tcp_hello::{self, Answer, CROSSED, MAGIC, TO_QUEUES, TcpHello, WELCOME};
use std::io::ErrorKind;
use std::net::SocketAddr;

/// Time after which an accepted connection without a complete hello is closed, in milliseconds.
const HALF_OPEN_MS: u64 = 5000;
/// Maximum number of connections accepted in one progress call.
const ACCEPTS: usize = 32;

/// Accepts connections, as far as there is room for half-open ones.
pub fn accept(sockets: &mut TcpWorker<PeerRef>) {
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
pub(in crate::proto) fn reject(sockets: &mut TcpWorker<PeerRef>, token: u64, why: &str) {
    if let Some(c) = sockets.remove(token) {
        let from = c.link.socket.peer_addr().ok().and_then(|a| a.as_socket());
        log::diag!("connection from {} closed: {why}", text(from));
    }
}

/// Handles a hello.
pub(super) fn on_hello(worker: &Worker, sockets: &mut TcpWorker<PeerRef>, token: u64) -> bool {
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
fn accept_hello(worker: &Worker, sockets: &mut TcpWorker<PeerRef>, token: u64) {
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
fn send_answer(worker: &Worker, sockets: &mut TcpWorker<PeerRef>, token: u64, g: TcpHello) -> bool {
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
fn end_lost(sockets: &mut TcpWorker<PeerRef>, g: &TcpHello) {
    let lost = |c: &TcpConn<PeerRef>| {
        c.phase == TcpConnPhase::Open
            && c.losses < g.losses
            && c.peer
                .map(PeerRef::get)
                .is_some_and(|peer| peer.uid == g.from)
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
fn ours_stays(worker: &Worker, sockets: &TcpWorker<PeerRef>, peer: &Peer) -> bool {
    let ours = |phase| match phase {
        TcpConnPhase::Open => true,
        TcpConnPhase::HelloSent(_) => worker.uid > peer.uid,
        _ => false,
    };
    sockets.iter().any(|c| leads_to(c, peer) && ours(c.phase))
}

/// Drops the attempts to connect to a peer whose own connection is accepted.
fn drop_attempts(sockets: &mut TcpWorker<PeerRef>, peer: &Peer) {
    let begun: Vec<u64> = sockets
        .iter()
        .filter(|c| leads_to(c, peer) && c.phase != TcpConnPhase::Open)
        .map(|c| c.link.token)
        .collect();
    for token in begun {
        sockets.remove(token);
    }
    sockets.retries.retain(|r| !r.peer.is(peer));
}
