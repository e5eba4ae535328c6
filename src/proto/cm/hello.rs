//! First messages of a CM connection, and the worker addresses that they contain.

use crate::engine::worker::Worker;
use crate::tl::address::WorkerAddress;
use crate::tl::cm_conn::CmConn;
use crate::tl::tcp::address::{MAX_ADDRESSES, NetAddress};
use crate::wire::cm_msg::{self as wire, Hello, Reply};
use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;

/// Speed of a device of which nothing is known but that it works, Mb/s.
const UNKNOWN_MBPS: u32 = 1;

/// Reads until the buffer holds `size` bytes. False: more have to arrive.
pub(super) fn recv(contact: &mut CmConn, buffer: &mut Vec<u8>, size: usize) -> io::Result<bool> {
    while buffer.len() < size {
        let mut bytes = [0; 256];
        let room = bytes.len().min(size - buffer.len());
        match contact.read(&mut bytes[..room]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => buffer.extend(&bytes[..n]),
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}

/// Reads the client's hello; `None` until it is complete.
pub(super) fn read_hello(
    contact: &mut CmConn,
    buffer: &mut Vec<u8>,
) -> io::Result<Option<(Hello, WorkerAddress)>> {
    let all = recv(contact, buffer, Hello::SIZE)?;
    if !wire::begins(buffer) {
        return Err(ErrorKind::InvalidData.into());
    }
    if !all {
        return Ok(None);
    }
    let hello = Hello::decode(buffer).ok_or(ErrorKind::InvalidData)?;
    if !recv(
        contact,
        buffer,
        Hello::SIZE + usize::from(hello.address_len),
    )? {
        return Ok(None);
    }
    let address = WorkerAddress::decode(&buffer[Hello::SIZE..]);
    let address = address.map_err(|e| io::Error::new(ErrorKind::InvalidData, e))?;
    Ok(Some((hello, address)))
}

/// Reads the server's reply; `None` until it is complete. Without an address it is a reject.
pub(super) fn read_reply(
    contact: &mut CmConn,
    buffer: &mut Vec<u8>,
) -> io::Result<Option<(Reply, Option<WorkerAddress>)>> {
    if !recv(contact, buffer, Reply::SIZE)? {
        return Ok(None);
    }
    let reply = Reply::decode(buffer).ok_or(ErrorKind::InvalidData)?;
    if reply.status != 0 {
        return Ok(Some((reply, None)));
    }
    let size = Reply::SIZE + usize::from(reply.address_len);
    if !recv(contact, buffer, size)? {
        return Ok(None);
    }
    let address = WorkerAddress::decode(&buffer[Reply::SIZE..]);
    let address = address.map_err(|e| io::Error::new(ErrorKind::InvalidData, e))?;
    Ok(Some((reply, Some(address))))
}

/// The worker address that this side sends.
pub(super) fn reported(worker: &Worker, contact: &CmConn) -> Vec<u8> {
    let mut address = worker.address(false);
    if let CmConn::Rdma(link) = contact {
        if let Some(port) = link.port(&worker.ctx.tl.ib.ports) {
            restrict_to_rdma(worker, &mut address, Some(port.gid.raw));
        }
        return address.encode();
    }
    if let Some(ip) = contact.local().map(|a| a.ip().to_canonical())
        && let Some(device) = worker.ctx.tl.tcp.device_with(ip)
    {
        restrict(worker, &mut address, NetAddress::new(ip, device.speed()));
    }
    address.encode()
}

/// The peer's worker address with the address of the connection, which is known to work.
pub(super) fn seen_address(
    worker: &Worker,
    mut address: WorkerAddress,
    contact: Option<&CmConn>,
    at: SocketAddr,
) -> WorkerAddress {
    if let Some(CmConn::Rdma(_)) = contact {
        restrict_to_rdma(worker, &mut address, None);
        return address;
    }
    let ip = at.ip().to_canonical();
    if let Some(tcp) = &mut address.tcp {
        let known = tcp.addresses.iter().find(|known| known.ip == ip).copied();
        if let Some(known) = known {
            restrict(worker, &mut address, known);
        } else if tcp.addresses.len() < MAX_ADDRESSES {
            tcp.addresses.push(NetAddress::new(ip, UNKNOWN_MBPS));
        }
    }
    address
}

/// [`restrict`] for a connection by rdma_cm: to the port with this GID, or to all ports. TCP stays where it is used for
/// the wireup of queue pairs.
fn restrict_to_rdma(worker: &Worker, address: &mut WorkerAddress, gid: Option<[u8; 16]>) {
    let Some(ib) = &mut address.ib else {
        return;
    };
    if worker.ctx.policy.sockaddr.all_devices {
        return;
    }
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

/// Restricts a worker address to the device of the connection, if `UCX_CM_USE_ALL_DEVICES=n` and messages can use it.
/// Workers that are connected already keep their lane.
fn restrict(worker: &Worker, address: &mut WorkerAddress, to: NetAddress) {
    if worker.ctx.policy.sockaddr.all_devices || worker.tl.own.tcp.is_none() {
        return;
    }
    if let Some(tcp) = &mut address.tcp {
        tcp.addresses = vec![to];
        (address.shm, address.ib) = (None, None);
    }
}
