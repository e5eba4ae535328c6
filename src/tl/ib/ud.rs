//! Reliable datagrams: the worker's UD queue pair, and for each peer the packets that it has not acknowledged.
//!
//! Packets of a connection are numbered; the receiver acknowledges all before a number, with each packet that it sends
//! or, when it sends none, by a datagram without a packet. Packets that are not acknowledged in time are retransmitted
//! from the first one on: the receiver keeps those that it already has (`reorder`).

mod address;
mod failover;
mod tx_queue;

use super::buffers::Buffer;
use super::credits::Credits;
use super::iface::IbIface;
use super::port::mtu_bytes;
use crate::sys::clock;
use crate::sys::trace;
use crate::wire::ib_packet::{Datagram, DatagramFlags};
use crate::wire::ib_port::PortLocator;
use crate::wire::packet_hdr::{HEAD, PacketHdr, most_packets};
pub use address::{AddressHandle, begin};
pub use failover::AltPath;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
pub use tx_queue::UdTxQueue;

/// Maximum number of packets that are retransmitted at once: if one was lost the receiver may have no room for many.
const AGAIN: usize = 8;
/// A silent peer is probed after the timeout divided by this.
const PROBE_FRACTION: u64 = 4;
/// Longest wait between two attempts, milliseconds.
const MAX_RETRANSMIT_MS: f64 = 1000.0;

/// A packet that the peer has not acknowledged.
struct UnackedPacket {
    buffer: Buffer,
    len: usize,
    /// Number of its last send.
    number: u64,
}

/// The sending half of a UD connection, used by the thread that holds the peer's lock.
pub struct UdTx {
    iface: Arc<IbIface>,
    ah: AddressHandle,
    to: PortLocator,
    /// The number and the proof that the peer requires in each datagram.
    number: u32,
    proof: u32,
    /// Bytes of a packet with all headers, and the maximum number of unacknowledged packets.
    size: usize,
    most: usize,
    /// Number of the first packet in `window`.
    base: u32,
    window: VecDeque<UnackedPacket>,
    /// When the first packet is retransmitted, coarse milliseconds, and the wait after that, milliseconds.
    due: u64,
    wait: f64,
    /// Since when packets are unacknowledged without any acknowledgment, coarse milliseconds.
    silent_since: u64,
    /// Packets before this one were retransmitted because the peer reported them missing; they are not for later
    /// reports.
    resent: Option<u32>,
    /// Packets before this one may be lost,
    doubtful_end: u32,
    /// of which those before this one were retransmitted.
    doubtful_resent: u32,
    /// An acknowledgment of the packets before this one was requested.
    asked_for: Option<u32>,
    /// The queue pair that replies to liveness probes for the peer's process, 0 for none, and the probe, which the
    /// peer's worker gets, too.
    keepalive_qpn: u32,
    ping: Vec<u8>,
    /// The alternative paths of failover.
    alt_paths: Option<Box<failover::AltPaths>>,
}

impl UdTx {
    /// Creates the sending half of the connection with this number and proof at the peer; `window`: packets that both
    /// ends have agreed on.
    ///
    /// # Errors
    /// The device has no path to the port.
    pub fn new(
        iface: &Arc<IbIface>,
        to: &PortLocator,
        (number, proof): (u32, u32),
        window: u32,
    ) -> io::Result<UdTx> {
        let size = mtu_bytes(iface.port.mtu_to(to));
        let least = most_packets(segment(size));
        Ok(UdTx {
            ah: AddressHandle::new(&iface.port, to)?,
            to: *to,
            number,
            proof,
            size,
            most: least.max(window as usize),
            iface: iface.clone(),
            base: 0,
            window: VecDeque::new(),
            due: 0,
            wait: 0.0,
            silent_since: 0,
            resent: None,
            doubtful_end: 0,
            doubtful_resent: 0,
            asked_for: None,
            keepalive_qpn: 0,
            ping: Vec::new(),
            alt_paths: None,
        })
    }

    /// Sets the keepalive responder's queue pair at the peer's port, 0 for none, and what is sent to it, and to the
    /// peer's worker, when the peer acknowledges nothing.
    pub fn set_keepalive_port(&mut self, qpn: u32, ping: Vec<u8>) {
        (self.keepalive_qpn, self.ping) = (qpn, ping);
    }

    /// Handles a reply to a probe: the peer's process lives, and will acknowledge.
    pub fn on_pong(&mut self) {
        self.silent_since = clock::coarse_ms();
    }

    /// Bytes of a record in a packet.
    pub fn segment(&self) -> usize {
        segment(self.size)
    }

