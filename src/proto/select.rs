//! Selection of protocols: what moves the bytes of an operation.
//!
//! [`message`] selects the protocol of a message, [`rndv`] what an RTS offers and the scheme of its receiver, [`rma`]
//! the path of a put or get, [`amo`] that of an atomic operation. Each is decided only here; the posts and the printed
//! protocols (`UCX_PROTO_INFO`) call the same functions.
#![forbid(unsafe_code)]

pub mod amo;
pub mod message;
pub mod rma;
pub mod rndv;
