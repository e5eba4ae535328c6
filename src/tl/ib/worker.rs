//! A worker's InfiniBand and RoCE ports: its interfaces, and the connections through them.

use super::address::IbLocator;
use super::bindings::ibv_wc;
use super::conn::{IbConn, IbConnPhase};
use super::context::IbContext;
use super::iface::IbIface;
use super::keepalive::KeepaliveResponder;
use super::options::IbPolicy;
use crate::sys::timer::Timer;
use crate::sys::{clock, host, log};
use crate::tl::sink::Sink;
use crate::wire::ib_packet::NO_CONN;
use crate::wire::ib_port::{MAX_PORTS, PortLocator};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

/// Hash of queue pair numbers: one multiplication, as the numbers are well distributed.
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
        // The table uses the upper bits, too.
        self.0 = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// Key of a queue pair among those of all interfaces: devices assign numbers independently.
#[inline(always)]
fn key(iface: usize, qpn: u32) -> u64 {
    (iface as u64) << 32 | u64::from(qpn)
}

/// The interface, if there is only one.
fn only(ifaces: &[Arc<IbIface>]) -> Option<NonNull<IbIface>> {
    match ifaces {
        [iface] => Some(NonNull::from(&**iface)),
        _ => None,
    }
}

/// The connection that was found last by its queue pair's [`key`]: most lookups are of that one.
struct LastConn<P> {
    key: u64,
    conn: Option<NonNull<IbConn<P>>>,
}

/// InfiniBand state of a worker. Used by the progress thread only. `P` names a peer.
pub struct IbWorker<P> {
    /// The worker's own.
    pub uid: u64,
    /// The context's settings.
    pub policy: IbPolicy,
    /// Interval of liveness probes, milliseconds.
    pub keepalive_ms: u64,
    responder: Arc<KeepaliveResponder>,
    /// The set does not change.
    pub ifaces: Vec<Arc<IbIface>>,
    pub secret: u64,
    connections: Vec<Option<Box<IbConn<P>>>>,
    free: Vec<u32>,
    /// Connections by [`key`].
    by_queue: HashMap<u64, u32, BuildHasherDefault<QpnHasher>>,
    last: LastConn<P>,
    /// Connections of rails, by the [`key`] of the rail.
    rails: HashMap<u64, u32, BuildHasherDefault<QpnHasher>>,
    /// Connections with packets to acknowledge.
    acks_pending: Vec<u32>,
    /// Connections whose wireup is not complete.
    pub unsettled: usize,
    /// Connections that need a TCP socket for their wireup.
    pub oob_requests: Vec<u32>,
    /// Completions found when the worker was about to sleep, each with the number of its interface; the next progress
    /// call handles them: receives, and sends.
    found: [Vec<(usize, ibv_wc)>; 2],
    /// Whether `found` has any.
    has_found: bool,
    /// The only interface, while there is no other work than its completions: progress polls it first.
    sole: Option<NonNull<IbIface>>,
    /// Wakes the worker when something is to be sent again; set if `timed`.
    timer: Option<Timer>,
    pub timed: bool,
}