    /// Whether the peer has acknowledged every packet that was sent.
    pub fn is_drained(&self) -> bool {
        self.window.is_empty()
    }

    /// When a packet is to be retransmitted unless it is acknowledged, coarse milliseconds.
    pub fn next_due(&self) -> Option<u64> {
        (!self.window.is_empty()).then_some(self.due)
    }

    /// Number of packets that can be sent now.
    pub fn room(&self) -> usize {
        let left = self.most.saturating_sub(self.window.len());
        left.min(self.iface.outgoing.lock().room())
    }

    fn datagram(&self, flow: &Credits, flags: DatagramFlags) -> Datagram {
        Datagram {
            to: Datagram::to(self.number, flags),
            proof: self.proof,
            psn: self.base.wrapping_add(self.window.len() as u32),
            ack: flow.take_ack(),
        }
    }

    /// Sends a packet, whose `len` bytes `fill` writes. The caller has checked that there is room. False: no buffer can
    /// be registered.
    pub fn send(
        &mut self,
        flow: &Credits,
        head: PacketHdr,
        len: usize,
        fill: impl FnOnce(*mut u8),
    ) -> bool {
        let asks = self.window.len() + 1 >= self.most / 2;
        let flags = if asks {
            DatagramFlags::ASKS
        } else {
            DatagramFlags::empty()
        };
        let datagram = self.datagram(flow, flags);
        let iface = &*self.iface;
        let mut outgoing = iface.outgoing.lock();
        let Some(buffer) = outgoing.buffers.get() else {
            return false;
        };
        let total = Datagram::SIZE + HEAD + len;
        debug_assert!(total <= self.size);
        // SAFETY: the buffer is owned by the sender and not posted; it has room for a packet.
        unsafe {
            let at = buffer.ptr;
            at.copy_from_nonoverlapping(datagram.encode().as_ptr(), Datagram::SIZE);
            let at = at.add(Datagram::SIZE);
            at.copy_from_nonoverlapping(head.encode().as_ptr(), HEAD);
            fill(at.add(HEAD));
        }
        // A send that the device refuses counts as lost.
        let number = outgoing.post(iface, &self.ah, self.to.qpn, buffer, total);
        drop(outgoing);
        if self.window.is_empty() {
            self.begin_waiting();
        }
        self.window.push_back(UnackedPacket {
            buffer,
            len: total,
            number: number.unwrap_or(0),
        });
        true
    }

    fn begin_waiting(&mut self) {
        let now = clock::coarse_ms();
        self.wait = self.iface.port.tuning.ud.tick.as_secs_f64() * 1000.0;
        (self.due, self.silent_since) = (now + self.wait as u64 + 1, now);
    }

    /// Handles an acknowledgment of all packets before `ack`; `gap`: it comes with a report of missing ones. False: the
    /// number is invalid.
    pub fn acknowledged(&mut self, ack: u32, gap: bool) -> bool {
        let n = ack.wrapping_sub(self.base) as usize;
        if n > self.window.len() {
            // An older acknowledgment that arrived late is valid.
            return n as u32 > u32::MAX / 2;
        }
        if n == 0 {
            return true;
        }
        let iface = &*self.iface;
        let mut outgoing = iface.outgoing.lock();
        for done in self.window.drain(..n) {
            outgoing.release(done.buffer, done.number);
        }
        drop(outgoing);
        self.base = ack;
        self.begin_waiting();
        self.on_acknowledgment();
        let behind = |a: u32, b: u32| a.wrapping_sub(b) as i32 > 0;
        self.resent = self.resent.filter(|&resent| behind(resent, ack));
        // All retransmitted packets have arrived, and no later one that would let the peer report a gap.
        if !gap && behind(self.doubtful_end, ack) && !behind(self.doubtful_resent, ack) {
            self.retransmit_first(AGAIN);
        }
        true
    }

    /// Handles the peer's report that the packets in front of `end` are missing: retransmits those that were not
    /// retransmitted for an earlier report.
    pub fn on_gap(&mut self, end: u32) {
        let missing = end.wrapping_sub(self.base) as usize;
        let resent = self.resent.map_or(0, |end| end.wrapping_sub(self.base)) as usize;
        if resent < missing && missing <= self.window.len() {
            let n = self.retransmit(resent, (missing - resent).min(AGAIN));
            if n == 1 {
                // A second copy replaces the first or its acknowledgment if one is lost: the timer is 100 times slower.
                self.retransmit(resent, 1);
            }
            self.resent = Some(self.base.wrapping_add((resent + n) as u32));
        }
    }

