//! Failover of a UD connection: it goes on through other ports when its path has failed.
//!
//! The sender detects a failure: nothing is acknowledged though the peer's process lives. It resends the unacknowledged
//! packets by the next path and sends its new port to the peer there, until a packet is acknowledged. The peer follows:
//! a cable that fails in one direction is not used in the other. Packets keep their numbers, so that each is delivered
//! once.

use super::{AGAIN, AddressHandle, UdTx, segment};
use crate::sys::trace::{self, ArgValue};
use crate::sys::{clock, log};
use crate::tl::ib::iface::IbIface;
use crate::tl::ib::port::mtu_bytes;
use crate::wire::ib_packet::{Datagram, DatagramFlags, Ping};
use crate::wire::ib_port::PortLocator;
use crate::wire::packet_hdr::most_packets;
use std::io;
use std::sync::Arc;

/// A path without an acknowledgment for this time is left, milliseconds: about six attempts. After half of that the
/// peer's process is probed.
const SWITCH_MS: u64 = 500;
/// Longest wait between two attempts, milliseconds: short, so that a port that works again is found soon.
const MAX_RETRANSMIT_MS: f64 = 200.0;

/// A path from a port of this worker to a port of the peer.
pub struct AltPath {
    pub iface: Arc<IbIface>,
    pub port: PortLocator,
    /// The queue pair there that replies to liveness probes; 0: none.
    pub keepalive_qpn: u32,
}

/// The paths of a connection.
pub(super) struct AltPaths {
    /// All paths, the best first, and the index of the one in use.
    paths: Vec<AltPath>,
    at: usize,
    /// Index of the path that was tried last, and when, coarse milliseconds.
    tried: usize,
    since: u64,
    /// How often another path was tried since the last acknowledgment.
    tries: u32,
    /// The peer may not have received the new port yet.
    unannounced: bool,
}

impl UdTx {
    /// Sets the paths of the connection, the one in use among them, for failover.
    pub fn set_alt_paths(&mut self, paths: Vec<AltPath>) {
        let size = |path: &AltPath| mtu_bytes(path.iface.port.mtu_to(&path.port));
        // Packets must fit on every path.
        let least = paths.iter().map(size).min().unwrap_or(self.size);
        self.size = self.size.min(least);
        self.most = self.most.max(most_packets(segment(self.size)));
        let (own, to) = (self.iface.index, self.to);
        let taken = |path: &AltPath| path.iface.index == own && path.port.is_at(&to);
        let at = paths.iter().position(taken).unwrap_or(0);
        self.alt_paths = Some(Box::new(AltPaths {
            paths,
            at,
            tried: at,
            since: 0,
            tries: 0,
            unannounced: false,
        }));
    }

    /// Index of the interface in use.
    pub fn local_port(&self) -> usize {
        self.iface.index.into()
    }

    /// Time without an acknowledgment after which the peer's process is probed, milliseconds.
    pub(super) fn silence_limit(&self, usual: u64) -> u64 {
        match self.alt_paths {
            Some(_) => usual.min(SWITCH_MS / 2),
            None => usual,
        }
    }

    /// Longest wait between two attempts, milliseconds.
    pub(super) fn longest_wait(&self) -> f64 {
        match self.alt_paths {
            Some(_) => MAX_RETRANSMIT_MS,
            None => super::MAX_RETRANSMIT_MS,
        }
    }

    /// Resets the failover state after an acknowledgment: the peer has received this worker's port.
    pub(super) fn on_acknowledgment(&mut self) {
        if let Some(alt_paths) = &mut self.alt_paths {
            (alt_paths.unannounced, alt_paths.tries) = (false, 0);
        }
    }

    /// Leaves a path that has failed for the next one, and sends the new port to the peer.
    pub(super) fn look_for_alt_path(&mut self, now: u64) {
        let Some(alt_paths) = &self.alt_paths else {
            return;
        };
        let quiet = now.saturating_sub(self.silent_since.max(alt_paths.since));
        if (quiet >= SWITCH_MS || !self.iface.port.is_active())
            && let Some(next) = alt_paths.next()
        {
            log::diag!(
                "no acknowledgment by {}: trying {}",
                self.iface.port.name,
                alt_paths.paths[next].iface.port.name
            );
            self.record("failover", &alt_paths.paths[next]);
            self.take(next, now, true);
        }
        if self.alt_paths.as_ref().is_some_and(|d| d.unannounced) {
            self.announce();
        }
    }

