//! A reliable connection: a queue pair of its own, what it has posted and what of that has ended.

mod imm;

use super::bindings::*;
use super::buffers::Buffer;
use super::iface::IbIface;
use super::op_slots::{EndedOp, OpKind, OpSlots};
use super::port::Port;
use super::queues::IbvQp;
use crate::sys::copy::{self, TINY};
use crate::wire::address::PortLocator;
use crate::wire::ib_packet::HEAD;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Packet numbers have so many bits.
pub const PSN_MASK: u32 = 0xFF_FFFF;
/// So many sends need no completion of their own: the next one that tells of its end tells of theirs.
const MODERATION: u64 = 64;
/// The same of sends that hold a buffer.
const BUFFER_MODERATION: usize = 16;

/// Bytes of the shortest sends: a head and what is copied without a call.
const READY: usize = HEAD + TINY;

/// What a buffer is for that the device has.
enum TxDesc {
    /// A packet, or what is written.
    Out(Buffer),
    /// What is read, and where it goes.
    In(Buffer, ReadDesc),
    /// No buffer: somebody waits for the end of this send and of all before it. Null: nobody any more.
    Mark(*mut c_void),
    /// No buffer: the owner's memory.
    ZcopyDesc(ZcopyDesc),
}

// SAFETY: whoever ends the wait says what may be done with the pointer.
unsafe impl Send for TxDesc {}

/// Bytes that are read, and who waits for them.
#[derive(Clone, Copy)]
pub struct ReadDesc {
    /// Null: nobody any more.
    pub into: *mut u8,
    pub len: usize,
    /// Not followed here.
    pub owner: *mut c_void,
    /// It is what was there before an atomic operation.
    pub atomic: bool,
}

/// What a device does in one step with 8 bytes, which it reads.
#[derive(Clone, Copy)]
pub enum AmoDesc {
    Add(u64),
    CompareSwap { compare: u64, swap: u64 },
}

// SAFETY: whoever ends the read says what may be done with the pointers.
unsafe impl Send for ReadDesc {}

/// Memory that its owner leaves to the device until it is told that the device has done.
#[derive(Clone, Copy)]
pub struct ZcopyDesc {
    pub ptr: *mut u8,
    pub len: usize,
    /// By which the device knows it.
    pub key: u32,
    /// It is written to, with what is read from the peer's memory; else the other way round.
    pub reads: bool,
    /// Not followed here.
    pub owner: *mut c_void,
}

// SAFETY: as of `ReadDesc`.
unsafe impl Send for ZcopyDesc {}

/// Remote memory: where, and by which key.
#[derive(Clone, Copy)]
pub struct RemoteMem {
    pub addr: u64,
    pub key: u32,
}

/// The work request of the shortest sends and writes, in which only a few words change.
struct InlineWqe {
    wr: ibv_send_wr,
    sge: ibv_sge,
    bytes: [u8; READY],
}

// SAFETY: what the pointers lead to is its own.
unsafe impl Send for InlineWqe {}

impl InlineWqe {
    fn new() -> Box<InlineWqe> {
        let mut ready = Box::new(InlineWqe {
            wr: ibv_send_wr::default(),
            sge: ibv_sge::default(),
            bytes: [0; READY],
        });
        ready.sge.addr = ready.bytes.as_ptr() as u64;
        ready.wr.sg_list = &raw mut ready.sge;
        ready.wr.num_sge = 1;
        ready.wr.send_flags = IBV_SEND_INLINE;
        ready
    }
}

/// The sending half. Whoever holds the peer's lock.
pub struct RcEp {
    pub qp: Arc<IbvQp>,
    /// Sends posted, and up to which one nothing has to be looked at.
    posted: u64,
    until: u64,
    ready: Box<InlineWqe>,
    iface: Arc<IbIface>,
    /// The last one that tells of its end, and those that have ended.
    telling: u64,
    ended: u64,
    /// Sends that will tell and have not.
    untold: u32,
    depth: u64,
    /// Buffers of sends that have not ended, and marks, by the number of the send.
    held: VecDeque<(u64, TxDesc)>,
    /// What needs none, made when it is wanted first.
    waits: Option<Box<OpSlots>>,
    /// Reads among both, atomic operations and marks.
    reads: u32,
    atomics: u32,
    marks: u32,
    /// Bytes of memory that the device works on.
    lent_bytes: u64,
    /// What is sent or written waits for the reads before it.
    fenced: bool,
    /// Those among them since the last send that tells.
    silent: usize,
}

