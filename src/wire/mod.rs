//! Bytes on the wire: message headers, frames, greetings, worker address, packed rkey. Pure.
//!
//! Everything is little-endian and packed, whatever the machine. What is decoded here comes from
//! another process and is taken for hostile: decoding returns a valid value or none, and never panics.

mod packed;

pub mod header;
pub mod frame;
pub mod greeting;
pub mod address;
pub mod packet;
pub mod tofu;
pub mod offered;
pub mod rkey;
pub mod steering;
pub mod session;
pub mod stats;
