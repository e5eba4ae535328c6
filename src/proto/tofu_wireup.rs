//! Wireup over the Tofu interconnect: a worker gets a ring at a peer by a ticket, its turn, a ring request and a grant;
//! and grants rings to peers.
//!
//! Rings are one-directional and belong to the receiver, as in shared memory: if two workers connect at once there are
//! two rings. The ticket queue is served by [`tofu_listen`].

use crate::ctypes::*;
use crate::engine::peer::Peer;
use crate::engine::request::PeerRef;
use crate::engine::worker::Worker;
use crate::proto::{detach, tofu_close, tofu_listen, tx};
use crate::sys::{clock, log};
use crate::tl::tofu::conn::{NewRing, RxConn, TofuConnPhase};
use crate::tl::tofu::op_queue::{Completion, NO_CONN, OpTag};
use crate::tl::tofu::ring_layout::RingLayout;
use crate::tl::tofu::sender::{RemoteRing, TofuSender};
use crate::tl::tofu::utofu::{self, OpFlags, code_name};
use crate::tl::tofu::vcq::RemoteAddr;
use crate::tl::tofu::worker::TofuWorker;
use crate::tl::tofu::{TofuTarget, tx_acks::TxAcks};
use crate::tl::{self, Lane};
use crate::wire::address::TofuLocator;
use crate::wire::tofu_msg::{COUNTED, GRANT_AT, Grant, RingRequest, TicketWord, slot_at};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Interval of queries whether a ticket's turn has come, milliseconds.
const TURN_MS: u64 = 1;
/// Time without a grant after which the ticket queue is queried whether the ring request was dropped, milliseconds.
const ANSWER_MS: u64 = 500;
/// Time without a grant after which the peer fails, if its death is watched for, or a message is logged, milliseconds.
const CONNECT_WARN_MS: u64 = 30_000;

/// Grants belong to no connection.
const OWN: OpTag = OpTag {
    conn: NO_CONN,
    generation: 0,
};

/// Begins connections to the peers that requests wait for.
#[cold]
pub fn start(worker: &Worker, rings: &mut TofuWorker<PeerRef>) {
    let peers = worker.peer_lists.connect_tofu.lock().take();
    for (name, ()) in peers {
        let peer = name.get();
        if peer.status() != UCS_OK {
            continue;
        }
        if rings.mrq_failed() {
            log::error!(
                "no ring at worker {:#x}: the message receive queue has failed",
                peer.uid
            );
            peer.fail(UCS_ERR_IO_ERROR);
        } else {
            open(rings, name);
        }
    }
}

fn open(rings: &mut TofuWorker<PeerRef>, name: PeerRef) {
    let peer = name.get();
    match rings.new_conn(name, clock::coarse_ms()) {
        Ok(number) => take_ticket(rings, number),
        Err(e) => {
            log::error!("no ring at worker {:#x}: {e}", peer.uid);
            peer.fail(UCS_ERR_UNREACHABLE);
        }
    }
}

/// The Tofu section of a peer's address.
pub fn locator(peer: &Peer) -> Option<TofuLocator> {
    match peer.target.as_deref() {
        Some(tl::LaneTarget::Tofu(target)) => Some(target.locator),
        _ => None,
    }
}

/// Takes a ticket, or, for a connection that has one, reads the word of the ticket queue.
fn take_ticket(rings: &mut TofuWorker<PeerRef>, number: u32) {
    let Some(conn) = rings.conn(number) else {
        return;
    };
    let peer = conn.peer.get();
    let Some(there) = locator(peer) else {
        return peer.fail(UCS_ERR_UNREACHABLE);
    };
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
        Err(code) => fail(rings, number, code),
    }
}

fn set_due(rings: &mut TofuWorker<PeerRef>, number: u32, due: u64) {
    if let Some(conn) = rings.conn(number) {
        conn.due = due;
    }
}

/// An operation of a connection has failed: its peer cannot be reached any more.
pub fn fail(rings: &mut TofuWorker<PeerRef>, number: u32, code: i32) {
    if let Some(conn) = rings.conn(number) {
        fail_peer(conn.peer.get(), code);
    }
}

