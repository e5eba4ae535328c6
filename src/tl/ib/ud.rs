//! Datagrams that arrive: the worker's queue pair for them, and for each peer what it has not acknowledged yet.
//!
//! Packets of a connection are numbered, the receiver acknowledges all before a number, with whatever it sends or, when
//! it sends nothing, by a datagram without a packet. What is not acknowledged in time is sent again from the first one
//! on: of the others the receiver keeps what it has (`reorder`).

use super::bindings::*;
use super::buffers::{Buffer, BufferPool};
use super::hca::Hca;
use super::iface::{GRH, IbIface};
use super::port::{Port, mtu_bytes};
use super::queues::IbvQp;
use super::sender::Credits;
use super::verbs::made;
use crate::sys::clock;
use crate::wire::address::PortLocator;
use crate::wire::ib_packet::{ASKS, Datagram, GAP, HEAD, PacketHdr, most_packets};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

mod failover;

pub use failover::AltPath;

/// All workers of this library have the same; it keeps other programs' datagrams out.
const QKEY: u32 = 0x7275_6370;
/// Buffers that are made together.
const TOGETHER: usize = 64;
/// One of so many sends tells of its end.
const MODERATION: u64 = 16;
/// Packets that are sent again at once, at most: if one was lost there may be no room for many.
const AGAIN: usize = 8;
/// After this part of the time in which a silent peer is lost it is asked whether its process lives.
const PATIENCE: u64 = 4;
/// Longest wait between two attempts, milliseconds.
const LONGEST_MS: f64 = 1000.0;

/// How a datagram gets to a port.
pub struct AddressHandle {
    hca: Arc<Hca>,
    raw: *mut ibv_ah,
}

// SAFETY: libibverbs is thread-safe; the pointer is not changed.
unsafe impl Send for AddressHandle {}

impl AddressHandle {
    /// # Errors
    /// The device knows no way there.
    pub fn new(port: &Port, to: &PortLocator) -> io::Result<AddressHandle> {
        let mut path = port.path(to);
        // SAFETY: an open device and a description.
        let raw = made(unsafe { (port.hca.verbs.create_ah)(port.hca.pd(), &mut path) })?;
        Ok(AddressHandle {
            hca: port.hca.clone(),
            raw,
        })
    }

    /// Has a send go there, to this queue pair.
    pub fn direct(&self, wr: &mut ibv_send_wr, qpn: u32) {
        wr.wr.ud.ah = self.raw;
        wr.wr.ud.remote_qpn = qpn;
        wr.wr.ud.remote_qkey = QKEY;
    }
}

/// Makes a fresh queue pair for datagrams able to send and receive.
///
/// # Errors
/// What the device says.
pub fn begin(port: &Port, qp: &IbvQp) -> io::Result<()> {
    let mut attr = ibv_qp_attr {
        qp_state: IBV_QPS_INIT,
        pkey_index: port.pkey_index,
        port_num: port.number,
        qkey: QKEY,
        ..Default::default()
    };
    let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
    qp.modify(&mut attr, mask)?;
    attr.qp_state = IBV_QPS_RTR;
    qp.modify(&mut attr, IBV_QP_STATE)?;
    (attr.qp_state, attr.sq_psn) = (IBV_QPS_RTS, 0);
    qp.modify(&mut attr, IBV_QP_STATE | IBV_QP_SQ_PSN)
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        // SAFETY: datagrams that are posted have a copy of it, or the device keeps it until they have left.
        unsafe { (self.hca.verbs.destroy_ah)(self.raw) };
    }
}

/// The sending half of a worker's queue pair for datagrams.
pub struct UdTxQueue {
    /// `None` where the user excludes datagrams: there is room for none.
    pub qp: Option<IbvQp>,
    buffers: BufferPool,
    depth: u64,
    posted: u64,
    ended: u64,
    /// Sends that will tell and have not.
    untold: u32,
    /// Buffers that nobody needs any more but the device, until the send of this number has ended.
    leaving: VecDeque<(u64, Buffer)>,
}