impl RcEp {
    /// `qp` is connected, or will be before anything is sent.
    pub fn new(qp: Arc<IbvQp>, iface: Arc<IbIface>) -> RcEp {
        let rc = &iface.port.tuning.rc;
        let most = iface.port.hca.limits.max_qp_wr.max(1) as u32;
        iface.share_among(1);
        RcEp {
            depth: rc.tx_queue_len.min(most).into(),
            qp,
            iface,
            posted: 0,
            until: 0,
            ready: InlineWqe::new(),
            telling: 0,
            ended: 0,
            untold: 0,
            held: VecDeque::new(),
            waits: None,
            reads: 0,
            atomics: 0,
            marks: 0,
            lent_bytes: 0,
            fenced: false,
            silent: 0,
        }
    }

    /// Sends that can be posted now.
    #[inline(always)]
    pub fn room(&self) -> usize {
        let most = self.depth.min(self.iface.share().into());
        most.saturating_sub(self.posted - self.ended) as usize
    }

    /// Whether so many sends can be posted now; if not, those that have ended without a word are asked about.
    #[inline(always)]
    pub fn has_room(&mut self, n: usize) -> bool {
        let fits = self.room() >= n;
        if !fits {
            self.make_room();
        }
        fits
    }

    #[cold]
    fn make_room(&mut self) {
        if !self.has_signaled() {
            self.post_signaled();
        }
    }

    /// After how many sends one tells.
    #[inline(always)]
    fn moderation(&self) -> u64 {
        MODERATION.min(self.depth.min(self.iface.share().into()) / 2)
    }

    /// Whether the shortest way is open: of one more send it is known that there is room, and that it need not tell.
    #[inline(always)]
    pub fn has_inline_budget(&self) -> bool {
        self.posted < self.until
    }

    /// Finds out how many sends may go the shortest way, at most so many packets.
    pub fn refill_inline_budget(&mut self, packets: usize) {
        let silent = self
            .moderation()
            .saturating_sub(self.posted - self.telling + 1);
        let waits = self.fenced && self.reads + self.atomics > 0;
        let most = match waits || (self.qp.max_inline as usize) < READY {
            true => 0,
            false => self.room().min(packets) as u64,
        };
        self.until = self.posted + most.min(silent);
    }

    /// Closes the shortest way: the device has refused something.
    pub fn revoke_inline_budget(&mut self) {
        self.until = 0;
    }

    /// Sends a head and up to [`TINY`] bytes. The shortest way is open. False: the device refuses.
    ///
    /// # Safety
    /// `len` bytes are readable.
    #[inline(always)]
    pub unsafe fn post_tiny(&mut self, head: [u8; HEAD], from: *const u8, len: usize) -> bool {
        let ready = &mut *self.ready;
        ready.bytes[..HEAD].copy_from_slice(&head);
        // SAFETY: the caller's bytes; there is room for them behind the head.
        unsafe { copy::tiny(ready.bytes.as_mut_ptr().add(HEAD), from, len) };
        ready.sge.length = (HEAD + len) as u32;
        ready.wr.opcode = IBV_WR_SEND;
        self.post_inline_wqe()
    }

    /// Writes up to [`TINY`] bytes, otherwise as [`post_tiny`](Self::post_tiny).
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub unsafe fn write_tiny(&mut self, to: RemoteMem, from: *const u8, len: usize) -> bool {
        let ready = &mut *self.ready;
        // SAFETY: the caller's bytes; there is room for them.
        unsafe { copy::tiny(ready.bytes.as_mut_ptr(), from, len) };
        ready.sge.length = len as u32;
        ready.wr.opcode = IBV_WR_RDMA_WRITE;
        (ready.wr.wr.rdma.remote_addr, ready.wr.wr.rdma.rkey) = (to.addr, to.key);
        self.post_inline_wqe()
    }

