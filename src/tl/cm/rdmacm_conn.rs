//! A connection by librdmacm: a stream of bytes like a socket.

use super::cm_qp::CmQp;
use super::deferred_close;
use super::id::{CmId, failure};
use super::library::Rdmacm;
use crate::tl::ib::bindings::*;
use crate::tl::ib::port::Port;
use crate::wire::cm_msg::{ConnPrivateData, MAGIC, Refusal};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// One end of a connection. A record sent before the drop still arrives if the remote end exists.
pub struct RdmaCmConn {
    /// None after the drop has begun. Boxed so that the enum [`CmConn`](crate::tl::cm_conn::CmConn) stays as small as a
    /// socket.
    inner: Option<Box<RdmaCmInner>>,
}

/// Field order: the queue pair is dropped before the identifier, whose destruction notifies the remote end.
pub struct RdmaCmInner {
    queue: Option<CmQp>,
    id: CmId,
    /// Of a client that connects: the timeout of address and route resolution, milliseconds.
    timeout_ms: i32,
}

/// State of an attempt to connect.
pub enum RdmaConnectStep {
    /// The attempt goes on.
    Pending,
    /// The connection is established.
    Open,
    /// The listener refuses, with this status.
    Refused(i8),
}

impl RdmaCmConn {
    /// Starts to connect to `to`, from the source address `from` if one is given; events report the progress.
    /// `timeout`: of address and route resolution.
    ///
    /// # Errors
    /// `Unsupported` where there is no librdmacm; errors that the system returns at once.
    pub fn connect(
        to: SocketAddr,
        from: Option<SocketAddr>,
        timeout: Duration,
    ) -> io::Result<RdmaCmConn> {
        let id = CmId::new(Rdmacm::get().ok_or(ErrorKind::Unsupported)?)?;
        let timeout_ms = timeout.as_millis().clamp(1, i32::MAX as u128) as i32;
        id.resolve_address(to, from, timeout_ms)?;
        Ok(RdmaCmConn::of(id, None, timeout_ms))
    }

    /// Accepts a connection request.
    ///
    /// # Errors
    /// The client has closed the connection; errors of the device.
    pub fn accept(id: CmId, port: &Arc<Port>) -> io::Result<RdmaCmConn> {
        let mut queue = CmQp::new(port, &id)?;
        queue.enter(&id, IBV_QPS_RTR)?;
        queue.enter(&id, IBV_QPS_RTS)?;
        id.accept(
            port,
            queue.number(),
            &ConnPrivateData { magic: MAGIC }.encode(),
        )?;
        Ok(RdmaCmConn::of(id, Some(queue), 0))
    }

    fn of(id: CmId, queue: Option<CmQp>, timeout_ms: i32) -> RdmaCmConn {
        let inner = RdmaCmInner {
            queue,
            id,
            timeout_ms,
        };
        RdmaCmConn {
            inner: Some(Box::new(inner)),
        }
    }

    fn inner(&mut self) -> io::Result<&mut RdmaCmInner> {
        self.inner
            .as_deref_mut()
            .ok_or(ErrorKind::NotConnected.into())
    }

    /// Advances an attempt to connect, by one of `ports`.
    ///
    /// # Errors
    /// Why the attempt failed: `ConnectionRefused` if no listener has the address.
    pub fn connected(&mut self, ports: &[Arc<Port>]) -> io::Result<RdmaConnectStep> {
        self.inner()?.connected(ports)
    }

