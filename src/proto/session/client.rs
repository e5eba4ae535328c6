//! The client's side: an endpoint that dials a server, asks, and has its answer.

use super::handshake::{met_at, read_reply, say, told};
use super::{CLIENT, Outcome, SERVER, exchange, farewell, placeholder, tuning};
use crate::ctypes::*;
use crate::engine::endpoint::Endpoint;
use crate::engine::listener::{Entry, Exchange, Session, State};
use crate::engine::peer::Peer;
use crate::engine::worker::Worker;
use crate::proto::{failure, wireup};
use crate::sys::{log, machine};
use crate::tl::tcp::socket;
use crate::wire::address::WorkerAddress;
use crate::wire::session::{Hello, MAGIC};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// An endpoint that leads nowhere yet. [`dial`] takes it to a server.
///
/// # Errors
/// When the system is out of descriptors.
pub fn client_endpoint(worker: &Worker) -> Result<*mut Endpoint, ucs_status_t> {
    let mut guard = exchange(worker)?;
    let x = guard.as_deref_mut().ok_or(UCS_ERR_IO_ERROR)?;
    let (token, number) = (x.token(), x.number());
    #[expect(
        clippy::arc_with_non_send_sync,
        reason = "as the worker whose it is: its locks and atomics are what threads share it by"
    )]
    let nobody = Arc::new(Peer::nobody(worker));
    let ep = wireup::numbered_endpoint(worker, &nobody, number | CLIENT, number | SERVER);
    // SAFETY: a new endpoint.
    unsafe { (*ep).session = token };
    let session = Session {
        ep,
        state: State::Dialing,
        socket: None,
        local: None,
        remote: SocketAddr::from(([0; 4], 0)),
        freed: false,
        number,
        secret: machine::random_u64(),
        client_id: None,
        buffer: Vec::new(),
        nobody: Some(nobody),
    };
    x.entries.insert(token, Entry::Session(Box::new(session)));
    x.unsettled += 1;
    Ok(ep)
}

/// Begins to connect a client's endpoint. If it fails, now or later, the endpoint does.
///
/// # Safety
/// The endpoint came from [`client_endpoint`] and is not dialled yet.
pub unsafe fn dial(
    worker: &Worker,
    ep: *mut Endpoint,
    to: SocketAddr,
    from: Option<SocketAddr>,
    client_id: Option<u64>,
) {
    // SAFETY: the caller's endpoint.
    let token = unsafe { (*ep).session };
    let mut guard = worker.exchange.lock();
    let Some(x) = guard.as_deref_mut() else {
        return;
    };
    let made = socket::connect_to(to, from, &tuning(worker)).and_then(|socket| {
        x.epoll.add(socket.as_raw_fd(), token, true)?;
        Ok(socket)
    });
    let Some(session) = x.session(token) else {
        return;
    };
    (session.remote, session.client_id) = (to, client_id);
    match made {
        Ok(socket) => {
            session.local = socket.local_addr().ok().and_then(|a| a.as_socket());
            session.socket = Some(socket);
        }
        Err(e) => {
            log::debug!("cannot connect to {to}: {e}");
            let nobody = end_client(x, token);
            drop(guard);
            placeholder::lose(nobody, connect_status(&e));
        }
    }
    hurry(worker);
}

/// Progress is to look at once.
fn hurry(worker: &Worker) {
    worker.duties.call_network();
}

/// What a client's endpoint fails with if its connection cannot be made.
fn connect_status(e: &io::Error) -> ucs_status_t {
    match e.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof => {
            UCS_ERR_NOT_CONNECTED
        }
        _ => UCS_ERR_UNREACHABLE,
    }
}

/// A client's attempt is over. Gives its placeholder.
fn end_client(x: &mut Exchange, token: u64) -> *const Peer {
    let session = match x.entries.get_mut(&token) {
        Some(Entry::Session(session)) => session,
        _ => return std::ptr::null(),
    };
    let dialing = session.state == State::Dialing;
    if let Some(socket) = session.socket.take() {
        x.epoll.remove(socket.as_raw_fd(), dialing);
    }
    session.state = State::Ended;
    x.unsettled -= 1;
    session.nobody.as_deref().map_or(std::ptr::null(), |p| p)
}

