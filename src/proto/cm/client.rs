//! Client side of the CM: an endpoint that connects to a server, sends a hello and receives the reply.

use super::exchange::{CLIENT, SERVER, exchange, transports, tuning};
use super::hello::{read_reply, reported, seen_address};
use super::outcome::CmOutcome;
use super::{disconnect, stub_peer};
use crate::ctypes::*;
use crate::engine::cm::{AttemptTimer, CmEntry, CmSession, CmState, SessionState};
use crate::engine::endpoint::{Endpoint, EndpointRef};
use crate::engine::peer::Peer;
use crate::engine::worker::Worker;
use crate::proto::{endpoints, failure, resolve};
use crate::sys::{clock, host, log};
use crate::tl::address::WorkerAddress;
use crate::tl::cm::RdmaCmConn;
use crate::tl::cm_conn::{CmConn, CmTransport, ConnectError, RdmaConnectStep};
use crate::wire::cm_msg::{Hello, MAGIC};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;

/// Time after which an attempt to connect is given up, in milliseconds, if there is another transport: it may never be
/// answered.
const ATTEMPT_MS: u64 = 1000;

/// Makes an endpoint that is not connected. [`connect`] connects it to a server.
///
/// # Errors
/// When the system is out of descriptors.
pub fn client_endpoint(worker: &Worker) -> Result<EndpointRef, ucs_status_t> {
    let mut guard = exchange(worker)?;
    let x = guard.as_deref_mut().ok_or(UCS_ERR_IO_ERROR)?;
    let (token, number) = (x.token(), x.number());
    #[expect(
        clippy::arc_with_non_send_sync,
        reason = "like Worker: its locks and atomics make sharing among threads sound"
    )]
    let stub = Arc::new(Peer::stub(&worker.as_owner()));
    let ep = endpoints::numbered_endpoint(worker, &stub, number | CLIENT, number | SERVER);
    ep.get().set_session(token);
    let session = CmSession {
        ep: Some(ep),
        closing: None,
        state: SessionState::Connecting,
        contact: None,
        transports: Vec::new(),
        from: None,
        local: None,
        remote: SocketAddr::from(([0; 4], 0)),
        freed: false,
        number,
        secret: host::random_u64(),
        err_mode: 0,
        client_id: 0,
        buffer: Vec::new(),
        stub: Some(stub),
    };
    x.entries
        .insert(token, CmEntry::CmSession(Box::new(session)));
    x.add_waiting();
    Ok(ep)
}

/// Starts to connect an endpoint that [`client_endpoint`] made and that is not connecting yet. If that fails, now or
/// later, the endpoint fails.
pub fn connect(
    worker: &Worker,
    ep: &Endpoint,
    to: SocketAddr,
    from: Option<SocketAddr>,
    client_id: u64,
) {
    let (token, err_mode) = (ep.session(), ep.err_mode());
    let mut guard = worker.cm.lock();
    let Some(x) = guard.as_deref_mut() else {
        return;
    };
    let Some(session) = x.session(token) else {
        return;
    };
    (session.remote, session.from, session.client_id) = (to, from, client_id);
    (session.transports, session.err_mode) = (transports(worker), err_mode);
    if let Err(e) = start_connect(worker, x, token) {
        log::debug!("cannot connect to {to}: {e}");
        let stub = end_client(x, token);
        drop(guard);
        fail_attempt(worker, token, stub, status_of(&e));
    }
    expire_attempts(worker);
}

/// Status with which the client's endpoint fails.
fn status_of(e: &ConnectError) -> ucs_status_t {
    match e {
        ConnectError::Bind(_) => UCS_ERR_IO_ERROR,
        ConnectError::Connect(e) => match e.kind() {
            ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::UnexpectedEof => UCS_ERR_NOT_CONNECTED,
            _ => UCS_ERR_UNREACHABLE,
        },
    }
}

/// Whether an error concerns the local address, and not the path to the server.
fn is_of_local_address(e: &io::Error, from: SocketAddr, to: SocketAddr) -> bool {
    from.is_ipv4() != to.is_ipv4()
        || matches!(e.kind(), ErrorKind::AddrNotAvailable | ErrorKind::AddrInUse)
}

