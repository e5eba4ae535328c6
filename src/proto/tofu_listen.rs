//! The hall of a worker over the Tofu interconnect, as its owner keeps it: who greets with a good ticket is admitted.
//!
//! Anybody who knows the address can write there. Greetings are good once, and only with the secret of the address;
//! what else is written has no consequence. Who has taken a ticket and dies holds up those 64 behind it, until the
//! owner sees that nothing comes and serves it all the same. Who adds to the word what no ticket is holds up newcomers
//! as long; nobody else notices.

#[cfg(all(test, loom))]
mod loom_tests;

use super::tofu_wireup;
use crate::engine::tofu_worker::TofuWorker;
use crate::engine::worker::Worker;
use crate::sys::log;
use crate::sys::sync::dma_mem;
use crate::tl::tofu::op_queue::NO_LINK;
use crate::tl::tofu::utofu::code_name;
use crate::tl::tofu::vcq::RemoteAddr;
use crate::tl::tofu::vcq_ops::read_before_post;
use crate::wire::tofu_msg::{Greeting, PLACE, SERVED, TicketWord, place_at};

/// A ticket whose greeting does not come is served all the same when others wait, milliseconds.
const NO_SHOW_MS: u64 = 1000;
/// The same where nobody of those came either who could then: there is nobody to wait for.
const NOBODY_MS: u64 = 100;
/// A word that is wrong for so long is not on its way to be right, milliseconds.
const AMENDS_MS: u64 = 100;

/// Somebody has written into this place of the hall.
#[cold]
pub fn on_greeting(worker: &Worker, rings: &mut TofuWorker, place: u32) {
    let greeting = Greeting::decode(&take(rings, place));
    let known = greeting.filter(|g| g.secret == rings.secret && g.to == worker.uid);
    match known {
        Some(g) if rings.turns.expects(g.ticket, place) => {
            serve(rings, place);
            tofu_wireup::admit(worker, rings, &g);
        }
        _ => {
            log::diag!(
                "what somebody has written into the hall is dropped: {}",
                match (known, greeting) {
                    (Some(_), _) => "its ticket is not good, or not any more",
                    (_, Some(_)) => "a greeting that does not know the secret of the address",
                    _ => "it is no greeting",
                }
            );
            reissue_ticket(rings, place);
        }
    }
}

/// What is in this place, where nobody else reads it then: it has the secret.
fn take(rings: &TofuWorker, place: u32) -> [u8; PLACE] {
    let mut bytes = [0u8; PLACE];
    // SAFETY: inside of the hall. Whoever writes there may go on doing so: a copy is looked at.
    unsafe {
        let at = rings.iface.hall.ptr().add(place_at(place));
        dma_mem::writes(at, PLACE);
        at.copy_to_nonoverlapping(bytes.as_mut_ptr(), PLACE);
        at.write_bytes(0, PLACE);
    }
    bytes
}

/// If the greeting was written over of who has the ticket for this place, it sees so, and takes another one.
fn reissue_ticket(rings: &mut TofuWorker, place: u32) {
    let ticket = rings.turns.ticket(place);
    let turn = TicketWord::read(rings.iface.turn());
    let is_taken = (turn.tickets.wrapping_sub(ticket) as i32) > 0;
    if is_taken {
        serve(rings, place);
    }
}

/// A place is free again: who waits for it sees that.
fn serve(rings: &mut TofuWorker, place: u32) {
    let more = rings.turns.serve(place);
    // Whoever has the next ticket for it may write there.
    read_before_post();
    signal_ticket(rings, SERVED.wrapping_mul(more.into()));
}

/// Adds to the word of the hall, as others do.
fn signal_ticket(rings: &mut TofuWorker, what: u64) {
    if what == 0 {
        return;
    }
    let to = RemoteAddr {
        vcq: rings.iface.vcq.id,
        stadd: rings.iface.hall.stadd,
    };
    let told = rings.iface.queue.lock().add(NO_LINK, what, to, None);
    if let Err(code) = told {
        log::error!("a hall cannot be kept: {} ({code})", code_name(code));
    }
}

/// Sees to those who do not come, and to the word; `now`: coarse milliseconds.
pub fn tick(rings: &mut TofuWorker, now: u64) {
    let turn = TicketWord::read(rings.iface.turn());
    let served = rings.turns.served();
    let amends = turn.repair_word(served);
    // Tickets are taken all the time.
    let seen = (turn.served, served);
    if amends == 0 || seen != rings.repaired_word {
        (rings.repaired_word, rings.repaired_since) = (seen, now);
    } else if now - rings.repaired_since >= AMENDS_MS {
        log::diag!("a stranger has written to the word of the hall: it is amended");
        signal_ticket(rings, amends);
        rings.repaired_since = now;
    }
    expire_tickets(rings, turn, now);
}

/// Serves tickets whose greetings do not come, when others wait behind them for a place.
fn expire_tickets(rings: &mut TofuWorker, turn: TicketWord, now: u64) {
    let awaited = rings.turns.outstanding();
    let crowd = turn.max_waiting().filter(|_| awaited == rings.blocked_by);
    let Some(crowd) = crowd else {
        (rings.blocked_by, rings.blocked_since) = (awaited, now);
        rings.unused_tickets = false;
        return;
    };
    let patience = if rings.unused_tickets {
        NOBODY_MS
    } else {
        NO_SHOW_MS
    };
    if now - rings.blocked_since < patience {
        return;
    }
    log::diag!("tickets are served whose owners have not come");
    rings.blocked_since = now;
    if !std::mem::replace(&mut rings.unused_tickets, true) {
        for place in rings.turns.missing() {
            serve(rings, place);
        }
    } else if turn.served == rings.turns.served() {
        // Nobody stands behind so many numbers, or they all take others, in turn.
        rings.turns.skip(crowd);
        signal_ticket(rings, SERVED.wrapping_mul(crowd.into()));
    }
}
