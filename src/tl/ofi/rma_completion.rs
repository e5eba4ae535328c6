//! Completions of operations on memory of peers.

use super::bindings::*;
use super::conn::OfiConn;
use super::endpoint::FailedOp;
use super::failover::MOVE_MS;
use super::iface::OfiIface;
use super::rma_pool::RmaOpRef;
use super::shared_ep_rma::EndedRma;
use super::tx_link::OfiTxLink;
use crate::ctypes::*;
use crate::sys::log;
use crate::tl::Token;
use crate::tl::sink::{Completions, LostPart, Sink};
use std::ffi::c_int;
use std::sync::Arc;

/// Handles the end of an operation. Returns the number of events.
///
/// # Safety
/// A completion has reported the operation, and this call is the first for it.
pub unsafe fn on_ended<S: Sink>(
    iface: &mut OfiIface<S::Peer>,
    sink: S,
    op: RmaOpRef,
    failed: Option<&FailedOp>,
) -> u32 {
    // SAFETY: the caller's promise.
    let link = match unsafe { iface.ep.end_unawaited(op, failed.is_none()) } {
        EndedRma::Of(link) => link,
        EndedRma::Handled => return 1,
    };
    let is_repeated = failed.is_some() && iface.ep.repeatable(op).is_some();
    if let Some(failed) = failed {
        super::op_failure::log_failure(iface, link.conn, failed.error, &failed.detail);
        let status = status_of(failed.error);
        if ends_connection(failed.error) {
            link.rma.cut_short();
        }
        // A read that is refused is no failure of the connection: the peer answers the message that repeats it.
        if !(is_repeated && status == UCS_ERR_INVALID_ADDR) {
            iface.fail_conn(&link, status);
        }
    }
    if is_repeated {
        // SAFETY: the caller's promise.
        unsafe { read_another_way(iface, sink, op, &link) };
        return 1;
    }
    let well = failed.is_none();
    let peer = iface.of_link(&link).map(|conn| conn.of);
    let ep = iface.ep.clone();
    // SAFETY: the caller's promise. Requests that wait for an operation are detached under the lock of their peer.
    let end = || unsafe { ep.end_op(op, well) };
    let mut ended = S::Completions::default();
    let reported = peer.and_then(|peer| {
        sink.with_lane(peer, |_| {
            let token = end();
            if let Some(token) = token.filter(|_| well) {
                ended.add(token);
            }
            token
        })
    });
    match reported {
        Some(token) => {
            ended.finish();
            // Reported when the peer has failed, so that the request gets its status.
            iface.failed_ops.extend(token.filter(|_| !well));
        }
        None => {
            if let Some(token) = end() {
                // SAFETY: the operation has just ended; the peer has failed, and has no lane that could detach it.
                unsafe { sink.completed(token, well) };
            }
        }
    }
    1
}

/// Has the lane read what an operation of a rail has not, or get by messages what one of a connection with failover has
/// not.
///
/// # Safety
/// A completion has reported the operation, with an error, and this call is the first for it.
unsafe fn read_another_way<S: Sink>(
    iface: &mut OfiIface<S::Peer>,
    sink: S,
    op: RmaOpRef,
    link: &Arc<OfiTxLink>,
) {
    let ep = iface.ep.clone();
    let mut end = Some(|| {
        let memory = ep.repeatable(op);
        // SAFETY: the caller's promise; the operation is none of a buffer.
        (unsafe { ep.end_op(op, false) }, memory)
    });
    if let Some(peer) = iface.of_link(link).map(|conn| conn.of) {
        sink.repost(peer, |_| {
            let (token, memory) = end.take().map_or((None, None), |end| end());
            let lost = token
                .zip(memory)
                .map(|(token, (ptr, len))| lost(token, ptr, len));
            lost.into_iter().collect()
        });
    }
    // There is no lane any more.
    if let Some(end) = end.take()
        && let (Some(token), _) = end()
    {
        // SAFETY: the operation has just ended; the peer has failed, and has no lane that could detach it.
        unsafe { sink.completed(token, false) };
    }
}

