//! A reliable connection: a queue pair, the sends posted to it, and those that have completed.

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

/// Packet sequence numbers have 24 bits.
pub const PSN_MASK: u32 = 0xFF_FFFF;
/// One of this many sends is signaled; its completion also covers the unsignaled sends before it.
const MODERATION: u64 = 64;
/// [`MODERATION`] of sends that use a buffer.
const BUFFER_MODERATION: usize = 16;

/// Bytes of the prepared inline work request: a header and up to [`TINY`] bytes.
const READY: usize = HEAD + TINY;

/// What is attached to a send until it completes.
enum TxDesc {
    /// The buffer of a packet or of a write.
    Out(Buffer),
    /// The buffer of a read, and where its bytes are copied to.
    In(Buffer, ReadDesc),
    /// A flush marker: the request to complete after this send and all before it. Null: none any more.
    FlushMarker(*mut c_void),
    /// User memory of a zero-copy transfer.
    ZcopyDesc(ZcopyDesc),
}

// SAFETY: the pointers are only stored here; the code that completes the send ensures that they may be accessed.
unsafe impl Send for TxDesc {}

/// Target of a read or of an atomic operation's result, and the request to complete.
#[derive(Clone, Copy)]
pub struct ReadDesc {
    /// Null: the result is not wanted any more.
    pub into: *mut u8,
    pub len: usize,
    /// Not dereferenced here.
    pub owner: *mut c_void,
    /// The result is the old value of an atomic operation.
    pub atomic: bool,
}

/// An atomic operation of a device on 8 bytes; it returns the old value.
#[derive(Clone, Copy)]
pub enum AmoDesc {
    Add(u64),
    CompareSwap { compare: u64, swap: u64 },
}

// SAFETY: the pointers are only stored here; the code that completes the read ensures that they may be accessed.
unsafe impl Send for ReadDesc {}

/// User memory that the device accesses until the work request completes.
#[derive(Clone, Copy)]
pub struct ZcopyDesc {
    pub ptr: *mut u8,
    pub len: usize,
    /// The local key of the memory.
    pub key: u32,
    /// The memory is the target of a read from the peer's memory; otherwise it is the source of a write.
    pub reads: bool,
    /// Not dereferenced here.
    pub owner: *mut c_void,
}

// SAFETY: the pointers are only stored here; the owner keeps the memory until the work request completes.
unsafe impl Send for ZcopyDesc {}

/// Remote memory: its address and remote key.
#[derive(Clone, Copy)]
pub struct RemoteMem {
    pub addr: u64,
    pub key: u32,
}

/// The prepared work request of the shortest sends and writes, in which only a few words change.
struct InlineWqe {
    wr: ibv_send_wr,
    sge: ibv_sge,
    bytes: [u8; READY],
}

// SAFETY: the pointers lead to fields of the same allocation, which does not move.
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

/// The sending half of an RC connection, used by the thread that holds the peer's lock.
pub struct RcEp {
    pub qp: Arc<IbvQp>,
    /// Number of sends posted, and the number up to which sends need no check: the end of the inline budget.
    posted: u64,
    until: u64,
    ready: Box<InlineWqe>,
    iface: Arc<IbIface>,
    /// Number of the last signaled send, and of sends known to have completed.
    last_signaled: u64,
    ended: u64,
    /// Signaled sends whose completion has not been polled.
    signals_outstanding: u32,
    depth: u64,
    /// What is attached to sends that have not completed, by the number of the send.
    held: VecDeque<(u64, TxDesc)>,
    /// Slots of short operations, allocated at the first use.
    waits: Option<Box<OpSlots>>,
    /// Reads, atomic operations and flush markers that have not completed, here and in the slots.
    reads: u32,
    atomics: u32,
    flush_markers: u32,
    /// Bytes of user memory that the device accesses.
    zcopy_bytes: u64,
    /// Sends and writes wait for the reads before them (`IBV_SEND_FENCE`).
    fenced: bool,
    /// Sends with a buffer since the last signaled send.
    silent: usize,
}

