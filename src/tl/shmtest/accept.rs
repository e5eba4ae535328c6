//! Accepts the connections of peers.

use super::hello::Hello;
use super::socket::{self, Socket};
use super::worker::{ShmtestRxConn, ShmtestWorker};
use crate::ctypes::*;
use crate::sys::{clock, log};
use crate::tl::LaneTarget;
use crate::tl::sink::Sink;
use std::io::ErrorKind;

/// Time after which a connection without a hello is closed, milliseconds.
const HALF_OPEN_MS: u64 = 5000;
/// Maximum number of connections without a hello.
const MAX_HALF_OPEN: usize = 64;

/// Accepts the connections that wait. Where too many are half-open the oldest one is closed.
pub fn accept<P: Copy + Eq>(worker: &mut ShmtestWorker<P>) {
    for _ in 0..MAX_HALF_OPEN {
        let socket = match socket::accept(&worker.listener) {
            Ok(socket) => socket,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return,
            // Descriptors may run out: the connections are accepted later.
            Err(e) => return log::debug!("cannot accept a connection: {e}"),
        };
        let mut half_open = worker
            .rx
            .iter()
            .enumerate()
            .filter(|(_, conn)| conn.peer.is_none());
        let oldest = half_open.next().map(|(i, _)| i);
        if let Some(oldest) = oldest.filter(|_| half_open.count() + 1 >= MAX_HALF_OPEN) {
            worker.rx.remove(oldest);
        }
        worker.rx.push(ShmtestRxConn {
            socket,
            peer: None,
            until: clock::coarse_ms() + HALF_OPEN_MS,
        });
    }
}

/// The peer of a connection by `socket` whose first packet this is. `None`: it is no hello to this worker.
pub fn peer_of<S: Sink>(
    worker: &ShmtestWorker<S::Peer>,
    sink: S,
    socket: &Socket,
    packet: &[u8],
) -> Option<S::Peer> {
    let Some(hello) = Hello::parse(packet, worker.uid, &worker.own) else {
        log::diag!("a connection by shmtest is closed: its hello is not for this worker");
        return None;
    };
    end_former(worker, sink, socket, hello.from);
    let peer = sink.peer(hello.from, LaneTarget::Shmtest(hello.back()))?;
    sink.incoming_up(peer);
    Some(peer)
}

/// A worker that connects again, by `socket`, has given up its former connection, and this side's. One that has ended
/// has closed this side's, too, but its connection is still read to the end.
fn end_former<S: Sink>(worker: &ShmtestWorker<S::Peer>, sink: S, socket: &Socket, uid: u64) {
    let rx = worker.rx.iter().filter_map(|conn| conn.peer);
    // In this order: a worker that ends closes the connections that it has made first.
    let tx = (worker.tx.iter())
        .filter(|conn| socket::has_ended(&conn.link.socket) && !socket::is_hung_up(socket));
    for peer in rx.chain(tx.map(|conn| conn.peer)) {
        if sink.uid(peer) == uid && !sink.has_failed(peer) {
            log::debug!("worker {uid:#x} has lost its connection: ended here");
            sink.lane_down(peer, UCS_ERR_CONNECTION_RESET);
        }
    }
}
