//! Contexts, workers, endpoints and what they hold; the tag matcher is a pure module of its own.

pub mod alarm;
pub mod am;
pub mod atomics;
#[cfg(not(loom))]
pub mod bell;
pub mod context;
pub mod cq;
pub mod datatype;
pub mod duties;
pub mod endpoint;
pub mod handlers;
pub mod idtable;
pub mod inherited;
pub mod listener;
pub mod liveness;
pub mod matcher;
pub mod memory;
pub mod offer;
pub mod patience;
pub mod peer;
pub mod pinned;
pub mod policy;
pub mod ports;
pub mod rings;
pub mod regions;
pub mod request;
pub mod rkey;
pub mod stats;
pub mod steer;
pub mod stream;
pub mod sockets;
pub mod unexpected;
pub mod wake;
pub mod watch;
pub mod worker;
