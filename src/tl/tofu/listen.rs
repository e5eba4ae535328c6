//! Wireup over the Tofu interconnect, listening side: a worker serves its ticket queue, and grants rings to peers with
//! a valid ticket and ring request.
//!
//! Each process that has the address can write to the ticket queue. Ring requests are valid once, and only with the
//! secret of the address; everything else that is written is dropped. A peer that takes a ticket and dies blocks the
//! tickets from the 64th behind it on, until the owner serves its slot after a timeout. A process that adds other
//! values to the word delays new peers as long; nothing else is affected.

#[cfg(all(test, loom))]
mod loom_tests;

use super::accept;
use super::op_queue::NO_CONN;
use super::utofu::code_name;
use super::vcq::RemoteAddr;
use super::vcq_ops::read_before_post;
use super::worker::{ServedCounts, TofuWorker};
use crate::sys::log;
use crate::sys::sync::dma_mem;
use crate::tl::sink::Sink;
use crate::wire::tofu_msg::{RingRequest, SERVED, TICKET_SLOT_BYTES, TicketWord, slot_at};

/// When others wait, a ticket without a ring request is served after this time, milliseconds.
const TICKET_TIMEOUT_MS: u64 = 1000;
/// The timeout if the tickets released by the last one also went unused, milliseconds.
const UNUSED_TIMEOUT_MS: u64 = 100;
/// A word that is wrong for this long is repaired, milliseconds: no addition that corrects it is in flight.
const REPAIR_MS: u64 = 100;

/// A peer has written to this slot of the ticket queue.
#[cold]
pub fn on_ring_request<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S, slot: u32) {
    let request = RingRequest::decode(&take(rings, slot));
    let known = request.filter(|g| g.secret == rings.secret && g.to == rings.uid);
    match known {
        Some(g) if rings.ticket_tracker.expects(g.ticket, slot) => {
            serve(rings, slot);
            accept::admit(rings, sink, &g);
        }
        _ => {
            log::diag!(
                "data in the ticket queue are dropped: {}",
                match (known, request) {
                    (Some(_), _) => "its ticket is not valid, or not any more",
                    (_, Some(_)) => "a ring request without the secret of the address",
                    _ => "no ring request",
                }
            );
            reissue_ticket(rings, slot);
        }
    }
}

/// Takes the contents of a slot, and clears it: they include the secret.
fn take<P: Copy + Eq>(rings: &TofuWorker<P>, slot: u32) -> [u8; TICKET_SLOT_BYTES] {
    let mut bytes = [0u8; TICKET_SLOT_BYTES];
    // SAFETY: the slot is within the ticket queue. Peers may write to it meanwhile: the copy is what is checked.
    unsafe {
        let at = rings.iface.ticket_queue.ptr().add(slot_at(slot));
        dma_mem::writes(at, TICKET_SLOT_BYTES);
        at.copy_to_nonoverlapping(bytes.as_mut_ptr(), TICKET_SLOT_BYTES);
        at.write_bytes(0, TICKET_SLOT_BYTES);
    }
    bytes
}

/// Serves a slot with an invalid request, if its ticket is taken: the request of that ticket may have been overwritten,
/// and its peer takes another ticket when it sees the slot served.
fn reissue_ticket<P: Copy + Eq>(rings: &mut TofuWorker<P>, slot: u32) {
    let ticket = rings.ticket_tracker.ticket(slot);
    let ticket_word = TicketWord::read(rings.iface.ticket_word());
    let is_taken = (ticket_word.tickets.wrapping_sub(ticket) as i32) > 0;
    if is_taken {
        serve(rings, slot);
    }
}

/// Frees a slot: the peer with the slot's next ticket sees it in the word.
fn serve<P: Copy + Eq>(rings: &mut TofuWorker<P>, slot: u32) {
    let more = rings.ticket_tracker.serve(slot);
    // The peer with the slot's next ticket may overwrite it from now on.
    read_before_post();
    signal_ticket(rings, SERVED.wrapping_mul(more.into()));
}

/// Adds to the word of the ticket queue, by the TNI as peers do.
fn signal_ticket<P: Copy + Eq>(rings: &mut TofuWorker<P>, what: u64) {
    if what == 0 {
        return;
    }
    let to = RemoteAddr {
        vcq: rings.iface.vcq.id,
        stadd: rings.iface.ticket_queue.stadd,
    };
    let posted = rings.iface.queue.lock().add(NO_CONN, what, to, None);
    if let Err(code) = posted {
        log::error!(
            "the ticket queue cannot be updated: {} ({code})",
            code_name(code)
        );
    }
}

/// Serves expired tickets, and repairs the word; `now`: coarse milliseconds.
pub fn tick<P: Copy + Eq>(rings: &mut TofuWorker<P>, now: u64) {
    let ticket_word = TicketWord::read(rings.iface.ticket_word());
    let served = rings.ticket_tracker.served();
    let correction = ticket_word.repair_word(served);
    // The number of tickets is not compared: it changes all the time.
    let seen = ServedCounts {
        by_word: ticket_word.served,
        by_tracker: served,
    };
    if correction == 0 || seen != rings.repaired_word {
        (rings.repaired_word, rings.repaired_since) = (seen, now);
    } else if now - rings.repaired_since >= REPAIR_MS {
        log::diag!("the ticket word was overwritten by a foreign write: it is repaired");
        signal_ticket(rings, correction);
        rings.repaired_since = now;
    }
    expire_tickets(rings, ticket_word, now);
}

/// Serves tickets without ring requests, when others wait for their slots.
fn expire_tickets<P: Copy + Eq>(rings: &mut TofuWorker<P>, ticket_word: TicketWord, now: u64) {
    let awaited = rings.ticket_tracker.outstanding();
    let waiting = ticket_word
        .max_waiting()
        .filter(|_| awaited == rings.blocked_by);
    let Some(waiting) = waiting else {
        (rings.blocked_by, rings.blocked_since) = (awaited, now);
        rings.unused_tickets = false;
        return;
    };
    let timeout = if rings.unused_tickets {
        UNUSED_TIMEOUT_MS
    } else {
        TICKET_TIMEOUT_MS
    };
    if now - rings.blocked_since < timeout {
        return;
    }
    log::diag!("tickets without a ring request are served");
    rings.blocked_since = now;
    if !std::mem::replace(&mut rings.unused_tickets, true) {
        for slot in rings.ticket_tracker.missing() {
            serve(rings, slot);
        }
    } else if ticket_word.served == rings.ticket_tracker.served() {
        // No peer holds these tickets, or those that do take others.
        rings.ticket_tracker.skip(waiting);
        signal_ticket(rings, SERVED.wrapping_mul(waiting.into()));
    }
}