    #[inline(always)]
    fn post_inline_wqe(&mut self) -> bool {
        self.posted += 1;
        self.ready.wr.wr_id = self.posted;
        self.qp.post_send(&mut self.ready.wr)
    }

    /// Whether there is a place for something short that is read.
    #[inline(always)]
    pub fn has_op_slot(&mut self) -> bool {
        match &self.waits {
            Some(waits) if waits.has_bytes() => true,
            _ => self.make_op_slots(),
        }
    }

    #[inline(never)]
    fn make_op_slots(&mut self) -> bool {
        let waits = self.waits.get_or_insert_with(OpSlots::new);
        if waits.is_to_read() {
            return false;
        }
        let Some(buffer) = self.iface.places.lock().get() else {
            return false;
        };
        waits.use_buffer(buffer);
        waits.has_place()
    }

    /// What a read of so many bytes by a place comes through; its own bytes: nothing else. `None`: there is no buffer.
    #[inline(always)]
    pub fn through(&mut self, len: usize) -> Option<Option<Buffer>> {
        match len {
            ..=TINY => Some(None),
            _ => self.iface.packets.lock().get().map(Some),
        }
    }

    /// Reads through its place up to [`TINY`] bytes, or as many as the buffer has, to where they go. The shortest way
    /// is open, and there is a place. False: the device refuses.
    #[inline(always)]
    pub fn read_short(
        &mut self,
        from: RemoteMem,
        into: (*mut u8, usize),
        buffer: Option<Buffer>,
        owner: *mut c_void,
    ) -> bool {
        let Some(waits) = &mut self.waits else {
            return false;
        };
        self.posted += 1;
        self.reads += 1;
        let wr = waits.read(self.posted, from, into, buffer, owner);
        wr.wr_id = self.posted;
        let posted = self.qp.post_send(wr);
        self.note_signaled();
        if self.fenced {
            self.revoke_inline_budget();
        }
        posted
    }

    /// As [`read_short`](Self::read_short), of an atomic operation; null pointers: nobody wants the result.
    #[inline(always)]
    pub fn atomic_short(
        &mut self,
        step: AmoDesc,
        at: RemoteMem,
        into: *mut u8,
        owner: *mut c_void,
    ) -> bool {
        let Some(waits) = &mut self.waits else {
            return false;
        };
        self.posted += 1;
        self.atomics += 1;
        let (wr, tells) = waits.atomic(self.posted, step, at, into, owner);
        wr.wr_id = self.posted;
        let posted = self.qp.post_send(wr);
        if tells {
            self.note_signaled();
        }
        if self.fenced {
            self.revoke_inline_budget();
        }
        posted
    }

    /// What was posted last tells of its end.
    #[inline(always)]
    fn note_signaled(&mut self) {
        (self.telling, self.silent) = (self.posted, 0);
        self.untold += 1;
        self.iface.add_signaled(1);
    }

    /// Whether all that was posted is known to have arrived.
    pub fn is_drained(&self) -> bool {
        self.posted == self.ended
    }

    /// Posts bytes that the work request carries. There is room. False: the device refuses.
    #[inline(always)]
    pub fn post_inline(&mut self, bytes: &[u8]) -> bool {
        let mut sge = ibv_sge {
            addr: bytes.as_ptr() as u64,
            length: bytes.len() as u32,
            lkey: 0,
        };
        let tells = self.posted + 1 - self.telling >= self.moderation();
        self.post(&mut sge, IBV_WR_SEND, IBV_SEND_INLINE, tells)
    }

    /// Posts a buffer, which comes back to the interface when it has been sent. There is room. False: the device
    /// refuses.
    pub fn post_buffer(&mut self, buffer: Buffer, len: usize) -> bool {
        let mut sge = ibv_sge {
            addr: buffer.ptr as u64,
            length: len as u32,
            lkey: buffer.lkey,
        };
        self.silent += 1;
        self.held.push_back((self.posted + 1, TxDesc::Out(buffer)));
        let tells = self.is_signal_due();
        self.post(&mut sge, IBV_WR_SEND, 0, tells)
    }

    /// Whether the next send is to tell of its end.
    fn is_signal_due(&self) -> bool {
        self.silent >= BUFFER_MODERATION || self.posted + 1 - self.telling >= self.moderation()
    }

