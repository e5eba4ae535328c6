//! An interface of a worker: its endpoint, and its connections.

use super::address::{Liveness, OfiLocator};
use super::context::OfiTuning;
use super::device::{OfiDevice, OfiScope};
use super::fabric;
use super::iface::OfiIface;
use super::mr::{OfiDomain, OfiMrCache};
use super::packet::{self, Grant};
use super::registry::OfiRegistry;
use super::reorder::OfiReorder;
use super::sender::OfiSender;
use super::tx_link::OfiTxLink;
use crate::ctypes::{UCS_ERR_CONNECTION_RESET, ucs_status_t};
use crate::sys::liveness_lock::{self, LivenessLock};
use crate::sys::timer::Timer;
use crate::sys::{clock, host, log};
use crate::tl::iface_params::IfaceParams;
use crate::tl::sink::Sink;
use crate::tl::{Lane, Token};
use slab::Slab;
use std::collections::HashMap;
use std::ffi::c_int;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

/// A connection with a peer, in both directions.
pub struct OfiConn<P> {
    /// `None`: the peer has failed or closed; the connection waits for the end of what it has sent.
    pub peer: Option<P>,
    /// The peer, failed or not, as long as operations on its memory are outstanding.
    pub of: P,
    pub uid: u64,
    pub link: Arc<OfiTxLink>,
    /// The peer's address, which is inserted as long as the connection exists.
    pub name: Arc<[u8]>,
    /// Key that packets to this end have to carry.
    pub key: u64,
    /// The peer's end; `None` until the peer has answered.
    pub remote: Option<Grant>,
    /// When it was begun, coarse milliseconds.
    pub begun: u64,
    /// Key of the lock that the peer holds as long as it lives, if this process sees it.
    pub lock: Option<u64>,
    pub order: OfiReorder,
    /// It is listed in [`OfiWorker::broken`], or was.
    pub is_broken: bool,
    /// The peer has ended the connection, or has acknowledged its end.
    pub has_ended: bool,
    /// The request to connect, until the peer has answered.
    pub request: Option<Box<PendingHello>>,
    pub loss: LossCheck,
}

/// What a connection waits for behind a loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LossCheck {
    /// Nothing: no packet of it is known to be lost.
    #[default]
    None,
    /// The peer's answer. It was asked so often, and is to be asked again at `next`.
    Answer { asked: u32, next: u64 },
    /// All packets before `number`, until `end`.
    Packets { number: u32, end: u64 },
}

/// How long a request to connect has not been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelloAge {
    /// Not for long.
    Recent,
    /// For so long that the next interface connects, too.
    Late,
    /// So long, and the lane goes another way meanwhile, which the log says.
    Replaced,
    /// The time to answer is over, and the connection counts as failed. A late answer is as good as one in time for
    /// what the peer sends.
    Expired,
}

/// A request to connect that the peer has not answered.
pub struct PendingHello {
    pub packet: Vec<u8>,
    /// When it is sent again, coarse milliseconds, and the interval after that.
    pub again: u64,
    pub interval: u64,
    /// Why the peer cannot be reached, as far as the provider has said; empty: it has not.
    pub obstacle: String,
    pub age: HelloAge,
}

/// A connection that has failed before the peer has answered, or that it has not answered in time: it has carried
/// nothing.
pub struct FailedConnect<P> {
    pub peer: P,
    pub uid: u64,
    pub status: ucs_status_t,
    pub obstacle: String,
}

impl<P> OfiConn<P> {
    /// This end, as the peer may use it.
    pub fn grant(&self) -> Grant {
        Grant {
            conn: self.link.conn,
            key: self.key,
        }
    }

    /// Whether the peer has not answered the request to connect in time.
    pub fn has_expired(&self) -> bool {
        let request = self.request.as_ref();
        request.is_some_and(|request| request.age == HelloAge::Expired)
    }

    /// Whether the peer's process has ended, as far as its lock shows it.
    pub fn is_dead(&self) -> bool {
        self.lock.is_some_and(|key| !liveness_lock::is_held(key))
    }
}