impl UdTxQueue {
    /// Makes a fresh queue pair able to send and receive.
    ///
    /// # Errors
    /// What the device says.
    pub fn new(port: &Port, qp: Option<IbvQp>) -> io::Result<UdTxQueue> {
        let most = port.hca.limits.max_qp_wr.max(1) as u32;
        let depth = match &qp {
            Some(qp) => {
                begin(port, qp)?;
                port.tuning.ud.tx_queue_len.clamp(1, most)
            }
            None => 0,
        };
        Ok(UdTxQueue {
            qp,
            buffers: BufferPool::new(&port.hca, GRH + port.mtu_bytes(), TOGETHER),
            depth: depth.into(),
            posted: 0,
            ended: 0,
            untold: 0,
            leaving: VecDeque::new(),
        })
    }

    /// Of the queue pair; 0: there is none.
    pub fn number(&self) -> u32 {
        self.qp.as_ref().map_or(0, |qp| qp.number)
    }

    /// Sends that can be posted now.
    fn room(&self) -> usize {
        (self.depth - (self.posted - self.ended)) as usize
    }

    pub fn has_ended(&self, number: u64) -> bool {
        self.ended >= number
    }

    /// Posts the first `len` bytes of a buffer: the number of the send. There is room.
    fn post(
        &mut self,
        iface: &IbIface,
        ah: &AddressHandle,
        qpn: u32,
        buffer: Buffer,
        len: usize,
    ) -> Option<u64> {
        let mut sge = ibv_sge {
            addr: buffer.ptr as u64,
            length: len as u32,
            lkey: buffer.lkey,
        };
        self.posted += 1;
        let tells = self.posted % MODERATION == 0 || self.room() <= self.depth as usize / 2;
        let mut wr = ibv_send_wr {
            wr_id: self.posted,
            sg_list: &mut sge,
            num_sge: 1,
            opcode: IBV_WR_SEND,
            send_flags: if tells { IBV_SEND_SIGNALED } else { 0 },
            ..Default::default()
        };
        ah.direct(&mut wr, qpn);
        if !self.qp.as_ref()?.post_send(&mut wr) {
            self.posted -= 1;
            return None;
        }
        if tells {
            self.untold += 1;
            iface.add_signaled(1);
        }
        Some(self.posted)
    }

    /// Sends bytes that nobody sends again by themselves: a greeting, an acknowledgement. False if there is no room.
    pub fn send(&mut self, iface: &IbIface, ah: &AddressHandle, qpn: u32, bytes: &[u8]) -> bool {
        if self.room() == 0 {
            return false;
        }
        let Some(buffer) = self.buffers.get() else {
            return false;
        };
        // SAFETY: a buffer of ours; it has room for the largest packet, and these are shorter.
        unsafe {
            buffer
                .ptr
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
        };
        match self.post(iface, ah, qpn, buffer, bytes.len()) {
            Some(number) => self.leaving.push_back((number, buffer)),
            None => self.buffers.put(buffer),
        }
        true
    }

    /// Nobody sends this buffer again; the send of that number was the last.
    fn release(&mut self, buffer: Buffer, number: u64) {
        match self.has_ended(number) {
            true => self.buffers.put(buffer),
            false => self.leaving.push_back((number, buffer)),
        }
    }

    /// Begins anew with nothing on its way.
    ///
    /// # Errors
    /// What the device says: nothing can be sent or received any more.
    pub fn restart_window(&mut self, iface: &IbIface) -> io::Result<()> {
        self.qp.as_ref().map_or(Ok(()), IbvQp::reset)?;
        iface.add_signaled(-(std::mem::take(&mut self.untold) as i32));
        self.ended = self.posted;
        self.release_all();
        self.qp.as_ref().map_or(Ok(()), |qp| begin(&iface.port, qp))
    }

    /// Everything up to this send, which was to tell, has ended.
    pub fn ended(&mut self, iface: &IbIface, number: u64) {
        // What a queue pair had on its way that was begun anew is told, too.
        if self.has_ended(number) || number > self.posted {
            return;
        }
        self.untold -= 1;
        iface.add_signaled(-1);
        self.ended = number;
        self.release_all();
    }