    /// Writes bytes that the work request carries into the peer's memory. There is room. False: the device refuses.
    pub fn write_inline(&mut self, bytes: &[u8], to: RemoteMem) -> bool {
        let mut sge = ibv_sge {
            addr: bytes.as_ptr() as u64,
            length: bytes.len() as u32,
            lkey: 0,
        };
        let tells = self.is_signal_due();
        self.post_remote(&mut sge, IBV_WR_RDMA_WRITE, IBV_SEND_INLINE, tells, to)
    }

    /// Writes a buffer, which comes back to the interface afterwards. There is room. False: the device refuses.
    #[inline(always)]
    pub fn write_buffer(&mut self, buffer: Buffer, len: usize, to: RemoteMem) -> bool {
        let mut sge = ibv_sge {
            addr: buffer.ptr as u64,
            length: len as u32,
            lkey: buffer.lkey,
        };
        self.silent += 1;
        self.held.push_back((self.posted + 1, TxDesc::Out(buffer)));
        let tells = self.is_signal_due();
        self.post_remote(&mut sge, IBV_WR_RDMA_WRITE, 0, tells, to)
    }

    /// Reads into a buffer, and from there to where it goes. There is room. `last`: somebody waits for it. False: the
    /// device refuses.
    pub fn read(&mut self, buffer: Buffer, read: ReadDesc, from: RemoteMem, last: bool) -> bool {
        let mut sge = ibv_sge {
            addr: buffer.ptr as u64,
            length: read.len as u32,
            lkey: buffer.lkey,
        };
        self.silent += 1;
        self.reads += 1;
        if self.fenced {
            self.revoke_inline_budget();
        }
        self.held
            .push_back((self.posted + 1, TxDesc::In(buffer, read)));
        let tells = last || self.is_signal_due();
        self.post_remote(&mut sge, IBV_WR_RDMA_READ, 0, tells, from)
    }

    /// An atomic operation on 8 bytes, aligned to as many; as [`read`](Self::read) reads what was there. Nobody may
    /// wait for that.
    pub fn atomic(&mut self, buffer: Buffer, step: AmoDesc, old: ReadDesc, at: RemoteMem) -> bool {
        let sge = ibv_sge {
            addr: buffer.ptr as u64,
            length: size_of::<u64>() as u32,
            lkey: buffer.lkey,
        };
        self.silent += 1;
        let tells = !old.into.is_null() || self.is_signal_due();
        self.held
            .push_back((self.posted + 1, TxDesc::In(buffer, old)));
        let posted = self.post_work(&mut [sge], step.opcode(), 0, tells, |wr| step.fill(wr, at));
        self.atomics += 1;
        if self.fenced {
            self.revoke_inline_budget();
        }
        posted
    }

    /// Moves bytes between the owner's memory and the peer's. There is room. `last`: somebody waits for it. `word`:
    /// what the peer hears when they are there. False: the device refuses.
    pub fn post_zcopy(
        &mut self,
        here: ZcopyDesc,
        there: RemoteMem,
        last: bool,
        word: Option<u32>,
    ) -> bool {
        let piece = ibv_sge {
            addr: here.ptr as u64,
            length: here.len as u32,
            lkey: here.key,
        };
        self.post_zcopy_iov(here, &mut [piece], there, last, word)
    }

    /// As [`post_zcopy`](Self::post_zcopy), of memory in as many pieces as a work request names at most.
    pub fn post_zcopy_iov(
        &mut self,
        here: ZcopyDesc,
        pieces: &mut [ibv_sge],
        there: RemoteMem,
        last: bool,
        word: Option<u32>,
    ) -> bool {
        let opcode = match (here.reads, word) {
            (true, _) => IBV_WR_RDMA_READ,
            (false, None) => IBV_WR_RDMA_WRITE,
            (false, Some(_)) => IBV_WR_RDMA_WRITE_WITH_IMM,
        };
        let tells = last || self.is_signal_due();
        if here.reads && self.fenced {
            self.revoke_inline_budget();
        }
        let posted = self.post_work(pieces, opcode, 0, tells, |wr| {
            (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey) = (there.addr, there.key);
            wr.__bindgen_anon_1.imm_data = word.unwrap_or_default().to_be();
        });
        self.reads += u32::from(here.reads);
        self.lent_bytes += here.len as u64;
        self.held.push_back((self.posted, TxDesc::ZcopyDesc(here)));
        posted
    }