/// An interface of a worker. Used by the progress thread only. `P` names a peer.
pub struct OfiWorker<P> {
    /// Index of its device among those of the context, and what the log calls it.
    pub device: usize,
    pub device_name: String,
    /// Its index among the interfaces of the worker, as the address of that has them.
    pub index: usize,
    /// Released before the endpoint is closed, or when the provider is dead.
    alive: Option<LivenessLock>,
    /// The worker's own.
    pub uid: u64,
    pub own: OfiLocator,
    pub iface: Arc<OfiIface>,
    /// Registrations of user memory, if memory of peers is accessed, and the shortest that is accessed in place.
    pub mrs: Option<Arc<OfiMrCache>>,
    pub zcopy: usize,
    pub conns: Slab<OfiConn<P>>,
    /// The connection of each peer, by its uid.
    pub by_uid: HashMap<u64, u32>,
    /// Packets of the transport's own for which there was no room.
    pub control: Vec<(Arc<OfiTxLink>, Vec<u8>)>,
    /// Connections that have failed, to end when everything that has arrived was handled.
    pub broken: Vec<(Arc<OfiTxLink>, ucs_status_t)>,
    /// Connections that have failed before the peer has answered: other interfaces may reach it.
    pub unanswered: Vec<FailedConnect<P>>,
    /// Requests of operations on memory of peers that have failed.
    pub failed_ops: Vec<Token>,
    /// Progress has to do more than to read completions, or had to.
    pub is_busy: bool,
    /// Packets were lost, or may have been: of which connections is looked at.
    pub has_losses: bool,
    /// Receives that have failed one after the other.
    pub failed_receives: u32,
    /// The provider works no more: no connection is left, and none is made.
    pub is_dead: bool,
    /// Interval of liveness probes, and time to answer a request to connect, milliseconds.
    pub keepalive_ms: u64,
    pub timeout_ms: u64,
    /// When connections are looked at next, and peers are probed next, coarse milliseconds.
    pub next_look: u64,
    /// When the peers that have not answered are looked at next, coarse milliseconds.
    pub next_connecting_look: u64,
    pub next_probe: u64,
    /// The descriptor of the completion queue, if the worker may sleep.
    pub fd: Option<RawFd>,
    /// Wakes a sleeping worker to probe peers.
    pub timer: Option<Timer>,
    /// The timer is set.
    pub is_timed: bool,
    /// Peers access memory of the endpoint by themselves.
    pub in_memory: bool,
}

impl<P: Copy + Eq> OfiWorker<P> {
    /// An interface: an endpoint of the device. Its index among those of the worker, and that of the device among those
    /// of the context.
    ///
    /// # Errors
    /// The provider's error, or the system's.
    pub fn new(
        (index, device_index): (usize, usize),
        device: &OfiDevice,
        params: &IfaceParams,
        tuning: OfiTuning,
        registry: &OfiRegistry,
    ) -> io::Result<OfiWorker<P>> {
        let OfiTuning {
            receives, window, ..
        } = tuning;
        let hash = fabric_hash(device);
        let open = |waits| OfiIface::open(device, waits, (receives, window), hash);
        // Without a descriptor a sleeping worker polls from time to time.
        let (iface, fd) = match params.wakes.then(|| open(true).and_then(waiting)) {
            Some(Ok((iface, fd))) => (iface, Some(fd)),
            _ => (open(false)?, None),
        };
        let iface = Arc::new(iface);
        let number = if device.has_rma() {
            registry.enter(&iface)
        } else {
            0
        };
        let lock = host::random_u64() >> 1 | 1;
        let alive = LivenessLock::hold(lock);
        let own = OfiLocator {
            fabric: hash,
            secret: host::random_u64() | 1,
            liveness: Liveness {
                host: host::place().host,
                locks: liveness_lock::place(),
                lock: if alive.is_ok() { lock } else { 0 },
            },
            number,
            name: iface.name()?,
        };
        let now = clock::coarse_ms();
        Ok(OfiWorker {
            device: device_index,
            device_name: format!("{} on {}", device.provider, device.domain),
            index,
            uid: params.uid,
            own,
            fd,
            timer: params.wakes.then(Timer::new).transpose()?,
            is_timed: false,
            mrs: (number != 0).then(|| Arc::new(OfiMrCache::new(&iface, params.mt))),
            zcopy: tuning.zcopy,
            iface,
            conns: Slab::new(),
            by_uid: HashMap::new(),
            control: Vec::new(),
            broken: Vec::new(),
            unanswered: Vec::new(),
            failed_ops: Vec::new(),
            is_busy: false,
            has_losses: false,
            failed_receives: 0,
            is_dead: false,
            keepalive_ms: params.keepalive_ms,
            timeout_ms: tuning.timeout_ms,
            next_look: now,
            next_connecting_look: now,
            next_probe: now.saturating_add(params.keepalive_ms),
            alive: alive.ok(),
            in_memory: device.scope() == OfiScope::Memory,
        })
    }

