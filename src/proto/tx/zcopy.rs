//! Transfers in the user's own memory: he has left it to the device, and gets it back when that has done, or can do
//! nothing any more.
//!
//! A request that is ended before its time ends for its user no sooner than its last work request, or the queue pair,
//! which fails with a peer that is lost. Who writes into a receiver's memory says so by the same queue pair, and so
//! does who writes no more: what it says arrives behind all that it has written.

use super::{control, ib_stripe, iov_sge, rma_ib, set_message};
use crate::ctypes::*;
use crate::engine::peer::{Peer, PeerTx};
use crate::engine::ptr_map;
use crate::engine::request::{self, Extra, Request, TxState, Zcopy, ZcopyRole, ZcopyState};
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

/// Whether a device works straight in this peer's memory, and its device in ours. What a worker sends to itself comes
/// back by another queue pair, which would have to go, too, before memory is given back.
pub fn is_possible(peer: &Peer) -> bool {
    // SAFETY: peers do not outlive their worker.
    let own = unsafe { &*peer.worker }.uid;
    let lends = |lane: &Lane| matches!(lane, Lane::Ib(sender) if sender.zcopy_capable());
    peer.uid != own && peer.tx.lock().lane.as_ref().is_some_and(lends)
}

/// The port of the peer's that the connection's own queue pair leads to, if it is possible by that.
pub fn port(peer: &Peer) -> Option<usize> {
    // SAFETY: peers do not outlive their worker.
    let own = unsafe { &*peer.worker }.uid;
    match &peer.tx.lock().lane {
        Some(Lane::Ib(sender)) if sender.is_connected() && peer.uid != own => {
            Some(sender.remote_port())
        }
        _ => None,
    }
}

/// Makes a request whose offer was taken a transfer into the receiver's memory. Its data is registered.
pub fn start_put(r: &mut Request, to: RtrDeviceHdr, memory: Vec<Handle<IbMr>>) {
    set_message(r, Kind::Data, 0, to.recv, &to.keys.to_le_bytes());
    (r.sent, r.stream, r.bare, r.offset) = (TxState::Device, true, true, 0);
    let transfer = Zcopy::new(memory, ZcopyRole::Deliver, to.addr);
    r.extra = Some(Box::new(Extra::Transfer(transfer)));
}

/// Makes a receive one that reads the sender's memory, by this key for this port of the sender's, into its own, which
/// is registered.
pub fn start_get(r: &mut Request, (port, key): (usize, u32), memory: Handle<IbMr>) {
    const KEY: usize = size_of::<u32>();
    r.head[port * KEY..][..KEY].copy_from_slice(&key.to_le_bytes());
    r.head_len = port as u8 + 1;
    (r.sent, r.stream, r.kind, r.offset) = (TxState::Device, false, 0, 0);
    // `remote_id` is a link when the device has done.
    (r.imm, r.remote_id) = (r.remote_id, 0);
    let transfer = Zcopy::new(vec![memory], ZcopyRole::Fetch, r.remote);
    r.extra = Some(Box::new(Extra::Transfer(transfer)));
}

/// Makes such a one a question for messages, and their receive.
pub(super) fn rtr_am(r: &mut Request) {
    let offer = r.imm;
    let head = RtrHdr {
        recv: UNNAMED,
        generation: 0,
        number: 0,
    };
    set_message(r, Kind::Rtr, 0, offer, &head.encode());
    (r.sent, r.bare, r.offset, r.remote_id) = (TxState::Await, true, 0, offer);
    r.extra = None;
}

/// Whether it is the receive of what its sender offered by this name.
pub fn is_receive_of(r: &Request, offer: u64) -> bool {
    let fetches = || r.transfer().is_some_and(|t| t.role == ZcopyRole::Fetch);
    let asks = r.kind == Kind::Rtr as u8;
    (r.kind == 0 || asks) && r.remote_id == offer || r.imm == offer && fetches()
}

/// Makes it one by messages.
pub fn fall_back_to_am(r: &mut Request) {
    let recv = r.imm;
    set_message(r, Kind::Data, 0, recv, &[]);
    (r.sent, r.stream, r.bare, r.offset) = (TxState::Complete, true, false, 0);
    r.extra = None;
}

