//! Rendezvous that their senders take back: within a host a forced close gives the user his memory at once, while the
//! receiver may be copying from it.
//!
//! The sender counts in the ring what it takes back, before anybody is told that the memory is free, and says what it
//! was in messages. A receiver trusts a copy only if the count was, before and after, that of the messages it has seen.
//!
//! What the receiver's device may be reading the user gets back only when the receiver says that it does not.

use super::{failure, flush, rndv, tx};
use crate::ctypes::*;
use crate::engine::peer::Peer;
use crate::engine::request::{self, Request, ZcopyRole, ZcopyState};
use crate::engine::unexpected::PayloadSource;
use crate::engine::worker::Worker;
use crate::tl::Lane;
use crate::tl::shm::ring::CancelCounter;
use crate::wire::header::{ASKED, Kind, OFFERED, SyncHdr};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Longest time to wait for a copy inside of this process. One takes well under a millisecond.
const COPY_TIME: Duration = Duration::from_millis(200);

/// Ends requests that were taken out of every list before their time, and tells the peer of those that it works on.
///
/// # Safety
/// The requests are the caller's, of this peer, and have not ended.
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
        // SAFETY: the caller's promise.
        unsafe {
            if cancel_remote(peer, req, status) {
                continue;
            }
            let (told, railed) = (notice(&*req), tx::zcopy::is_railed(&*req));
            let left = tx::zcopy::detach(peer, req, status);
            // What comes by rails is not in front of what would be said now: it is said when it has ended.
            if !(left && railed) {
                notices.extend(told);
            }
            if left {
                continue;
            }
            // What comes for a read that has ended is not looked at. An atomic operation's answer counts all the same.
            if (*req).kind == Kind::GetReq as u8 && (*req).id != 0 {
                flush::given_up(peer, &*req);
            }
            request::complete(req, status);
        }
    }
    if peer.status() == UCS_OK {
        for (aux, id) in notices {
            tx::control(peer, Kind::Withdrawn, aux, id, &[]);
        }
    }
}

/// Leaves a request to a receiver whose device may be reading its data, until he has answered: it ends with this status
/// then, or with the connection. False: it is still the caller's.
///
/// # Safety
/// The request is the caller's, of this peer, and has not ended.
unsafe fn cancel_remote(peer: &Peer, req: *mut Request, status: ucs_status_t) -> bool {
    // SAFETY: the caller's request; peers do not outlive their worker.
    let (r, worker) = unsafe { (&mut *req, &*peer.worker) };
    let offered = r.id;
    // Without a name it was never offered; where no device gets there, none reads.
    let may_be_read = offered != 0 && (peer.has_rings() || tx::zcopy::is_possible(peer));
    let Some(t) = r.transfer_mut() else {
        return false;
    };
    if t.role != ZcopyRole::Offer || !may_be_read {
        return false;
    }
    t.fate = ZcopyState::Ends(status);
    // Its endpoint may be gone when it ends. Nobody may ask for the data any more.
    (r.ep, r.kind) = (std::ptr::null(), Kind::TakenBack as u8);
    // SAFETY: ours until it has a name. A new one: what the peer says to the old one may be under way, and is no
    // answer.
    let head = unsafe {
        SyncHdr {
            req: request::name(worker, req),
        }
    };
    tx::control(peer, Kind::TakenBack, 0, offered, &head.encode());
    rndv::recheck_lost(worker, peer);
    true
}

/// What the peer knows a request by, if it is at work on it.
fn notice(r: &Request) -> Option<(u8, u64)> {
    match Kind::from_u8(r.kind) {
        // Without a name it was never offered.
        Some(Kind::TagRts | Kind::AmRts) if r.id != 0 => Some((OFFERED, r.id)),
        Some(Kind::Data) => Some((ASKED, r.imm)),
        _ => None,
    }
}

/// From here on the peer trusts no copy that it makes of the memory. Within this process the memory could be gone while
/// it copies: waits for that.
fn count(peer: &Peer, offers: u64) {
    let end = Instant::now() + COPY_TIME;
    let tx = peer.tx.lock();
    let Some(Lane::Shm(outbox)) = tx.lane.as_ref() else {
        return; // nobody copies from memory on other hosts
    };
    outbox.withdrawals().take_back(offers);
    while peer.same_process && outbox.withdrawals().is_copied() && Instant::now() < end {
        std::thread::yield_now();
    }
}

