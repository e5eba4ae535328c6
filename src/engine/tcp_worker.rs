//! A worker's sockets: the one that it listens on, those being connected, those that are open.

use super::epoll_timer::EpollTimer;
use super::peer::Peer;
use crate::sys::descriptor::OwnedDescriptor;
use crate::sys::host;
use crate::tl::tcp::SharedSocket;
use crate::tl::tcp::device::{self, TcpDevice};
use crate::tl::tcp::epoll::{Epoll, SocketEvent};
use crate::tl::tcp::receiver::TcpReceiver;
use crate::tl::tcp::socket::{self, SocketTuning};
use crate::wire::address::{MAX_ADDRESSES, NetAddress, TcpLocator};
use socket2::Socket;
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What the epoll set calls the listening socket.
pub const LISTENER: u64 = u64::MAX;

/// What it calls the timer.
pub const TIMER: u64 = u64::MAX - 1;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpConnPhase {
    /// We are connecting.
    Dialing(ConnectAttempt),
    /// We have sent our greeting and wait for the answer.
    Greeted(ConnectAttempt),
    /// Somebody has connected to us and not said who he is. Closed at this time, coarse milliseconds.
    Guest { until: u64 },
    /// Messages may come.
    Open,
    /// We are connecting, at this one of the peer's addresses, for what queue pairs have to say to each other;
    /// `number`: the connection that wants it.
    Calling { number: u32, candidate: usize },
    /// That goes both ways: so many letters have come. `ours`: we have connected.
    Letters { ours: bool, read: u32 },
}

/// One of the attempts to connect to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectAttempt {
    /// Which of its addresses.
    pub candidate: usize,
    /// Attempts that the peer took and dropped.
    pub dropped: u32,
}

/// A connection, as the progressing thread sees it.
pub struct TcpConn {
    pub link: Arc<SharedSocket>,
    pub receiver: TcpReceiver,
    pub phase: TcpConnPhase,
    /// Null for a guest.
    pub peer: *const Peer,
    /// How often the other end had lost this worker when it was made.
    pub losses: u32,
    /// It is in the list of those that messages may be left of.
    listed: bool,
}

/// A peer that is to be tried again.
#[derive(Clone, Copy)]
pub struct ConnectRetry {
    pub peer: *const Peer,
    /// Not before, coarse milliseconds.
    pub at: u64,
    pub dropped: u32,
}

/// The progressing thread's.
pub struct TcpWorker {
    pub epoll: Arc<Epoll>,
    pub listener: OwnedDescriptor<Socket>,
    pub tuning: SocketTuning,
    pub secret: u64,
    pub port: u16,
    pub addresses: Vec<NetAddress>,
    /// Addresses of devices that may be used: those, and the loopback device's.
    pub own: Vec<IpAddr>,
    slots: Vec<TcpConnSlot>,
    free: Vec<u32>,
    /// Open connections, for polling without the epoll set where there are few.
    pub open: Vec<u64>,
    /// Open connections of which messages may be in the buffer that no progress call has taken in, longest waiting
    /// first.
    behind: VecDeque<u64>,
    /// Messages that this progress call may still take in.
    pub portion: u32,
    /// Looks at the sockets since the epoll set was last asked: what is listed was enough for them.
    pub unasked: u32,
    /// What the epoll set said last; kept for its memory.
    pub events: Vec<SocketEvent>,
    /// Those that are not open yet.
    pub unsettled: usize,
    /// Guests among them, oldest first.
    pub half_open: Vec<u64>,
    /// Those by which we connect, or have connected, for letters.
    pub wireups: usize,
    pub retries: Vec<ConnectRetry>,
    /// Wakes a sleeping worker for the next of `redials`; made when there is the first.
    alarm: EpollTimer,
}

struct TcpConnSlot {
    generation: u32,
    connection: Option<Box<TcpConn>>,
}

