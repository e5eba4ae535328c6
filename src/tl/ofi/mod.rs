//! A transport over libfabric: messages of reliable endpoints (`FI_EP_RDM`, `FI_MSG`) of any of its providers.
//!
//! `bindings`: libfabric's types; `fabric`: the library, opened at run time; `device`: the domains that its providers
//! have; `choice`: those that options allow, whose rows are in `rows`. `endpoint` has the objects of a worker, with
//! libfabric's inline functions as methods; `buffers` those for packets; `iface` is both, as the threads of a worker
//! use them. `packet` and `address` are what workers send each other, and their section of a worker address.
//!
//! `worker` has the connections of a worker, each with the order of its packets (`reorder`), as `interface` has
//! progress call them: `connect` makes them, `receive` handles completions, `upkeep` what is due, `close` ends them.
//! `tx_link`: what the threads share of a connection; `sender` and `lane`: the sending half. `context` and `network`:
//! what a context knows of the transport; `info`: what queries print.

pub mod address;
#[expect(
    non_camel_case_types,
    dead_code,
    clippy::undocumented_unsafe_blocks,
    reason = "as bindgen writes it"
)]
mod bindings;
mod buffers;
mod choice;
mod close;
mod connect;
pub mod context;
mod device;
mod endpoint;
mod fabric;
mod iface;
pub mod info;
pub mod interface;
mod lane;
mod network;
mod packet;
mod receive;
mod reorder;
pub mod sender;
#[cfg(test)]
mod tests;
mod tx_link;
mod upkeep;
pub mod worker;

pub use address::OfiLocator;