impl RcEp {
    /// Creates the sending half. `qp` is connected, or will be before anything is sent.
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
            last_signaled: 0,
            ended: 0,
            signals_outstanding: 0,
            held: VecDeque::new(),
            waits: None,
            reads: 0,
            atomics: 0,
            flush_markers: 0,
            zcopy_bytes: 0,
            fenced: false,
            silent: 0,
        }
    }

    /// Number of sends that can be posted now.
    #[inline(always)]
    pub fn room(&self) -> usize {
        let most = self.depth.min(self.iface.share().into());
        most.saturating_sub(self.posted - self.ended) as usize
    }

    /// Whether `n` sends can be posted now; if not, a signaled send is posted whose completion covers the unsignaled
    /// ones.
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

    /// The number of sends after which one is signaled.
    #[inline(always)]
    fn moderation(&self) -> u64 {
        MODERATION.min(self.depth.min(self.iface.share().into()) / 2)
    }

    /// Whether the inline budget is not used up: one more send has room and need not be signaled.
    #[inline(always)]
    pub fn has_inline_budget(&self) -> bool {
        self.posted < self.until
    }

    /// Sets the inline budget: how many sends need no check, at most `packets`.
    pub fn refill_inline_budget(&mut self, packets: usize) {
        let silent = self
            .moderation()
            .saturating_sub(self.posted - self.last_signaled + 1);
        let waits = self.fenced && self.reads + self.atomics > 0;
        let most = match waits || (self.qp.max_inline as usize) < READY {
            true => 0,
            false => self.room().min(packets) as u64,
        };
        self.until = self.posted + most.min(silent);
    }

    /// Clears the inline budget: the device has refused a send, or sends have to wait for reads.
    pub fn revoke_inline_budget(&mut self) {
        self.until = 0;
    }

    /// Sends a header and up to [`TINY`] bytes within the inline budget. False: the device refuses.
    ///
    /// # Safety
    /// `len` bytes at `from` are readable.
    #[inline(always)]
    pub unsafe fn post_tiny(&mut self, head: [u8; HEAD], from: *const u8, len: usize) -> bool {
        let ready = &mut *self.ready;
        ready.bytes[..HEAD].copy_from_slice(&head);
        // SAFETY: by the caller, `from` is readable for `len` bytes; the array has room for TINY bytes behind the
        // header.
        unsafe { copy::tiny(ready.bytes.as_mut_ptr().add(HEAD), from, len) };
        ready.sge.length = (HEAD + len) as u32;
        ready.wr.opcode = IBV_WR_SEND;
        self.post_inline_wqe()
    }

    /// Writes up to [`TINY`] bytes to the peer's memory within the inline budget. False: the device refuses.
    ///
    /// # Safety
    /// `len` bytes at `from` are readable.
    #[inline(always)]
    pub unsafe fn write_tiny(&mut self, to: RemoteMem, from: *const u8, len: usize) -> bool {
        let ready = &mut *self.ready;
        // SAFETY: by the caller, `from` is readable for `len` bytes; the array has room for TINY bytes.
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
        // SAFETY: the only entry names `ready.bytes`, whose first `sge.length` bytes are written; inline data.
        unsafe { self.qp.post_send(&mut self.ready.wr) }
    }

    /// Whether a slot with bytes is free; allocates the slots if necessary.
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
        waits.has_slot()
    }

    /// The buffer that a read of `len` bytes by a slot needs: `Some(None)` if the slot's own bytes suffice. `None`: no
    /// buffer can be registered.
    #[inline(always)]
    pub fn through(&mut self, len: usize) -> Option<Option<Buffer>> {
        match len {
            ..=TINY => Some(None),
            _ => self.iface.packets.lock().get().map(Some),
        }
    }

    /// Reads up to [`TINY`] bytes, or as many as the buffer has, by a slot. The caller has checked the inline budget
    /// and that a slot is free. False: the device refuses.
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
        // SAFETY: the only entry names the slot, or the buffer that the slot keeps: registered memory, which is not
        // accessed here until the read has completed.
        let posted = unsafe { self.qp.post_send(wr) };
        self.note_signaled();
        if self.fenced {
            self.revoke_inline_budget();
        }
        posted
    }

    /// Executes an atomic operation by a slot; `into` and `owner` are null if the result is not wanted. The caller has
    /// checked the inline budget and that a slot is free. False: the device refuses.
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
        let (wr, signaled) = waits.atomic(self.posted, step, at, into, owner);
        wr.wr_id = self.posted;
        // SAFETY: the only entry names the slot: registered memory, which is not accessed here until the operation has
        // completed.
        let posted = unsafe { self.qp.post_send(wr) };
        if signaled {
            self.note_signaled();
        }
        if self.fenced {
            self.revoke_inline_budget();
        }
        posted
    }

    /// Records that the send posted last is signaled.
    #[inline(always)]
    fn note_signaled(&mut self) {
        (self.last_signaled, self.silent) = (self.posted, 0);
        self.signals_outstanding += 1;
        self.iface.add_signaled(1);
    }

    /// Whether all posted sends are known to have completed.
    pub fn is_drained(&self) -> bool {
        self.posted == self.ended
    }

    /// Sends bytes as inline data. The caller has checked that there is room. False: the device refuses.
    #[inline(always)]
    pub fn post_inline(&mut self, bytes: &[u8]) -> bool {
        let mut sge = ibv_sge {
            addr: bytes.as_ptr() as u64,
            length: bytes.len() as u32,
            lkey: 0,
        };
        let signaled = self.posted + 1 - self.last_signaled >= self.moderation();
        self.post(&mut sge, IBV_WR_SEND, IBV_SEND_INLINE, signaled)
    }

    /// Sends a buffer, which returns to the interface when the send has completed. The caller has checked that there is
    /// room. False: the device refuses.
    pub fn post_buffer(&mut self, buffer: Buffer, len: usize) -> bool {
        let mut sge = ibv_sge {
            addr: buffer.ptr as u64,
            length: len as u32,
            lkey: buffer.lkey,
        };
        self.silent += 1;
        self.held.push_back((self.posted + 1, TxDesc::Out(buffer)));
        let signaled = self.is_signal_due();
        self.post(&mut sge, IBV_WR_SEND, 0, signaled)
    }

    /// Whether the next send is to be signaled.
    fn is_signal_due(&self) -> bool {
        self.silent >= BUFFER_MODERATION
            || self.posted + 1 - self.last_signaled >= self.moderation()
    }

    /// Writes bytes as inline data into the peer's memory. The caller has checked that there is room. False: the device
    /// refuses.
    pub fn write_inline(&mut self, bytes: &[u8], to: RemoteMem) -> bool {
        let mut sge = ibv_sge {
            addr: bytes.as_ptr() as u64,
            length: bytes.len() as u32,
            lkey: 0,
        };
        let signaled = self.is_signal_due();
        self.post_remote(&mut sge, IBV_WR_RDMA_WRITE, IBV_SEND_INLINE, signaled, to)
    }

    /// Writes a buffer into the peer's memory; it returns to the interface when the write has completed. The caller has
    /// checked that there is room. False: the device refuses.
    #[inline(always)]
    pub fn write_buffer(&mut self, buffer: Buffer, len: usize, to: RemoteMem) -> bool {
        let mut sge = ibv_sge {
            addr: buffer.ptr as u64,
            length: len as u32,
            lkey: buffer.lkey,
        };
        self.silent += 1;
        self.held.push_back((self.posted + 1, TxDesc::Out(buffer)));
        let signaled = self.is_signal_due();
        self.post_remote(&mut sge, IBV_WR_RDMA_WRITE, 0, signaled, to)
    }

    /// Reads into a buffer, whose bytes are copied to the target when the read has completed. The caller has checked
    /// that there is room. `last`: the request completes with this read, so it is signaled. False: the device refuses.
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
        let signaled = last || self.is_signal_due();
        self.post_remote(&mut sge, IBV_WR_RDMA_READ, 0, signaled, from)
    }

    /// Executes an atomic operation on 8 bytes, which are aligned to 8 bytes; the old value is copied to `old.into`,
    /// null if it is not wanted. The caller has checked that there is room. False: the device refuses.
    pub fn atomic(&mut self, buffer: Buffer, step: AmoDesc, old: ReadDesc, at: RemoteMem) -> bool {
        let sge = ibv_sge {
            addr: buffer.ptr as u64,
            length: size_of::<u64>() as u32,
            lkey: buffer.lkey,
        };
        self.silent += 1;
        let signaled = !old.into.is_null() || self.is_signal_due();
        self.held
            .push_back((self.posted + 1, TxDesc::In(buffer, old)));
        let posted = self.post_work(&mut [sge], step.opcode(), 0, signaled, |wr| {
            step.fill(wr, at)
        });
        self.atomics += 1;
        if self.fenced {
            self.revoke_inline_budget();
        }
        posted
    }

    /// Moves bytes between user memory and the peer's memory. The caller has checked that there is room. `last`: the
    /// request completes with this transfer, so it is signaled. `word`: the immediate that the peer gets after the
    /// bytes. False: the device refuses.
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

    /// [`post_zcopy`](Self::post_zcopy) for memory in several ranges, at most as many as a work request can name.
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
        let signaled = last || self.is_signal_due();
        if here.reads && self.fenced {
            self.revoke_inline_budget();
        }
        let posted = self.post_work(pieces, opcode, 0, signaled, |wr| {
            (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey) = (there.addr, there.key);
            wr.__bindgen_anon_1.imm_data = word.unwrap_or_default().to_be();
        });
        self.reads += u32::from(here.reads);
        self.zcopy_bytes += here.len as u64;
        self.held.push_back((self.posted, TxDesc::ZcopyDesc(here)));
        posted
    }

    /// The user memory that the device accesses, one entry per work request.
    pub fn zcopy_descs(&self) -> impl Iterator<Item = ZcopyDesc> {
        self.held.iter().filter_map(|(_, held)| match held {
            TxDesc::ZcopyDesc(desc) => Some(*desc),
            _ => None,
        })
    }

    /// Whether this is the queue pair `qpn` of the worker's interface `iface`.
    pub fn is(&self, iface: usize, qpn: u32) -> bool {
        self.qp.number == qpn && usize::from(self.iface.index) == iface
    }

    /// Index of the interface among the worker's.
    pub fn local_port(&self) -> usize {
        self.iface.index.into()
    }

    /// Whether a zero-copy transfer has not completed.
    pub fn zcopy_in_flight(&self) -> bool {
        self.zcopy_bytes > 0
    }

    /// Number of sends posted, for [`is_past`](Self::is_past).
    pub fn position(&self) -> u64 {
        self.posted
    }

    /// Whether all sends up to `position` have completed. If not, a completion of them is requested.
    pub fn is_past(&mut self, position: u64) -> bool {
        let past = self.ended >= position;
        if !past {
            self.post_signaled();
        }
        past
    }

    /// Bytes of zero-copy transfers that have not completed, and the speed of the port, Mb/s.
    pub fn load(&self) -> (u64, u32) {
        (self.zcopy_bytes, self.iface.port.mbps.max(1))
    }

    /// Maximum bytes of one work request.
    pub fn longest(&self) -> usize {
        self.iface.port.longest
    }

    /// The owners of user memory that the device accesses, once for each work request.
    pub fn zcopy_owners(&self) -> impl Iterator<Item = *mut c_void> {
        self.zcopy_descs().map(|desc| desc.owner)
    }

    /// Makes all later sends and writes take effect after the reads before them. Permanently: this type does not know
    /// where the fence is among the pending requests, and programs without fences lose nothing.
    pub fn fence(&mut self) {
        self.fenced = true;
        self.revoke_inline_budget();
    }

    /// Reports `owner` as complete, like a read, when all that was posted has completed. The caller has checked that
    /// something has not.
    #[inline(always)]
    pub fn flush_marker(&mut self, owner: *mut c_void) {
        if self.last_signaled < self.posted {
            match &mut self.waits {
                // If the device refuses this one, the sends before it report the failure.
                Some(waits) if self.posted < self.until => {
                    self.posted += 1;
                    let wr = waits.probe();
                    wr.wr_id = self.posted;
                    // SAFETY: a write of 0 bytes names no memory.
                    unsafe { self.qp.post_send(wr) };
                    self.note_signaled();
                }
                _ => self.post_signaled(),
            }
        }
        self.flush_markers += 1;
        match &mut self.waits {
            Some(waits) if waits.has_slot() => waits.flush_marker(self.posted, owner),
            _ => self.flush_marker_slow(owner),
        }
    }

    /// [`flush_marker`](Self::flush_marker) where no slot is free.
    #[inline(never)]
    fn flush_marker_slow(&mut self, owner: *mut c_void) {
        self.waits.get_or_insert_with(OpSlots::new);
        self.held
            .push_back((self.posted, TxDesc::FlushMarker(owner)));
    }

    /// Detaches the owners for which `wanted` is true: they are passed to `found`, once for each read or flush marker,
    /// and are not completed later.
    pub fn detach_owner(
        &mut self,
        wanted: impl Fn(*mut c_void) -> bool,
        mut found: impl FnMut(*mut c_void),
    ) {
        if let Some(waits) = &mut self.waits {
            waits.detach_owner(&wanted, &mut found);
        }
        for (_, held) in &mut self.held {
            match held {
                TxDesc::In(_, read) if !read.into.is_null() && wanted(read.owner) => {
                    read.into = std::ptr::null_mut();
                    found(read.owner);
                }
                TxDesc::FlushMarker(owner) if !owner.is_null() && wanted(*owner) => {
                    found(std::mem::replace(owner, std::ptr::null_mut()));
                }
                _ => {}
            }
        }
    }

    /// The owners of operations, once for each read, flush marker or zero-copy work request.
    pub fn owners(&self) -> impl Iterator<Item = *mut c_void> {
        let held = self.held.iter().filter_map(|(_, held)| match held {
            TxDesc::In(_, read) if !read.into.is_null() => Some(read.owner),
            TxDesc::FlushMarker(owner) if !owner.is_null() => Some(*owner),
            TxDesc::ZcopyDesc(desc) => Some(desc.owner),
            _ => None,
        });
        held.chain(self.waits.iter().flat_map(|waits| waits.owners()))
    }

    /// Requests a completion of all that was posted, unless one is requested. A write of 0 bytes needs no key.
    pub fn post_signaled(&mut self) {
        if self.last_signaled < self.posted {
            self.probe();
        }
    }

    /// Whether a signaled send is outstanding, whose completion also reports a failure of the sends before it.
    pub fn has_signaled(&self) -> bool {
        self.last_signaled > self.ended
    }

    /// Posts a signaled write of 0 bytes, which the peer's device has to acknowledge. False: the device refuses.
    pub fn probe(&mut self) -> bool {
        // It may exceed the connection's share once: its completion frees the sends before it.
        if self.depth <= self.posted - self.ended {
            return true;
        }
        let mut nothing = ibv_sge::default();
        self.post(&mut nothing, IBV_WR_RDMA_WRITE, 0, true)
    }

    #[inline(always)]
    fn post(
        &mut self,
        sge: &mut ibv_sge,
        opcode: ibv_wr_opcode,
        flags: u32,
        signaled: bool,
    ) -> bool {
        self.post_remote(sge, opcode, flags, signaled, RemoteMem { addr: 0, key: 0 })
    }

    #[inline(always)]
    fn post_remote(
        &mut self,
        sge: &mut ibv_sge,
        opcode: ibv_wr_opcode,
        flags: u32,
        signaled: bool,
        remote: RemoteMem,
    ) -> bool {
        self.post_work(std::slice::from_mut(sge), opcode, flags, signaled, |wr| {
            (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey) = (remote.addr, remote.key);
        })
    }

    #[inline(always)]
    fn post_work(
        &mut self,
        pieces: &mut [ibv_sge],
        opcode: ibv_wr_opcode,
        flags: u32,
        signaled: bool,
        fill: impl FnOnce(&mut ibv_send_wr),
    ) -> bool {
        self.posted += 1;
        let is_empty = matches!(pieces, [piece] if piece.length == 0);
        let mut wr = ibv_send_wr {
            wr_id: self.posted,
            sg_list: pieces.as_mut_ptr(),
            num_sge: if is_empty { 0 } else { pieces.len() as i32 },
            opcode,
            send_flags: flags | if signaled { IBV_SEND_SIGNALED } else { 0 },
            ..Default::default()
        };
        fill(&mut wr);
        if self.fenced && self.overtakes(opcode) {
            wr.send_flags |= IBV_SEND_FENCE;
        }
        if signaled {
            self.note_signaled();
        }
        // SAFETY: `pieces` has `num_sge` entries. They name inline data of the caller, which the call copies; or a
        // registered buffer, or the registered user memory of a request: both are in `held` until the send has
        // completed.
        unsafe { self.qp.post_send(&mut wr) }
    }

    /// Whether the operation can take effect before the reads that were posted: only reads, and atomic operations among
    /// themselves, are ordered by the device.
    #[inline(always)]
    fn overtakes(&self, opcode: ibv_wr_opcode) -> bool {
        match opcode {
            IBV_WR_RDMA_READ => false,
            IBV_WR_ATOMIC_FETCH_AND_ADD | IBV_WR_ATOMIC_CMP_AND_SWP => self.reads > 0,
            _ => self.reads + self.atomics > 0,
        }
    }

    /// Handles the completion of a signaled send: all sends up to it have completed, their buffers are freed, and
    /// results are copied to their targets. `done` gets each owner, once for each read, flush marker or zero-copy work
    /// request.
    #[inline(always)]
    pub fn on_send_completion(&mut self, number: u64, mut done: impl FnMut(*mut c_void)) {
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

    /// First step of [`on_send_completion`](Self::on_send_completion): records the completion. False: it completes no
    /// further send.
    #[inline(always)]
    pub fn advance_completed(&mut self, number: u64) -> bool {
        if self.signals_outstanding > 0 {
            self.signals_outstanding -= 1;
            self.iface.add_signaled(-1);
        }
        let new = number > self.ended && number <= self.posted;
        if new {
            self.ended = number;
        }
        new
    }

    /// Second step of [`on_send_completion`](Self::on_send_completion), repeated until it returns None: takes the next
    /// slot that has completed.
    #[inline(always)]
    pub fn next_completed(&mut self) -> Option<EndedOp> {
        let wait = self.waits.as_mut()?.take_completed(self.ended)?;
        if let Some(buffer) = wait.buffer {
            self.iface.packets.lock().put(buffer);
        }
        match wait.what {
            OpKind::FlushMarker => self.flush_markers -= 1,
            OpKind::Read => self.reads -= 1,
            OpKind::Atomic => self.atomics -= 1,
        }
        Some(wait)
    }

    /// Whether buffers or other memory are attached to sends: the third step, [`complete_descs`](Self::complete_descs),
    /// is needed.
    #[inline(always)]
    pub fn has_descs(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether flush markers wait: the third step, [`complete_descs`](Self::complete_descs), is needed.
    #[inline(always)]
    pub fn has_flush_markers(&self) -> bool {
        self.flush_markers > 0
    }

    /// Third step of [`on_send_completion`](Self::on_send_completion): frees the buffers of completed sends, copies
    /// results, and passes owners to `done`.
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
                        // SAFETY: the owner keeps the memory until the read completes or is detached from it; the
                        // buffer has `len` bytes.
                        unsafe { read.into.copy_from_nonoverlapping(buffer.ptr, read.len) };
                        done(read.owner);
                    }
                    packets.put(buffer);
                }
                TxDesc::FlushMarker(owner) => {
                    self.flush_markers -= 1;
                    if !owner.is_null() {
                        done(owner);
                    }
                }
                TxDesc::ZcopyDesc(desc) => {
                    self.reads -= u32::from(desc.reads);
                    self.zcopy_bytes -= desc.len as u64;
                    done(desc.owner);
                }
            }
        }
        drop(packets);
        if self.flush_markers > 0 {
            // There may have been no room to request a completion when the marker was set.
            self.post_signaled();
        }
    }
}

