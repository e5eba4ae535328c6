//! Zero-copy transfers: devices access user memory directly until the transfer is complete or the lane is closed.
//!
//! A cancelled request completes for its user when its last work request is complete, or when the queue pair of a
//! failed peer is destroyed. A sender that writes into a receiver's memory reports the end by the same queue pair, and
//! a cancel too: the message arrives after all data that were written.

use super::{control, ib_stripe, iov_sge, set_message};
use crate::ctypes::*;
use crate::engine::peer::{Peer, PeerTx};
use crate::engine::ptr_map;
use crate::engine::request::{
    self, EndpointId, Extra, Request, TxPayload, TxState, Zcopy, ZcopyRole, ZcopyState,
};
use crate::proto::flush;
use crate::sys::regcache::Handle;
use crate::tl::Lane;
use crate::tl::ib::mr::IbMr;
use crate::tl::ib::rc::{RemoteMem, ZcopyDesc};
use crate::tl::ib::sender::IbSender;
use crate::wire::address::MAX_PORTS;
use crate::wire::header::{ASKED, Kind, RtrDeviceHdr, RtrHdr, UNNAMED};
use crate::wire::stats::StatProtocol;
use std::ptr;
use std::sync::atomic::Ordering;

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

/// Makes a request whose RTS was answered a put into the receiver's memory, for which `rkeys` are valid. Its data are
/// registered.
pub fn start_put(
    r: &mut Request,
    to: &RtrDeviceHdr,
    rkeys: [u32; MAX_PORTS],
    memory: Vec<Handle<IbMr>>,
) {
    set_message(r, Kind::Data, 0, to.recv, &[]);
    (r.sent, r.offset) = (TxState::Rma, 0);
    let mut transfer = Zcopy::new(memory, ZcopyRole::Deliver, to.addr);
    transfer.rkeys = rkeys;
    r.extra = Some(Box::new(Extra::Transfer(transfer)));
}

