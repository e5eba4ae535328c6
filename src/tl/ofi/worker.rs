//! The part of a worker that uses libfabric: its interfaces to fabrics. It chooses the one that connects to a peer, and
//! the next one if that fails.
//!
//! A peer is connected by the first interface that leads to it. If that interface cannot connect, or the peer does not
//! answer for a time, the next one does: nothing was sent on a connection that the peer has not answered. A late answer
//! is as good as one in time: both connections receive, and the lane goes through the one that was open first.

use super::address::{MAX_INTERFACES, OfiLocators, OfiPath};
use super::choice::IfaceRole;
use super::conn::OfiConn;
use super::connect;
use super::context::{OfiContext, OfiShared};
use super::device::OfiDevice;
use super::fabric_hash::fabric_hash;
use super::hello::{ConnectFor, FailedConnect, HelloAge};
use super::iface::{OfiIface, lane_up};
use crate::ctypes::*;
use crate::sys::{advice, log};
use crate::tl::LaneTarget;
use crate::tl::iface_params::IfaceParams;
use crate::tl::sink::{PeerContact, Sink};
use std::io;
use std::sync::Arc;

/// Time after which the next interface connects to a peer that has not answered, milliseconds. It may be busy.
const LATE_MS: u64 = 2000;

/// The part of a worker that uses libfabric: its interfaces. Used by the progress thread only. `P` names a peer.
pub struct OfiWorker<P> {
    /// The preferred one.
    pub(super) first: OfiIface<P>,
    /// The others, preferred first.
    pub(super) others: Vec<OfiIface<P>>,
    /// When unanswered requests to connect are looked at next, coarse milliseconds.
    next_look: u64,
}

impl<P: Copy + Eq> OfiWorker<P> {
    /// Interval at which unanswered requests to connect are looked at, milliseconds.
    pub(super) const LOOK_MS: u64 = 100;

    /// The interfaces of a new worker of a context, if it has a device. `reaches_others`: peers are reached by other
    /// transports, too.
    ///
    /// # Errors
    /// The last provider's, if the worker reaches no peers without an interface.
    pub fn open(
        context: &OfiContext,
        params: &IfaceParams,
        reaches_others: bool,
    ) -> io::Result<Option<Box<OfiWorker<P>>>> {
        let (mut ifaces, mut error) = (Vec::new(), None);
        let (lanes, rails) = (context.devices(), context.rails());
        let lanes = lanes.iter().map(|device| (device, IfaceRole::Lane));
        let rails = rails.iter().map(|device| (device, IfaceRole::Rail));
        for (number, (device, role)) in lanes.chain(rails).enumerate() {
            let place = (ifaces.len(), number);
            let hash = fabric_hash(device);
            let has_lane = |iface: &OfiIface<P>| iface.own.fabric == hash;
            if role == IfaceRole::Rail && !ifaces.iter().any(has_lane) {
                continue;
            }
            let (tuning, registry) = (context.tuning, &context.registry);
            match OfiIface::new(place, (device, role), params, tuning, registry) {
                Ok(iface) => ifaces.push(iface),
                Err(e) => error = Some((device, e)),
            }
        }
        let opened = OfiWorker::new(ifaces).map(Box::new);
        let Some((device, e)) = error else {
            return Ok(opened);
        };
        let hint = hint(device, &e);
        let why = format!(
            "{} on {} by libfabric: {e}{hint}",
            device.provider, device.domain
        );
        if reaches_others || opened.is_some() {
            log::warn!("a worker does not use {why}");
            return Ok(opened);
        }
        Err(io::Error::new(e.kind(), format!("no endpoint of {why}")))
    }

