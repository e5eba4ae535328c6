//! What the user asks for: tagged messages, active messages, remote memory access, endpoints.

pub mod am;
pub mod amo;
pub mod bulk;
pub mod datagrams;
pub mod endpoint;
mod executor;
pub mod linger;
pub mod listener;
pub mod memory;
pub mod notices;
pub mod packets;
pub mod param;
pub mod reply;
pub mod rma;
pub mod serve;
pub mod sgl;
pub mod signal;
pub mod sleep;
pub mod stream;
pub mod sockets;
pub mod tag;
pub mod teardown;
