//! Worker addresses that a client and a server exchange: the device of their connection is known to work.

use super::TlContext;
use super::address::WorkerAddress;
use super::cm_conn::CmConn;
use super::tcp::address::{MAX_ADDRESSES, NetAddress};
use std::net::SocketAddr;

/// Speed of a device of which nothing is known but that it works, Mb/s.
const UNKNOWN_MBPS: u32 = 1;

impl CmConn {
    /// Restricts the address of this end's worker to the device of the connection.
    pub fn restrict_own(&self, context: &TlContext, address: &mut WorkerAddress) {
        if let CmConn::Rdma(link) = self {
            if let Some(port) = link.port(&context.ib.ports) {
                restrict_to_rdma(address, Some(port.gid.raw));
            }
            return;
        }
        if let Some(ip) = self.local().map(|a| a.ip().to_canonical())
            && let Some(device) = context.tcp.device_with(ip)
        {
            restrict_to_tcp(address, NetAddress::new(ip, device.speed()));
        }
    }
}

/// Adds the address of a connection to the worker address of the peer. `alone`: without other devices, if messages can
/// use that one. `own`: this end's worker address; `at`: the peer's end of the connection.
pub fn add_connection(
    address: &mut WorkerAddress,
    own: &WorkerAddress,
    conn: Option<&CmConn>,
    at: SocketAddr,
    alone: bool,
) {
    if let Some(CmConn::Rdma(_)) = conn {
        if alone {
            restrict_to_rdma(address, None);
        }
        return;
    }
    let ip = at.ip().to_canonical();
    let Some(tcp) = &mut address.tcp else {
        return;
    };
    let known = tcp.addresses.iter().find(|known| known.ip == ip).copied();
    if let Some(known) = known {
        if alone && own.tcp.is_some() {
            restrict_to_tcp(address, known);
        }
    } else if tcp.addresses.len() < MAX_ADDRESSES {
        tcp.addresses.push(NetAddress::new(ip, UNKNOWN_MBPS));
    }
}

/// Restricts a worker address to the port with this GID, or to all ports. TCP stays where it is used for the wireup of
/// queue pairs.
fn restrict_to_rdma(address: &mut WorkerAddress, gid: Option<[u8; 16]>) {
    let Some(ib) = &mut address.ib else {
        return;
    };
    if let Some(gid) = gid.map(u128::from_be_bytes)
        && ib.ports.iter().any(|port| port.gid == gid)
    {
        ib.ports.retain(|port| port.gid == gid);
    }
    address.shm = None;
    if ib.ports.iter().all(|port| port.qpn != 0) {
        address.tcp = None;
    }
}

/// Restricts a worker address to one network address for TCP, if it has some.
fn restrict_to_tcp(address: &mut WorkerAddress, to: NetAddress) {
    if let Some(tcp) = &mut address.tcp {
        tcp.addresses = vec![to];
        (address.shm, address.ib) = (None, None);
    }
}