    /// The interfaces of a worker, in the order of their indices. `None`: there are none.
    fn new(ifaces: Vec<OfiIface<P>>) -> Option<OfiWorker<P>> {
        debug_assert!(ifaces.len() <= MAX_INTERFACES);
        let locators = ifaces.iter().map(|iface| iface.own.clone());
        let locators = (!ifaces.is_empty()).then(|| Arc::new(OfiLocators::of(locators)));
        let with_locators = |mut iface: OfiIface<P>| {
            iface.locators = locators.clone();
            iface
        };
        let mut ifaces = ifaces.into_iter().map(with_locators);
        Some(OfiWorker {
            first: ifaces.next()?,
            others: ifaces.collect(),
            next_look: 0,
        })
    }

    /// All interfaces, preferred first.
    pub(super) fn all(&self) -> impl Iterator<Item = &OfiIface<P>> {
        [&self.first].into_iter().chain(&self.others)
    }

    /// All interfaces, preferred first.
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut OfiIface<P>> {
        [&mut self.first].into_iter().chain(&mut self.others)
    }

    /// The interfaces for lanes, preferred first.
    pub(super) fn lanes_mut(&mut self) -> impl Iterator<Item = &mut OfiIface<P>> {
        self.all_mut().filter(|iface| iface.role == IfaceRole::Lane)
    }

    /// The interfaces for rails.
    pub(super) fn rails_mut(&mut self) -> impl Iterator<Item = &mut OfiIface<P>> {
        self.all_mut().filter(|iface| iface.role == IfaceRole::Rail)
    }

    /// Where the interfaces are.
    pub fn locators(&self) -> OfiLocators {
        OfiLocators::of(self.all().map(|iface| iface.own.clone()))
    }

    /// What all threads of the worker use to register memory; `None`: no memory of peers is accessed.
    pub fn shared(&self) -> Option<OfiShared> {
        let domains = self.all().map(OfiIface::domain).collect();
        let lanes = self.all().filter(|iface| iface.role == IfaceRole::Lane);
        let has_atomics = lanes.count() == 1 && self.first.ep.has_atomics;
        OfiShared::new(domains, self.first.zcopy, has_atomics)
    }

    /// Connects to a peer, unless there is a lane to it.
    pub(super) fn connect<S: Sink<Peer = P>>(&mut self, sink: S, peer: P) {
        if sink.has_failed(peer) || sink.state(peer).has_lane {
            return;
        }
        let contact = sink.contact(peer);
        let uid = contact.uid;
        let mut is_known = false;
        // After a failure the interface of a rail may have the lane.
        let is_lane = |conn: &&mut OfiConn<P>| conn.role == IfaceRole::Lane;
        for iface in self.all_mut() {
            let conn = iface.of_uid(uid).filter(is_lane);
            match conn.map(|conn| (conn.peer, conn.link.conn)) {
                // Open, or to be opened by the answer.
                Some((Some(of), number)) if of == peer => {
                    is_known = true;
                    lane_up(iface, sink, number);
                }
                Some(_) => connect::end(iface, uid),
                None => {}
            }
        }
        if is_known {
            return;
        }
        let what = self.lane_to(&contact, None);
        let paths = paths(&contact.target, what, None);
        if let Err((status, why)) = self.begin(&paths, (peer, uid), what)
            && !sink.fall_back(peer, &why)
        {
            sink.lane_down(peer, status);
        }
    }

    /// A lane to a peer, to take the place of that of `failed`.
    fn lane_to(&self, contact: &PeerContact, failed: Option<&FailedConnect<P>>) -> ConnectFor {
        match connect::wants_failover(contact, self.first.uid) {
            true => ConnectFor::FailoverLane(failed.and_then(|failed| failed.hello)),
            false => ConnectFor::Lane,
        }
    }