/// A copy from a peer's memory.
pub struct CmaGuard<'a> {
    words: Option<&'a CancelCounter>,
    seen: u64,
}

impl<'a> CmaGuard<'a> {
    /// Begins one. `None`: something was taken back and we have not been told what: later.
    pub fn begin(peer: &'a Peer) -> Option<Self> {
        // SAFETY: the ring is part of the inbox, which outlives the peers.
        let words = unsafe { peer.cancels.load(Ordering::Acquire).as_ref() };
        // Acquire: pairs with the Release add in `on_cancelled`; what was taken back is remembered before.
        let seen = peer.cancels_seen.load(Ordering::Acquire);
        // Of this ring's. Relaxed: written before the ring is known.
        let seen = seen - peer.cancels_before.load(Ordering::Relaxed);
        let copy = Self { words, seen };
        if words.is_some_and(|w| w.begin_copy() != seen) {
            return None; // dropped: the copy ends
        }
        Some(copy)
    }

    /// Ends it. Whether what was copied is what the sender offered.
    pub fn end(self) -> bool {
        self.words.is_none_or(|w| w.count() == self.seen)
    }
}

impl Drop for CmaGuard<'_> {
    fn drop(&mut self) {
        if let Some(words) = self.words {
            words.end_copy();
        }
    }
}

/// Whether this offer was taken back while it was in no list; says so once.
pub fn was_cancelled(peer: &Peer, id: u64) -> bool {
    if peer.cancels_seen.load(Ordering::Acquire) == 0 {
        return false;
    }
    let mut offers = peer.held_rts.lock();
    let is_withdrawn = offers.is_cancelled(id);
    offers.end_cancelled(id);
    is_withdrawn
}

/// The peer takes back what it has offered, or will not send what we asked for.
pub fn on_cancelled(worker: &Worker, peer: &Peer, aux: u8, id: u64) {
    if aux == ASKED {
        if let Some(req) = super::req_lookup::take(worker, peer, id) {
            // SAFETY: out of the table: ours.
            unsafe { request::complete(req, UCS_ERR_CONNECTION_RESET) };
        }
        return;
    }
    for req in forget_offer(worker, peer, id) {
        // SAFETY: taken out of every list.
        unsafe { request::complete(req, UCS_ERR_CONNECTION_RESET) };
    }
}

/// The same of what our device may be reading: the peer waits to hear that it does not.
pub fn on_cancel_reply(worker: &Worker, peer: &Peer, id: u64, answer: u64) {
    let mut reads = false;
    for req in forget_offer(worker, peer, id) {
        // SAFETY: taken out of every list. Whoever ends it says who is to hear of that: before it is left to him.
        unsafe {
            (*req).imm = answer;
            match tx::zcopy::detach(peer, req, UCS_ERR_CONNECTION_RESET) {
                true => reads = true,
                false => request::complete(req, UCS_ERR_CONNECTION_RESET),
            }
        }
    }
    if !reads {
        rndv::acknowledge(peer, answer, UCS_OK);
    }
}

/// What a peer has offered is not to be had any more: the receives of it, taken out of every list. A receive of what
/// the user holds finds that it [`was_cancelled`].
fn forget_offer(worker: &Worker, peer: &Peer, id: u64) -> Vec<*mut Request> {
    let receives = failure::take_requests(worker, peer, |r| tx::zcopy::is_receive_of(r, id));
    let mut matcher = worker.matcher.lock();
    let dropped = matcher.retain_unexpected(|u| match u.source {
        PayloadSource::Rts { peer: p, offer } => !(std::ptr::eq(p, peer) && offer.req == id),
        _ => true,
    });
    drop(matcher);
    dropped.iter().for_each(|(_, u)| u.source.release());
    if receives.is_empty() && dropped.is_empty() {
        peer.held_rts.lock().cancel(id);
    }
    // Release: pairs with the Acquire loads in `CmaGuard::begin` and `was_cancelled`.
    peer.cancels_seen.fetch_add(1, Ordering::Release);
    receives
}
