//! The protocols of operations on memory of CUDA devices.

use super::table::ProtoTable;
use super::{LaneNames, Served, eager_name, lanes, ranges, rendezvous};
use crate::ctypes::*;
use crate::engine::peer::Peer;
use crate::engine::worker::Worker;
use crate::proto::select::device;
use crate::proto::select::message::{self, Eager, Protocol};
use crate::proto::select::rndv::{RndvOffer, RndvScheme, SentData, is_by_queue, scheme};
use crate::tl::cuda::{CudaContext, MIN_RNDV};
use crate::tl::lane_info::LaneName;
use crate::wire::stats::StatProtocol;

/// The tables of operations on memory of devices, if the peer is on this host: on what the driver copies without host
/// memory in between, if it does, and on all else.
pub(super) fn device_tables(worker: &Worker, peer: &Peer, cuda: &CudaContext) -> Vec<ProtoTable> {
    let LaneNames { messages, .. } = lanes(peer);
    let copies = LaneName::CUDA_IPC;
    let lanes = &LaneNames { messages, copies };
    let within = peer.same_process || peer.uid == worker.uid;
    let reads = cuda.reads_by_ipc() || within;
    let by_host = |len| host_message(peer, len);
    let by_peer = |_| {
        Served::by(
            "executed by the peer, through pinned host memory",
            StatProtocol::RmaMessages,
        )
    };
    let message = |len| device_message(peer, len, reads);
    let put = |_| copy(within);
    let get = |len| match reads {
        true => copy(within),
        false => by_peer(len),
    };
    let exported: [(_, _, &dyn Fn(usize) -> Served); 4] = [
        (
            UCP_FEATURE_TAG,
            "tagged message by ucp_tag_send* from exported memory of a CUDA device",
            &message,
        ),
        (
            UCP_FEATURE_AM,
            "active message by ucp_am_send* from exported memory of a CUDA device",
            &message,
        ),
        (
            UCP_FEATURE_RMA,
            "write by ucp_put* to exported memory of a CUDA device of this host",
            &put,
        ),
        (
            UCP_FEATURE_RMA,
            "read by ucp_get* from exported memory of a CUDA device of this host",
            &get,
        ),
    ];
    let other: [(_, _, &dyn Fn(usize) -> Served); 4] = [
        (
            UCP_FEATURE_TAG,
            "tagged message by ucp_tag_send* from other memory of a CUDA device",
            &by_host,
        ),
        (
            UCP_FEATURE_AM,
            "active message by ucp_am_send* from other memory of a CUDA device",
            &by_host,
        ),
        (
            UCP_FEATURE_RMA,
            "write by ucp_put* to other memory of a CUDA device",
            &by_peer,
        ),
        (
            UCP_FEATURE_RMA,
            "read by ucp_get* from other memory of a CUDA device",
            &by_peer,
        ),
    ];
    let adapter = |_: usize| Served::by("zero copy by the adapter", StatProtocol::RmaCopy);
    let by_adapter = |len| adapter_message(peer, len);
    let registered: [(_, _, &dyn Fn(usize) -> Served); 4] = [
        (
            UCP_FEATURE_TAG,
            "tagged message by ucp_tag_send* from memory of a CUDA device that the adapter registers",
            &by_adapter,
        ),
        (
            UCP_FEATURE_AM,
            "active message by ucp_am_send* from memory of a CUDA device that the adapter registers",
            &by_adapter,
        ),
        (
            UCP_FEATURE_RMA,
            "write by ucp_put* to memory of a CUDA device that the adapter registers",
            &adapter,
        ),
        (
            UCP_FEATURE_RMA,
            "read by ucp_get* from memory of a CUDA device that the adapter registers",
            &adapter,
        ),
    ];
    let has_adapter = worker.ctx.tl.takes_gpu_memory() && is_by_queue(peer);
    let registered = registered.into_iter().filter(|_| has_adapter);
    let exported = exported.into_iter().filter(|_| cuda.has_ipc());
    (exported.chain(registered).chain(other))
        .filter(|&(feature, ..)| worker.ctx.has(feature))
        .map(|(_, operation, served)| ProtoTable {
            operation,
            ranges: ranges(peer, lanes, served),
        })
        .collect()
}

/// Last sizes of messages from memory of devices whose protocol is that of shorter ones: up to what the costs decide,
/// and what one record holds.
pub(super) fn last_sizes(worker: &Worker, peer: &Peer) -> [usize; 5] {
    let thresh = |scheme| device::known_thresh(worker, peer, Some(scheme)).unwrap_or(0);
    let limit = |len| device::record_limit(worker, peer, len).max;
    [
        MIN_RNDV - 1,
        thresh(RndvScheme::DeviceCopy).wrapping_sub(1),
        thresh(RndvScheme::PutZcopy).wrapping_sub(1),
        limit(MIN_RNDV),
        limit(device::MAX_READ),
    ]
}

fn copy(within: bool) -> Served {
    let what = match within {
        true => "copy by the driver within the process",
        false => "copy by the driver",
    };
    Served::by(what, StatProtocol::RmaCopy)
}

/// Protocol of a message of a size from memory of a device: eager, or what `rendezvous` says. `scheme`: how that moves
/// the bytes, if no host memory is in between.
fn message_of(
    peer: &Peer,
    len: usize,
    scheme: Option<RndvScheme>,
    rendezvous: impl FnOnce() -> Served,
) -> Served {
    match device::known(peer.worker(), peer, len, scheme) {
        Protocol::Eager(Eager::Bcopy) => Served::by(
            "eager copy-in copy-out through pinned host memory",
            message::counted(len),
        ),
        Protocol::Eager(eager) => Served::by(eager_name(eager), message::counted(len)),
        Protocol::Rendezvous => rendezvous(),
    }
}

/// Protocol of a message from memory that the receiver may open.
fn device_message(peer: &Peer, len: usize, reads: bool) -> Served {
    match reads {
        true => message_of(peer, len, Some(RndvScheme::DeviceCopy), || {
            let by_driver = rendezvous(peer.worker(), peer, len, SentData::Device, false);
            match peer.same_process || peer.uid == peer.worker().uid {
                true => by_driver,
                false => Served {
                    or: Some(StatProtocol::RndvMessages),
                    what: "rendezvous copy by the driver, or fragmented, as measured",
                    ..by_driver
                },
            }
        }),
        false => host_message(peer, len),
    }
}

/// Protocol of a message between memory that adapters access.
fn adapter_message(peer: &Peer, len: usize) -> Served {
    let offered = match peer.worker().ctx.policy.rndv_reads {
        true => RndvOffer::DeviceRkeys,
        false => RndvOffer::DeviceMemory,
    };
    let scheme = scheme(peer.worker(), peer, offered, true, || true);
    let served = match scheme {
        RndvScheme::GetZcopy => Served::by(
            "rendezvous zero copy, read by the adapter",
            StatProtocol::RndvCopy,
        ),
        RndvScheme::PutZcopy => Served::by(
            "rendezvous zero copy, written by the adapter",
            StatProtocol::RndvCopy,
        ),
        RndvScheme::Messages | RndvScheme::Cma | RndvScheme::DeviceCopy => {
            return host_message(peer, len);
        }
    };
    message_of(peer, len, Some(scheme), || served)
}

/// Protocol of a message from memory that is copied to host memory first.
fn host_message(peer: &Peer, len: usize) -> Served {
    message_of(peer, len, None, || {
        Served::by(
            "rendezvous fragmented through pinned host memory",
            StatProtocol::RndvMessages,
        )
    })
}