    /// Begins to connect by the first of these ways by which it is possible.
    ///
    /// # Errors
    /// There is none: the status with which the peer fails, and why.
    fn begin(
        &mut self,
        paths: &[OfiPath],
        (peer, uid): (P, u64),
        what: ConnectFor,
    ) -> Result<&OfiIface<P>, (ucs_status_t, String)> {
        let mut failed = (
            UCS_ERR_UNREACHABLE,
            "libfabric does not lead to it".to_owned(),
        );
        let mut begun = None;
        for path in paths {
            let Some(iface) = self.all_mut().find(|iface| iface.index == path.iface) else {
                continue;
            };
            match connect::begin(iface, (peer, uid), &path.to, what) {
                Ok(()) => {
                    begun = Some(path.iface);
                    break;
                }
                Err((status, obstacle)) => {
                    let name = &iface.device_name;
                    let obstacle = format!("{name} (libfabric) does not reach it: {obstacle}");
                    log::diag!("worker {uid:#x}: {obstacle}");
                    failed = (status, obstacle);
                }
            }
        }
        let is_begun = |iface: &&OfiIface<P>| Some(iface.index) == begun;
        self.all().find(is_begun).ok_or(failed)
    }

    /// Has other interfaces, or sockets, connect to the peers that one cannot reach, and other interfaces to those that
    /// do not answer. Called at clock ticks.
    pub(super) fn connect_again<S: Sink<Peer = P>>(&mut self, sink: S, now: u64) {
        self.move_conns(sink, now);
        if self.all().any(|iface| !iface.unanswered.is_empty()) {
            self.replace_failed(sink);
        }
        if now >= self.next_look {
            self.next_look = now + Self::LOOK_MS;
            if !self.others.is_empty() {
                self.look_for_late(sink, now);
            }
            self.move_late(sink, now);
        }
    }

    /// Has other interfaces, or sockets, connect to the peers that one cannot reach.
    #[cold]
    fn replace_failed<S: Sink<Peer = P>>(&mut self, sink: S) {
        let failed = |iface: &mut OfiIface<P>| {
            let index = iface.index;
            let failed = std::mem::take(&mut iface.unanswered).into_iter();
            failed.map(move |failed| (index, failed))
        };
        let failed: Vec<_> = self.all_mut().flat_map(failed).collect();
        for (index, failed) in failed {
            let reason = self.reason(index, &failed);
            match self.connect_by_next(sink, index, &failed) {
                NextPath::None if sink.has_failed(failed.peer) => {}
                NextPath::None if sink.fall_back(failed.peer, &reason) => {}
                NextPath::None => {
                    sink.lane_lost(failed.peer, format_args!("{reason}"), failed.status)
                }
                NextPath::Begun(by) => {
                    log::once!(
                        Warn, each log::words(&reason),
                        "worker {:#x} is connected by {by}: {reason}",
                        failed.uid
                    );
                }
                NextPath::Known => {}
            }
        }
    }

    /// Why an interface does not reach a peer.
    fn reason(&self, index: usize, failed: &FailedConnect<P>) -> String {
        let iface = self.all().find(|iface| iface.index == index);
        let by = iface.map_or("", |iface| &iface.device_name);
        format!("{by} (libfabric) does not reach it: {}", failed.obstacle)
    }

    /// Has the next interface connect to the peers that have not answered for a time.
    fn look_for_late<S: Sink<Peer = P>>(&mut self, sink: S, now: u64) {
        let late = |iface: &mut OfiIface<P>| take_late(iface, sink, now);
        let late: Vec<_> = self.all_mut().flat_map(late).collect();
        for (index, late) in late {
            // It may answer yet.
            if let NextPath::Begun(by) = self.connect_by_next(sink, index, &late) {
                let reason = self.reason(index, &late);
                log::diag!("worker {:#x} is connected by {by}, too: {reason}", late.uid);
            }
        }
    }