    /// Sends a record: the first one of this end, or its disconnect record.
    ///
    /// # Errors
    /// `WriteZero` if it is too long, `BrokenPipe` if the connection has failed.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let queue = self.inner()?.queue.as_mut();
        queue.ok_or(ErrorKind::NotConnected)?.send(bytes)
    }

    /// Reads what has arrived: 0 at the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` if nothing has arrived.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let inner = self.inner()?;
        inner.recv();
        match &mut inner.queue {
            Some(queue) if queue.has_unread() => Ok(queue.read(into)),
            Some(queue) if !queue.ended => Err(ErrorKind::WouldBlock.into()),
            _ => Ok(0),
        }
    }

    /// Whether the connection is open and everything that has arrived was read.
    pub fn is_idle(&mut self) -> bool {
        let Ok(inner) = self.inner() else {
            return false;
        };
        inner.recv();
        (inner.queue.as_ref()).is_some_and(|queue| !queue.ended && !queue.has_unread())
    }

    /// Requests an acknowledgment from the remote host; without one the stream ends.
    pub fn probe(&mut self) {
        let inner = self.inner.as_mut();
        if let Some(queue) = inner.and_then(|inner| inner.queue.as_mut()) {
            queue.probe();
        }
    }

    /// The address of this end.
    pub fn local(&self) -> Option<SocketAddr> {
        self.inner.as_ref()?.id.local()
    }

    /// The address of the other end.
    pub fn remote(&self) -> Option<SocketAddr> {
        self.inner.as_ref()?.id.remote()
    }

    /// Descriptor of connection manager events: readable when an attempt has advanced, or the remote end has
    /// disconnected.
    pub fn events(&self) -> Option<BorrowedFd<'_>> {
        Some(self.inner.as_ref()?.id.fd())
    }

    /// Descriptor of completions: readable when there is something to read. None before the connection is established.
    pub fn arrivals(&self) -> Option<BorrowedFd<'_>> {
        Some(self.inner.as_ref()?.queue.as_ref()?.fd())
    }

    /// The port of this end.
    pub fn port<'a>(&self, ports: &'a [Arc<Port>]) -> Option<&'a Arc<Port>> {
        self.inner.as_ref()?.id.port(ports)
    }
}

impl Drop for RdmaCmConn {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            deferred_close::defer(inner);
        }
    }
}

impl RdmaCmInner {
    fn connected(&mut self, ports: &[Arc<Port>]) -> io::Result<RdmaConnectStep> {
        while let Some(event) = self.id.next() {
            match event.kind {
                RDMA_CM_EVENT_ADDR_RESOLVED => self.id.resolve_route(self.timeout_ms)?,
                RDMA_CM_EVENT_ROUTE_RESOLVED => self.send_first(ports)?,
                RDMA_CM_EVENT_CONNECT_RESPONSE => {
                    self.enter(&event.private_data)?;
                    return Ok(RdmaConnectStep::Open);
                }
                RDMA_CM_EVENT_REJECTED => {
                    return match Refusal::decode(&event.private_data) {
                        Some(refusal) => Ok(RdmaConnectStep::Refused(refusal.status)),
                        None => Err(failure(&event)),
                    };
                }
                _ => return Err(failure(&event)),
            }
        }
        Ok(RdmaConnectStep::Pending)
    }

    /// The route is resolved: creates the queue pair and sends the connection request.
    fn send_first(&mut self, ports: &[Arc<Port>]) -> io::Result<()> {
        // The options exclude the device.
        let port = self.id.port(ports).ok_or(ErrorKind::NetworkUnreachable)?;
        let queue = CmQp::new(port, &self.id)?;
        let private_data = ConnPrivateData { magic: MAGIC }.encode();
        self.id.connect(port, queue.number(), &private_data)?;
        self.queue = Some(queue);
        Ok(())
    }

    /// The listener has accepted: brings the queue pair to RTS and completes the connection.
    fn enter(&mut self, private_data: &[u8]) -> io::Result<()> {
        ConnPrivateData::decode(private_data).ok_or(ErrorKind::ConnectionRefused)?;
        let queue = self.queue.as_mut().ok_or(ErrorKind::NotConnected)?;
        queue.enter(&self.id, IBV_QPS_RTR)?;
        queue.enter(&self.id, IBV_QPS_RTS)?;
        self.id.establish()
    }

    /// Takes one record that has arrived, and checks for a disconnect. Records sent before the disconnect are delivered
    /// before the end of the stream.
    fn recv(&mut self) {
        let Some(queue) = &mut self.queue else {
            return;
        };
        queue.recv();
        if queue.has_unread() || queue.ended {
            return;
        }
        while let Some(event) = self.id.next() {
            queue.ended |= event.kind != RDMA_CM_EVENT_ESTABLISHED;
        }
        if queue.ended {
            queue.recv();
        }
    }

    /// Takes events and acknowledgments; whether a record that was sent is still unacknowledged.
    pub fn defer_close(&mut self) -> bool {
        while let Some(event) = self.id.next() {
            if let Some(queue) = &mut self.queue {
                queue.ended |= event.kind != RDMA_CM_EVENT_ESTABLISHED;
            }
        }
        self.queue.as_mut().is_some_and(|queue| {
            queue.settle();
            queue.is_unconfirmed()
        })
    }
}
