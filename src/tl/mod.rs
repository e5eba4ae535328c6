//! Transports: how bytes get from one worker to another. They do not depend on matching or on requests.
//!
//! `contract`, `lane`, `interface` and `interfaces`: what a transport does for the layers above; `sink` and
//! `ring_sink`: what it calls there; `held`: both in the hot path of progress; `lane_short`: what the hot path of sends
//! asks of a lane; `shared`: what it keeps in contexts, workers, regions and keys; `networks`: the list of networks,
//! from which the parts for each of them are generated; `network`: what a context knows of one; `network_info`: what is
//! printed of it; `rma`, `rma_ops`, `rma_short`, `adapter`: puts, gets and atomic operations by an adapter;
//! `registrar`: registration of user memory; `oob`: messages by which one establishes connections of another; `reach`:
//! the transports that lead to a worker; `address`: its bytes; `rkey`: those of a remote key; `message`, `payload`,
//! `token`, `rail_event`: what both sides exchange; `target`: where a lane leads; `iface_kind`: which interfaces there
//! are; `iface_params`: what they have to know of their worker; `amo`: atomic operations on memory of this process;
//! `resources`, `lane_info`: what queries print of all transports; `cm`, `cm_conn`: connections of clients and
//! listeners; `cm_address`: addresses that they exchange; `cuda`: memory of
//! GPUs.

pub mod adapter;
pub mod address;
pub mod amo;
pub mod cm;
pub mod cm_address;
pub mod cm_conn;
pub mod contract;
pub mod cuda;
pub mod held;
pub mod ib;
mod iface_kind;
mod iface_params;
pub mod interface;
mod interfaces;
mod lane;
pub mod lane_info;
mod lane_short;
pub mod mapped;
mod message;
mod network;
mod network_info;
mod networks;
pub mod ofi;
pub mod oob;
pub mod payload;
mod program;
pub mod rail_event;
pub mod reach;
pub mod reassembly;
pub mod registrar;
pub mod resource;
pub mod resources;
pub mod ring_sink;
pub mod rkey;
pub mod rma;
pub mod rma_ops;
pub mod rma_pieces;
pub mod rma_short;
mod shared;
pub mod sink;
pub mod shm;
pub mod shmtest;
pub mod tcp;
pub mod tofu;
mod target;
mod token;

pub use ib::receive::short::SoleIface;
pub use iface_kind::IfaceKind;
pub use iface_params::IfaceParams;
pub use interfaces::{PolledRings, PolledSignal, TlRx};
pub(crate) use lane::with_sender;
pub use lane::{Lane, LaneSender};
pub use lane_short::RingSender;
pub(crate) use lane_short::with_short_am;
pub use message::Message;
pub use networks::transport_names;
pub use program::Program;
pub use resource::Resource;
pub use shared::{TlContext, TlRegion, TlRegions, TlRkey, TlWorker, TlZcopy};
pub use shm::close::{CloseAnswer, CloseOffer};
pub use shm::cma::{CmaFault, CmaRemote};
pub use shm::cma_peer::{CmaGuard, CmaPeer, CmaState};
pub use shm::host_link::HostLink;
pub use shm::info::{cma as cma_lane, ring as ring_lane};
pub use shm::split_copy::{Chunks, NextChunk, SplitCopy, SplitCopyId};
pub use shm::split_write::SplitWrite;
pub use shm::{FoundInbox, InboxLocator, RingOwner};
pub use target::{FallbackTarget, LaneTarget};
pub use token::Token;
