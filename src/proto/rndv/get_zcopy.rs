//! Rendezvous by get_zcopy: the sender registers its memory, and the RTS has its keys. The receiver's HCA or TNI reads
//! it, and an ATS follows: the sender need not progress meanwhile.
//!
//! Where memory cannot be registered, or no queue pair leads to the sender, the receiver answers as without keys. Over
//! Tofu the RTS has the STADD of the memory for the sender's VCQ, and in place of keys a mark for that and the STADDs
//! for the sender's rails (`wire::rts_keys`), which are kept with the RTS until a receive matches. Over libfabric it
//! has a key, and for long messages that for a rail, which are kept so, too.

use super::get_cma::GetStep;
use super::{get_device, traced};
use crate::engine::peer::Peer;
use crate::engine::request::{Extra, Request, Zcopy, ZcopyRole};
use crate::engine::rndv_rts::{RtsInfo, RtsSource};
use crate::engine::worker::Worker;
use crate::proto::select::rndv::RndvOffer;
use crate::proto::tx::{self, PostResult, zcopy};
use crate::tl::registrar::OfferedMem;
use crate::tl::rma::{MrKeys, RmaDevice, RmaKey};
use crate::wire::ib_port::MAX_PORTS;
use crate::wire::rts_keys::{self, RailStadds};

/// Bytes of a key.
const KEY: usize = size_of::<u32>();

/// Bytes that the keys take in an RTS.
pub const fn bytes(count: u8) -> usize {
    count as usize * KEY
}

/// Where an RTS says that the data are.
pub(super) struct RtsPlace {
    /// Keys in front of the user's header, one for each local port or as many as a handle takes the place of.
    pub keys: u8,
    /// Their address or STADD, or that of the list of their pieces; 0: none.
    pub addr: u64,
    /// Entries of that list, or [`DEVICE_MEMORY`](crate::wire::header::DEVICE_MEMORY).
    pub pieces: u32,
}

impl RtsPlace {
    /// The sender alone can access the data; `keys`: but for those of a handle.
    pub fn nowhere(keys: u8) -> RtsPlace {
        RtsPlace {
            keys,
            addr: 0,
            pieces: 0,
        }
    }
}

/// Registers the data of a request for the receiver's device, if `offer` has keys or a STADD, and inserts the keys
/// before the user's header. `addr`, `pieces`: of the data that no device reads.
///
/// # Safety
/// The request is new, its data and peer are set, and its tail, the user's header, is readable.
pub(super) unsafe fn register(
    worker: &Worker,
    r: &mut Request,
    offer: RndvOffer,
    (addr, pieces): (u64, u32),
) -> RtsPlace {
    let without_keys = RtsPlace {
        keys: 0,
        addr,
        pieces,
    };
    let device = match offer {
        RndvOffer::Stadd => RmaDevice::Tofu,
        RndvOffer::Rkeys => RmaDevice::Ib,
        RndvOffer::MrKey => RmaDevice::Ofi,
        RndvOffer::DeviceHandle
        | RndvOffer::RegisteredHandle
        | RndvOffer::DeviceMemory
        | RndvOffer::DeviceRkeys => {
            // SAFETY: the caller's promise.
            return unsafe { get_device::export(worker, r) };
        }
        RndvOffer::Address | RndvOffer::Messages => return without_keys,
    };
    let offered = r.data.as_contig().and_then(|source| {
        let target = r.peer().target.as_deref();
        let memory = (source, r.data.len());
        worker.registrar().offer(device, memory, target)
    });
    match offered {
        Some(OfferedMem { keys, stadd, tl }) => {
            let transfer = Zcopy::by_peer(tl, ZcopyRole::Offer);
            // SAFETY: the tail is readable.
            let count = unsafe { put_keys(r, keys, transfer) };
            RtsPlace {
                keys: count,
                addr: stadd.unwrap_or(addr),
                pieces,
            }
        }
        None => without_keys,
    }
}

/// Inserts keys before the user's header. Returns their number.
///
/// # Safety
/// The tail is readable.
pub(super) unsafe fn put_keys(r: &mut Request, keys: Vec<u8>, transfer: Zcopy) -> u8 {
    let count = keys.len() / KEY;
    let mut tail = keys;
    // SAFETY: the caller's promise.
    tail.extend(unsafe { r.msg.tail() });
    r.own_tail(tail.into());
    r.extra = Some(Box::new(Extra::Transfer(transfer)));
    count as u8
}

