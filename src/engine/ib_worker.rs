//! A worker's InfiniBand and RoCE ports: its interfaces, and the connections through them.

use super::peer::Peer;
use crate::sys::timer::Timer;
use crate::sys::{clock, host, log};
use crate::tl::Lane;
use crate::tl::ib::NegotiatedLimits;
use crate::tl::ib::bindings::ibv_wc;
use crate::tl::ib::iface::IbIface;
use crate::tl::ib::paths::PortPair;
use crate::tl::ib::port::Port;
use crate::tl::ib::queues::IbvQp;
use crate::tl::ib::reassembly::Reassembly;
use crate::tl::ib::reorder::Reorder;
use crate::tl::ib::sender::{Credits, IbSender};
use crate::tl::ib::ud::AddressHandle;
use crate::tl::tcp::{self, SharedSocket};
use crate::wire::address::{IbLocator, PortLocator};
use crate::wire::header::RailImm;
use crate::wire::ib_packet::NOBODY;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IbConnPhase {
    /// This end has sent its identity, and knows nothing of the peer.
    Saying,
    /// This end knows the peer and can receive packets. Whether the peer can is not known.
    Known,
    /// Both can.
    Open,
}

/// What the peer has told of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteQp {
    /// Its number and proof: what datagrams to it present.
    pub number: u32,
    pub proof: u32,
    /// Its queue pair for the connection; 0: none.
    pub qpn: u32,
    /// Number of its port among those of its address.
    pub port: u8,
    /// How often it had lost our worker.
    pub losses: u32,
    /// What answers whether its process lives; 0: nothing.
    pub pulse: u32,
}

/// Where nothing has come of a connection for so long others are tried, milliseconds: the kernel has asked twice, and
/// goes on for minutes.
const SILENT_MS: u64 = 3000;

/// How greetings get to a peer.
pub enum WireupChannel {
    Datagrams(AddressHandle),
    /// One of the two has no queue pair for datagrams.
    Sockets(Box<TcpWireup>),
}

/// The sockets by which two queue pairs get to know each other. Closed when they do, or with the connection.
#[derive(Default)]
pub struct TcpWireup {
    /// Where we can connect to; `None`: the peer has begun, and connects again if it has to.
    pub target: Option<(tcp::TcpTarget, u8)>,
    /// The one that we have connected or are connecting, and since when, coarse milliseconds.
    pub ours: Option<Arc<SharedSocket>>,
    pub since: u64,
    /// It is connected.
    pub through: bool,
    /// Which of the peer's addresses is tried first.
    pub first: usize,
    /// The last one that the peer has connected.
    pub theirs: Option<Arc<SharedSocket>>,
}

impl TcpWireup {
    /// None yet, to the port of that number.
    pub fn to(target: tcp::TcpTarget, far: u8) -> TcpWireup {
        let mut calls = TcpWireup::default();
        calls.target = Some((target, far));
        calls
    }

    /// Whether a socket is to be connected: there is none, or the peer may answer sooner at another address.
    pub fn is_wanted(&mut self, now: u64) -> bool {
        let Some((target, _)) = &self.target else {
            return false;
        };
        let others = target.locator.addresses.len() > 1;
        if self.ours.is_some() && !self.through && others && now - self.since >= SILENT_MS {
            self.first += 1;
            self.close();
        }
        self.ours.is_none()
    }

    /// Shuts the handshake socket of this end down, for which nothing is left to be sent: the thread that polls it sees
    /// its end.
    pub fn close(&mut self) {
        if let Some(link) = self.ours.take() {
            let _ = link.socket.shutdown(Shutdown::Both);
        }
        self.through = false;
    }
}

impl Drop for TcpWireup {
    fn drop(&mut self) {
        self.close();
        if let Some(link) = &self.theirs {
            let _ = link.socket.shutdown(Shutdown::Both);
        }
    }
}

