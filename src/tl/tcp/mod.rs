//! TCP: one connection per pair of workers, whoever makes it, and the devices and routes that it takes.
//!
//! `socket` makes and configures sockets, `epoll` watches them. What two workers say before anything else
//! is in `wire::greeting`, how messages follow one another in `wire::frame`. A connection has two halves,
//! because the two directions have different owners: the `sender` belongs to whoever holds the peer's
//! lock, the `receiver` to the thread that progresses.

pub mod device;
pub mod epoll;
pub mod netlink;
pub mod receiver;
pub mod route;
pub mod sender;
pub mod socket;

use crate::sys::descriptor::OwnedDescriptor;
use crate::wire::address::{NetAddress, TcpLocator};
use device::TcpDevice;
use epoll::Epoll;
use route::{ListenAddress, RoutePath};
use socket2::Socket;
use std::net::{Shutdown, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

/// What both halves of a connection share. The socket is closed when the last of them goes.
pub struct SharedSocket {
    pub socket: OwnedDescriptor<Socket>,
    pub epoll: Arc<Epoll>,
    /// What `epoll` calls the socket.
    pub token: u64,
}

impl SharedSocket {
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Ends the connection for both halves, unless the program has closed its descriptor.
    pub fn shut(&self) {
        if self.socket.is_intact() {
            let _ = self.socket.shutdown(Shutdown::Both);
        }
    }
}

/// Where a worker can be reached by TCP, as its address says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpTarget {
    pub locator: TcpLocator,
    /// It is in this network namespace.
    pub same_net: bool,
}

/// A way to a target, with everything that a socket has to know.
#[derive(Clone, Debug)]
pub struct TcpPath {
    pub to: SocketAddr,
    pub path: RoutePath,
    /// Name of the device to bind to, if the kernel would take another one.
    pub device: Option<String>,
}

impl TcpTarget {
    /// The ways there, best first. Asks the kernel for its routes.
    pub fn ways(&self, devices: &[TcpDevice]) -> Vec<TcpPath> {
        let remote = |a: &NetAddress| ListenAddress {
            addr: a.ip,
            mbps: a.mbps(),
        };
        let remotes: Vec<ListenAddress> = self.locator.addresses.iter().map(remote).collect();
        let way = |path: RoutePath| TcpPath {
            to: at(remotes[path.remote].addr, self.locator.port, path.scope),
            device: path.bind_device.then(|| devices[path.device].name.clone()),
            path,
        };
        let paths = route::ways(devices, &remotes, self.same_net);
        paths.into_iter().map(way).collect()
    }
}

/// A socket's address; `scope` counts for link-local ones only.
pub fn at(ip: std::net::IpAddr, port: u16, scope: u32) -> SocketAddr {
    match ip {
        std::net::IpAddr::V6(v6) => SocketAddrV6::new(v6, port, 0, scope).into(),
        v4 => SocketAddr::new(v4, port),
    }
}
