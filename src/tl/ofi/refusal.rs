//! Peers on other hosts that refuse connections, because their processes have ended, and hosts that do not answer.
//!
//! libfabric's `tcp;ofi_rxm` connects again and again to an endpoint that is not there any more, and says no more than
//! that there is no room. A busy or stopped peer looks the same, and must not fail. So where sends to a peer wait, and
//! the provider has no open connection that may lead to it, a connection of this module's own is tried: the kernel of
//! the peer's host accepts it as long as the peer's endpoint exists, whatever the process does, and else refuses it. A
//! host that does neither for long is unreachable: where connections are open, `silent_hosts` finds that out.

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
/// Time after which a connection that is not answered is tried again, milliseconds: the kernel doubles its own.
const MAX_ATTEMPT_MS: u64 = 3000;
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
    /// The connection that is tried, and since when, coarse milliseconds.
    attempt: Option<(Socket, u64)>,
    /// When the first connection was tried to which the host has not answered, coarse milliseconds.
    silent_since: Option<u64>,
}

/// What a look at a peer has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RefusalVerdict {
    Waits,
    /// The peer has refused as many connections as count.
    Refuses,
    /// The host has not answered for so long, milliseconds.
    Silent(u64),
}

/// What has become of a connection that was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectEnd {
    Accepted,
    Refused,
    /// The kernel has given it up.
    Failed,
}

impl RefusalCheck {
    fn new(now: u64) -> RefusalCheck {
        RefusalCheck {
            refusals: 0,
            next: now.saturating_add(TRY_MS),
            interval: TRY_MS,
            attempt: None,
            silent_since: None,
        }
    }

    /// Looks at the connection that is tried, or tries one if it is time and `may_try` permits it.
    fn look(&mut self, to: SocketName, now: u64, may_try: impl FnOnce() -> bool) -> RefusalVerdict {
        let ended = match self.attempt.take() {
            Some((socket, since)) => match end_of(&socket) {
                Some(ended) => ended,
                None if now >= since.saturating_add(MAX_ATTEMPT_MS) => ConnectEnd::Failed,
                None => {
                    self.attempt = Some((socket, since));
                    return self.silence(now);
                }
            },
            None if now < self.next => return self.silence(now),
            None if !may_try() => {
                self.silent_since = None;
                return RefusalVerdict::Waits;
            }
            None => {
                self.silent_since.get_or_insert(now);
                match connect(to) {
                    Ok(socket) => {
                        self.attempt = Some((socket, now));
                        return self.silence(now);
                    }
                    Err(e) => ConnectEnd::of_error(&e),
                }
            }
        };
        match ended {
            ConnectEnd::Refused => (self.refusals, self.interval) = (self.refusals + 1, TRY_MS),
            ConnectEnd::Failed => (self.refusals, self.interval) = (0, TRY_MS),
            ConnectEnd::Accepted => {
                (self.refusals, self.interval) = (0, MAX_TRY_MS.min(self.interval * 2));
            }
        }
        if ended != ConnectEnd::Failed {
            self.silent_since = None;
        }
        self.next = now.saturating_add(self.interval);
        match self.refusals >= MAX_REFUSALS {
            true => RefusalVerdict::Refuses,
            false => self.silence(now),
        }
    }

    /// How long the host has not answered.
    fn silence(&self, now: u64) -> RefusalVerdict {
        let since = self.silent_since;
        since.map_or(RefusalVerdict::Waits, |since| {
            RefusalVerdict::Silent(now.saturating_sub(since))
        })
    }
}

