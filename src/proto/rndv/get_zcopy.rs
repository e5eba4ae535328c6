//! Rendezvous by reading: the sender registers its memory before it is offered, and the offer says by which keys it can
//! be read. The receiver's device reads it, and the acknowledgement that ends every rendezvous follows: the sender need
//! not progress meanwhile.
//!
//! Where memory cannot be registered, or no queue pair leads to the sender, the receiver asks as it does without keys.
//! Over the Tofu interconnect an offer names the memory by its steering address for the sender's queue, and in place of
//! keys come a mark for that and the steering addresses for the sender's rails (`wire::rts_keys`), which are kept
//! beside the offer until somebody receives it.

use super::get_cma::GetStep;
use crate::engine::ib_mr::MrUse;
use crate::engine::peer::{Peer, QpTransport};
use crate::engine::request::{Extra, Request, Zcopy, ZcopyRole};
use crate::engine::rndv_rts::RtsInfo;
use crate::engine::worker::Worker;
use crate::proto::tx::{self, PostResult, rma_tofu, tofu_stripe, zcopy};
use crate::sys::regcache::Handle;
use crate::tl::tofu::mr::{self, TofuMr};
use crate::wire::address::MAX_PORTS;
use crate::wire::rts_keys::{self, RailStadds};

/// Bytes of a key.
const KEY: usize = size_of::<u32>();

/// Bytes that so many keys take in an offer.
pub const fn bytes(count: u8) -> usize {
    count as usize * KEY
}

/// Registers what is to be offered for the receiver's device and puts the keys in front of the user's header: how many,
/// one for each of our ports; 0: it is not offered that way. And where the receiver finds the memory that is at `addr`.
///
/// # Safety
/// The request is new, its data and peer are set, and `tail_len` bytes are readable at `tail`.
pub(super) unsafe fn offer(worker: &Worker, r: &mut Request, addr: u64) -> (u8, u64) {
    // SAFETY: the peer of a request is not freed before the request has ended.
    let peer = unsafe { &*r.peer };
    if peer.has_rings() {
        let Some((memory, source)) = register_tofu(worker, peer, r) else {
            return (0, addr);
        };
        let addr = mr::stadd(&memory, source);
        let mut transfer = Zcopy::new(Vec::new(), ZcopyRole::Offer, 0);
        transfer.steered = Some(memory);
        transfer.shares = tofu_stripe::to_offer(worker, peer, (source, r.data.len()));
        let there = transfer.shares.iter().map(|s| (s.rail, s.there));
        let keys = RailStadds::of(there).encode();
        // SAFETY: the caller's promise.
        return (unsafe { put_keys(r, keys, transfer) }, addr);
    }
    if !worker.ctx.policy.rndv_reads || !may_be_read(worker, peer) {
        return (0, addr);
    }
    let source = r.data.as_contig();
    let Some(memory) =
        source.and_then(|from| worker.register_ib(from, r.data.len(), MrUse::ReadByPeer))
    else {
        return (0, addr);
    };
    let keys: [u32; MAX_PORTS] = memory.region().remote_keys();
    let count = worker.ctx.ports.len().min(MAX_PORTS);
    let transfer = Zcopy::new(vec![memory], ZcopyRole::Offer, 0);
    let keys = keys[..count].iter().flat_map(|k| k.to_le_bytes());
    // SAFETY: the caller's promise.
    (unsafe { put_keys(r, keys.collect(), transfer) }, addr)
}

/// What is to be offered over the Tofu interconnect, registered for our queue, and where it begins.
fn register_tofu(worker: &Worker, peer: &Peer, r: &Request) -> Option<(Handle<TofuMr>, *const u8)> {
    let source = r.data.as_contig()?;
    if worker.ctx.policy.rndv_by_messages || peer.uid == worker.uid {
        return None;
    }
    let memory = worker.register_tofu(source, r.data.len(), false)?;
    Some((memory, source))
}

