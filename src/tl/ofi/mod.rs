//! A transport over libfabric: messages of reliable endpoints (`FI_EP_RDM`, `FI_MSG`) of any of its providers, and
//! reads and writes (`FI_RMA`) of those that have them.
//!
//! `bindings`: libfabric's types; `fabric`: the library, opened at run time; `device`: the domains that its providers
//! have; `choice`: those that options allow, whose rows are in `rows`. `endpoint` has the objects of a worker, which
//! `closed` closes, with libfabric's inline functions as methods; `buffers` those for packets; `addresses` those of
//! peers; `shared_ep` is all of these, as the threads of a worker use them, for one device, with its receive buffers
//! (`ep_receives`). `packet` and `address` are what workers send each other, and their section of a worker address.
//!
//! `worker` has the interfaces of a worker, each for one device, as `interface` has progress call them: it chooses the
//! interface that connects to a peer. `iface` is one of them, with its connections, each with the order of its
//! packets (`reorder`): `connect` makes them, `receive` handles completions, `op_failure` those that are errors, `loss`
//! lost packets (`loss_check`), `upkeep` what is due, `close` ends them. `rail`: a further interface, which reads parts
//! of long messages; `rail_connect` connects it, `rail_lane` has what its lane does with it. `failover`: a connection
//! that fails goes on by another interface (`failover_handover`), because it has failed here, or because its peer asks
//! for it (`failover_request`); what goes on is its session (`failover_session`). `failover_read`: what it reads in
//! place.
//!
//! Memory of peers: `endpoint_mr` and `endpoint_rma` are libfabric's functions, `object` what they open; `mr`
//! registers user memory, `region` that of `ucp_mem_map`, in the domain of each endpoint in the `registry`; `rkey` is
//! the section of a remote key. `rma` posts puts and gets by `shared_ep_rma`; `iov` has the pieces of
//! a list; `rma_limits` bounds them, `rma_pool` has
//! those that are outstanding, `rma_count` counts them, `rma_completion` handles their ends. `op_context`: what the
//! context of an operation begins with; `ended_context`: what it leads to. `amo`: atomic operations of a provider;
//! `amo_unit`: those on memory of this process.
//!
//! `tx_link`: what the threads share of a connection; `sender` and `lane`: the sending half; `short`: both halves of
//! short records. `tcp_sockets` and `silent_hosts`: how a link that was cut is noticed over the provider `tcp`;
//! `refusal`: how a process on another host is noticed that has ended.
//! `context` and `network`: what a context knows of the transport; `info`: what queries print.

pub mod address;
mod addresses;
mod amo;
mod amo_unit;
#[expect(
    non_camel_case_types,
    dead_code,
    clippy::type_complexity,
    clippy::undocumented_unsafe_blocks,
    reason = "as bindgen writes it"
)]
mod bindings;
mod buffers;
mod choice;
mod close;
mod closed;
mod conn;
mod connect;
pub mod context;
mod control_queue;
mod device;
mod ended_context;
mod endpoint;
mod endpoint_close;
mod endpoint_mr;
mod endpoint_recv;
mod endpoint_rma;
mod ep_receives;
mod fabric;
mod fabric_hash;
mod failover;
mod failover_ack;
mod failover_events;
mod failover_handover;
mod failover_packet;
mod failover_read;
mod failover_request;
mod failover_sender;
mod failover_session;
mod former_conns;
mod hello;
pub mod iface;
pub mod info;
pub mod interface;
mod iov;
mod lane;
mod loss;
mod loss_check;
pub mod mr;
mod multi_recv;
mod network;
mod object;
mod op_context;
mod op_failure;
mod packet;
mod rail;
mod rail_connect;
mod rail_lane;
mod receive;
mod refusal;
mod refused_hello;
pub mod region;
mod registry;
mod reorder;
mod replay;
pub mod rkey;
mod rma;
mod rma_completion;
mod rma_count;
mod rma_limits;
mod rma_pool;
pub mod sender;
mod shared_ep;
mod shared_ep_rma;
mod short;
mod silent_hosts;
mod tcp_sockets;
#[cfg(test)]
mod tests;
mod tx_link;
mod upkeep;
pub mod worker;

pub use address::OfiLocators;
