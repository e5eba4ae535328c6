//! Connections over the Tofu interconnect whose peers are lost, or may be: peers that no operation is posted to are
//! probed, and what a connection to a lost peer holds (sender, cell, numbers, the peer's ring) is released once nothing
//! that a queue tells of names it.

use crate::ctypes::*;
use crate::engine::peer::Peer;
use crate::engine::tofu_worker::{TofuConn, TofuConnPhase, TofuWorker};
use crate::engine::worker::Worker;
use crate::proto::tofu_wireup;
use crate::tl::Lane;
use crate::tl::tofu::op_queue::{CREDITS, Completion, OpTag};
use crate::tl::tofu::vcq::RemoteAddr;
use std::sync::atomic::Ordering;

/// Releases what there is of the connections in `over`, whose peers are lost, and of the rings of lost peers; probes
/// the writers that only their rings tell of. `now`: coarse milliseconds.
pub fn tick(worker: &Worker, rings: &mut TofuWorker, over: Vec<u32>, now: u64) {
    for number in over {
        close(rings, number);
    }
    probe_writers(worker, rings, now);
    drop_ended(rings);
    rings.reuse_numbers();
}

/// Ends the connection to a lost peer: its sender goes when no request waits for what that has posted; a read is posted
/// behind that; and when the queues have told of all of it the number is free for another peer, which nothing late is
/// taken for.
fn close(rings: &mut TofuWorker, number: u32) {
    let Some(link) = rings.conn(number) else {
        return;
    };
    // SAFETY: peers that lists of progress name are not freed.
    let peer = unsafe { &*link.peer };
    let phase = link.phase;
    if phase != TofuConnPhase::Closing {
        // A request that waits is found by the sender until it has been told.
        let waits = matches!(&peer.tx.lock().lane, Some(Lane::Tofu(s)) if !s.waiting().is_empty());
        if waits {
            return;
        }
        drop_lane(peer);
        if !read_behind(rings, number, phase, peer) {
            return;
        }
        if let Some(link) = rings.conn(number) {
            link.phase = TofuConnPhase::Closing;
        }
    }
    if !rings.iface.is_awaited(number) {
        rings.drop_conn(number);
    }
}

/// Posts a read behind what was written to the peer, if there can be something: a lost peer that lives lets it be read,
/// another one answers with an error. False: not now.
fn read_behind(rings: &mut TofuWorker, number: u32, phase: TofuConnPhase, peer: &Peer) -> bool {
    let Some(there) = tofu_wireup::locator(peer) else {
        return true;
    };
    let vcq = match phase {
        TofuConnPhase::Closing => return true,
        // It may have been greeted with an earlier ticket.
        TofuConnPhase::Asking | TofuConnPhase::Waiting { .. } | TofuConnPhase::Said { .. } => {
            there.vcq
        }
        TofuConnPhase::Open => rings.iface.vcq.route(there.vcq),
    };
    let from = RemoteAddr {
        vcq,
        stadd: there.hall,
    };
    // What is refused at once is not under way.
    (rings.iface.queue.lock().read_behind(number, from)).unwrap_or(true)
}

/// Nothing more goes to a peer.
pub fn drop_lane(peer: &Peer) {
    let mut tx = peer.tx.lock();
    let lane = tx.lane.take_if(|lane| matches!(lane, Lane::Tofu(_)));
    drop(tx);
    // It takes the lock of the queue.
    drop(lane);
}

/// Gives back the rings of peers that are gone.
fn drop_ended(rings: &mut TofuWorker) {
    let ended = rings.all_incoming().filter(|(_, incoming)| {
        // SAFETY: peers that lists of progress name are not freed.
        incoming.ended || unsafe { &*incoming.peer }.status() != UCS_OK
    });
    let ended: Vec<u32> = ended.map(|(number, _)| number).collect();
    for number in ended {
        rings.drop_incoming(number);
    }
}

/// Asks whether the peer of an open connection is there, each keepalive interval: an endpoint that handles errors wants
/// to know, or the user has none any more, and only the peer's end lets go what is held for it.
pub fn probe(worker: &Worker, link: &mut TofuConn, peer: &Peer, now: u64) {
    if now - link.probed < worker.ctx.policy.keepalive_ms {
        return;
    }
    link.probed = now;
    // Relaxed: set once, and a round later will do.
    if !peer.watch_death.load(Ordering::Relaxed) && peer.eps.lock().any_open() {
        return;
    }
    if let Some(Lane::Tofu(sender)) = peer.tx.lock().lane.as_mut() {
        sender.probe();
    }
}

/// Asks whether those peers are there, each keepalive interval, that have a ring here and to which there is no
/// connection: each is told once more how far its ring is read.
fn probe_writers(worker: &Worker, rings: &mut TofuWorker, now: u64) {
    let keepalive = worker.ctx.policy.keepalive_ms;
    let mut due = Vec::new();
    for (number, incoming) in rings.all_incoming() {
        if incoming.ended || now - incoming.probed < keepalive {
            continue;
        }
        incoming.probed = now;
        // SAFETY: peers that lists of progress name are not freed.
        let peer = unsafe { &*incoming.peer };
        let tx = peer.tx.lock();
        let is_connected = tx.lane.is_some() || tx.connecting;
        drop(tx);
        if !is_connected && peer.status() == UCS_OK && !peer.eps.lock().any_open() {
            due.push(number);
        }
    }
    for number in due {
        let Some(incoming) = rings.incoming(number) else {
            continue;
        };
        let (word, to) = (incoming.ring.send_credit(), incoming.cell);
        let link = CREDITS + number;
        let mut queue = rings.iface.queue.lock();
        let told = queue.put_word(
            OpTag { link, colour: 0 },
            word,
            to,
            Some(Completion::Probe(number)),
        );
        if let Err(code) = told {
            queue.fail(link, code);
        }
    }
}