    /// The memory that the device works on, by work requests.
    pub fn zcopy_descs(&self) -> impl Iterator<Item = ZcopyDesc> {
        self.held.iter().filter_map(|(_, held)| match held {
            TxDesc::ZcopyDesc(lent) => Some(*lent),
            _ => None,
        })
    }

    /// Whether it is this queue pair, of this interface of the worker's.
    pub fn is(&self, iface: usize, qpn: u32) -> bool {
        self.qp.number == qpn && usize::from(self.iface.index) == iface
    }

    /// Number of its interface among the worker's.
    pub fn local_port(&self) -> usize {
        self.iface.index.into()
    }

    /// Whether it has not moved all that was lent to it.
    pub fn zcopy_in_flight(&self) -> bool {
        self.lent_bytes > 0
    }

    /// How much was posted: for [`is_past`](Self::is_past).
    pub fn position(&self) -> u64 {
        self.posted
    }

    /// Whether everything up to there has ended. If not, its end will be told.
    pub fn is_past(&mut self, position: u64) -> bool {
        let past = self.ended >= position;
        if !past {
            self.post_signaled();
        }
        past
    }

    /// How long it will take to move what was lent, in units of its own, and the speed of its port, Mb/s.
    pub fn load(&self) -> (u64, u32) {
        (self.lent_bytes, self.iface.port.mbps.max(1))
    }

    /// Bytes that one work request moves at most.
    pub fn longest(&self) -> usize {
        self.iface.port.longest
    }

    /// The owners of memory that the device works on, once for each work request.
    pub fn zcopy_owners(&self) -> impl Iterator<Item = *mut c_void> {
        self.zcopy_descs().map(|lent| lent.owner)
    }

    /// From now on what is sent or written takes effect after the reads before it. For good: where a fence stands among
    /// what still waits to be posted is not known here, and programs that use none lose nothing.
    pub fn fence(&mut self) {
        self.fenced = true;
        self.revoke_inline_budget();
    }

    /// Has `owner` told, as those who wait for reads are, when all that was posted has ended. Something has not.
    #[inline(always)]
    pub fn flush_marker(&mut self, owner: *mut c_void) {
        if self.telling < self.posted {
            match &mut self.waits {
                // What becomes of a refusal the sends in front of it tell.
                Some(waits) if self.posted < self.until => {
                    self.posted += 1;
                    let wr = waits.probe();
                    wr.wr_id = self.posted;
                    self.qp.post_send(wr);
                    self.note_signaled();
                }
                _ => self.post_signaled(),
            }
        }
        self.marks += 1;
        match &mut self.waits {
            Some(waits) if waits.has_place() => waits.mark(self.posted, owner),
            _ => self.flush_marker_slow(owner),
        }
    }

    /// As [`mark`](Self::flush_marker), where there is no place.
    #[inline(never)]
    fn flush_marker_slow(&mut self, owner: *mut c_void) {
        self.waits.get_or_insert_with(OpSlots::new);
        self.held.push_back((self.posted, TxDesc::Mark(owner)));
    }

    /// Those who wait, of whom this is true, wait no more: they are told to `found`, once for each read or mark.
    pub fn detach_owner(
        &mut self,
        wanted: impl Fn(*mut c_void) -> bool,
        mut found: impl FnMut(*mut c_void),
    ) {
        if let Some(waits) = &mut self.waits {
            waits.disown(&wanted, &mut found);
        }
        for (_, held) in &mut self.held {
            match held {
                TxDesc::In(_, read) if !read.into.is_null() && wanted(read.owner) => {
                    read.into = std::ptr::null_mut();
                    found(read.owner);
                }
                TxDesc::Mark(owner) if !owner.is_null() && wanted(*owner) => {
                    found(std::mem::replace(owner, std::ptr::null_mut()));
                }
                _ => {}
            }
        }
    }