    /// Buffers of sends that have ended are free.
    fn release_all(&mut self) {
        // In no strict order: what was sent again has a larger number than what came behind it.
        for _ in 0..self.leaving.len() {
            match self.leaving.pop_front() {
                Some((n, buffer)) if n <= self.ended => self.buffers.put(buffer),
                Some(later) => {
                    self.leaving.push_back(later);
                    return;
                }
                None => return,
            }
        }
    }
}

/// A packet that the peer has not acknowledged.
struct UnackedPacket {
    buffer: Buffer,
    len: usize,
    /// Its last send.
    number: u64,
}

/// The sending half of a connection by datagrams. Whoever holds the peer's lock.
pub struct UdTx {
    iface: Arc<IbIface>,
    ah: AddressHandle,
    to: PortLocator,
    /// What the peer wants to be presented.
    number: u32,
    proof: u32,
    /// Bytes of a packet with all headers, and most packets that are not acknowledged.
    size: usize,
    most: usize,
    /// Number of the first packet in `window`.
    base: u32,
    window: VecDeque<UnackedPacket>,
    /// When the first is sent again, coarse milliseconds, and how long to wait after that.
    due: u64,
    wait: f64,
    /// Since when nothing was acknowledged that could be.
    silent_since: u64,
    /// The packet that was sent again because the peer misses it: not twice.
    missed: Option<u32>,
    /// What was sent before this packet may be lost; of it, what is before the second one was sent again.
    doubtful: (u32, u32),
    /// The peer was asked what it has taken of the packets before this one.
    asked_for: Option<u32>,
    /// Whom to ask whether the peer's process lives, and how; 0: nobody.
    pulse: u32,
    ping: Vec<u8>,
    /// By which it goes on when this way fails.
    detours: Option<Box<failover::AltPaths>>,
}

