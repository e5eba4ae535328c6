//! How a connection ends: either side says that its endpoint is closed, or is there no more.

use super::Outcome;
use super::handshake::hear;
use crate::ctypes::*;
use crate::engine::endpoint::Endpoint;
use crate::engine::listener::{Entry, Exchange, State};
use crate::engine::peer::Peer;
use crate::engine::worker::Worker;
use crate::proto::{failure, tx};
use crate::wire::header::{EpImm, Kind};
use crate::wire::session::{BYE, BYE_BEHIND};

/// The other end says that its endpoint is closed, or is not there any more.
pub(super) fn on_farewell(x: &mut Exchange, token: u64) -> Outcome {
    let Some(session) = x.session(token) else {
        return Outcome::Nothing;
    };
    let Some(contact) = session.contact.as_mut() else {
        return Outcome::Nothing;
    };
    let mut word = Vec::new();
    let behind = match hear(contact, &mut word, 1) {
        Ok(false) => return Outcome::Nothing,
        Ok(true) => word[0] == BYE_BEHIND,
        // Killed: if there is another connection to it, what came through that comes first.
        Err(_) => false,
    };
    session.state = State::Ended;
    let ep = session.ep;
    if let Some(contact) = session.contact.take() {
        contact.unwatch(&x.epoll, false);
    }
    Outcome::Gone(ep, behind)
}

/// The user hears of it, unless a message brings the news.
pub(super) fn on_gone(worker: &Worker, ep: *mut Endpoint, behind: bool) {
    // SAFETY: the endpoint lives as long as its session names it.
    let Some(ep) = (unsafe { ep.as_mut() }) else {
        return;
    };
    if !behind && ep.handles_errors() {
        let peer = ep.peer();
        failure::end_endpoint(worker, peer, ep, UCS_ERR_CONNECTION_RESET);
    }
}

/// The user closes an endpoint. `behind`: a message says so, too. Called after it was taken out of its peer's list.
///
/// # Safety
/// The endpoint lives.
pub unsafe fn close(worker: &Worker, ep: &Endpoint, behind: bool, force: bool) {
    if ep.session == 0 {
        return;
    }
    let mut guard = worker.exchange.lock();
    let Some(x) = guard.as_deref_mut() else {
        return;
    };
    let Some(session) = x.session(ep.session) else {
        return;
    };
    session.ep = std::ptr::null_mut();
    let waits = session
        .nobody
        .as_ref()
        .is_some_and(|nobody| nobody.status() == UCS_OK && !nobody.tx.lock().pending.is_empty());
    drop(guard);
    // What waits for the server to be known is sent all the same.
    if force || !waits {
        end(worker, ep.session, behind);
    }
}

/// Ends a session whose endpoint is closed.
pub(super) fn end(worker: &Worker, token: u64, behind: bool) {
    let mut guard = worker.exchange.lock();
    let Some(x) = guard.as_deref_mut() else {
        return;
    };
    let Some(Entry::Session(session)) = x.entries.remove(&token) else {
        return;
    };
    if matches!(session.state, State::Dialing | State::Asked) {
        x.unsettled -= 1;
    }
    if let Some(mut contact) = session.contact {
        contact.unwatch(&x.epoll, session.state == State::Dialing);
        if session.state == State::Open {
            // Who has gone already does not hear it.
            let _ = contact.say(&[if behind { BYE_BEHIND } else { BYE }]);
        }
    }
    if let Some(nobody) = session.nobody {
        x.retire(token, nobody);
    }
}

/// Tells a peer that an endpoint of this side is closed.
pub(super) fn say_closed(peer: &Peer, sn: u32, err_mode: u8) {
    if peer.status() == UCS_OK {
        tx::control(
            peer,
            Kind::EpClosed,
            0,
            EpImm { sn, err_mode }.to_u64(),
            &[],
        );
    }
}
