//! Connections by socket address over RDMA: librdmacm finds the device that an address belongs to, and connects queue
//! pairs there.
//!
//! `library` is librdmacm, opened at run time, an `id` one of its identifiers with a channel of its own for events. A
//! `link` is a connection, a stream of bytes as a socket is, by the `queue` that it has; a `listener` is where links
//! come from. What was said on a link that is dropped is waited for by `linger`.

pub mod id;
pub mod library;
pub mod linger;
pub mod link;
pub mod listener;
pub mod queue;

pub use link::Link;
pub use listener::Listener;