/// Posts as much of a transfer as there is room for, by this key of the peer's if the connection has a queue pair; true
/// when that was all of it. `None`: no device does that.
///
/// # Safety
/// The request's memory is the user's promise until it ends.
pub(super) unsafe fn advance(
    peer: &Peer,
    sender: &mut IbSender,
    req: *mut Request,
    key: Option<u32>,
) -> Option<bool> {
    // SAFETY: the caller's request.
    let r = unsafe { &mut *req };
    let (data, reads) = (r.data.as_contig(), !r.stream);
    let len = length(r);
    let recv = r.imm;
    let keys: [u32; MAX_PORTS] = keys_of(r);
    let offset = &mut r.offset;
    let Some(Extra::Transfer(t)) = r.extra.as_deref_mut() else {
        return None;
    };
    if *offset == 0 && data.is_some() && !ib_stripe::begin(peer, sender, t, len, &keys) {
        return Some(false);
    }
    if t.on_rails {
        let piece = ZcopyDesc {
            ptr: data?,
            len,
            key: 0,
            reads,
            owner: req.cast(),
        };
        let posted = ib_stripe::share_out(peer, sender, t, piece, offset, &keys);
        if posted {
            (t.fate, r.sent) = (ZcopyState::Posted, TxState::Await);
        }
        return Some(posted);
    }
    let key = key?;
    // With the last bytes goes the word that all are there, if the name of the receive is short enough for that.
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
            owner: req.cast(),
        };
        let there = RemoteMem {
            addr: t.there.wrapping_add(*offset),
            key,
        };
        let n = match data {
            Some(_) => sender.post_zcopy(here, there, word),
            None => {
                let list = (&r.data, &t.memory[..]);
                // SAFETY: the list is the user's promise, as the memory is.
                unsafe { iov_sge::post_iov(sender, list, *offset, here, there, word) }?
            }
        };
        if n == 0 {
            return Some(false);
        }
        *offset += n as u64;
        t.in_flight += 1;
    }
    let protocol = match t.role {
        ZcopyRole::Deliver => {
            if word.is_none() && !sender.send(Kind::Written as u8, 0, recv, 0, |_| {}) {
                return Some(false);
            }
            Some(StatProtocol::RndvCopy)
        }
        ZcopyRole::Access => Some(StatProtocol::RmaCopy),
        // Its sender counts it.
        ZcopyRole::Fetch | ZcopyRole::Receive | ZcopyRole::Offer => None,
    };
    t.fate = ZcopyState::Posted;
    // The end is the device's to tell, unless it has told.
    r.sent = match t.in_flight {
        0 => TxState::Complete,
        _ => TxState::Await,
    };
    if let Some(protocol) = protocol {
        peer.stats().of(protocol).add(len);
    }
    Some(true)
}

/// Posts a put in one work request, and the word that the peer gets behind it; false if it takes more, or there is no
/// room now.
///
/// # Safety
/// The request is new, its data one piece; the peer's lock is held.
pub(super) unsafe fn post_with_imm(
    peer: &Peer,
    sender: &mut IbSender,
    req: *mut Request,
    word: u32,
) -> bool {
    // SAFETY: the caller's request.
    let r = unsafe { &mut *req };
    let (len, keys) = (r.data.len(), keys_of(r));
    let (Some(ptr), Some(Extra::Transfer(t))) = (r.data.as_contig(), r.extra.as_deref_mut()) else {
        return false;
    };
    let (_, longest) = sender.zcopy_limits();
    let memory = t.memory.first();
    let local = memory.and_then(|memory| memory.region().local_key(sender.local_port()));
    let theirs = keys.get(sender.remote_port()).filter(|&&key| key != 0);
    let one = len <= longest && ib_stripe::one_suffices(peer, t.role, len, &keys);
    let (Some(key), Some(&there), true) = (local, theirs, one) else {
        return false;
    };
    let (reads, owner) = (false, req.cast());
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
    (r.offset, r.sent) = (len as u64, TxState::Await);
    peer.stats().of(StatProtocol::RmaCopy).add(len);
    true
}

/// Bytes of a transfer: a receive's memory may be longer.
pub(super) fn length(r: &Request) -> usize {
    match r.transfer().map(|t| t.role) {
        Some(ZcopyRole::Fetch) => r.info.length,
        _ => r.data.len(),
    }
}

/// The peer's keys, one for each of its ports.
fn keys_of(r: &Request) -> [u32; MAX_PORTS] {
    std::array::from_fn(|port| rma_ib::key(r, port).unwrap_or(0))
}

/// Ends a request that the device has done with. The peer hears of what was read of its memory, and of what went by
/// rails, as it does of the rest by what is posted behind it.
///
/// # Safety
/// The request is in no list, and nothing of it is under way.
#[inline(never)]
pub unsafe fn end(req: *mut Request) {
    // SAFETY: the caller's request, whose peer is not freed before it has ended.
    unsafe {
        let r = &*req;
        let peer = &*r.peer;
        if r.transfer().map(|t| t.role) == Some(ZcopyRole::Fetch) && peer.status() == UCS_OK {
            control(peer, Kind::Ats, UCS_OK as i8 as u8, r.imm, &[]);
        }
        if is_railed(r) && peer.status() == UCS_OK {
            let len = r.data.len();
            match r.transfer().map(|t| (t.role, t.fate)) {
                Some((ZcopyRole::Deliver, ZcopyState::Ends(_))) => {
                    control(peer, Kind::Withdrawn, ASKED, r.imm, &[]);
                }
                Some((ZcopyRole::Deliver, _)) => {
                    peer.stats().of(StatProtocol::RndvCopy).add(len);
                    control(peer, Kind::Written, 0, r.imm, &[]);
                }
                _ => peer.stats().of(StatProtocol::RmaCopy).add(len),
            }
        }
        request::complete(req, outcome(r));
        // Relaxed: set by the close that left the request to the device, or that one ends what waits here.
        if peer.force_closed.load(Ordering::Relaxed) {
            flush::abandon(&*peer.worker, peer);
        }
    }
}

