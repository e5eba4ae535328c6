//! A connection by librdmacm: to whoever reads and writes it, a stream of bytes as a socket is.

use super::cm_qp::CmQp;
use super::deferred_close;
use super::id::{CmId, failure};
use super::library::Rdmacm;
use crate::tl::ib::bindings::*;
use crate::tl::ib::port::Port;
use crate::wire::cm_msg::{Knock, MAGIC, Refusal};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

/// One end of a connection. What was said when it is dropped arrives all the same, as far as the other end is there.
pub struct RdmaCmConn {
    /// None once it lingers. Boxed: there are sockets in its place.
    line: Option<Box<RdmaCmInner>>,
}

/// Field order: the queue pair goes before the identifier, which tells the other end.
pub struct RdmaCmInner {
    queue: Option<CmQp>,
    id: CmId,
    /// For a client that is on its way.
    timeout_ms: i32,
}

/// How an attempt to connect goes.
pub enum RdmaConnectStep {
    /// It is under way.
    Pending,
    /// There is a connection.
    Open,
    /// The listener refuses, with this status.
    Refused(i8),
}

impl RdmaCmConn {
    /// Begins to connect, from an address if one is given; events tell how that goes on. `timeout`: of what has to be
    /// found out about the way.
    ///
    /// # Errors
    /// `Unsupported` where there is no librdmacm; what the system knows at once.
    pub fn dial(
        to: SocketAddr,
        from: Option<SocketAddr>,
        timeout: Duration,
    ) -> io::Result<RdmaCmConn> {
        let id = CmId::new(Rdmacm::get().ok_or(ErrorKind::Unsupported)?)?;
        let timeout_ms = timeout.as_millis().clamp(1, i32::MAX as u128) as i32;
        id.resolve_address(to, from, timeout_ms)?;
        Ok(RdmaCmConn::of(id, None, timeout_ms))
    }

    /// Accepts somebody who asks.
    ///
    /// # Errors
    /// He has gone; what the device says.
    pub fn accept(id: CmId, port: &Arc<Port>) -> io::Result<RdmaCmConn> {
        let mut queue = CmQp::new(port, &id)?;
        queue.enter(&id, IBV_QPS_RTR)?;
        queue.enter(&id, IBV_QPS_RTS)?;
        id.accept(port, queue.number(), &Knock { magic: MAGIC }.encode())?;
        Ok(RdmaCmConn::of(id, Some(queue), 0))
    }

    fn of(id: CmId, queue: Option<CmQp>, timeout_ms: i32) -> RdmaCmConn {
        let line = RdmaCmInner {
            queue,
            id,
            timeout_ms,
        };
        RdmaCmConn {
            line: Some(Box::new(line)),
        }
    }

    fn line(&mut self) -> io::Result<&mut RdmaCmInner> {
        self.line
            .as_deref_mut()
            .ok_or(ErrorKind::NotConnected.into())
    }

    /// Moves an attempt to connect on, by one of these ports.
    ///
    /// # Errors
    /// Why it failed: `ConnectionRefused` if nobody listens there.
    pub fn connected(&mut self, ports: &[Arc<Port>]) -> io::Result<RdmaConnectStep> {
        self.line()?.connected(ports)
    }

    /// Sends what an end has to say: who it is, or farewell.
    ///
    /// # Errors
    /// `WriteZero` if that is too long, `BrokenPipe` if the connection is.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let queue = self.line()?.queue.as_mut();
        queue.ok_or(ErrorKind::NotConnected)?.send(bytes)
    }

    /// Reads what has come: 0 bytes when nothing comes any more.
    ///
    /// # Errors
    /// `WouldBlock` if nothing has yet.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let line = self.line()?;
        line.recv();
        match &mut line.queue {
            Some(queue) if queue.has_unread() => Ok(queue.read(into)),
            Some(queue) if !queue.ended => Err(ErrorKind::WouldBlock.into()),
            _ => Ok(0),
        }
    }

    /// Whether the other end is there and has said nothing that was not read.
    pub fn is_idle(&mut self) -> bool {
        let Ok(line) = self.line() else {
            return false;
        };
        line.recv();
        (line.queue.as_ref()).is_some_and(|queue| !queue.ended && !queue.has_unread())
    }

    /// Wants a sign of life of the other end's host: without one nothing comes any more.
    pub fn probe(&mut self) {
        let line = self.line.as_mut();
        if let Some(queue) = line.and_then(|line| line.queue.as_mut()) {
            queue.probe();
        }
    }

    /// The address of this end.
    pub fn local(&self) -> Option<SocketAddr> {
        self.line.as_ref()?.id.local()
    }

    /// The address of the other end.
    pub fn remote(&self) -> Option<SocketAddr> {
        self.line.as_ref()?.id.remote()
    }

    /// Readable when an attempt has come on, or the other end has gone.
    pub fn events(&self) -> Option<RawFd> {
        Some(self.line.as_ref()?.id.fd())
    }

    /// Readable when there is something to read. None before there is a connection.
    pub fn arrivals(&self) -> Option<RawFd> {
        Some(self.line.as_ref()?.queue.as_ref()?.fd())
    }

    /// The port of this end.
    pub fn port<'a>(&self, ports: &'a [Arc<Port>]) -> Option<&'a Arc<Port>> {
        self.line.as_ref()?.id.port(ports)
    }
}

impl Drop for RdmaCmConn {
    fn drop(&mut self) {
        if let Some(line) = self.line.take() {
            deferred_close::defer(line);
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
                    self.enter(&event.said)?;
                    return Ok(RdmaConnectStep::Open);
                }
                RDMA_CM_EVENT_REJECTED => {
                    return match Refusal::decode(&event.said) {
                        Some(refusal) => Ok(RdmaConnectStep::Refused(refusal.status)),
                        None => Err(failure(&event)),
                    };
                }
                _ => return Err(failure(&event)),
            }
        }
        Ok(RdmaConnectStep::Pending)
    }

    /// The way is known.
    fn send_first(&mut self, ports: &[Arc<Port>]) -> io::Result<()> {
        // A device that the options leave out.
        let port = self.id.port(ports).ok_or(ErrorKind::NetworkUnreachable)?;
        let queue = CmQp::new(port, &self.id)?;
        let said = Knock { magic: MAGIC }.encode();
        self.id.connect(port, queue.number(), &said)?;
        self.queue = Some(queue);
        Ok(())
    }

    /// The listener has accepted.
    fn enter(&mut self, said: &[u8]) -> io::Result<()> {
        Knock::decode(said).ok_or(ErrorKind::ConnectionRefused)?;
        let queue = self.queue.as_mut().ok_or(ErrorKind::NotConnected)?;
        queue.enter(&self.id, IBV_QPS_RTR)?;
        queue.enter(&self.id, IBV_QPS_RTS)?;
        self.id.establish()
    }

    /// Takes what has come, and notices the end. What was sent before the end comes before it.
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

    /// Whether something was said that the other end's device has not confirmed.
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