    /// Retransmits what is due. False: the peer has been silent for longer than the timeout.
    pub fn tick(&mut self, flow: &Credits, now: u64) -> bool {
        if self.window.is_empty() || now < self.due {
            return true;
        }
        let timeout = self.iface.port.tuning.ud.timeout.as_millis() as u64;
        let backoff = self.iface.port.tuning.ud.backoff;
        // While this function was not called, acknowledgments that had arrived were not handled either.
        self.silent_since += now - self.due;
        let end = self.silent_since + timeout;
        if now >= end {
            return false;
        }
        self.look_for_alt_path(now);
        if now - self.silent_since >= self.silence_limit(timeout / PROBE_FRACTION) {
            self.probe(flow);
        }
        self.wait = (self.wait * backoff.max(1.0)).min(self.longest_wait());
        self.due = (now + self.wait as u64 + 1).min(end);
        self.retransmit_first(1);
        true
    }

    /// Probes the peer's process, which answers even while the worker does not progress, and checks whether the worker
    /// still has the connection.
    fn probe(&self, flow: &Credits) {
        let mut check = self.datagram(flow, DatagramFlags::CHECK | DatagramFlags::ASKS);
        // The number of a packet that has arrived: earlier versions of this library take the ping for its duplicate.
        check.psn = self.base.wrapping_sub(1);
        let bytes = [&check.encode()[..], &self.ping].concat();
        let mut outgoing = self.iface.outgoing.lock();
        if self.keepalive_qpn != 0 {
            outgoing.send(&self.iface, &self.ah, self.keepalive_qpn, &self.ping);
        }
        outgoing.send(&self.iface, &self.ah, self.to.qpn, &bytes);
    }

    /// Retransmits at most `most` packets behind the first `skip` of the window. Returns their number.
    fn retransmit(&mut self, skip: usize, most: usize) -> usize {
        let iface = &*self.iface;
        let mut outgoing = iface.outgoing.lock();
        let n = most.min(self.window.len() - skip).min(outgoing.room());
        for packet in self.window.iter_mut().skip(skip).take(n) {
            // The device may still read the packet, so nothing is changed in it; after that only the flag that requests
            // an acknowledgment.
            let ended = outgoing.has_ended(packet.number);
            if ended {
                // SAFETY: the byte of the flags, inside of the buffer; the device has completed the last send of it.
                unsafe { *packet.buffer.ptr.add(3) |= DatagramFlags::ASKS.bits() };
            }
            if let Some(number) =
                outgoing.post(iface, &self.ah, self.to.qpn, packet.buffer, packet.len)
            {
                packet.number = number;
            }
        }
        if trace::is_on() {
            let args = [
                ("packets", n.into()),
                ("first", self.base.wrapping_add(skip as u32).into()),
                ("qpn", self.to.qpn.into()),
            ];
            trace::instant("wire", "retransmit", &args);
        }
        n
    }

    /// Retransmits at most `most` packets from the first unacknowledged one on; those behind them may be lost as well.
    fn retransmit_first(&mut self, most: usize) {
        let end = self.base.wrapping_add(self.window.len() as u32);
        let n = self.retransmit(0, most);
        (self.doubtful_end, self.doubtful_resent) = (end, self.base.wrapping_add(n as u32));
    }

    /// Sends an acknowledgment. If there is no room it counts as lost.
    pub fn acknowledge(&self, flow: &Credits) {
        self.post_bare(&self.datagram(flow, DatagramFlags::empty()));
    }

    /// Sends an acknowledgment that requests the packets in front of `end`.
    pub fn report_gap(&self, flow: &Credits, end: u32) {
        let mut datagram = self.datagram(flow, DatagramFlags::GAP);
        datagram.psn = end;
        self.post_bare(&datagram);
    }

    /// Requests an immediate acknowledgment, once for the packets sent so far.
    pub fn request_ack(&mut self, flow: &Credits) {
        let last = self.base.wrapping_add(self.window.len() as u32);
        if self.asked_for != Some(last) {
            self.asked_for = Some(last);
            self.post_bare(&self.datagram(flow, DatagramFlags::ASKS));
        }
    }

    fn post_bare(&self, datagram: &Datagram) {
        let iface = &*self.iface;
        (iface.outgoing.lock()).send(iface, &self.ah, self.to.qpn, &datagram.encode());
    }
}

/// Bytes of a record in a packet of `size` bytes.
pub const fn segment(size: usize) -> usize {
    size - Datagram::SIZE - HEAD
}

impl Drop for UdTx {
    fn drop(&mut self) {
        let iface = &*self.iface;
        let mut outgoing = iface.outgoing.lock();
        for packet in self.window.drain(..) {
            outgoing.release(packet.buffer, packet.number);
        }
    }
}
