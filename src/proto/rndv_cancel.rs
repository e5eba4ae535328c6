//! Cancel of a rendezvous by the sender: within a host a forced close returns the user's memory at once, while the
//! receiver may be copying from it.
//!
//! The sender counts its cancels in the ring before the memory is returned, and sends the ids of the cancelled requests
//! in messages. A receiver trusts a copy only if the count, before and after it, is the number of these messages that
//! it has received.
//!
//! Memory that the receiver's device may be reading is returned only when the receiver has answered.

use super::tx::{self, peer_requests};
use super::{answers, rndv};
use crate::ctypes::*;
use crate::engine::completion;
use crate::engine::peer::Peer;
use crate::engine::pointers::EndpointId;
use crate::engine::request::{self, Request, ZcopyRole, ZcopyState};
use crate::engine::unexpected::PayloadSource;
use crate::engine::worker::Worker;
use crate::sys::log;
use crate::tl::TlZcopy;
use crate::wire::header::{ASKED, Kind, OFFERED, SyncHdr};
use std::time::{Duration, Instant};

/// Maximum time to wait for a copy in this process. One takes well under a millisecond.
const COPY_TIME: Duration = Duration::from_millis(200);

/// Completes requests that were removed from all lists, and notifies the peer of those on which it works.
///
/// # Safety
/// The caller owns the requests, which are of this peer and not complete.
pub unsafe fn end_requests(peer: &Peer, taken: Vec<*mut Request>, status: ucs_status_t) {
    // SAFETY: the caller's requests.
    let offers = taken
        .iter()
        .filter_map(|&r| notice(unsafe { &*r }))
        .filter(|notice| notice.0 == OFFERED)
        .count();
    let mut notices = Vec::new();
    if offers > 0 && peer.status() == UCS_OK {
        count(peer, offers as u64);
    }
    for req in taken {
        // SAFETY: the caller owns the request.
        unsafe {
            let r = &*req;
            log::debug!(
                "peer {:#x}: {status:?} ends a request: {}, {}, {:?}",
                peer.uid,
                request::describe(r),
                r.sent,
                r.op
            );
            if cancel_remote(peer, req, status) {
                continue;
            }
            let (cancel_notice, railed) = (notice(&*req), tx::zcopy::is_railed(&*req));
            let left = tx::zcopy::detach(peer, req, status);
            // A message sent now could overtake data on rails: it is sent when these are complete.
            if !(left && railed) {
                notices.extend(cancel_notice);
            }
            if left {
                continue;
            }
            // Data that arrive for a get that has ended are dropped. The answer to an atomic operation counts
            // nevertheless. A get that was queued, and not counted as sent, has lost its id
            // (`tx::peer_requests::take`).
            if (*req).msg.is(Kind::GetReq) && (*req).id != 0 {
                answers::discount_cancelled(peer, &*req);
            }
            completion::complete(req, status);
        }
    }
    if peer.status() == UCS_OK {
        for (aux, id) in notices {
            tx::control(peer, Kind::RndvCancel, aux, id, &[]);
        }
    }
}

/// Leaves a request to a receiver whose device may be reading its data, until the receiver has answered: it completes
/// with this status then, or with the failure of the peer. False: the caller still owns it.
///
/// # Safety
/// The caller owns the request, which is of this peer and not complete.
unsafe fn cancel_remote(peer: &Peer, req: *mut Request, status: ucs_status_t) -> bool {
    let worker = peer.worker();
    // SAFETY: the caller's request.
    let r = unsafe { &mut *req };
    let offered = r.id;
    // Without an id it was not announced; without such a lane no device reads it.
    let by_key = || peer.resolves_keys().is_some();
    let by_driver = (r.transfer()).is_some_and(|t| matches!(t.tl, TlZcopy::Driver));
    let may_be_read = offered != 0 && (by_driver || by_key() || tx::zcopy::is_possible(peer));
    let Some(t) = r.transfer_mut() else {
        return false;
    };
    if t.role != ZcopyRole::Offer || !may_be_read {
        return false;
    }
    t.fate = ZcopyState::Ends(status);
    // The endpoint may be freed before the request completes. The changed kind refuses an RTR.
    r.ep = EndpointId::NONE;
    r.msg.set_kind(Kind::RndvCancelReq);
    // SAFETY: this thread owns the request until it has an id. A new id: an answer to the old one may be in flight, and
    // does not answer the cancel.
    let head = unsafe {
        SyncHdr {
            req: request::name(&worker.ids, req),
        }
    };
    tx::control(peer, Kind::RndvCancelReq, 0, offered, &head.encode());
    rndv::recheck_lost(peer);
    true
}

