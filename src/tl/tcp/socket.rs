//! TCP sockets of rucp: non-blocking, with the delay, keepalive and buffer sizes that the options set.

use super::TcpPath;
use crate::options::PortRange;
use crate::sys::{host, log};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::io::{self, Error, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Connections that the kernel queues for a listening socket until they are accepted.
pub const BACKLOG: i32 = 1024;

/// Number of segments that a send buffer of a set size holds, unless they were shorter than [`MIN_SEGMENT_BYTES`].
/// The receiver acknowledges every second segment at once, but delays the acknowledgement of a single one by 40 ms: a
/// buffer that holds only one moves 2 MB/s over the loopback device, whose segments have 64 KiB.
const MIN_SEGMENTS: usize = 4;
/// Segments are not limited to less than this.
const MIN_SEGMENT_BYTES: usize = 1 << 10;
/// The largest limit of segments that Linux accepts.
const MAX_SEGMENT_BYTES: usize = (32 << 10) - 1;

/// The options of every socket.
#[derive(Clone, Debug)]
pub struct SocketTuning {
    pub nodelay: bool,
    /// Bytes; None leaves the size to the kernel, which adapts it.
    pub sndbuf: Option<usize>,
    pub rcvbuf: Option<usize>,
    pub syn_count: Option<u32>,
    pub user_timeout: Option<Duration>,
    pub keep_idle: Option<Duration>,
    pub keep_interval: Option<Duration>,
    pub keep_count: Option<u32>,
    /// Connect from the address of the selected device.
    pub bind_source: bool,
    /// Ports to listen on; 0 to 0 for any.
    pub ports: PortRange,
    /// Maximum bytes that one read takes from a connection.
    pub receive_buffer: usize,
}

impl SocketTuning {
    /// The ports to try for a listener at `at`: its port, or those of the range if that is 0.
    pub fn ports_at(&self, at: SocketAddr) -> RangeInclusive<u16> {
        let PortRange { first, last } = self.ports;
        match at.port() {
            0 => first..=last.max(first),
            port => port..=port,
        }
    }

    /// Sets the buffer sizes, which determine the window and have to be set before a connection is made.
    fn apply_early(&self, socket: &Socket) -> io::Result<()> {
        if let Some(bytes) = self.sndbuf {
            socket.set_send_buffer_size(bytes)?;
        }
        if let Some(bytes) = self.rcvbuf {
            socket.set_recv_buffer_size(bytes)?;
        }
        if let Some(bytes) = self.max_segment() {
            limit_segments(socket, bytes);
        }
        Ok(())
    }

    /// The limit of the segments in either direction, bytes; `None`: the send buffer is large enough for any.
    fn max_segment(&self) -> Option<u32> {
        let bytes = (self.sndbuf? / MIN_SEGMENTS).max(MIN_SEGMENT_BYTES);
        (bytes <= MAX_SEGMENT_BYTES).then_some(bytes as u32)
    }

    /// Sets the options of a connection.
    ///
    /// # Errors
    /// The system rejects a value.
    pub fn apply(&self, socket: &Socket) -> io::Result<()> {
        let socket = SockRef::from(socket);
        socket.set_tcp_nodelay(self.nodelay)?;
        if let Some(idle) = self.keep_idle {
            // The kernel counts in seconds and does not accept 0.
            let seconds =
                |d: Duration| Duration::from_secs((d.as_secs_f64().ceil() as u64).clamp(1, 32767));
            let mut keep = TcpKeepalive::new().with_time(seconds(idle));
            if let Some(interval) = self.keep_interval {
                keep = keep.with_interval(seconds(interval));
            }
            if let Some(count) = self.keep_count {
                keep = keep.with_retries(count);
            }
            socket.set_tcp_keepalive(&keep)?;
        }
        if self.user_timeout.is_some() {
            socket.set_tcp_user_timeout(self.user_timeout)?;
        }
        Ok(())
    }
}

/// A socket that listens at `at`; port 0 selects one of the configured range.
///
/// # Errors
/// Errors of the system; `AddrInUse` if no port of the range is free.
pub fn listen(at: SocketAddr, tuning: &SocketTuning, reuse: bool) -> io::Result<Socket> {
    let mut error = Error::from(ErrorKind::AddrInUse);
    for port in tuning.ports_at(at) {
        let mut at = at;
        at.set_port(port);
        match listen_at(at, tuning, reuse) {
            Err(e) if e.kind() == ErrorKind::AddrInUse => error = e,
            other => return other,
        }
    }
    Err(error)
}

fn listen_at(at: SocketAddr, tuning: &SocketTuning, reuse: bool) -> io::Result<Socket> {
    let socket = new(at)?;
    if let SocketAddr::V6(v6) = at {
        socket.set_only_v6(!v6.ip().is_unspecified())?;
    }
    if reuse {
        socket.set_reuse_address(true)?;
    }
    tuning.apply_early(&socket)?;
    socket.bind(&at.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// A socket that listens on all addresses of the host, of both families where there are two.
///
/// # Errors
/// Errors of the system; `AddrInUse` if no port of the range is free.
pub fn listen_everywhere(tuning: &SocketTuning) -> io::Result<Socket> {
    listen((Ipv6Addr::UNSPECIFIED, 0).into(), tuning, false)
        .or_else(|_| listen((Ipv4Addr::UNSPECIFIED, 0).into(), tuning, false))
}

/// Starts to connect. The socket becomes writable when the attempt has ended.
///
/// # Errors
/// Errors that the system returns at once.
pub fn connect(tcp_path: &TcpPath, tuning: &SocketTuning) -> io::Result<Socket> {
    let socket = prepare(tcp_path.to, tuning)?;
    if let Some(device) = &tcp_path.device {
        socket.bind_device(Some(device.as_bytes()))?;
    }
    if let Some(from) = tcp_path.path.local.filter(|_| tuning.bind_source) {
        socket.bind(&super::at(from, 0, tcp_path.path.scope).into())?;
    }
    begin(socket, tcp_path.to)
}

/// Starts to connect a socket that [`prepare`] has made.
///
/// # Errors
/// Errors that the system returns at once.
pub fn begin(socket: Socket, to: SocketAddr) -> io::Result<Socket> {
    match socket.connect(&to.into()) {
        Err(e) if e.raw_os_error() != Some(libc::EINPROGRESS) => Err(e),
        _ => Ok(socket),
    }
}

/// A socket that is ready to connect to `to`.
///
/// # Errors
/// No descriptor is left; the system rejects a value of the options.
pub fn prepare(to: SocketAddr, tuning: &SocketTuning) -> io::Result<Socket> {
    let socket = new(to)?;
    tuning.apply_early(&socket)?;
    tuning.apply(&socket)?;
    if let Some(count) = tuning.syn_count {
        let count = count as i32;
        // SAFETY: `count` is readable for four bytes.
        unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_SYNCNT,
                (&raw const count).cast(),
                4,
            )
        };
    }
    Ok(socket)
}

/// Whether an attempt to connect has succeeded.
///
/// # Errors
/// Why the attempt failed; `NotConnected` while it goes on.
pub fn connected(socket: &Socket) -> io::Result<()> {
    match socket.take_error()? {
        Some(e) => Err(e),
        // Neither an error nor a peer: the attempt goes on.
        None => socket.peer_addr().map(|_| ()),
    }
}

/// Accepts the next connection of a listening socket.
///
/// # Errors
/// `WouldBlock` if there is none.
pub fn accept(
    listener: &Socket,
    tuning: &SocketTuning,
) -> io::Result<(Socket, Option<SocketAddr>)> {
    let (socket, from) = listener.accept()?;
    socket.set_nonblocking(true)?;
    tuning.apply(&socket)?;
    Ok((socket, from.as_socket()))
}

/// Maximum number of half-open connections of one listening socket, of a worker or of a listener.
const MAX_HALF_OPEN: u64 = 256;
/// The half-open connections of one listening socket use at most this fraction of the descriptor limit.
const HALF_OPEN_SHARE: u64 = 4;

/// Maximum number of half-open connections (without a complete hello) of one listening socket; the oldest is closed
/// when another one arrives. Reads the descriptor limit each time: a program may change it.
pub fn max_half_open() -> usize {
    let share = host::soft_limit(libc::RLIMIT_NOFILE)
        .map_or(MAX_HALF_OPEN, |limit| limit / HALF_OPEN_SHARE);
    share.clamp(1, MAX_HALF_OPEN) as usize
}

/// Limits the segments of a connection that is not made yet, in either direction. Where the system refuses, a short
/// send buffer is slow, and no more than that.
fn limit_segments(socket: &Socket, bytes: u32) {
    if let Err(e) = socket.set_tcp_mss(bytes) {
        log::diag!("segments of a TCP connection are not limited to {bytes} bytes: {e}");
    }
}

fn new(for_address: SocketAddr) -> io::Result<Socket> {
    // Non-blocking from the start, and not inherited across `exec`.
    Socket::new(
        Domain::for_address(for_address),
        Type::STREAM.nonblocking().cloexec(),
        Some(Protocol::TCP),
    )
}

/// Bytes that the remote kernel has not acknowledged.
pub fn unconfirmed(socket: &Socket) -> usize {
    let mut bytes = 0i32;
    // SAFETY: `bytes` is writable for four bytes.
    let ret = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if ret < 0 { 0 } else { bytes.max(0) as usize }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuning(sndbuf: Option<usize>) -> SocketTuning {
        SocketTuning {
            nodelay: true,
            sndbuf,
            rcvbuf: None,
            syn_count: None,
            user_timeout: None,
            keep_idle: None,
            keep_interval: None,
            keep_count: None,
            bind_source: false,
            ports: PortRange { first: 0, last: 0 },
            receive_buffer: 64 << 10,
        }
    }

    /// The segments of both ends of a connection over the loopback device.
    fn segments(sndbuf: Option<usize>) -> [u32; 2] {
        let tuning = tuning(sndbuf);
        let listener = listen((Ipv4Addr::LOCALHOST, 0).into(), &tuning, false).expect("listens");
        listener.set_nonblocking(false).expect("waits");
        let at = listener.local_addr().ok().and_then(|at| at.as_socket());
        let at = at.expect("an address");
        let client = begin(prepare(at, &tuning).expect("a socket"), at).expect("connects");
        let (server, _) = accept(&listener, &tuning).expect("a connection");
        [client, server].map(|end| end.tcp_mss().expect("its segments"))
    }

    #[test]
    fn a_short_send_buffer_holds_several_segments() {
        for (sndbuf, most) in [(1 << 10, 1 << 10), (8 << 10, 2 << 10), (64 << 10, 16 << 10)] {
            let found = segments(Some(sndbuf));
            assert!(
                found.iter().all(|&bytes| bytes <= most),
                "{sndbuf}: {found:?}"
            );
        }
        assert_eq!(segments(Some(128 << 10)), segments(None));
        assert_eq!(tuning(Some(128 << 10)).max_segment(), None);
    }
}