impl UdTx {
    /// To the connection that has this number at the peer and wants that to be presented; `window`: packets that both
    /// ends agree on.
    ///
    /// # Errors
    /// The device knows no way there.
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
            missed: None,
            doubtful: (0, 0),
            asked_for: None,
            pulse: 0,
            ping: Vec::new(),
            detours: None,
        })
    }

    /// Who is asked whether the peer's process lives when it confirms nothing: this queue pair at its port.
    pub fn set_keepalive_port(&mut self, qpn: u32, ping: Vec<u8>) {
        (self.pulse, self.ping) = (qpn, ping);
    }

    /// The peer's process lives: what it does not confirm it will.
    pub fn on_pong(&mut self) {
        self.silent_since = clock::coarse_ms();
    }

    /// Bytes of a record in a packet.
    pub fn segment(&self) -> usize {
        segment(self.size)
    }

    pub fn is_drained(&self) -> bool {
        self.window.is_empty()
    }

    /// When something is to be sent again, coarse milliseconds, unless it is acknowledged.
    pub fn next_due(&self) -> Option<u64> {
        (!self.window.is_empty()).then_some(self.due)
    }

    /// Packets that can be sent now.
    pub fn room(&self) -> usize {
        let left = self.most.saturating_sub(self.window.len());
        left.min(self.iface.outgoing.lock().room())
    }

    fn datagram(&self, flow: &Credits, flags: u8) -> Datagram {
        Datagram {
            to: Datagram::to(self.number, flags),
            proof: self.proof,
            psn: self.base.wrapping_add(self.window.len() as u32),
            ack: flow.take_ack(),
        }
    }

    /// Sends a packet: `fill` writes its `len` bytes. There is room. False: no buffers can be had.
    pub fn send(
        &mut self,
        flow: &Credits,
        head: PacketHdr,
        len: usize,
        fill: impl FnOnce(*mut u8),
    ) -> bool {
        let asks = self.window.len() + 1 >= self.most / 2;
        let datagram = self.datagram(flow, if asks { ASKS } else { 0 });
        let iface = &*self.iface;
        let mut outgoing = iface.outgoing.lock();
        let Some(buffer) = outgoing.buffers.get() else {
            return false;
        };
        let total = Datagram::SIZE + HEAD + len;
        debug_assert!(total <= self.size);
        // SAFETY: a buffer of ours, with room for a packet.
        unsafe {
            let at = buffer.ptr;
            at.copy_from_nonoverlapping(datagram.encode().as_ptr(), Datagram::SIZE);
            let at = at.add(Datagram::SIZE);
            at.copy_from_nonoverlapping(head.encode().as_ptr(), HEAD);
            fill(at.add(HEAD));
        }
        // What the device refuses is as if it were lost.
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

    /// The peer has taken all packets before `ack`. False: it has not, there are not so many.
    pub fn acknowledged(&mut self, ack: u32) -> bool {
        let n = ack.wrapping_sub(self.base) as usize;
        if n > self.window.len() {
            // An older acknowledgement that came late.
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
        self.is_heard();
        let (end, again) = self.doubtful;
        // All that was sent again has come: of the rest nobody would tell that it is missing.
        let behind = |a: u32, b: u32| a.wrapping_sub(b) as i32 > 0;
        if behind(end, ack) && !behind(again, ack) {
            self.retransmit(AGAIN);
        }
        true
    }

    /// The peer misses the first packet.
    pub fn on_gap(&mut self) {
        if self.missed != Some(self.base) {
            self.missed = Some(self.base);
            self.retransmit(AGAIN);
        }
    }

    /// Sends again what is due. False: the peer has been silent for too long.
    pub fn tick(&mut self, now: u64) -> bool {
        if self.window.is_empty() || now < self.due {
            return true;
        }
        let timeout = self.iface.port.tuning.ud.timeout.as_millis() as u64;
        let backoff = self.iface.port.tuning.ud.backoff;
        // While nobody looked here, an answer that had come was not seen either.
        self.silent_since += now - self.due;
        let end = self.silent_since + timeout;
        if now >= end {
            return false;
        }
        self.look_for_alt_path(now);
        if self.pulse != 0 && now - self.silent_since >= self.silence_limit(timeout / PATIENCE) {
            let mut outgoing = self.iface.outgoing.lock();
            outgoing.send(&self.iface, &self.ah, self.pulse, &self.ping);
        }
        self.wait = (self.wait * backoff.max(1.0)).min(self.longest_wait());
        self.due = (now + self.wait as u64 + 1).min(end);
        self.retransmit(1);
        true
    }

    fn retransmit(&mut self, most: usize) {
        let iface = &*self.iface;
        let mut outgoing = iface.outgoing.lock();
        let n = most.min(self.window.len()).min(outgoing.room());
        let end = self.base.wrapping_add(self.window.len() as u32);
        self.doubtful = (end, self.base.wrapping_add(n as u32));
        for packet in self.window.iter_mut().take(n) {
            // The device may still be reading it: nothing is changed in it, but that it is to be acknowledged.
            let ended = outgoing.has_ended(packet.number);
            if ended {
                // SAFETY: the byte of the flags, which the device has read and nobody else has.
                unsafe { *packet.buffer.ptr.add(3) |= ASKS };
            }
            if let Some(number) =
                outgoing.post(iface, &self.ah, self.to.qpn, packet.buffer, packet.len)
            {
                packet.number = number;
            }
        }
    }

    /// Tells what has been taken; `gap`: and that the next one is missing. Where there is no room it is as if it were
    /// lost.
    pub fn acknowledge(&self, flow: &Credits, gap: bool) {
        self.send_bare(flow, if gap { GAP } else { 0 });
    }

    /// Wants to hear at once what the peer has taken, once for as many packets as there are.
    pub fn ask(&mut self, flow: &Credits) {
        let last = self.base.wrapping_add(self.window.len() as u32);
        if self.asked_for != Some(last) {
            self.asked_for = Some(last);
            self.send_bare(flow, ASKS);
        }
    }

    fn send_bare(&self, flow: &Credits, flags: u8) {
        let bytes = self.datagram(flow, flags).encode();
        let iface = &*self.iface;
        iface
            .outgoing
            .lock()
            .send(iface, &self.ah, self.to.qpn, &bytes);
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
