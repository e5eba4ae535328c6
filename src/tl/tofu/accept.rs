//! Rings that a worker grants to peers, over the Tofu interconnect.

use super::TofuTarget;
use super::address::TofuLocator;
use super::conn::{NewRing, RxConn};
use super::op_queue::{NO_CONN, OpTag};
use super::utofu::{OpFlags, code_name};
use super::vcq::RemoteAddr;
use super::worker::TofuWorker;
use crate::ctypes::*;
use crate::sys::{clock, log};
use crate::tl::LaneTarget;
use crate::tl::sink::Sink;
use crate::wire::tofu_msg::{COUNTED, GRANT_AT, Grant, RingRequest};

/// Grants belong to no connection.
const OWN: OpTag = OpTag {
    conn: NO_CONN,
    generation: 0,
};

/// Grants a peer a ring, or refuses one.
pub fn admit<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S, g: &RingRequest) {
    let locator = TofuLocator {
        secret: g.back,
        vcq: g.vcq,
        ticket_queue: g.ticket_queue,
        number: g.number as u16,
        rails: g.rails(),
    };
    let back = LaneTarget::Tofu(TofuTarget { locator });
    let Some(peer) = sink.peer(g.from, back) else {
        return log::diag!(
            "a ring request of worker {:#x} is dropped: it is another process",
            g.from
        );
    };
    let before = rings.all_incoming().find(|(_, incoming)| {
        incoming.peer == peer && incoming.proof == g.proof && !incoming.ended
    });
    let number = before.map(|(number, _)| number);
    if number.is_none() {
        end_former(rings, peer);
    }
    let grant = match number.map_or_else(|| make(rings, sink, peer, g), Ok) {
        Ok(number) => granted(rings, number),
        Err(e) => {
            log::once!(
                Error, each log::words(&e),
                "no ring for worker {:#x}: {e} (UCX_TOFU_RING_SIZE)",
                g.from
            );
            sink.incoming_refused(peer);
            None
        }
    };
    let grant = grant.unwrap_or(Grant {
        ring: 0,
        proof: g.proof,
        size: 0,
        packet: 0,
        window: 0,
        flags: 0,
        refusal: UCS_ERR_NO_RESOURCE as i32,
    });
    let to = RemoteAddr {
        stadd: g.ctrl_word + GRANT_AT as u64,
        ..ctrl_word(g)
    };
    let mut queue = rings.iface.queue.lock();
    let sent = queue.send_short(OWN, &grant.encode(), to, OpFlags::REMOTE_MRQ_NOTICE);
    drop(queue);
    if let Err(code) = sent {
        log::diag!(
            "no ring was granted to worker {:#x}: {}",
            g.from,
            code_name(code)
        );
    }
}

/// Ends the peer's earlier rings: with the request for another one it has given them up.
fn end_former<P: Copy + Eq>(rings: &mut TofuWorker<P>, peer: P) {
    for (_, incoming) in rings.all_incoming() {
        incoming.ended |= incoming.peer == peer;
    }
}

fn make<S: Sink>(
    rings: &mut TofuWorker<S::Peer>,
    sink: S,
    peer: S::Peer,
    g: &RingRequest,
) -> std::io::Result<u32> {
    let packet = g.packet.min(rings.iface.tuning.packet);
    let NewRing { ring, counted } = rings.make_ring(packet)?;
    sink.incoming_up(peer);
    Ok(rings.insert(RxConn {
        peer,
        uid: g.from,
        ring,
        assembly: Default::default(),
        ctrl_word: ctrl_word(g),
        proof: g.proof,
        counted,
        ended: false,
        probed: clock::coarse_ms(),
    }))
}

/// The control words of the peer.
fn ctrl_word(g: &RingRequest) -> RemoteAddr {
    RemoteAddr {
        vcq: g.vcq,
        stadd: g.ctrl_word,
    }
}

fn granted<P: Copy + Eq>(rings: &mut TofuWorker<P>, number: u32) -> Option<Grant> {
    let incoming = rings.incoming(number)?;
    let shape = incoming.ring.shape();
    Some(Grant {
        ring: incoming.ring.stadd(),
        proof: incoming.proof,
        size: shape.size,
        packet: shape.packet,
        window: shape.window,
        flags: if incoming.counted { COUNTED } else { 0 },
        refusal: 0,
    })
}
