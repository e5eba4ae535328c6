//! Rendezvous between memory of devices: the RTS has a handle of the sender's allocation, the receiver opens it and
//! copies from it, and an ATS follows. The address is behind the handle: a receiver that does not know handles reads
//! an RTS of memory that only the sender can access.
//!
//! A receiver that cannot open it answers as without a handle. The host decides, not the lane: a handle of another host
//! is of no use. Where a queue pair leads to the receiver, and the sender's HCA has registered the allocation, the RTS
//! says so: HCAs move the data then (`put_zcopy`, `get_zcopy`).

use super::get_cma::GetStep;
use super::get_zcopy::RtsPlace;
use super::{get_zcopy, traced};
use crate::engine::datatype::Data;
use crate::engine::request::{Extra, Request, Zcopy, ZcopyRole};
use crate::engine::rndv_rts::RtsSource;
use crate::engine::worker::Worker;
use crate::proto::lane_info;
use crate::proto::select::rndv::is_by_queue;
use crate::proto::tx::device_copy::{self, CopyRequest};
use crate::sys::cuda::{MemoryInfo, MemoryKind};
use crate::tl::TlZcopy;
use crate::tl::cuda::{CopyDirection, CopyWay, LocalMemory};
use crate::tl::registrar::OfferedMem;
use crate::tl::rma::RmaDevice;
use crate::wire::device_handle::{self, DeviceHandle};
use crate::wire::header::DEVICE_MEMORY;

/// Keys that a handle takes the place of.
const WORDS: u8 = (device_handle::IN_RTS / size_of::<u32>()) as u8;

/// Inserts handle and address of a request's data before the user's header, or rkeys, if options select get_zcopy and
/// the device cannot export the data.
///
/// # Safety
/// The request is new, its data and peer are set, and its tail, the user's header, is readable.
#[cold]
pub(super) unsafe fn export(worker: &Worker, r: &mut Request) -> RtsPlace {
    // SAFETY: the caller's promise.
    let handle = unsafe { put_handle(worker, r) };
    let (keys, addr) = match offer_to_adapter(worker, r) {
        None => return RtsPlace::nowhere(handle),
        Some(offered) if handle == 0 && worker.ctx.policy.rndv_reads => {
            let transfer = Zcopy::by_peer(offered.tl, ZcopyRole::Offer);
            let addr = r.data.in_one_piece().map_or(0, |ptr| ptr as u64);
            // SAFETY: the caller's promise.
            (
                unsafe { get_zcopy::put_keys(r, offered.keys, transfer) },
                addr,
            )
        }
        // It stays registered for the receiver's answer.
        Some(_) => (handle, 0),
    };
    RtsPlace {
        keys,
        addr,
        pieces: DEVICE_MEMORY,
    }
}

/// Registers the data for an HCA of this side, if one reaches the peer.
fn offer_to_adapter(worker: &Worker, r: &Request) -> Option<OfferedMem> {
    if !is_by_queue(r.peer()) {
        return None;
    }
    let (registrar, ptr) = worker.registrar_of(&r.data)?;
    registrar.offer(RmaDevice::Ib, (ptr, r.data.len()), None)
}

/// Inserts handle and address. Returns the number of keys that they take the place of; 0 if the device cannot export
/// the data.
///
/// # Safety
/// The requirements of [`export`].
unsafe fn put_handle(worker: &Worker, r: &mut Request) -> u8 {
    let (Some(cuda), Data::Device { memory, .. }) = (&worker.ctx.cuda, r.data) else {
        return 0;
    };
    // SAFETY: freed when the request completes.
    let Some((addr, memory)) = (unsafe { (*memory).as_contig() }) else {
        return 0;
    };
    let within = r.peer().same_process || r.peer().uid == worker.uid;
    let is_inside = |handle: &DeviceHandle| handle.offset(addr, r.data.len() as u64).is_some();
    let Some(handle) = cuda.export(&memory, within).filter(is_inside) else {
        return 0;
    };
    let keys = [&handle.encode()[..], &addr.to_le_bytes()].concat();
    let transfer = Zcopy::by_peer(TlZcopy::Driver, ZcopyRole::Offer);
    // SAFETY: the caller's promise.
    let count = unsafe { get_zcopy::put_keys(r, keys, transfer) };
    debug_assert_eq!(count, WORDS);
    count
}

