//! Rendezvous: what the RTS of a message offers, and the scheme by which the receiver gets the data. The only place
//! that decides them; the posts and the printed protocols call these functions.

use crate::engine::peer::{CopyScheme, Peer};
use crate::engine::rndv_rts::RtsSource;
use crate::engine::worker::Worker;
use crate::tl::contract::QpTransport;
use crate::tl::rma::RmaDevice;

/// Longest message for which an RTR race is possible, bytes: with a big buffer and an empty ring all of it fits, with
/// parts in every slot, and a sender that stops progressing is not waited for.
pub const MAX_RACE: usize = 1 << 20;
/// Minimum length of a split copy, bytes: shorter messages are copied before the sender has received the offer.
pub const MIN_SPLIT: usize = 32 << 10;

/// Limit of a race in bytes for one of many messages, of which each core copies others, where the copy time of the peer
/// is not known, and for peers on distant cores.
const UNKNOWN_OF_MANY: usize = 64 << 10;
const FAR_OF_MANY: usize = 32 << 10;
/// Maximum copy time of near cores, in nanoseconds for a MiB of parts: 25 to 40 us where they share a cache and the
/// ring has a big buffer, 75 without a big buffer, 300 and more where they share none. CMA copies by both sides take 50
/// together.
const NEAR: u32 = 55_000;
/// One of so many messages beyond the limit is tried, because processes move to other cores.
const TRIED: u8 = 16;

/// What an RTS offers the receiver of the sender's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RndvOffer {
    /// Nothing: the receiver requests the data in messages.
    Messages,
    /// Its address: CMA reads it, or the sender's HCA writes from it.
    Address,
    /// Its address and rkeys: the receiver's HCA reads it, or what an address alone permits.
    Rkeys,
    /// Its STADD: the receiver's TNI reads it.
    Stadd,
    /// Its address and the key of a registration with libfabric: the receiver's provider reads it.
    MrKey,
    /// Nothing that the receiver reads: it is a device's memory, from which the sender's HCA writes.
    DeviceMemory,
    /// The address and rkeys of a device's memory: the receiver's HCA reads it, and no processor.
    DeviceRkeys,
    /// Its address and the handle of an allocation of a device: the receiver's driver copies it.
    DeviceHandle,
    /// Its address and the handle of an allocation of a device that the sender's HCA has registered: the receiver's
    /// driver copies it, or the sender's HCA writes from it.
    RegisteredHandle,
}

/// How the receiver of an RTS gets the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RndvScheme {
    /// By messages, which it requests.
    Messages,
    /// By CMA, or by a copy within the process: [`copy_scheme`] selects the side that copies.
    Cma,
    /// Its HCA or TNI reads the sender's memory.
    GetZcopy,
    /// The sender's HCA writes into its memory.
    PutZcopy,
    /// Its driver copies from the sender's memory of a device.
    DeviceCopy,
}

/// The data of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentData {
    /// Only this process can access them: user functions pack them.
    Packed,
    /// In a list of pieces.
    Pieces,
    Contiguous,
    /// In one piece of a device's memory.
    Device,
}

/// What the RTS of a message to a peer offers. If the memory cannot be registered, [`RndvOffer::Address`] takes the
/// place of rkeys and of a STADD.
pub fn offer(worker: &Worker, peer: &Peer, data: SentData) -> RndvOffer {
    let policy = &worker.ctx.policy;
    if policy.rndv_by_messages {
        return RndvOffer::Messages;
    }
    if data == SentData::Device {
        return RndvOffer::DeviceHandle;
    }
    let rkeys = policy.rndv_reads && is_by_queue(peer);
    let resolved = match peer.resolves_keys() {
        Some(RmaDevice::Tofu) => Some(RndvOffer::Stadd),
        Some(RmaDevice::Ofi) if !policy.rndv_writes => Some(RndvOffer::MrKey),
        _ => None,
    };
    offered(data, peer.uid == worker.uid, resolved, rkeys)
}

/// Whether an RC queue pair is the lane to a peer, or will be, as far as is known.
pub fn is_by_queue(peer: &Peer) -> bool {
    let may_be = matches!(peer.qp_transport(), QpTransport::Unknown | QpTransport::Own);
    may_be && peer.inbox.is_none()
}

/// [`offer`] where the options leave a choice. `to_itself`: the worker sends to itself, by copies; `resolved`: what an
/// adapter of the peer reads by, if the lane is Tofu or libfabric; `rkeys`: the options select get_zcopy, and a queue
/// pair leads to the peer.
fn offered(data: SentData, to_itself: bool, resolved: Option<RndvOffer>, rkeys: bool) -> RndvOffer {
    match (data, resolved) {
        (SentData::Contiguous, Some(resolved)) if !to_itself => return resolved,
        _ => {}
    }
    match data {
        SentData::Contiguous if !to_itself && rkeys => RndvOffer::Rkeys,
        SentData::Contiguous | SentData::Pieces => RndvOffer::Address,
        SentData::Packed => RndvOffer::Messages,
        SentData::Device => RndvOffer::DeviceHandle,
    }
}

