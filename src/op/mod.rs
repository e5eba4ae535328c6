//! Operations of the API: tagged messages, active messages, streams, RMA, atomics, endpoints.

pub mod am;
pub mod amo;
mod amo_target;
mod buffer;
pub mod deferred;
mod device_target;
pub mod endpoint;
pub mod get_reply;
mod keep;
pub mod listener;
pub mod malformed;
pub mod param;
mod payload;
mod registered;
pub mod rkey;
pub mod rma;
pub mod rx_dispatch;
pub mod sgl;
mod short;
pub mod signal;
pub mod sink;
pub mod stream;
pub mod tag;
pub mod tick;
pub mod wakeup;
pub mod worker_destroy;