/// A part of a request's memory that an operation has not read.
fn lost(token: Token, ptr: *mut u8, len: usize) -> LostPart {
    log::debug!("{len} bytes that a device has not read are read another way");
    LostPart {
        token,
        addr: ptr.addr() as u64,
        len,
    }
}

/// Reports the operations that have failed, after their peers have failed. Returns their number.
pub fn end_failed<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S) -> u32 {
    let failed = std::mem::take(&mut iface.failed_ops);
    let count = failed.len() as u32;
    for token in failed {
        // SAFETY: the operation of this token has ended, and was not reported.
        unsafe { sink.completed(token, false) };
    }
    count
}

/// Ends the operations on memory of peers that have failed, whose processes have ended or whose completions cannot be
/// read any more: nothing may be reported of them. What connections with failover have not read by a provider that
/// works no more is read another way, when its endpoint is closed: until then it may access the memory, as one that
/// works may until it reports the operations. Buffers outlive the endpoint: operations through them do not wait for
/// the close.
pub fn end_dead<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S) {
    if !iface.has_ops_without_peer() {
        return;
    }
    let is_closed = iface.is_dead && iface.ep.close();
    let is_over = |(_, conn): (usize, &OfiConn<S::Peer>)| {
        if !conn.has_ops_without_peer() {
            return None;
        }
        let is_mute = iface.is_dead && (is_closed || !iface.ep.has_in_place(&conn.link));
        let goes_on = conn.failover.has_moved() && !sink.has_failed(conn.of);
        let is_over = is_mute || conn.is_dead() && !goes_on;
        is_over.then(|| (conn.link.clone(), conn.of, goes_on))
    };
    let links: Vec<_> = iface.conns.iter().filter_map(is_over).collect();
    for (link, peer, goes_on) in links {
        if goes_on {
            let ep = &iface.ep;
            sink.repost(peer, |_| {
                let reads = ep.take_reads(&link).into_iter();
                reads
                    .map(|(token, ptr, len)| lost(token, ptr, len))
                    .collect()
            });
        }
        for token in iface.ep.abandon(&link) {
            // SAFETY: the operation of this token is not reported any more, and was not before.
            unsafe { sink.completed(token, false) };
        }
    }
}

/// Fails the peers whose connections have moved, while the provider has not reported for a time what they had posted
/// before: their requests wait for that. Called several times a second.
pub fn fail_unreported<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S, now: u64) {
    let limit = iface.timeout_ms.min(MOVE_MS);
    let is_late = |(_, conn): (usize, &OfiConn<S::Peer>)| {
        let since = conn.failover.moved_at()?;
        let waits = conn.has_moved_ops() && now >= since.saturating_add(limit);
        (waits && !sink.has_failed(conn.of)).then_some(conn.of)
    };
    let late: Vec<S::Peer> = iface.conns.iter().filter_map(is_late).collect();
    for peer in late {
        let name = &iface.device_name;
        log::diag!("{name} (libfabric) has failed, and does not report what was read by it");
        sink.lane_down(peer, UCS_ERR_ENDPOINT_TIMEOUT);
    }
}

/// Whether the error of an operation says no more than that the connection has ended: the provider `tcp` ends it where
/// it refuses an access, and reports the same where the peer's process has ended.
fn ends_connection(error: c_int) -> bool {
    matches!(
        u32::try_from(error).unwrap_or(0),
        FI_ECANCELED | FI_ECONNABORTED | FI_ECONNRESET | FI_ENOTCONN | FI_ESHUTDOWN
    )
}

/// The status of a peer on whose memory an operation has failed.
fn status_of(error: c_int) -> ucs_status_t {
    match u32::try_from(error).unwrap_or(0) {
        // The key is of no registration, or does not allow it.
        FI_EACCES | FI_EKEYREJECTED | FI_ENOKEY | FI_EFAULT | FI_EINVAL | FI_EPERM => {
            UCS_ERR_INVALID_ADDR
        }
        _ => super::op_failure::status_of(error),
    }
}
