//! Connecting over the Tofu interconnect: a worker gets a ring at a peer by a ticket, its turn, a ring request and a
//! grant.
//!
//! Rings are one-directional and belong to the receiver, as in shared memory: if two workers connect at once there are
//! two rings. The ticket queue is served by [`listen`], and rings are granted by `accept`.

use super::conn::{ConnTarget, TofuConnPhase};
use super::op_queue::Completion;
use super::ring_layout::RingLayout;
use super::sender::{RemoteRing, TofuSender};
use super::tx_acks::TxAcks;
use super::utofu::{self, OpFlags, code_name};
use super::vcq::RemoteAddr;
use super::worker::TofuWorker;
use super::{close, listen};
use crate::ctypes::*;
use crate::sys::{advice, clock, log};
use crate::tl::sink::Sink;
use crate::tl::{Lane, LaneTarget};
use crate::wire::tofu_msg::{COUNTED, RingRequest, TicketWord, slot_at};
use std::sync::Arc;

/// Interval of queries whether a ticket's turn has come, milliseconds.
const TURN_MS: u64 = 1;
/// Time without a grant after which the ticket queue is queried whether the ring request was dropped, milliseconds.
const ANSWER_MS: u64 = 500;
/// Time without a grant after which the peer fails, if its death is watched for, or a message is logged, milliseconds.
const CONNECT_WARN_MS: u64 = 30_000;

/// Begins connections to peers.
#[cold]
pub fn start<S: Sink>(
    rings: &mut TofuWorker<S::Peer>,
    sink: S,
    peers: impl Iterator<Item = S::Peer>,
) {
    for peer in peers {
        if sink.has_failed(peer) {
            continue;
        }
        let contact = sink.contact(peer);
        let Some(LaneTarget::Tofu(target)) = contact.target else {
            sink.lane_down(peer, UCS_ERR_UNREACHABLE);
            continue;
        };
        let to = ConnTarget {
            uid: contact.uid,
            losses: contact.losses,
            locator: target.locator,
        };
        if rings.mrq_failed() {
            let reason = format_args!("the message receive queue of this process has failed");
            sink.lane_lost(peer, reason, UCS_ERR_IO_ERROR);
        } else {
            open(rings, sink, peer, to);
        }
    }
}

fn open<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S, peer: S::Peer, to: ConnTarget) {
    match rings.new_conn(peer, to, clock::coarse_ms()) {
        Ok(number) => take_ticket(rings, sink, number),
        Err(e) => {
            log::once!(
                Error, each log::words(&e),
                "no ring at worker {:#x}: {e}",
                to.uid
            );
            sink.lane_down(peer, UCS_ERR_UNREACHABLE);
        }
    }
}

/// Takes a ticket, or, for a connection that has one, reads the word of the ticket queue.
fn take_ticket<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S, number: u32) {
    let Some(conn) = rings.conn(number) else {
        return;
    };
    let there = conn.to.locator;
    let ticket = u64::from(conn.phase == TofuConnPhase::TakingTicket);
    let to = RemoteAddr {
        vcq: there.vcq,
        stadd: there.ticket_queue,
    };
    let mut queue = rings.iface.queue.lock();
    let asked = queue.add(number, ticket, to, Some(Completion::Ticket(number)));
    drop(queue);
    match asked {
        Ok(true) => set_due(rings, number, u64::MAX),
        // No edata tag is free.
        Ok(false) => set_due(rings, number, clock::coarse_ms() + TURN_MS),
        Err(code) => fail(rings, sink, number, code),
    }
}

fn set_due<P: Copy + Eq>(rings: &mut TofuWorker<P>, number: u32, due: u64) {
    if let Some(conn) = rings.conn(number) {
        conn.due = due;
    }
}

/// An operation of a connection has failed: its peer cannot be reached any more.
pub fn fail<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S, number: u32, code: i32) {
    if let Some(conn) = rings.conn(number) {
        fail_peer(sink, conn.peer, code);
    }
}

/// A put to the writer of this ring has failed: the peer cannot be reached any more.
pub fn fail_writer<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S, number: u32, code: i32) {
    if let Some(incoming) = rings.incoming(number) {
        fail_peer(sink, incoming.peer, code);
    }
}

