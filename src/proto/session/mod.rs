//! How clients and servers find each other: a connection to a listener, a question, an answer, a farewell.
//!
//! The connection carries no messages: once both sides know each other's workers these take the ways that worker
//! addresses name, shared memory on one host. It stays as long as the endpoints do, so that the end of an endpoint
//! that was never used is noticed, too. Until the answer comes a client's endpoint leads to a placeholder, where
//! requests wait.

mod client;
mod farewell;
mod guest;
mod handshake;
mod listener;
mod placeholder;
mod server;

use crate::ctypes::*;
use crate::engine::endpoint::Endpoint;
use crate::engine::listener::{Entry, Exchange, State};
use crate::engine::peer::Peer;
use crate::engine::request;
use crate::engine::worker::Worker;
use crate::sys::lock::MtGuard;
use crate::sys::log;
use crate::tl::cm::library::Rdmacm;
use crate::tl::cm::linger;
use crate::tl::contact::Way;
use crate::tl::tcp::socket::Tuning;
use crate::wire::address::WorkerAddress;
use crate::wire::header::SN_BITS;
use crate::wire::session::NUMBER_BITS;
use std::net::SocketAddr;

pub use client::{client_endpoint, dial};
pub use farewell::{answer, close, end_all, leave};
pub use listener::{listen, unlisten};
pub use placeholder::on_proof;
pub use server::{admit, prove, server_endpoint, turn_away};

/// Serial numbers of the endpoints of clients and of servers, beyond those that count endpoints.
const CLIENT: u32 = 0b10 << NUMBER_BITS;
const SERVER: u32 = 0b11 << NUMBER_BITS;
const _: () = assert!(NUMBER_BITS + 2 == SN_BITS);

/// The worker's exchange, made if it is the first time.
fn exchange(worker: &Worker) -> Result<MtGuard<'_, Option<Box<Exchange>>>, ucs_status_t> {
    let mut guard = worker.exchange.lock();
    if guard.is_none() {
        let made = Exchange::new(worker.ctx.policy.keepalive_ms).and_then(|x| {
            if let Some(wake) = &worker.wake {
                wake.add(x.epoll.fd())?;
            }
            Ok(x)
        });
        *guard = Some(Box::new(made.map_err(|e| {
            log::error!("cannot watch connections: {e}");
            UCS_ERR_IO_ERROR
        })?));
    }
    Ok(guard)
}

fn tuning(worker: &Worker) -> Tuning {
    let policy = &worker.ctx.policy;
    policy.connecting.tuning(policy.keepalive_ms)
}

/// How clients and listeners of a worker meet, best first.
fn ways(worker: &Worker) -> Vec<Way> {
    let by_rdma = !worker.ctx.ports.is_empty();
    let ways = worker.ctx.policy.sockaddr.ways.iter().copied();
    // Who has no device does not load the library.
    ways.filter(|&way| way != Way::Rdma || (by_rdma && Rdmacm::get().is_some()))
        .collect()
}

/// What an event leads to outside of the exchange's lock.
enum Outcome {
    Nothing,
    /// A client's attempt has failed.
    Lost(*const Peer, ucs_status_t),
    /// A client has an answer.
    Accepted(Box<WorkerAddress>),
    /// The other end's endpoint is closed: what it has said, if it was not killed.
    Gone(*mut Endpoint, Option<u8>),
    /// A flushing close has ended.
    Closed(farewell::Ended),
}

/// Looks at all connections. Returns the number of events.
pub fn progress(worker: &Worker) -> u32 {
    let (ready, late): (Vec<u64>, Vec<u64>) = match worker.exchange.lock().as_deref_mut() {
        Some(x) => {
            x.urgent = false;
            x.timer_rang();
            guest::expire(x);
            x.probe();
            let ready = match x.epoll.poll() {
                Some(events) => events.map(|event| event.token).collect(),
                // The program has closed the set: whether the others can still be used is seen when they are.
                None => x.entries.keys().copied().collect(),
            };
            (ready, client::late(x))
        }
        None => return 0,
    };
    linger::tidy();
    for token in late {
        client::on_late(worker, token);
    }
    for &token in &ready {
        on_event(worker, token);
    }
    ready.len() as u32
}

fn on_event(worker: &Worker, token: u64) {
    let mut guard = worker.exchange.lock();
    let Some(x) = guard.as_deref_mut() else {
        return;
    };
    let outcome = match x.entries.get(&token) {
        Some(Entry::Listener { .. }) => {
            listener::let_in(worker, x, token);
            Outcome::Nothing
        }
        Some(Entry::Guest(_)) => {
            guest::on_guest(worker, x, token);
            Outcome::Nothing
        }
        Some(Entry::Session(session)) => match session.state {
            State::Dialing => client::on_way(worker, x, token),
            State::Asked => client::on_answer(worker, x, token),
            State::Open | State::Closing => farewell::on_farewell(x, token),
            State::Left | State::Ended => Outcome::Nothing,
        },
        None => Outcome::Nothing,
    };
    drop(guard);
    match outcome {
        Outcome::Nothing => {}
        Outcome::Lost(nobody, status) => client::lose(worker, token, nobody, status),
        Outcome::Accepted(address) => client::on_accepted(worker, token, &address),
        Outcome::Gone(ep, said) => farewell::on_gone(worker, ep, said),
        // SAFETY: the close is out of its session.
        Outcome::Closed((req, status)) => unsafe { request::complete(req, status) },
    }
}

/// Whether a number is that of a client's or a server's endpoint that the user has closed.
pub fn is_closed(peer: &Peer, sn: u32) -> bool {
    const NUMBERED: u32 = CLIENT & SERVER;
    sn & NUMBERED != 0 && peer.ep_by_sn(sn).is_none()
}

/// The memory of an endpoint is about to be another's: nobody reads where it leads.
pub fn endpoint_freed(worker: &Worker, token: u64) {
    if token == 0 {
        return;
    }
    let lost = worker.lost.lock().clone();
    if let Some(x) = worker.exchange.lock().as_deref_mut() {
        x.endpoint_freed(token, &lost);
    }
}

/// The two ends of an endpoint's connection.
pub fn addresses(worker: &Worker, ep: &Endpoint) -> Option<(Option<SocketAddr>, SocketAddr)> {
    let mut guard = worker.exchange.lock();
    let session = guard.as_deref_mut()?.session(ep.session)?;
    Some((session.local, session.remote))
}