/// The scheme of the receiver of an RTS. `contig`: its buffer is contiguous; `put`: whether the sender's HCA can write
/// into its memory, asked only where nothing better is possible.
pub fn scheme(
    worker: &Worker,
    peer: &Peer,
    offer: RndvOffer,
    contig: bool,
    put: impl Fn() -> bool,
) -> RndvScheme {
    if worker.ctx.policy.rndv_by_messages {
        return RndvScheme::Messages;
    }
    received(offer, peer.cma().is_usable(), contig, put)
}

/// [`scheme`] where the options leave a choice. `cma`: CMA to the peer is permitted, as far as is known.
fn received(offer: RndvOffer, cma: bool, contig: bool, put: impl Fn() -> bool) -> RndvScheme {
    match offer {
        RndvOffer::Messages => RndvScheme::Messages,
        RndvOffer::DeviceHandle | RndvOffer::RegisteredHandle => RndvScheme::DeviceCopy,
        RndvOffer::Address | RndvOffer::Rkeys if cma => RndvScheme::Cma,
        RndvOffer::Stadd | RndvOffer::Rkeys | RndvOffer::MrKey | RndvOffer::DeviceRkeys
            if contig =>
        {
            RndvScheme::GetZcopy
        }
        RndvOffer::Address | RndvOffer::Rkeys | RndvOffer::DeviceMemory if contig && put() => {
            RndvScheme::PutZcopy
        }
        RndvOffer::Address
        | RndvOffer::Rkeys
        | RndvOffer::Stadd
        | RndvOffer::MrKey
        | RndvOffer::DeviceMemory
        | RndvOffer::DeviceRkeys => RndvScheme::Messages,
    }
}

/// The scheme in the place of one that was not possible: the memory could not be registered, or the connection is lost.
/// `put`: as for [`scheme`].
pub fn fallback(scheme: RndvScheme, offer: RndvOffer, put: impl Fn() -> bool) -> RndvScheme {
    match scheme {
        RndvScheme::GetZcopy if offer != RndvOffer::Stadd && put() => RndvScheme::PutZcopy,
        // Not opened, or slower than the lane.
        RndvScheme::DeviceCopy if offer == RndvOffer::RegisteredHandle && put() => {
            RndvScheme::PutZcopy
        }
        _ => RndvScheme::Messages,
    }
}

/// What the RTS of a source has offered.
impl From<RtsSource> for RndvOffer {
    fn from(source: RtsSource) -> RndvOffer {
        match source {
            RtsSource::SenderOnly => RndvOffer::Messages,
            RtsSource::Contiguous(_) | RtsSource::Pieces { .. } => RndvOffer::Address,
            RtsSource::Rkey { .. } => RndvOffer::Rkeys,
            RtsSource::Stadd { .. } => RndvOffer::Stadd,
            RtsSource::MrKey { .. } => RndvOffer::MrKey,
            RtsSource::DeviceMemory => RndvOffer::DeviceMemory,
            RtsSource::DeviceRkey { .. } => RndvOffer::DeviceRkeys,
            RtsSource::DeviceHandle {
                is_registered: true,
                ..
            } => RndvOffer::RegisteredHandle,
            RtsSource::DeviceHandle { .. } => RndvOffer::DeviceHandle,
        }
    }
}

/// The sides that copy a message of `len` bytes by CMA: the fastest scheme of those that were measured. `one_of_many`:
/// the sender waits for other messages, too, so that its time is not measured.
pub fn copy_scheme(worker: &Worker, peer: &Peer, len: usize, one_of_many: bool) -> CopyScheme {
    let times = &peer.rndv_times;
    if !one_of_many {
        let may_race = may_race(worker, peer, len);
        let scheme = times.next(len, |scheme| match scheme {
            CopyScheme::Race => may_race,
            CopyScheme::Split => len >= MIN_SPLIT,
            CopyScheme::Get => true,
        });
        return scheme.unwrap_or(CopyScheme::Split);
    }
    match times.fastest_of_many(len) {
        Some(scheme) if scheme != CopyScheme::Race => scheme,
        _ if is_racing_of_many(worker, peer, len) => CopyScheme::Race,
        _ => CopyScheme::Split,
    }
}

/// Whether an RTR race is possible for a message of `len` bytes.
pub fn may_race(worker: &Worker, peer: &Peer, len: usize) -> bool {
    let by_ring = peer.inbox.is_some() && !peer.same_process;
    len <= MAX_RACE && by_ring && worker.ctx.policy.rndv_by_size
}