fn fail_peer<S: Sink>(sink: S, peer: S::Peer, code: i32) {
    if sink.has_failed(peer) {
        return;
    }
    let advice = match code {
        utofu::MRQ_RMT_STADD => advice::ON_REFUSED_ACCESS,
        utofu::MRQ_PEER => advice::ON_END,
        _ => advice::ON_SILENCE,
    };
    let reason = format_args!("{} ({code}): {advice}", code_name(code));
    sink.lane_lost(peer, reason, status_of(code));
}

/// The status of an endpoint for a code of uTofu.
fn status_of(code: i32) -> ucs_status_t {
    match code {
        // The remote node, or the process there, is gone.
        utofu::MRQ_PEER => UCS_ERR_CONNECTION_RESET,
        // The VCQ does not accept posts any more.
        utofu::BUSY => UCS_ERR_ENDPOINT_TIMEOUT,
        _ => UCS_ERR_IO_ERROR,
    }
}

/// The word of the peer's ticket queue was fetched.
pub fn on_ticket<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S, number: u32, word: u64) {
    let ticket_word = TicketWord::read(word);
    let Some(conn) = rings.conn(number) else {
        return;
    };
    let ticket = match conn.phase {
        TofuConnPhase::TakingTicket => ticket_word.tickets,
        TofuConnPhase::Waiting { ticket } => ticket,
        // A request that was read without a grant was overwritten in its slot by another one: it is put again, with a
        // new ticket.
        TofuConnPhase::Requested { ticket } => {
            let lost = ticket_word.is_past(ticket);
            if lost {
                conn.phase = TofuConnPhase::TakingTicket;
                return take_ticket(rings, sink, number);
            }
            return set_due(rings, number, clock::coarse_ms() + ANSWER_MS);
        }
        TofuConnPhase::Open | TofuConnPhase::Closing => return,
    };
    if ticket_word.is_past(ticket) {
        // The ticket expired before its use: a new one is taken.
        conn.phase = TofuConnPhase::TakingTicket;
        return set_due(rings, number, clock::coarse_ms() + TURN_MS);
    }
    conn.phase = TofuConnPhase::Waiting { ticket };
    if ticket_word.has_come(ticket) {
        send_ring_request(rings, sink, number, ticket);
    } else {
        set_due(rings, number, clock::coarse_ms() + TURN_MS);
    }
}

/// Puts the ring request into the slot of this ticket.
fn send_ring_request<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S, number: u32, ticket: u32) {
    let (from, own) = (rings.uid, rings.locator());
    let packet = rings.iface.tuning.packet;
    let Some(conn) = rings.conn(number) else {
        return;
    };
    let (to, there) = (conn.to, conn.to.locator);
    let mut request = RingRequest {
        magic: RingRequest::magic(),
        from,
        to: to.uid,
        secret: there.secret,
        back: own.secret,
        vcq: own.vcq,
        ticket_queue: own.ticket_queue,
        ctrl_word: conn.ctrl_word.stadd(),
        proof: conn.proof,
        losses: to.losses,
        ticket,
        packet,
        number: own.number.into(),
        rail_0: 0,
        rail_1: 0,
        rail_2: 0,
        rail_3: 0,
        rail_4: 0,
    };
    request.set_rails(own.rails);
    let slot = RemoteAddr {
        vcq: there.vcq,
        stadd: there.ticket_queue + slot_at(ticket) as u64,
    };
    if send(rings, sink, number, &request.encode(), slot) {
        log::debug!("requesting a ring from worker {:#x}", to.uid);
        if let Some(conn) = rings.conn(number) {
            conn.phase = TofuConnPhase::Requested { ticket };
        }
        set_due(rings, number, clock::coarse_ms() + ANSWER_MS);
    }
}

