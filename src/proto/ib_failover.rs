//! Connections that outlive a port: those of endpoints that ask for failover, where there is more than one way to the
//! peer.
//!
//! Their messages go by datagrams, which are counted and confirmed here, and so can be sent again by another port
//! without being taken twice; a queue pair cannot say what has become of what it was given when it failed. What is long
//! goes by rails, through every port, of which one may fail; while there is none it goes by messages, too.

use crate::engine::ib_worker::{IbConn, IbConnPhase, IbWorker, WireupChannel};
use crate::engine::peer::Peer;
use crate::engine::worker::Worker;
use crate::sys::log;
use crate::tl::LaneTarget;
use crate::tl::ib::paths::{self, PortPair};
use crate::tl::ib::ud::{AddressHandle, AltPath};
use crate::wire::address::{MAX_PORTS, PortLocator};
use crate::wire::ib_packet::PortInfo;

/// A greeting that nobody answers goes by other ways after so long, milliseconds.
const PATIENCE_MS: u64 = 250;

/// The ways that a connection has which is about to be begun; none: it does not outlive its port.
pub fn paths(ports: &IbWorker, peer: &Peer) -> Vec<PortPair> {
    match peer.target.as_deref() {
        Some(LaneTarget::Ib(target)) if peer.fails_over() && target.greeter.is_none() => {
            between(ports, &target.ports)
        }
        _ => Vec::new(),
    }
}

/// The same where the peer has told of its ports.
pub fn paths_to(ports: &IbWorker, doors: &[PortInfo]) -> Vec<PortPair> {
    let theirs: Vec<PortLocator> = doors.iter().map(|door| door.port).collect();
    between(ports, &theirs)
}

fn between(ports: &IbWorker, theirs: &[PortLocator]) -> Vec<PortPair> {
    let ours = ports.ifaces.iter().take(MAX_PORTS);
    paths::between(ours.map(|iface| &*iface.port), theirs)
}

/// Where this worker is reached, for the peer of such a connection.
pub fn ports_of(worker: &Worker, ports: &IbWorker) -> Vec<PortInfo> {
    let ifaces = ports.ifaces.iter().take(MAX_PORTS).enumerate();
    let doors = ifaces.map(|(i, iface)| PortInfo {
        pulse: worker.ctx.answer_for(worker.uid, ports.secret, i),
        port: iface.port.locator(iface.ud_number),
    });
    doors.collect()
}

/// Datagrams of a connection may come by each of its ways.
pub fn expect(ports: &mut IbWorker, number: u32) {
    let Some(c) = ports.get(number) else { return };
    let (own, ways) = (c.iface, c.paths.clone());
    let others = (0..ports.ifaces.len()).filter(|&i| i != own);
    for i in others.filter(|&i| ways.iter().any(|way| way.iface == i)) {
        let known = ports.known(i, false);
        ports.ifaces[i].expect_datagrams(known);
    }
}

/// A connection's ways for the half that sends.
pub fn alt_paths(ports: &mut IbWorker, number: u32) -> Vec<AltPath> {
    let Some(c) = ports.get(number) else {
        return Vec::new();
    };
    let (ways, pulses) = (c.paths.clone(), c.keepalive_ports.clone());
    let detours = ways.into_iter().filter_map(|way| {
        Some(AltPath {
            iface: ports.ifaces.get(way.iface)?.clone(),
            port: way.port,
            pulse: pulses.get(usize::from(way.far)).copied().unwrap_or(0),
        })
    });
    detours.collect()
}

/// The greeting of a connection is due again: by another way, if it was said in vain for some time.
pub fn turn(worker: &Worker, ports: &mut IbWorker, number: u32, now: u64) {
    let waits = |c: &&mut IbConn| c.phase != IbConnPhase::Open && now - c.since >= PATIENCE_MS;
    let Some(c) = ports.get(number).filter(waits) else {
        return;
    };
    let (ways, iface, to) = (c.paths.clone(), c.iface, c.to);
    let taken = |way: &PortPair| way.iface == iface && way.port.is_at(&to);
    let place = ways.iter().position(taken);
    let count = ways.len();
    let others = (1..count).map(|i| ways[(place.unwrap_or(0) + i) % count]);
    let is_active = |way: &PortPair| ports.ifaces[way.iface].port.is_active();
    let Some(way) = others.into_iter().find(is_active) else {
        return;
    };
    let ah = match AddressHandle::new(&ports.ifaces[way.iface].port, &way.port) {
        Ok(ah) => ah,
        Err(e) => return log::diag!("no way by {}: {e}", ports.ifaces[way.iface].port.name),
    };
    let pulse = worker.ctx.answer_for(worker.uid, ports.secret, way.iface);
    if let Some(c) = ports.get(number) {
        (c.iface, c.to, c.pulse) = (way.iface, way.port, pulse);
        c.wireup = WireupChannel::Datagrams(ah);
    }
}