    /// Its domain, as all threads of the worker register memory in it; `None`: no memory of peers is accessed.
    pub fn domain(&self) -> Option<OfiDomain> {
        Some(OfiDomain {
            mrs: self.mrs.clone()?,
            needs_local: self.iface.needs_local,
            is_virtual: self.iface.is_virtual,
            number: self.own.number,
        })
    }

    /// Stops the timer: the worker is awake.
    pub fn stop_timer(&mut self) {
        if std::mem::take(&mut self.is_timed)
            && let Some(timer) = &self.timer
        {
            timer.set(None, None);
            timer.drain();
        }
    }

    /// Adds a connection with the worker `uid` at `to`, which libfabric knows by `addr` as long as the
    /// address `name` is inserted.
    pub fn add(
        &mut self,
        peer: P,
        uid: u64,
        to: &OfiLocator,
        (addr, name): (u64, Arc<[u8]>),
    ) -> &mut OfiConn<P> {
        let entry = self.conns.vacant_entry();
        let conn = entry.key() as u32;
        self.by_uid.insert(uid, conn);
        entry.insert(OfiConn {
            peer: Some(peer),
            of: peer,
            uid,
            link: Arc::new(OfiTxLink::new(conn, addr, to.number)),
            name,
            key: host::random_u64(),
            remote: None,
            begun: clock::coarse_ms(),
            lock: to.liveness.key_here(&self.own.liveness),
            order: OfiReorder::default(),
            is_broken: false,
            has_ended: false,
            request: None,
            loss: LossCheck::None,
        })
    }

    /// The connection that was granted so.
    #[inline(always)]
    pub fn granted(&mut self, grant: Grant) -> Option<&mut OfiConn<P>> {
        let conn = self.conns.get_mut(grant.conn as usize)?;
        (conn.key == grant.key).then_some(conn)
    }

    /// The connection of a send.
    pub fn of_link(&mut self, link: &Arc<OfiTxLink>) -> Option<&mut OfiConn<P>> {
        let conn = self.conns.get_mut(link.conn as usize)?;
        Arc::ptr_eq(&conn.link, link).then_some(conn)
    }

    /// The connection with the worker of this uid.
    pub fn of_uid(&mut self, uid: u64) -> Option<&mut OfiConn<P>> {
        let conn = *self.by_uid.get(&uid)?;
        let conn = self.conns.get_mut(conn as usize)?;
        (conn.uid == uid && conn.peer.is_some()).then_some(conn)
    }

    /// The peers of all connections.
    pub fn peers(&self) -> impl Iterator<Item = P> {
        self.conns.iter().filter_map(|(_, conn)| conn.peer)
    }

    /// The peers of all connections, and those that have failed while operations on their memory are outstanding.
    pub fn named_peers(&self) -> impl Iterator<Item = P> {
        let named = |(_, conn): (usize, &OfiConn<P>)| {
            let is_named = conn.peer.is_some() || conn.link.rma.outstanding() > 0;
            is_named.then_some(conn.of)
        };
        self.conns.iter().filter_map(named)
    }

    /// Whether a peer has not answered a request to connect.
    pub fn awaits_answer(&self) -> bool {
        self.conns.iter().any(|(_, conn)| conn.request.is_some())
    }

    /// Sends a packet of the transport's own, now or when there is room.
    pub fn send_control(&mut self, link: &Arc<OfiTxLink>, packet: Vec<u8>) {
        if self.iface.send(&packet, link).is_err() {
            self.control.push((link.clone(), packet));
            self.is_busy = true;
        }
    }

    /// Whether progress has to do more than to read completions.
    pub fn has_work(&self) -> bool {
        let has_ends = !self.broken.is_empty() || !self.failed_ops.is_empty();
        !self.control.is_empty() || has_ends || self.is_dead
    }

    /// Sends the packets of the transport's own that wait for room.
    pub fn flush_control(&mut self) {
        if !self.control.is_empty() {
            let iface = &self.iface;
            self.control
                .retain(|(link, packet)| iface.send(packet, link).is_err());
        }
    }

    /// Has a connection end with `status` when everything that has arrived was handled.
    pub fn fail_conn(&mut self, link: &Arc<OfiTxLink>, status: ucs_status_t) {
        if let Some(conn) = self.of_link(link)
            && !conn.is_broken
        {
            conn.is_broken = true;
            self.control.retain(|(other, _)| !Arc::ptr_eq(other, link));
            self.broken.push((link.clone(), status));
            self.is_busy = true;
        }
    }