/// Puts a message to a peer, with a notice there. False: no buffer is free now, or the put has failed.
fn send<S: Sink>(
    rings: &mut TofuWorker<S::Peer>,
    sink: S,
    number: u32,
    bytes: &[u8],
    to: RemoteAddr,
) -> bool {
    let Some(tag) = rings.conn(number).map(|conn| conn.tag) else {
        return false;
    };
    let mut queue = rings.iface.queue.lock();
    let buffer = if queue.has_buffers(1) {
        queue.take_buffer(number)
    } else {
        None
    };
    let Some((buffer, at)) = buffer else {
        drop(queue);
        set_due(rings, number, clock::coarse_ms() + TURN_MS);
        return false;
    };
    // SAFETY: the shortest buffer has room for the longest wireup message.
    unsafe { at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    let sent = queue.send(tag, buffer, bytes.len(), to, OpFlags::REMOTE_MRQ_NOTICE);
    drop(queue);
    if let Err(code) = sent {
        fail(rings, sink, number, code);
    }
    sent.is_ok()
}

/// A peer has written to the control words of a connection: a grant, or that the reader has closed.
#[cold]
pub fn on_grant<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S, number: u32) {
    let (iface, own_packet) = (rings.iface.clone(), rings.iface.tuning.packet);
    let Some(conn) = rings.conn(number) else {
        return;
    };
    let (peer, ConnTarget { uid, locator, .. }) = (conn.peer, conn.to);
    if conn.phase == TofuConnPhase::Open && conn.ctrl_word.has_left(conn.proof) {
        log::debug!("worker {uid:#x} has ended its connection");
        return sink.lane_down(peer, UCS_ERR_CONNECTION_RESET);
    }
    if !matches!(conn.phase, TofuConnPhase::Requested { .. }) {
        return;
    }
    let Some(grant) = conn.ctrl_word.grant().filter(|g| g.proof == conn.proof) else {
        return log::diag!("a grant is dropped: it is for another connection");
    };
    let shape = RingLayout {
        size: grant.size,
        packet: grant.packet,
        window: grant.window,
    };
    if grant.size == 0 || !shape.is_sound(1) || shape.packet > own_packet {
        let reason = format_args!(
            "it grants no ring (status {}; UCX_TOFU_RING_SIZE, UCX_TOFU_SEG_SIZE)",
            grant.refusal
        );
        return sink.lane_lost(peer, reason, UCS_ERR_NO_RESOURCE);
    }
    conn.phase = TofuConnPhase::Open;
    conn.due = u64::MAX;
    let to = RemoteRing {
        vcq: iface.vcq.route(locator.vcq),
        ring: grant.ring,
        shape,
        counted: grant.flags & COUNTED != 0,
        rails: locator.rails,
    };
    let (flow, ctrl_word): (Arc<TxAcks>, _) = (conn.flow.clone(), conn.ctrl_word.clone());
    let sender = TofuSender::new(iface, flow, ctrl_word, conn.tag, to);
    if sink
        .lane_up(peer, Lane::Tofu(Box::new(sender)), None)
        .is_ok()
    {
        log::debug!("connected to worker {uid:#x} by tofu");
    }
}

/// Does what is due at `now`, coarse milliseconds, and releases connections to failed peers.
#[cold]
pub fn tick<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S, now: u64) {
    let keepalive_ms = rings.keepalive_ms;
    let (mut due, mut over) = (Vec::new(), Vec::new());
    for (number, conn) in rings.conns() {
        let (peer, uid) = (conn.peer, conn.to.uid);
        if sink.has_failed(peer) {
            over.push(number);
            continue;
        }
        if conn.phase == TofuConnPhase::Open {
            close::probe(sink, conn, keepalive_ms, now);
            continue;
        }
        let waited = now - conn.since;
        if waited >= CONNECT_WARN_MS && sink.state(peer).watches_death {
            log::diag!("worker {uid:#x} does not answer: no ring");
            sink.lane_down(peer, UCS_ERR_ENDPOINT_TIMEOUT);
        } else if waited >= CONNECT_WARN_MS && !std::mem::replace(&mut conn.late, true) {
            // The peer may be computing, and no endpoint watches for its death.
            log::once!(
                Error,
                "worker {uid:#x} has not answered for {waited} ms: {}",
                advice::ON_WAITING
            );
        }
        if now >= conn.due {
            due.push(number);
        }
    }
    for number in due {
        take_ticket(rings, sink, number);
    }
    close::tick(rings, sink, over, now);
    rings.iface.trim_mrs();
    // Reports failed operations that had no buffer, too.
    rings.iface.poll_tcqs();
    listen::tick(rings, now);
}
