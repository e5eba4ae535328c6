//! Accepted TCP connections: the hello of the other end, and the answer to it.

use super::address::TcpUsage;
use super::conn::{TcpConn, TcpConnPhase};
use super::connect::{close, open, recv_hello};
use super::worker::TcpWorker;
use super::{oob, socket};
use crate::sys::{clock, log};
use crate::tl::oob::OobSink;
use crate::tl::sink::Sink;
use crate::wire::tcp_hello::{self, Answer, CROSSED, MAGIC, TO_QUEUES, TcpHello, WELCOME};
use std::io::ErrorKind;
use std::net::SocketAddr;

/// Time after which an accepted connection without a complete hello is closed, in milliseconds.
const HALF_OPEN_MS: u64 = 5000;
/// Maximum number of connections accepted in one progress call.
const ACCEPTS: usize = 32;

/// Accepts connections, as far as there is room for half-open ones.
pub fn accept<P: Copy>(sockets: &mut TcpWorker<P>) {
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
pub fn reject<P: Copy>(sockets: &mut TcpWorker<P>, token: u64, why: &str) {
    if let Some(c) = sockets.remove(token) {
        let from = c.link.socket.peer_addr().ok().and_then(|a| a.as_socket());
        log::diag!("connection from {} closed: {why}", text(from));
    }
}

/// Handles a hello.
pub(super) fn on_hello<S: Sink>(
    sockets: &mut TcpWorker<S::Peer>,
    sink: S,
    oob: &mut impl OobSink,
    token: u64,
) -> bool {
    let (uid, secret) = (sockets.uid, sockets.secret);
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
        Some(g) if tcp_hello::is_for(&g, uid, secret) => match g.purpose {
            TO_QUEUES => {
                accept_oob(sockets, oob, token);
                false
            }
            _ if sockets.usage != TcpUsage::Messages => {
                reject(sockets, token, "messages do not go by tcp (UCX_TLS)");
                false
            }
            _ => send_answer(sockets, sink, token, g),
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

/// Handles the hello of an out-of-band connection, which stays half-open until its first complete message.
fn accept_oob<P: Copy, O: OobSink>(sockets: &mut TcpWorker<P>, oob: &mut O, token: u64) {
    let accepts_oob = sockets.accepts_oob;
    let Some(c) = sockets.get(token) else { return };
    let size = TcpHello::SIZE + O::MESSAGE_BYTES;
    if recv_hello(c, size, size).is_err() {
        return reject(sockets, token, "closed before the hello");
    }
    let begun = &c.receiver.buffered()[TcpHello::SIZE..];
    if !O::may_begin(begun) {
        reject(sockets, token, "unknown protocol");
    } else if !accepts_oob {
        reject(
            sockets,
            token,
            "it requests queue pairs, and there are none",
        );
    } else if begun.len() == O::MESSAGE_BYTES {
        c.receiver.take(TcpHello::SIZE);
        sockets.accept_oob(token);
        oob::deliver(sockets, oob, token);
    }
}

/// Answers a hello with the right secret: the connection stays, unless that of this side does.
fn send_answer<S: Sink>(
    sockets: &mut TcpWorker<S::Peer>,
    sink: S,
    token: u64,
    g: TcpHello,
) -> bool {
    let own = g.from == sockets.uid;
    if !own {
        end_lost(sockets, sink, &g);
    }
    let peer = sink.incoming_peer(g.from);
    let (uid, losses) = (sockets.uid, sink.contact(peer).losses);
    let answer = |verdict| {
        Answer {
            magic: MAGIC,
            verdict,
            losses,
            uid,
        }
        .encode()
    };
    if !own && ours_stays(sockets, peer, g.from) {
        if let Some(c) = sockets.remove(token) {
            let _ = c.link.send_whole(&answer(CROSSED));
        }
        return false;
    }
    let Some(c) = sockets.get(token) else {
        return false;
    };
    let link = c.link.clone();
    c.receiver.take(TcpHello::SIZE);
    c.losses = g.losses;
    if let Err(e) = link.send_whole(&answer(WELCOME)) {
        log::debug!("worker {:#x} is gone: {e}", g.from);
        sockets.remove(token);
        return false;
    }
    if own {
        // Of a connection to itself a worker sends on the end that has connected, and receives on this one.
        sockets.set_open(token, peer);
        return true;
    }
    drop_attempts(sockets, peer);
    sockets.set_open(token, peer);
    // Messages to a peer with an inbox go by shared memory.
    if !sink.state(peer).uses_inbox {
        open(sockets, sink, peer, link);
    }
    true
}

/// Closes connections that the peer has lost already, which was not noticed here.
fn end_lost<S: Sink>(sockets: &mut TcpWorker<S::Peer>, sink: S, g: &TcpHello) {
    let lost = |c: &TcpConn<S::Peer>| {
        c.phase == TcpConnPhase::Open
            && c.losses < g.losses
            && c.peer.is_some_and(|peer| sink.uid(peer) == g.from)
    };
    let tokens: Vec<u64> = sockets
        .iter()
        .filter(|c| lost(c))
        .map(|c| c.link.token)
        .collect();
    for token in tokens {
        log::debug!("worker {:#x} has lost its connection: ended here", g.from);
        close(sockets, sink, token);
    }
}

/// Whether a connection that this side has made, or is making, stays.
fn ours_stays<P: Copy + Eq>(sockets: &TcpWorker<P>, peer: P, uid: u64) -> bool {
    let ours = |phase| match phase {
        TcpConnPhase::Open => true,
        TcpConnPhase::HelloSent(_) => sockets.uid > uid,
        _ => false,
    };
    sockets.iter().any(|c| c.is_to(peer) && ours(c.phase))
}

/// Drops the attempts to connect to a peer whose own connection is accepted.
fn drop_attempts<P: Copy + Eq>(sockets: &mut TcpWorker<P>, peer: P) {
    let begun: Vec<u64> = sockets
        .iter()
        .filter(|c| c.is_to(peer) && c.phase != TcpConnPhase::Open)
        .map(|c| c.link.token)
        .collect();
    for token in begun {
        sockets.remove(token);
    }
    sockets.retries.retain(|r| r.peer != peer);
}