/// Starts to connect by the next transport that does not fail at once.
fn start_connect(worker: &Worker, x: &mut CmState, token: u64) -> Result<(), ConnectError> {
    let mut error = ConnectError::Connect(ErrorKind::Unsupported.into());
    loop {
        let Some(session) = x.session(token).filter(|s| !s.transports.is_empty()) else {
            return Err(error);
        };
        let transport = session.transports.remove(0);
        let (to, from, last) = (session.remote, session.from, session.transports.is_empty());
        match begin(worker, transport, to, from) {
            Ok(contact) => {
                contact.watch(&x.epoll, token, true)?;
                if !last {
                    let until = clock::coarse_ms() + ATTEMPT_MS;
                    x.attempts.push_back(AttemptTimer { until, token });
                }
                if let Some(session) = x.session(token) {
                    session.contact = Some(contact);
                }
                return Ok(());
            }
            Err(e) => {
                log::debug!("{to} is not reached by {transport:?}: {e}");
                error = e;
            }
        }
    }
}

fn begin(
    worker: &Worker,
    transport: CmTransport,
    to: SocketAddr,
    from: Option<SocketAddr>,
) -> Result<CmConn, ConnectError> {
    match transport {
        CmTransport::Rdma => {
            let policy = &worker.ctx.policy.sockaddr;
            let source = policy.rdma_source.map(|ip| SocketAddr::new(ip, 0));
            let source = source.filter(|source| source.is_ipv4() == to.is_ipv4());
            match RdmaCmConn::connect(to, from.or(source), policy.resolve) {
                Ok(link) => Ok(CmConn::Rdma(link)),
                // librdmacm binds and resolves in one call.
                Err(e) if from.is_some_and(|from| is_of_local_address(&e, from, to)) => {
                    Err(ConnectError::Bind(e))
                }
                Err(e) => Err(ConnectError::Connect(e)),
            }
        }
        CmTransport::Tcp => CmConn::connect_tcp(to, from, &tuning(worker)),
    }
}

/// Handles a failed attempt: tries the next transport, or fails the endpoint.
fn go_on(worker: &Worker, x: &mut CmState, token: u64, e: ConnectError) -> CmOutcome {
    let Some(session) = x.session(token) else {
        return CmOutcome::Nothing;
    };
    log::debug!("cannot connect to {}: {e}", session.remote);
    if session.transports.is_empty() {
        return CmOutcome::Lost(end_client(x, token), status_of(&e));
    }
    if let Some(contact) = session.contact.take() {
        contact.unwatch(&x.epoll, true);
    }
    match start_connect(worker, x, token) {
        Ok(()) => CmOutcome::Nothing,
        Err(e) => CmOutcome::Lost(end_client(x, token), status_of(&e)),
    }
}

/// Removes and returns the sessions whose attempts have expired.
pub(super) fn late(x: &mut CmState) -> Vec<u64> {
    let now = clock::coarse_ms();
    let due = x.attempts.partition_point(|attempt| attempt.until <= now);
    let expired = x.attempts.drain(..due);
    expired.map(|attempt| attempt.token).collect()
}

/// Handles the expiry of an attempt, if it is still in progress.
pub(super) fn on_late(worker: &Worker, token: u64) {
    let mut guard = worker.cm.lock();
    let Some(x) = guard.as_deref_mut() else {
        return;
    };
    let waits =
        |s: &&mut CmSession| s.state == SessionState::Connecting && !s.transports.is_empty();
    if x.session(token).filter(waits).is_none() {
        return;
    }
    let outcome = go_on(
        worker,
        x,
        token,
        ConnectError::Connect(ErrorKind::TimedOut.into()),
    );
    drop(guard);
    if let CmOutcome::Lost(stub, status) = outcome {
        fail_attempt(worker, token, stub, status);
    }
}

/// Fails the requests that wait for a client's connection, and a close that waits for it.
pub(super) fn fail_attempt(
    worker: &Worker,
    token: u64,
    stub: Option<Arc<Peer>>,
    status: ucs_status_t,
) {
    if let Some(stub) = stub {
        worker.fail_peer(&stub, status);
    }
    disconnect::on_lost(worker, token, status);
}

/// Lets progress poll the CM at once.
fn expire_attempts(worker: &Worker) {
    worker.progress_flags.raise(CmState::IFACE);
}

/// Ends a client's connection. Returns its stub peer.
fn end_client(x: &mut CmState, token: u64) -> Option<Arc<Peer>> {
    let session = match x.entries.get_mut(&token) {
        Some(CmEntry::CmSession(session)) => session,
        _ => return None,
    };
    let connecting = session.state == SessionState::Connecting;
    if let Some(contact) = session.contact.take() {
        contact.unwatch(&x.epoll, connecting);
    }
    session.state = SessionState::Ended;
    let stub = session.stub.clone();
    x.end_waiting();
    stub
}

