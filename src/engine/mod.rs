//! Contexts, workers, endpoints and what they hold; the tag matcher is a pure module of its own.

pub mod am;
pub mod cm;
pub mod completion;
pub mod context;
pub mod core_yield;
pub mod cq;
pub mod datatype;
pub mod endpoint;
pub mod err_handlers;
#[cfg(not(loom))]
pub mod futex_waker;
pub mod inherited;
pub mod job;
pub mod matcher;
pub mod memory;
pub mod peer;
pub mod peer_monitor;
pub mod pointers;
pub mod policy;
pub mod probe_state;
pub mod progress_clock;
pub mod progress_flags;
pub mod ptr_map;
pub mod registration;
pub mod regions;
pub mod request;
pub mod request_alloc;
pub mod rkey;
pub mod rndv_rts;
pub mod stats;
pub mod stream;
pub mod unexpected;
pub mod waits;
pub mod wakeup;
pub mod worker;
pub mod yield_policy;