/// A connection, as the progressing thread sees it.
pub struct IbConn {
    pub number: u32,
    /// What datagrams to it have to present.
    pub proof: u32,
    pub peer: *const Peer,
    pub iface: usize,
    pub phase: IbConnPhase,
    /// The peer knows that we are ready.
    pub seen: bool,
    /// We answered; the peer began. Of a connection to oneself there are both.
    pub answered: bool,
    pub remote_qp: Option<RemoteQp>,
    /// What greetings to the peer present.
    pub secret: u64,
    /// Where the peer's port is, and how greetings get there.
    pub to: PortLocator,
    pub wireup: WireupChannel,
    /// All ways to the peer, the best first, if it goes on by others when one fails; none otherwise.
    pub paths: Vec<PortPair>,
    /// The queue pairs at the peer's ports that answer whether its process lives, as far as they are known.
    pub keepalive_ports: Vec<u32>,
    /// The queue pair of its own, if it has one, and the number of the first packet from it.
    pub qp: Option<Arc<IbvQp>>,
    pub psn: u32,
    pub flow: Arc<Credits>,
    /// What the two ends agree on, once the peer is known.
    pub limits: NegotiatedLimits,
    /// What answers whether this process lives; 0: nothing.
    pub pulse: u32,
    /// Sends what has to be said to a peer that messages go to by another way: in a connection to oneself, the end that
    /// answered; where shared memory leads there. Otherwise the peer's lane does.
    pub reply_tx: Option<IbSender>,
    /// What the peer acknowledged last.
    pub acknowledged: u32,
    pub assembly: Reassembly,
    pub reorder: Reorder,
    /// When our greeting is repeated, coarse milliseconds, and how long to wait after that.
    pub due: u64,
    pub wait: u64,
    /// When the connection was begun, and whether it was told that it takes long.
    pub since: u64,
    pub late: bool,
    /// When the peer was last asked whether it is there.
    pub probed: u64,
    /// It has received something that the peer is not told of yet, and is in the list of those.
    pub listed: bool,
    /// Nothing more comes: the peer has gone, or was lost.
    pub ended: bool,
}

/// What progress has to do for rails to a peer, where it has the ports at hand.
pub enum RailEvent {
    /// Ask for as many as we have ports.
    Ask,
    /// The peer asks.
    Hold(RailImm, PortLocator),
    /// It holds its end.
    Join(RailImm, PortLocator),
    /// Our device takes nothing more for the rail with this interface and queue pair.
    GiveUp((usize, u32)),
    /// The peer has dropped its end of one that was given up.
    Forget(RailImm),
}

/// Numbers of queue pairs are spread well enough by themselves.
#[derive(Default)]
pub struct QpnHasher(u64);