impl TcpWorker {
    /// A listening socket and nothing else.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(tuning: SocketTuning, devices: &[TcpDevice]) -> io::Result<Self> {
        let listener = socket::listen_everywhere(&tuning)?;
        let local = listener.local_addr()?.as_socket();
        let epoll = Epoll::new()?;
        epoll.add(listener.as_raw_fd(), LISTENER, false)?;
        Ok(Self {
            epoll: Arc::new(epoll),
            secret: host::random_u64(),
            port: local.map_or(0, |a| a.port()),
            addresses: addresses(devices, local.is_some_and(|a| a.is_ipv6())),
            own: devices.iter().flat_map(|d| d.addrs.clone()).collect(),
            listener: OwnedDescriptor::new(listener),
            tuning,
            slots: Vec::new(),
            free: Vec::new(),
            open: Vec::new(),
            behind: VecDeque::new(),
            portion: 0,
            unasked: 0,
            events: Vec::new(),
            unsettled: 0,
            half_open: Vec::new(),
            wireups: 0,
            retries: Vec::new(),
            alarm: EpollTimer::new(TIMER),
        })
    }

    /// The worker goes to sleep: it is woken when a peer is to be tried again, and when the time is up of somebody
    /// who has not said who he is. False if that is due, or cannot be.
    pub fn sleep_until_due(&mut self) -> bool {
        // Guests are in the order of their arrival.
        let first = self.half_open.first().copied();
        let guest = match first.and_then(|token| self.get(token)).map(|c| &c.phase) {
            Some(&TcpConnPhase::Guest { until }) => Some(until),
            _ => None,
        };
        let redials = self.retries.iter().map(|r| r.at);
        let at = redials.chain(guest).min();
        self.alarm.wake(&self.epoll, at)
    }

    /// The timer has run out: the epoll set is quiet again.
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

    /// What the worker's address says of them.
    pub fn locator(&self) -> TcpLocator {
        TcpLocator {
            port: self.port,
            secret: self.secret,
            network: network(),
            addresses: self.addresses.clone(),
        }
    }

    /// Takes a socket into the set. `write`: to be told when it is connected.
    ///
    /// # Errors
    /// What the system says; the socket is closed then.
    pub fn add(
        &mut self,
        socket: Socket,
        phase: TcpConnPhase,
        peer: *const Peer,
        write: bool,
    ) -> io::Result<u64> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(TcpConnSlot {
                generation: 0,
                connection: None,
            });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        let token = u64::from(slot.generation & 0x7FFF_FFFF) << 32 | u64::from(index);
        if let Err(e) = self.epoll.add(socket.as_raw_fd(), token, write) {
            self.free.push(index);
            return Err(e);
        }
        let link = Arc::new(SharedSocket {
            socket: OwnedDescriptor::new(socket),
            epoll: self.epoll.clone(),
            token,
        });
        slot.connection = Some(Box::new(TcpConn {
            receiver: TcpReceiver::new(link.clone(), self.tuning.receive_buffer),
            link,
            phase,
            peer,
            losses: 0,
            listed: false,
        }));
        self.unsettled += 1;
        match phase {
            TcpConnPhase::Guest { .. } => self.half_open.push(token),
            TcpConnPhase::Calling { .. } => self.wireups += 1,
            _ => {}
        }
        Ok(token)
    }

    /// The connection with this token, if it is still there.
    pub fn get(&mut self, token: u64) -> Option<&mut TcpConn> {
        let slot = self.slots.get_mut(token as u32 as usize)?;
        slot.connection
            .as_deref_mut()
            .filter(|c| c.link.token == token)
    }

    /// Connections of which messages may be in the buffer that no progress call has taken in.
    pub fn behind(&self) -> usize {
        self.behind.len()
    }

    /// Lists an open connection as one of them, behind all others.
    pub fn list(&mut self, token: u64) {
        if let Some(c) = self.get(token)
            && !std::mem::replace(&mut c.listed, true)
        {
            self.behind.push_back(token);
        }
    }

    /// Whether this connection is one of them.
    pub fn is_listed(&mut self, token: u64) -> bool {
        self.get(token).is_some_and(|c| c.listed)
    }

    /// Takes the one that waits longest off the list.
    pub fn take_listed(&mut self) -> Option<u64> {
        let token = self.behind.pop_front()?;
        if let Some(c) = self.get(token) {
            c.listed = false;
        }
        Some(token)
    }

    /// All that are there.
    pub fn iter(&self) -> impl Iterator<Item = &TcpConn> {
        self.slots.iter().filter_map(|s| s.connection.as_deref())
    }

    /// All that are there, as if they were ready: whether they can still be used is seen when they are.
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

    /// Messages may come from now on.
    pub fn set_open(&mut self, token: u64, peer: *const Peer) {
        if let Some(c) = self.get(token) {
            (c.phase, c.peer) = (TcpConnPhase::Open, peer);
            self.unsettled -= 1;
            self.half_open.retain(|&t| t != token);
            self.open.push(token);
        }
    }

    /// A guest has something to say to a queue pair.
    pub fn accept(&mut self, token: u64) {
        if let Some(c) = self.get(token) {
            c.phase = TcpConnPhase::Letters {
                ours: false,
                read: 0,
            };
            self.half_open.retain(|&t| t != token);
        }
    }

    /// Takes a connection out of the set. Its socket is closed when its sending half is gone too.
    pub fn remove(&mut self, token: u64) -> Option<Box<TcpConn>> {
        let slot = self.slots.get_mut(token as u32 as usize)?;
        let connection = slot.connection.take_if(|c| c.link.token == token)?;
        self.free.push(token as u32);
        // Only a socket that is being connected is watched for room by us; else its sender does that.
        let dialing = matches!(
            connection.phase,
            TcpConnPhase::Dialing(_) | TcpConnPhase::Calling { .. }
        );
        match connection.phase {
            TcpConnPhase::Letters { ours: true, .. } | TcpConnPhase::Calling { .. } => {
                self.wireups -= 1
            }
            _ => {}
        }
        self.epoll.remove(connection.link.fd(), dialing);
        if connection.phase == TcpConnPhase::Open {
            self.open.retain(|&t| t != token);
            if connection.listed {
                self.behind.retain(|&t| t != token);
            }
        } else {
            self.unsettled -= 1;
            self.half_open.retain(|&t| t != token);
        }
        Some(connection)
    }

    /// Whether nothing goes on but listening.
    pub fn is_quiet(&self) -> bool {
        self.open.is_empty() && self.unsettled == 0 && self.retries.is_empty()
    }
}

/// A name of the network namespace that this process is in.
pub fn network() -> u32 {
    let here = host::place();
    here.net_ns ^ here.host as u32 ^ (here.host >> 32) as u32
}

/// What the worker tells of this host. `v6`: its socket takes connections of both families.
fn addresses(devices: &[TcpDevice], v6: bool) -> Vec<NetAddress> {
    let mut all: Vec<NetAddress> = device::advertised(devices)
        .iter()
        .flat_map(|d| d.addrs.iter().map(|&ip| NetAddress::new(ip, d.speed())))
        .filter(|a| v6 || a.ip.is_ipv4())
        .collect();
    all.truncate(MAX_ADDRESSES);
    all
}
