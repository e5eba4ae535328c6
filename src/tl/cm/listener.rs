//! Where connections by librdmacm come from.

use super::id::CmId;
use super::library::Rdmacm;
use super::rdmacm_conn::RdmaCmConn;
use crate::sys::log;
use crate::tl::ib::bindings::RDMA_CM_EVENT_CONNECT_REQUEST;
use crate::tl::ib::port::Port;
use crate::wire::cm_msg::{Knock, MAGIC, Refusal};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

/// Listens on the devices that have an address, on all of them at the address of any.
pub struct RdmaCmListener {
    id: CmId,
    pub address: SocketAddr,
}

impl RdmaCmListener {
    /// Begins to listen, with so many connections waiting. Port 0: one that is free.
    ///
    /// # Errors
    /// `Unsupported` where there is no librdmacm, `ENODEV`, `EADDRNOTAVAIL` if no device has the address, `EADDRINUSE`.
    pub fn new(at: SocketAddr, backlog: i32, reuse: bool) -> io::Result<RdmaCmListener> {
        let id = CmId::new(Rdmacm::get().ok_or(ErrorKind::Unsupported)?)?;
        id.listen(at, backlog, reuse)?;
        let address = id.local().ok_or(ErrorKind::InvalidInput)?;
        Ok(RdmaCmListener { id, address })
    }

    /// Readable when somebody asks.
    pub fn fd(&self) -> RawFd {
        self.id.fd()
    }

    /// Lets in who asks, by one of these ports. Who speaks something else is turned away.
    ///
    /// # Errors
    /// `WouldBlock` if nobody asks.
    pub fn accept(&self, ports: &[Arc<Port>]) -> io::Result<RdmaCmConn> {
        while let Some(guest) = self.next_conn() {
            let from = guest.remote();
            // Others refuse by dropping it: who asks tries another way then.
            let Some(port) = guest.port(ports) else {
                log::debug!("{from:?} has come by a device that the options leave out");
                continue;
            };
            match RdmaCmConn::accept(guest, port) {
                Ok(link) => return Ok(link),
                Err(e) => log::debug!("cannot accept a client: {e}"),
            }
        }
        Err(ErrorKind::WouldBlock.into())
    }

    /// The next one who asks, and speaks as we do.
    fn next_conn(&self) -> Option<CmId> {
        while let Some(event) = self.id.next() {
            if event.kind != RDMA_CM_EVENT_CONNECT_REQUEST {
                log::debug!("a listener hears of event {}", event.kind);
                continue;
            }
            let Some(guest) = event.guest else {
                continue;
            };
            if Knock::decode(&event.said).is_some() {
                return Some(guest);
            }
            let from = (guest.remote()).map_or_else(|| "?".to_owned(), |a| a.to_string());
            log::diag!("connection from {from} to a listener refused: it speaks something else");
        }
        None
    }

    /// Tells all who ask that they are not let in.
    pub fn reject(&self, status: i8) {
        let said = Refusal {
            magic: MAGIC,
            status,
        };
        while let Some(guest) = self.next_conn() {
            guest.reject(&said.encode());
        }
    }
}
