//! What a client and a listener know each other by: a socket, or a connection of librdmacm. To both ends it is a stream
//! of a few bytes, and an end that is noticed.

use super::cm::{Link, Listener, link};
use super::ib::port::Port;
use super::tcp::epoll::Epoll;
use super::tcp::socket::{self, Tuning};
use crate::sys::descriptor::Owned;
use crate::sys::log;
use socket2::Socket;
use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// How clients and listeners meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By librdmacm, over RDMA devices.
    Rdma,
    Tcp,
}

/// A connection between a client and a listener.
pub enum Contact {
    Rdma(Link),
    Tcp(Owned<Socket>),
}

pub use link::Attempt;

impl Contact {
    /// Moves an attempt to connect on, by one of these ports or by a socket.
    ///
    /// # Errors
    /// Why it failed.
    pub fn connected(&mut self, ports: &[Arc<Port>]) -> io::Result<Attempt> {
        match self {
            Contact::Rdma(link) => link.connected(ports),
            Contact::Tcp(socket) => match socket::connected(socket) {
                Ok(()) => Ok(Attempt::Open),
                Err(e) if e.kind() == ErrorKind::NotConnected => Ok(Attempt::Pending),
                Err(e) => Err(e),
            },
        }
    }

    /// Sends what is short enough to fit into the buffer of a fresh connection.
    ///
    /// # Errors
    /// `WriteZero` if it does not fit; the other end has gone.
    pub fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Contact::Rdma(link) => link.say(bytes),
            Contact::Tcp(socket) => match socket.send_with_flags(bytes, libc::MSG_NOSIGNAL)? {
                n if n == bytes.len() => Ok(()),
                _ => Err(ErrorKind::WriteZero.into()),
            },
        }
    }

    /// How many descriptors it has.
    pub fn descriptors(&self) -> usize {
        match self {
            Contact::Rdma(_) => 2,
            Contact::Tcp(_) => 1,
        }
    }

    /// Whether the other end is there and has said nothing that was not read.
    pub fn is_silent(&mut self) -> bool {
        match self {
            Contact::Rdma(link) => link.is_silent(),
            Contact::Tcp(socket) => {
                let mut probe = [std::mem::MaybeUninit::uninit(); 1];
                matches!(socket.peek(&mut probe), Err(e) if e.kind() == ErrorKind::WouldBlock)
            }
        }
    }

    /// Wants a sign of life of the other end's host. The kernel probes sockets by itself.
    pub fn probe(&mut self) {
        if let Contact::Rdma(link) = self {
            link.probe();
        }
    }

    /// The address of this end.
    pub fn local(&self) -> Option<SocketAddr> {
        match self {
            Contact::Rdma(link) => link.local(),
            Contact::Tcp(socket) => socket.local_addr().ok()?.as_socket(),
        }
    }

    /// The address of the other end.
    pub fn remote(&self) -> Option<SocketAddr> {
        match self {
            Contact::Rdma(link) => link.remote(),
            Contact::Tcp(socket) => socket.peer_addr().ok()?.as_socket(),
        }
    }

    /// Watches it. `attempt`: until it is connected.
    ///
    /// # Errors
    /// As [`Epoll::add`].
    pub fn watch(&self, epoll: &Epoll, token: u64, attempt: bool) -> io::Result<()> {
        match self {
            Contact::Rdma(link) => (link.events().into_iter())
                .chain(link.arrivals())
                .try_for_each(|fd| epoll.add(fd, token, false)),
            Contact::Tcp(socket) => epoll.add(socket.as_raw_fd(), token, attempt),
        }
    }

    /// An attempt that was watched has led to a connection.
    ///
    /// # Errors
    /// As [`Epoll::add`].
    pub fn watch_answers(&self, epoll: &Epoll, token: u64) -> io::Result<()> {
        match self {
            Contact::Rdma(link) => {
                (link.arrivals().into_iter()).try_for_each(|fd| epoll.add(fd, token, false))
            }
            Contact::Tcp(socket) => {
                epoll.watch_room(socket.as_raw_fd(), token, false);
                Ok(())
            }
        }
    }

    /// The opposite of [`watch`](Self::watch). `attempt`: it is not connected yet.
    pub fn unwatch(&self, epoll: &Epoll, attempt: bool) {
        match self {
            Contact::Rdma(link) => (link.events().into_iter())
                .chain(link.arrivals())
                .for_each(|fd| epoll.remove(fd, false)),
            Contact::Tcp(socket) => epoll.remove(socket.as_raw_fd(), attempt),
        }
    }
}

