//! Formats on the wire: message headers, frames, wireup messages, worker address, packed rkey. No I/O.
//!
//! Everything is little-endian and packed, whatever the machine. Input comes from another process and is not trusted:
//! decoding returns a valid value or none, and never panics.

pub(crate) mod le_struct;

pub mod address;
pub mod cm_msg;
pub mod device_handle;
pub mod frame;
pub mod header;
pub mod ib_packet;
pub mod ib_port;
pub mod list_piece;
pub mod packet_hdr;
pub mod rkey;
pub mod rts_keys;
pub mod stats;
pub mod tcp_hello;
pub mod tofu_msg;
pub mod waits;
