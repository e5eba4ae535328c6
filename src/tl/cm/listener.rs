//! A listener of librdmacm.

use super::id::CmId;
use super::library::Rdmacm;
use super::rdmacm_conn::RdmaCmConn;
use crate::sys::log;
use crate::tl::ib::bindings::RDMA_CM_EVENT_CONNECT_REQUEST;
use crate::tl::ib::port::Port;
use crate::wire::cm_msg::{ConnPrivateData, MAGIC, Refusal};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Listens on the devices that have `address`; on all devices if it is the unspecified address.
pub struct RdmaCmListener {
    id: CmId,
    pub address: SocketAddr,
}

impl RdmaCmListener {
    /// Starts to listen; `backlog` is the maximum number of requests that wait. Port 0 selects a free port.
    ///
    /// # Errors
    /// `Unsupported` where there is no librdmacm, `ENODEV`, `EADDRNOTAVAIL` if no device has the address, `EADDRINUSE`.
    pub fn new(at: SocketAddr, backlog: i32, reuse: bool) -> io::Result<RdmaCmListener> {
        let id = CmId::new(Rdmacm::get().ok_or(ErrorKind::Unsupported)?)?;
        id.listen(at, backlog, reuse)?;
        let address = id.local().ok_or(ErrorKind::InvalidInput)?;
        Ok(RdmaCmListener { id, address })
    }

    /// The descriptor of the event channel: readable when a connection request waits.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.id.fd()
    }

    /// Accepts the next connection request that came by one of `ports`. A request without the private data of rucp is
    /// refused.
    ///
    /// # Errors
    /// `WouldBlock` if no request waits.
    pub fn accept(&self, ports: &[Arc<Port>]) -> io::Result<RdmaCmConn> {
        while let Some(conn_id) = self.next_conn() {
            let from = conn_id.remote();
            // Dropping the identifier refuses the request; the client then tries another transport.
            let Some(port) = conn_id.port(ports) else {
                log::debug!("connection from {from:?} rejected: the options exclude its device");
                continue;
            };
            match RdmaCmConn::accept(conn_id, port) {
                Ok(link) => return Ok(link),
                Err(e) => log::debug!("cannot accept a client: {e}"),
            }
        }
        Err(ErrorKind::WouldBlock.into())
    }

    /// The next connection request whose private data has the magic number of rucp.
    fn next_conn(&self) -> Option<CmId> {
        while let Some(event) = self.id.next() {
            if event.kind != RDMA_CM_EVENT_CONNECT_REQUEST {
                log::debug!("a listener ignores event {}", event.kind);
                continue;
            }
            let Some(conn_id) = event.conn_id else {
                continue;
            };
            if ConnPrivateData::decode(&event.private_data).is_some() {
                return Some(conn_id);
            }
            let from = (conn_id.remote()).map_or_else(|| "?".to_owned(), |a| a.to_string());
            log::diag!("connection from {from} to a listener rejected: unknown protocol");
        }
        None
    }

    /// Rejects all requests that wait, with `status`.
    pub fn reject(&self, status: i8) {
        let private_data = Refusal {
            magic: MAGIC,
            status,
        };
        while let Some(conn_id) = self.next_conn() {
            conn_id.reject(&private_data.encode());
        }
    }
}
