//! IB connections with failover, for endpoints that request it and peers with more than one path.
//!
//! Their messages go by UD, because this side numbers and acknowledges UD packets itself: it can retransmit them by
//! another port, and the receiver drops duplicates. RC cannot report which of the operations of a failed queue pair
//! were executed. Long transfers use rails through all ports, any of which may fail; without a rail they go by UD, too.

use super::conn::{IbConn, IbConnPhase, WireupChannel};
use super::paths::{self, PortPair};
use super::ud::{AddressHandle, AltPath};
use super::worker::IbWorker;
use crate::sys::log;
use crate::tl::LaneTarget;
use crate::tl::sink::PeerContact;
use crate::wire::ib_packet::PortInfo;
use crate::wire::ib_port::{MAX_PORTS, PortLocator};

/// Time after which an unanswered HELLO is sent by another path, in milliseconds.
const FALL_BACK_MS: u64 = 250;

/// The port pairs of a connection that is about to be made; none: it has no failover.
pub fn paths<P: Copy + Eq>(ports: &IbWorker<P>, contact: &PeerContact) -> Vec<PortPair> {
    match &contact.target {
        Some(LaneTarget::Ib(target)) if contact.fails_over && target.wireup_tcp.is_none() => {
            between(ports, &target.ports)
        }
        _ => Vec::new(),
    }
}

/// The port pairs of a connection whose peer has sent its ports.
pub fn paths_to<P: Copy + Eq>(ports: &IbWorker<P>, infos: &[PortInfo]) -> Vec<PortPair> {
    let theirs: Vec<PortLocator> = infos.iter().map(|info| info.port).collect();
    between(ports, &theirs)
}

fn between<P: Copy + Eq>(ports: &IbWorker<P>, theirs: &[PortLocator]) -> Vec<PortPair> {
    let ours = ports.ifaces.iter().take(MAX_PORTS);
    paths::between(ours.map(|iface| &*iface.port), theirs)
}

/// The ports of this worker, for the peer of a connection with failover.
pub fn ports_of<P: Copy + Eq>(ports: &IbWorker<P>) -> Vec<PortInfo> {
    let ifaces = ports.ifaces.iter().take(MAX_PORTS).enumerate();
    let infos = ifaces.map(|(i, iface)| PortInfo {
        keepalive_qpn: ports.keepalive_qpn(i),
        port: iface.port.locator(iface.ud_number),
    });
    infos.collect()
}

/// Posts receives for the datagrams of a connection on each interface of its paths.
pub fn expect<P: Copy + Eq>(ports: &mut IbWorker<P>, number: u32) {
    let Some(c) = ports.get(number) else { return };
    let (own, paths) = (c.iface, c.paths.clone());
    let others = (0..ports.ifaces.len()).filter(|&i| i != own);
    for i in others.filter(|&i| paths.iter().any(|path| path.iface == i)) {
        let known = ports.known(i, false);
        ports.ifaces[i].expect_datagrams(known);
    }
}

/// The other paths of a connection for its sender.
pub fn alt_paths<P: Copy + Eq>(ports: &mut IbWorker<P>, number: u32) -> Vec<AltPath> {
    let Some(c) = ports.get(number) else {
        return Vec::new();
    };
    let (paths, keepalive_qpns) = (c.paths.clone(), c.keepalive_ports.clone());
    let alt_paths = paths.into_iter().filter_map(|path| {
        Some(AltPath {
            iface: ports.ifaces.get(path.iface)?.clone(),
            port: path.port,
            keepalive_qpn: keepalive_qpns
                .get(usize::from(path.far))
                .copied()
                .unwrap_or(0),
        })
    });
    alt_paths.collect()
}

/// Changes the path of a connection whose HELLO is due again, if it was repeated in vain for some time.
pub fn turn<P: Copy + Eq>(ports: &mut IbWorker<P>, number: u32, now: u64) {
    let waits = |c: &&mut IbConn<P>| c.phase != IbConnPhase::Open && now - c.since >= FALL_BACK_MS;
    let Some(c) = ports.get(number).filter(waits) else {
        return;
    };
    let (paths, iface, to) = (c.paths.clone(), c.iface, c.to);
    let taken = |path: &PortPair| path.iface == iface && path.port.is_at(&to);
    let place = paths.iter().position(taken);
    let count = paths.len();
    let others = (1..count).map(|i| paths[(place.unwrap_or(0) + i) % count]);
    let is_active = |path: &PortPair| ports.ifaces[path.iface].port.is_active();
    let Some(path) = others.into_iter().find(is_active) else {
        return;
    };
    let ah = match AddressHandle::new(&ports.ifaces[path.iface].port, &path.port) {
        Ok(ah) => ah,
        Err(e) => return log::diag!("no path by {}: {e}", ports.ifaces[path.iface].port.name),
    };
    let keepalive_qpn = ports.keepalive_qpn(path.iface);
    if let Some(c) = ports.get(number) {
        (c.iface, c.to, c.keepalive_qpn) = (path.iface, path.port, keepalive_qpn);
        c.wireup = WireupChannel::Datagrams(ah);
    }
}
