//! Listeners and clients: calls of the user's connection handlers.

use super::endpoint;
use crate::ctypes::*;
use crate::engine::cm::{CmEntry, ConnHandler, ConnRequest, PendingAccept};
use crate::engine::endpoint::{Endpoint, EndpointRef};
use crate::engine::worker::Worker;
use crate::proto::{cm, failure};
use crate::sys::log;

/// Progresses connection establishment and calls the handlers of new connection requests.
#[cold]
#[inline(never)]
pub fn progress(worker: &Worker) -> u32 {
    let mut count = cm::progress(worker);
    while let Some((due, handler)) = next_due(worker) {
        count += 1;
        match handler {
            ConnHandler::Request(handler) => {
                let handle = due.request.keep();
                if let Some(cb) = handler.cb {
                    // SAFETY: the user's function and its argument.
                    unsafe { cb(handle as ucp_conn_request_h, handler.arg) };
                }
            }
            ConnHandler::Accepted(handler) => accept_at_once(worker, due.request, handler),
        }
    }
    count
}

fn next_due(worker: &Worker) -> Option<(PendingAccept, ConnHandler)> {
    let mut guard = worker.cm.lock();
    let x = guard.as_deref_mut()?;
    let due = x.due.pop_front()?;
    // The connection requests of a listener that was destroyed are dropped.
    match x.entries.get(&due.listener) {
        Some(&CmEntry::Listener { handler, .. }) => Some((due, handler)),
        _ => None,
    }
}

fn accept_at_once(worker: &Worker, request: ConnRequest, handler: ucp_listener_accept_handler_t) {
    match accept(worker, request, None, |_| ()) {
        Ok(ep) => {
            if let Some(cb) = handler.cb {
                // SAFETY: the user's function and its argument.
                unsafe { cb(ep.as_ptr().cast(), handler.arg) };
            }
        }
        Err(status) => log::debug!("a client could not be accepted: {status:?}"),
    }
}

/// Whether connection establishment is in progress, which should not wait for the clock.
pub fn is_busy(worker: &Worker) -> bool {
    worker.cm.lock().as_ref().is_some_and(|x| x.is_busy())
}

/// Accepts a client: returns a new endpoint to it. `err_mode` is the error handling mode that the user gave, which must
/// be the client's; `None` takes the client's. `fill_in` sets the user's other parameters before progress can use the
/// endpoint.
///
/// # Errors
/// `UCS_ERR_UNSUPPORTED` if the modes differ: the client's endpoint fails. Else those of [`cm::server_endpoint`] and
/// [`cm::accept`].
pub fn accept(
    worker: &Worker,
    mut request: ConnRequest,
    err_mode: Option<u8>,
    fill_in: impl FnOnce(&Endpoint),
) -> Result<EndpointRef, ucs_status_t> {
    let clients = request.hello.err_mode;
    if let Some(own) = err_mode.filter(|&own| own != clients) {
        log::error!(
            "the client at {} has error handling mode {clients}, its server {own}",
            request.remote
        );
        cm::reject(&mut request.contact, UCS_ERR_NOT_CONNECTED);
        return Err(UCS_ERR_UNSUPPORTED);
    }
    let ep = cm::server_endpoint(worker, &mut request)?;
    let e = ep.get();
    e.set_err_mode(clients);
    fill_in(e);
    // SAFETY: the endpoint was made for this request.
    if let Err(status) = unsafe { cm::accept(worker, request, ep) } {
        endpoint::discard(worker, ep);
        return Err(status);
    }
    failure::begin(worker, e, e.peer());
    Ok(ep)
}
