//! InfiniBand and RoCE by libibverbs: reliable connections, and datagrams that are made reliable here.
//!
//! `verbs` is the library, opened at run time, `hca` an open device, `port` one of its ports and where it is in the
//! network. An `iface` is what a worker has of a port: queues and registered buffers. Whoever holds the peer's lock
//! sends through a `sender`, by a queue pair of its own (`rc`) or by the worker's one for datagrams (`ud`); what
//! arrives is put together by an `reassembly`, after `reorder` where it was datagrams; a `keepalive` answers for a
//! process that takes none; `paths` lead to it by other ports. A `loopback` has a device execute atomics here. What two
//! workers say before anything else, and what is in front of each packet, is in `wire::packet`.

#[allow(
    non_camel_case_types,
    clippy::undocumented_unsafe_blocks,
    reason = "as bindgen writes it"
)]
pub mod bindings;
pub mod reassembly;
pub mod buffers;
pub mod hca;
pub mod iface;
pub mod loopback;
pub mod mr;
pub mod port;
pub mod keepalive;
pub mod queues;
pub mod rails;
pub mod rc;
pub mod roce_reach;
pub mod rx_pool;
pub mod reorder;
pub mod sender;
pub mod ud;
pub mod verbs;
pub mod op_slots;
pub mod paths;

use super::tcp;
use crate::wire::address::{IbLocator, PortLocator};
use paths::PortPair;
use port::Port;
use std::sync::Arc;
use std::time::Duration;

/// Settings of the transport, from the options.
#[derive(Clone, Debug)]
pub struct IbTuning {
    /// Index of the port's GID; `None`: the best.
    pub gid_index: Option<u32>,
    /// Partition key; `None`: the first that is valid.
    pub pkey: Option<u16>,
    /// Packets have a global header even inside of a subnet.
    pub global: bool,
    /// Largest packet, bytes; `None`: what the port says.
    pub path_mtu: Option<u32>,
    pub service_level: u8,
    /// `None`: as is usual for the kind of link.
    pub traffic_class: Option<u8>,
    pub hop_limit: u8,
    /// Which RoCE ports of peers are reached.
    pub reach: roce_reach::ReachPolicy,
    pub rc: RcTuning,
    pub ud: UdTuning,
}

/// Of reliable connections.
#[derive(Clone, Debug)]
pub struct RcTuning {
    /// Bytes of a buffer: a packet is as long at most.
    pub seg_size: usize,
    pub tx_queue_len: u32,
    /// Receives that all connections of a worker share.
    pub rx_queue_len: u32,
    /// Packets that may be sent before the receiver has told that it took some.
    pub window: u32,
    /// Bytes that one work request moves from or to the user's memory, at most; `None`: what the port takes.
    pub zcopy_seg: Option<usize>,
    /// Until a packet is sent again.
    pub timeout: Duration,
    pub retries: u8,
    /// Until a packet is sent again that found no receive.
    pub rnr_timeout: Duration,
    pub rnr_retries: u8,
}

/// Of datagrams.
#[derive(Clone, Debug)]
pub struct UdTuning {
    /// Whether workers have a queue pair for them, for messages or for greetings only.
    pub used: bool,
    pub tx_queue_len: u32,
    /// Receives at the start, and when there are many peers.
    pub rx_queue_first: u32,
    pub rx_queue_len: u32,
    /// Most packets that are not acknowledged.
    pub window: u32,
    /// A peer that acknowledges nothing for so long is lost.
    pub timeout: Duration,
    /// Until a packet is sent again, the first time.
    pub tick: Duration,
    /// Growth of that wait.
    pub backoff: f64,
}

/// What both ends of a connection keep to: the smaller of what each of them says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NegotiatedLimits {
    /// Longest packet by a queue pair of its own, bytes.
    pub packet: usize,
    /// Packets that may be sent before the receiver has told that it took some.
    pub window: u32,
}

/// Where a worker is reached by queue pairs, as its address says, and from where.
#[derive(Clone, Debug)]
pub struct IbTarget {
    /// The best way.
    pub way: PortPair,
    /// The peer's ports, in the order of its address, if there are other ways.
    pub ports: Box<[PortLocator]>,
    /// What a stranger does not know.
    pub secret: u64,
    /// Where greetings are taken, if one of the two has no queue pair for datagrams.
    pub greeter: Option<tcp::TcpTarget>,
}

impl IbTarget {
    /// Where there is a way between ports of ours and of a peer's.
    pub fn choose(
        ports: &[Arc<Port>],
        remote: &IbLocator,
        greeter: Option<tcp::TcpTarget>,
    ) -> Option<IbTarget> {
        let ways = paths::between(ports.iter().map(|port| &**port), &remote.ports);
        let theirs: &[PortLocator] = if ways.len() > 1 { &remote.ports } else { &[] };
        Some(IbTarget {
            way: *ways.first()?,
            ports: theirs.into(),
            secret: remote.secret,
            greeter,
        })
    }
}