/// Puts keys in front of the user's header: how many.
///
/// # Safety
/// As of [`offer`].
unsafe fn put_keys(r: &mut Request, keys: Vec<u8>, transfer: Zcopy) -> u8 {
    let count = keys.len() / KEY;
    let mut tail = keys;
    if r.tail_len > 0 {
        // SAFETY: the caller's promise.
        tail.extend(unsafe { std::slice::from_raw_parts(r.tail, r.tail_len as usize) });
    }
    r.tail_len = tail.len() as u32;
    r.tail = Box::into_raw(tail.into_boxed_slice()).cast();
    r.tail_owned = true;
    r.extra = Some(Box::new(Extra::Transfer(transfer)));
    count as u8
}

/// Whether a queue pair leads to a peer, or will, as far as is known. What a worker sends to itself is copied.
fn may_be_read(worker: &Worker, peer: &Peer) -> bool {
    let by_queue = matches!(peer.queues(), QpTransport::Unknown | QpTransport::Own);
    by_queue && peer.inbox.is_none() && peer.uid != worker.uid
}

/// Of the keys of an offer the one for the port that our connection to its sender leads to, and the rails whose
/// addresses are the last of the keys; `None`: we cannot read, or shall not.
///
/// # Safety
/// `count` keys are readable.
pub unsafe fn key(worker: &Worker, peer: &Peer, keys: *const u8, count: u8) -> Option<(u32, u8)> {
    if count == 0 || worker.ctx.policy.rndv_by_messages {
        return None;
    }
    let port = match peer.has_rings() {
        true => 0,
        false => zcopy::port(peer).filter(|&port| port < count.into())?,
    };
    // SAFETY: inside of the keys. Once only: the sender could change it.
    let key = unsafe { keys.add(port * KEY).cast::<u32>().read_unaligned() };
    let key = u32::from_le(key);
    let rails = match peer.has_rings() {
        true => rts_keys::rails(key, bytes(count))?,
        false => 0,
    };
    (key != 0).then_some((key, rails))
}

/// Writes the key of an offer, and what is beside it, into the receive that it is for, until [`begin`].
///
/// # Safety
/// What the offer has beside it is readable at `beside`.
pub(super) unsafe fn keep_key(r: &mut Request, offer: RtsInfo, beside: *const u8) {
    r.head[..KEY].copy_from_slice(&offer.pieces.to_le_bytes());
    r.head_len = 1;
    if offer.rails != 0 {
        let mut bytes = [0; rts_keys::MOST];
        // SAFETY: the caller's promise; no more than all rails have.
        unsafe { beside.copy_to_nonoverlapping(bytes.as_mut_ptr(), offer.beside()) };
        let rails = RailStadds::read(offer.rails, &bytes);
        r.extra = Some(Box::new(Extra::Rails(rails)));
    }
}

fn kept_key(r: &Request) -> Option<u32> {
    let key = *r.head.first_chunk()?;
    (r.head_len > 0).then_some(u32::from_le_bytes(key))
}

/// Reads a message into the receive's memory. `None`: that cannot be done, and nothing was.
///
/// # Safety
/// The receive is the caller's until it is posted; it is large enough.
pub(super) unsafe fn begin(worker: &Worker, req: *mut Request, peer: &Peer) -> Option<GetStep> {
    // SAFETY: the caller's request.
    let r = unsafe { &mut *req };
    let key = kept_key(r)?;
    let target = r.data.as_contig()?;
    if peer.has_rings() {
        let memory = worker.register_tofu(target, r.info.length, true)?;
        let shares = tofu_stripe::of_message(worker, (target, r.info.length), &r.rails());
        rma_tofu::fetch(r, memory, shares);
    } else {
        let port = zcopy::port(peer)?;
        let memory = worker.register_ib(target, r.info.length, MrUse::Write)?;
        zcopy::start_get(r, (port, key), memory);
    }
    // SAFETY: complete, and in no queue.
    match unsafe { tx::post(req) } {
        PostResult::Failed(status) => Some(GetStep::Ended(status)),
        PostResult::Done | PostResult::Queued => Some(GetStep::Asked),
    }
}
