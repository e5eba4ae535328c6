//! The hall of a worker over the Tofu interconnect, as its owner keeps it: who greets with a good ticket is admitted.
//!
//! Anybody who knows the address can write there. Greetings are good once, and only with the secret of the address;
//! what else is written has no consequence. Who has taken a ticket and dies holds up those 64 behind it, until the
//! owner sees that nothing comes and serves it all the same. Who adds to the word what no ticket is holds up newcomers
//! as long; nobody else notices.

#[cfg(all(test, loom))]
mod loom_tests;

use super::opening;
use crate::engine::rings::Rings;
use crate::engine::worker::Worker;
use crate::sys::log;
use crate::sys::sync::foreign;
use crate::tl::tofu::line::read_before_post;
use crate::tl::tofu::queue::NO_LINK;
use crate::tl::tofu::utofu::code_name;
use crate::tl::tofu::vcq::There;
use crate::wire::tofu::{Greeting, PLACE, SERVED, Turn, place_at};

/// A ticket whose greeting does not come is served all the same when others wait, milliseconds.
const NO_SHOW_MS: u64 = 1000;
/// The same where nobody of those came either who could then: there is nobody to wait for.
const NOBODY_MS: u64 = 100;
/// A word that is wrong for so long is not on its way to be right, milliseconds.
const AMENDS_MS: u64 = 100;

/// Somebody has written into this place of the hall.
#[cold]
pub fn on_greeting(worker: &Worker, rings: &mut Rings, place: u32) {
    let greeting = Greeting::decode(&take(rings, place));
    let known = greeting.filter(|g| g.secret == rings.secret && g.to == worker.uid);
    match known {
        Some(g) if rings.turns.expects(g.ticket, place) => {
            serve(rings, place);
            opening::admit(worker, rings, &g);
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
            excuse(rings, place);
        }
    }
}

/// What is in this place, where nobody else reads it then: it has the secret.
fn take(rings: &Rings, place: u32) -> [u8; PLACE] {
    let mut bytes = [0u8; PLACE];
    // SAFETY: inside of the hall. Whoever writes there may go on doing so: a copy is looked at.
    unsafe {
        let at = rings.iface.hall.ptr().add(place_at(place));
        foreign::writes(at, PLACE);
        at.copy_to_nonoverlapping(bytes.as_mut_ptr(), PLACE);
        at.write_bytes(0, PLACE);
    }
    bytes
}

/// If the greeting was written over of who has the ticket for this place, it sees so, and takes another one.
fn excuse(rings: &mut Rings, place: u32) {
    let ticket = rings.turns.ticket(place);
    let turn = Turn::read(rings.iface.turn());
    let is_taken = (turn.tickets.wrapping_sub(ticket) as i32) > 0;
    if is_taken {
        serve(rings, place);
    }
}

/// A place is free again: who waits for it sees that.
fn serve(rings: &mut Rings, place: u32) {
    let more = rings.turns.serve(place);
    // Whoever has the next ticket for it may write there.
    read_before_post();
    tell(rings, SERVED.wrapping_mul(more.into()));
}

/// Adds to the word of the hall, as others do.
fn tell(rings: &mut Rings, what: u64) {
    if what == 0 {
        return;
    }
    let to = There {
        vcq: rings.iface.vcq.id,
        stadd: rings.iface.hall.stadd,
    };
    let told = rings.iface.queue.lock().add(NO_LINK, what, to, None);
    if let Err(code) = told {
        log::error!("a hall cannot be kept: {} ({code})", code_name(code));
    }
}

/// Sees to those who do not come, and to the word; `now`: coarse milliseconds.
pub fn tick(rings: &mut Rings, now: u64) {
    let turn = Turn::read(rings.iface.turn());
    let served = rings.turns.served();
    let amends = turn.amends(served);
    // Tickets are taken all the time.
    let seen = (turn.served, served);
    if amends == 0 || seen != rings.spoilt {
        (rings.spoilt, rings.spoilt_since) = (seen, now);
    } else if now - rings.spoilt_since >= AMENDS_MS {
        log::diag!("a stranger has written to the word of the hall: it is amended");
        tell(rings, amends);
        rings.spoilt_since = now;
    }
    serve_no_shows(rings, turn, now);
}

/// Serves tickets whose greetings do not come, when others wait behind them for a place.
fn serve_no_shows(rings: &mut Rings, turn: Turn, now: u64) {
    let awaited = rings.turns.awaited();
    let crowd = turn.crowd().filter(|_| awaited == rings.blocked_by);
    let Some(crowd) = crowd else {
        (rings.blocked_by, rings.blocked_since) = (awaited, now);
        rings.nobody_came = false;
        return;
    };
    let patience = if rings.nobody_came {
        NOBODY_MS
    } else {
        NO_SHOW_MS
    };
    if now - rings.blocked_since < patience {
        return;
    }
    log::diag!("tickets are served whose owners have not come");
    rings.blocked_since = now;
    if !std::mem::replace(&mut rings.nobody_came, true) {
        for place in rings.turns.missing() {
            serve(rings, place);
        }
    } else if turn.served == rings.turns.served() {
        // Nobody stands behind so many numbers, or they all take others, in turn.
        rings.turns.skip(crowd);
        tell(rings, SERVED.wrapping_mul(crowd.into()));
    }
}
