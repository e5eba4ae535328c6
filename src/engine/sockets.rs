//! A worker's sockets: the one that it listens on, those being connected, those that are open.

use super::alarm::Alarm;
use super::peer::Peer;
use crate::sys::descriptor::Owned;
use crate::sys::machine;
use crate::tl::tcp::Link;
use crate::tl::tcp::device::{self, Device};
use crate::tl::tcp::epoll::{Epoll, Event};
use crate::tl::tcp::receiver::Receiver;
use crate::tl::tcp::socket::{self, Tuning};
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
pub enum Phase {
    /// We are connecting.
    Dialing(Attempt),
    /// We have sent our greeting and wait for the answer.
    Greeted(Attempt),
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
pub struct Attempt {
    /// Which of its addresses.
    pub candidate: usize,
    /// Attempts that the peer took and dropped.
    pub dropped: u32,
}

/// A connection, as the progressing thread sees it.
pub struct Connection {
    pub link: Arc<Link>,
    pub receiver: Receiver,
    pub phase: Phase,
    /// Null for a guest.
    pub peer: *const Peer,
    /// How often the other end had lost this worker when it was made.
    pub losses: u32,
    /// It is in the list of those that messages may be left of.
    listed: bool,
}

/// A peer that is to be tried again.
#[derive(Clone, Copy)]
pub struct Redial {
    pub peer: *const Peer,
    /// Not before, coarse milliseconds.
    pub at: u64,
    pub dropped: u32,
}

/// The progressing thread's.
pub struct Sockets {
    pub epoll: Arc<Epoll>,
    pub listener: Owned<Socket>,
    pub tuning: Tuning,
    pub secret: u64,
    pub port: u16,
    pub addresses: Vec<NetAddress>,
    /// Addresses of devices that may be used: those, and the loopback device's.
    pub own: Vec<IpAddr>,
    slots: Vec<Slot>,
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
    pub events: Vec<Event>,
    /// Those that are not open yet.
    pub unsettled: usize,
    /// Guests among them, oldest first.
    pub guests: Vec<u64>,
    /// Those by which we connect, or have connected, for letters.
    pub calls: usize,
    pub redials: Vec<Redial>,
    /// Wakes a sleeping worker for the next of `redials`; made when there is the first.
    alarm: Alarm,
}

struct Slot {
    generation: u32,
    connection: Option<Box<Connection>>,
}

impl Sockets {
    /// A listening socket and nothing else.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(tuning: Tuning, devices: &[Device]) -> io::Result<Self> {
        let listener = socket::listen_everywhere(&tuning)?;
        let local = listener.local_addr()?.as_socket();
        let epoll = Epoll::new()?;
        epoll.add(listener.as_raw_fd(), LISTENER, false)?;
        Ok(Self {
            epoll: Arc::new(epoll),
            secret: machine::random_u64(),
            port: local.map_or(0, |a| a.port()),
            addresses: addresses(devices, local.is_some_and(|a| a.is_ipv6())),
            own: devices.iter().flat_map(|d| d.addrs.clone()).collect(),
            listener: Owned::new(listener),
            tuning,
            slots: Vec::new(),
            free: Vec::new(),
            open: Vec::new(),
            behind: VecDeque::new(),
            portion: 0,
            unasked: 0,
            events: Vec::new(),
            unsettled: 0,
            guests: Vec::new(),
            calls: 0,
            redials: Vec::new(),
            alarm: Alarm::new(TIMER),
        })
    }

    /// The worker goes to sleep: it is woken when a peer is to be tried again, and when the time is up of somebody
    /// who has not said who he is. False if that is due, or cannot be.
    pub fn sleep_until_due(&mut self) -> bool {
        // Guests are in the order of their arrival.
        let first = self.guests.first().copied();
        let guest = match first.and_then(|token| self.get(token)).map(|c| &c.phase) {
            Some(&Phase::Guest { until }) => Some(until),
            _ => None,
        };
        let redials = self.redials.iter().map(|r| r.at);
        let at = redials.chain(guest).min();
        self.alarm.wake(&self.epoll, at)
    }

