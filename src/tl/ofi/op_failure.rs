//! Operations that end with an error, and the ends of the connections that they fail.

use super::bindings::*;
use super::choice::IfaceRole;
use super::conn::conn_down;
use super::ended_context::EndedContext;
use super::endpoint::FailedOp;
use super::hello::FailedConnect;
use super::iface::OfiIface;
use super::tx_link::OfiTxLink;
use super::{connect, fabric, loss, multi_recv, rma_completion, upkeep};
use crate::ctypes::*;
use crate::sys::{advice, log};
use crate::tl::sink::Sink;
use std::ffi::c_int;

/// Receives that may fail one after the other before the provider counts as dead.
const MAX_FAILED_RECEIVES: u32 = 1000;

/// Handles an operation that has ended with an error.
#[cold]
pub fn on_failed<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S, failed: &FailedOp) {
    let FailedOp { error, detail, .. } = failed;
    // SAFETY: the context is that of an operation of the endpoint.
    let buffer = match unsafe { EndedContext::of(failed.context) } {
        Some(EndedContext::Received(buffer) | EndedContext::Sent(buffer)) => buffer,
        Some(EndedContext::Rma(op)) => {
            // SAFETY: the queue reports each operation once.
            unsafe { rma_completion::on_ended(iface, sink, op, Some(failed)) };
            return;
        }
        Some(EndedContext::MultiRecv(buffer)) => {
            if on_failed_receive(iface, failed) && multi_recv::is_released(failed.flags) {
                iface.ep.post_multi_recv(buffer);
            }
            return;
        }
        None => {
            log::debug!("libfabric reports {}: {detail}", fabric::error(*error));
            // A message without a completion was lost: a probe shows of which connection.
            return upkeep::probe_all(iface);
        }
    };
    // SAFETY: the queue reports each operation once, by its buffer.
    match unsafe { iface.ep.sent(buffer) } {
        Some(link) => {
            log_failure(iface, link.conn, *error, detail);
            iface.fail_conn(&link, status_of(*error));
        }
        None => {
            if on_failed_receive(iface, failed) {
                iface.ep.post_receive(buffer);
            }
        }
    }
}

/// Handles a receive that has failed. Returns whether there are to be others.
fn on_failed_receive<P: Copy + Eq>(iface: &mut OfiIface<P>, failed: &FailedOp) -> bool {
    let FailedOp { error, detail, .. } = failed;
    let text = fabric::error(*error);
    log::diag!("a packet by libfabric is dropped: {text}: {detail}");
    iface.failed_receives += 1;
    if iface.failed_receives > MAX_FAILED_RECEIVES {
        iface.die(*error);
        return false;
    }
    // No worker sends a message that is longer than any packet.
    if !matches!(u32::try_from(*error), Ok(FI_ETRUNC | FI_EMSGSIZE)) {
        loss::on_failed_receive(iface);
    }
    true
}

/// Why a request to connect has failed, and what to do. `said`: by the provider.
fn obstacle(link: &OfiTxLink, status: ucs_status_t, said: &str) -> String {
    match (link.is_peer_dead(), said) {
        (true, _) => advice::ON_END.into(),
        (false, "") => format!("{status:?}: {}", advice::ON_CONNECTION),
        (false, said) => format!("{said}: {}", advice::ON_CONNECTION),
    }
}

/// Logs that an operation on a connection, by its number, has failed.
pub fn log_failure<P>(iface: &mut OfiIface<P>, conn: u32, error: c_int, detail: &str) {
    let error = fabric::error(error);
    let mut uid = 0;
    if let Some(conn) = iface.conns.get_mut(conn as usize) {
        uid = conn.uid;
        if let Some(request) = &mut conn.request {
            request.obstacle = error.to_string();
        }
    }
    log::diag!("libfabric cannot send to worker {uid:#x}: {error} ({detail})");
}

/// The status of a peer to which a send has failed.
pub fn status_of(error: c_int) -> ucs_status_t {
    match u32::try_from(error).unwrap_or(0) {
        FI_ETIMEDOUT => UCS_ERR_ENDPOINT_TIMEOUT,
        FI_ECONNREFUSED | FI_EHOSTUNREACH | FI_ENETUNREACH | FI_EHOSTDOWN | FI_ENETDOWN => {
            UCS_ERR_UNREACHABLE
        }
        _ => UCS_ERR_CONNECTION_RESET,
    }
}

/// Ends the connections that have failed: everything that has arrived was handled. Returns their number.
pub fn end_broken<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S) -> u32 {
    if iface.broken.is_empty() {
        return 0;
    }
    let mut count = 0;
    for (link, status) in std::mem::take(&mut iface.broken) {
        let Some(conn) = iface.of_link(&link) else {
            continue;
        };
        if conn.failover.has_moved() {
            continue;
        }
        if conn.peer.is_some() && conn.failover.session().is_some() {
            iface.failover.failed.push((link, status));
            count += 1;
            continue;
        }
        let role = conn.role;
        let (peer, last) = (conn.peer.take(), connect::last_words(conn));
        let (uid, request) = (conn.uid, conn.request.take());
        let hello = conn.fail_hello();
        if let Some((link, packet)) = last.filter(|_| !iface.is_dead) {
            iface.send_control(&link, packet);
        }
        match (peer, request) {
            (None, _) => continue,
            (Some(peer), request) if request.is_none() || role == IfaceRole::Rail => {
                conn_down(role, sink, peer, &link, status);
            }
            (Some(_), None) => {}
            (Some(peer), Some(request)) => iface.unanswered.push(FailedConnect {
                peer,
                uid,
                hello,
                status,
                obstacle: obstacle(&link, status, &request.obstacle),
            }),
        }
        count += 1;
    }
    count
}