    /// Those who wait, once for each read, mark or piece of lent memory.
    pub fn owners(&self) -> impl Iterator<Item = *mut c_void> {
        let held = self.held.iter().filter_map(|(_, held)| match held {
            TxDesc::In(_, read) if !read.into.is_null() => Some(read.owner),
            TxDesc::Mark(owner) if !owner.is_null() => Some(*owner),
            TxDesc::ZcopyDesc(lent) => Some(lent.owner),
            _ => None,
        });
        held.chain(self.waits.iter().flat_map(|waits| waits.owners()))
    }

    /// Has the end of all that was posted told, unless it will be. A write of nothing needs no key.
    pub fn post_signaled(&mut self) {
        if self.telling < self.posted {
            self.probe();
        }
    }

    /// Whether something was posted that has not ended and will tell of it, which a failure in front of it does, too.
    pub fn has_signaled(&self) -> bool {
        self.telling > self.ended
    }

    /// Posts something that tells whether the peer is there. False: the device refuses.
    pub fn probe(&mut self) -> bool {
        // More than its share, once: it is what gives sends back.
        if self.depth <= self.posted - self.ended {
            return true;
        }
        let mut nothing = ibv_sge::default();
        self.post(&mut nothing, IBV_WR_RDMA_WRITE, 0, true)
    }

    #[inline(always)]
    fn post(&mut self, sge: &mut ibv_sge, opcode: ibv_wr_opcode, flags: u32, tells: bool) -> bool {
        self.post_remote(sge, opcode, flags, tells, RemoteMem { addr: 0, key: 0 })
    }

    #[inline(always)]
    fn post_remote(
        &mut self,
        sge: &mut ibv_sge,
        opcode: ibv_wr_opcode,
        flags: u32,
        tells: bool,
        remote: RemoteMem,
    ) -> bool {
        self.post_work(std::slice::from_mut(sge), opcode, flags, tells, |wr| {
            (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey) = (remote.addr, remote.key);
        })
    }

    #[inline(always)]
    fn post_work(
        &mut self,
        pieces: &mut [ibv_sge],
        opcode: ibv_wr_opcode,
        flags: u32,
        tells: bool,
        fill: impl FnOnce(&mut ibv_send_wr),
    ) -> bool {
        self.posted += 1;
        let is_empty = matches!(pieces, [piece] if piece.length == 0);
        let mut wr = ibv_send_wr {
            wr_id: self.posted,
            sg_list: pieces.as_mut_ptr(),
            num_sge: if is_empty { 0 } else { pieces.len() as i32 },
            opcode,
            send_flags: flags | if tells { IBV_SEND_SIGNALED } else { 0 },
            ..Default::default()
        };
        fill(&mut wr);
        if self.fenced && self.overtakes(opcode) {
            wr.send_flags |= IBV_SEND_FENCE;
        }
        if tells {
            self.note_signaled();
        }
        self.qp.post_send(&mut wr)
    }

    /// Whether what is posted now can take effect before what was to be read: only reads, and atomic operations among
    /// themselves, keep their order by themselves.
    #[inline(always)]
    fn overtakes(&self, opcode: ibv_wr_opcode) -> bool {
        match opcode {
            IBV_WR_RDMA_READ => false,
            IBV_WR_ATOMIC_FETCH_AND_ADD | IBV_WR_ATOMIC_CMP_AND_SWP => self.reads > 0,
            _ => self.reads + self.atomics > 0,
        }
    }

    /// Everything up to this send, which tells, has ended: its buffers are free, what was read is where it goes. `done`
    /// hears of everybody who waited, once for each read, mark or piece of lent memory.
    #[inline(always)]
    pub fn ended(&mut self, number: u64, mut done: impl FnMut(*mut c_void)) {
        if !self.advance_completed(number) {
            return;
        }
        while let Some(wait) = self.next_completed() {
            if !wait.owner.is_null() {
                done(wait.owner);
            }
        }
        if self.has_descs() || self.has_flush_markers() {
            self.complete_descs(&mut done);
        }
    }

