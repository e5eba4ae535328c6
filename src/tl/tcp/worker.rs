//! A worker's sockets: the one that it listens on, those being connected, those that are open.

use super::SharedSocket;
use super::address::{MAX_ADDRESSES, NetAddress, TcpLocator, TcpUsage};
use super::conn::{TcpConn, TcpConnPhase};
use super::context::TcpContext;
use super::device::{self, TcpDevice};
use super::receiver::TcpReceiver;
use super::route;
use super::socket::{self, SocketTuning};
use crate::sys::descriptor::OwnedDescriptor;
use crate::sys::epoll::{Epoll, SocketEvent};
use crate::sys::epoll_timer::EpollTimer;
use crate::sys::host;
use slab::Slab;
use socket2::Socket;
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Token of the listening socket in the epoll set.
pub const LISTENER: u64 = u64::MAX;

/// Token of the timer in the epoll set.
pub const TIMER: u64 = u64::MAX - 1;

/// A peer to which the next attempt to connect is due later.
#[derive(Clone, Copy)]
pub struct ConnectRetry<P> {
    pub peer: P,
    /// Time of the attempt, coarse milliseconds.
    pub at: u64,
    pub dropped: u32,
}

/// TCP state of a worker. Used by the progress thread only. `P` names a peer.
pub struct TcpWorker<P> {
    /// The worker's own.
    pub uid: u64,
    pub client_id: u64,
    /// Network devices that may be used, in the order of the context.
    pub devices: Vec<TcpDevice>,
    pub usage: TcpUsage,
    /// Peers may make out-of-band connections.
    pub accepts_oob: bool,
    /// Maximum number of reads of a connection in one progress call.
    pub max_poll: u32,
    /// Attempts to connect that a peer accepts and closes.
    pub max_conn_retries: u32,
    pub epoll: Arc<Epoll>,
    pub listener: OwnedDescriptor<Socket>,
    pub tuning: SocketTuning,
    pub secret: u64,
    pub port: u16,
    pub addresses: Vec<NetAddress>,
    /// Addresses of devices that may be used, and of the loopback device.
    pub own: Vec<IpAddr>,
    /// All connections, by the lower half of their tokens.
    conns: Slab<Box<TcpConn<P>>>,
    /// Connections made, wraps: the upper half of tokens.
    made: u32,
    /// Open connections, for polling without the epoll set where there are few.
    pub open: Vec<u64>,
    /// Open connections whose receive buffer may have messages that no progress call has handled, longest waiting
    /// first.
    behind: VecDeque<u64>,
    /// Messages that this progress call may still handle.
    pub portion: u32,
    /// Polls since the last `epoll_wait`: the listed connections had enough work for them.
    pub unasked: u32,
    /// Calls of [`is_look_due`](Self::is_look_due), wraps.
    pub reads: u32,
    /// When a clock read last polled the sockets, nanoseconds.
    pub looked_at: u64,
    /// Result of the last `epoll_wait`; kept for reuse of its memory.
    pub events: Vec<SocketEvent>,
    /// Connections that are not open yet.
    pub unsettled: usize,
    /// Half-open connections, oldest first.
    pub half_open: Vec<u64>,
    /// Out-of-band connections that this end has made or is making.
    pub oob_conns: usize,
    pub retries: Vec<ConnectRetry<P>>,
    /// Wakes a sleeping worker for the next of `retries`; made for the first one.
    alarm: EpollTimer,
}

