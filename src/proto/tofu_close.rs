//! Connections over the Tofu interconnect whose peers have failed, or may have: peers that no operation is posted to
//! are probed, and what a connection to a failed peer holds (sender, control words, numbers, the peer's ring) is
//! released once no outstanding operation or queued event names it.

use crate::ctypes::*;
use crate::engine::peer::Peer;
use crate::engine::request::PeerRef;
use crate::engine::worker::Worker;
use crate::proto::tofu_wireup;
use crate::tl::Lane;
use crate::tl::tofu::conn::{TofuConn, TofuConnPhase};
use crate::tl::tofu::op_queue::{CREDITS, Completion, OpTag};
use crate::tl::tofu::vcq::RemoteAddr;
use crate::tl::tofu::worker::TofuWorker;
use std::sync::atomic::Ordering;

/// Releases the connections `over`, whose peers have failed, and the rings of failed peers; probes peers that have only
/// a ring here. `now`: coarse milliseconds.
pub fn tick(worker: &Worker, rings: &mut TofuWorker<PeerRef>, over: Vec<u32>, now: u64) {
    for number in over {
        close(rings, number);
    }
    probe_writers(worker, rings, now);
    drop_ended(rings);
    rings.reuse_numbers();
}

/// Closes the connection to a failed peer, a step per call: drops the sender when no request waits for its operations;
/// posts a read behind them; and when the queues have reported all of it, frees the number for another peer, which then
/// gets no late notice.
fn close(rings: &mut TofuWorker<PeerRef>, number: u32) {
    let Some(conn) = rings.conn(number) else {
        return;
    };
    let peer = conn.peer.get();
    let phase = conn.phase;
    if phase != TofuConnPhase::Closing {
        // The sender lists a waiting request until it is completed.
        let waits = matches!(&peer.tx.lock().lane, Some(Lane::Tofu(s)) if !s.waiting().is_empty());
        if waits {
            return;
        }
        drop_lane(peer);
        if !read_behind(rings, number, phase, peer) {
            return;
        }
        if let Some(conn) = rings.conn(number) {
            conn.phase = TofuConnPhase::Closing;
        }
    }
    if !rings.iface.is_awaited(number) {
        rings.drop_conn(number);
    }
}

/// Posts a read behind all puts to the peer, if there may be any: it completes if the peer is alive, else it fails.
/// False: no room now.
fn read_behind(
    rings: &mut TofuWorker<PeerRef>,
    number: u32,
    phase: TofuConnPhase,
    peer: &Peer,
) -> bool {
    let Some(there) = tofu_wireup::locator(peer) else {
        return true;
    };
    let vcq = match phase {
        TofuConnPhase::Closing => return true,
        // An earlier ring request may have been put, by the default path.
        TofuConnPhase::TakingTicket
        | TofuConnPhase::Waiting { .. }
        | TofuConnPhase::Requested { .. } => there.vcq,
        TofuConnPhase::Open => rings.iface.vcq.route(there.vcq),
    };
    let from = RemoteAddr {
        vcq,
        stadd: there.ticket_queue,
    };
    // A read that is refused is not outstanding.
    (rings.iface.queue.lock().read_behind(number, from)).unwrap_or(true)
}

/// Drops the sender to a peer.
pub fn drop_lane(peer: &Peer) {
    let mut tx = peer.tx.lock();
    let lane = tx.lane.take_if(|lane| matches!(lane, Lane::Tofu(_)));
    drop(tx);
    // Without the peer's lock: it takes the lock of the queue.
    drop(lane);
}

/// Drops the rings of peers that have closed or failed.
fn drop_ended(rings: &mut TofuWorker<PeerRef>) {
    let ended = rings
        .all_incoming()
        .filter(|(_, incoming)| incoming.ended || incoming.peer.get().status() != UCS_OK);
    let ended: Vec<u32> = ended.map(|(number, _)| number).collect();
    for number in ended {
        rings.drop_incoming(number);
    }
}

/// Probes the peer of an open connection, each keepalive interval, if an endpoint watches for its death, or if there is
/// no open endpoint: then only the peer's close releases what is held for it.
pub fn probe(worker: &Worker, conn: &mut TofuConn<PeerRef>, peer: &Peer, now: u64) {
    if now - conn.probed < worker.ctx.policy.keepalive_ms {
        return;
    }
    conn.probed = now;
    // Relaxed: set once; the next tick sees it.
    if !peer.watch_death.load(Ordering::Relaxed) && peer.eps.lock().any_open() {
        return;
    }
    if let Some(Lane::Tofu(sender)) = peer.tx.lock().lane.as_mut() {
        sender.probe();
    }
}

/// Probes, each keepalive interval, peers that have a ring here and to which there is no lane, by another credit.
fn probe_writers(worker: &Worker, rings: &mut TofuWorker<PeerRef>, now: u64) {
    let keepalive = worker.ctx.policy.keepalive_ms;
    let mut due = Vec::new();
    for (number, incoming) in rings.all_incoming() {
        if incoming.ended || now - incoming.probed < keepalive {
            continue;
        }
        incoming.probed = now;
        let peer = incoming.peer.get();
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
        let (word, to) = (incoming.ring.send_credit(), incoming.ctrl_word);
        let conn = CREDITS + number;
        let mut queue = rings.iface.queue.lock();
        let posted = queue.put_word(
            OpTag {
                conn,
                generation: 0,
            },
            word,
            to,
            Some(Completion::Probe(number)),
        );
        if let Err(code) = posted {
            queue.fail(conn, code);
        }
    }
}
