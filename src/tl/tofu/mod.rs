//! The Tofu interconnect by uTofu: puts into rings in the memory of whoever reads them.
//!
//! `utofu` is the library, opened at run time, `tni` the network interfaces that may be used, `vcq` a virtual control
//! queue and memory that is registered for it, `vcq_ops` what is called most of it, `op_queue` what is under way there.
//! An `iface` is what a worker has: a queue, a hall, where strangers ask for rings, and `rails`, further queues for
//! long transfers; `vcq_alloc` says who has a control queue to itself, `route` which way connections take. A frame is a
//! packet of `wire::packet` whose credit is its number; where it lies in a ring both ends compute (`ring_layout`). An
//! `rx_ring` ring is read by its owner and written by one peer, through a `sender`; `ctrl_words` are where peers tell
//! the sender what it may write, and a `tx_acks` is how much of what it has posted is known to have arrived. Rings get
//! shorter as there are more of them (`sizing`, `ring_pool`). Users' memory is `mr`. What is said before anything else
//! is in `wire::tofu`.

pub mod vcq_alloc;
pub mod ctrl_words;
pub mod tx_acks;
pub mod iface;
pub mod rx_ring;
pub mod vcq_ops;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, loom))]
pub mod model;
pub mod route;
pub mod mr;
pub mod op_queue;
pub mod ring_layout;
pub mod rail;
pub mod vcq_registry;
pub mod sender;
pub mod amo;
pub mod sizing;
pub mod ring_pool;
pub mod tni;
pub mod utofu;
pub mod vcq;

use crate::wire::address::TofuLocator;

/// Settings of the transport, from the options.
#[derive(Clone, Copy, Debug)]
pub struct TofuTuning {
    /// Bytes of the first rings, and of all together, about.
    pub ring_size: u32,
    pub ring_memory: u64,
    /// Bytes of the longest frame.
    pub packet: u32,
    /// Frames that a peer may have under way.
    pub window: u32,
    /// Notices of frames that the queue of notices has room for, and of what is read as many again.
    pub notices: u32,
    /// Queues of a worker: one for messages, the others are rails.
    pub queues: usize,
    /// The network interface that the process begins with, modulo their number.
    pub first: usize,
    /// Queues of the process that are alone on a control queue, at most.
    pub most_alone: usize,
    /// From so many bytes on memory is registered for one transfer.
    pub zcopy: usize,
    /// Interfaces that share a long put or get, at most.
    pub rma_rails: usize,
    /// The same of a long message.
    pub rndv_rails: usize,
}

/// Where a worker is, as its address says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TofuTarget {
    pub locator: TofuLocator,
}