impl<P: Copy> TcpWorker<P> {
    /// A listening socket and nothing else, for the worker with this uid. `accepts_oob`: peers may make
    /// out-of-band connections.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn new(
        tcp: &TcpContext,
        tuning: SocketTuning,
        (uid, client_id): (u64, u64),
        accepts_oob: bool,
    ) -> io::Result<Self> {
        let devices = &tcp.devices[..];
        let listener = socket::listen_everywhere(&tuning)?;
        let local = listener.local_addr()?.as_socket();
        let epoll = Epoll::new()?;
        epoll.add(&listener, LISTENER, false)?;
        Ok(Self {
            uid,
            client_id,
            devices: devices.to_vec(),
            usage: tcp.usage,
            accepts_oob,
            max_poll: tcp.policy.max_poll,
            max_conn_retries: tcp.policy.max_conn_retries,
            epoll: Arc::new(epoll),
            secret: host::random_u64(),
            port: local.map_or(0, |a| a.port()),
            addresses: addresses(devices, local.is_some_and(|a| a.is_ipv6())),
            own: devices.iter().flat_map(|d| d.addrs.clone()).collect(),
            listener: OwnedDescriptor::new(listener),
            tuning,
            conns: Slab::new(),
            made: 0,
            open: Vec::new(),
            behind: VecDeque::new(),
            portion: 0,
            unasked: 0,
            reads: 0,
            looked_at: 0,
            events: Vec::new(),
            unsettled: 0,
            half_open: Vec::new(),
            oob_conns: 0,
            retries: Vec::new(),
            alarm: EpollTimer::new(TIMER),
        })
    }

    /// Prepares for sleep: sets the timer for the next attempt to connect and for the first timeout of a half-open
    /// connection. False if that has passed, or the timer cannot be set.
    pub fn sleep_until_due(&mut self) -> bool {
        // Half-open connections are in the order of their arrival.
        let first = self.half_open.first().copied();
        let half_open_until = match first.and_then(|token| self.get(token)).map(|c| &c.phase) {
            Some(&TcpConnPhase::HalfOpen { until }) => Some(until),
            _ => None,
        };
        let retries = self.retries.iter().map(|r| r.at);
        let at = retries.chain(half_open_until).min();
        self.alarm.wake(&self.epoll, at)
    }

    /// Clears the expired timer, so that the epoll set is not readable because of it.
    pub fn timer_rang(&self) {
        self.alarm.drain();
    }

    /// The number of progress calls until now, which wraps.
    pub fn begin_poll(&self) -> u32 {
        self.epoll.turn.load(Ordering::Relaxed)
    }

    /// A progress call ends: what is sent from now on belongs to the next one.
    pub fn end_poll(&self) {
        let next = self.begin_poll().wrapping_add(1);
        self.epoll.turn.store(next, Ordering::Relaxed);
    }

    /// The worker's address section.
    pub fn locator(&self) -> TcpLocator {
        TcpLocator {
            usage: self.usage,
            port: self.port,
            secret: self.secret,
            network: route::network(),
            addresses: self.addresses.clone(),
        }
    }

    /// Adds a socket to the epoll set. `write`: also wait until it is connected.
    ///
    /// # Errors
    /// The error of the system call; the socket is closed then.
    pub fn add(
        &mut self,
        socket: Socket,
        phase: TcpConnPhase,
        peer: Option<P>,
        write: bool,
    ) -> io::Result<u64> {
        self.made = self.made.wrapping_add(1);
        let entry = self.conns.vacant_entry();
        let token = u64::from(self.made & 0x7FFF_FFFF) << 32 | entry.key() as u64;
        self.epoll.add(&socket, token, write)?;
        let link = Arc::new(SharedSocket {
            socket: OwnedDescriptor::new(socket),
            epoll: self.epoll.clone(),
            token,
        });
        entry.insert(Box::new(TcpConn {
            receiver: TcpReceiver::new(link.clone(), self.tuning.receive_buffer),
            link,
            phase,
            peer,
            losses: 0,
            in_behind: false,
        }));
        self.unsettled += 1;
        match phase {
            TcpConnPhase::HalfOpen { .. } => self.half_open.push(token),
            TcpConnPhase::OobConnecting { .. } => self.oob_conns += 1,
            _ => {}
        }
        Ok(token)
    }

    /// The connection with this token, if it exists.
    pub fn get(&mut self, token: u64) -> Option<&mut TcpConn<P>> {
        let connection = self.conns.get_mut(token as u32 as usize)?;
        (connection.link.token == token).then_some(connection)
    }

    /// Number of open connections whose receive buffer may have messages that no progress call has handled.
    pub fn behind(&self) -> usize {
        self.behind.len()
    }

    /// Appends an open connection to the list `behind`.
    pub fn list(&mut self, token: u64) {
        if let Some(c) = self.get(token)
            && !std::mem::replace(&mut c.in_behind, true)
        {
            self.behind.push_back(token);
        }
    }

    /// Whether this connection is in the list `behind`.
    pub fn is_listed(&mut self, token: u64) -> bool {
        self.get(token).is_some_and(|c| c.in_behind)
    }

    /// Removes the longest waiting connection from the list `behind`.
    pub fn take_listed(&mut self) -> Option<u64> {
        let token = self.behind.pop_front()?;
        if let Some(c) = self.get(token) {
            c.in_behind = false;
        }
        Some(token)
    }

    /// All connections.
    pub fn iter(&self) -> impl Iterator<Item = &TcpConn<P>> {
        self.conns.iter().map(|(_, connection)| &**connection)
    }

    /// All connections, as if they were ready: an unusable one shows when it is read.
    #[cold]
    pub fn everything(&self) -> Vec<SocketEvent> {
        self.iter()
            .map(|c| SocketEvent {
                token: c.link.token,
                read: true,
                write: true,
            })
            .collect()
    }

    /// Opens a connection: messages may arrive.
    pub fn set_open(&mut self, token: u64, peer: P) {
        if let Some(c) = self.get(token) {
            (c.phase, c.peer) = (TcpConnPhase::Open, Some(peer));
            self.unsettled -= 1;
            self.half_open.retain(|&t| t != token);
            self.open.push(token);
        }
    }

    /// A half-open connection has sent a whole out-of-band message.
    pub fn accept_oob(&mut self, token: u64) {
        if let Some(c) = self.get(token) {
            c.phase = TcpConnPhase::OobOpen {
                ours: false,
                read: 0,
            };
            self.half_open.retain(|&t| t != token);
        }
    }

    /// Removes a connection from the epoll set. Its socket is closed when its sender is dropped too.
    pub fn remove(&mut self, token: u64) -> Option<Box<TcpConn<P>>> {
        self.get(token)?;
        let connection = self.conns.remove(token as u32 as usize);
        // Only a socket that is connecting is watched for writability here; for others its sender does that.
        let connecting = matches!(
            connection.phase,
            TcpConnPhase::Connecting(_) | TcpConnPhase::OobConnecting { .. }
        );
        match connection.phase {
            TcpConnPhase::OobOpen { ours: true, .. } | TcpConnPhase::OobConnecting { .. } => {
                self.oob_conns -= 1
            }
            _ => {}
        }
        self.epoll.remove(&connection.link.socket, connecting);
        if connection.phase == TcpConnPhase::Open {
            self.open.retain(|&t| t != token);
            if connection.in_behind {
                self.behind.retain(|&t| t != token);
            }
        } else {
            self.unsettled -= 1;
            self.half_open.retain(|&t| t != token);
        }
        Some(connection)
    }

    /// Whether there is nothing but the listening socket.
    pub fn is_quiet(&self) -> bool {
        self.open.is_empty() && self.unsettled == 0 && self.retries.is_empty()
    }
}