    /// The timer has run out: the epoll set is quiet again.
    pub fn timer_rang(&self) {
        self.alarm.quiet();
    }

    /// The number of progress calls until now, which wraps.
    pub fn turn(&self) -> u32 {
        self.epoll.turn.load(Ordering::Relaxed)
    }

    /// A progress call ends: what is sent from now on belongs to the next one.
    pub fn end_turn(&self) {
        let next = self.turn().wrapping_add(1);
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
        phase: Phase,
        peer: *const Peer,
        write: bool,
    ) -> io::Result<u64> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
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
        let link = Arc::new(Link {
            socket: Owned::new(socket),
            epoll: self.epoll.clone(),
            token,
        });
        slot.connection = Some(Box::new(Connection {
            receiver: Receiver::new(link.clone(), self.tuning.receive_buffer),
            link,
            phase,
            peer,
            losses: 0,
            listed: false,
        }));
        self.unsettled += 1;
        match phase {
            Phase::Guest { .. } => self.guests.push(token),
            Phase::Calling { .. } => self.calls += 1,
            _ => {}
        }
        Ok(token)
    }

    /// The connection with this token, if it is still there.
    pub fn get(&mut self, token: u64) -> Option<&mut Connection> {
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
    pub fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.slots.iter().filter_map(|s| s.connection.as_deref())
    }

    /// All that are there, as if they were ready: whether they can still be used is seen when they are.
    #[cold]
    pub fn everything(&self) -> Vec<Event> {
        self.iter()
            .map(|c| Event {
                token: c.link.token,
                read: true,
                write: true,
            })
            .collect()
    }

    /// Messages may come from now on.
    pub fn set_open(&mut self, token: u64, peer: *const Peer) {
        if let Some(c) = self.get(token) {
            (c.phase, c.peer) = (Phase::Open, peer);
            self.unsettled -= 1;
            self.guests.retain(|&t| t != token);
            self.open.push(token);
        }
    }

    /// A guest has something to say to a queue pair.
    pub fn let_in(&mut self, token: u64) {
        if let Some(c) = self.get(token) {
            c.phase = Phase::Letters {
                ours: false,
                read: 0,
            };
            self.guests.retain(|&t| t != token);
        }
    }

    /// Takes a connection out of the set. Its socket is closed when its sending half is gone too.
    pub fn remove(&mut self, token: u64) -> Option<Box<Connection>> {
        let slot = self.slots.get_mut(token as u32 as usize)?;
        let connection = slot.connection.take_if(|c| c.link.token == token)?;
        self.free.push(token as u32);
        // Only a socket that is being connected is watched for room by us; else its sender does that.
        let dialing = matches!(connection.phase, Phase::Dialing(_) | Phase::Calling { .. });
        match connection.phase {
            Phase::Letters { ours: true, .. } | Phase::Calling { .. } => self.calls -= 1,
            _ => {}
        }
        self.epoll.remove(connection.link.fd(), dialing);
        if connection.phase == Phase::Open {
            self.open.retain(|&t| t != token);
            if connection.listed {
                self.behind.retain(|&t| t != token);
            }
        } else {
            self.unsettled -= 1;
            self.guests.retain(|&t| t != token);
        }
        Some(connection)
    }

    /// Whether nothing goes on but listening.
    pub fn is_quiet(&self) -> bool {
        self.open.is_empty() && self.unsettled == 0 && self.redials.is_empty()
    }
}

/// A name of the network namespace that this process is in.
pub fn network() -> u32 {
    let here = machine::place();
    here.net_ns ^ here.host as u32 ^ (here.host >> 32) as u32
}

/// What the worker tells of this host. `v6`: its socket takes connections of both families.
fn addresses(devices: &[Device], v6: bool) -> Vec<NetAddress> {
    let mut all: Vec<NetAddress> = device::advertised(devices)
        .iter()
        .flat_map(|d| d.addrs.iter().map(|&ip| NetAddress::new(ip, d.speed())))
        .filter(|a| v6 || a.ip.is_ipv4())
        .collect();
    all.truncate(MAX_ADDRESSES);
    all
}
