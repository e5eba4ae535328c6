//! The sockets of libfabric's provider `tcp`, which has no timeout of its own: it waits for a peer whose link was cut
//! as long as the kernel retransmits, a quarter of an hour.
//!
//! A peer that does not progress must not fail. So what counts is no answer of the peer, but the acknowledgements of
//! its kernel, which `TCP_INFO` reports. `TCP_USER_TIMEOUT` is not used, because it ends connections to a peer that
//! does not read, too.

use socket2::{Protocol, Socket, TcpKeepalive};
use std::collections::HashSet;
use std::mem::{MaybeUninit, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Intervals without an acknowledgement after which a host counts as unreachable.
pub const SILENT_INTERVALS: u64 = 10;

/// A state of a connection in `TCP_INFO`: it is open in both directions.
const ESTABLISHED: u8 = 1;

/// Address and port of a socket.
pub type SocketName = (IpAddr, u16);

/// The address of an endpoint, as libfabric has it in the formats `FI_SOCKADDR_IN` and `FI_SOCKADDR_IN6`. `None`: it
/// has another format.
pub fn socket_name(name: &[u8]) -> Option<SocketName> {
    let family = i32::from(u16::from_ne_bytes(*name.first_chunk()?));
    let port = u16::from_be_bytes(*name.get(2..)?.first_chunk()?);
    let ip = match family {
        libc::AF_INET => Ipv4Addr::from(*name.get(4..)?.first_chunk::<4>()?).into(),
        libc::AF_INET6 => Ipv6Addr::from(*name.get(8..)?.first_chunk::<16>()?).to_canonical(),
        _ => return None,
    };
    Some((ip, port))
}

/// Connections of the provider that are open.
#[derive(Default)]
pub struct OpenConnections {
    /// Their other ends.
    made: HashSet<SocketName>,
    /// The hosts of those that this end has accepted, whose other ends have ports of their own.
    accepted: HashSet<IpAddr>,
}

impl OpenConnections {
    /// Whether one may lead to the endpoint at this address: a provider sends in both directions by one connection.
    pub fn may_reach(&self, peer: SocketName) -> bool {
        self.made.contains(&peer) || self.accepted.contains(&peer.0)
    }
}

/// A connection of the provider.
pub struct TcpSocket {
    /// A duplicate of the provider's descriptor: the provider may close that at any time.
    socket: Socket,
    /// The host at its other end.
    pub host: IpAddr,
}

impl TcpSocket {
    /// The connections of this process from the endpoint `own`, or to it, whose other ends are on the hosts of the
    /// endpoints `peers`. The provider connects to the address of an endpoint, and accepts at its own.
    pub fn find(own: SocketName, peers: &HashSet<SocketName>) -> Vec<TcpSocket> {
        let hosts: HashSet<IpAddr> = peers.iter().map(|peer| peer.0).collect();
        let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
            return Vec::new();
        };
        let sockets = entries.flatten().filter_map(|entry| {
            let target = std::fs::read_link(entry.path()).ok()?;
            let is_socket = target
                .as_os_str()
                .as_encoded_bytes()
                .starts_with(b"socket:");
            let fd: RawFd = entry.file_name().to_str()?.parse().ok()?;
            let socket = is_socket.then(|| duplicate(fd)).flatten()?;
            let (here, there) = (name_of(socket.local_addr())?, name_of(socket.peer_addr())?);
            let is_its = here == own && hosts.contains(&there.0) || peers.contains(&there);
            let is_tcp = socket.protocol().ok()? == Some(Protocol::TCP);
            (is_its && is_tcp).then_some(TcpSocket {
                socket,
                host: there.0,
            })
        });
        sockets.collect()
    }

    /// The connections of [`find`](Self::find) that are open. Looks at all descriptors of the process.
    pub fn open_ones(own: SocketName, peers: &HashSet<SocketName>) -> OpenConnections {
        let mut open = OpenConnections::default();
        let sockets = TcpSocket::find(own, peers).into_iter();
        for TcpSocket { socket, host } in sockets.filter(|socket| socket.silence().is_some()) {
            open.made.extend(name_of(socket.peer_addr()));
            if name_of(socket.local_addr()) == Some(own) {
                open.accepted.insert(host);
            }
        }
        open
    }

    /// Has the kernel ask the peer for an acknowledgement in each interval in which no data are in flight. It fails the
    /// connection later than [`silence`](Self::silence) reports it: the provider may report nothing.
    pub fn keep_alive(&self, interval: Duration) {
        // The kernel counts in seconds, and does not accept 0.
        let seconds = (interval.as_secs_f64().ceil() as u64).clamp(1, 32767);
        let interval = Duration::from_secs(seconds);
        let keepalive = TcpKeepalive::new()
            .with_time(interval)
            .with_interval(interval);
        let retries = 2 * SILENT_INTERVALS as u32;
        // A socket that has ended meanwhile refuses it.
        _ = self
            .socket
            .set_tcp_keepalive(&keepalive.with_retries(retries));
    }

    /// How long no acknowledgement has arrived, and whether one is due. `None`: the connection is not open.
    pub fn silence(&self) -> Option<(Duration, bool)> {
        let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
        let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
        let fd = self.socket.as_raw_fd();
        // SAFETY: `info` has `len` bytes, of which the kernel writes at most as many.
        let answer = unsafe {
            let to = info.as_mut_ptr().cast();
            libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, to, &mut len)
        };
        // SAFETY: every field is a number, and all were zeroed.
        let info = unsafe { info.assume_init() };
        let age = Duration::from_millis(info.tcpi_last_ack_recv.into());
        let is_due = info.tcpi_unacked > 0 || info.tcpi_probes > 0;
        (answer == 0 && info.tcpi_state == ESTABLISHED).then_some((age, is_due))
    }

    /// Ends the connection: the provider reports its operations as failed.
    pub fn shut_down(&self) {
        // It may have ended meanwhile.
        _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// A duplicate of a descriptor, which is that of a socket or not.
fn duplicate(fd: RawFd) -> Option<Socket> {
    // SAFETY: the call changes nothing but the table of descriptors, whatever the number is.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    // SAFETY: a new descriptor, which nothing else has.
    (copy >= 0).then(|| Socket::from(unsafe { OwnedFd::from_raw_fd(copy) }))
}

/// The address of one end of a socket. `None`: it has none, or is of another family.
fn name_of(address: std::io::Result<socket2::SockAddr>) -> Option<SocketName> {
    let address = address.ok()?.as_socket()?;
    Some((address.ip().to_canonical(), address.port()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, TcpListener, TcpStream};

    #[test]
    fn both_ends_of_a_connection_are_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap();
        let name = |at: SocketAddr| (at.ip(), at.port());
        let client = TcpStream::connect(own).unwrap();
        let (_server, of_client) = listener.accept().unwrap();
        let peers = |at| HashSet::from([name(at)]);
        let elsewhere = SocketAddr::from(([127, 0, 0, 1], 1));
        let found = |at, to| TcpSocket::find(name(at), &peers(to)).len();
        assert_eq!(found(elsewhere, own), 1, "the connection to the peer");
        assert_eq!(
            found(own, elsewhere),
            1,
            "that of the peer, from another port"
        );
        assert_eq!(found(elsewhere, elsewhere), 0);
        let reaches = |at, to| TcpSocket::open_ones(name(at), &peers(to)).may_reach(name(to));
        assert!(reaches(elsewhere, own), "by the connection to the peer");
        assert!(reaches(own, elsewhere), "by that of the peer");
        assert!(!reaches(elsewhere, elsewhere));
        let at = TcpSocket::find(name(own), &peers(of_client));
        assert!(
            at.iter()
                .all(|socket| socket.host == own.ip() && socket.silence().is_some())
        );
        at.iter().for_each(TcpSocket::shut_down);
        assert!(
            TcpSocket::find(name(own), &peers(of_client))
                .iter()
                .all(|s| s.silence().is_none())
        );
        drop(client);
    }

    #[test]
    fn addresses_of_endpoints_are_read() {
        let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let mut name = [0u8; 28];
        name[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        name[2..8].copy_from_slice(&[0x12, 0x34, 10, 0, 0, 1]);
        assert_eq!(socket_name(&name[..16]), Some((a.into(), 0x1234)));
        assert_eq!(socket_name(&name[..6]), None);
        name[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
        name[8..24].copy_from_slice(&b.to_ipv6_mapped().octets());
        assert_eq!(socket_name(&name), Some((b.into(), 0x1234)));
        assert_eq!(socket_name(b"fi_shm://1"), None);
    }
}
