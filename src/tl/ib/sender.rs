//! The sending half of a connection between two workers' queue pairs: records become packets.

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

/// What is shared out to rails at a time, bytes: long enough that a work request costs little, short enough that lines
/// end together.
const PIECE: usize = 128 << 10;
/// Longest work request that is put together on the stack, bytes.
const MAX_INLINE: usize = 256;

/// What the two halves of a connection tell each other: packets counted modulo 2^32. The progressing thread receives,
/// whoever holds the peer's lock sends. Relaxed everywhere: they are counts, what they count is handed over by the
/// device.
#[derive(Default)]
pub struct Credits {
    /// Packets of ours that the peer has taken.
    taken: AtomicU32,
    /// Packets of the peer's that we have taken, and of how many we have told.
    received: AtomicU32,
    told: AtomicU32,
    /// The peer wants to be told at once.
    asked: AtomicBool,
}

impl Credits {
    /// One more packet was taken from the peer.
    #[inline(always)]
    pub fn receive(&self) {
        let n = self.received.load(Ordering::Relaxed);
        self.received.store(n.wrapping_add(1), Ordering::Relaxed);
    }

    /// The peer wants to hear what has been taken.
    pub fn request_ack(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Packets of the peer's that were taken; whoever asks tells the peer.
    #[inline(always)]
    pub fn take_ack(&self) -> u32 {
        let n = self.received.load(Ordering::Relaxed);
        self.told.store(n, Ordering::Relaxed);
        self.asked.store(false, Ordering::Relaxed);
        n
    }

    /// Packets that the peer has not been told of.
    #[inline(always)]
    pub fn unacked(&self) -> u32 {
        let told = self.told.load(Ordering::Relaxed);
        self.received.load(Ordering::Relaxed).wrapping_sub(told)
    }

    /// Whether so much is untold that the peer is to be told, though nothing else is sent. `window`: packets that it
    /// may send.
    #[inline(always)]
    pub fn is_ack_due(&self, window: u32) -> bool {
        self.unacked() >= window / 2
    }

    /// As [`is_ack_due`](Self::is_ack_due), or the peer wants to be told.
    #[inline(always)]
    pub fn is_ack_urgent(&self, window: u32) -> bool {
        self.is_ack_due(window) || self.asked.load(Ordering::Relaxed)
    }

    /// The peer tells the lower half of what it has taken.
    #[inline(always)]
    pub fn credit(&self, low: u16) {
        let taken = self.taken.load(Ordering::Relaxed);
        let more = low.wrapping_sub(taken as u16);
        // Packets by a connection arrive in order: what is less than before has made a turn.
        self.taken
            .store(taken.wrapping_add(more.into()), Ordering::Relaxed);
    }
}

/// The tag is a byte of its own, which costs less to look at.
#[repr(u8)]
enum RcOrUd {
    Rc {
        line: RcEp,
        sent: u32,
        limits: NegotiatedLimits,
    },
    Ud(UdTx),
}

/// One thread at a time: whoever holds the peer's lock.
pub struct IbSender {
    iface: Arc<IbIface>,
    flow: Arc<Credits>,
    way: RcOrUd,
    /// Where a record is put together that takes several packets.
    record: Vec<u8>,
    /// The device refused something: its completions say what comes of it. See [`fail`](Self::fail).
    broken: bool,
    remote_port: usize,
    most_at_once: usize,
    /// To the same peer, through other ports.
    pub rails: IbRails,
}

impl IbSender {
    /// By a queue pair of its own.
    pub fn over_rc(
        iface: Arc<IbIface>,
        flow: Arc<Credits>,
        line: RcEp,
        limits: NegotiatedLimits,
        remote_port: usize,
    ) -> IbSender {
        let way = RcOrUd::Rc {
            line,
            sent: 0,
            limits,
        };
        let mut sender = Self::new(iface, flow, way);
        sender.remote_port = remote_port;
        sender
    }

    /// By datagrams.
    pub fn over_ud(iface: Arc<IbIface>, flow: Arc<Credits>, line: UdTx) -> IbSender {
        Self::new(iface, flow, RcOrUd::Ud(line))
    }

