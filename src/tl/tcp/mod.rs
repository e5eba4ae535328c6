//! TCP: one connection per pair of workers, made by either of them, and the devices and routes that it uses.
//!
//! `socket` makes and configures sockets; a `worker` has those of one worker, each a `conn`. The first record of a
//! connection is in `wire::tcp_hello`, the frames of messages are in `wire::frame`. A connection has two halves,
//! because the two directions have different owners: the `sender` belongs to the thread that holds the peer's lock, the
//! `receiver` to the thread that progresses.
//!
//! `connect` makes connections, `accept` accepts those of peers, `close` ends them; `oob` is for those that carry the
//! messages of another transport's connection establishment. `receive` handles events and messages, and `bulk` the
//! payload of long ones. `device` and `route` choose the addresses, from what the kernel says by `netlink`; `address`
//! has the sections of a worker address. A context's part is `context`, made from `options`; `network` is what is
//! asked of every network, `info` what queries print.

mod accept;
pub mod address;
mod bulk;
mod close;
pub mod conn;
mod connect;
pub mod context;
pub mod device;
pub mod info;
pub mod interface;
mod lane;
pub mod netlink;
mod network;
mod oob;
pub mod options;
mod receive;
mod receiver;
pub mod route;
pub mod sender;
pub mod socket;
mod stream;
pub mod worker;

use crate::sys::descriptor::OwnedDescriptor;
use crate::sys::epoll::Epoll;
use address::{NetAddress, TcpLocator, TcpUsage};
use device::TcpDevice;
use route::{ListenAddress, RoutePath};
use socket2::Socket;
use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

/// What both halves of a connection share. The socket is closed when the last of them is dropped.
pub struct SharedSocket {
    pub socket: OwnedDescriptor<Socket>,
    pub epoll: Arc<Epoll>,
    /// The token of the socket in `epoll`.
    pub token: u64,
}

impl SharedSocket {
    /// The socket's descriptor, for use as long as `self` exists; the caller does not close it.
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Sends bytes that fit into the send buffer of a socket to which little was written.
    ///
    /// # Errors
    /// `WriteZero` if not all of them were taken; an error of the system if the connection has ended.
    pub fn send_whole(&self, bytes: &[u8]) -> io::Result<()> {
        match self.socket.send_with_flags(bytes, libc::MSG_NOSIGNAL)? {
            n if n == bytes.len() => Ok(()),
            _ => Err(ErrorKind::WriteZero.into()),
        }
    }

    /// Ends the connection for both halves, unless the program has closed its descriptor.
    pub fn shut(&self) {
        if self.socket.is_intact() {
            let _ = self.socket.shutdown(Shutdown::Both);
        }
    }
}

/// The TCP section of a worker's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpTarget {
    pub locator: TcpLocator,
    /// The worker is in the network namespace of this process.
    pub same_net: bool,
}

/// A path to a target, with the parameters of the socket that takes it.
#[derive(Clone, Debug)]
pub struct TcpPath {
    pub to: SocketAddr,
    pub path: RoutePath,
    /// Name of the device to bind to, if the kernel would select another one.
    pub device: Option<String>,
}

impl TcpTarget {
    /// The target with this section of a worker address. `None`: it names no device's address.
    pub fn of(locator: &TcpLocator) -> Option<TcpTarget> {
        (!locator.addresses.is_empty()).then(|| TcpTarget {
            same_net: locator.network == route::network(),
            locator: locator.clone(),
        })
    }

    /// The first address at which the worker listens.
    pub fn address(&self) -> Option<SocketAddr> {
        let first = self.locator.addresses.first()?;
        Some(SocketAddr::new(first.ip, self.locator.port))
    }

    /// Where messages are sent from a worker with the section `own` to that with the section `to`.
    pub fn between(own: Option<&TcpLocator>, to: Option<&TcpLocator>) -> Option<TcpTarget> {
        let carries = |locator: &&TcpLocator| locator.usage == TcpUsage::Messages;
        TcpTarget::oob_between(own.filter(carries), to.filter(carries))
    }

    /// Where out-of-band connections lead from a worker with the section `own` to that with the section `to`. `None`:
    /// one of them has no device, or no other one than the loopback where the network namespaces differ.
    pub fn oob_between(own: Option<&TcpLocator>, to: Option<&TcpLocator>) -> Option<TcpTarget> {
        let (own, target) = (own?, TcpTarget::of(to?)?);
        let leads_out = own.leads_out() && target.locator.leads_out();
        (target.same_net || leads_out).then_some(target)
    }

    /// The paths to the target, best first. Looks up the kernel's routes.
    pub fn paths(&self, devices: &[TcpDevice]) -> Vec<TcpPath> {
        let remote = |a: &NetAddress| ListenAddress {
            addr: a.ip,
            mbps: a.mbps(),
        };
        let remotes: Vec<ListenAddress> = self.locator.addresses.iter().map(remote).collect();
        let tcp_path = |path: RoutePath| TcpPath {
            to: at(remotes[path.remote].addr, self.locator.port, path.scope),
            device: path.bind_device.then(|| devices[path.device].name.clone()),
            path,
        };
        let paths = route::paths(devices, &remotes, self.same_net);
        paths.into_iter().map(tcp_path).collect()
    }
}

/// A socket address; `scope` is used for IPv6 addresses.
pub fn at(ip: std::net::IpAddr, port: u16, scope: u32) -> SocketAddr {
    match ip {
        std::net::IpAddr::V6(v6) => SocketAddrV6::new(v6, port, 0, scope).into(),
        v4 => SocketAddr::new(v4, port),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn locator(network: u32, ip: [u8; 4]) -> TcpLocator {
        TcpLocator {
            usage: TcpUsage::Messages,
            port: 1,
            secret: 2,
            network,
            addresses: vec![NetAddress::new(ip.into(), 1000)],
        }
    }

    #[test]
    fn the_loopback_leads_to_its_own_network_namespace_only() {
        let here = route::network();
        let leads = |own: &TcpLocator, to: &TcpLocator| {
            TcpTarget::between(Some(own), Some(to)).is_some_and(|t| &t.locator == to)
        };
        let (lo, eth) = ([127, 0, 0, 1], [10, 0, 0, 1]);
        assert!(leads(&locator(here, lo), &locator(here, lo)));
        assert!(leads(&locator(here, eth), &locator(here ^ 1, eth)));
        assert!(!leads(&locator(here, lo), &locator(here ^ 1, lo)));
        assert!(!leads(&locator(here, eth), &locator(here ^ 1, lo)));
        assert!(!leads(&locator(here, lo), &locator(here ^ 1, eth)));
    }
}
