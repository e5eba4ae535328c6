//! Zero-copy transfers: devices access user memory directly until the transfer is complete or the lane is closed.
//!
//! A cancelled request completes for its user when its last work request is complete, or when the queue pair of a
//! failed peer is destroyed. A sender that writes into a receiver's memory reports the end by the same queue pair, and
//! a cancel too: the message arrives after all data that were written.

use super::{control, enqueue_first, set_message};
use crate::ctypes::*;
use crate::engine::completion;
use crate::engine::peer::{Peer, PeerTx};
use crate::engine::pointers::EndpointId;
use crate::engine::ptr_map;
use crate::engine::request::{Extra, Request, TxPayload, TxState, Zcopy, ZcopyRole, ZcopyState};
use crate::proto::flush;
use crate::sys::cma::Spans;
use crate::tl::contract::RecordHdr;
use crate::tl::rail_event::RailEvent;
use crate::tl::rma::{RailWork, RmaKey, RmaPart, Striping};
use crate::tl::rma_ops::{RailHost, ZcopyPart};
use crate::tl::sink::LostPart;
use crate::tl::{Lane, TlContext, TlZcopy};
use crate::wire::header::{ASKED, Kind, RtrDeviceHdr, RtrHdr, UNNAMED};
use crate::wire::stats::StatProtocol;
use std::ptr;

/// Whether the HCAs of this process and of the peer can access each other's memory. Not for a worker's connection to
/// itself: the other queue pair would have to be destroyed too before memory is returned.
pub fn is_possible(peer: &Peer) -> bool {
    let own = peer.worker().uid;
    peer.uid != own && (peer.tx.lock().lane.as_ref()).is_some_and(Lane::can_put_zcopy)
}

/// The port of the peer to which the connection's own queue pair leads, if zcopy is possible.
pub fn port(peer: &Peer) -> Option<usize> {
    let own = peer.worker().uid;
    let port = || (peer.tx.lock().lane.as_ref()).and_then(Lane::remote_port);
    (peer.uid != own).then(port).flatten()
}

/// Makes a request whose RTS was answered a put into the receiver's memory, of which this is the key. Its data are
/// registered.
pub fn start_put(r: &mut Request, to: &RtrDeviceHdr, key: RmaKey, memory: TlZcopy) {
    set_message(r, Kind::Data, 0, to.recv, &[]);
    (r.sent, r.offset) = (TxState::Rma, 0);
    let transfer = Zcopy::new(memory, ZcopyRole::Deliver, to.addr, key);
    r.extra = Some(Box::new(Extra::Transfer(transfer)));
}

/// Makes a receive a get from the sender's memory at `addr` into its own registered memory.
pub fn start_get(r: &mut Request, addr: u64, key: RmaKey, memory: TlZcopy) {
    (r.sent, r.offset) = (TxState::Rma, 0);
    let transfer = Zcopy::new(memory, ZcopyRole::Fetch, addr, key);
    r.extra = Some(Box::new(Extra::Transfer(transfer)));
}

/// Makes such a receive one by messages: an RTR that requests them.
pub(super) fn rtr_am(r: &mut Request) {
    let offer = r.rndv_recv().rts_id;
    let head = RtrHdr {
        recv: UNNAMED,
        generation: 0,
        number: 0,
    };
    set_message(r, Kind::Rtr, 0, offer, &head.encode());
    (r.sent, r.payload, r.offset) = (TxState::AwaitReply, TxPayload::HeaderOnly, 0);
    r.extra = None;
}

/// Makes a put of a rendezvous one by messages, which name the receiver's request.
pub fn fall_back_to_am(r: &mut Request, recv: u64) {
    set_message(r, Kind::Data, 0, recv, &[]);
    (r.sent, r.payload, r.offset) = (TxState::Complete, TxPayload::Fragments, 0);
    r.extra = None;
}