/// Whether parts of a request went by rails.
pub fn is_railed(r: &Request) -> bool {
    r.transfer().is_some_and(|t| t.on_rails)
}

/// A work request has ended; whether the request waited for no more.
pub(super) fn wr_done(t: &mut Zcopy) -> bool {
    t.in_flight = t.in_flight.saturating_sub(1);
    t.in_flight == 0 && matches!(t.fate, ZcopyState::Posted | ZcopyState::Ends(_))
}

/// How a request ends of which nothing is under way any more.
pub fn outcome(r: &Request) -> ucs_status_t {
    match r.transfer().map(|t| t.fate) {
        Some(ZcopyState::Ends(status)) => status,
        _ => UCS_OK,
    }
}

/// Takes out the requests whose memory the device works on and that `wanted` selects. The caller sees to their ends, by
/// [`detach`] first.
pub fn take(tx: &PeerTx, wanted: impl Fn(*mut Request) -> bool) -> Vec<*mut Request> {
    let mut taken = Vec::new();
    for req in zcopy_owners(tx) {
        // SAFETY: what the device works on lives; the lock is held.
        let transfer = unsafe { (*req).transfer() };
        if transfer.is_some_and(may_be_taken) && wanted(req) {
            set_state(req, ZcopyState::Taken);
            taken.push(req);
        }
    }
    taken
}

/// What an adapter of the Tofu interconnect works on after it has ended keeps the end that it was given: the adapter
/// tells of it.
fn may_be_taken(t: &Zcopy) -> bool {
    match t.fate {
        ZcopyState::Taken => false,
        ZcopyState::Ends(_) => t.steered.is_none() || t.role != ZcopyRole::Access,
        ZcopyState::Going | ZcopyState::Posted => true,
    }
}

/// Whether a device works on memory of requests.
pub fn any(tx: &PeerTx) -> bool {
    !zcopy_owners(tx).is_empty()
}

/// Requests whose memory the device works on, some of them more than once.
fn zcopy_owners(tx: &PeerTx) -> Vec<*mut Request> {
    match &tx.lane {
        Some(Lane::Ib(sender)) => sender.zcopy_owners().map(|owner| owner.cast()).collect(),
        Some(Lane::Tofu(sender)) => {
            let owners = sender.zcopy_owners().into_iter();
            owners.map(|owner| owner.cast()).collect()
        }
        _ => Vec::new(),
    }
}

fn set_state(req: *mut Request, fate: ZcopyState) {
    // SAFETY: a request of the caller's, whose peer's lock is held.
    if let Some(t) = unsafe { (*req).transfer_mut() } {
        t.fate = fate;
    }
}

/// Leaves a request that was taken out to the device, if that still works on its memory: it ends with this status
/// afterwards. False: it is still the caller's.
///
/// # Safety
/// The request is the caller's, of this peer, and has not ended.
pub unsafe fn detach(peer: &Peer, req: *mut Request, status: ucs_status_t) -> bool {
    // SAFETY: the caller's request.
    if unsafe { (*req).transfer() }.is_none() {
        return false;
    }
    let _tx = peer.tx.lock();
    // SAFETY: as above.
    let r = unsafe { &mut *req };
    let flying = r.transfer().is_some_and(|t| t.in_flight > 0);
    if flying {
        // Its endpoint may be gone when it ends.
        r.ep = ptr::null();
        set_state(req, ZcopyState::Ends(status));
    }
    flying
}

/// Whether a device, ours or the peer's, may still be at work on the memory of a request that was taken out.
pub fn in_flight(r: &Request) -> bool {
    r.transfer().is_some_and(|t| match t.role {
        ZcopyRole::Receive => true,
        // Without a name nobody was offered it.
        ZcopyRole::Offer => r.id != 0,
        _ => t.in_flight > 0,
    })
}

/// Drops the lane of a peer that is lost: nothing that it or we have posted takes effect any more. The requests that
/// waited for the device, which nobody else has taken.
pub fn drop_lane(peer: &Peer) -> Vec<*mut Request> {
    let mut tx = peer.tx.lock();
    let Some(Lane::Ib(sender)) = tx.lane.as_mut() else {
        return Vec::new();
    };
    let waiting = sender.detach_owner(|_| true).into_iter();
    let mut left: Vec<*mut Request> = waiting.map(|owner| owner.cast()).collect();
    let mut lenders = zcopy_owners(&tx);
    lenders.dedup();
    // The queue pair is reset by that.
    tx.lane = None;
    lenders.retain(|&req| {
        // SAFETY: what the device worked on lives until the lock is free.
        let transfer = unsafe { (*req).transfer_mut() };
        transfer.is_some_and(|t| {
            t.in_flight = 0;
            t.fate != ZcopyState::Taken
        })
    });
    left.extend(lenders);
    left
}