/// How a device of this side reads the message of an RTS with keys, at the address or STADD `addr`, in memory of a
/// device that the sender's HCA has registered (`is_gpu`), or in other memory: by the key for the port to which the
/// connection to its sender leads, or by STADDs. `None`: it cannot, or an option excludes that.
///
/// # Safety
/// `count` keys are readable.
pub unsafe fn source(
    worker: &Worker,
    peer: &Peer,
    (addr, is_gpu): (u64, bool),
    (keys, count): (*const u8, u8),
) -> Option<RtsSource> {
    if count == 0 || worker.ctx.policy.rndv_by_messages {
        return None;
    }
    let resolved = peer.resolves_keys();
    if resolved == Some(RmaDevice::Ofi) {
        let addr = addr.into();
        let key = MrKeys::count(bytes(count)).map(|count| RtsSource::MrKey { addr, count });
        // SAFETY: the caller's promise.
        return key.or_else(|| unsafe { get_device::source(worker, is_gpu, (keys, count)) });
    }
    if usize::from(count) > MAX_PORTS && bytes(count) > rts_keys::MOST + KEY {
        // SAFETY: the caller's promise.
        return unsafe { get_device::source(worker, is_gpu, (keys, count)) };
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
    let (addr, rkey) = (addr.into(), key.into());
    (key != 0).then_some(match is_gpu {
        true => RtsSource::DeviceRkey { addr, rkey },
        false => RtsSource::Rkey { addr, rkey },
    })
}

/// Stores what an RTS has beside its header, the STADDs at the sender's rails or a key, in its receive, until
/// [`begin`].
///
/// # Safety
/// It is readable at `beside`.
pub(super) unsafe fn keep_beside(r: &mut Request, offer: RtsInfo, beside: *const u8) {
    if let RtsSource::DeviceHandle { .. } = offer.source {
        // SAFETY: the handle is readable at `beside`.
        return unsafe { get_device::keep_beside(r, beside) };
    }
    if let RtsSource::MrKey { .. } = offer.source {
        let mut bytes = [0; MrKeys::MOST];
        let len = offer.beside().min(bytes.len());
        // SAFETY: the keys are readable at `beside`, and take no more than the most do.
        unsafe { beside.copy_to_nonoverlapping(bytes.as_mut_ptr(), len) };
        let keys = MrKeys::decode(&bytes[..len]);
        r.extra = keys.map(|keys| Box::new(Extra::MrKeys(keys)));
        return;
    }
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
    let (registrar, target) = worker.registrar_of(&r.data)?;
    let (device, there, key) = match r.rndv_recv().source {
        RtsSource::Stadd { stadd, .. } => (RmaDevice::Tofu, 0, RmaKey::Stadd(stadd.get())),
        RtsSource::Rkey { addr, rkey } | RtsSource::DeviceRkey { addr, rkey } => {
            let mut rkeys = [0; MAX_PORTS];
            *rkeys.get_mut(zcopy::port(peer)?)? = rkey.get();
            (RmaDevice::Ib, addr.get(), RmaKey::Rkeys(rkeys))
        }
        RtsSource::MrKey { addr, .. } => {
            (RmaDevice::Ofi, addr.get(), RmaKey::Mr(r.mr_keys()?.first))
        }
        RtsSource::SenderOnly
        | RtsSource::Contiguous(_)
        | RtsSource::Pieces { .. }
        | RtsSource::DeviceMemory
        | RtsSource::DeviceHandle { .. } => return None,
    };
    let memory = (target, r.info.length);
    let mut memory = registrar.for_fetch(device, memory, &r.rails())?;
    r.data.note_adapters(true);
    if let Some(rail) = r.mr_keys().and_then(|keys| keys.rail) {
        memory.set_rail_key(rail);
    }
    traced::scheme(worker, req, "get_zcopy");
    zcopy::start_get(r, there, key, memory);
    // SAFETY: the request is complete, and in no queue.
    match unsafe { tx::post(req) } {
        PostResult::Failed(status) => Some(GetStep::Ended(status)),
        PostResult::Done | PostResult::Queued => Some(GetStep::Asked),
    }
}