/// Posts as much of a transfer as there is room for; true when that was all of it. `None`: the lane cannot execute it.
///
/// # Safety
/// The user's memory is valid until the request completes.
pub(super) unsafe fn advance(peer: &Peer, lane: &mut Lane, req: *mut Request) -> Option<bool> {
    // SAFETY: the caller's request is valid, and no other thread uses it.
    let r = unsafe { &mut *req };
    let (role, recv, len) = (r.transfer()?.role, r.msg.imm, length(r));
    // The last write carries an immediate that reports the end, if the id of the receive is short enough.
    let word = match role {
        ZcopyRole::Deliver if len > 0 => ptr_map::brief(recv),
        _ => None,
    };
    // SAFETY: the caller's promise.
    let posted = unsafe { with_part(peer, req, (len, word), |part| lane.rma_zcopy(part)) };
    if !posted?? {
        return Some(false);
    }
    // SAFETY: the caller's request is valid, and no other thread uses it.
    let r = unsafe { &mut *req };
    let Some(Extra::Transfer(t)) = r.extra.as_deref_mut() else {
        return None;
    };
    let waits = t.on_rails || t.in_flight > 0;
    if role == ZcopyRole::Deliver && !t.on_rails && word.is_none() && !report_end(lane, recv) {
        return Some(false);
    }
    t.fate = ZcopyState::Posted;
    // What rails have moved is counted at its end.
    let protocol = counted_as(role).filter(|_| !t.on_rails);
    // The completion is reported by the device, unless all of it is complete.
    r.sent = if waits {
        TxState::AwaitReply
    } else {
        TxState::Complete
    };
    if let Some(protocol) = protocol {
        peer.stats().of(protocol).add(len);
    }
    Some(true)
}

/// Sends an ATP behind the data of a put. False: there is no room now.
fn report_end(lane: &mut Lane, recv: u64) -> bool {
    let hdr = RecordHdr {
        kind: Kind::Atp as u8,
        aux: 0,
        imm: recv,
    };
    lane.am_bcopy(hdr, 0, |_| {}) == Ok(true)
}

impl RailHost for Peer {
    fn context(&self) -> &TlContext {
        &self.worker().ctx.tl
    }

    fn raise(&self, work: RailWork) {
        let event = match work {
            RailWork::Request => RailEvent::RequestRails,
            RailWork::Close(rail) => RailEvent::LocalFailure(rail),
        };
        self.worker().raise_rails(self, event);
    }
}

