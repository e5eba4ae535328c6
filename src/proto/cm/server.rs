//! Server side of the CM: an endpoint for a client that has sent a hello, or a reject.

use super::exchange::{CLIENT, SERVER, exchange};
use super::hello::{reported, seen_address};
use crate::ctypes::*;
use crate::engine::cm::{CmEntry, CmSession, ConnRequest, SessionState};
use crate::engine::endpoint::{Endpoint, EndpointRef, EpFlags};
use crate::engine::peer::Peer;
use crate::engine::worker::Worker;
use crate::proto::{endpoints, resolve, tx};
use crate::sys::log;
use crate::tl::cm_conn::CmConn;
use crate::wire::cm_msg::{MAGIC, Reply};
use crate::wire::header::Kind;

/// Makes an endpoint to a client. [`accept`] sends the reply.
///
/// # Errors
/// `UCS_ERR_CONNECTION_RESET` if the client has disconnected, `UCS_ERR_UNREACHABLE` if no transport reaches it.
pub fn server_endpoint(
    worker: &Worker,
    request: &mut ConnRequest,
) -> Result<EndpointRef, ucs_status_t> {
    if !request.contact.is_idle() {
        // Readable means a disconnect byte or the end of the connection.
        log::debug!("the client at {} has disconnected", request.remote);
        return Err(UCS_ERR_CONNECTION_RESET);
    }
    let address = request.address.clone();
    let address = seen_address(worker, address, Some(&request.contact), request.remote);
    let peer = resolve::peer_of(worker, &address).inspect_err(|&status| {
        reject(&mut request.contact, status);
    })?;
    let number = request.hello.number;
    Ok(endpoints::numbered_endpoint(
        worker,
        &peer,
        number | SERVER,
        number | CLIENT,
    ))
}

/// Sends the reply that accepts a client.
///
/// # Errors
/// `UCS_ERR_CONNECTION_RESET` if the client has disconnected; the caller keeps the endpoint.
///
/// # Safety
/// The endpoint was made by [`server_endpoint`] for this request.
pub unsafe fn accept(
    worker: &Worker,
    mut request: ConnRequest,
    ep: EndpointRef,
) -> Result<(), ucs_status_t> {
    let mut guard = exchange(worker)?;
    let x = guard.as_deref_mut().ok_or(UCS_ERR_IO_ERROR)?;
    let token = x.token();
    let address = reported(worker, &request.contact);
    let reply = Reply {
        magic: MAGIC,
        address_len: address.len() as u16,
        status: 0,
        err_mode: ep.get().err_mode(),
    };
    let sent = (request.contact)
        .send(&[&reply.encode()[..], &address].concat())
        .and_then(|()| request.contact.watch(&x.epoll, token, false));
    if let Err(e) = sent {
        log::debug!("the client at {} has disconnected: {e}", request.remote);
        return Err(UCS_ERR_CONNECTION_RESET);
    }
    // Its messages can arrive before the reply.
    ep.get().set_session(token);
    ep.get().set(EpFlags::FRESH);
    let session = CmSession {
        ep: Some(ep),
        closing: None,
        state: SessionState::Open,
        local: request.contact.local(),
        remote: request.remote,
        contact: Some(request.contact),
        transports: Vec::new(),
        from: None,
        freed: false,
        number: request.hello.number,
        secret: request.hello.secret,
        err_mode: 0,
        client_id: 0,
        buffer: Vec::new(),
        stub: None,
    };
    x.entries
        .insert(token, CmEntry::CmSession(Box::new(session)));
    Ok(())
}

/// Sends a reply that rejects a client. The caller closes the connection.
pub fn reject(contact: &mut CmConn, status: ucs_status_t) {
    let reply = Reply {
        magic: MAGIC,
        address_len: 0,
        status: status as i8,
        err_mode: 0,
    };
    if let Err(e) = contact.send(&reply.encode()) {
        log::debug!("a rejected client has disconnected: {e}");
    }
}

/// Called before a server's endpoint sends for the first time: the client may not have received the reply yet.
pub fn send_cm_proof(worker: &Worker, ep: &Endpoint, peer: &Peer) {
    let mut guard = worker.cm.lock();
    let session = guard.as_deref_mut().and_then(|x| x.session(ep.session()));
    let Some(secret) = session.map(|session| session.secret) else {
        return;
    };
    drop(guard);
    tx::control(peer, Kind::Accepted, 0, secret, &[]);
}
