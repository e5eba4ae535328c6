//! Connects to peers.
//!
//! The kernel makes a connection at once, and keeps what is sent until the peer accepts it: a lane is up as soon as the
//! hello is written.

use super::ShmtestLocator;
use super::hello::Hello;
use super::sender::{ShmtestSender, TxLink};
use super::socket::{self, Socket};
use super::worker::{ShmtestTxConn, ShmtestWorker};
use crate::ctypes::*;
use crate::sys::log;
use crate::tl::sink::Sink;
use crate::tl::{Lane, LaneTarget};
use std::io::{self, ErrorKind};

/// Connects to the peers at whose sockets too many connections have waited.
pub fn retry<S: Sink>(worker: &mut ShmtestWorker<S::Peer>, sink: S) {
    for peer in std::mem::take(&mut worker.retries) {
        connect(worker, sink, peer);
    }
}

/// Connects to a peer, unless there is a lane to it.
pub fn connect<S: Sink>(worker: &mut ShmtestWorker<S::Peer>, sink: S, peer: S::Peer) {
    if sink.has_failed(peer) || sink.state(peer).has_lane {
        return;
    }
    let contact = sink.contact(peer);
    let Some(LaneTarget::Shmtest(to)) = contact.target else {
        return sink.lane_down(peer, UCS_ERR_UNREACHABLE);
    };
    let uid = contact.uid;
    match open(worker, uid, &to) {
        Ok(socket) => lane_up(worker, sink, peer, socket),
        Err(e) if e.kind() == ErrorKind::WouldBlock => worker.retries.push(peer),
        Err(e) => {
            if e.kind() == ErrorKind::ConnectionRefused {
                log::diag!("worker {uid:#x} cannot be reached by shmtest: it has ended");
                sink.lane_down(peer, UCS_ERR_UNREACHABLE);
            } else {
                sink.unreachable(peer, format_args!("no connection by shmtest: {e}"));
            }
        }
    }
}

/// A connection to the worker `uid` at `to`, with its hello.
fn open<P: Copy + Eq>(
    worker: &ShmtestWorker<P>,
    uid: u64,
    to: &ShmtestLocator,
) -> io::Result<Socket> {
    let socket = socket::connect(to.name)?;
    let hello = Hello::new((worker.uid, &worker.own), (uid, to));
    match socket::send_packet(&socket, &hello.encode())? {
        true => Ok(socket),
        false => Err(ErrorKind::WouldBlock.into()),
    }
}

fn lane_up<S: Sink>(worker: &mut ShmtestWorker<S::Peer>, sink: S, peer: S::Peer, socket: Socket) {
    let link = TxLink::new(socket);
    let lane = Lane::Shmtest(Box::new(ShmtestSender::new(link.clone())));
    if sink.lane_up(peer, lane, None).is_ok() {
        worker.tx.push(ShmtestTxConn {
            peer,
            link,
            has_ended: false,
        });
    }
}
