//! The connection of a client and a listener: a socket, or a connection of librdmacm. To both ends it is a stream of a
//! few bytes whose end is detected.

use super::cm::{RdmaCmConn, RdmaCmListener, rdmacm_conn};
use super::ib::port::Port;
use super::tcp::socket;
use crate::sys::descriptor::OwnedDescriptor;
use crate::sys::epoll::Epoll;
use crate::sys::log;
use socket2::Socket;
use std::fmt;
use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

pub use socket::{BACKLOG, SocketTuning, max_half_open};

/// The transport between clients and listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmTransport {
    /// librdmacm, over RDMA devices.
    Rdma,
    Tcp,
}

/// A connection between a client and a listener.
pub enum CmConn {
    Rdma(RdmaCmConn),
    Tcp(OwnedDescriptor<Socket>),
}

/// Why an attempt to connect failed.
pub enum ConnectError {
    /// The local address cannot be bound.
    Bind(io::Error),
    /// The server cannot be connected to.
    Connect(io::Error),
}

impl From<io::Error> for ConnectError {
    fn from(e: io::Error) -> ConnectError {
        ConnectError::Connect(e)
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Bind(e) => write!(f, "the local address cannot be bound: {e}"),
            ConnectError::Connect(e) => e.fmt(f),
        }
    }
}

pub use rdmacm_conn::RdmaConnectStep;

impl CmConn {
    /// Starts to connect a socket, from a local address if one is given.
    ///
    /// # Errors
    /// Errors that the system returns at once.
    pub fn connect_tcp(
        to: SocketAddr,
        from: Option<SocketAddr>,
        tuning: &SocketTuning,
    ) -> Result<CmConn, ConnectError> {
        let socket = socket::prepare(to, tuning)?;
        if let Some(from) = from {
            socket.bind(&from.into()).map_err(ConnectError::Bind)?;
        }
        let socket = socket::begin(socket, to)?;
        Ok(CmConn::Tcp(OwnedDescriptor::new(socket)))
    }

    /// Advances an attempt to connect, by one of `ports` or by a socket.
    ///
    /// # Errors
    /// Why the attempt failed.
    pub fn connected(&mut self, ports: &[Arc<Port>]) -> io::Result<RdmaConnectStep> {
        match self {
            CmConn::Rdma(link) => link.connected(ports),
            CmConn::Tcp(socket) => match socket::connected(socket) {
                Ok(()) => Ok(RdmaConnectStep::Open),
                Err(e) if e.kind() == ErrorKind::NotConnected => Ok(RdmaConnectStep::Pending),
                Err(e) => Err(e),
            },
        }
    }

    /// Sends `bytes`, which fit into the send buffer of a new connection.
    ///
    /// # Errors
    /// `WriteZero` if they do not fit; an error of the socket or of the queue pair if the connection has ended.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            CmConn::Rdma(link) => link.send(bytes),
            CmConn::Tcp(socket) => match socket.send_with_flags(bytes, libc::MSG_NOSIGNAL)? {
                n if n == bytes.len() => Ok(()),
                _ => Err(ErrorKind::WriteZero.into()),
            },
        }
    }

    /// The number of file descriptors that the connection uses.
    pub fn descriptors(&self) -> usize {
        match self {
            CmConn::Rdma(_) => 2,
            CmConn::Tcp(_) => 1,
        }
    }

    /// Whether the connection is open and everything that has arrived was read.
    pub fn is_idle(&mut self) -> bool {
        match self {
            CmConn::Rdma(link) => link.is_idle(),
            CmConn::Tcp(socket) => {
                let mut probe = [std::mem::MaybeUninit::uninit(); 1];
                matches!(socket.peek(&mut probe), Err(e) if e.kind() == ErrorKind::WouldBlock)
            }
        }
    }

    /// Requests an acknowledgment from the remote host, which detects that the host is gone. The kernel probes sockets
    /// by itself.
    pub fn probe(&mut self) {
        if let CmConn::Rdma(link) = self {
            link.probe();
        }
    }

    /// The address of this end.
    pub fn local(&self) -> Option<SocketAddr> {
        match self {
            CmConn::Rdma(link) => link.local(),
            CmConn::Tcp(socket) => socket.local_addr().ok()?.as_socket(),
        }
    }

    /// The address of the other end.
    pub fn remote(&self) -> Option<SocketAddr> {
        match self {
            CmConn::Rdma(link) => link.remote(),
            CmConn::Tcp(socket) => socket.peer_addr().ok()?.as_socket(),
        }
    }

    /// Adds the connection to the epoll set. `attempt`: it is not connected yet.
    ///
    /// # Errors
    /// Those of [`Epoll::add`].
    pub fn watch(&self, epoll: &Epoll, token: u64, attempt: bool) -> io::Result<()> {
        match self {
            CmConn::Rdma(link) => (link.events().into_iter())
                .chain(link.arrivals())
                .try_for_each(|fd| epoll.add(fd, token, false)),
            CmConn::Tcp(socket) => epoll.add(socket, token, attempt),
        }
    }

    /// Watches a connection for arrivals after an attempt that was watched has succeeded.
    ///
    /// # Errors
    /// Those of [`Epoll::add`].
    pub fn watch_answers(&self, epoll: &Epoll, token: u64) -> io::Result<()> {
        match self {
            CmConn::Rdma(link) => {
                (link.arrivals().into_iter()).try_for_each(|fd| epoll.add(fd, token, false))
            }
            CmConn::Tcp(socket) => {
                epoll.watch_room(socket, token, false);
                Ok(())
            }
        }
    }

    /// Removes the connection from the epoll set. `attempt`: it is not connected yet.
    pub fn unwatch(&self, epoll: &Epoll, attempt: bool) {
        match self {
            CmConn::Rdma(link) => (link.events().into_iter())
                .chain(link.arrivals())
                .for_each(|fd| epoll.remove(fd, false)),
            CmConn::Tcp(socket) => epoll.remove(socket, attempt),
        }
    }
}