impl Read for Contact {
    /// 0 bytes when nothing comes any more, `WouldBlock` if nothing has yet.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Contact::Rdma(link) => link.read(into),
            Contact::Tcp(socket) => (&**socket).read(into),
        }
    }
}

/// Ports that are tried until one is free for both ways.
const PORTS: usize = 64;

/// What a listener listens with: both have the same address.
pub struct Door {
    rdma: Option<Listener>,
    tcp: Option<Owned<Socket>>,
    pub address: SocketAddr,
}

/// How a door is opened.
pub struct Opening<'a> {
    pub rdma: bool,
    pub tcp: bool,
    pub tuning: &'a Tuning,
    /// An address that is still in use by old connections will do.
    pub reuse: bool,
    /// The same by RDMA.
    pub reuse_rdma: bool,
    /// Connections that may wait.
    pub backlog: i32,
}

impl Door {
    /// Listens at an address; port 0 for one of the configured range. By RDMA only where devices have the address,
    /// unless that is the only way.
    ///
    /// # Errors
    /// `AddrInUse`; whatever else the system says.
    pub fn open(at: SocketAddr, how: &Opening) -> io::Result<Door> {
        // Those that turned out to be of no use stay taken until one is found.
        let mut useless = Vec::new();
        loop {
            let tcp = match how.tcp {
                true => Some(Owned::new(how.listen(at)?)),
                false => None,
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
                // Others have it: whom a client would meet there is not us.
                Some(Err(e)) if e.kind() == ErrorKind::AddrInUse => {
                    useless.extend(tcp);
                    if at.port() != 0 || useless.is_empty() || useless.len() >= PORTS {
                        return Err(e);
                    }
                    continue;
                }
                Some(Err(e)) if tcp.is_none() => return Err(e),
                Some(Err(e)) => {
                    log::debug!("{there} is listened on by TCP alone: {e}");
                    (None, there)
                }
                None => (None, there),
            };
            return Ok(Door { rdma, tcp, address });
        }
    }

    /// Watches for those who knock.
    ///
    /// # Errors
    /// As [`Epoll::add`].
    pub fn watch(&self, epoll: &Epoll, token: u64) -> io::Result<()> {
        self.fds().try_for_each(|fd| epoll.add(fd, token, false))
    }

    /// The opposite of [`watch`](Self::watch).
    pub fn unwatch(&self, epoll: &Epoll) {
        self.fds().for_each(|fd| epoll.remove(fd, false));
    }

    fn fds(&self) -> impl Iterator<Item = i32> {
        let tcp = self.tcp.iter().map(|socket| socket.as_raw_fd());
        tcp.chain(self.rdma.iter().map(Listener::fd))
    }

    /// The next one who knocks, by a socket or by one of these ports.
    ///
    /// # Errors
    /// `WouldBlock` if nobody does.
    pub fn accept(&self, ports: &[Arc<Port>], tuning: &Tuning) -> io::Result<Contact> {
        if let Some(Ok(link)) = self.rdma.as_ref().map(|rdma| rdma.accept(ports)) {
            return Ok(Contact::Rdma(link));
        }
        let tcp = self.tcp.as_ref().ok_or(ErrorKind::WouldBlock)?;
        let (socket, _) = socket::accept(tcp, tuning)?;
        Ok(Contact::Tcp(Owned::new(socket)))
    }

    /// Tells those who wait in front of it that they are not let in, with this status; `say` tells those who wait for
    /// an answer.
    pub fn close(&self, status: i8, say: impl Fn(&mut Contact)) {
        if let Some(rdma) = &self.rdma {
            rdma.turn_away(status);
        }
        while let Some(Ok((socket, _))) = self.tcp.as_ref().map(|tcp| tcp.accept()) {
            say(&mut Contact::Tcp(Owned::new(socket)));
        }
    }
}

impl Opening<'_> {
    fn listen(&self, at: SocketAddr) -> io::Result<Socket> {
        let socket = socket::listen(at, self.tuning, self.reuse)?;
        socket.listen(self.backlog)?;
        Ok(socket)
    }

    /// At one address; without TCP, which would have chosen, at the first free port of the configured range.
    fn listen_by_rdma(&self, at: SocketAddr) -> io::Result<Listener> {
        let (first, last) = match (at.port(), self.tuning.ports) {
            (0, (first, last)) => (first, last.max(first)),
            (port, _) => (port, port),
        };
        let mut error = ErrorKind::AddrInUse.into();
        for port in first..=last {
            let mut at = at;
            at.set_port(port);
            match Listener::new(at, self.backlog, self.reuse_rdma) {
                Err(e) if e.kind() == ErrorKind::AddrInUse => error = e,
                other => return other,
            }
        }
        Err(error)
    }
}