/// Calls `post` with what is to be posted of a transfer of `len` bytes, with this immediate behind them. `None`: the
/// request has none.
///
/// # Safety
/// The request is valid, no other thread uses it, and its memory is valid.
#[inline(always)]
unsafe fn with_part<R>(
    peer: &Peer,
    req: *mut Request,
    (len, word): (usize, Option<u32>),
    post: impl FnOnce(ZcopyPart<'_>) -> R,
) -> Option<R> {
    // SAFETY: the caller's request.
    let r = unsafe { &mut *req };
    let writes = !r.is_read();
    let Some(Extra::Transfer(t)) = r.extra.as_deref_mut() else {
        return None;
    };
    let (data, mut list) = (r.data.in_one_piece(), None);
    if data.is_none() {
        let spans = list.insert(Spans::new());
        // SAFETY: the caller's list of pieces is valid.
        unsafe { r.data.spans(0, len, spans) };
    }
    let part = ZcopyPart {
        rma: RmaPart {
            writes,
            data: data.unwrap_or(ptr::null_mut()),
            len,
            token: Request::token(req),
            addr: t.there,
            key: &t.key,
            offset: &mut r.offset,
            outstanding: &mut t.in_flight,
        },
        pieces: list.as_ref().map(Spans::as_slice),
        word,
        striping: match t.role {
            ZcopyRole::Access => Striping::Rma,
            ZcopyRole::Deliver => Striping::Rndv,
            ZcopyRole::Fetch | ZcopyRole::Receive | ZcopyRole::Offer => Striping::Never,
        },
        on_rails: &mut t.on_rails,
        tl: &mut t.tl,
        host: peer,
    };
    Some(post(part))
}

/// The protocol under which the initiator of a transfer counts it; `None`: the sender of the message counts it.
fn counted_as(role: ZcopyRole) -> Option<StatProtocol> {
    match role {
        ZcopyRole::Deliver => Some(StatProtocol::RndvCopy),
        ZcopyRole::Access => Some(StatProtocol::RmaCopy),
        ZcopyRole::Fetch | ZcopyRole::Receive | ZcopyRole::Offer => None,
    }
}

/// Posts a put in one work request with an immediate; false if it needs more, or there is no room now.
///
/// # Safety
/// The request is new; the peer's lock is held.
pub(super) unsafe fn post_with_imm(
    peer: &Peer,
    lane: &mut Lane,
    req: *mut Request,
    word: u32,
) -> bool {
    // SAFETY: the caller's request is valid, and no other thread uses it.
    let r = unsafe { &mut *req };
    let len = r.data.len();
    if r.data.as_contig().is_none() {
        return false;
    }
    // SAFETY: the caller's request.
    let posted = unsafe {
        with_part(peer, req, (len, Some(word)), |part| {
            lane.put_zcopy_with_imm(part)
        })
    };
    // SAFETY: the caller's request is valid, and no other thread uses it.
    let r = unsafe { &mut *req };
    let (len, Some(t)) = (
        r.data.len(),
        r.transfer_mut().filter(|_| posted == Some(true)),
    ) else {
        return false;
    };
    (t.fate, r.sent) = (ZcopyState::Posted, TxState::AwaitReply);
    peer.stats().of(StatProtocol::RmaCopy).add(len);
    true
}

/// Bytes of a transfer: the memory of a receive may be longer.
pub(super) fn length(r: &Request) -> usize {
    match r.transfer().map(|t| t.role) {
        Some(ZcopyRole::Fetch) => r.info.length,
        _ => r.data.len(),
    }
}

/// Completes a request whose operations are complete. The peer is notified of a get of its memory, and of transfers on
/// rails; others are reported by a message that was posted behind them.
///
/// # Safety
/// The request is in no list, and none of its operations is outstanding.
#[inline(never)]
pub unsafe fn end(req: *mut Request) {
    // SAFETY: the caller's request.
    unsafe {
        let r = &*req;
        let peer = r.peer();
        if r.transfer().map(|t| t.role) == Some(ZcopyRole::Fetch) && peer.status() == UCS_OK {
            control(
                peer,
                Kind::Ats,
                UCS_OK as i8 as u8,
                r.rndv_recv().rts_id,
                &[],
            );
        }
        if is_railed(r) && peer.status() == UCS_OK {
            let len = r.data.len();
            match r.transfer().map(|t| (t.role, t.fate)) {
                Some((ZcopyRole::Deliver, ZcopyState::Ends(_))) => {
                    control(peer, Kind::RndvCancel, ASKED, r.msg.imm, &[]);
                }
                Some((ZcopyRole::Deliver, _)) => {
                    peer.stats().of(StatProtocol::RndvCopy).add(len);
                    control(peer, Kind::Atp, 0, r.msg.imm, &[]);
                }
                _ => peer.stats().of(StatProtocol::RmaCopy).add(len),
            }
        }
        completion::complete(req, outcome(r));
        // Set by the close that has left the request to the device, or that close completes the flushes
        // itself.
        if peer.is_force_closed() {
            flush::abandon(peer.worker(), peer);
        }
    }
}

/// Whether parts of a request were posted on rails.
pub fn is_railed(r: &Request) -> bool {
    r.transfer().is_some_and(|t| t.on_rails)
}

/// Counts a completed work request. Returns whether the request waits for no more.
pub(super) fn wr_done(t: &mut Zcopy) -> bool {
    t.in_flight = t.in_flight.saturating_sub(1);
    t.in_flight == 0 && matches!(t.fate, ZcopyState::Posted | ZcopyState::Ends(_))
}

/// Status of a request without outstanding operations.
pub fn outcome(r: &Request) -> ucs_status_t {
    match r.transfer().map(|t| t.fate) {
        Some(ZcopyState::Ends(status)) => status,
        _ => UCS_OK,
    }
}

/// Removes the requests with outstanding transfers that `wanted` selects. The caller ends them, by [`detach`] first.
pub fn take(tx: &PeerTx, wanted: impl Fn(*mut Request) -> bool) -> Vec<*mut Request> {
    let mut taken = Vec::new();
    for req in zcopy_owners(tx) {
        // SAFETY: requests of outstanding transfers are not freed; the lock is held.
        if wanted(req) && unsafe { take_one(req) } {
            taken.push(req);
        }
    }
    taken
}

/// Removes a request with an outstanding transfer. Returns whether it may be ended early: then the caller ends it, by
/// [`detach`] first.
///
/// # Safety
/// The request is not complete. The lock of its peer's `tx` is held.
pub(super) unsafe fn take_one(req: *mut Request) -> bool {
    // SAFETY: the caller's promise.
    let may = unsafe { (*req).transfer() }.is_some_and(may_be_taken);
    if may {
        set_state(req, ZcopyState::Taken);
    }
    may
}

/// Whether a request may be ended early. A put or get that was ended before keeps its status if its device reports its
/// completion.
fn may_be_taken(t: &Zcopy) -> bool {
    match t.fate {
        ZcopyState::Taken => false,
        ZcopyState::Ends(_) => !t.tl.keeps_status() || t.role != ZcopyRole::Access,
        ZcopyState::Going | ZcopyState::Posted => true,
    }
}

/// Whether devices access memory of requests.
pub fn any(tx: &PeerTx) -> bool {
    !zcopy_owners(tx).is_empty()
}

/// Requests with outstanding transfers, some of them more than once.
fn zcopy_owners(tx: &PeerTx) -> Vec<*mut Request> {
    let tokens = tx.lane.as_ref().map(Lane::zcopy_tokens);
    let tokens = tokens.unwrap_or_default().into_iter();
    tokens.map(Request::by_token).collect()
}

fn set_state(req: *mut Request, fate: ZcopyState) {
    // SAFETY: the caller's request; its peer's lock is held.
    if let Some(t) = unsafe { (*req).transfer_mut() } {
        t.fate = fate;
    }
}

/// Leaves a removed request to the device, if that still accesses its memory: it completes with this status afterwards.
/// False: the caller still owns it.
///
/// # Safety
/// The caller owns the request, which is of this peer and not complete.
pub unsafe fn detach(peer: &Peer, req: *mut Request, status: ucs_status_t) -> bool {
    // SAFETY: the caller's request is valid, and no other thread uses it.
    if unsafe { (*req).transfer() }.is_none() {
        return false;
    }
    let _tx = peer.tx.lock();
    // SAFETY: the caller's request is valid, and no other thread uses it.
    let r = unsafe { &mut *req };
    let flying = r.transfer().is_some_and(|t| t.in_flight > 0);
    if flying {
        // The endpoint may be freed before the request completes.
        r.ep = EndpointId::NONE;
        set_state(req, ZcopyState::Ends(status));
    }
    flying
}

/// Whether a device of this process or of the peer may still access the memory of a removed request.
pub fn in_flight(r: &Request) -> bool {
    r.transfer().is_some_and(|t| match t.role {
        ZcopyRole::Receive => true,
        // Without an id it was not announced to the peer.
        ZcopyRole::Offer => r.id != 0,
        _ => t.in_flight > 0,
    })
}

/// Closes the lane of a failed peer, if that stops its device: no posted operation of either side takes effect any
/// more. Returns the requests that waited for the device and are in no other list.
pub fn drop_lane(peer: &Peer) -> Vec<*mut Request> {
    let mut tx = peer.tx.lock();
    let Some(lane) = tx.lane.as_mut().filter(|lane| lane.stops_when_dropped()) else {
        return Vec::new();
    };
    let waiting = lane.detach(|_| true).into_iter();
    let mut left: Vec<*mut Request> = waiting.map(Request::by_token).collect();
    let mut owners = zcopy_owners(&tx);
    owners.dedup();
    tx.lane = None;
    owners.retain(|&req| {
        // SAFETY: requests of outstanding transfers are not freed while the lock is held.
        let transfer = unsafe { (*req).transfer_mut() };
        transfer.is_some_and(|t| {
            t.in_flight = 0;
            t.fate != ZcopyState::Taken
        })
    });
    left.extend(owners);
    left
}

/// Queues the parts of a rail that was given up for the other rails, before all pending requests. Returns the requests
/// that are complete without them.
pub fn move_again(peer: &Peer, tx: &mut PeerTx, lost: &[LostPart]) -> Vec<*mut Request> {
    let mut ended = Vec::new();
    for part in lost {
        let req = Request::by_token(part.token);
        // SAFETY: requests of outstanding work requests are not freed, and the lock is held.
        let r = unsafe { &mut *req };
        let Some(data) = r.data.in_one_piece() else {
            continue;
        };
        let Some(t) = r.transfer_mut() else { continue };
        t.in_flight -= 1;
        match t.fate {
            ZcopyState::Going | ZcopyState::Posted => {
                t.tl.post_again(part.addr - data as u64, part.len);
                if t.fate == ZcopyState::Posted {
                    t.fate = ZcopyState::Going;
                    r.sent = TxState::Rma;
                    // A fence may be queued that waits for all of the transfer.
                    // SAFETY: the request is complete in all fields, and in no queue: all of it was posted.
                    unsafe { enqueue_first(peer, tx, req) };
                }
            }
            ZcopyState::Ends(_) if t.in_flight == 0 => ended.push(req),
            ZcopyState::Ends(_) | ZcopyState::Taken => {}
        }
    }
    ended
}