/// Makes a receive a get from the sender's memory at `addr`, by this key for this port of the sender, into its own
/// registered memory.
pub fn start_get(r: &mut Request, addr: u64, (port, key): (usize, u32), memory: Handle<IbMr>) {
    (r.sent, r.offset) = (TxState::Rma, 0);
    let mut transfer = Zcopy::new(vec![memory], ZcopyRole::Fetch, addr);
    transfer.rkeys[port] = key;
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

/// Posts as much of a transfer as there is room for, with this key of the peer if the connection has a queue pair; true
/// when that was all of it. `None`: the lane cannot execute it.
///
/// # Safety
/// The user's memory is valid until the request completes.
pub(super) unsafe fn advance(
    peer: &Peer,
    sender: &mut IbSender,
    req: *mut Request,
    key: Option<u32>,
) -> Option<bool> {
    // SAFETY: the caller's request is valid, and no other thread uses it.
    let r = unsafe { &mut *req };
    let (data, reads) = (r.data.as_contig(), r.is_read());
    let len = length(r);
    let recv = r.msg.imm;
    let offset = &mut r.offset;
    let Some(Extra::Transfer(t)) = r.extra.as_deref_mut() else {
        return None;
    };
    let keys = t.rkeys;
    if *offset == 0 && data.is_some() && !ib_stripe::begin(peer, sender, t, len, &keys) {
        return Some(false);
    }
    if t.on_rails {
        let piece = ZcopyDesc {
            ptr: data?,
            len,
            key: 0,
            reads,
            owner: Request::token(req),
        };
        let posted = ib_stripe::share_out(peer, sender, t, piece, offset, &keys);
        if posted {
            (t.fate, r.sent) = (ZcopyState::Posted, TxState::AwaitReply);
        }
        return Some(posted);
    }
    let key = key?;
    // The last write carries an immediate that reports the end, if the id of the receive is short enough.
    let word = match t.role {
        ZcopyRole::Deliver if len > 0 => ptr_map::brief(recv),
        _ => None,
    };
    while (*offset as usize) < len {
        let here = ZcopyDesc {
            ptr: data.map_or(ptr::null_mut(), |data| data.wrapping_add(*offset as usize)),
            len: len - *offset as usize,
            key: t.memory.first()?.region().local_key(sender.local_port())?,
            reads,
            owner: Request::token(req),
        };
        let there = RemoteMem {
            addr: t.there.wrapping_add(*offset),
            key,
        };
        let n = match data {
            Some(_) => sender.post_zcopy(here, there, word),
            None => {
                let list = (&r.data, &t.memory[..]);
                // SAFETY: the user promises that the list and the memory are valid.
                unsafe { iov_sge::post_iov(sender, list, *offset, here, there, word) }?
            }
        };
        if n == 0 {
            return Some(false);
        }
        *offset += n as u64;
        t.in_flight += 1;
    }
    let needs_atp = matches!(t.role, ZcopyRole::Deliver) && word.is_none();
    if needs_atp && !sender.send(Kind::Atp as u8, 0, recv, 0, |_| {}) {
        return Some(false);
    }
    t.fate = ZcopyState::Posted;
    // The completion is reported by the device, unless all of it is complete.
    r.sent = match t.in_flight {
        0 => TxState::Complete,
        _ => TxState::AwaitReply,
    };
    if let Some(protocol) = counted_as(t.role) {
        peer.stats().of(protocol).add(len);
    }
    Some(true)
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
/// The request is new, its data contiguous; the peer's lock is held.
pub(super) unsafe fn post_with_imm(
    peer: &Peer,
    sender: &mut IbSender,
    req: *mut Request,
    word: u32,
) -> bool {
    // SAFETY: the caller's request is valid, and no other thread uses it.
    let r = unsafe { &mut *req };
    let len = r.data.len();
    let (Some(ptr), Some(Extra::Transfer(t))) = (r.data.as_contig(), r.extra.as_deref_mut()) else {
        return false;
    };
    let longest = sender.zcopy_limits().bytes;
    let memory = t.memory.first();
    let local = memory.and_then(|memory| memory.region().local_key(sender.local_port()));
    let keys = t.rkeys;
    let theirs = keys.get(sender.remote_port()).filter(|&&key| key != 0);
    let one = len <= longest && ib_stripe::one_suffices(peer, t.role, len, &keys);
    let (Some(key), Some(&there), true) = (local, theirs, one) else {
        return false;
    };
    let (reads, owner) = (false, Request::token(req));
    let here = ZcopyDesc {
        ptr,
        len,
        key,
        reads,
        owner,
    };
    let to = RemoteMem {
        addr: t.there,
        key: there,
    };
    if sender.post_zcopy(here, to, Some(word)) == 0 {
        return false;
    }
    (t.in_flight, t.fate) = (1, ZcopyState::Posted);
    (r.offset, r.sent) = (len as u64, TxState::AwaitReply);
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
        request::complete(req, outcome(r));
        // Relaxed: set by the close that has left the request to the device, or that close completes the flushes
        // itself.
        if peer.force_closed.load(Ordering::Relaxed) {
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
        let transfer = unsafe { (*req).transfer() };
        if transfer.is_some_and(may_be_taken) && wanted(req) {
            set_state(req, ZcopyState::Taken);
            taken.push(req);
        }
    }
    taken
}

/// Whether a request may be ended early. A put or get of a TNI that was ended before keeps its status: the TNI reports
/// its completion.
fn may_be_taken(t: &Zcopy) -> bool {
    match t.fate {
        ZcopyState::Taken => false,
        ZcopyState::Ends(_) => t.tl.tofu.memory.is_none() || t.role != ZcopyRole::Access,
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

/// Closes the lane of a failed peer: no posted operation of either side takes effect any more. Returns the requests
/// that waited for the device and are in no other list.
pub fn drop_lane(peer: &Peer) -> Vec<*mut Request> {
    let mut tx = peer.tx.lock();
    let Some(Lane::Ib(sender)) = tx.lane.as_mut() else {
        return Vec::new();
    };
    let waiting = sender.detach_owner(|_| true).into_iter();
    let mut left: Vec<*mut Request> = waiting.map(Request::by_token).collect();
    let mut owners = zcopy_owners(&tx);
    owners.dedup();
    // That destroys the queue pair.
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