/// A put to the writer of this ring has failed: the peer cannot be reached any more.
pub fn fail_writer(rings: &mut TofuWorker<PeerRef>, number: u32, code: i32) {
    if let Some(incoming) = rings.incoming(number) {
        fail_peer(incoming.peer.get(), code);
    }
}

fn fail_peer(peer: &Peer, code: i32) {
    if peer.status() != UCS_OK {
        return;
    }
    log::error!(
        "worker {:#x} cannot be reached: {} ({code})",
        peer.uid,
        code_name(code)
    );
    peer.fail(status_of(code));
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
pub fn on_ticket(worker: &Worker, rings: &mut TofuWorker<PeerRef>, number: u32, word: u64) {
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
                return take_ticket(rings, number);
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
        send_ring_request(worker, rings, number, ticket);
    } else {
        set_due(rings, number, clock::coarse_ms() + TURN_MS);
    }
}

/// Puts the ring request into the slot of this ticket.
fn send_ring_request(worker: &Worker, rings: &mut TofuWorker<PeerRef>, number: u32, ticket: u32) {
    let own = rings.locator();
    let packet = rings.iface.tuning.packet;
    let Some(conn) = rings.conn(number) else {
        return;
    };
    let peer = conn.peer.get();
    let Some(there) = locator(peer) else { return };
    let mut request = RingRequest {
        magic: RingRequest::magic(),
        from: worker.uid,
        to: peer.uid,
        secret: there.secret,
        back: own.secret,
        vcq: own.vcq,
        ticket_queue: own.ticket_queue,
        ctrl_word: conn.ctrl_word.stadd(),
        proof: conn.proof,
        losses: peer.losses,
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
    let to = RemoteAddr {
        vcq: there.vcq,
        stadd: there.ticket_queue + slot_at(ticket) as u64,
    };
    if send(rings, number, &request.encode(), to) {
        log::debug!("requesting a ring from worker {:#x}", peer.uid);
        if let Some(conn) = rings.conn(number) {
            conn.phase = TofuConnPhase::Requested { ticket };
        }
        set_due(rings, number, clock::coarse_ms() + ANSWER_MS);
    }
}

/// Puts a message to a peer, with a notice there. False: no buffer is free now, or the put has failed.
fn send(rings: &mut TofuWorker<PeerRef>, number: u32, bytes: &[u8], to: RemoteAddr) -> bool {
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
        fail(rings, number, code);
    }
    sent.is_ok()
}