/// The source of an RTS with so many keys, if they are a handle of memory that this process may be able to open.
/// `is_registered`: the sender's HCA has registered it.
///
/// # Safety
/// `count` keys are readable.
#[cold]
pub(super) unsafe fn source(
    worker: &Worker,
    is_registered: bool,
    (keys, count): (*const u8, u8),
) -> Option<RtsSource> {
    let cuda = worker.ctx.cuda.as_ref().filter(|_| count == WORDS)?;
    // SAFETY: the caller's promise.
    let (handle, addr) = unsafe { read(keys) }?;
    let addr = addr.into();
    (cuda.is_on_this_host(&handle)).then_some(RtsSource::DeviceHandle {
        addr,
        is_registered,
    })
}

/// Stores the handle that an RTS has beside its header in its receive, until [`begin`].
///
/// # Safety
/// A handle and an address are readable at `beside`.
#[cold]
pub(super) unsafe fn keep_beside(r: &mut Request, beside: *const u8) {
    // SAFETY: the caller's promise.
    let read = unsafe { read(beside) };
    r.extra = read.map(|(handle, _)| Box::new(Extra::DeviceHandle(handle)));
}

/// Decodes a handle and the address behind it. Its bytes are read once: the sender could change them.
///
/// # Safety
/// Their bytes are readable at `bytes`.
unsafe fn read(bytes: *const u8) -> Option<(DeviceHandle, u64)> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { bytes.cast::<[u8; device_handle::IN_RTS]>().read() };
    let (handle, addr) = bytes.split_last_chunk()?;
    Some((DeviceHandle::decode(handle)?, u64::from_le_bytes(*addr)))
}

/// Starts to copy a message into the receive's memory. `None`: it is not possible, or costs more than messages, and
/// nothing was done.
///
/// # Safety
/// The caller owns the receive until the copy has begun; it is large enough.
#[cold]
pub(super) unsafe fn begin(worker: &Worker, req: *mut Request) -> Option<GetStep> {
    // SAFETY: the caller owns the request.
    let r = unsafe { &mut *req };
    let RtsSource::DeviceHandle { addr, .. } = r.rndv_recv().source else {
        return None;
    };
    let Some(Extra::DeviceHandle(handle)) = r.extra.as_deref() else {
        return None;
    };
    let handle = *handle;
    let (target, near) = match r.data {
        Data::Contig { ptr, .. } => (ptr as u64, MemoryInfo::HOST),
        // SAFETY: freed when the request completes.
        Data::Device { memory, .. } => unsafe { (*memory).as_contig() }?,
        Data::Iov { .. } | Data::Generic { .. } => return None,
    };
    let what = CopyRequest {
        handle: &handle,
        remote_addr: addr.get(),
        local: LocalMemory {
            addr: target,
            len: r.info.length,
            kind: near.kind,
        },
        near,
        direction: CopyDirection::FromRemote,
        role: ZcopyRole::Fetch,
    };
    debug_assert!(near.kind == MemoryKind::Host || near.len > 0);
    let lane = lane_info::message_cost(r.peer());
    let chosen = (worker.ctx.cuda.as_ref())
        .map(|cuda| cuda.way(&handle, &near, (target, r.info.length), lane));
    if chosen == Some(CopyWay::Pinned) {
        return None;
    }
    // SAFETY: the caller owns the request, whose memory is valid until it completes.
    let begun = unsafe { device_copy::begin(worker, req, what) };
    if begun {
        traced::scheme(worker, req, "cuda_ipc");
    }
    begun.then_some(GetStep::Asked)
}
