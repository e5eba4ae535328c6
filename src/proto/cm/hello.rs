//! First messages of a CM connection, and the worker addresses that they contain.

use crate::engine::worker::Worker;
use crate::tl::address::WorkerAddress;
use crate::tl::cm_address::add_connection;
use crate::tl::cm_conn::CmConn;
use crate::wire::cm_msg::{self as wire, Hello, Reply};
use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;

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

/// The worker address that this side sends: restricted to the device of the connection if `UCX_CM_USE_ALL_DEVICES=n`.
/// Workers that are connected already keep their lane.
pub(super) fn reported(worker: &Worker, contact: &CmConn) -> Vec<u8> {
    let mut address = worker.address(false);
    if !worker.ctx.policy.sockaddr.all_devices {
        contact.restrict_own(&worker.ctx.tl, &mut address);
    }
    address.encode()
}

/// The peer's worker address with the address of the connection, which is known to work; with no other one if
/// `UCX_CM_USE_ALL_DEVICES=n`.
pub(super) fn seen_address(
    worker: &Worker,
    mut address: WorkerAddress,
    contact: Option<&CmConn>,
    at: SocketAddr,
) -> WorkerAddress {
    let alone = !worker.ctx.policy.sockaddr.all_devices;
    add_connection(&mut address, &worker.tl.own, contact, at, alone);
    address
}
