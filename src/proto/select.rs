//! Selection of protocols: what moves the bytes of an operation.
//!
//! [`message`] selects the protocol of a message, [`device`] that of those from memory of devices, [`rndv`] what an RTS
//! offers and the scheme of its receiver, [`rma`] the path of a put or get, [`amo`] that of an atomic operation. Each
//! is decided only here; the posts and the printed protocols (`UCX_PROTO_INFO`) call the same functions, but for the
//! threshold by cost of memory of devices, in whose place the tables have that of host memory.
#![forbid(unsafe_code)]

pub mod amo;
pub mod device;
pub mod message;
pub mod rma;
pub mod rndv;
