//! Sockaddr connection management: a connection to a listener, a hello, a reply, and disconnect bytes.
//!
//! The connection carries no messages: once both sides have each other's worker addresses, messages go by the
//! transports that these name, shared memory on one host. The connection stays open as long as the endpoints, so that
//! the close or death of a peer that has sent nothing is noticed. Until the reply arrives a client's endpoint has a
//! stub peer, where requests wait.

mod client;
pub(super) mod disconnect;
mod exchange;
mod half_open;
mod hello;
mod listener;
mod outcome;
pub(super) mod server;
mod stub_peer;

use crate::engine::cm::{CmEntry, SessionState};
use crate::engine::completion;
use crate::engine::endpoint::Endpoint;
use crate::engine::peer::Peer;
use crate::engine::worker::Worker;
use crate::tl::cm::deferred_close;
use exchange::{CLIENT, SERVER};
use outcome::CmOutcome;
use std::net::SocketAddr;

pub use client::{client_endpoint, connect};
pub use disconnect::{answer, close, close_idle, end_all};
pub use listener::{listen, unlisten};
pub use server::{accept, reject, send_cm_proof, server_endpoint};
pub use stub_peer::on_proof;

/// Polls all CM connections. Returns the number of events.
pub fn progress(worker: &Worker) -> u32 {
    let (ready, late): (Vec<u64>, Vec<u64>) = match worker.cm.lock().as_deref_mut() {
        Some(x) => {
            x.begin_progress();
            half_open::expire(x);
            x.probe();
            let ready = match x.epoll.poll() {
                Some(events) => events.map(|event| event.token).collect(),
                // The program has closed the epoll descriptor: errors of the others are found by using them.
                None => x.entries.keys().copied().collect(),
            };
            (ready, client::late(x))
        }
        None => return 0,
    };
    deferred_close::drop_finished();
    for token in late {
        client::on_late(worker, token);
    }
    for &token in &ready {
        on_event(worker, token);
    }
    ready.len() as u32
}

fn on_event(worker: &Worker, token: u64) {
    let mut guard = worker.cm.lock();
    let Some(x) = guard.as_deref_mut() else {
        return;
    };
    let outcome = match x.entries.get(&token) {
        Some(CmEntry::Listener { .. }) => {
            listener::accept(worker, x, token);
            CmOutcome::Nothing
        }
        Some(CmEntry::HalfOpen(_)) => {
            half_open::on_readable(worker, x, token);
            CmOutcome::Nothing
        }
        Some(CmEntry::CmSession(session)) => match session.state {
            SessionState::Connecting => client::on_connected(worker, x, token),
            SessionState::Asked => client::on_answer(worker, x, token),
            SessionState::Open | SessionState::FlushClose => disconnect::on_disconnect(x, token),
            SessionState::Left | SessionState::Ended => CmOutcome::Nothing,
        },
        None => CmOutcome::Nothing,
    };
    drop(guard);
    match outcome {
        CmOutcome::Nothing => {}
        CmOutcome::Lost(stub, status) => client::fail_attempt(worker, token, stub, status),
        CmOutcome::Accepted(address) => client::on_accepted(worker, token, &address),
        CmOutcome::Gone(ep, disconnect_byte) => disconnect::on_gone(worker, ep, disconnect_byte),
        // SAFETY: the request was removed from its session: this thread owns it.
        CmOutcome::Closed((req, status)) => unsafe { completion::complete(req, status) },
    }
}

/// Whether a serial number is that of a client's or server's endpoint that the user has closed.
pub fn is_closed(peer: &Peer, sn: u32) -> bool {
    const NUMBERED: u32 = CLIENT & SERVER;
    sn & NUMBERED != 0 && peer.ep_by_sn(sn).is_none()
}

/// Called before the memory of an endpoint is reused: marks its session, and frees stub peers to which nothing refers.
pub fn endpoint_freed(worker: &Worker, token: u64) {
    if token == 0 {
        return;
    }
    let lost = worker.peer_lists.failed.lock().iter().collect();
    if let Some(x) = worker.cm.lock().as_deref_mut() {
        x.endpoint_freed(token, &lost);
    }
}

/// The addresses of a CM connection.
pub struct CmAddresses {
    pub local: SocketAddr,
    pub remote: SocketAddr,
}

/// The addresses of an endpoint's CM connection; `None` until it is connected.
pub fn addresses(worker: &Worker, ep: &Endpoint) -> Option<CmAddresses> {
    let mut guard = worker.cm.lock();
    let session = guard.as_deref_mut()?.session(ep.session())?;
    Some(CmAddresses {
        local: session.local?,
        remote: session.remote,
    })
}
