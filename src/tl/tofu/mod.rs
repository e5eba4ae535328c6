//! The Tofu interconnect by uTofu: puts into rings in the memory of whoever reads them.
//!
//! `utofu` is the library, opened at run time, `tni` the network interfaces that may be used, `vcq` a virtual control queue and
//! memory that is registered for it, `queue` what is under way there. An `iface` is what a worker has: a queue and a hall, where
//! strangers ask for rings. A frame is a packet of `wire::packet` whose credit is its number; where it lies in a ring both ends
//! compute (`ring`). An `inbound` ring is read by its owner and written by one peer, through a `sender`; `cells` are where
//! peers tell the sender what it may write. What is said before anything else is in `wire::tofu`.

pub mod cells;
pub mod iface;
pub mod inbound;
pub mod queue;
pub mod ring;
pub mod roster;
pub mod sender;
pub mod tni;
pub mod utofu;
pub mod vcq;

use crate::wire::address::TofuLocator;

/// Settings of the transport, from the options.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// Bytes of a ring.
    pub ring_size: u32,
    /// Bytes of the longest frame.
    pub packet: u32,
    /// Frames that a peer may have under way.
    pub window: u32,
    /// Notices of frames that the queue of notices has room for.
    pub notices: u32,
}

/// Where a worker is, as its address says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    pub locator: TofuLocator,
}
