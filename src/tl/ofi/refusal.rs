//! Peers on other hosts that refuse connections: their processes have ended.
//!
//! libfabric's `tcp;ofi_rxm` connects again and again to an endpoint that is not there any more, and says no more than
//! that there is no room. A busy or stopped peer looks the same, and must not fail. So where sends to a peer wait, and
//! the provider has no open connection that may lead to it, a connection of this module's own is tried: the kernel of
//! the peer's host accepts it as long as the peer's endpoint exists, whatever the process does, and else refuses it.

use super::conn::OfiConn;
use super::control_queue::ControlQueue;
use super::iface::OfiIface;
use super::tcp_sockets::{SocketName, TcpSocket, socket_name};
use crate::ctypes::{UCS_ERR_CONNECTION_RESET, UCS_ERR_UNREACHABLE};
use crate::sys::log;
use socket2::{Domain, Protocol, Socket, Type};
use std::cell::LazyCell;
use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;

/// Refused connections, one after the other, after which the peer's process counts as ended.
const MAX_REFUSALS: u32 = 3;
/// Time from the first wait to the first connection, and from a refused one to the next, milliseconds.
const TRY_MS: u64 = 1000;
/// Most connections that are tried at a time.
const MAX_ATTEMPTS: usize = 64;
/// Longest time from one that was not refused to the next, milliseconds.
const MAX_TRY_MS: u64 = 60_000;

/// What is known of a peer to which sends wait.
#[derive(Debug)]
pub struct RefusalCheck {
    /// Connections that were refused, one after the other.
    refusals: u32,
    /// When the next one is tried, coarse milliseconds, and the time to the one behind it.
    next: u64,
    interval: u64,
    /// The connection that is tried.
    attempt: Option<Socket>,
}

impl RefusalCheck {
    fn new(now: u64) -> RefusalCheck {
        RefusalCheck {
            refusals: 0,
            next: now.saturating_add(TRY_MS),
            interval: TRY_MS,
            attempt: None,
        }
    }

    /// Looks at the connection that is tried, or tries one if it is time and `may_try` permits it. Returns whether the
    /// peer at `to` has refused as many as count.
    fn look(&mut self, to: SocketName, now: u64, may_try: impl FnOnce() -> bool) -> bool {
        let is_refused = match self.attempt.take() {
            Some(socket) => match is_refused(&socket) {
                Some(refused) => refused,
                None => {
                    self.attempt = Some(socket);
                    return false;
                }
            },
            None if now < self.next => return false,
            None if !may_try() => false,
            None => match connect(to) {
                Ok(socket) => {
                    self.attempt = Some(socket);
                    return false;
                }
                Err(e) => e.kind() == ErrorKind::ConnectionRefused,
            },
        };
        if is_refused {
            (self.refusals, self.interval) = (self.refusals + 1, TRY_MS);
        } else {
            (self.refusals, self.interval) = (0, MAX_TRY_MS.min(self.interval * 2));
        }
        self.next = now.saturating_add(self.interval);
        self.refusals >= MAX_REFUSALS
    }
}

/// Begins to connect.
fn connect((ip, port): SocketName) -> io::Result<Socket> {
    let to = SocketAddr::new(ip, port);
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    match socket.connect(&to.into()) {
        Err(e) if e.raw_os_error() != Some(libc::EINPROGRESS) => Err(e),
        _ => Ok(socket),
    }
}

/// Whether a connection was refused. `None`: the peer's host has not answered.
fn is_refused(socket: &Socket) -> Option<bool> {
    match socket.take_error() {
        Ok(Some(e)) => Some(e.kind() == ErrorKind::ConnectionRefused),
        Ok(None) => socket.peer_addr().is_ok().then_some(false),
        Err(_) => Some(false),
    }
}