/// The connection of a client is there, or cannot be.
pub(super) fn on_connected(worker: &Worker, x: &mut Exchange, token: u64) -> Outcome {
    let Some(session) = x.session(token) else {
        return Outcome::Nothing;
    };
    let Some(socket) = session.socket.as_ref() else {
        return Outcome::Nothing;
    };
    // SAFETY: the endpoint lives as long as the session names it.
    let err_mode = unsafe { session.ep.as_ref() }.map_or(0, |ep| ep.err_mode);
    let fd = socket.as_raw_fd();
    let asked = socket::connected(socket).and_then(|()| {
        let address = told(worker, socket);
        let hello = Hello {
            magic: MAGIC,
            number: session.number,
            address_len: address.len() as u16,
            err_mode,
            has_id: u8::from(session.client_id.is_some()),
            client_id: session.client_id.unwrap_or(0),
            secret: session.secret,
        };
        say(socket, &[&hello.encode()[..], &address].concat())
    });
    match asked {
        Ok(()) => {
            session.local = socket.local_addr().ok().and_then(|a| a.as_socket());
            session.state = State::Asked;
            x.epoll.watch_room(fd, token, false);
            Outcome::Nothing
        }
        Err(e) if e.kind() == ErrorKind::NotConnected => Outcome::Nothing,
        Err(e) => {
            log::debug!("cannot connect to {}: {e}", session.remote);
            Outcome::Lost(end_client(x, token), connect_status(&e))
        }
    }
}

/// The server's answer, or a part of it.
pub(super) fn on_answer(worker: &Worker, x: &mut Exchange, token: u64) -> Outcome {
    let Some(session) = x.session(token) else {
        return Outcome::Nothing;
    };
    let Some(socket) = session.socket.as_ref() else {
        return Outcome::Nothing;
    };
    match read_reply(socket, &mut session.buffer) {
        Ok(None) => Outcome::Nothing,
        Ok(Some((reply, None))) => {
            let status = ucs_status_t::from_raw(reply.status);
            Outcome::Lost(end_client(x, token), status)
        }
        Ok(Some((_, Some(address)))) => {
            session.buffer = Vec::new();
            session.state = State::Open;
            let address = met_at(worker, address, session.remote);
            x.unsettled -= 1;
            Outcome::Accepted(Box::new(address))
        }
        Err(e) => {
            log::diag!("no answer from {}: {e}", session.remote);
            Outcome::Lost(end_client(x, token), connect_status(&e))
        }
    }
}

/// The server is known: the endpoint leads there from now on, and what waited sets out.
pub(super) fn on_accepted(worker: &Worker, token: u64, address: &WorkerAddress) {
    let found = wireup::peer_of(worker, address);
    let mut guard = worker.exchange.lock();
    let Some(x) = guard.as_deref_mut() else {
        return;
    };
    let Some(session) = x.session(token) else {
        return;
    };
    let (ep, number) = (session.ep, session.number);
    let peer = match found {
        // SAFETY: peers live as long as the worker.
        Ok(peer) => unsafe { &*peer },
        Err(status) => {
            let nobody = session
                .nobody
                .as_deref()
                .map_or(std::ptr::null(), |p| &raw const *p);
            drop(guard);
            return placeholder::lose(nobody, status);
        }
    };
    let nobody = session.nobody.take();
    drop(guard);
    // None: a message was faster than the answer.
    if let Some(nobody) = nobody {
        placeholder::settle(worker, token, ep, nobody, peer);
    }
    // SAFETY: the endpoint lives as long as the session names it.
    match unsafe { ep.as_mut() } {
        Some(ep) => {
            // The two ends may handle errors in different ways, as in UCX: each end hears of the other one's by
            // this connection.
            if !std::ptr::eq(ep.peer(), peer) {
                log::error!("another worker than the server used its endpoint's number");
                failure::end_endpoint(worker, ep.peer(), ep, UCS_ERR_CONNECTION_RESET);
            }
        }
        // It was closed meanwhile; what it had sent goes first.
        None => {
            farewell::say_closed(peer, number | SERVER, 0);
            farewell::end(worker, token, true);
        }
    }
}