    fn new(iface: Arc<IbIface>, flow: Arc<Credits>, way: RcOrUd) -> IbSender {
        IbSender {
            most_at_once: iface.port.tuning.rc.seg_size,
            iface,
            flow,
            way,
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

    /// Whether a queue pair is its own.
    pub fn is_connected(&self) -> bool {
        matches!(self.way, RcOrUd::Rc { .. })
    }

    /// Bytes of a record that a packet takes.
    #[inline(always)]
    fn segment(&self) -> usize {
        match &self.way {
            RcOrUd::Rc { limits, .. } => limits.packet - HEAD,
            RcOrUd::Ud(line) => line.segment(),
        }
    }

    /// Packets that can be sent now.
    #[inline(always)]
    fn room(&self) -> usize {
        match &self.way {
            RcOrUd::Rc { line, sent, limits } => {
                let flying = sent.wrapping_sub(self.flow.taken.load(Ordering::Relaxed));
                let window = limits.window.saturating_sub(flying);
                line.room().min(window as usize)
            }
            RcOrUd::Ud(line) => line.room(),
        }
    }

    /// Whether so many packets can be sent now.
    #[inline(always)]
    fn has_space(&mut self, packets: usize) -> bool {
        if self.room() >= packets {
            return true;
        }
        if let RcOrUd::Rc { line, .. } = &mut self.way {
            let _ = line.has_room(packets);
        }
        false
    }

    /// The shortest way, for records of up to [`TINY`](crate::sys::copy::TINY) bytes.
    ///
    /// # Safety
    /// [`has_inline_budget`](Self::has_inline_budget); `len` bytes are readable.
    #[inline(always)]
    pub unsafe fn send_tiny(&mut self, kind: u8, imm: u64, from: *const u8, len: usize) {
        let RcOrUd::Rc { line, sent, .. } = &mut self.way else {
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
        // SAFETY: passed on.
        if !unsafe { line.post_tiny(head.encode(), from, len) } {
            self.fail();
        }
    }

    /// The queue pair of its own, if the shortest way is open. Who hears from it that the device refuses tells
    /// [`fail`](Self::fail).
    #[inline(always)]
    pub fn ready_rc(&mut self) -> Option<&mut RcEp> {
        self.rc().filter(|line| line.has_inline_budget())
    }

    /// As [`ready_rc`](Self::ready_rc), of something that somebody waits for.
    #[inline(always)]
    pub fn rc_with_slot(&mut self) -> Option<&mut RcEp> {
        if !self.has_inline_budget() {
            self.open();
            if !self.has_inline_budget() {
                return None;
            }
        }
        let line = self.rc()?;
        line.has_op_slot().then_some(line)
    }

    /// The queue pair of its own.
    #[inline(always)]
    pub fn rc(&mut self) -> Option<&mut RcEp> {
        match &mut self.way {
            RcOrUd::Rc { line, .. } => Some(line),
            RcOrUd::Ud(_) => None,
        }
    }

    /// Nothing more is sent: the device has refused something, and what came behind it would be taken for the next.
    #[cold]
    #[inline(never)]
    pub fn fail(&mut self) {
        self.broken = true;
        if let RcOrUd::Rc { line, .. } = &mut self.way {
            line.revoke_inline_budget();
        }
    }

    /// Whether the shortest way is open now.
    #[inline(always)]
    pub fn has_inline_budget(&self) -> bool {
        match &self.way {
            RcOrUd::Rc { line, .. } => line.has_inline_budget(),
            RcOrUd::Ud(_) => false,
        }
    }

    /// Something was sent another way: opens the shortest one, if it is closed and can be.
    #[inline(always)]
    fn refill_inline_budget(&mut self) {
        if !self.has_inline_budget() {
            self.open();
        }
    }

    #[inline(never)]
    fn open(&mut self) {
        let packets = self.room();
        match &mut self.way {
            RcOrUd::Rc { line, .. } if !self.broken => line.refill_inline_budget(packets),
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

    /// Sends a record of `len` bytes, which `fill` writes. False: no room now, `fill` was not called.
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

    /// A record that takes several packets.
    #[inline(never)]
    fn send_long(&mut self, head: PacketHdr, fill: impl FnOnce(*mut u8)) -> bool {
        let mut record = std::mem::take(&mut self.record);
        record.clear();
        record.reserve(head.len);
        fill(record.spare_capacity_mut().as_mut_ptr().cast());
        // SAFETY: reserved, and written by `fill`.
        unsafe { record.set_len(head.len) };
        let mut head = head;
        for part in record.chunks(self.segment()) {
            let sent = self.packet(head, part.len(), |to| {
                // SAFETY: the packet has room for the part.
                unsafe { to.copy_from_nonoverlapping(part.as_ptr(), part.len()) };
            });
            // There was room: the rest would be no use to anybody.
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

    /// Sends one packet; there is room. False: nothing was sent, and `fill` was not called.
    #[inline(always)]
    fn packet(&mut self, head: PacketHdr, len: usize, fill: impl FnOnce(*mut u8)) -> bool {
        let total = HEAD + len;
        match &mut self.way {
            RcOrUd::Rc { line, sent, .. } => {
                let credit = self.flow.take_ack() as u16;
                let head = PacketHdr { credit, ..head }.encode();
                let taken = if total <= (line.qp.max_inline as usize).min(MAX_INLINE) {
                    let mut bytes = std::mem::MaybeUninit::<[u8; MAX_INLINE]>::uninit();
                    let at = bytes.as_mut_ptr().cast::<u8>();
                    // SAFETY: room for the head and `len` bytes, all of which are written.
                    let bytes = unsafe {
                        at.copy_from_nonoverlapping(head.as_ptr(), HEAD);
                        fill(at.add(HEAD));
                        std::slice::from_raw_parts(at, total)
                    };
                    line.post_inline(bytes)
                } else {
                    let Some(buffer) = self.iface.packets.lock().get() else {
                        return false;
                    };
                    // SAFETY: a buffer has room for a segment.
                    unsafe {
                        buffer.ptr.copy_from_nonoverlapping(head.as_ptr(), HEAD);
                        fill(buffer.ptr.add(HEAD));
                    }
                    line.post_buffer(buffer, total)
                };
                *sent = sent.wrapping_add(1);
                if !taken {
                    self.fail();
                }
                true
            }
            RcOrUd::Ud(line) => line.send(&self.flow, head, len, fill),
        }
    }

    /// Number of the peer's port at the other end, among those of its address.
    #[inline(always)]
    pub fn remote_port(&self) -> usize {
        self.remote_port
    }

    /// Bytes that one write or read moves, at most.
    #[inline(always)]
    pub fn most_at_once(&self) -> usize {
        self.most_at_once
    }

    /// Writes up to a buffer's worth into the peer's memory: how many of the `len` bytes, which `fill` writes in front.
    /// 0: no room now, or no queue pair of its own; `fill` was not called.
    pub fn write(&mut self, to: RemoteMem, len: usize, fill: impl FnOnce(*mut u8, usize)) -> usize {
        let n = len.min(self.most_at_once());
        let RcOrUd::Rc { line, .. } = &mut self.way else {
            return 0;
        };
        if self.broken || !line.has_room(1) {
            return 0;
        }
        if n <= (line.qp.max_inline as usize).min(MAX_INLINE) {
            let mut bytes = std::mem::MaybeUninit::<[u8; MAX_INLINE]>::uninit();
            fill(bytes.as_mut_ptr().cast(), n);
            // SAFETY: written by `fill`.
            let bytes = unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), n) };
            if !line.write_inline(bytes, to) {
                self.fail();
            }
            self.refill_inline_budget();
            return n;
        }
        let Some(buffer) = self.iface.packets.lock().get() else {
            return 0;
        };
        fill(buffer.ptr, n);
        if !line.write_buffer(buffer, n, to) {
            self.fail();
        }
        self.refill_inline_budget();
        n
    }

    /// As [`write`](Self::write), the shortest way, of what fits into one buffer and into no work request. False: it
    /// does not, or that way is closed.
    ///
    /// # Safety
    /// `len` bytes are readable.
    #[inline(always)]
    pub unsafe fn write_short(&mut self, to: RemoteMem, from: *const u8, len: usize) -> bool {
        let fits = len <= self.most_at_once;
        let Some(line) = self.ready_rc().filter(|_| fits) else {
            return false;
        };
        if len <= (line.qp.max_inline as usize).min(MAX_INLINE) {
            return false;
        }
        let Some(Some(buffer)) = line.through(len) else {
            return false;
        };
        // SAFETY: the caller's bytes, for which a buffer has room.
        unsafe { buffer.ptr.copy_from_nonoverlapping(from, len) };
        if !line.write_buffer(buffer, len, to) {
            self.fail();
        }
        true
    }

    /// Reads up to a buffer's worth of the `len` bytes in the peer's memory: how many; `owner` hears of it from
    /// [`ended`](Self::ended). 0: as in [`write`](Self::write).
    pub fn read(
        &mut self,
        from: RemoteMem,
        into: *mut u8,
        len: usize,
        owner: *mut c_void,
    ) -> usize {
        let n = len.min(self.most_at_once());
        let RcOrUd::Rc { line, .. } = &mut self.way else {
            return 0;
        };
        if self.broken || !line.has_room(1) {
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
        if !line.read(buffer, read, from, n == len) {
            self.fail();
        }
        n
    }

    /// Whether the device here can have that at the other end execute atomic operations.
    pub fn has_atomics(&self) -> bool {
        self.is_connected() && self.iface.port.hca.has_atomics()
    }

    /// Has an atomic operation on 8 bytes of the peer's memory executed by its device; what was there goes to `into`,
    /// and `owner` hears of it as of what is [`read`](Self::read). Null: nobody wants it. False: no room now.
    pub fn atomic(
        &mut self,
        step: AmoDesc,
        at: RemoteMem,
        into: *mut u8,
        owner: *mut c_void,
    ) -> bool {
        let RcOrUd::Rc { line, .. } = &mut self.way else {
            return false;
        };
        if self.broken || !line.has_room(1) {
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
        if !line.atomic(buffer, step, old, at) {
            self.fail();
        }
        true
    }

    /// Number of the port that it goes out of, among this worker's.
    pub fn local_port(&self) -> usize {
        match &self.way {
            RcOrUd::Rc { .. } => self.iface.index.into(),
            RcOrUd::Ud(line) => line.local_port(),
        }
    }

    /// The port that only the connection's own queue pair goes out of, if it has one.
    pub fn main_port(&self) -> Option<usize> {
        self.is_connected().then(|| self.iface.index.into())
    }

    /// Has datagrams go on by others of these ways when the one that they take fails, and what is long by rails alone.
    pub fn set_alt_paths(&mut self, ways: Vec<AltPath>) {
        if let RcOrUd::Ud(line) = &mut self.way {
            line.set_alt_paths(ways);
            self.rails.alone = true;
        }
    }

    /// The peer has gone to this port of his; that has come by this interface.
    pub fn follow_peer_port(&mut self, iface: usize, port: &PortLocator) {
        if let RcOrUd::Ud(line) = &mut self.way {
            line.follow_peer_port(iface, port);
        }
    }

    /// Whether devices move what is long, if memory and, of datagrams, rails can be had.
    pub fn zcopy_capable(&self) -> bool {
        self.is_connected() || self.rails.alone
    }

    /// Moves as much as one work request does between the owner's memory and the peer's, without a copy: how many
    /// bytes; the owner hears of it from [`ended`](Self::ended), the peer, with the last of what it writes, by `word`,
    /// which takes the place of a packet. 0: as in [`write`](Self::write).
    pub fn post_zcopy(&mut self, here: ZcopyDesc, there: RemoteMem, word: Option<u32>) -> usize {
        let n = here.len.min(self.iface.port.longest);
        let last = n == here.len;
        let word = word.filter(|_| last);
        let Some(line) = self.rc_for_zcopy(word.is_some()) else {
            return 0;
        };
        if !line.post_zcopy(ZcopyDesc { len: n, ..here }, there, last, word) {
            self.fail();
        }
        n
    }

    /// As [`post_zcopy`](Self::post_zcopy), of memory in pieces, no more of them and of their bytes than a work request
    /// moves. `last`: they are the last ones. False: no room now.
    pub fn post_zcopy_iov(
        &mut self,
        here: ZcopyDesc,
        pieces: &mut [ibv_sge],
        there: RemoteMem,
        last: bool,
        word: Option<u32>,
    ) -> bool {
        let word = word.filter(|_| last);
        let Some(line) = self.rc_for_zcopy(word.is_some()) else {
            return false;
        };
        if !line.post_zcopy_iov(here, pieces, there, last, word) {
            self.fail();
        }
        true
    }

    /// The connection's own line, if it has room for a work request, which counts as a packet if it carries a word.
    fn rc_for_zcopy(&mut self, word: bool) -> Option<&mut RcEp> {
        if self.broken || word && !self.has_space(1) {
            return None;
        }
        let RcOrUd::Rc { line, sent, .. } = &mut self.way else {
            return None;
        };
        if !line.has_room(1) {
            return None;
        }
        *sent = sent.wrapping_add(u32::from(word));
        Some(line)
    }

    /// Pieces of memory that one work request names, and bytes that it moves, at most.
    pub fn zcopy_limits(&self) -> (usize, usize) {
        let pieces = match &self.way {
            RcOrUd::Rc { line, .. } => line.qp.max_pieces as usize,
            RcOrUd::Ud(_) => 0,
        };
        (pieces, self.iface.port.longest)
    }

    /// As [`post_zcopy`](Self::post_zcopy), a piece of the memory, by the one of `most` lines, this connection, if it
    /// has a queue pair, and its rails, that will have moved what it has got soonest. `keys`: of ours and of the
    /// peer's, for a port of ours and one of the peer's; `None`: not by those.
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
        let own = match &mut self.way {
            RcOrUd::Rc { line, .. } => Some((line, self.remote_port, None)),
            RcOrUd::Ud(_) => None,
        };
        let rails = self.rails.lines.iter_mut();
        let rails = rails.filter(|rail| rail.state == RailState::Open);
        let rails = rails.map(|rail| (&mut rail.line, rail.remote_port, Some(&mut rail.state)));
        let best = (own.into_iter().chain(rails).take(most))
            .filter_map(|(line, port, state)| {
                let keys = keys(line.local_port(), port)?;
                line.has_room(1).then_some((line, state, keys))
            })
            .min_by_key(|(line, ..)| {
                let (bytes, mbps) = line.load();
                (bytes + PIECE as u64).saturating_mul(1000) / u64::from(mbps)
            });
        let Some((line, state, (key, remote))) = best else {
            return 0;
        };
        let len = here.len.min(PIECE).min(line.longest());
        // Each tells of its end: there is no message behind it that would.
        let there = RemoteMem { addr, key: remote };
        if !line.post_zcopy(ZcopyDesc { len, key, ..here }, there, true, None) {
            match state {
                // It counts as lent to the rail, whose pieces all go by the others when that is given up.
                Some(state) => {
                    *state = RailState::Refused;
                    let rail = (line.local_port(), line.qp.number);
                    self.rails.refused.push(rail);
                }
                None => self.fail(),
            }
        }
        len
    }

    /// The owners of memory that the device works on, once for each work request.
    pub fn zcopy_owners(&self) -> impl Iterator<Item = *mut c_void> {
        self.rcs().flat_map(|line| line.zcopy_owners())
    }

    /// The queue pairs of its own, rails among them.
    fn rcs(&self) -> impl Iterator<Item = &RcEp> {
        let own = match &self.way {
            RcOrUd::Rc { line, .. } => Some(line),
            RcOrUd::Ud(_) => None,
        };
        let rails = self.rails.lines.iter().map(|rail| &rail.line);
        own.into_iter().chain(rails)
    }

    /// A fence has its turn: what rails have been given before it has to end first. True: it has, and what goes by
    /// rails behind the fence waits for the rest, until [`is_behind_fence`](Self::is_behind_fence).
    pub fn pass_fence(&mut self) -> bool {
        let drained = self.rails.is_drained();
        if drained {
            self.rails.behind = match &self.way {
                RcOrUd::Rc { line, .. } => Some(line.position()),
                RcOrUd::Ud(_) => self.rails.alone.then_some(0),
            };
        }
        drained
    }

    /// Whether everything in front of the last fence has ended.
    pub fn is_behind_fence(&mut self) -> bool {
        let Some(behind) = self.rails.behind else {
            return true;
        };
        let past = match &mut self.way {
            RcOrUd::Rc { line, .. } => line.is_past(behind),
            // What the peer has confirmed it has done.
            RcOrUd::Ud(line) => {
                line.ask(&self.flow);
                line.is_drained()
            }
        };
        if past {
            self.rails.behind = None;
        }
        past
    }

    /// From now on what is sent or written takes effect after the reads before it.
    pub fn fence(&mut self) {
        if let RcOrUd::Rc { line, .. } = &mut self.way {
            line.fence();
        }
    }

    /// Whether [`flush_marker`](Self::flush_marker) can tell: something was accepted that has not arrived, and a queue
    /// pair of its own will say when it has.
    #[inline(always)]
    pub fn can_flush_marker(&self) -> bool {
        match &self.way {
            RcOrUd::Rc { line, .. } => {
                !self.broken && !line.is_drained() && self.rails.is_drained()
            }
            RcOrUd::Ud(_) => false,
        }
    }

    /// Has `owner` told from [`ended`](Self::ended) when all that was accepted has arrived.
    /// [`can_flush_marker`](Self::can_flush_marker).
    #[inline(always)]
    pub fn flush_marker(&mut self, owner: *mut c_void) {
        if let RcOrUd::Rc { line, .. } = &mut self.way {
            line.flush_marker(owner);
        }
    }

    /// Those who wait for reads, or by a mark, of whom this is true, wait no more: who they are.
    pub fn detach_owner(&mut self, wanted: impl Fn(*mut c_void) -> bool) -> Vec<*mut c_void> {
        let mut owners = Vec::new();
        if let RcOrUd::Rc { line, .. } = &mut self.way {
            line.detach_owner(wanted, |owner| owners.push(owner));
        }
        owners.dedup();
        owners
    }

    /// Those who wait, once for each read, mark or piece of lent memory.
    pub fn owners(&self) -> impl Iterator<Item = *mut c_void> {
        self.rcs().flat_map(|line| line.owners())
    }

    /// Whether all that was accepted has arrived.
    pub fn is_drained(&self) -> bool {
        self.broken
            || match &self.way {
                RcOrUd::Rc { line, .. } => line.is_drained() && self.rails.is_drained(),
                RcOrUd::Ud(line) => line.is_drained() && self.rails.is_drained(),
            }
    }

    /// The same, after having it told: somebody waits for it.
    pub fn drain(&mut self) -> bool {
        if self.is_drained() {
            return true;
        }
        match &mut self.way {
            RcOrUd::Rc { line, .. } => line.post_signaled(),
            RcOrUd::Ud(line) => line.ask(&self.flow),
        }
        false
    }

    /// Tells the peer what has been taken. `gap`: one that was expected first is missing.
    pub fn acknowledge(&mut self, gap: bool) {
        match &mut self.way {
            RcOrUd::Rc { line, .. } => {
                // Otherwise the next packet that is taken has it told.
                if line.has_room(1) {
                    let head = PacketHdr {
                        len: 0,
                        kind: CREDIT,
                        aux: 0,
                        credit: self.flow.take_ack() as u16,
                        imm: 0,
                    };
                    if !line.post_inline(&head.encode()) {
                        self.fail();
                    }
                }
            }
            RcOrUd::Ud(line) => line.acknowledge(&self.flow, gap),
        }
    }

    /// Whether the device refused something. It may never say what came of that.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Finds out whether the peer is still there: something that it has to confirm.
    pub fn probe(&mut self) {
        match &mut self.way {
            // Sends that do not tell of their ends may be all that is outstanding: nobody would hear of a failure.
            RcOrUd::Rc { line, .. } if !line.has_signaled() => {
                line.probe();
            }
            RcOrUd::Ud(line) if line.is_drained() => {
                let head = PacketHdr {
                    len: 0,
                    kind: CREDIT,
                    aux: 0,
                    credit: 0,
                    imm: 0,
                };
                if line.room() > 0 {
                    line.send(&self.flow, head, 0, |_| {});
                }
            }
            // The device, or the timer of datagrams, is waiting for the peer already.
            RcOrUd::Rc { .. } | RcOrUd::Ud(_) => {}
        }
    }

    /// Says that this worker goes. Behind everything else.
    pub fn send_disconnect(&mut self) {
        self.send(BYE, 0, 0, 0, |_| {});
    }

    /// A send of this number has ended. `done` hears of everybody who waited for that, once for each read, mark or
    /// piece of lent memory.
    #[inline(always)]
    pub fn ended(&mut self, number: u64, done: impl FnMut(*mut c_void)) {
        if let RcOrUd::Rc { line, .. } = &mut self.way {
            line.ended(number, done);
        }
    }

    /// The peer has taken all datagrams before this one. False: there are not so many.
    pub fn acknowledged(&mut self, ack: u32) -> bool {
        match &mut self.way {
            RcOrUd::Ud(line) => line.acknowledged(ack),
            RcOrUd::Rc { .. } => true,
        }
    }

    /// The peer's process lives, though it confirms nothing.
    pub fn on_pong(&mut self) {
        if let RcOrUd::Ud(line) = &mut self.way {
            line.on_pong();
        }
    }

    /// The peer misses the first packet that it has not acknowledged.
    pub fn on_gap(&mut self) {
        if let RcOrUd::Ud(line) = &mut self.way {
            line.on_gap();
        }
    }

    /// When [`tick`](Self::tick) has something to do, coarse milliseconds; `None`: that is for others to say.
    pub fn next_due(&self) -> Option<u64> {
        match &self.way {
            RcOrUd::Ud(line) => line.next_due(),
            RcOrUd::Rc { .. } => None,
        }
    }

    /// Does what is due at this time, coarse milliseconds. False: the peer has been silent for too long.
    pub fn tick(&mut self, now: u64) -> bool {
        match &mut self.way {
            RcOrUd::Ud(line) => line.tick(now),
            RcOrUd::Rc { .. } => true,
        }
    }
}