/// Grants a peer a ring, or refuses one.
pub fn admit(worker: &Worker, rings: &mut TofuWorker<PeerRef>, g: &RingRequest) {
    let locator = TofuLocator {
        secret: g.back,
        vcq: g.vcq,
        ticket_queue: g.ticket_queue,
        number: g.number as u16,
        rails: g.rails(),
    };
    let back = tl::LaneTarget::Tofu(TofuTarget { locator });
    let Some(peer) = worker.peer(g.from, None, Some(back)) else {
        return log::diag!(
            "a ring request of worker {:#x} is dropped: it is another process",
            g.from
        );
    };
    let peer: &Peer = &peer;
    let ctrl_word = RemoteAddr {
        vcq: g.vcq,
        stadd: g.ctrl_word,
    };
    let before = rings.all_incoming().find(|(_, incoming)| {
        incoming.peer.is(peer) && incoming.proof == g.proof && !incoming.ended
    });
    let number = before.map(|(number, _)| number);
    if number.is_none() {
        end_former(rings, peer);
    }
    let grant = match number.map_or_else(|| make(rings, peer, g, ctrl_word), Ok) {
        Ok(number) => granted(rings, number),
        Err(e) => {
            log::error!("no ring for worker {:#x}: {e} (UCX_TOFU_RING_SIZE)", g.from);
            // The peer may be known only by its ring request.
            detach::note_idle(worker, peer);
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
        ..ctrl_word
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
fn end_former(rings: &mut TofuWorker<PeerRef>, peer: &Peer) {
    for (_, incoming) in rings.all_incoming() {
        incoming.ended |= incoming.peer.is(peer);
    }
}

fn make(
    rings: &mut TofuWorker<PeerRef>,
    peer: &Peer,
    g: &RingRequest,
    ctrl_word: RemoteAddr,
) -> std::io::Result<u32> {
    let packet = g.packet.min(rings.iface.tuning.packet);
    let NewRing { ring, counted } = rings.make_ring(packet)?;
    peer.note_traffic(peer.worker());
    Ok(rings.insert(RxConn {
        // SAFETY: the peer of a connection.
        peer: unsafe { PeerRef::new(peer) },
        ring,
        assembly: Default::default(),
        ctrl_word,
        proof: g.proof,
        counted,
        ended: false,
        probed: clock::coarse_ms(),
    }))
}

fn granted(rings: &mut TofuWorker<PeerRef>, number: u32) -> Option<Grant> {
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

/// A peer has written to the control words of a connection: a grant, or that the reader has closed.
#[cold]
pub fn on_grant(worker: &Worker, rings: &mut TofuWorker<PeerRef>, number: u32) {
    let (iface, own_packet) = (rings.iface.clone(), rings.iface.tuning.packet);
    let Some(conn) = rings.conn(number) else {
        return;
    };
    let peer = conn.peer.get();
    if conn.phase == TofuConnPhase::Open && conn.ctrl_word.has_left(conn.proof) {
        log::debug!("worker {:#x} has ended its connection", peer.uid);
        return peer.fail(UCS_ERR_CONNECTION_RESET);
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
        log::error!(
            "worker {:#x} grants no ring (status {}; UCX_TOFU_RING_SIZE, UCX_TOFU_SEG_SIZE)",
            peer.uid,
            grant.refusal
        );
        return peer.fail(UCS_ERR_NO_RESOURCE);
    }
    let Some(there) = locator(peer) else { return };
    conn.phase = TofuConnPhase::Open;
    conn.due = u64::MAX;
    let to = RemoteRing {
        vcq: iface.vcq.route(there.vcq),
        ring: grant.ring,
        shape,
        counted: grant.flags & COUNTED != 0,
        rails: there.rails,
    };
    let (flow, ctrl_word): (Arc<TxAcks>, _) = (conn.flow.clone(), conn.ctrl_word.clone());
    let sender = TofuSender::new(iface, flow, ctrl_word, conn.tag, to);
    let mut lane = peer.tx.lock();
    lane.connecting = false;
    if lane.lane.is_none() {
        log::debug!("connected to worker {:#x} by tofu", peer.uid);
        lane.lane = Some(Lane::Tofu(Box::new(sender)));
        peer.note_traffic(worker);
        tx::log_lanes(worker, peer);
    }
}

/// Does what is due at `now`, coarse milliseconds, and releases connections to failed peers.
#[cold]
pub fn tick(worker: &Worker, rings: &mut TofuWorker<PeerRef>, now: u64) {
    let (mut due, mut over) = (Vec::new(), Vec::new());
    for (number, conn) in rings.conns() {
        let peer = conn.peer.get();
        if peer.status() != UCS_OK {
            over.push(number);
            continue;
        }
        if conn.phase == TofuConnPhase::Open {
            tofu_close::probe(worker, conn, peer, now);
            continue;
        }
        // Relaxed: set once; the next tick sees it.
        let guarded = peer.watch_death.load(Ordering::Relaxed);
        let waited = now - conn.since;
        if waited >= CONNECT_WARN_MS && guarded {
            log::diag!("worker {:#x} does not answer: no ring", peer.uid);
            peer.fail(UCS_ERR_ENDPOINT_TIMEOUT);
        } else if waited >= CONNECT_WARN_MS && !std::mem::replace(&mut conn.late, true) {
            // The peer may be computing, and no endpoint watches for its death.
            log::error!(
                "worker {:#x} has not answered for {waited} ms: waiting for it",
                peer.uid
            );
        }
        if now >= conn.due {
            due.push(number);
        }
    }
    for number in due {
        take_ticket(rings, number);
    }
    tofu_close::tick(worker, rings, over, now);
    rings.iface.trim_mrs();
    // Reports failed operations that had no buffer, too.
    rings.iface.poll_tcqs();
    tofu_listen::tick(rings, now);
}
