//! Connections by socket address over RDMA: librdmacm finds the device that an address belongs to, and connects queue
//! pairs there.
//!
//! `library` is librdmacm, opened at run time, an `id` one of its identifiers with a channel of its own for events. A
//! `rdmacm_conn` is a connection, a stream of bytes as a socket is, by the `cm_qp` that it has; a `listener` is where
//! links come from. What was said on a link that is dropped is waited for by `deferred_close`.

pub mod id;
pub mod library;
pub mod deferred_close;
pub mod rdmacm_conn;
pub mod listener;
pub mod cm_qp;

pub use listener::RdmaCmListener;
pub use rdmacm_conn::RdmaCmConn;