impl AmoDesc {
    /// The opcode of its work requests.
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
        // The device accesses none of the buffers after this.
        if self.qp.reset().is_err() {
            return;
        }
        self.iface.add_signaled(-(self.signals_outstanding as i32));
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

/// Connects a queue pair to that of a peer: moves it from INIT to RTS.
///
/// # Errors
/// Errors of the device: it has no route to the peer, or an attribute is invalid.
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
        retry_cnt: rc.retries.min(MAX_RETRIES),
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

/// Moves a queue pair from RESET to INIT, in which receives can be posted.
///
/// # Errors
/// Errors of the device.
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

/// The smallest code whose time, 4.096 us times a power of two, is not shorter than `time` (`ibv_modify_qp(3)`); code 0
/// means no timeout.
pub fn timeout_code(time: Duration) -> u8 {
    let fits = |code: &u8| Duration::from_nanos(4096u64 << code) >= time;
    (1..31).find(fits).unwrap_or(31)
}

/// Maximum of the retry count. The field has three bits, but rdma_rxe retries without end at 7, and a peer's death
/// would never be detected.
const MAX_RETRIES: u8 = 6;

/// Times of the codes 1 to 31, in hundredths of a millisecond (`ibv_modify_qp(3)`, min_rnr_timer).
const RNR: [u32; 31] = [
    1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
    3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// The smallest code whose time is not shorter than `time`.
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
