//! Completions of operations on memory of peers.

use super::bindings::*;
use super::choice::IfaceRole;
use super::endpoint::FailedOp;
use super::rma_pool::RmaOpRef;
use super::tx_link::OfiTxLink;
use super::worker::OfiWorker;
use crate::ctypes::*;
use crate::sys::log;
use crate::tl::sink::{Completions, LostPart, Sink};
use std::ffi::c_int;
use std::sync::Arc;

/// Handles the end of an operation. Returns the number of events.
///
/// # Safety
/// A completion has reported the operation, and this call is the first for it.
pub unsafe fn on_ended<S: Sink>(
    worker: &mut OfiWorker<S::Peer>,
    sink: S,
    op: RmaOpRef,
    failed: Option<&FailedOp>,
) -> u32 {
    let Some(link) = worker.iface.link_of(op) else {
        return 0;
    };
    if let Some(failed) = failed {
        super::receive::log_failure(worker, link.conn, failed.error, &failed.detail);
        worker.fail_conn(&link, status_of(failed.error));
    }
    if failed.is_some() && worker.role == IfaceRole::Rail {
        // SAFETY: the caller's promise.
        unsafe { read_by_lane(worker, sink, op, &link) };
        return 1;
    }
    let well = failed.is_none();
    let peer = worker.of_link(&link).map(|conn| conn.of);
    let iface = worker.iface.clone();
    // SAFETY: the caller's promise. Requests that wait for an operation are detached under the lock of their peer.
    let end = || unsafe { iface.end_op(op, well) };
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
            worker.failed_ops.extend(token.filter(|_| !well));
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

/// Has the lane read what an operation of a rail has not.
///
/// # Safety
/// A completion has reported the operation, with an error, and this call is the first for it.
unsafe fn read_by_lane<S: Sink>(
    worker: &mut OfiWorker<S::Peer>,
    sink: S,
    op: RmaOpRef,
    link: &Arc<OfiTxLink>,
) {
    let iface = worker.iface.clone();
    let mut end = Some(|| {
        let memory = iface.rail_read(op);
        // SAFETY: the caller's promise; the operation is none of a buffer.
        (unsafe { iface.end_op(op, false) }, memory)
    });
    if let Some(peer) = worker.of_link(link).map(|conn| conn.of) {
        sink.repost(peer, |_| {
            let (token, memory) = end.take().map_or((None, None), |end| end());
            let lost = token.zip(memory).map(|(token, (ptr, len))| LostPart {
                token,
                addr: ptr.addr() as u64,
                len,
            });
            if let Some(LostPart { len, .. }) = lost {
                log::debug!("{len} bytes that a rail has not read are read by the lane");
            }
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

/// Reports the operations that have failed, after their peers have failed. Returns their number.
pub fn end_failed<S: Sink>(worker: &mut OfiWorker<S::Peer>, sink: S) -> u32 {
    let failed = std::mem::take(&mut worker.failed_ops);
    let count = failed.len() as u32;
    for token in failed {
        // SAFETY: the operation of this token has ended, and was not reported.
        unsafe { sink.completed(token, false) };
    }
    count
}

/// Ends the operations on memory of peers that have failed, whose processes have ended or whose completions cannot be
/// read any more: nothing may be reported of them.
pub fn end_dead<S: Sink>(worker: &mut OfiWorker<S::Peer>, sink: S) {
    let is_mute = worker.is_dead;
    let is_over = |(_, conn): (usize, &super::conn::OfiConn<S::Peer>)| {
        let waits = conn.peer.is_none() && conn.link.rma.outstanding() > 0;
        (waits && (is_mute || conn.is_dead())).then(|| conn.link.clone())
    };
    let links: Vec<Arc<OfiTxLink>> = worker.conns.iter().filter_map(is_over).collect();
    for link in links {
        for token in worker.iface.abandon(&link) {
            // SAFETY: the operation of this token is not reported any more, and was not before.
            unsafe { sink.completed(token, false) };
        }
    }
}

/// The status of a peer on whose memory an operation has failed.
fn status_of(error: c_int) -> ucs_status_t {
    match u32::try_from(error).unwrap_or(0) {
        // The key is of no registration, or does not allow it.
        FI_EACCES | FI_EKEYREJECTED | FI_ENOKEY | FI_EFAULT | FI_EINVAL | FI_EPERM => {
            UCS_ERR_INVALID_ADDR
        }
        _ => super::receive::status_of(error),
    }
}
