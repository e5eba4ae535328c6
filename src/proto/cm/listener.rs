//! Listeners, and the connections that clients open to them.

use super::exchange::{exchange, transports, tuning};
use super::{half_open, server};
use crate::ctypes::*;
use crate::engine::cm::{CmEntry, CmState, ConnHandler, HalfOpen, Listener};
use crate::engine::pointers::WorkerRef;
use crate::engine::worker::Worker;
use crate::sys::{clock, log};
use crate::tl::cm_conn::{BACKLOG, CmConn, CmListener, CmTransport, ListenParams, max_half_open};
use std::io::ErrorKind;
use std::net::SocketAddr;

/// Maximum number of connections accepted in one progress call.
const ACCEPTS: usize = 32;

/// Starts to listen.
///
/// # Errors
/// `UCS_ERR_BUSY` if the address is in use, `UCS_ERR_IO_ERROR` for other errors of the system.
pub fn listen(
    worker: &Worker,
    at: SocketAddr,
    handler: ConnHandler,
) -> Result<Box<Listener>, ucs_status_t> {
    let (policy, transports) = (&worker.ctx.policy.sockaddr, transports(worker));
    let backlog = policy
        .backlog
        .map_or(BACKLOG, |n| n.min(i32::MAX as u32) as i32);
    let opening = ListenParams {
        rdma: transports.contains(&CmTransport::Rdma),
        tcp: transports.contains(&CmTransport::Tcp),
        tuning: &tuning(worker),
        reuse: policy.reuse_address,
        reuse_rdma: policy.rdma_reuse_address,
        backlog,
    };
    if transports.is_empty() {
        log::error!("UCX_SOCKADDR_TLS_PRIORITY names no transport that can listen");
        return Err(UCS_ERR_UNSUPPORTED);
    }
    let listener = CmListener::open(at, &opening).map_err(|e| {
        log::error!("cannot listen on {at}: {e}");
        match e.kind() {
            ErrorKind::AddrInUse => UCS_ERR_BUSY,
            _ => UCS_ERR_IO_ERROR,
        }
    })?;
    let address = listener.address;
    let mut guard = exchange(worker)?;
    let x = guard.as_deref_mut().ok_or(UCS_ERR_IO_ERROR)?;
    let token = x.token();
    if let Err(e) = listener.watch(&x.epoll, token) {
        log::error!("cannot watch {address}: {e}");
        return Err(UCS_ERR_IO_ERROR);
    }
    x.entries
        .insert(token, CmEntry::Listener { listener, handler });
    Ok(Box::new(Listener {
        // SAFETY: the program does not use the listener after it has destroyed the worker.
        worker: unsafe { WorkerRef::new(worker) },
        token,
        address,
    }))
}

/// Stops listening. Clients that were not reported to the program are rejected.
pub fn unlisten(worker: &Worker, token: u64) {
    let mut guard = worker.cm.lock();
    let Some(x) = guard.as_deref_mut() else {
        return;
    };
    let Some(CmEntry::Listener { listener, .. }) = x.entries.remove(&token) else {
        return;
    };
    listener.close(UCS_ERR_REJECTED as i8, reject);
    listener.unwatch(&x.epoll);
    let of_it = |entry: &CmEntry| matches!(entry, CmEntry::HalfOpen(g) if g.listener == token);
    let tokens: Vec<u64> = (x.entries.iter())
        .filter(|(_, entry)| of_it(entry))
        .map(|(&token, _)| token)
        .collect();
    for token in tokens {
        if let Some(mut half_open) = half_open::take(x, token) {
            reject(&mut half_open.contact);
        }
    }
    x.due.retain_mut(|due| {
        let stays = due.listener != token;
        if !stays {
            reject(&mut due.request.contact);
        }
        stays
    });
}

fn reject(contact: &mut CmConn) {
    server::reject(contact, UCS_ERR_REJECTED);
}

/// Accepts connections to a listener, as far as there is room for half-open ones.
pub(super) fn accept(worker: &Worker, x: &mut CmState, token: u64) {
    let tuning = tuning(worker);
    for _ in 0..ACCEPTS {
        let Some(CmEntry::Listener { listener, .. }) = x.entries.get(&token) else {
            return;
        };
        let contact = match listener.accept(&worker.ctx.tl.ib.ports, &tuning) {
            Ok(accepted) => accepted,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return,
            // Descriptors may run out: the connections in the backlog are accepted later.
            Err(e) => return log::debug!("cannot accept a client: {e}"),
        };
        log::trace!("connection from {:?} to a listener", contact.remote());
        let room = (max_half_open() / contact.descriptors()).max(1);
        while x.half_open.len() >= room {
            half_open::reject(x, x.half_open[0], "others wait");
        }
        let half_open = x.token();
        if let Err(e) = contact.watch(&x.epoll, half_open, false) {
            log::debug!("cannot watch a client: {e}");
            continue;
        }
        x.half_open.push_back(half_open);
        let entry = CmEntry::HalfOpen(HalfOpen {
            contact,
            listener: token,
            until: clock::coarse_ms() + half_open::HALF_OPEN_MS,
            buffer: Vec::new(),
        });
        x.entries.insert(half_open, entry);
    }
}
