//! Sequenced-packet sockets of the Unix domain, with abstract names. No call waits.
#![forbid(unsafe_code)]

use crate::sys::descriptor::OwnedDescriptor;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with,
    bind, recv, send, socket_with,
};
use std::io;
use std::os::fd::OwnedFd;

/// A socket, which is closed when it is dropped.
pub type Socket = OwnedDescriptor<OwnedFd>;

/// Connections that wait until the listening worker accepts them; the kernel has a maximum of its own.
const BACKLOG: i32 = 4096;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

fn open() -> io::Result<Socket> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?;
    Ok(OwnedDescriptor::new(socket))
}

fn address(name: u64) -> io::Result<SocketAddrUnix> {
    let name = format!("rucp-shmtest-{name:016x}");
    Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

/// A socket that listens under this name.
///
/// # Errors
/// The error of the system call.
pub fn listen(name: u64) -> io::Result<Socket> {
    let socket = open()?;
    bind(&*socket, &address(name)?)?;
    rustix::net::listen(&*socket, BACKLOG)?;
    Ok(socket)
}

/// The next connection to a listening socket.
///
/// # Errors
/// `WouldBlock`: there is none; otherwise the error of the system call.
pub fn accept(listener: &Socket) -> io::Result<Socket> {
    Ok(OwnedDescriptor::new(accept_with(&**listener, FLAGS)?))
}

/// A connection to the socket that listens under this name.
///
/// # Errors
/// `WouldBlock`: too many connections wait there; `ConnectionRefused`: no socket has this name any more; otherwise the
/// error of the system call.
pub fn connect(name: u64) -> io::Result<Socket> {
    let socket = open()?;
    rustix::net::connect(&*socket, &address(name)?)?;
    Ok(socket)
}

/// Sends a packet. False: there is no room now.
///
/// # Errors
/// The peer has closed the connection.
pub fn send_packet(socket: &Socket, packet: &[u8]) -> io::Result<bool> {
    match send(&**socket, packet, SendFlags::NOSIGNAL) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// What a socket has received.
pub enum Received<'a> {
    Packet(&'a [u8]),
    /// A packet that is longer than the buffer.
    TooLong,
    Nothing,
    /// The peer has closed the connection, and everything it has sent was read.
    End,
}

/// Takes the next packet that has arrived.
pub fn receive<'a>(socket: &Socket, buffer: &'a mut [u8]) -> Received<'a> {
    match recv(&**socket, &mut *buffer, RecvFlags::TRUNC) {
        Ok((_, 0)) => Received::End,
        Ok((_, len)) => buffer
            .get(..len)
            .map_or(Received::TooLong, Received::Packet),
        Err(Errno::AGAIN | Errno::INTR) => Received::Nothing,
        Err(_) => Received::End,
    }
}

/// Whether the peer has closed a connection on which it sends nothing.
pub fn has_ended(socket: &Socket) -> bool {
    !matches!(receive(socket, &mut [0]), Received::Nothing)
}

/// Whether the peer has closed a connection, whose packets may still be read.
pub fn is_hung_up(socket: &Socket) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec::default()))
        .is_ok_and(|_| fds[0].revents().contains(PollFlags::HUP))
}
