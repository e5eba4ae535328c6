//! Sockaddr connections over RDMA: librdmacm finds the device that an address belongs to and connects queue pairs on
//! it.
//!
//! `library` is librdmacm, opened at run time; an `id` is one of its identifiers with an event channel of its own. An
//! `rdmacm_conn` is a connection, a stream of bytes like a socket, carried by its `cm_qp`; a `listener` accepts such
//! connections. `deferred_close` keeps a dropped connection until its last record is acknowledged.

pub mod cm_qp;
pub mod deferred_close;
pub mod id;
pub mod library;
pub mod listener;
pub mod rdmacm_conn;

pub use listener::RdmaCmListener;
pub use rdmacm_conn::RdmaCmConn;
