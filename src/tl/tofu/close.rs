//! Connections over the Tofu interconnect whose peers have failed, or may have: peers that no operation is posted to
//! are probed, and what a connection to a failed peer holds (sender, control words, numbers, the peer's ring) is
//! released once no outstanding operation or queued event names it.

use super::address::TofuLocator;
use super::conn::{TofuConn, TofuConnPhase};
use super::op_queue::{CREDITS, Completion, OpTag};
use super::peer_lane::{drop_lane, with_sender};
use super::vcq::RemoteAddr;
use super::worker::TofuWorker;
use crate::tl::sink::Sink;

/// Releases the connections `over`, whose peers have failed, and the rings of failed peers; probes peers that have only
/// a ring here. `now`: coarse milliseconds.
pub fn tick<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S, over: Vec<u32>, now: u64) {
    for number in over {
        close(rings, sink, number);
    }
    probe_writers(rings, sink, now);
    drop_ended(rings, sink);
    rings.reuse_numbers();
}

/// Closes the connection to a failed peer, a step per call: drops the sender when no request waits for its operations;
/// posts a read behind them; and when the queues have reported all of it, frees the number for another peer, which then
/// gets no late notice.
fn close<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S, number: u32) {
    let Some(conn) = rings.conn(number) else {
        return;
    };
    let (peer, there, phase) = (conn.peer, conn.to.locator, conn.phase);
    if phase != TofuConnPhase::Closing {
        // The sender lists a waiting request until it is completed.
        let waits = with_sender(sink, peer, |sender| !sender.waiting().is_empty());
        if waits == Some(true) {
            return;
        }
        drop_lane(sink, peer);
        if !read_behind(rings, number, phase, &there) {
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
fn read_behind<P: Copy + Eq>(
    rings: &mut TofuWorker<P>,
    number: u32,
    phase: TofuConnPhase,
    there: &TofuLocator,
) -> bool {
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

/// Drops the rings of peers that have closed or failed.
fn drop_ended<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S) {
    let ended = rings
        .all_incoming()
        .filter(|(_, incoming)| incoming.ended || sink.has_failed(incoming.peer));
    let ended: Vec<u32> = ended.map(|(number, _)| number).collect();
    for number in ended {
        rings.drop_incoming(number);
    }
}

/// Probes the peer of an open connection, at the end of a keepalive interval, if it is to be probed.
pub fn probe<S: Sink>(sink: S, conn: &mut TofuConn<S::Peer>, keepalive_ms: u64, now: u64) {
    if now - conn.probed < keepalive_ms {
        return;
    }
    conn.probed = now;
    let state = sink.state(conn.peer);
    if state.is_probed(&mut conn.has_waited) {
        with_sender(sink, conn.peer, |sender| sender.probe());
    }
}

/// Probes, each keepalive interval, peers that have a ring here and to which there is no lane, by another credit.
fn probe_writers<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S, now: u64) {
    let keepalive = rings.keepalive_ms;
    let mut due = Vec::new();
    for (number, incoming) in rings.all_incoming() {
        if incoming.ended || now - incoming.probed < keepalive {
            continue;
        }
        incoming.probed = now;
        let state = sink.state(incoming.peer);
        if !state.is_connected() && !sink.has_failed(incoming.peer) && !state.has_endpoint {
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