    /// Has the interface behind that with this index connect to a peer.
    fn connect_by_next<S: Sink<Peer = P>>(
        &mut self,
        sink: S,
        index: usize,
        failed: &FailedConnect<P>,
    ) -> NextPath {
        let &FailedConnect { peer, uid, .. } = failed;
        if sink.has_failed(peer) {
            return NextPath::None;
        }
        if sink.state(peer).has_lane {
            return NextPath::Known;
        }
        for iface in self.all_mut().filter(|iface| iface.index != index) {
            let is_to = |conn: &mut OfiConn<P>| {
                let is_lane = conn.role == IfaceRole::Lane && !conn.has_expired();
                conn.peer == Some(peer) && is_lane
            };
            if iface.of_uid(uid).is_some_and(is_to) {
                return NextPath::Known;
            }
        }
        let contact = sink.contact(peer);
        let what = self.lane_to(&contact, Some(failed));
        let paths = paths(&contact.target, what, Some(index));
        match self.begin(&paths, (peer, uid), what) {
            Ok(next) => NextPath::Begun(next.device_name.clone()),
            Err(_) => NextPath::None,
        }
    }
}

/// The ways to a peer for a connection, preferred first; `behind`: those that are less preferred than that by the
/// interface with this index.
fn paths(target: &Option<LaneTarget>, what: ConnectFor, behind: Option<usize>) -> Vec<OfiPath> {
    let Some(LaneTarget::Ofi(target)) = target else {
        return Vec::new();
    };
    let fails_over = matches!(what, ConnectFor::FailoverLane(_));
    match behind {
        None => target.lane_paths(fails_over).cloned().collect(),
        Some(index) => target
            .lane_paths_behind(index, fails_over)
            .cloned()
            .collect(),
    }
}

/// What the user can do if a device cannot be opened with this error.
fn hint(device: &OfiDevice, error: &io::Error) -> &'static str {
    // `ofi_rxm` opens a completion queue with room for the operations of `FI_UNIVERSE_SIZE` peers, 256 by default.
    if device.provider == "verbs;ofi_rxm" && error.kind() == io::ErrorKind::InvalidInput {
        "; if its completion queues are too long for the device, FI_UNIVERSE_SIZE=64 makes them shorter"
    } else {
        ""
    }
}

/// What there is behind an interface that does not reach a peer.
enum NextPath {
    /// A lane, or another connection that is open or was begun.
    Known,
    /// A connection that was begun, by this device.
    Begun(String),
    None,
}

/// The connections of an interface that the peer has not answered for a time, and that were not returned before, with
/// the index of the interface. Logs those in whose place there is another lane meanwhile.
fn take_late<S: Sink>(
    iface: &mut OfiIface<S::Peer>,
    sink: S,
    now: u64,
) -> Vec<(usize, FailedConnect<S::Peer>)> {
    let mut late = Vec::new();
    for (_, conn) in &mut iface.conns {
        let is_moving = conn.failover.session().is_some();
        let is_waiting = conn.role == IfaceRole::Lane && !conn.is_broken && !is_moving;
        let is_due = is_waiting && now >= conn.begun.saturating_add(LATE_MS);
        let (Some(peer), Some(request)) = (conn.peer, conn.request.as_mut().filter(|_| is_due))
        else {
            continue;
        };
        match request.age {
            HelloAge::Recent => {
                request.age = HelloAge::Late;
                let failed = FailedConnect {
                    peer,
                    uid: conn.uid,
                    // The next request has a session of its own: either may be answered first, and a connection goes
                    // on with that of its keys only. With this one's the peer would move what it has opened, and the
                    // answer to this request, which may be on its way, would be of a connection that has moved.
                    hello: None,
                    status: UCS_ERR_ENDPOINT_TIMEOUT,
                    obstacle: format!(
                        "no answer for {} seconds: {}",
                        LATE_MS / 1000,
                        advice::ON_WAITING
                    ),
                };
                late.push((iface.index, failed));
            }
            HelloAge::Late if sink.state(peer).has_lane => {
                request.age = HelloAge::Replaced;
                let (uid, name) = (conn.uid, &iface.device_name);
                log::once!(
                    Warn, each name,
                    "worker {uid:#x} is reached another way: it does not answer by {name} (libfabric)"
                );
            }
            HelloAge::Late | HelloAge::Replaced | HelloAge::Expired => {}
        }
    }
    late
}