impl ConnectEnd {
    fn of_error(error: &io::Error) -> ConnectEnd {
        match error.kind() {
            ErrorKind::ConnectionRefused => ConnectEnd::Refused,
            _ => ConnectEnd::Failed,
        }
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

/// What has become of a connection. `None`: the peer's host has not answered.
fn end_of(socket: &Socket) -> Option<ConnectEnd> {
    match socket.take_error() {
        Ok(Some(e)) => Some(ConnectEnd::of_error(&e)),
        Ok(None) => socket.peer_addr().is_ok().then_some(ConnectEnd::Accepted),
        Err(_) => Some(ConnectEnd::Failed),
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

/// Fails the connections to peers on other hosts to which sends wait, and whose addresses refuse connections, or do not
/// answer for `max_silence` milliseconds. A connection that is not answered yet has a limit of its own. Called several
/// times a second.
pub fn end_refused<P: Copy + Eq>(iface: &mut OfiIface<P>, now: u64, max_silence: u64) {
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
    let mut ended = Vec::new();
    for (to, conn) in waiting {
        let was_open = conn.remote.is_some();
        let refusals = conn
            .refusals
            .get_or_insert_with(|| Box::new(RefusalCheck::new(now)));
        if refusals.attempt.is_none() && attempts >= MAX_ATTEMPTS {
            continue;
        }
        let verdict = refusals.look(to, now, || !open.may_reach(to));
        let is_over = match verdict {
            RefusalVerdict::Waits => false,
            RefusalVerdict::Refuses => true,
            // The provider may have connected since the attempt began.
            RefusalVerdict::Silent(ms) if was_open && ms >= max_silence => {
                refusals.silent_since = None;
                !open.may_reach(to)
            }
            RefusalVerdict::Silent(_) => false,
        };
        attempts += usize::from(refusals.attempt.is_some());
        if is_over {
            ended.push((conn.link.clone(), conn.uid, to, verdict, was_open));
        }
    }
    for (link, uid, to, verdict, was_open) in ended {
        report(&iface.device_name, uid, to, verdict);
        // What the provider has to send to a host that does not answer does not end.
        iface.ended_below |= verdict != RefusalVerdict::Refuses;
        let status = match was_open {
            true => UCS_ERR_CONNECTION_RESET,
            false => UCS_ERR_UNREACHABLE,
        };
        iface.fail_conn(&link, status);
    }
}

/// Logs that a connection to a peer fails.
fn report(device_name: &str, uid: u64, (host, port): SocketName, verdict: RefusalVerdict) {
    if verdict == RefusalVerdict::Refuses {
        log::once!(
            Warn,
            each & host,
            "worker {uid:#x} is given up: {host} refuses connections to its port {port} ({device_name}), so its \
             process has ended, or a firewall rejects them: see its output, and open the ports of libfabric between \
             the hosts"
        );
    } else {
        log::diag!("worker {uid:#x} is given up: {host} does not answer ({device_name})");
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
            if check.look(to, *now, || true) == RefusalVerdict::Refuses {
                return true;
            }
            while (check.attempt.as_ref()).is_some_and(|(socket, _)| is_waiting(socket)) {
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
        let mut looks = (0..100_000).step_by(100);
        assert!(looks.all(|now| check.look(to, now, || false) == RefusalVerdict::Waits));
        assert_eq!(check.refusals, 0);
    }

    #[test]
    fn a_host_that_does_not_answer_is_silent_until_a_connection_is_open() {
        // Where connections wait to be accepted, and there is room for no further one, the kernel does not answer.
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        listener.bind(&any.into()).unwrap();
        listener.listen(0).unwrap();
        let at = listener.local_addr().unwrap().as_socket().unwrap();
        let to = (at.ip(), at.port());
        let _waiting: Vec<_> = (0..4).map(|_| connect(to)).collect();
        let mut check = RefusalCheck::new(0);
        let mut longest = 0;
        for now in (0..60_000).step_by(100) {
            match check.look(to, now, || true) {
                RefusalVerdict::Silent(ms) => longest = ms,
                RefusalVerdict::Waits => assert!(now <= TRY_MS),
                RefusalVerdict::Refuses => panic!("the kernel listens"),
            }
        }
        assert!(longest > 50_000);
        check.attempt = None;
        let verdict = check.look(to, 200_000, || false);
        assert_eq!(verdict, RefusalVerdict::Waits);
    }
}
