//! An interface of a worker: its endpoint, and its connections.

use super::address::{Liveness, OfiLocator, OfiLocators};
use super::choice::IfaceRole;
use super::conn::{OfiConn, with_sender};
use super::context::OfiTuning;
use super::control_queue::ControlQueue;
use super::device::{OfiDevice, OfiScope};
use super::fabric;
use super::fabric_hash::fabric_hash;
use super::failover_events::FailoverEvents;
use super::failover_session::ConnFailover;
use super::hello::{FailedConnect, RefusedHello};
use super::mr::{OfiDomain, OfiMrCache};
use super::packet::{Grant, ParsedHello};
use super::rail::OfiRail;
use super::registry::OfiRegistry;
use super::reorder::OfiReorder;
use super::sender::OfiSender;
use super::shared_ep::OfiSharedEp;
use super::silent_hosts::SilentHosts;
use super::tcp_sockets::{SocketName, socket_name};
use super::tx_link::OfiTxLink;
use crate::ctypes::{UCS_ERR_CONNECTION_RESET, ucs_status_t};
use crate::sys::liveness_lock::{self, LivenessLock};
use crate::sys::timer::Timer;
use crate::sys::{clock, host, log};
use crate::tl::iface_params::IfaceParams;
use crate::tl::sink::Sink;
use crate::tl::{Lane, Token};
use slab::Slab;
use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

/// Receive buffers of an interface for rails, by which only connections are made.
const RAIL_RECEIVES: u32 = 8;

/// Connections that were removed, and whose keys are known.
const MAX_FORMER: usize = 256;

/// An interface of a worker. Used by the progress thread only. `P` names a peer.
pub struct OfiIface<P> {
    /// Index of its device among those of the context, and what the log calls it.
    pub device: usize,
    pub device_name: String,
    /// Its index among the interfaces of the worker, as the address of that has them.
    pub index: usize,
    /// What it is for.
    pub role: IfaceRole,
    /// Hellos of peers that have arrived at a rail.
    pub rail_hellos: Vec<ParsedHello>,
    /// Released before the endpoint is closed, or when the provider is dead.
    alive: Option<LivenessLock>,
    /// The worker's own.
    pub uid: u64,
    pub own: OfiLocator,
    /// Where all interfaces of the worker are.
    pub locators: Option<Arc<OfiLocators>>,
    pub ep: Arc<OfiSharedEp>,
    /// Registrations of user memory, if memory of peers is accessed, and the shortest that is accessed in place.
    pub mrs: Option<Arc<OfiMrCache>>,
    pub zcopy: usize,
    pub conns: Slab<OfiConn<P>>,
    /// The connection of each peer, by its uid.
    pub by_uid: HashMap<u64, u32>,
    /// Packets of the transport's own for which there was no room.
    pub control: ControlQueue,
    /// Connections that have failed, to end when everything that has arrived was handled.
    pub broken: Vec<(Arc<OfiTxLink>, ucs_status_t)>,
    /// Connections that have failed before the peer has answered: other interfaces may reach it.
    pub unanswered: Vec<FailedConnect<P>>,
    /// Requests to connect that were answered by a reset.
    pub refused: Vec<RefusedHello>,
    /// What the next clock tick has to do for connections with failover.
    pub failover: FailoverEvents,
    /// Connections whose peers wait for an acknowledgement.
    pub acks_due: Vec<u32>,
    /// Requests of operations on memory of peers that have failed.
    pub failed_ops: Vec<Token>,
    /// Progress has to do more than to read completions, or had to.
    pub is_busy: bool,
    /// Packets were lost, or may have been: of which connections is looked at.
    pub has_losses: bool,
    /// Packets of no connection that were dropped, and receives that have failed, in all.
    pub dropped: u64,
    /// When dropped packets lead to questions next, coarse milliseconds.
    pub next_round: u64,
    /// The completion queue was found empty since it was last asked for that lost packets were looked for.
    pub was_empty: bool,
    /// Connections that were removed last: late packets of theirs are dropped.
    removed: VecDeque<Grant>,
    /// Receives that have failed one after the other.
    pub failed_receives: u32,
    /// The provider works no more: no connection is left, and none is made.
    pub is_dead: bool,
    /// Sockets to a host that does not acknowledge were shut down, amid what the provider had to send.
    pub was_cut: bool,
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
    /// Of the provider `tcp` the socket at which it accepts, and the hosts that do not acknowledge.
    pub tcp: Option<(SocketName, SilentHosts)>,
}