impl<P: Copy + Eq> IbWorker<P> {
    /// The state of a worker with this uid: interfaces on the ports of the context, with the same numbers; where one
    /// cannot be made, there are none for the ports after it. `mt`: threads may call the worker concurrently; `wakes`:
    /// it may sleep.
    ///
    /// # Errors
    /// The error of the last device, if no interface could be made.
    pub fn new(
        context: &IbContext,
        uid: u64,
        keepalive_ms: u64,
        mt: bool,
        wakes: bool,
    ) -> io::Result<IbWorker<P>> {
        let policy = context.policy.clone().ok_or(io::ErrorKind::NotFound)?;
        let mut ifaces = Vec::new();
        let mut error = None;
        for port in context.ports.iter() {
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
                uid,
                policy,
                keepalive_ms,
                responder: context.responder.clone(),
                sole: only(&ifaces),
                ifaces,
                secret: host::random_u64(),
                connections: Vec::new(),
                free: Vec::new(),
                by_queue: HashMap::default(),
                rails: HashMap::default(),
                last: LastConn { key: 0, conn: None },
                acks_pending: Vec::new(),
                unsettled: 0,
                oob_requests: Vec::new(),
                found: Default::default(),
                has_found: false,
                timer: wakes.then(Timer::new).transpose()?,
                timed: false,
            }),
        }
    }

    /// Registers the worker with the process's keepalive responder. Returns the number of the responder's queue pair
    /// at the port with this index; 0: there is no responder.
    pub fn keepalive_qpn(&self, port: usize) -> u32 {
        self.responder.add_worker(self.uid, self.secret, port)
    }

    /// The worker's address section.
    pub fn locator(&self) -> IbLocator {
        let transport_flags = self.policy.qp_transports();
        let ports = self.ifaces.iter().take(MAX_PORTS);
        IbLocator {
            secret: self.secret,
            ports: ports
                .map(|i| {
                    let port = i.port.locator(i.ud_number);
                    let flags = port.flags | transport_flags;
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
        (number < NO_CONN).then(|| {
            self.connections.push(None);
            number
        })
    }

    /// Stores a connection under its number.
    pub fn insert(&mut self, connection: Box<IbConn<P>>) {
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
    pub fn get(&mut self, number: u32) -> Option<&mut IbConn<P>> {
        self.connections.get_mut(number as usize)?.as_deref_mut()
    }

    /// The connection whose queue pair on this interface has this number. The reference is valid until the connection
    /// is removed.
    #[inline(always)]
    pub fn of_queue(&mut self, iface: usize, qpn: u32) -> Option<NonNull<IbConn<P>>> {
        let same = self.of_same_queue(iface, qpn);
        same.or_else(|| self.look_up(iface, qpn))
    }

    /// [`of_queue`](Self::of_queue) of the connection that was found last; `None` for any other.
    #[inline(always)]
    pub fn of_same_queue(&self, iface: usize, qpn: u32) -> Option<NonNull<IbConn<P>>> {
        let LastConn { key: last, conn } = self.last;
        conn.filter(|_| last == key(iface, qpn))
    }

    #[inline(never)]
    fn look_up(&mut self, iface: usize, qpn: u32) -> Option<NonNull<IbConn<P>>> {
        let key = key(iface, qpn);
        let number = *self.by_queue.get(&key)?;
        let conn = self.get(number).map(NonNull::from);
        self.last = LastConn { key, conn };
        conn
    }

    /// Stores a rail of a peer's connection.
    pub fn insert_rail(&mut self, iface: usize, qpn: u32, connection: u32) {
        self.rails.insert(key(iface, qpn), connection);
    }

    /// Removes a rail.
    pub fn forget_rail(&mut self, iface: usize, qpn: u32) {
        self.rails.remove(&key(iface, qpn));
    }

    /// The connection of the rail with this queue pair.
    pub fn of_rail(&self, iface: usize, qpn: u32) -> Option<u32> {
        self.rails.get(&key(iface, qpn)).copied()
    }

    /// The open connection to a peer.
    pub fn to_peer(&mut self, peer: P) -> Option<&mut IbConn<P>> {
        let open = |c: &&mut IbConn<P>| {
            c.peer == peer && c.phase == IbConnPhase::Open && !c.ended && c.reply_tx.is_none()
        };
        self.iter().find(open)
    }

    fn forget_queue(&mut self, iface: usize, qpn: u32) {
        self.by_queue.remove(&key(iface, qpn));
        self.last.conn = None;
    }

    /// Removes the queue pair of a connection, which goes on by datagrams.
    pub fn drop_queue(&mut self, number: u32) {
        let taken = self.get(number).and_then(|c| Some((c.iface, c.qp.take()?)));
        if let Some((iface, qp)) = taken {
            self.forget_queue(iface, qp.number);
        }
    }

    /// Ends the connections to failed peers: their queue pairs receive nothing more, and packets received before are
    /// not handled.
    pub fn end(&mut self, is_lost: impl Fn(P) -> bool) {
        let mut any = false;
        for c in self.iter().filter(|c| is_lost(c.peer)) {
            c.ended = true;
            c.stop();
            any = true;
        }
        if any {
            self.drain();
        }
    }

    /// Removes the connections of these numbers, which have ended. Their senders are dropped with them, or were before.
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

    /// Takes all completions of this worker from the devices; the next progress call handles them, before it makes a
    /// queue pair. So a receive that the worker has to post again is not lost on a device that drops the completions of
    /// a queue pair that is reset or destroyed, and a completion on a device that keeps them is not attributed to a new
    /// queue pair of the same number.
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
                .zip([IbIface::arrived, IbIface::poll_send_cq])
            {
                let n = from(iface, &mut wcs);
                // SAFETY: so many were written.
                found.extend(wcs[..n].iter().map(|wc| (i, unsafe { wc.assume_init() })));
                left |= n == wcs.len();
            }
        }
        left
    }

    /// Number of connections that may receive packets (`by_queue`) or datagrams through this interface.
    pub fn known(&mut self, iface: usize, by_queue: bool) -> usize {
        let known = |c: &&mut IbConn<P>| c.phase != IbConnPhase::HelloSent && !c.ended;
        let through = |c: &&mut IbConn<P>| match &c.qp {
            Some(_) => by_queue && c.iface == iface,
            None => {
                !by_queue && (c.iface == iface || c.paths.iter().any(|path| path.iface == iface))
            }
        };
        self.iter().filter(known).filter(through).count()
    }

    /// Takes a connection out.
    fn remove(&mut self, number: u32) -> Option<Box<IbConn<P>>> {
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

    /// Timeout after which a silent peer has failed, milliseconds.
    pub fn longest_silence(&self) -> u64 {
        let first = self.ifaces.first();
        first.map_or(0, |i| i.port.tuning.ud.timeout.as_millis() as u64)
    }

    /// All connections.
    pub fn iter(&mut self) -> impl Iterator<Item = &mut IbConn<P>> {
        self.connections.iter_mut().filter_map(|c| c.as_deref_mut())
    }

    /// Prepares for sleep: completions wake the worker, and so does the timer, when something is to be sent again or a
    /// peer is to be probed. False: there is work.
    pub fn arm<S: Sink<Peer = P>>(&mut self, sink: S) -> bool {
        for iface in &self.ifaces {
            if let Some(channel) = iface.channel() {
                channel.drain();
            }
            iface.arm();
        }
        // Completions from before `arm` cause no event.
        self.take_some();
        self.has_found = !self.found.iter().all(Vec::is_empty);
        self.settle();
        !self.has_found && self.oob_requests.is_empty() && self.sleep_until_due(sink)
    }

    /// Sets the timer for the next retransmission or probe. False if that is due, or the timer cannot be set.
    fn sleep_until_due<S: Sink<Peer = P>>(&mut self, sink: S) -> bool {
        let keepalive_ms = self.keepalive_ms;
        let due = |c: &mut IbConn<P>| match c.phase {
            IbConnPhase::Open => c.next_due(sink, keepalive_ms),
            IbConnPhase::HelloSent | IbConnPhase::Known => Some(c.due),
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

    /// Stops the timer: the worker is awake.
    pub fn stop_timer(&mut self) {
        if std::mem::take(&mut self.timed)
            && let Some(timer) = &self.timer
        {
            timer.set(None, None);
            timer.drain();
        }
    }

    /// Descriptors that wake a sleeping worker.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let channels = self.ifaces.iter().filter_map(|i| i.channel());
        channels
            .map(AsFd::as_fd)
            .chain(self.timer.iter().map(AsFd::as_fd))
    }

    /// Takes the completions that were found when the worker was about to sleep.
    #[inline]
    pub fn take_found(&mut self) -> Option<[Vec<(usize, ibv_wc)>; 2]> {
        if !self.has_found {
            return None;
        }
        self.has_found = false;
        self.settle();
        Some(std::mem::take(&mut self.found))
    }

    /// Number of connections with packets to acknowledge.
    #[inline(always)]
    pub fn acks_pending(&self) -> usize {
        self.acks_pending.len()
    }

    /// Lists a connection that has packets to acknowledge and is not in the list.
    pub fn schedule_ack(&mut self, number: u32) {
        self.acks_pending.push(number);
        self.sole = None;
    }

    /// Takes the connections with packets to acknowledge; the caller acknowledges them.
    pub fn take_acks_pending(&mut self) -> Vec<u32> {
        let acks_pending = std::mem::take(&mut self.acks_pending);
        self.settle();
        acks_pending
    }

    /// The only interface, if there is no other work than its completions. Valid as long as the worker.
    #[inline(always)]
    pub fn sole(&self) -> Option<NonNull<IbIface>> {
        self.sole
    }

    fn settle(&mut self) {
        let no_acks_pending = !self.has_found && self.acks_pending.is_empty();
        self.sole = only(&self.ifaces).filter(|_| no_acks_pending);
    }

    /// Whether there is no connection.
    pub fn is_quiet(&self) -> bool {
        self.connections.len() == self.free.len()
    }
}
