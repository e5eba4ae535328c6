//! Rendezvous by get_zcopy: the sender registers its memory, and the RTS has its keys. The receiver's HCA or TNI reads
//! it, and an ATS follows: the sender need not progress meanwhile.
//!
//! Where memory cannot be registered, or no queue pair leads to the sender, the receiver answers as without keys. Over
//! Tofu the RTS has the STADD of the memory for the sender's VCQ, and in place of keys a mark for that and the STADDs
//! for the sender's rails (`wire::rts_keys`), which are kept with the RTS until a receive matches.

use super::get_cma::GetStep;
use crate::engine::peer::Peer;
use crate::engine::request::{Extra, Request, Zcopy, ZcopyRole};
use crate::engine::rndv_rts::{RtsInfo, RtsSource};
use crate::engine::worker::Worker;
use crate::proto::select::rndv::RndvOffer;
use crate::proto::tx::{self, PostResult, rma_tofu, zcopy};
use crate::tl::LaneTarget;
use crate::tl::ib::registration::MrUse;
use crate::tl::tofu::mr;
use crate::tl::tofu::stripe::TofuZcopy;
use crate::wire::address::MAX_PORTS;
use crate::wire::rts_keys::{self, RailStadds};

/// Bytes of a key.
const KEY: usize = size_of::<u32>();

/// Bytes that the keys take in an RTS.
pub const fn bytes(count: u8) -> usize {
    count as usize * KEY
}

/// Registers the data of a request for the receiver's device, if `offer` has rkeys or a STADD, and inserts the keys
/// before the user's header. Returns their number, one for each local port, 0 if the data cannot be read by a device;
/// and the address (`addr`) or STADD of the data for the RTS.
///
/// # Safety
/// The request is new, its data and peer are set, and its tail, the user's header, is readable.
pub(super) unsafe fn register(
    worker: &Worker,
    r: &mut Request,
    offer: RndvOffer,
    addr: u64,
) -> (u8, u64) {
    // SAFETY: the tail is readable.
    let registered = unsafe {
        match offer {
            RndvOffer::Stadd => offer_stadd(worker, r),
            RndvOffer::Rkeys => offer_rkeys(worker, r).map(|keys| (keys, addr)),
            RndvOffer::Address | RndvOffer::Messages => None,
        }
    };
    registered.unwrap_or((0, addr))
}

/// Registers the data of a request for the local VCQ. Returns the number of keys, and the STADD.
///
/// # Safety
/// The tail is readable.
unsafe fn offer_stadd(worker: &Worker, r: &mut Request) -> Option<(u8, u64)> {
    let (source, len) = (r.data.as_contig()?, r.data.len());
    let registrar = rma_tofu::registrar(worker)?;
    let memory = registrar.register((source, len), false)?;
    let stadd = mr::stadd(&memory, source);
    let mut transfer = Zcopy::new(Vec::new(), ZcopyRole::Offer, 0);
    let shares = match r.peer().target.as_deref() {
        Some(LaneTarget::Tofu(peer)) => registrar.to_offer(&peer.locator, (source, len)),
        _ => Vec::new(),
    };
    let there = shares.iter().map(|s| (s.rail, s.there));
    let keys = RailStadds::of(there).encode();
    transfer.tl.tofu = TofuZcopy {
        memory: Some(memory),
        shares,
    };
    // SAFETY: the tail is readable.
    Some((unsafe { put_keys(r, keys, transfer) }, stadd))
}

/// Registers the data of a request for the local HCAs. Returns the number of keys.
///
/// # Safety
/// The tail is readable.
unsafe fn offer_rkeys(worker: &Worker, r: &mut Request) -> Option<u8> {
    let memory = worker.register_ib(r.data.as_contig()?, r.data.len(), MrUse::ReadByPeer)?;
    let keys: [u32; MAX_PORTS] = memory.region().remote_keys();
    let count = worker.ctx.tl.ib.ports.len().min(MAX_PORTS);
    let transfer = Zcopy::new(vec![memory], ZcopyRole::Offer, 0);
    let keys = keys[..count].iter().flat_map(|k| k.to_le_bytes());
    // SAFETY: the tail is readable.
    Some(unsafe { put_keys(r, keys.collect(), transfer) })
}

