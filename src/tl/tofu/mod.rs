//! Tofu Interconnect D through uTofu: messages are puts into rings in the receiver's memory.
//!
//! - `utofu`: the library, opened at run time; `tni`: the usable network interfaces (TNIs).
//! - `vcq`: a virtual control queue (VCQ) and memory registered for it; `vcq_ops`: its hot calls; `op_queue`: the
//!   operations outstanding on it; `amo`: atomic operations.
//! - `iface`: a worker's VCQ, its ticket queue, where peers request rings, and its `rails`, further VCQs for long
//!   transfers; `vcq_alloc`: which workers get a control queue of their own; `vcq_registry`: the VCQs of a context;
//!   `route`: the path of a connection through the network.
//! - `ring_layout`: where frames lie in a ring, computed alike at both ends. A frame is a packet of `wire::ib_packet`
//!   whose credit field is its sequence number. `rx_ring`: a ring, read by its owner and written by one peer's
//!   `sender`; `ctrl_words`: words of a sender into which the receiver writes the grant of a ring and credits;
//!   `tx_acks`: how many posts of a connection are acknowledged.
//! - `sizing`, `ring_pool`: later rings are shorter; where their memory comes from.
//! - `worker`: what the progress thread of a worker uses, with its connections (`conn`). `connect`: gets a ring at a
//!   peer; `listen`, `accept`: serve the ticket queue, and grant rings; `receive`: arrivals and completions; `close`:
//!   connections whose peers have failed. They reach the layers above by `tl::sink`, and lanes by `peer_lane`.
//! - `options`: the settings; `context`: what contexts, and the threads of a worker, use of the transport; `info`:
//!   names, estimates and capabilities for queries and tools; `address`: the section of a worker address;
//!   `network`: what is asked of every network.
//! - `rma`: puts, gets and atomic operations that the layers above post; short ones are in `sender`.
//! - `mr`: the registration cache of user memory, `registration`: its use; `stripe`: the parts of long transfers, by
//!   VCQ. `region`: memory that peers access; `rkey`: memory of peers, and the section of a remote key. The wireup
//!   messages are in `wire::tofu_msg`.

pub mod accept;
pub mod address;
pub mod close;
pub mod conn;
pub mod connect;
pub mod context;
pub mod ctrl_words;
pub mod iface;
pub mod rx_ring;
pub mod tx_acks;
pub mod vcq_alloc;
pub mod vcq_ops;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, loom))]
pub mod model;
pub mod amo;
mod amo_unit;
pub mod info;
pub mod interface;
mod lane;
pub mod listen;
pub mod mr;
mod network;
pub mod op_queue;
pub mod options;
pub mod peer_lane;
pub mod rail;
pub mod receive;
pub mod region;
pub mod registration;
pub mod ring_layout;
pub mod ring_pool;
pub mod rkey;
pub mod rma;
pub mod route;
pub mod sender;
mod short;
pub mod sizing;
pub mod stripe;
pub mod tni;
pub mod utofu;
pub mod vcq;
pub mod vcq_registry;
pub mod worker;

pub use address::TofuTarget;

/// Settings of the transport, from the options.
#[derive(Clone, Copy, Debug)]
pub struct TofuTuning {
    /// Bytes of the first rings, and about the bytes of all rings together.
    pub ring_size: u32,
    pub ring_memory: u64,
    /// Bytes of the longest frame.
    pub packet: u32,
    /// Frames that a peer may have in flight.
    pub window: u32,
    /// MRQ notices reserved for frames; as many again are reserved for one-sided operations.
    pub notices: u32,
    /// VCQs of a worker: one for messages, the others are rails.
    pub queues: usize,
    /// Index of the process's first TNI, modulo their number.
    pub first: usize,
    /// Maximum number of VCQs of the process with an exclusive control queue.
    pub most_alone: usize,
    /// Transfers of this many bytes or more register their memory.
    pub zcopy: usize,
    /// Maximum number of TNIs that share a long put or get.
    pub rma_rails: usize,
    /// Maximum number of TNIs that share a long message.
    pub rndv_rails: usize,
}