    /// The first step of [`ended`](Self::ended). False: nothing new has.
    #[inline(always)]
    pub fn advance_completed(&mut self, number: u64) -> bool {
        if self.untold > 0 {
            self.untold -= 1;
            self.iface.add_signaled(-1);
        }
        let new = number > self.ended && number <= self.posted;
        if new {
            self.ended = number;
        }
        new
    }

    /// The second, until there is none: the next place that waits no more.
    #[inline(always)]
    pub fn next_completed(&mut self) -> Option<EndedOp> {
        let wait = self.waits.as_mut()?.ended(self.ended)?;
        if let Some(buffer) = wait.buffer {
            self.iface.packets.lock().put(buffer);
        }
        match wait.what {
            OpKind::Mark => self.marks -= 1,
            OpKind::Read => self.reads -= 1,
            OpKind::Atomic => self.atomics -= 1,
        }
        Some(wait)
    }

    /// Whether there are buffers and the like, which the third step, [`complete_descs`](Self::complete_descs), looks
    /// at.
    #[inline(always)]
    pub fn has_descs(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether somebody waits for all that was posted, which the third step sees to, too.
    #[inline(always)]
    pub fn has_flush_markers(&self) -> bool {
        self.marks > 0
    }

    /// As [`ended`](Self::ended), of what has a buffer, and the rest.
    #[inline(never)]
    pub fn complete_descs(&mut self, done: &mut dyn FnMut(*mut c_void)) {
        let mut packets = self.iface.packets.lock();
        while self.held.front().is_some_and(|(n, _)| *n <= self.ended) {
            let Some((_, held)) = self.held.pop_front() else {
                break;
            };
            match held {
                TxDesc::Out(buffer) => packets.put(buffer),
                TxDesc::In(buffer, read) => {
                    match read.atomic {
                        true => self.atomics -= 1,
                        false => self.reads -= 1,
                    }
                    if !read.into.is_null() {
                        // SAFETY: the owner keeps the memory until he is told or has disowned the read.
                        unsafe { read.into.copy_from_nonoverlapping(buffer.ptr, read.len) };
                        done(read.owner);
                    }
                    packets.put(buffer);
                }
                TxDesc::Mark(owner) => {
                    self.marks -= 1;
                    if !owner.is_null() {
                        done(owner);
                    }
                }
                TxDesc::ZcopyDesc(lent) => {
                    self.reads -= u32::from(lent.reads);
                    self.lent_bytes -= lent.len as u64;
                    done(lent.owner);
                }
            }
        }
        drop(packets);
        if self.marks > 0 {
            // There may not have been room to ask when somebody wanted to know.
            self.post_signaled();
        }
    }
}

impl AmoDesc {
    /// What work requests call it.
    pub fn opcode(self) -> ibv_wr_opcode {
        match self {
            AmoDesc::Add(_) => IBV_WR_ATOMIC_FETCH_AND_ADD,
            AmoDesc::CompareSwap { .. } => IBV_WR_ATOMIC_CMP_AND_SWP,
        }
    }