/// Handles an event of a client's connection: it proceeds, is established, or has failed.
pub(super) fn on_connected(worker: &Worker, x: &mut CmState, token: u64) -> CmOutcome {
    let Some(session) = x.session(token) else {
        return CmOutcome::Nothing;
    };
    let Some(contact) = session.contact.as_mut() else {
        return CmOutcome::Nothing;
    };
    match contact.connected(&worker.ctx.tl.ib.ports) {
        Ok(RdmaConnectStep::Pending) => CmOutcome::Nothing,
        Ok(RdmaConnectStep::Open) => match send_request(worker, x, token) {
            Ok(()) => CmOutcome::Nothing,
            Err(e) => go_on(worker, x, token, e.into()),
        },
        Ok(RdmaConnectStep::Refused(status)) => {
            CmOutcome::Lost(end_client(x, token), ucs_status_t::from_raw(status))
        }
        Err(e) => go_on(worker, x, token, e.into()),
    }
}

/// Sends the client's hello on an established connection.
fn send_request(worker: &Worker, x: &mut CmState, token: u64) -> io::Result<()> {
    let Some(CmEntry::CmSession(session)) = x.entries.get_mut(&token) else {
        return Err(ErrorKind::NotConnected.into());
    };
    let contact = session.contact.as_mut().ok_or(ErrorKind::NotConnected)?;
    let address = reported(worker, contact);
    let hello = Hello {
        magic: MAGIC,
        number: session.number,
        address_len: address.len() as u16,
        err_mode: session.err_mode,
        client_id: session.client_id,
        secret: session.secret,
    };
    contact.send(&[&hello.encode()[..], &address].concat())?;
    session.local = contact.local();
    session.state = SessionState::Asked;
    session.transports = Vec::new();
    contact.watch_answers(&x.epoll, token)
}

/// Handles the server's reply, or a part of it.
pub(super) fn on_answer(worker: &Worker, x: &mut CmState, token: u64) -> CmOutcome {
    let Some(session) = x.session(token) else {
        return CmOutcome::Nothing;
    };
    let Some(contact) = session.contact.as_mut() else {
        return CmOutcome::Nothing;
    };
    match read_reply(contact, &mut session.buffer) {
        Ok(None) => CmOutcome::Nothing,
        Ok(Some((reply, None))) => {
            let status = ucs_status_t::from_raw(reply.status);
            CmOutcome::Lost(end_client(x, token), status)
        }
        Ok(Some((_, Some(address)))) => {
            session.buffer = Vec::new();
            session.state = SessionState::Open;
            let address = seen_address(worker, address, session.contact.as_ref(), session.remote);
            x.end_waiting();
            CmOutcome::Accepted(Box::new(address))
        }
        Err(e) => {
            log::diag!("no answer from {}: {e}", session.remote);
            CmOutcome::Lost(end_client(x, token), status_of(&ConnectError::Connect(e)))
        }
    }
}

/// Handles an accepting reply: moves the endpoint and its pending requests to the server's peer.
pub(super) fn on_accepted(worker: &Worker, token: u64, address: &WorkerAddress) {
    let found = resolve::peer_of(worker, address);
    let mut guard = worker.cm.lock();
    let Some(x) = guard.as_deref_mut() else {
        return;
    };
    let Some(session) = x.session(token) else {
        return;
    };
    let (ep, number) = (session.ep, session.number);
    let peer = match found {
        Ok(peer) => peer,
        Err(status) => {
            let stub = session.stub.clone();
            drop(guard);
            return fail_attempt(worker, token, stub, status);
        }
    };
    let stub = session.stub.take();
    drop(guard);
    // `None`: a message of the server arrived before the reply.
    if let Some(stub) = stub {
        stub_peer::settle(worker, token, ep, stub, &peer);
    }
    match ep.map(EndpointRef::get) {
        Some(ep) => {
            if !std::ptr::eq(ep.peer(), &*peer) {
                log::error!("another worker than the server used its endpoint's number");
                failure::end_endpoint(worker, ep.peer(), ep, UCS_ERR_CONNECTION_RESET);
            }
        }
        // The endpoint was closed meanwhile.
        None => disconnect::send_closed(worker, token, &peer, number | SERVER),
    }
}