/// Whether an RTR race for one of many messages, which are not measured, is expected to be faster, or is tried.
fn is_racing_of_many(worker: &Worker, peer: &Peer, len: usize) -> bool {
    let limit = match peer.copy_ns_per_mib() {
        0 => UNKNOWN_OF_MANY,
        1..=NEAR => MAX_RACE,
        _ => FAR_OF_MANY,
    };
    may_race(worker, peer, len) && (len <= limit || peer.is_race_tried(TRIED))
}

/// Whether sender and receiver can copy a message of `len` bytes together. Only where CMA reads are known to be
/// permitted: the offer to the sender need not be withdrawn.
pub fn may_split(peer: &Peer, len: usize, source: RtsSource) -> bool {
    len >= MIN_SPLIT && !matches!(source, RtsSource::Pieces { .. }) && peer.cma().is_proven()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_rts_offers_what_the_device_or_cma_reads() {
        use SentData::{Contiguous, Device, Packed, Pieces};
        let (stadd, mr_key) = (Some(RndvOffer::Stadd), Some(RndvOffer::MrKey));
        // Data, to itself, by Tofu or libfabric, by rkeys, offer.
        let rows = [
            (Contiguous, false, None, false, RndvOffer::Address),
            (Contiguous, false, None, true, RndvOffer::Rkeys),
            (Contiguous, false, stadd, false, RndvOffer::Stadd),
            (Contiguous, false, mr_key, false, RndvOffer::MrKey),
            (Contiguous, true, None, true, RndvOffer::Address),
            (Contiguous, true, stadd, false, RndvOffer::Address),
            (Pieces, false, stadd, true, RndvOffer::Address),
            (Pieces, false, mr_key, false, RndvOffer::Address),
            (Packed, false, stadd, true, RndvOffer::Messages),
            (Device, false, mr_key, true, RndvOffer::DeviceHandle),
            (Device, true, None, false, RndvOffer::DeviceHandle),
        ];
        for (data, to_itself, resolved, rkeys, expected) in rows {
            let offer = offered(data, to_itself, resolved, rkeys);
            assert_eq!(offer, expected, "{data:?} {to_itself} {resolved:?} {rkeys}");
        }
    }

    #[test]
    fn the_receiver_uses_the_fastest_scheme() {
        use RndvOffer::{
            Address, DeviceHandle, DeviceMemory, DeviceRkeys, Messages, MrKey, RegisteredHandle,
            Rkeys, Stadd,
        };
        use RndvScheme::{Cma, DeviceCopy, GetZcopy, Messages as DataMessages, PutZcopy};
        // Offer, CMA, contiguous, put possible, scheme, and the one in its place.
        let rows = [
            (Messages, true, true, true, DataMessages, DataMessages),
            (Address, true, false, true, Cma, DataMessages),
            (Address, false, true, true, PutZcopy, DataMessages),
            (Address, false, true, false, DataMessages, DataMessages),
            (Address, false, false, true, DataMessages, DataMessages),
            (Rkeys, true, true, true, Cma, DataMessages),
            (Rkeys, false, true, true, GetZcopy, PutZcopy),
            (Rkeys, false, true, false, GetZcopy, DataMessages),
            (Rkeys, false, false, true, DataMessages, DataMessages),
            (Stadd, true, true, true, GetZcopy, DataMessages),
            (Stadd, true, false, true, DataMessages, DataMessages),
            (MrKey, false, true, true, GetZcopy, PutZcopy),
            (MrKey, false, true, false, GetZcopy, DataMessages),
            (MrKey, false, false, true, DataMessages, DataMessages),
            (DeviceMemory, true, true, true, PutZcopy, DataMessages),
            (DeviceMemory, true, true, false, DataMessages, DataMessages),
            (DeviceMemory, false, false, true, DataMessages, DataMessages),
            (DeviceRkeys, true, true, true, GetZcopy, PutZcopy),
            (DeviceRkeys, true, false, true, DataMessages, DataMessages),
            (RegisteredHandle, true, true, true, DeviceCopy, PutZcopy),
            (
                RegisteredHandle,
                true,
                true,
                false,
                DeviceCopy,
                DataMessages,
            ),
            (DeviceHandle, true, true, true, DeviceCopy, DataMessages),
            (DeviceHandle, false, false, false, DeviceCopy, DataMessages),
        ];
        for (offer, cma, contig, put, first, next) in rows {
            let scheme = received(offer, cma, contig, || put);
            assert_eq!(scheme, first, "{offer:?} {cma} {contig} {put}");
            assert_eq!(fallback(scheme, offer, || put), next, "{offer:?}");
        }
    }
}