/// The address of a peer to which sends wait, and of which nothing else says whether its process has ended. `control`:
/// the messages of the transport itself that wait for room.
fn waiting_for<P: Copy + Eq>(conn: &OfiConn<P>, control: &ControlQueue) -> Option<SocketName> {
    let waits = conn.awaits_sends() || conn.request.is_some() || control.has(&conn.link);
    // The lock of a peer on this host says more.
    let is_asked = waits && conn.link.lock.is_none() && conn.peer.is_some() && !conn.is_broken;
    socket_name(&conn.name).filter(|_| is_asked)
}

/// Fails the connections to peers on other hosts to which sends wait, and whose addresses refuse connections. Called
/// several times a second.
pub fn end_refused<P: Copy + Eq>(iface: &mut OfiIface<P>, now: u64) {
    let Some((own, _)) = iface.tcp else {
        return;
    };
    let OfiIface { conns, control, .. } = iface;
    let mut waiting = Vec::new();
    for (_, conn) in conns {
        match waiting_for(conn, control) {
            Some(to) => waiting.push((to, conn)),
            None => conn.refusals = None,
        }
    }
    let names: HashSet<_> = waiting.iter().map(|&(to, _)| to).collect();
    // Once for all of them: it looks at every descriptor of the process.
    let open = LazyCell::new(|| TcpSocket::open_ones(own, &names));
    let mut attempts = 0;
    let mut refused = Vec::new();
    for (to, conn) in waiting {
        let refusals = conn
            .refusals
            .get_or_insert_with(|| Box::new(RefusalCheck::new(now)));
        if refusals.attempt.is_none() && attempts >= MAX_ATTEMPTS {
            continue;
        }
        if refusals.look(to, now, || !open.may_reach(to)) {
            refused.push((conn.link.clone(), conn.uid, to, conn.remote.is_some()));
        }
        attempts += usize::from(refusals.attempt.is_some());
    }
    for (link, uid, (host, port), was_open) in refused {
        log::once!(
            Warn,
            each & host,
            "worker {uid:#x} is given up: {host} refuses connections to its port {port} ({}), so its process has \
             ended, or a firewall rejects them: see its output, and open the ports of libfabric between the hosts",
            iface.device_name
        );
        let status = match was_open {
            true => UCS_ERR_CONNECTION_RESET,
            false => UCS_ERR_UNREACHABLE,
        };
        iface.fail_conn(&link, status);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Looks every 100 ms of a clock of the test's own, from `now` to `until`, until the peer counts as ended. An
    /// attempt is waited for: its end takes no time of that clock.
    fn look(check: &mut RefusalCheck, to: SocketName, now: &mut u64, until: u64) -> bool {
        while *now < until {
            if check.look(to, *now, || true) {
                return true;
            }
            while check.attempt.as_ref().is_some_and(is_waiting) {
                std::thread::yield_now();
            }
            *now += 100;
        }
        false
    }

    /// Without taking the error of the socket.
    fn is_waiting(socket: &Socket) -> bool {
        let mut poll = [rustix::event::PollFd::new(
            socket,
            rustix::event::PollFlags::OUT,
        )];
        rustix::event::poll(&mut poll, Some(&rustix::event::Timespec::default())) == Ok(0)
    }

    #[test]
    fn a_peer_that_refuses_counts_as_ended_and_one_that_accepts_does_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let (to, mut now) = ((at.ip(), at.port()), 0);
        let mut check = RefusalCheck::new(now);
        assert!(!look(&mut check, to, &mut now, 20_000));
        assert!(check.refusals == 0 && check.interval > TRY_MS);
        drop(listener);
        let since = now;
        assert!(look(&mut check, to, &mut now, 200_000));
        assert!(now > since + 2 * TRY_MS, "one refusal is not enough");
    }

    #[test]
    fn nothing_is_tried_where_a_connection_is_open() {
        let mut check = RefusalCheck::new(0);
        let to = (std::net::Ipv4Addr::LOCALHOST.into(), 1);
        assert!(
            (0..100_000)
                .step_by(100)
                .all(|now| !check.look(to, now, || false))
        );
        assert_eq!(check.refusals, 0);
    }
}
