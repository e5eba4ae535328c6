//! Operations of the API: tagged messages, active messages, streams, RMA, atomics, endpoints.

pub mod am;
pub mod amo;
pub mod tcp_rx_bulk;
pub mod ud_rx;
pub mod deferred;
pub mod endpoint;
mod amo_target;
pub mod ib_drain;
pub mod listener;
pub mod rkey;
pub mod tofu_rx;
pub mod ib_rx;
pub mod param;
pub mod get_reply;
pub mod rma;
pub mod rx_dispatch;
pub mod sgl;
mod short;
pub mod signal;
pub mod wakeup;
pub mod stream;
pub mod tcp_rx;
pub mod tag;
pub mod tick;
pub mod worker_destroy;
