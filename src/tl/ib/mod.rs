//! InfiniBand and RoCE by libibverbs: reliable connections, and datagrams that this module makes reliable.
//!
//! `verbs` is the library, opened at run time, `hca` an open device, `port` one of its ports with its network
//! addresses. An `iface` has a worker's objects on a port: queues and registered buffers. The thread that holds the
//! peer's lock sends through a `sender`, by a queue pair of its own (`rc`) or by the worker's queue pair for datagrams
//! (`ud`); `reorder` sorts datagrams that arrive, and `reassembly` joins packets to records. `keepalive` replies to
//! liveness probes for a process that does not progress; `paths` are the pairs of ports that connect two workers, by
//! the section of a worker address that `address` describes; `rails` are additional queue pairs between other ports. A
//! `loopback` queue pair lets a device execute atomics on memory of this process. The wireup messages of two workers,
//! and the header of each packet, are in `wire::ib_packet`.
//!
//! `rma`: puts, gets and atomic operations on memory of a peer; `zcopy`: those of registered memory, with `iov`, its
//! pieces, and `stripe`, its parts by rail.
//!
//! A context's part is `context`, made from `options`; `registration` registers user memory, `region` that of
//! `ucp_mem_map`, with `rkey`, the section of a remote key; `mr` is a registration with a device, `dmabuf` has those of
//! memory of GPUs; `amo` and `amo_unit` are atomic operations on a context's own memory; `info` is what queries print,
//! `network` what is asked of every network. A worker's part is `worker`, with its connections (`conn`, `tcp_wireup`):
//! `connect` and `oob` make them, `upkeep` retransmits and finds failed peers, `failover` and `connect_rails` use
//! further ports, `receive` handles arrivals and completions, `close` drains.

pub mod address;
mod amo;
mod amo_unit;
#[allow(
    non_camel_case_types,
    clippy::undocumented_unsafe_blocks,
    reason = "as bindgen writes it"
)]
pub mod bindings;
pub mod buffers;
pub mod close;
pub mod conn;
pub mod connect;
pub mod connect_rails;
pub mod context;
pub mod credits;
pub mod desc;
mod dmabuf;
mod failover;
pub mod hca;
pub mod iface;
pub mod info;
pub mod interface;
mod iov;
pub mod keepalive;
mod lane;
pub mod loopback;
pub mod mr;
mod network;
pub mod oob;
pub mod op_slots;
pub mod options;
pub mod paths;
pub mod port;
pub mod queues;
pub mod rails;
pub mod rc;
pub mod receive;
pub mod registration;
pub mod region;
pub mod reorder;
pub mod rkey;
mod rma;
pub mod roce_reach;
pub mod rx_pool;
pub mod sender;
mod tcp_wireup;
mod short;
mod stripe;
pub mod ud;
pub mod upkeep;
pub mod verbs;
pub mod worker;
mod zcopy;

use super::oob::OobTarget;
use crate::wire::ib_port::PortLocator;
use paths::PortPair;
use std::time::Duration;

/// Settings of the transport, from the options.
#[derive(Clone, Debug)]
pub struct IbTuning {
    /// Index of the port's GID; `None`: the best one.
    pub gid_index: Option<u32>,
    /// Partition key; `None`: the first valid one.
    pub pkey: Option<u16>,
    /// Packets have a global route header even inside of a subnet.
    pub global: bool,
    /// Maximum packet size, bytes; `None`: the active MTU of the port.
    pub path_mtu: Option<u32>,
    pub service_level: u8,
    /// `None`: the default of the kind of link.
    pub traffic_class: Option<u8>,
    pub hop_limit: u8,
    /// Which RoCE ports of peers are reachable.
    pub reach: roce_reach::ReachPolicy,
    pub rc: RcTuning,
    pub ud: UdTuning,
}

/// Settings of reliable connections.
#[derive(Clone, Debug)]
pub struct RcTuning {
    /// Bytes of a buffer, the maximum of a packet.
    pub seg_size: usize,
    pub tx_queue_len: u32,
    /// Receives that all connections of a worker share.
    pub rx_queue_len: u32,
    /// Packets that may be sent before the receiver has returned credits.
    pub window: u32,
    /// Maximum bytes that one work request moves from or to the user's memory; `None`: the port's limit.
    pub zcopy_seg: Option<usize>,
    /// Time until a packet is retransmitted.
    pub timeout: Duration,
    pub retries: u8,
    /// Time until a packet that found no receive is retransmitted.
    pub rnr_timeout: Duration,
    pub rnr_retries: u8,
}

/// Settings of datagrams.
#[derive(Clone, Debug)]
pub struct UdTuning {
    /// Whether workers have a UD queue pair, for messages or for wireup only.
    pub used: bool,
    pub tx_queue_len: u32,
    /// Receives at the start, and with many peers.
    pub rx_queue_first: u32,
    pub rx_queue_len: u32,
    /// Maximum number of unacknowledged packets.
    pub window: u32,
    /// A peer that acknowledges nothing for this time is dead.
    pub timeout: Duration,
    /// Time until a packet is retransmitted for the first time.
    pub tick: Duration,
    /// Factor by which that time grows.
    pub backoff: f64,
}

/// Limits of a connection: the smaller of the values of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NegotiatedLimits {
    /// Longest packet on an RC queue pair, bytes.
    pub packet: usize,
    /// Packets that may be sent before the receiver has returned credits.
    pub window: u32,
}

/// How a worker is reached by queue pairs: the IB section of its address, and the port to use.
#[derive(Clone, Debug)]
pub struct IbTarget {
    /// The best path.
    pub path: PortPair,
    /// The peer's ports, in the order of its address, if there are other paths.
    pub ports: Box<[PortLocator]>,
    /// The secret of the worker's address.
    pub secret: u64,
    /// Where wireup messages are accepted by TCP, if one of the two workers has no UD queue pair.
    pub wireup_tcp: Option<OobTarget>,
}
