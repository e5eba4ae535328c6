//! Detours: a connection by datagrams goes on through other ports when the way that it takes has failed.
//!
//! Who sends finds that out, by nothing being confirmed though the peer's process lives: it takes what is not confirmed
//! to the next way and tells the peer there where it has gone, until something is confirmed. The peer follows it: a
//! cable that carries nothing in one direction is of no use in the other. Packets keep their numbers, so that each is
//! taken once.

use super::{AGAIN, AddressHandle, UdTx, segment};
use crate::sys::{clock, log};
use crate::tl::ib::iface::IbIface;
use crate::tl::ib::port::mtu_bytes;
use crate::wire::address::PortLocator;
use crate::wire::ib_packet::{Datagram, MOVED, Ping, most_packets};
use std::io;
use std::sync::Arc;

/// A way on which nothing has been confirmed for so long is left, milliseconds: some six attempts. After half of that
/// the peer's process is asked whether it lives.
const LEFT_MS: u64 = 500;
/// Longest wait between two attempts, milliseconds: a port that is back is to be found in time.
const LONGEST_MS: f64 = 200.0;

/// A way from a port of ours to one of the peer's.
pub struct AltPath {
    pub iface: Arc<IbIface>,
    pub port: PortLocator,
    /// The queue pair there that answers whether the process lives; 0: none.
    pub pulse: u32,
}

/// Those of a connection.
pub(super) struct AltPaths {
    /// All ways, the best first, and the one that is taken.
    ways: Vec<AltPath>,
    at: usize,
    /// The one that was tried last, and when, coarse milliseconds.
    tried: usize,
    since: u64,
    /// How often it was left since something was confirmed.
    turns: u32,
    /// The peer may not know that yet.
    untold: bool,
}

impl UdTx {
    /// Has it go on by others of these ways when the one that it takes fails: that one is among them.
    pub fn set_alt_paths(&mut self, ways: Vec<AltPath>) {
        let size = |way: &AltPath| mtu_bytes(way.iface.port.mtu_to(&way.port));
        // What was sent has to fit wherever it may have to go.
        let least = ways.iter().map(size).min().unwrap_or(self.size);
        self.size = self.size.min(least);
        self.most = self.most.max(most_packets(segment(self.size)));
        let (own, to) = (self.iface.index, self.to);
        let taken = |way: &AltPath| way.iface.index == own && way.port.is_at(&to);
        let at = ways.iter().position(taken).unwrap_or(0);
        self.detours = Some(Box::new(AltPaths {
            ways,
            at,
            tried: at,
            since: 0,
            turns: 0,
            untold: false,
        }));
    }

    /// Number of the interface that it goes by.
    pub fn local_port(&self) -> usize {
        self.iface.index.into()
    }

    /// After how long without a word the peer's process is asked whether it lives, milliseconds.
    pub(super) fn silence_limit(&self, usual: u64) -> u64 {
        match self.detours {
            Some(_) => usual.min(LEFT_MS / 2),
            None => usual,
        }
    }

    /// Longest wait between two attempts, milliseconds.
    pub(super) fn longest_wait(&self) -> f64 {
        match self.detours {
            Some(_) => LONGEST_MS,
            None => super::LONGEST_MS,
        }
    }

    /// Something was confirmed: the peer knows where we are.
    pub(super) fn is_heard(&mut self) {
        if let Some(detours) = &mut self.detours {
            (detours.untold, detours.turns) = (false, 0);
        }
    }

    /// Leaves a way that has failed for the next one, and tells the peer of that.
    pub(super) fn look_for_alt_path(&mut self, now: u64) {
        let Some(detours) = &self.detours else { return };
        let quiet = now.saturating_sub(self.silent_since.max(detours.since));
        if (quiet >= LEFT_MS || !self.iface.port.is_active())
            && let Some(next) = detours.next()
        {
            log::diag!(
                "nothing is confirmed by {}: trying {}",
                self.iface.port.name,
                detours.ways[next].iface.port.name
            );
            self.take(next, now, true);
        }
        if self.detours.as_ref().is_some_and(|d| d.untold) {
            self.announce();
        }
    }

    /// The peer has gone to this port, and what it says of that has come by this interface.
    pub fn follow_peer_port(&mut self, iface: usize, port: &PortLocator) {
        let Some(detours) = &self.detours else { return };
        let is_it = |way: &AltPath| usize::from(way.iface.index) == iface && way.port.is_at(port);
        let at = detours.ways.iter().position(is_it);
        // A way that is not known is none of ours.
        if let Some(at) = at.filter(|&at| at != detours.at) {
            log::diag!("the peer goes on by {}", detours.ways[at].iface.port.name);
            self.take(at, clock::coarse_ms(), false);
            self.retransmit(AGAIN);
        }
    }

    /// Takes the way of this number. What refuses to be taken is left for later.
    fn take(&mut self, at: usize, now: u64, announce: bool) {
        let Some(mut detours) = self.detours.take() else {
            return;
        };
        // Also of one that cannot be had: the next is looked for after a while.
        (detours.tried, detours.since) = (at, now);
        detours.turns += 1;
        match self.turn_to(&detours.ways[at]) {
            Ok(()) => (detours.at, detours.untold) = (at, announce),
            Err(e) => log::diag!("no way by {}: {e}", detours.ways[at].iface.port.name),
        }
        self.detours = Some(detours);
        if !self.window.is_empty() {
            self.wait = self.iface.port.tuning.ud.tick.as_secs_f64() * 1000.0;
            self.due = now + self.wait as u64 + 1;
        }
    }

    fn turn_to(&mut self, way: &AltPath) -> io::Result<()> {
        let ah = AddressHandle::new(&way.iface.port, &way.port)?;
        if !Arc::ptr_eq(&way.iface, &self.iface) {
            self.carry_to(&way.iface)?;
            self.iface = way.iface.clone();
        }
        (self.ah, self.to, self.pulse) = (ah, way.port, way.pulse);
        self.ping.truncate(Ping::SIZE);
        let from = self.iface.port.locator(self.iface.ud_number);
        self.ping.extend(from.encode());
        Ok(())
    }

    /// Copies what is not confirmed into buffers that the other device knows. The one before may still be reading its
    /// own.
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
            // SAFETY: buffers of both have room for a packet that fits everywhere; devices only read them.
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

    /// Tells the peer where we have gone.
    fn announce(&self) {
        let iface = &*self.iface;
        let front = Datagram {
            to: Datagram::to(self.number, MOVED),
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
    /// The next way out of a port that has a link. At first one between other ports at both ends: it is not known which
    /// of the two has failed.
    fn next(&self) -> Option<usize> {
        let count = self.ways.len();
        let others = (1..=count).map(|i| (self.tried + i) % count);
        let usable = others.filter(|&i| i != self.at && self.ways[i].iface.port.is_active());
        let usable: Vec<usize> = usable.collect();
        let failed = &self.ways[self.at];
        let apart = |&&i: &&usize| {
            let way = &self.ways[i];
            way.iface.index != failed.iface.index && !way.port.is_at(&failed.port)
        };
        let first = usable.iter().find(apart).filter(|_| self.turns == 0);
        first.or(usable.first()).copied()
    }
}