impl Hasher for QpnHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0 << 8 | u64::from(byte);
        }
    }

    fn write_u64(&mut self, n: u64) {
        // The table looks at the upper bits, too.
        self.0 = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// A queue pair among those of all interfaces: devices give numbers without asking each other.
#[inline(always)]
fn key(iface: usize, qpn: u32) -> u64 {
    (iface as u64) << 32 | u64::from(qpn)
}

/// The interface of ports that have no other.
fn only(ifaces: &[Arc<IbIface>]) -> Option<NonNull<IbIface>> {
    match ifaces {
        [iface] => Some(NonNull::from(&**iface)),
        _ => None,
    }
}

/// The progressing thread's.
pub struct IbWorker {
    /// None comes or goes later.
    pub ifaces: Vec<Arc<IbIface>>,
    pub secret: u64,
    connections: Vec<Option<Box<IbConn>>>,
    free: Vec<u32>,
    /// Connections by [`key`], and the one that was looked up last: mostly it is the same again.
    by_queue: HashMap<u64, u32, BuildHasherDefault<QpnHasher>>,
    last: (u64, Option<NonNull<IbConn>>),
    /// Rails by [`key`]: whose they are.
    rails: HashMap<u64, u32, BuildHasherDefault<QpnHasher>>,
    /// Connections that have received what is not told of.
    owing: Vec<u32>,
    /// Those that are not both open and seen.
    pub unsettled: usize,
    /// Those of them that want a socket.
    pub calls: Vec<u32>,
    /// What was found when the worker was about to sleep, with the number of its interface: the next to be looked at.
    /// What has arrived, and ends of sends.
    found: [Vec<(usize, ibv_wc)>; 2],
    /// Whether there is any of that.
    has_found: bool,
    /// The only interface, as long as nothing waits but what it tells: what progress looks at first.
    sole: Option<NonNull<IbIface>>,
    /// Wakes the worker when something is to be said again; runs if `timed`.
    timer: Option<Timer>,
    pub timed: bool,
}

impl IbWorker {
    /// Interfaces on these ports, with the same numbers; where one cannot be had, none on those behind it.
    ///
    /// # Errors
    /// What the last device says, if there is none.
    pub fn new(ports: &[Arc<Port>], mt: bool, wakes: bool) -> io::Result<IbWorker> {
        let mut ifaces = Vec::new();
        let mut error = None;
        for port in ports {
            let index = ifaces.len() as u8;
            match IbIface::new(port, index, mt, wakes) {
                Ok(iface) => ifaces.push(iface),
                Err(e) => {
                    log::error!("no queues on {}: {}", port.name, port.hca.explain(&e));
                    error = Some(e);
                    break;
                }
            }
        }
        match error {
            Some(e) if ifaces.is_empty() => Err(e),
            _ => Ok(IbWorker {
                sole: only(&ifaces),
                ifaces,
                secret: host::random_u64(),
                connections: Vec::new(),
                free: Vec::new(),
                by_queue: HashMap::default(),
                rails: HashMap::default(),
                last: (0, None),
                owing: Vec::new(),
                unsettled: 0,
                calls: Vec::new(),
                found: Default::default(),
                has_found: false,
                timer: wakes.then(Timer::new).transpose()?,
                timed: false,
            }),
        }
    }

    /// What the worker's address says of them; `ways`: of what messages go by.
    pub fn locator(&self, ways: u8) -> IbLocator {
        let ports = self.ifaces.iter().take(crate::wire::address::MAX_PORTS);
        IbLocator {
            secret: self.secret,
            ports: ports
                .map(|i| {
                    let port = i.port.locator(i.ud_number);
                    let flags = port.flags | ways;
                    PortLocator { flags, ..port }
                })
                .collect(),
        }
    }

    /// A number for a new connection; `None`: there are too many.
    pub fn take_number(&mut self) -> Option<u32> {
        if let Some(number) = self.free.pop() {
            return Some(number);
        }
        let number = self.connections.len() as u32;
        (number < NOBODY).then(|| {
            self.connections.push(None);
            number
        })
    }

    /// Takes a connection in, under its number.
    pub fn insert(&mut self, connection: Box<IbConn>) {
        let number = connection.number;
        if let Some(qp) = &connection.qp {
            self.by_queue
                .insert(key(connection.iface, qp.number), number);
        }
        self.unsettled += 1;
        self.connections[number as usize] = Some(connection);
    }

    /// The connection with this number.
    #[inline(always)]
    pub fn get(&mut self, number: u32) -> Option<&mut IbConn> {
        self.connections.get_mut(number as usize)?.as_deref_mut()
    }

    /// The connection whose queue pair on this interface has this number. It stays in its place until it is taken out.
    #[inline(always)]
    pub fn of_queue(&mut self, iface: usize, qpn: u32) -> Option<NonNull<IbConn>> {
        let same = self.of_same_queue(iface, qpn);
        same.or_else(|| self.look_up(iface, qpn))
    }

    /// As [`of_queue`](Self::of_queue), if it is the one that was looked up last.
    #[inline(always)]
    pub fn of_same_queue(&self, iface: usize, qpn: u32) -> Option<NonNull<IbConn>> {
        let (last, connection) = self.last;
        connection.filter(|_| last == key(iface, qpn))
    }

    #[inline(never)]
    fn look_up(&mut self, iface: usize, qpn: u32) -> Option<NonNull<IbConn>> {
        let key = key(iface, qpn);
        let number = *self.by_queue.get(&key)?;
        let connection = self.get(number).map(NonNull::from);
        self.last = (key, connection);
        connection
    }

    /// A rail of a peer's connection is there.
    pub fn insert_rail(&mut self, iface: usize, qpn: u32, connection: u32) {
        self.rails.insert(key(iface, qpn), connection);
    }

    /// A rail is no more.
    pub fn forget_rail(&mut self, iface: usize, qpn: u32) {
        self.rails.remove(&key(iface, qpn));
    }

    /// The connection of the rail with this queue pair.
    pub fn of_rail(&self, iface: usize, qpn: u32) -> Option<u32> {
        self.rails.get(&key(iface, qpn)).copied()
    }

    /// The connection to a peer that is open.
    pub fn to_peer(&mut self, peer: *const Peer) -> Option<&mut IbConn> {
        let open = |c: &&mut IbConn| {
            std::ptr::eq(c.peer, peer)
                && c.phase == IbConnPhase::Open
                && !c.ended
                && c.reply_tx.is_none()
        };
        self.iter().find(open)
    }

    fn forget_queue(&mut self, iface: usize, qpn: u32) {
        self.by_queue.remove(&key(iface, qpn));
        self.last.1 = None;
    }

    /// A connection gives its queue pair back: datagrams do.
    pub fn drop_queue(&mut self, number: u32) {
        let taken = self.get(number).and_then(|c| Some((c.iface, c.qp.take()?)));
        if let Some((iface, qp)) = taken {
            self.forget_queue(iface, qp.number);
        }
    }

    /// Ends the connections to peers that are lost: nothing arrives by their queue pairs any more, and nothing of what
    /// has is handled.
    pub fn end(&mut self, lost: &[*const Peer]) {
        let lost: HashSet<_> = lost.iter().copied().collect();
        let mut any = false;
        for c in self.iter().filter(|c| lost.contains(&c.peer)) {
            c.ended = true;
            c.stop();
            any = true;
        }
        if any {
            self.drain();
        }
    }

    /// Takes out the connections of these numbers, which have ended. Their senders go with them, or have gone.
    pub fn retire(&mut self, numbers: &[u32]) {
        if numbers.is_empty() {
            return;
        }
        for &number in numbers {
            if let Some(c) = self.get(number) {
                c.stop();
            }
        }
        self.drain();
        for &number in numbers {
            self.remove(number);
        }
    }

    /// Takes all completions that the devices have for this worker; the next progress call handles them, before it
    /// makes a queue pair. So a device that forgets the completions of a queue pair that is reset or destroyed forgets
    /// no receive that the worker has to post again, and none that it remembers is taken for one of the next queue pair
    /// of the same number.
    fn drain(&mut self) {
        while self.take_some() {}
        self.has_found = !self.found.iter().all(Vec::is_empty);
        self.settle();
    }

    /// Takes some completions out of the queues of each interface. False if those are empty.
    fn take_some(&mut self) -> bool {
        let mut left = false;
        let mut wcs = [const { MaybeUninit::uninit() }; 16];
        for (i, iface) in self.ifaces.iter().enumerate() {
            for (found, from) in self
                .found
                .iter_mut()
                .zip([IbIface::arrived, IbIface::ended])
            {
                let n = from(iface, &mut wcs);
                // SAFETY: so many were written.
                found.extend(wcs[..n].iter().map(|wc| (i, unsafe { wc.assume_init() })));
                left |= n == wcs.len();
            }
        }
        left
    }

    /// Connections that packets or datagrams are expected by through this interface.
    pub fn known(&mut self, iface: usize, by_queue: bool) -> usize {
        let known = |c: &&mut IbConn| c.phase != IbConnPhase::Saying && !c.ended;
        let through = |c: &&mut IbConn| match &c.qp {
            Some(_) => by_queue && c.iface == iface,
            None => !by_queue && (c.iface == iface || c.paths.iter().any(|way| way.iface == iface)),
        };
        self.iter().filter(known).filter(through).count()
    }

    /// Takes a connection out.
    fn remove(&mut self, number: u32) -> Option<Box<IbConn>> {
        let connection = self.connections.get_mut(number as usize)?.take()?;
        if let Some(qp) = &connection.qp {
            self.forget_queue(connection.iface, qp.number);
        }
        if !connection.is_settled() {
            self.unsettled -= 1;
        }
        self.rails.retain(|_, whose| *whose != number);
        self.free.push(number);
        Some(connection)
    }

    /// How long a peer may be silent, milliseconds.
    pub fn longest_silence(&self) -> u64 {
        let first = self.ifaces.first();
        first.map_or(0, |i| i.port.tuning.ud.timeout.as_millis() as u64)
    }

    /// All that are there.
    pub fn iter(&mut self) -> impl Iterator<Item = &mut IbConn> {
        self.connections.iter_mut().filter_map(|c| c.as_deref_mut())
    }

    /// The worker is about to sleep: whatever comes wakes it, and the timer when peers are to be asked whether they are
    /// there, `keepalive` milliseconds after the last time. False: something has come.
    pub fn arm(&mut self, keepalive: u64) -> bool {
        for iface in &self.ifaces {
            if let Some(channel) = iface.channel() {
                channel.drain();
            }
            iface.arm();
        }
        // What was there before wakes nobody.
        self.take_some();
        self.has_found = !self.found.iter().all(Vec::is_empty);
        self.settle();
        !self.has_found && self.calls.is_empty() && self.sleep_until_due(keepalive)
    }

    /// Has the timer wake the worker when something is to be said again. False if that is due, or cannot be.
    fn sleep_until_due(&mut self, keepalive: u64) -> bool {
        let due = |c: &mut IbConn| match c.phase {
            IbConnPhase::Open => c.next_due(keepalive),
            IbConnPhase::Saying | IbConnPhase::Known => Some(c.due),
        };
        let Some(at) = self.iter().filter_map(due).min() else {
            return true;
        };
        let left = at.saturating_sub(clock::coarse_ms());
        if let Some(timer) = self.timer.as_ref().filter(|_| left > 0) {
            timer.set(Some(Duration::from_millis(left)), None);
            self.timed = true;
            return true;
        }
        false
    }

    /// The timer is not wanted any more: the worker is awake.
    pub fn stop_timer(&mut self) {
        if std::mem::take(&mut self.timed)
            && let Some(timer) = &self.timer
        {
            timer.set(None, None);
            timer.drain();
        }
    }

    /// What a sleeping worker is woken by.
    pub fn descriptors(&self) -> impl Iterator<Item = i32> {
        let channels = self.ifaces.iter().filter_map(|i| i.channel());
        let timer = self.timer.iter().map(AsRawFd::as_raw_fd);
        channels.map(|channel| channel.fd()).chain(timer)
    }

    /// What was found when the worker was about to sleep, if there is any.
    #[inline]
    pub fn take_found(&mut self) -> Option<[Vec<(usize, ibv_wc)>; 2]> {
        if !self.has_found {
            return None;
        }
        self.has_found = false;
        self.settle();
        Some(std::mem::take(&mut self.found))
    }

    /// Connections that have received what is not told of.
    #[inline(always)]
    pub fn owing(&self) -> usize {
        self.owing.len()
    }

    /// A connection has received what is to be told of, and is not among those yet.
    pub fn schedule_ack(&mut self, number: u32) {
        self.owing.push(number);
        self.sole = None;
    }

    /// They are about to be told.
    pub fn take_acks_pending(&mut self) -> Vec<u32> {
        let owing = std::mem::take(&mut self.owing);
        self.settle();
        owing
    }

    /// The only interface, if nothing waits but what it tells. It stays as long as the ports.
    #[inline(always)]
    pub fn sole(&self) -> Option<NonNull<IbIface>> {
        self.sole
    }

    fn settle(&mut self) {
        let calm = !self.has_found && self.owing.is_empty();
        self.sole = only(&self.ifaces).filter(|_| calm);
    }

    /// Whether there is any.
    pub fn is_quiet(&self) -> bool {
        self.connections.len() == self.free.len()
    }
}

impl IbConn {
    /// Nothing more arrives by its queue pair, and what was posted ends.
    fn stop(&self) {
        if let Some(qp) = &self.qp {
            // A device that refuses has no connection there any more.
            let _ = qp.stop();
        }
    }

    /// Whether nothing sends by it any more.
    pub fn is_cut(&self) -> bool {
        // SAFETY: peers that connections lead to are not freed, connections are.
        self.reply_tx.is_some()
            || !matches!(unsafe { &*self.peer }.tx.lock().lane, Some(Lane::Ib(_)))
    }

    /// Does something with the half that sends, if there is one.
    pub fn with_sender<R>(&mut self, act: impl FnOnce(&mut IbSender) -> R) -> Option<R> {
        if let Some(back) = self.reply_tx.as_mut() {
            return Some(act(back));
        }
        // SAFETY: peers that connections lead to are not freed, connections are.
        match unsafe { &*self.peer }.tx.lock().lane.as_mut() {
            Some(Lane::Ib(sender)) => Some(act(sender)),
            _ => None,
        }
    }

    /// When an open connection has something to send again, or a peer is to be asked whether it is there.
    fn next_due(&mut self, keepalive: u64) -> Option<u64> {
        // SAFETY: peers that connections lead to are not freed, connections are. Relaxed: set once, and a round later
        // will do.
        let guarded = unsafe { &*self.peer }.watch_death.load(Ordering::Relaxed);
        let probe = guarded.then(|| self.probed.saturating_add(keepalive));
        let again = self.with_sender(|sender| sender.next_due()).flatten();
        probe.into_iter().chain(again).min()
    }

    /// The sockets for greetings, if those are what they go by.
    pub fn calls(&mut self) -> Option<&mut TcpWireup> {
        match &mut self.wireup {
            WireupChannel::Sockets(calls) => Some(calls),
            WireupChannel::Datagrams(_) => None,
        }
    }

    /// Whether nothing is left to be said.
    pub fn is_settled(&self) -> bool {
        self.phase == IbConnPhase::Open && self.seen
    }
}