impl<P: Copy + Eq> OfiIface<P> {
    /// An interface: an endpoint of the device. Its index among those of the worker, and that of the device among those
    /// of the context.
    ///
    /// # Errors
    /// The provider's error, or the system's.
    pub fn new(
        (index, device_index): (usize, usize),
        (device, role): (&OfiDevice, IfaceRole),
        params: &IfaceParams,
        tuning: OfiTuning,
        registry: &OfiRegistry,
    ) -> io::Result<OfiIface<P>> {
        let OfiTuning {
            mut receives,
            window,
            ..
        } = tuning;
        if role == IfaceRole::Rail {
            receives = receives.min(RAIL_RECEIVES);
        }
        let hash = fabric_hash(device);
        let open = |waits| OfiSharedEp::open(device, waits, (receives, window), (hash, role));
        // Without a descriptor a sleeping worker polls from time to time.
        let (ep, fd) = match params.wakes.then(|| open(true).and_then(waiting)) {
            Some(Ok((ep, fd))) => (ep, Some(fd)),
            _ => (open(false)?, None),
        };
        let ep = Arc::new(ep);
        let number = if device.has_rma() {
            registry.enter(&ep)
        } else {
            0
        };
        let (own, alive) = locate(&ep, hash, number)?;
        let is_tcp = matches!(device.core_provider(), "tcp" | "net");
        let tcp = socket_name(&own.name).filter(|_| is_tcp);
        let tcp = tcp.map(|name| (name, SilentHosts::default()));
        let now = clock::coarse_ms();
        Ok(OfiIface {
            device: device_index,
            device_name: format!("{} on {}", device.provider, device.domain),
            index,
            role,
            rail_hellos: Vec::new(),
            uid: params.uid,
            own,
            locators: None,
            fd,
            timer: params.wakes.then(Timer::new).transpose()?,
            is_timed: false,
            mrs: (number != 0).then(|| Arc::new(OfiMrCache::new(&ep, params.mt))),
            zcopy: tuning.zcopy,
            ep,
            conns: Slab::new(),
            by_uid: HashMap::new(),
            control: ControlQueue::default(),
            broken: Vec::new(),
            unanswered: Vec::new(),
            refused: Vec::new(),
            failover: FailoverEvents::default(),
            acks_due: Vec::new(),
            failed_ops: Vec::new(),
            is_busy: false,
            has_losses: false,
            dropped: 0,
            next_round: now,
            was_empty: false,
            removed: VecDeque::new(),
            failed_receives: 0,
            is_dead: false,
            was_cut: false,
            keepalive_ms: params.keepalive_ms,
            timeout_ms: tuning.timeout_ms,
            next_look: now,
            next_connecting_look: now,
            next_probe: now.saturating_add(params.keepalive_ms),
            alive,
            in_memory: device.scope() == OfiScope::Memory,
            tcp,
        })
    }