    /// The provider works no more: all connections fail.
    #[cold]
    pub fn die(&mut self, error: c_int) {
        if std::mem::replace(&mut self.is_dead, true) {
            return;
        }
        self.is_busy = true;
        let why = fabric::error(error);
        log::error!(
            "{} (libfabric) works no more for worker {:#x}: {why}",
            self.device_name,
            self.uid
        );
        // Peers find it released, because nothing can be sent to them.
        self.alive = None;
        let links: Vec<_> = self
            .conns
            .iter()
            .map(|(_, conn)| conn.link.clone())
            .collect();
        for link in links {
            self.fail_conn(&link, UCS_ERR_CONNECTION_RESET);
        }
    }

    /// Removes connections without a peer, on which neither side sends any more.
    pub fn remove_ended(&mut self) {
        let OfiWorker {
            conns,
            by_uid,
            iface,
            control,
            ..
        } = self;
        conns.retain(|number, conn| {
            // A provider may not expect packets of a peer that was removed: the peer has sent its last one.
            let is_over = conn.has_ended || conn.is_broken;
            let waits = || {
                let is_queued = control
                    .iter()
                    .any(|(link, _)| Arc::ptr_eq(link, &conn.link));
                !conn.link.is_idle() || is_queued
            };
            if conn.peer.is_some() || !is_over || waits() {
                return true;
            }
            iface.remove(&conn.name);
            if by_uid.get(&conn.uid) == Some(&(number as u32)) {
                by_uid.remove(&conn.uid);
            }
            false
        });
    }
}

/// An interface that can wait, and its descriptor.
///
/// # Errors
/// The provider has none.
fn waiting(iface: OfiIface) -> io::Result<(OfiIface, RawFd)> {
    let fd = iface.descriptor()?;
    Ok((iface, fd))
}

/// Makes an open connection the lane to its peer, unless there is one.
pub fn lane_up<S: Sink>(worker: &mut OfiWorker<S::Peer>, sink: S, number: u32) {
    let Some(conn) = worker.conns.get(number as usize) else {
        return;
    };
    let (Some(peer), Some(to)) = (conn.peer, conn.remote) else {
        return;
    };
    let sender = OfiSender::new(worker.iface.clone(), conn.link.clone(), to);
    if sink
        .lane_up(peer, Lane::Ofi(Box::new(sender)), Some(worker.device))
        .is_err()
    {
        log::trace!("worker {:#x} has a lane already", conn.uid);
    }
}

/// The connection with a peer has ended, of which this is the sending half: the peer fails, unless its lane goes
/// another way.
#[cold]
pub fn conn_down<S: Sink>(sink: S, peer: S::Peer, link: &Arc<OfiTxLink>, status: ucs_status_t) {
    let is_other = |lane: &mut Lane| match lane {
        Lane::Ofi(sender) => !Arc::ptr_eq(&sender.link, link),
        _ => true,
    };
    if sink.with_lane(peer, is_other) != Some(true) {
        sink.lane_down(peer, status);
    }
}

/// Calls `act` with the sender to a peer, under the peer's lock. `None`: there is none.
pub fn with_sender<S: Sink, R>(
    sink: S,
    peer: S::Peer,
    act: impl FnOnce(&mut OfiSender) -> R,
) -> Option<R> {
    let called = sink.with_lane(peer, |lane| match lane {
        Lane::Ofi(sender) => Some(act(sender)),
        _ => None,
    });
    called.flatten()
}

/// Hash of what two workers have in common that reach each other by this device (FNV-1a).
pub fn fabric_hash(device: &OfiDevice) -> u64 {
    let place = host::place();
    let where_valid = match device.scope() {
        OfiScope::Memory => [
            place.host,
            place.pid_ns.into(),
            liveness_lock::place().into(),
        ],
        OfiScope::Loopback | OfiScope::Link => [place.host, place.net_ns.into(), 0],
        OfiScope::Fabric => [0; 3],
    };
    let ep = device.ep();
    let numbers = [
        packet::VERSION.into(),
        ep.protocol.into(),
        device.address_format().into(),
        where_valid[0],
        where_valid[1],
        where_valid[2],
    ];
    let bytes = numbers.iter().flat_map(|n: &u64| n.to_le_bytes());
    let all = device.provider.bytes().chain(bytes);
    all.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
