//! The sending half of a connection between two workers' queue pairs: cuts records into packets.

mod imm;

use super::NegotiatedLimits;
use super::bindings::ibv_sge;
use super::iface::IbIface;
use super::rails::{IbRails, RailState};
use super::rc::{AmoDesc, RcEp, ReadDesc, RemoteMem, ZcopyDesc};
use super::ud::{AltPath, UdTx};
use crate::wire::address::PortLocator;
use crate::wire::ib_packet::{BYE, CREDIT, HEAD, MORE, PacketHdr};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Bytes of a transfer that go by one rail at a time: long enough that a work request costs little, short enough that
/// the rails complete at about the same time.
const PIECE: usize = 128 << 10;
/// Maximum bytes of inline data that are prepared on the stack.
const MAX_INLINE: usize = 256;

/// Credits of a connection: packets counted modulo 2^32. The progress thread receives, the thread that holds the peer's
/// lock sends. Relaxed everywhere: these are counts only; the device transfers the packets that they count.
#[derive(Default)]
pub struct Credits {
    /// Packets that the peer has acknowledged.
    taken: AtomicU32,
    /// Packets that were received from the peer, and the number of them that were acknowledged.
    received: AtomicU32,
    acked: AtomicU32,
    /// The peer has requested an immediate acknowledgment.
    ack_requested: AtomicBool,
}

impl Credits {
    /// Counts one more packet received from the peer.
    #[inline(always)]
    pub fn receive(&self) {
        let n = self.received.load(Ordering::Relaxed);
        self.received.store(n.wrapping_add(1), Ordering::Relaxed);
    }

    /// Records that the peer has requested an acknowledgment.
    pub fn request_ack(&self) {
        self.ack_requested.store(true, Ordering::Relaxed);
    }

    /// Returns the number of packets received, which the caller sends to the peer; they count as acknowledged.
    #[inline(always)]
    pub fn take_ack(&self) -> u32 {
        let n = self.received.load(Ordering::Relaxed);
        self.acked.store(n, Ordering::Relaxed);
        self.ack_requested.store(false, Ordering::Relaxed);
        n
    }

    /// Packets received that were not acknowledged.
    #[inline(always)]
    pub fn unacked(&self) -> u32 {
        let acked = self.acked.load(Ordering::Relaxed);
        self.received.load(Ordering::Relaxed).wrapping_sub(acked)
    }

    /// Whether enough packets are unacknowledged that an acknowledgment is to be sent even without a packet. `window`:
    /// packets that the peer may send.
    #[inline(always)]
    pub fn is_ack_due(&self, window: u32) -> bool {
        self.unacked() >= window / 2
    }

    /// Whether an acknowledgment is due by [`is_ack_due`](Self::is_ack_due) or was requested by the peer.
    #[inline(always)]
    pub fn is_ack_urgent(&self, window: u32) -> bool {
        self.is_ack_due(window) || self.ack_requested.load(Ordering::Relaxed)
    }

    /// Handles credits from the peer: the lower 16 bits of the number of packets that it has received.
    #[inline(always)]
    pub fn credit(&self, low: u16) {
        let taken = self.taken.load(Ordering::Relaxed);
        let more = low.wrapping_sub(taken as u16);
        // Packets of a connection arrive in order: a smaller value than before has wrapped.
        self.taken
            .store(taken.wrapping_add(more.into()), Ordering::Relaxed);
    }
}

/// With a tag byte of its own, which is cheaper to read.
#[repr(u8)]
enum RcOrUd {
    Rc {
        rc_ep: RcEp,
        sent: u32,
        limits: NegotiatedLimits,
    },
    Ud(UdTx),
}

/// The sending half of a connection, used by the thread that holds the peer's lock.
pub struct IbSender {
    iface: Arc<IbIface>,
    flow: Arc<Credits>,
    transport: RcOrUd,
    /// Buffer for a record that needs several packets.
    record: Vec<u8>,
    /// The device has refused a send, see [`fail`](Self::fail); its completions report the consequence.
    broken: bool,
    remote_port: usize,
    most_at_once: usize,
    /// Rails to the same peer, through other ports.
    pub rails: IbRails,
}

