//! A transport for tests of the transport contract (docs/TRANSPORTS.md), which has the least that the contract allows:
//! sequenced-packet sockets of the Unix domain between the workers of a host. Compiled with the feature `shmtest`.
//!
//! A connection carries packets in one direction, from the worker that has made it. The first packet is a [`hello`],
//! each further one a record: the head of a `wire::frame`, and the bytes. The kernel keeps what was sent until the
//! receiver has read it, even if the sender has ended.
//!
//! `socket`: the system calls; `address`: the section of a worker address; `context`: what a context knows of the
//! transport; `worker`: the listening socket and the connections of a worker, as `interface` has progress call them.
//! `connect` makes connections, `accept` takes those of peers, `receive` reads them, `close` ends both. `sender` and
//! `lane`: the sending half of a connection. `info`: what queries print.

#![cfg(feature = "shmtest")]

mod accept;
pub mod address;
mod close;
mod connect;
pub mod context;
mod hello;
pub mod info;
pub mod interface;
mod lane;
mod network;
mod receive;
pub mod sender;
mod socket;
#[cfg(test)]
mod tests;
pub mod worker;

pub use address::ShmtestLocator;

use super::contract::MAX_BCOPY;
use crate::wire::frame::HEADER;

/// Longest packet, bytes.
const MAX_PACKET: usize = HEADER + MAX_BCOPY;