    /// Writes its operands into a work request.
    pub fn fill(self, wr: &mut ibv_send_wr, at: RemoteMem) {
        let (compare_add, swap) = match self {
            AmoDesc::Add(n) => (n, 0),
            AmoDesc::CompareSwap { compare, swap } => (compare, swap),
        };
        wr.wr.atomic = ibv_send_wr__bindgen_ty_2__bindgen_ty_2 {
            remote_addr: at.addr,
            compare_add,
            swap,
            rkey: at.key,
        };
    }
}

impl Drop for RcEp {
    fn drop(&mut self) {
        self.iface.share_among(-1);
        // The device looks at none of the buffers after this.
        if self.qp.reset().is_err() {
            return;
        }
        self.iface.add_signaled(-(self.untold as i32));
        let mut packets = self.iface.packets.lock();
        for (_, held) in self.held.drain(..) {
            if let TxDesc::Out(buffer) | TxDesc::In(buffer, _) = held {
                packets.put(buffer);
            }
        }
        if let Some(waits) = &self.waits {
            waits.buffers().for_each(|buffer| packets.put(buffer));
            if let Some(buffer) = waits.buffer() {
                self.iface.places.lock().put(buffer);
            }
        }
    }
}

/// Makes a fresh queue pair able to receive from and send to that of a peer.
///
/// # Errors
/// What the device says: it has no route there, or the numbers make no sense.
pub fn connect(
    qp: &IbvQp,
    port: &Port,
    to: &PortLocator,
    (qpn, psn): (u32, u32),
    own_psn: u32,
) -> io::Result<()> {
    let rc = &port.tuning.rc;
    let limits = &port.hca.limits;
    let mut attr = ibv_qp_attr {
        qp_state: IBV_QPS_RTR,
        path_mtu: port.mtu_to(to),
        dest_qp_num: qpn & PSN_MASK,
        rq_psn: psn & PSN_MASK,
        max_dest_rd_atomic: limits.max_qp_rd_atom.clamp(0, 16) as u8,
        min_rnr_timer: rnr_code(rc.rnr_timeout),
        ah_attr: port.path(to),
        ..Default::default()
    };
    let mask = IBV_QP_STATE
        | IBV_QP_AV
        | IBV_QP_PATH_MTU
        | IBV_QP_DEST_QPN
        | IBV_QP_RQ_PSN
        | IBV_QP_MAX_DEST_RD_ATOMIC
        | IBV_QP_MIN_RNR_TIMER;
    qp.modify(&mut attr, mask)?;
    let mut attr = ibv_qp_attr {
        qp_state: IBV_QPS_RTS,
        sq_psn: own_psn & PSN_MASK,
        timeout: timeout_code(rc.timeout),
        retry_cnt: rc.retries.min(MOST_RETRIES),
        rnr_retry: rc.rnr_retries.min(7),
        max_rd_atomic: limits.max_qp_init_rd_atom.clamp(0, 16) as u8,
        ..Default::default()
    };
    let mask = IBV_QP_STATE
        | IBV_QP_SQ_PSN
        | IBV_QP_TIMEOUT
        | IBV_QP_RETRY_CNT
        | IBV_QP_RNR_RETRY
        | IBV_QP_MAX_QP_RD_ATOMIC;
    qp.modify(&mut attr, mask)
}

/// The first step: a fresh queue pair takes receives.
///
/// # Errors
/// What the device says.
pub fn begin(qp: &IbvQp, port: &Port) -> io::Result<()> {
    let mut attr = ibv_qp_attr {
        qp_state: IBV_QPS_INIT,
        pkey_index: port.pkey_index,
        port_num: port.number,
        qp_access_flags: IBV_ACCESS_LOCAL_WRITE
            | IBV_ACCESS_REMOTE_WRITE
            | IBV_ACCESS_REMOTE_READ
            | IBV_ACCESS_REMOTE_ATOMIC,
        ..Default::default()
    };
    let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    qp.modify(&mut attr, mask)
}

/// The smallest code whose time, 4.096 us times a power of two, is no shorter (`ibv_modify_qp(3)`); 0 would be for
/// ever.
pub fn timeout_code(time: Duration) -> u8 {
    let fits = |code: &u8| Duration::from_nanos(4096u64 << code) >= time;
    (1..31).find(fits).unwrap_or(31)
}

/// Three bits; but rdma_rxe takes 7 for without an end, and a peer that dies would never be noticed.
const MOST_RETRIES: u8 = 6;

/// Times of the codes 1 to 31, in hundredths of a millisecond (`ibv_modify_qp(3)`, min_rnr_timer).
const RNR: [u32; 31] = [
    1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
    3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// The smallest code whose time is no shorter.
fn rnr_code(time: Duration) -> u8 {
    let hundredths = time.as_micros().div_ceil(10);
    let fits = |&t: &u32| u128::from(t) >= hundredths;
    RNR.iter().position(fits).map_or(31, |i| i as u8 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_codes() {
        assert_eq!(timeout_code(Duration::from_secs(1)), 18, "1.07 s");
        assert_eq!(timeout_code(Duration::ZERO), 1);
        assert_eq!(timeout_code(Duration::MAX), 31);
        assert_eq!(rnr_code(Duration::from_millis(1)), 14, "0.96 is too short");
        assert_eq!(rnr_code(Duration::ZERO), 1);
        assert_eq!(rnr_code(Duration::from_secs(9)), 31);
    }
}