    /// Its domain, as all threads of the worker register memory in it; `None`: no memory of peers is accessed.
    pub fn domain(&self) -> Option<OfiDomain> {
        Some(OfiDomain {
            mrs: self.mrs.clone()?,
            needs_local: self.ep.needs_local,
            is_virtual: self.ep.is_virtual,
            max_iov: self.ep.rma()?.max_iov,
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
        let (dropped, role) = (self.dropped, self.role);
        let lock = to.liveness.key_here(&self.own.liveness);
        self.by_uid.insert(uid, conn);
        entry.insert(OfiConn {
            peer: Some(peer),
            of: peer,
            uid,
            role,
            failover: ConnFailover::Off,
            link: Arc::new(OfiTxLink::new(conn, addr, to.number, lock)),
            name,
            key: host::random_u64(),
            remote: None,
            begun: clock::coarse_ms(),
            order: OfiReorder::default(),
            is_broken: false,
            has_ended: false,
            lost_lock: false,
            refusals: None,
            request: None,
            loss: None,
            checked: dropped,
        })
    }

    /// The connection that was granted so.
    #[inline(always)]
    pub fn granted(&mut self, grant: Grant) -> Option<&mut OfiConn<P>> {
        let conn = self.conns.get_mut(grant.conn as usize)?;
        (conn.key == grant.key).then_some(conn)
    }

    /// Whether a connection that was removed was granted so.
    pub fn was_granted(&self, grant: Grant) -> bool {
        self.removed.contains(&grant)
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

    /// Whether operations of connections that have failed, or have moved to another interface, are outstanding.
    pub fn has_ops_without_peer(&self) -> bool {
        let mut conns = self.conns.iter();
        conns.any(|(_, conn)| conn.has_ops_without_peer())
    }

    /// Sends a packet of the transport's own, now or when there is room.
    pub fn send_control(&mut self, link: &Arc<OfiTxLink>, packet: Vec<u8>) {
        if self.ep.send(&packet, link).is_err() {
            self.control.add(link, packet, clock::coarse_ms());
            self.is_busy = true;
        }
    }

    /// Whether progress has to do more than to read completions.
    pub fn has_work(&self) -> bool {
        let has_ends = !self.broken.is_empty() || !self.failed_ops.is_empty();
        let has_packets = !self.control.is_empty() || !self.acks_due.is_empty();
        has_packets || has_ends || self.has_losses || self.is_dead
    }

    /// Sends a probe, unless packets to the peer wait for room: the caller sends one again later.
    pub fn send_probe(&mut self, link: &Arc<OfiTxLink>, packet: Vec<u8>) {
        if !self.control.has(link) {
            self.send_control(link, packet);
        }
    }

    /// Sends the packets of the transport's own that wait for room.
    pub fn flush_control(&mut self) {
        let ep = &self.ep;
        self.control
            .flush(|packet, link| ep.send(packet, link).is_ok());
    }

    /// Has a connection end with `status` when everything that has arrived was handled.
    pub fn fail_conn(&mut self, link: &Arc<OfiTxLink>, status: ucs_status_t) {
        if let Some(conn) = self.of_link(link)
            && !conn.is_broken
        {
            conn.is_broken = true;
            link.fail();
            self.control.forget(link);
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
        self.ep.set_dead();
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
        let OfiIface {
            conns,
            by_uid,
            ep,
            control,
            removed,
            ..
        } = self;
        conns.retain(|number, conn| {
            // A provider may not expect packets of a peer that was removed: the peer has sent its last one.
            let is_over = conn.has_ended || conn.is_broken;
            let waits = || {
                // A sender, or an attempt to move, sends by it yet.
                let is_held = conn.failover.has_moved() && Arc::strong_count(&conn.link) > 1;
                !conn.link.is_idle() || control.has(&conn.link) || is_held
            };
            if conn.peer.is_some() || !is_over || waits() {
                return true;
            }
            ep.remove(&conn.name);
            if removed.len() == MAX_FORMER {
                removed.pop_front();
            }
            removed.push_back(conn.grant());
            if by_uid.get(&conn.uid) == Some(&(number as u32)) {
                by_uid.remove(&conn.uid);
            }
            false
        });
    }
}

/// Where a new interface with this endpoint is, and the lock that it holds as long as it works, if there can be one.
/// `fabric`: its hash; `number`: that of the interface in remote keys.
///
/// # Errors
/// The provider's error.
fn locate(
    ep: &OfiSharedEp,
    fabric: u64,
    number: u16,
) -> io::Result<(OfiLocator, Option<LivenessLock>)> {
    let key = host::random_u64() >> 1 | 1;
    let lock = LivenessLock::hold(key).ok();
    let own = OfiLocator {
        fabric,
        secret: host::random_u64() | 1,
        liveness: Liveness {
            host: host::place().host,
            locks: liveness_lock::place(),
            lock: lock.as_ref().map_or(0, |_| key),
        },
        number,
        name: ep.name()?,
    };
    Ok((own, lock))
}

/// An endpoint that can wait, and its descriptor.
///
/// # Errors
/// The provider has none.
fn waiting(ep: OfiSharedEp) -> io::Result<(OfiSharedEp, RawFd)> {
    let fd = ep.descriptor()?;
    Ok((ep, fd))
}

/// Makes an open connection the lane to its peer, unless there is one; that of a rail, its rail.
pub fn lane_up<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S, number: u32) {
    let Some(conn) = iface.conns.get(number as usize) else {
        return;
    };
    if conn.role == IfaceRole::Rail {
        return rail_up(iface, sink, number);
    }
    let (Some(peer), Some(to)) = (conn.peer, conn.remote) else {
        return;
    };
    let mut sender = OfiSender::new(iface.ep.clone(), conn.link.clone(), to);
    if conn.failover.session().is_some() {
        sender = sender.with_failover();
    }
    if sink
        .lane_up(peer, Lane::Ofi(Box::new(sender)), Some(iface.device))
        .is_err()
    {
        log::trace!("worker {:#x} has a lane already", conn.uid);
    }
}

/// A connection of a rail is open: the sender of its peer uses it.
fn rail_up<S: Sink>(iface: &OfiIface<S::Peer>, sink: S, number: u32) {
    let Some(conn) = iface.conns.get(number as usize) else {
        return;
    };
    let (Some(peer), Some(_)) = (conn.peer, conn.remote) else {
        return;
    };
    let (ep, link) = (iface.ep.clone(), conn.link.clone());
    let has_lane = with_sender(sink, peer, |sender| sender.rail_up(OfiRail { ep, link }));
    if has_lane.is_some() {
        log::debug!("worker {:#x} has a rail: {}", conn.uid, iface.device_name);
    }
}
