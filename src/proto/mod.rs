//! Protocols: selection, sending, rendezvous, wireup, failure handling.

pub mod answers;
pub mod close_grace;
pub mod cm;
pub mod detach;
pub mod endpoints;
pub mod failure;
pub mod fence;
pub mod flush;
pub mod internal;
pub mod lane_info;
pub mod liveness;
pub mod loss_log;
pub mod proto_info;
pub mod release;
pub mod req_lookup;
pub mod resolve;
pub mod resources;
pub mod rndv;
pub mod rndv_cancel;
pub mod select;
pub mod split_copy;
pub mod tx;
pub mod unused_rings;
pub mod waits;
