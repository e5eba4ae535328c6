//! Lost packets: the provider has reported an error of a receive, and does not say whose packet it was.
//!
//! Each peer is asked how many packets it has sent. The connection of which so many do not arrive, or whose peer does
//! not answer, has lost one, and fails at both ends.

use super::conn::LossCheck;
use super::packet::{CHECK, Grant, PacketHdr, RESET, SENT, bare};
use super::worker::OfiWorker;
use crate::ctypes::UCS_ERR_CONNECTION_RESET;
use crate::sys::{clock, log};

/// Interval at which a peer is asked again, milliseconds: its answer may be lost, too.
const ASK_MS: u64 = 500;
/// How often a peer is asked.
const MAX_ATTEMPTS: u32 = 20;
/// Time within which the packets arrive that a peer has sent before it answered, milliseconds: where a provider keeps
/// the order those may be late that the peer had no room for, or that another of its threads was sending.
const ARRIVAL_MS: u64 = 250;
const UNORDERED_ARRIVAL_MS: u64 = 2000;

/// A packet was lost, and it is unknown whose: every peer is asked.
#[cold]
pub fn suspect<P: Copy + Eq>(worker: &mut OfiWorker<P>) {
    for (_, conn) in &mut worker.conns {
        if conn.remote.is_some() && !conn.is_broken {
            conn.loss = LossCheck::Answer { asked: 0, next: 0 };
            worker.has_losses = true;
        }
    }
}

/// Asks peers, and fails the connections that have lost packets. Only if the worker has losses.
#[cold]
pub fn look<P: Copy + Eq>(worker: &mut OfiWorker<P>, now: u64) {
    let (mut questions, mut lost) = (Vec::new(), Vec::new());
    worker.has_losses = false;
    for (_, conn) in &mut worker.conns {
        let Some(to) = conn.remote.filter(|_| !conn.is_broken) else {
            conn.loss = LossCheck::None;
            continue;
        };
        match conn.loss {
            LossCheck::None => continue,
            LossCheck::Answer { asked, .. } if asked == MAX_ATTEMPTS => {
                lost.push(conn.link.clone())
            }
            LossCheck::Answer { asked, next } if now >= next => {
                let (asked, next) = (asked + 1, now + ASK_MS);
                conn.loss = LossCheck::Answer { asked, next };
                questions.push((conn.link.clone(), bare(to, CHECK, 0)));
            }
            LossCheck::Packets { number, .. } if conn.order.has_all_before(number) => {
                conn.loss = LossCheck::None;
                continue;
            }
            LossCheck::Packets { end, .. } if now >= end => lost.push(conn.link.clone()),
            _ => {}
        }
        worker.has_losses = true;
    }
    for (link, packet) in questions {
        worker.send_control(&link, packet);
    }
    for link in lost {
        log::diag!("a packet by libfabric was lost: the connection of its sender ends");
        worker.fail_conn(&link, UCS_ERR_CONNECTION_RESET);
    }
}

/// Handles a question, or its answer, for the connection `own`.
#[cold]
pub fn on_packet<P: Copy + Eq>(worker: &mut OfiWorker<P>, own: Grant, hdr: &PacketHdr) {
    let arrival = if worker.iface.is_ordered {
        ARRIVAL_MS
    } else {
        UNORDERED_ARRIVAL_MS
    };
    let Some(conn) = worker.granted(own) else {
        return;
    };
    let Some(to) = conn.remote else {
        return;
    };
    if hdr.kind == SENT {
        if matches!(conn.loss, LossCheck::Answer { .. }) {
            conn.loss = LossCheck::Packets {
                number: hdr.seq,
                end: clock::coarse_ms() + arrival,
            };
        }
        return;
    }
    // A connection that this side has ended was reset, and the reset was lost.
    let kind = if conn.peer.is_none() { RESET } else { SENT };
    let (link, number) = (conn.link.clone(), conn.link.sent());
    worker.send_control(&link, bare(to, kind, number));
}