    /// Follows the peer, whose message about its new port has arrived by this interface.
    pub fn follow_peer_port(&mut self, iface: usize, port: &PortLocator) {
        let Some(alt_paths) = &self.alt_paths else {
            return;
        };
        let is_it =
            |path: &AltPath| usize::from(path.iface.index) == iface && path.port.is_at(port);
        let at = alt_paths.paths.iter().position(is_it);
        // A path that is not in the list is ignored.
        if let Some(at) = at.filter(|&at| at != alt_paths.at) {
            log::diag!(
                "the peer sends by {} now",
                alt_paths.paths[at].iface.port.name
            );
            self.record("failover of the peer", &alt_paths.paths[at]);
            self.take(at, clock::coarse_ms(), false);
            self.retransmit_first(AGAIN);
        }
    }

    /// Records in the timeline that this connection is about to change to another path.
    fn record(&self, what: &'static str, to: &AltPath) {
        if trace::is_on() {
            let port = |iface: &IbIface| ArgValue::from(iface.port.name.clone());
            let args = [("from", port(&self.iface)), ("to", port(&to.iface))];
            trace::instant("wire", what, &args);
        }
    }

    /// Switches to the path of this index. After an error the present path stays until the next attempt.
    fn take(&mut self, at: usize, now: u64, announce: bool) {
        let Some(mut alt_paths) = self.alt_paths.take() else {
            return;
        };
        // Set also after an error: the next path is tried after a while.
        (alt_paths.tried, alt_paths.since) = (at, now);
        alt_paths.tries += 1;
        match self.turn_to(&alt_paths.paths[at]) {
            Ok(()) => (alt_paths.at, alt_paths.unannounced) = (at, announce),
            Err(e) => log::diag!("no path by {}: {e}", alt_paths.paths[at].iface.port.name),
        }
        self.alt_paths = Some(alt_paths);
        if !self.window.is_empty() {
            self.wait = self.iface.port.tuning.ud.tick.as_secs_f64() * 1000.0;
            self.due = now + self.wait as u64 + 1;
        }
    }

    fn turn_to(&mut self, path: &AltPath) -> io::Result<()> {
        let ah = AddressHandle::new(&path.iface.port, &path.port)?;
        if !Arc::ptr_eq(&path.iface, &self.iface) {
            self.carry_to(&path.iface)?;
            self.iface = path.iface.clone();
        }
        (self.ah, self.to, self.keepalive_qpn) = (ah, path.port, path.keepalive_qpn);
        self.ping.truncate(Ping::SIZE);
        let from = self.iface.port.locator(self.iface.ud_number);
        self.ping.extend(from.encode());
        Ok(())
    }

    /// Copies the unacknowledged packets into buffers that are registered with the other device. The device of the old
    /// path may still read its own buffers.
    fn carry_to(&mut self, iface: &IbIface) -> io::Result<()> {
        let count = self.window.len();
        let mut outgoing = iface.outgoing.lock();
        if !outgoing.buffers.reserve(count) {
            return Err(io::Error::other("no buffers can be registered there"));
        }
        let fresh: Vec<_> = (0..count).filter_map(|_| outgoing.buffers.get()).collect();
        drop(outgoing);
        let own = &*self.iface;
        let mut outgoing = own.outgoing.lock();
        for (packet, buffer) in self.window.iter_mut().zip(fresh) {
            // SAFETY: the buffers of both interfaces have room for a packet, whose size fits every path; devices only
            // read them.
            unsafe {
                buffer
                    .ptr
                    .copy_from_nonoverlapping(packet.buffer.ptr, packet.len);
            }
            let old = std::mem::replace(&mut packet.buffer, buffer);
            outgoing.release(old, std::mem::take(&mut packet.number));
        }
        Ok(())
    }

    /// Sends this worker's new port to the peer.
    fn announce(&self) {
        let iface = &*self.iface;
        let front = Datagram {
            to: Datagram::to(self.number, DatagramFlags::MOVED),
            proof: self.proof,
            psn: 0,
            ack: 0,
        };
        let port = iface.port.locator(iface.ud_number);
        let bytes = [&front.encode()[..], &port.encode()].concat();
        let mut outgoing = iface.outgoing.lock();
        outgoing.send(iface, &self.ah, self.to.qpn, &bytes);
    }
}

impl AltPaths {
    /// The next path from a port whose link is up. The first attempt prefers a path that differs in both ports, because
    /// it is not known which of the two has failed.
    fn next(&self) -> Option<usize> {
        let count = self.paths.len();
        let others = (1..=count).map(|i| (self.tried + i) % count);
        let usable = others.filter(|&i| i != self.at && self.paths[i].iface.port.is_active());
        let usable: Vec<usize> = usable.collect();
        let failed = &self.paths[self.at];
        let apart = |&&i: &&usize| {
            let path = &self.paths[i];
            path.iface.index != failed.iface.index && !path.port.is_at(&failed.port)
        };
        let first = usable.iter().find(apart).filter(|_| self.tries == 0);
        first.or(usable.first()).copied()
    }
}