/// Inserts keys before the user's header. Returns their number.
///
/// # Safety
/// The tail is readable.
unsafe fn put_keys(r: &mut Request, keys: Vec<u8>, transfer: Zcopy) -> u8 {
    let count = keys.len() / KEY;
    let mut tail = keys;
    // SAFETY: the caller's promise.
    tail.extend(unsafe { r.msg.tail() });
    r.own_tail(tail.into());
    r.extra = Some(Box::new(Extra::Transfer(transfer)));
    count as u8
}

/// How a device of this side reads the message of an RTS with keys, at the address or STADD `addr`: by the key for the
/// port to which the connection to its sender leads, or by STADDs. `None`: it cannot, or an option excludes that.
///
/// # Safety
/// `count` keys are readable.
pub unsafe fn source(
    worker: &Worker,
    peer: &Peer,
    addr: u64,
    (keys, count): (*const u8, u8),
) -> Option<RtsSource> {
    if count == 0 || worker.ctx.policy.rndv_by_messages {
        return None;
    }
    let port = if peer.has_rings() {
        0
    } else {
        zcopy::port(peer).filter(|&port| port < count.into())?
    };
    // SAFETY: inside the keys. Read once: the sender could change it.
    let key = unsafe { keys.add(port * KEY).cast::<u32>().read_unaligned() };
    let key = u32::from_le(key);
    if peer.has_rings() {
        let rails = rts_keys::rails(key, bytes(count))?;
        return Some(RtsSource::Stadd {
            stadd: addr.into(),
            rails,
        });
    }
    (key != 0).then_some(RtsSource::Rkey {
        addr: addr.into(),
        rkey: key.into(),
    })
}

/// Stores the STADDs of an RTS at the sender's rails in its receive, until [`begin`].
///
/// # Safety
/// The STADDs of the RTS are readable at `beside`.
pub(super) unsafe fn keep_rails(r: &mut Request, offer: RtsInfo, beside: *const u8) {
    if let RtsSource::Stadd { rails, .. } = offer.source
        && rails != 0
    {
        let mut bytes = [0; rts_keys::MOST];
        // SAFETY: the STADDs are readable at `beside`; they take no more than those of all rails.
        unsafe { beside.copy_to_nonoverlapping(bytes.as_mut_ptr(), offer.beside()) };
        let rails = RailStadds::read(rails, &bytes);
        r.extra = Some(Box::new(Extra::Rails(rails)));
    }
}

/// Starts to read a message into the receive's memory. `None`: it is not possible, and nothing was done.
///
/// # Safety
/// The caller owns the receive until it is posted; it is large enough.
pub(super) unsafe fn begin(worker: &Worker, req: *mut Request, peer: &Peer) -> Option<GetStep> {
    // SAFETY: the caller owns the request.
    let r = unsafe { &mut *req };
    let target = r.data.as_contig()?;
    match r.rndv_recv().source {
        RtsSource::Stadd { stadd, .. } => {
            let registrar = rma_tofu::registrar(worker)?;
            let target = (target.cast_const(), r.info.length);
            let memory = registrar.register(target, true)?;
            let shares = registrar.of_message(target, &r.rails());
            rma_tofu::fetch(r, stadd.get(), memory, shares);
        }
        RtsSource::Rkey { addr, rkey } => {
            let port = zcopy::port(peer)?;
            let memory = worker.register_ib(target, r.info.length, MrUse::Write)?;
            zcopy::start_get(r, addr.get(), (port, rkey.get()), memory);
        }
        RtsSource::SenderOnly | RtsSource::Contiguous(_) | RtsSource::Pieces { .. } => return None,
    }
    // SAFETY: the request is complete, and in no queue.
    match unsafe { tx::post(req) } {
        PostResult::Failed(status) => Some(GetStep::Ended(status)),
        PostResult::Done | PostResult::Queued => Some(GetStep::Asked),
    }
}
