//! Protocol of a message from memory of a device: the threshold of rendezvous, and the longest record. The only place
//! that decides them.

use super::message::{self, Hint, Protocol, RecordLimit};
use super::rndv::{RndvScheme, is_by_queue};
use crate::engine::datatype::Data;
use crate::engine::peer::Peer;
use crate::engine::worker::Worker;
use crate::proto::lane_info;
use crate::sys::cuda::{MemoryInfo, MemoryKind};
use crate::tl::cuda::{CudaContext, MIN_RNDV};

/// Longest message from memory of a device that is sent in one record, bytes: all of it is read before the record is
/// written, in one copy.
pub const MAX_READ: usize = 64 << 10;

/// The protocol for `data` of a device to a peer. `extra`: bytes of the user's header.
#[cold]
#[inline(never)]
pub fn to_peer(worker: &Worker, peer: &Peer, data: &Data, extra: usize, wish: Hint) -> Protocol {
    let len = data.len();
    let limit = record_limit(worker, peer, len);
    let hint = message::by_user(worker, peer, wish);
    let by_cost = match hint {
        // The user leaves it to the library: no option gives a threshold.
        Hint::Whole => thresh_by_cost(worker, peer, data, limit),
        Hint::None | Hint::Eager | Hint::Rendezvous => None,
    };
    let thresh = by_cost.unwrap_or(peer.rndv_thresh(&worker.ctx.policy));
    message::protocol(len, extra, thresh, limit, hint)
}

/// What one record to a peer does for a message of `len` bytes from memory of a device.
pub fn record_limit(worker: &Worker, peer: &Peer, len: usize) -> RecordLimit {
    let limit = message::record_limit(worker, peer, len, false);
    RecordLimit {
        max: limit.max.min(MAX_READ),
        ..limit
    }
}

/// Bytes of the shortest message like this one that goes by rendezvous, by what the ways cost. `None`: that is not
/// known, or decides nothing, as no record can hold the message.
fn thresh_by_cost(worker: &Worker, peer: &Peer, data: &Data, limit: RecordLimit) -> Option<usize> {
    if !is_by_cost(worker, data.len(), limit) {
        return None;
    }
    let cuda = worker.ctx.cuda.as_ref()?;
    let (_, memory) = data.device_piece()?;
    let lane = lane_info::message_cost(peer);
    match scheme_of(worker, peer, cuda, data, &memory)? {
        RndvScheme::DeviceCopy => cuda.device_copy_thresh(&memory, lane),
        RndvScheme::GetZcopy | RndvScheme::PutZcopy => cuda.zcopy_thresh(&memory, lane),
        RndvScheme::Messages | RndvScheme::Cma => None,
    }
}

/// Whether the cost decides the protocol of a message of `len` bytes, where the user leaves it to the library.
fn is_by_cost(worker: &Worker, len: usize, limit: RecordLimit) -> bool {
    !worker.ctx.policy.rndv_by_messages && (MIN_RNDV..=limit.max).contains(&len)
}

/// The protocol that [`to_peer`] selects for a message of `len` bytes from memory of a device, as far as costs are
/// known now. `scheme`: how a rendezvous moves the bytes without host memory in between; `None`: it does not.
pub fn known(worker: &Worker, peer: &Peer, len: usize, scheme: Option<RndvScheme>) -> Protocol {
    let limit = record_limit(worker, peer, len);
    let hint = message::by_threshold(worker, peer);
    let by_cost = match hint {
        Hint::Whole if is_by_cost(worker, len, limit) => known_thresh(worker, peer, scheme),
        Hint::Whole | Hint::None | Hint::Eager | Hint::Rendezvous => None,
    };
    let thresh = by_cost.unwrap_or(peer.rndv_thresh(&worker.ctx.policy));
    message::protocol(len, 0, thresh, limit, hint)
}

/// Bytes of the shortest message that goes by rendezvous by what is known of the costs, without measuring.
pub fn known_thresh(worker: &Worker, peer: &Peer, scheme: Option<RndvScheme>) -> Option<usize> {
    let cuda = worker.ctx.cuda.as_ref()?;
    let lane = lane_info::message_cost(peer);
    match (scheme?, peer.inbox.is_some()) {
        (RndvScheme::DeviceCopy, true) if !is_here(worker, peer) => {
            cuda.known_device_copy_thresh(lane)
        }
        (RndvScheme::GetZcopy | RndvScheme::PutZcopy, false) => cuda.known_zcopy_thresh(lane),
        _ => None,
    }
}

/// Whether the peer is in this process.
fn is_here(worker: &Worker, peer: &Peer) -> bool {
    peer.same_process || peer.uid == worker.uid
}

/// The scheme of a rendezvous from memory of a device, as far as the sender knows it. `None`: host memory is in
/// between, or the peer is this process.
fn scheme_of(
    worker: &Worker,
    peer: &Peer,
    cuda: &CudaContext,
    data: &Data,
    memory: &MemoryInfo,
) -> Option<RndvScheme> {
    if memory.kind != MemoryKind::Device || is_here(worker, peer) {
        return None;
    }
    if peer.inbox.is_some() {
        let is_copied = cuda.reads_by_ipc() && cuda.export(memory, false).is_some();
        return is_copied.then_some(RndvScheme::DeviceCopy);
    }
    let (registrar, _) = worker.registrar_of(data).filter(|_| is_by_queue(peer))?;
    if !cuda.traits_of(memory).has_dmabuf || registrar.is_refused() {
        return None;
    }
    Some(match worker.ctx.policy.rndv_reads {
        true => RndvScheme::GetZcopy,
        false => RndvScheme::PutZcopy,
    })
}