/// The id by which the peer has a request, if it works on it.
fn notice(r: &Request) -> Option<(u8, u64)> {
    match r.msg.kind() {
        // Without an id it was not announced.
        Some(Kind::TagRts | Kind::AmRts) if r.id != 0 => Some((OFFERED, r.id)),
        Some(Kind::Data) => Some((ASKED, r.msg.imm)),
        _ => None,
    }
}

/// Counts cancels: from here on the peer trusts no copy of the memory. In the same process the memory could be unmapped
/// during a copy: waits for that.
fn count(peer: &Peer, offers: u64) {
    let end = Instant::now() + COPY_TIME;
    let tx = peer.tx.lock();
    let Some(lane) = tx.lane.as_ref() else {
        return;
    };
    lane.count_cancelled(offers);
    while peer.same_process && lane.is_copied() && Instant::now() < end {
        std::thread::yield_now();
    }
}

/// Whether the RTS with this id was cancelled while it was in no list; returns true once.
pub fn was_cancelled(peer: &Peer, id: u64) -> bool {
    if peer.cma().cancels_seen() == 0 {
        return false;
    }
    let mut offers = peer.held_rts.lock();
    let is_withdrawn = offers.is_cancelled(id);
    offers.end_cancelled(id);
    is_withdrawn
}

/// Handles a cancel: of a message that the peer has announced, or of data that this side has requested.
pub fn on_cancelled(worker: &Worker, peer: &Peer, aux: u8, id: u64) {
    if aux == ASKED {
        if let Some(req) = super::req_lookup::take(worker, peer, id) {
            // SAFETY: the request was removed from the table: this thread owns it.
            unsafe { completion::complete(req, UCS_ERR_CONNECTION_RESET) };
        }
        return;
    }
    for req in forget_offer(worker, peer, id) {
        // SAFETY: the request was removed from all lists: this thread owns it.
        unsafe { completion::complete(req, UCS_ERR_CONNECTION_RESET) };
    }
}

/// Handles a cancel of a message that a device of this side may be reading: the peer waits for the answer.
pub fn on_cancel_reply(worker: &Worker, peer: &Peer, id: u64, answer: u64) {
    let mut reads = false;
    for req in forget_offer(worker, peer, id) {
        // SAFETY: the request was removed from all lists: this thread owns it. The id of the answer is set before the
        // request is left to the device, whose completion sends the answer.
        unsafe {
            if let Some(recv) = (*req).rndv_recv_mut() {
                recv.rts_id = answer;
            }
            if tx::zcopy::detach(peer, req, UCS_ERR_CONNECTION_RESET) {
                reads = true;
            } else {
                completion::complete(req, UCS_ERR_CONNECTION_RESET);
            }
        }
    }
    if !reads {
        rndv::acknowledge(peer, answer, UCS_OK);
    }
}

/// Removes a cancelled message: returns its receives, removed from all lists. A receive of a message that the user
/// holds finds that it [`was_cancelled`].
fn forget_offer(worker: &Worker, peer: &Peer, id: u64) -> Vec<*mut Request> {
    let receives = peer_requests::take(worker, peer, |r| r.is_receive_of(id));
    let mut matcher = worker.matcher.lock();
    let dropped = matcher.retain_unexpected(|u| match u.source {
        PayloadSource::Rts { peer: p, offer } => !(p.is(peer) && offer.req == id),
        _ => true,
    });
    drop(matcher);
    dropped.iter().for_each(|(_, u)| u.source.release());
    if receives.is_empty() && dropped.is_empty() {
        peer.held_rts.lock().cancel(id);
    }
    peer.cma().note_cancel();
    receives
}