impl IbSender {
    /// Creates a sender over a queue pair of the connection's own (RC).
    pub fn over_rc(
        iface: Arc<IbIface>,
        flow: Arc<Credits>,
        rc_ep: RcEp,
        limits: NegotiatedLimits,
        remote_port: usize,
    ) -> IbSender {
        let transport = RcOrUd::Rc {
            rc_ep,
            sent: 0,
            limits,
        };
        let mut sender = Self::new(iface, flow, transport);
        sender.remote_port = remote_port;
        sender
    }

    /// Creates a sender over datagrams (UD).
    pub fn over_ud(iface: Arc<IbIface>, flow: Arc<Credits>, ud_tx: UdTx) -> IbSender {
        Self::new(iface, flow, RcOrUd::Ud(ud_tx))
    }

    fn new(iface: Arc<IbIface>, flow: Arc<Credits>, transport: RcOrUd) -> IbSender {
        IbSender {
            most_at_once: iface.port.tuning.rc.seg_size,
            iface,
            flow,
            transport,
            record: Vec::new(),
            broken: false,
            remote_port: 0,
            rails: IbRails::default(),
        }
    }

    /// The name of the transport.
    pub fn transport(&self) -> &'static str {
        match self.is_connected() {
            true => "rc_verbs",
            false => "ud_verbs",
        }
    }

    /// Whether the connection has a queue pair of its own (RC).
    pub fn is_connected(&self) -> bool {
        matches!(self.transport, RcOrUd::Rc { .. })
    }

    /// Bytes of a record per packet.
    #[inline(always)]
    fn segment(&self) -> usize {
        match &self.transport {
            RcOrUd::Rc { limits, .. } => limits.packet - HEAD,
            RcOrUd::Ud(ud_tx) => ud_tx.segment(),
        }
    }

    /// Number of packets that can be sent now.
    #[inline(always)]
    fn room(&self) -> usize {
        match &self.transport {
            RcOrUd::Rc {
                rc_ep,
                sent,
                limits,
            } => {
                let flying = sent.wrapping_sub(self.flow.taken.load(Ordering::Relaxed));
                let window = limits.window.saturating_sub(flying);
                rc_ep.room().min(window as usize)
            }
            RcOrUd::Ud(ud_tx) => ud_tx.room(),
        }
    }

    /// Whether `packets` packets can be sent now.
    #[inline(always)]
    fn has_space(&mut self, packets: usize) -> bool {
        if self.room() >= packets {
            return true;
        }
        if let RcOrUd::Rc { rc_ep, .. } = &mut self.transport {
            let _ = rc_ep.has_room(packets);
        }
        false
    }

    /// Sends a record of up to [`TINY`](crate::sys::copy::TINY) bytes within the inline budget.
    ///
    /// # Safety
    /// [`has_inline_budget`](Self::has_inline_budget) is true; `len` bytes at `from` are readable.
    #[inline(always)]
    pub unsafe fn send_tiny(&mut self, kind: u8, imm: u64, from: *const u8, len: usize) {
        let RcOrUd::Rc { rc_ep, sent, .. } = &mut self.transport else {
            return;
        };
        let head = PacketHdr {
            len,
            kind,
            aux: 0,
            credit: self.flow.take_ack() as u16,
            imm,
        };
        *sent = sent.wrapping_add(1);
        // SAFETY: by the caller, `from` is readable for `len` bytes, and the inline budget is not used up.
        if !unsafe { rc_ep.post_tiny(head.encode(), from, len) } {
            self.fail();
        }
    }

    /// The RC queue pair, if it has inline budget. A caller to which it reports that the device refuses calls
    /// [`fail`](Self::fail).
    #[inline(always)]
    pub fn ready_rc(&mut self) -> Option<&mut RcEp> {
        self.rc().filter(|rc_ep| rc_ep.has_inline_budget())
    }

    /// The RC queue pair with inline budget and a free slot, for an operation that has to be reported as complete.
    #[inline(always)]
    pub fn rc_with_slot(&mut self) -> Option<&mut RcEp> {
        if !self.has_inline_budget() {
            self.open();
            if !self.has_inline_budget() {
                return None;
            }
        }
        let rc_ep = self.rc()?;
        rc_ep.has_op_slot().then_some(rc_ep)
    }

    /// The RC queue pair, if the connection has one.
    #[inline(always)]
    pub fn rc(&mut self) -> Option<&mut RcEp> {
        match &mut self.transport {
            RcOrUd::Rc { rc_ep, .. } => Some(rc_ep),
            RcOrUd::Ud(_) => None,
        }
    }

    /// Stops sending after the device has refused a send: the peer would take the packets behind it for the next ones.
    #[cold]
    #[inline(never)]
    pub fn fail(&mut self) {
        self.broken = true;
        if let RcOrUd::Rc { rc_ep, .. } = &mut self.transport {
            rc_ep.revoke_inline_budget();
        }
    }

    /// Whether the inline budget is not used up.
    #[inline(always)]
    pub fn has_inline_budget(&self) -> bool {
        match &self.transport {
            RcOrUd::Rc { rc_ep, .. } => rc_ep.has_inline_budget(),
            RcOrUd::Ud(_) => false,
        }
    }

    /// Refills the inline budget after another send, if it is used up.
    #[inline(always)]
    fn refill_inline_budget(&mut self) {
        if !self.has_inline_budget() {
            self.open();
        }
    }

    #[inline(never)]
    fn open(&mut self) {
        let packets = self.room();
        match &mut self.transport {
            RcOrUd::Rc { rc_ep, .. } if !self.broken => rc_ep.refill_inline_budget(packets),
            _ => {}
        }
    }

    /// Whether a record of `len` bytes, or any shorter one, can be sent now.
    pub fn has_room(&mut self, len: usize) -> bool {
        let packets = len.div_ceil(self.segment()).max(1);
        !self.broken
            && self.has_space(packets)
            && (!self.is_connected() || self.iface.packets.lock().reserve(packets))
    }

    /// Sends a record of `len` bytes, which `fill` writes. False: there is no room now, and `fill` was not called.
    #[inline]
    pub fn send(
        &mut self,
        kind: u8,
        aux: u8,
        imm: u64,
        len: usize,
        fill: impl FnOnce(*mut u8),
    ) -> bool {
        let head = PacketHdr {
            len,
            kind,
            aux,
            credit: 0,
            imm,
        };
        if self.broken {
            return false;
        }
        if len <= self.segment() {
            let sent = self.has_space(1) && self.packet(head, len, fill);
            self.refill_inline_budget();
            return sent;
        }
        self.has_room(len) && self.send_long(head, fill)
    }

    /// Sends a record that needs several packets.
    #[inline(never)]
    fn send_long(&mut self, head: PacketHdr, fill: impl FnOnce(*mut u8)) -> bool {
        let mut record = std::mem::take(&mut self.record);
        record.clear();
        record.reserve(head.len);
        fill(record.spare_capacity_mut().as_mut_ptr().cast());
        // SAFETY: reserved, and `fill` has written the bytes.
        unsafe { record.set_len(head.len) };
        let mut head = head;
        for part in record.chunks(self.segment()) {
            let sent = self.packet(head, part.len(), |to| {
                // SAFETY: the packet has room for the part.
                unsafe { to.copy_from_nonoverlapping(part.as_ptr(), part.len()) };
            });
            // The caller has checked the room; an incomplete record cannot be continued.
            if !sent {
                self.fail();
            }
            head = PacketHdr {
                len: 0,
                kind: MORE,
                ..head
            };
        }
        self.record = record;
        true
    }

    /// Sends one packet; the caller has checked that there is room. False: nothing was sent, and `fill` was not called.
    #[inline(always)]
    fn packet(&mut self, head: PacketHdr, len: usize, fill: impl FnOnce(*mut u8)) -> bool {
        let total = HEAD + len;
        match &mut self.transport {
            RcOrUd::Rc { rc_ep, sent, .. } => {
                let credit = self.flow.take_ack() as u16;
                let head = PacketHdr { credit, ..head }.encode();
                let taken = if total <= (rc_ep.qp.max_inline as usize).min(MAX_INLINE) {
                    let mut bytes = std::mem::MaybeUninit::<[u8; MAX_INLINE]>::uninit();
                    let at = bytes.as_mut_ptr().cast::<u8>();
                    // SAFETY: the array has room for the header and `len` bytes, all of which are written.
                    let bytes = unsafe {
                        at.copy_from_nonoverlapping(head.as_ptr(), HEAD);
                        fill(at.add(HEAD));
                        std::slice::from_raw_parts(at, total)
                    };
                    rc_ep.post_inline(bytes)
                } else {
                    let Some(buffer) = self.iface.packets.lock().get() else {
                        return false;
                    };
                    // SAFETY: a buffer has room for the header and a segment.
                    unsafe {
                        buffer.ptr.copy_from_nonoverlapping(head.as_ptr(), HEAD);
                        fill(buffer.ptr.add(HEAD));
                    }
                    rc_ep.post_buffer(buffer, total)
                };
                *sent = sent.wrapping_add(1);
                if !taken {
                    self.fail();
                }
                true
            }
            RcOrUd::Ud(ud_tx) => ud_tx.send(&self.flow, head, len, fill),
        }
    }

    /// Index of the peer's port at the other end, among those of its address.
    #[inline(always)]
    pub fn remote_port(&self) -> usize {
        self.remote_port
    }

    /// Maximum bytes that one write or read moves.
    #[inline(always)]
    pub fn most_at_once(&self) -> usize {
        self.most_at_once
    }

    /// Writes up to a buffer's worth of bytes into the peer's memory; returns how many of the `len` bytes, which `fill`
    /// writes from the front. 0: there is no room now, or no RC queue pair; `fill` was not called.
    pub fn write(&mut self, to: RemoteMem, len: usize, fill: impl FnOnce(*mut u8, usize)) -> usize {
        let n = len.min(self.most_at_once());
        let RcOrUd::Rc { rc_ep, .. } = &mut self.transport else {
            return 0;
        };
        if self.broken || !rc_ep.has_room(1) {
            return 0;
        }
        if n <= (rc_ep.qp.max_inline as usize).min(MAX_INLINE) {
            let mut bytes = std::mem::MaybeUninit::<[u8; MAX_INLINE]>::uninit();
            fill(bytes.as_mut_ptr().cast(), n);
            // SAFETY: `fill` has written the `n` bytes, which are at most MAX_INLINE.
            let bytes = unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), n) };
            if !rc_ep.write_inline(bytes, to) {
                self.fail();
            }
            self.refill_inline_budget();
            return n;
        }
        let Some(buffer) = self.iface.packets.lock().get() else {
            return 0;
        };
        fill(buffer.ptr, n);
        if !rc_ep.write_buffer(buffer, n, to) {
            self.fail();
        }
        self.refill_inline_budget();
        n
    }

    /// Writes bytes that fit into one buffer and are too long for inline data, within the inline budget. False: the
    /// length is not so, or the inline budget is used up.
    ///
    /// # Safety
    /// `len` bytes at `from` are readable.
    #[inline(always)]
    pub unsafe fn write_short(&mut self, to: RemoteMem, from: *const u8, len: usize) -> bool {
        let fits = len <= self.most_at_once;
        let Some(rc_ep) = self.ready_rc().filter(|_| fits) else {
            return false;
        };
        if len <= (rc_ep.qp.max_inline as usize).min(MAX_INLINE) {
            return false;
        }
        let Some(Some(buffer)) = rc_ep.through(len) else {
            return false;
        };
        // SAFETY: by the caller, `from` is readable; the buffer has room for `len` bytes.
        unsafe { buffer.ptr.copy_from_nonoverlapping(from, len) };
        if !rc_ep.write_buffer(buffer, len, to) {
            self.fail();
        }
        true
    }

    /// Reads up to a buffer's worth of the `len` bytes in the peer's memory; returns how many.
    /// [`on_send_completion`](Self::on_send_completion) reports `owner` when they are copied. 0: there is no room now,
    /// or no RC queue pair.
    pub fn read(
        &mut self,
        from: RemoteMem,
        into: *mut u8,
        len: usize,
        owner: *mut c_void,
    ) -> usize {
        let n = len.min(self.most_at_once());
        let RcOrUd::Rc { rc_ep, .. } = &mut self.transport else {
            return 0;
        };
        if self.broken || !rc_ep.has_room(1) {
            return 0;
        }
        let Some(buffer) = self.iface.packets.lock().get() else {
            return 0;
        };
        let read = ReadDesc {
            into,
            len: n,
            owner,
            atomic: false,
        };
        if !rc_ep.read(buffer, read, from, n == len) {
            self.fail();
        }
        n
    }

    /// Whether the device of this process can execute atomic operations at the peer's.
    pub fn has_atomics(&self) -> bool {
        self.is_connected() && self.iface.port.hca.has_atomics()
    }

    /// Executes an atomic operation on 8 bytes of the peer's memory; the old value goes to `into`, and
    /// [`on_send_completion`](Self::on_send_completion) reports `owner` then. Both are null if it is not wanted. False:
    /// there is no room now, or no RC queue pair.
    pub fn atomic(
        &mut self,
        step: AmoDesc,
        at: RemoteMem,
        into: *mut u8,
        owner: *mut c_void,
    ) -> bool {
        let RcOrUd::Rc { rc_ep, .. } = &mut self.transport else {
            return false;
        };
        if self.broken || !rc_ep.has_room(1) {
            return false;
        }
        let Some(buffer) = self.iface.packets.lock().get() else {
            return false;
        };
        let old = ReadDesc {
            into,
            len: size_of::<u64>(),
            owner,
            atomic: true,
        };
        if !rc_ep.atomic(buffer, step, old, at) {
            self.fail();
        }
        true
    }

    /// Index of the port in use among this worker's.
    pub fn local_port(&self) -> usize {
        match &self.transport {
            RcOrUd::Rc { .. } => self.iface.index.into(),
            RcOrUd::Ud(ud_tx) => ud_tx.local_port(),
        }
    }

    /// Index of the port of the connection's RC queue pair, if it has one.
    pub fn main_port(&self) -> Option<usize> {
        self.is_connected().then(|| self.iface.index.into())
    }

    /// Sets the paths of failover for datagrams; long transfers then go by rails only.
    pub fn set_alt_paths(&mut self, paths: Vec<AltPath>) {
        if let RcOrUd::Ud(ud_tx) = &mut self.transport {
            ud_tx.set_alt_paths(paths);
            self.rails.alone = true;
        }
    }

    /// Follows the peer to this port; its message about that has arrived by interface `iface`.
    pub fn follow_peer_port(&mut self, iface: usize, port: &PortLocator) {
        if let RcOrUd::Ud(ud_tx) = &mut self.transport {
            ud_tx.follow_peer_port(iface, port);
        }
    }

    /// Whether devices can move long messages, provided that memory can be registered and, with datagrams, rails can be
    /// created.
    pub fn zcopy_capable(&self) -> bool {
        self.is_connected() || self.rails.alone
    }

    /// Moves up to one work request's bytes between user memory and the peer's memory, without a copy; returns how
    /// many. [`on_send_completion`](Self::on_send_completion) reports the owner, once for each work request; the peer
    /// gets `word` as an immediate after the last bytes of a write, which counts as a packet. 0: there is no room now,
    /// or no RC queue pair.
    pub fn post_zcopy(&mut self, here: ZcopyDesc, there: RemoteMem, word: Option<u32>) -> usize {
        let n = here.len.min(self.iface.port.longest);
        let last = n == here.len;
        let word = word.filter(|_| last);
        let Some(rc_ep) = self.rc_for_zcopy(word.is_some()) else {
            return 0;
        };
        if !rc_ep.post_zcopy(ZcopyDesc { len: n, ..here }, there, last, word) {
            self.fail();
        }
        n
    }

    /// [`post_zcopy`](Self::post_zcopy) for memory in several ranges, within [`zcopy_limits`](Self::zcopy_limits).
    /// `last`: they are the last ones of the transfer. False: there is no room now, or no RC queue pair.
    pub fn post_zcopy_iov(
        &mut self,
        here: ZcopyDesc,
        pieces: &mut [ibv_sge],
        there: RemoteMem,
        last: bool,
        word: Option<u32>,
    ) -> bool {
        let word = word.filter(|_| last);
        let Some(rc_ep) = self.rc_for_zcopy(word.is_some()) else {
            return false;
        };
        if !rc_ep.post_zcopy_iov(here, pieces, there, last, word) {
            self.fail();
        }
        true
    }

    /// The RC queue pair, if it has room for a work request, which counts as a packet if it carries an immediate.
    fn rc_for_zcopy(&mut self, word: bool) -> Option<&mut RcEp> {
        if self.broken || word && !self.has_space(1) {
            return None;
        }
        let RcOrUd::Rc { rc_ep, sent, .. } = &mut self.transport else {
            return None;
        };
        if !rc_ep.has_room(1) {
            return None;
        }
        *sent = sent.wrapping_add(u32::from(word));
        Some(rc_ep)
    }

    /// Maximum number of memory ranges that one work request names, and of bytes that it moves.
    pub fn zcopy_limits(&self) -> (usize, usize) {
        let pieces = match &self.transport {
            RcOrUd::Rc { rc_ep, .. } => rc_ep.qp.max_pieces as usize,
            RcOrUd::Ud(_) => 0,
        };
        (pieces, self.iface.port.longest)
    }

    /// Moves one piece of user memory by the one of at most `most` queue pairs, that of the connection, if it has one,
    /// and its rails, that will have completed its transfers first; returns the bytes. `keys`: the local and the remote
    /// key, for a port of this worker and one of the peer's; `None`: those ports cannot be used. 0: there is no room
    /// now.
    pub fn post_striped(
        &mut self,
        here: ZcopyDesc,
        addr: u64,
        most: usize,
        keys: impl Fn(usize, usize) -> Option<(u32, u32)>,
    ) -> usize {
        if self.broken {
            return 0;
        }
        let own = match &mut self.transport {
            RcOrUd::Rc { rc_ep, .. } => Some((rc_ep, self.remote_port, None)),
            RcOrUd::Ud(_) => None,
        };
        let rails = self.rails.lines.iter_mut();
        let rails = rails.filter(|rail| rail.state == RailState::Open);
        let rails = rails.map(|rail| (&mut rail.rc_ep, rail.remote_port, Some(&mut rail.state)));
        let best = (own.into_iter().chain(rails).take(most))
            .filter_map(|(rc_ep, port, state)| {
                let keys = keys(rc_ep.local_port(), port)?;
                rc_ep.has_room(1).then_some((rc_ep, state, keys))
            })
            .min_by_key(|(rc_ep, ..)| {
                let (bytes, mbps) = rc_ep.load();
                (bytes + PIECE as u64).saturating_mul(1000) / u64::from(mbps)
            });
        let Some((rc_ep, state, (key, remote))) = best else {
            return 0;
        };
        let len = here.len.min(PIECE).min(rc_ep.longest());
        // Each piece is signaled: no message behind it on the same queue pair has a completion that covers it.
        let there = RemoteMem { addr, key: remote };
        if !rc_ep.post_zcopy(ZcopyDesc { len, key, ..here }, there, true, None) {
            match state {
                // The piece counts as one of the rail; other queue pairs move all pieces of the rail when it is closed.
                Some(state) => {
                    *state = RailState::Refused;
                    let rail = (rc_ep.local_port(), rc_ep.qp.number);
                    self.rails.refused.push(rail);
                }
                None => self.fail(),
            }
        }
        len
    }

    /// The owners of user memory that the device accesses, once for each work request.
    pub fn zcopy_owners(&self) -> impl Iterator<Item = *mut c_void> {
        self.rcs().flat_map(|rc_ep| rc_ep.zcopy_owners())
    }

    /// The RC queue pairs of the connection, rails included.
    fn rcs(&self) -> impl Iterator<Item = &RcEp> {
        let own = match &self.transport {
            RcOrUd::Rc { rc_ep, .. } => Some(rc_ep),
            RcOrUd::Ud(_) => None,
        };
        let rails = self.rails.lines.iter().map(|rail| &rail.rc_ep);
        own.into_iter().chain(rails)
    }

    /// Handles a fence at the head of the pending queue: transfers by rails in front of it have to complete first.
    /// True: they have; transfers by rails behind the fence then wait for the connection's sends in front of it, until
    /// [`is_behind_fence`](Self::is_behind_fence).
    pub fn pass_fence(&mut self) -> bool {
        let drained = self.rails.is_drained();
        if drained {
            self.rails.behind = match &self.transport {
                RcOrUd::Rc { rc_ep, .. } => Some(rc_ep.position()),
                RcOrUd::Ud(_) => self.rails.alone.then_some(0),
            };
        }
        drained
    }

    /// Whether everything in front of the last fence has completed.
    pub fn is_behind_fence(&mut self) -> bool {
        let Some(behind) = self.rails.behind else {
            return true;
        };
        let past = match &mut self.transport {
            RcOrUd::Rc { rc_ep, .. } => rc_ep.is_past(behind),
            // The peer has executed what it has acknowledged.
            RcOrUd::Ud(ud_tx) => {
                ud_tx.request_ack(&self.flow);
                ud_tx.is_drained()
            }
        };
        if past {
            self.rails.behind = None;
        }
        past
    }

    /// Makes all later sends and writes take effect after the reads before them.
    pub fn fence(&mut self) {
        if let RcOrUd::Rc { rc_ep, .. } = &mut self.transport {
            rc_ep.fence();
        }
    }

    /// Whether [`flush_marker`](Self::flush_marker) can be used: a send has not completed, and an RC queue pair will
    /// report when it has.
    #[inline(always)]
    pub fn can_flush_marker(&self) -> bool {
        match &self.transport {
            RcOrUd::Rc { rc_ep, .. } => {
                !self.broken && !rc_ep.is_drained() && self.rails.is_drained()
            }
            RcOrUd::Ud(_) => false,
        }
    }

    /// Makes [`on_send_completion`](Self::on_send_completion) report `owner` when all that was accepted has arrived.
    /// Requires [`can_flush_marker`](Self::can_flush_marker).
    #[inline(always)]
    pub fn flush_marker(&mut self, owner: *mut c_void) {
        if let RcOrUd::Rc { rc_ep, .. } = &mut self.transport {
            rc_ep.flush_marker(owner);
        }
    }

    /// Detaches the owners of reads and flush markers for which `wanted` is true; returns them.
    pub fn detach_owner(&mut self, wanted: impl Fn(*mut c_void) -> bool) -> Vec<*mut c_void> {
        let mut owners = Vec::new();
        if let RcOrUd::Rc { rc_ep, .. } = &mut self.transport {
            rc_ep.detach_owner(wanted, |owner| owners.push(owner));
        }
        owners.dedup();
        owners
    }

    /// The owners of operations, once for each read, flush marker or zero-copy work request.
    pub fn owners(&self) -> impl Iterator<Item = *mut c_void> {
        self.rcs().flat_map(|rc_ep| rc_ep.owners())
    }

    /// Whether all that was accepted has arrived.
    pub fn is_drained(&self) -> bool {
        self.broken
            || match &self.transport {
                RcOrUd::Rc { rc_ep, .. } => rc_ep.is_drained() && self.rails.is_drained(),
                RcOrUd::Ud(ud_tx) => ud_tx.is_drained() && self.rails.is_drained(),
            }
    }

    /// [`is_drained`](Self::is_drained) for a caller that waits for it: also requests the completion or acknowledgment.
    pub fn drain(&mut self) -> bool {
        if self.is_drained() {
            return true;
        }
        match &mut self.transport {
            RcOrUd::Rc { rc_ep, .. } => rc_ep.post_signaled(),
            RcOrUd::Ud(ud_tx) => ud_tx.request_ack(&self.flow),
        }
        false
    }

    /// Sends the peer an acknowledgment.
    pub fn acknowledge(&mut self) {
        match &mut self.transport {
            RcOrUd::Rc { rc_ep, .. } => {
                // Without room the next packet that is received causes another try.
                if rc_ep.has_room(1) {
                    let head = PacketHdr {
                        len: 0,
                        kind: CREDIT,
                        aux: 0,
                        credit: self.flow.take_ack() as u16,
                        imm: 0,
                    };
                    if !rc_ep.post_inline(&head.encode()) {
                        self.fail();
                    }
                }
            }
            RcOrUd::Ud(ud_tx) => ud_tx.acknowledge(&self.flow),
        }
    }

    /// Requests the datagrams from the next one that is expected to the one in front of `end`.
    pub fn report_gap(&mut self, end: u32) {
        if let RcOrUd::Ud(ud_tx) = &mut self.transport {
            ud_tx.report_gap(&self.flow, end);
        }
    }

    /// Whether the device has refused a send. No completion may ever report the consequence.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Checks that the peer is alive: sends something that it has to acknowledge.
    pub fn probe(&mut self) {
        match &mut self.transport {
            // If only unsignaled sends are outstanding no completion would report a failure.
            RcOrUd::Rc { rc_ep, .. } if !rc_ep.has_signaled() => {
                rc_ep.probe();
            }
            RcOrUd::Ud(ud_tx) if ud_tx.is_drained() => {
                let head = PacketHdr {
                    len: 0,
                    kind: CREDIT,
                    aux: 0,
                    credit: 0,
                    imm: 0,
                };
                if ud_tx.room() > 0 {
                    ud_tx.send(&self.flow, head, 0, |_| {});
                }
            }
            // The device, or the retransmission timer of datagrams, already waits for the peer.
            RcOrUd::Rc { .. } | RcOrUd::Ud(_) => {}
        }
    }

    /// Sends the disconnect packet, behind everything else.
    pub fn send_disconnect(&mut self) {
        self.send(BYE, 0, 0, 0, |_| {});
    }

    /// Handles the completion of the send with this number. `done` gets each owner, once for each read, flush marker or
    /// zero-copy work request.
    #[inline(always)]
    pub fn on_send_completion(&mut self, number: u64, done: impl FnMut(*mut c_void)) {
        if let RcOrUd::Rc { rc_ep, .. } = &mut self.transport {
            rc_ep.on_send_completion(number, done);
        }
    }

    /// Handles the peer's acknowledgment of all datagrams before `ack`; `gap`: it comes with a report of missing ones.
    /// False: the number is invalid.
    pub fn acknowledged(&mut self, ack: u32, gap: bool) -> bool {
        match &mut self.transport {
            RcOrUd::Ud(ud_tx) => ud_tx.acknowledged(ack, gap),
            RcOrUd::Rc { .. } => true,
        }
    }

    /// Handles a reply to a liveness probe: the peer's process lives, though it acknowledges nothing.
    pub fn on_pong(&mut self) {
        if let RcOrUd::Ud(ud_tx) = &mut self.transport {
            ud_tx.on_pong();
        }
    }

    /// Handles the peer's report that the packets from the first unacknowledged one to the one in front of `end` are
    /// missing.
    pub fn on_gap(&mut self, end: u32) {
        if let RcOrUd::Ud(ud_tx) = &mut self.transport {
            ud_tx.on_gap(end);
        }
    }

    /// When [`tick`](Self::tick) has something to do, coarse milliseconds; `None`: never, the device retransmits by
    /// itself.
    pub fn next_due(&self) -> Option<u64> {
        match &self.transport {
            RcOrUd::Ud(ud_tx) => ud_tx.next_due(),
            RcOrUd::Rc { .. } => None,
        }
    }

    /// Does what is due at this time, coarse milliseconds. False: the peer has been silent for longer than the timeout.
    pub fn tick(&mut self, now: u64) -> bool {
        match &mut self.transport {
            RcOrUd::Ud(ud_tx) => ud_tx.tick(now),
            RcOrUd::Rc { .. } => true,
        }
    }
}
