//! Sockaddr connection management: a connection to a listener, a hello, a reply, and disconnect bytes.
//!
//! The connection carries no messages: once both sides have each other's worker addresses, messages go by the
//! transports that these name, shared memory on one host. The connection stays open as long as the endpoints, so that
//! the close or death of a peer that has sent nothing is noticed. Until the reply arrives a client's endpoint has a
//! stub peer, where requests wait.

mod client;
mod disconnect;
mod half_open;
mod hello;
mod listener;
mod server;
mod stub_peer;

use crate::ctypes::*;
use crate::engine::cm::{CmEntry, CmState, SessionState};
use crate::engine::endpoint::Endpoint;
use crate::engine::peer::Peer;
use crate::engine::request;
use crate::engine::worker::Worker;
use crate::sys::lock::MtGuard;
use crate::sys::log;
use crate::tl::cm::deferred_close;
use crate::tl::cm::library::Rdmacm;
use crate::tl::cm_conn::CmTransport;
use crate::tl::tcp::socket::SocketTuning;
use crate::wire::address::WorkerAddress;
use crate::wire::cm_msg::NUMBER_BITS;
use crate::wire::header::SN_BITS;
use std::net::SocketAddr;

pub use client::{client_endpoint, connect};
pub use disconnect::{answer, close, close_idle, end_all};
pub use listener::{listen, unlisten};
pub use server::{accept, reject, send_cm_proof, server_endpoint};
pub use stub_peer::on_proof;

/// Flags of the serial numbers of clients' and servers' endpoints, which no counted number has.
const CLIENT: u32 = 0b10 << NUMBER_BITS;
const SERVER: u32 = 0b11 << NUMBER_BITS;
const _: () = assert!(NUMBER_BITS + 2 == SN_BITS);

/// The worker's CM state, made on the first call.
fn exchange(worker: &Worker) -> Result<MtGuard<'_, Option<Box<CmState>>>, ucs_status_t> {
    let mut guard = worker.cm.lock();
    if guard.is_none() {
        let made = CmState::new(worker.ctx.policy.keepalive_ms).and_then(|x| {
            if let Some(wake) = &worker.wakeup {
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

fn tuning(worker: &Worker) -> SocketTuning {
    let policy = &worker.ctx.policy;
    policy.connecting.tuning(policy.keepalive_ms)
}

/// CM transports of a worker, preferred first.
fn transports(worker: &Worker) -> Vec<CmTransport> {
    let by_rdma = !worker.ctx.ib_ports.is_empty();
    let transports = worker.ctx.policy.sockaddr.transports.iter().copied();
    // Without a port the library is not loaded.
    transports
        .filter(|&transport| transport != CmTransport::Rdma || (by_rdma && Rdmacm::get().is_some()))
        .collect()
}

/// What is done after an event, when the CM's lock is released.
enum CmOutcome {
    Nothing,
    /// A client's connection has failed.
    Lost(*const Peer, ucs_status_t),
    /// A client was accepted.
    Accepted(Box<WorkerAddress>),
    /// The peer's endpoint is closed: its disconnect byte, `None` if it was killed.
    Gone(*mut Endpoint, Option<u8>),
    /// A flushing close is complete.
    Closed(disconnect::EndedClose),
}

/// Polls all CM connections. Returns the number of events.
pub fn progress(worker: &Worker) -> u32 {
    let (ready, late): (Vec<u64>, Vec<u64>) = match worker.cm.lock().as_deref_mut() {
        Some(x) => {
            x.urgent = false;
            x.timer_rang();
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
        CmOutcome::Closed((req, status)) => unsafe { request::complete(req, status) },
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
    let lost = worker.failed_peers.lock().clone();
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
    let session = guard.as_deref_mut()?.session(ep.session)?;
    Some(CmAddresses {
        local: session.local?,
        remote: session.remote,
    })
}
