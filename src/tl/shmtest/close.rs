//! Ends connections: those that peers have closed, and all of a worker that is destroyed.

use super::sender::ShmtestSender;
use super::socket::{self, Received};
use super::worker::{ShmtestWorker, with_sender};
use crate::ctypes::*;
use crate::sys::clock;
use crate::tl::Lane;
use crate::tl::interface::LINGER_MS;
use crate::tl::sink::Sink;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Longest wait for room, nanoseconds, before arrivals are dropped again.
const WAIT_NS: i64 = 1_000_000;
/// Reads of one connection before the next one: a peer may send without end.
const READS: usize = 16;

/// Marks the connections that peers have closed. What such a peer has sent before is already at this worker's sockets.
pub fn find_ended<P: Copy + Eq>(worker: &mut ShmtestWorker<P>) {
    for conn in &mut worker.tx {
        conn.has_ended |= socket::has_ended(&conn.link.socket);
    }
}

/// Fails the peers of marked connections, unless they may have sent something that was not read: then the end of that
/// connection fails them. Drops the connections to failed peers, and half-open ones whose time is over at `now`, coarse
/// milliseconds.
pub fn drop_ended<S: Sink>(worker: &mut ShmtestWorker<S::Peer>, sink: S, now: u64) {
    let rx = &mut worker.rx;
    rx.retain(|conn| conn.peer.is_some() || now < conn.until);
    let has_half_open = rx.iter().any(|conn| conn.peer.is_none());
    worker.tx.retain(|conn| {
        let sends = has_half_open || rx.iter().any(|rx| rx.peer == Some(conn.peer));
        if conn.has_ended && !sends {
            sink.lane_down(conn.peer, UCS_ERR_CONNECTION_RESET);
        }
        !sink.has_failed(conn.peer)
    });
}

/// Closes all connections, when the sockets have taken every record that was accepted. The kernel keeps them for the
/// peers.
pub fn close<S: Sink>(worker: &mut ShmtestWorker<S::Peer>, sink: S) {
    let until = clock::coarse_ms() + LINGER_MS;
    loop {
        worker.tx.retain(|conn| {
            let is_drained = sink.has_failed(conn.peer)
                || socket::has_ended(&conn.link.socket)
                || with_sender(sink, conn.peer, ShmtestSender::flush) != Some(false);
            if is_drained {
                drop_lane(sink, conn.peer);
            }
            !is_drained
        });
        if worker.tx.is_empty() || clock::coarse_ms() >= until {
            break;
        }
        drop_incoming(worker);
        wait_for_room(worker);
    }
    for conn in worker.tx.drain(..) {
        drop_lane(sink, conn.peer);
    }
    worker.rx.clear();
}

fn drop_lane<S: Sink>(sink: S, peer: S::Peer) {
    drop(sink.take_lane(peer, |lane| matches!(lane, Lane::Shmtest(_))));
}

/// Drops what has arrived: a peer that closes, too, may wait for room here.
fn drop_incoming<P>(worker: &mut ShmtestWorker<P>) {
    for conn in &worker.rx {
        for _ in 0..READS {
            match socket::receive(&conn.socket, &mut worker.buffer) {
                Received::Nothing | Received::End => break,
                Received::Packet(_) | Received::TooLong => {}
            }
        }
    }
}

fn wait_for_room<P>(worker: &ShmtestWorker<P>) {
    let sockets = worker.tx.iter().map(|conn| &conn.link.socket);
    let mut fds: Vec<_> = sockets
        .map(|socket| PollFd::new(socket, PollFlags::OUT))
        .collect();
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: WAIT_NS,
    };
    let _ = poll(&mut fds, Some(&timeout));
}