/// The addresses that the worker publishes. `v6`: its socket accepts connections of both families.
fn addresses(devices: &[TcpDevice], v6: bool) -> Vec<NetAddress> {
    let mut all: Vec<NetAddress> = device::advertised(devices)
        .iter()
        .flat_map(|d| d.addrs.iter().map(|&ip| NetAddress::new(ip, d.speed())))
        .filter(|a| v6 || a.ip.is_ipv4())
        .collect();
    all.truncate(MAX_ADDRESSES);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Options, PortRange};
    use socket2::{Domain, Type};

    fn sockets() -> TcpWorker<u32> {
        let tuning = SocketTuning {
            nodelay: true,
            sndbuf: None,
            rcvbuf: None,
            syn_count: None,
            user_timeout: None,
            keep_idle: None,
            keep_interval: None,
            keep_count: None,
            bind_source: false,
            ports: PortRange { first: 0, last: 0 },
            receive_buffer: 4096,
        };
        let tcp = TcpContext::new(&Options::default(), false, &[]);
        TcpWorker::new(&tcp, tuning, (1, 0), false).unwrap()
    }

    fn add(sockets: &mut TcpWorker<u32>) -> u64 {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let phase = TcpConnPhase::HalfOpen { until: 0 };
        sockets.add(socket, phase, None, false).unwrap()
    }

    /// Events and lists may still name a connection that is removed, when another one has its place in the table.
    #[test]
    fn the_token_of_a_removed_connection_names_none() {
        let mut sockets = sockets();
        let (old, other) = (add(&mut sockets), add(&mut sockets));
        assert!(sockets.remove(old).is_some());
        assert!(sockets.get(old).is_none() && sockets.remove(old).is_none());
        let new = add(&mut sockets);
        assert_eq!(new as u32, old as u32, "the place is used again");
        assert!(sockets.get(old).is_none() && sockets.remove(old).is_none());
        assert!(sockets.get(new).is_some() && sockets.get(other).is_some());
        assert!(sockets.get(LISTENER).is_none() && sockets.get(TIMER).is_none());
        assert_eq!(sockets.half_open, [other, new]);
        assert_eq!((sockets.unsettled, sockets.iter().count()), (2, 2));
    }
}