impl Read for CmConn {
    /// 0 at the end of the stream, `WouldBlock` if nothing has arrived.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            CmConn::Rdma(link) => link.read(into),
            CmConn::Tcp(socket) => (&**socket).read(into),
        }
    }
}

/// Number of TCP ports that are tried until one is free for both transports.
const PORTS: usize = 64;

/// The listening objects of a listener: both have the same address.
pub struct CmListener {
    rdma: Option<RdmaCmListener>,
    tcp: Option<OwnedDescriptor<Socket>>,
    pub address: SocketAddr,
}

/// How to listen.
pub struct ListenParams<'a> {
    pub rdma: bool,
    pub tcp: bool,
    pub tuning: &'a SocketTuning,
    /// Allows a TCP address that old connections still use (`SO_REUSEADDR`).
    pub reuse: bool,
    /// Allows an address of librdmacm that is in use (`RDMA_OPTION_ID_REUSEADDR`).
    pub reuse_rdma: bool,
    /// Maximum number of connections that wait to be accepted.
    pub backlog: i32,
}

impl CmListener {
    /// Listens at an address; port 0 selects one of the configured range. librdmacm is used only where a device has the
    /// address, unless it is the only transport requested.
    ///
    /// # Errors
    /// `AddrInUse`; other errors of the system.
    pub fn open(at: SocketAddr, how: &ListenParams) -> io::Result<CmListener> {
        // Sockets whose port is taken for RDMA stay open until a port is found, so that the kernel does not select them
        // again.
        let mut useless = Vec::new();
        loop {
            let tcp = if how.tcp {
                Some(OwnedDescriptor::new(how.listen(at)?))
            } else {
                None
            };
            let mut there = at;
            if let Some(socket) = &tcp {
                let local = socket.local_addr()?.as_socket();
                there = local.ok_or(ErrorKind::InvalidInput)?;
            }
            let (rdma, address) = match how.rdma.then(|| how.listen_by_rdma(there)) {
                Some(Ok(rdma)) => {
                    let address = rdma.address;
                    (Some(rdma), address)
                }
                // Another process listens there by RDMA, and RDMA clients would reach that process.
                Some(Err(e)) if e.kind() == ErrorKind::AddrInUse => {
                    useless.extend(tcp);
                    if at.port() != 0 || useless.is_empty() || useless.len() >= PORTS {
                        return Err(e);
                    }
                    continue;
                }
                Some(Err(e)) if tcp.is_none() => return Err(e),
                Some(Err(e)) => {
                    log::debug!("listening on {there} by TCP only: {e}");
                    (None, there)
                }
                None => (None, there),
            };
            return Ok(CmListener { rdma, tcp, address });
        }
    }

    /// Adds the listening descriptors to the epoll set.
    ///
    /// # Errors
    /// Those of [`Epoll::add`].
    pub fn watch(&self, epoll: &Epoll, token: u64) -> io::Result<()> {
        self.fds().try_for_each(|fd| epoll.add(fd, token, false))
    }

    /// Removes the listening descriptors from the epoll set.
    pub fn unwatch(&self, epoll: &Epoll) {
        self.fds().for_each(|fd| epoll.remove(fd, false));
    }

    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let tcp = self.tcp.iter().map(AsFd::as_fd);
        tcp.chain(self.rdma.iter().map(RdmaCmListener::fd))
    }

    /// Accepts the next connection, by a socket or by one of `ports`.
    ///
    /// # Errors
    /// `WouldBlock` if no connection waits.
    pub fn accept(&self, ports: &[Arc<Port>], tuning: &SocketTuning) -> io::Result<CmConn> {
        if let Some(Ok(link)) = self.rdma.as_ref().map(|rdma| rdma.accept(ports)) {
            return Ok(CmConn::Rdma(link));
        }
        let tcp = self.tcp.as_ref().ok_or(ErrorKind::WouldBlock)?;
        let (socket, _) = socket::accept(tcp, tuning)?;
        Ok(CmConn::Tcp(OwnedDescriptor::new(socket)))
    }

    /// Rejects the connections that wait to be accepted: those of librdmacm with `status`, and those of TCP by
    /// `send_refusal`, which sends the reply.
    pub fn close(&self, status: i8, send_refusal: impl Fn(&mut CmConn)) {
        if let Some(rdma) = &self.rdma {
            rdma.reject(status);
        }
        while let Some(Ok((socket, _))) = self.tcp.as_ref().map(|tcp| tcp.accept()) {
            send_refusal(&mut CmConn::Tcp(OwnedDescriptor::new(socket)));
        }
    }
}

impl ListenParams<'_> {
    fn listen(&self, at: SocketAddr) -> io::Result<Socket> {
        let socket = socket::listen(at, self.tuning, self.reuse)?;
        socket.listen(self.backlog)?;
        Ok(socket)
    }

    /// Listens at one address by librdmacm. Port 0 remains only without TCP, which otherwise has selected the port: it
    /// is then the first free port of the configured range.
    fn listen_by_rdma(&self, at: SocketAddr) -> io::Result<RdmaCmListener> {
        let mut error = ErrorKind::AddrInUse.into();
        for port in self.tuning.ports_at(at) {
            let mut at = at;
            at.set_port(port);
            match RdmaCmListener::new(at, self.backlog, self.reuse_rdma) {
                Err(e) if e.kind() == ErrorKind::AddrInUse => error = e,
                other => return other,
            }
        }
        Err(error)
    }
}
