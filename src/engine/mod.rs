//! Contexts, workers, endpoints and what they hold; the tag matcher is a pure module of its own.

pub mod epoll_timer;
pub mod am;
pub mod amo_mode;
#[cfg(not(loom))]
pub mod futex_waker;
pub mod context;
pub mod cq;
pub mod datatype;
pub mod progress_flags;
pub mod endpoint;
pub mod err_handlers;
pub mod ptr_map;
pub mod inherited;
pub mod cm;
pub mod probe_state;
pub mod matcher;
pub mod memory;
pub mod rndv_rts;
pub mod yield_policy;
pub mod peer;
pub mod ib_mr;
pub mod policy;
pub mod ib_worker;
pub mod tofu_worker;
pub mod regions;
pub mod request;
pub mod rkey;
pub mod stats;
pub mod tofu_mr;
pub mod stream;
pub mod tcp_worker;
pub mod unexpected;
pub mod wakeup;
pub mod peer_monitor;
pub mod worker;
