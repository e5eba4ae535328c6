//! rucp: `libucp.so.0`, the UCP layer of Unified Communication X, written again in Rust.
//!
//! The order of the modules is the architecture: a module uses only modules declared above it
//! (`scripts/check-layers` enforces it). docs/ARCHITECTURE.md explains each layer, docs/GLOSSARY.md each term.
//!
//! # Where things happen
//!
//! - **An unexpected tagged message** waits in the worker's tag matcher ([`engine::matcher`]) as an
//!   [`engine::unexpected::UnexpectedTag`]: up to 46 bytes in the matcher's own node, a longer eager message in a heap
//!   block. Of a rendezvous only the RTS waits; the data stay at the sender. Stream bytes wait in [`engine::stream`].
//!   Active messages do not wait: progress calls their handler.
//! - **A datagram is retransmitted** by the progress call of the worker that sent it: [`tl::ib::upkeep`] calls `tick`
//!   of the connection ([`tl::ib::ud`]), which keeps each packet until the peer acknowledges it. Packets of a reliable
//!   connection are retransmitted by the device, TCP segments by the kernel.
//! - **A connection's queue pair is closed** by the destructor of [`tl::ib::queues::IbvQp`], which calls
//!   `ibv_destroy_qp` when the last of its owners, the connection ([`tl::ib::worker`]) and the lane, is dropped: by
//!   [`tl::ib::close`] when the worker is destroyed and its connections are drained, by [`proto::tx::zcopy`] and
//!   [`tl::ib::connect`] when the connection has failed or falls back to datagrams. A rail's queue pair goes with its
//!   [`tl::ib::rails`].
//! - **A rendezvous receive** goes through these states:
//!   1. *posted*: in the matcher;
//!   2. *matched* with an RTS ([`proto::rndv::receive`]);
//!   3. one of
//!      - *racing*: RTR sent, the sender may claim the message before the receiver copies it. When the sender does not
//!        progress for 2 us it becomes *copying*;
//!      - *copying* by `process_vm_readv`; the sender may copy chunks, too. Without the right to copy it becomes
//!        *receiving messages*;
//!      - *reading*: RDMA read or Tofu get by the receiver's device;
//!      - *being written*: keys sent, RDMA write by the sender's device;
//!      - *receiving messages*: RTR sent, DATA messages arrive;
//!   4. *complete*: ATS sent where the sender waits for it, and the callback runs.
//! - **A transport hands a message upwards** as a [`tl::Message`], from the worker's progress ([`fast::progress`]).
//!   Frequent kinds go to the hot path (`fast/arrival.rs`), all others to [`op::rx_dispatch`]. Transports call both
//!   through [`tl::sink::Sink`], which [`op::sink::WorkerSink`] implements; shared memory also through
//!   [`tl::ring_sink::RingSink`].
//! - **What a transport keeps**: its options are in `tl/NAME/rows.rs` (the table of options is [`options`]), and the
//!   settings that follow from them in `tl/NAME/options.rs`; its section of the worker address ([`tl::address`]) is in
//!   `tl/NAME/address.rs`, that of a remote key ([`tl::rkey`]) in `tl/NAME/rkey.rs`, and [`tl::reach`] has the order of
//!   preference; its parts of a context, a worker, a region and an unpacked key are in [`tl::TlContext`],
//!   [`tl::TlWorker`], [`tl::TlRegion`] and [`tl::TlRkey`]; what copies by the kernel keep of a peer is
//!   [`tl::CmaState`]. User memory is registered by [`tl::registrar`]. What only the progress thread uses of a worker
//!   is an interface ([`tl::interface`]); all are in the [`tl::TlRx`] of [`engine::worker::Rx`].

// Types that C sees: structures, enumerations, masks, callbacks. `include/` is generated from here and from [`abi`].
pub mod ctypes;
// The table of `UCX_*` options with parser and printer; docs/OPTIONS.md is generated from it.
pub mod options;
// The machine: processors, clocks, locks, shared segments, registered memory, memory hooks, log.
pub mod sys;
// Bytes on the wire: message headers, frames, packets, worker address, packed rkey. No unsafe code.
pub mod wire;
// Transports: shared memory, TCP, InfiniBand and RoCE, Tofu; one `enum Lane`.
pub mod tl;
// Objects: context, worker, endpoint, peer, request, rkey, memory, tag matcher, streams, completion queues.
pub mod engine;
// Protocols: selection, pending queues, rendezvous, wireup, fence, flush, failure.
pub mod proto;
// Operations: tags, active messages, streams, put, get, atomics; dispatch of what arrives.
pub mod op;
// The hot path: the code that every short message passes, in reading order.
pub mod fast;
// The exported functions: each converts handles to references and makes one call.
pub mod abi;
