//! A reliable connection: a queue pair, the sends posted to it, and those that have completed.

mod completion;
mod connect;
mod imm;
mod inline_wqe;
mod op;
mod pieces;
mod zcopy;

use super::bindings::*;
use super::buffers::Buffer;
use super::desc::TxDesc;
pub use super::desc::{AmoDesc, ReadDesc, RemoteMem, ZcopyDesc};
use super::iface::IbIface;
use super::op_slots::OpSlots;
use super::queues::IbvQp;
pub use connect::{PSN_MASK, begin, connect, timeout_code};
use inline_wqe::InlineWqe;
pub use pieces::BatchPool;
use std::collections::VecDeque;
use std::sync::Arc;
pub use zcopy::ZcopyLoad;

/// One of this many sends is signaled; its completion also covers the unsignaled sends before it.
const MODERATION: u64 = 64;
/// [`MODERATION`] of sends that use a buffer.
const BUFFER_MODERATION: usize = 16;

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

    /// Records that the send posted last is signaled.
    #[inline(always)]
    fn note_signaled(&mut self) {
        (self.last_signaled, self.silent) = (self.posted, 0);
        self.signals_outstanding += 1;
        self.iface.add_signaled(1);
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

    /// Whether this is the queue pair `qpn` of the worker's interface `iface`.
    pub fn is(&self, iface: usize, qpn: u32) -> bool {
        self.qp.number == qpn && usize::from(self.iface.index) == iface
    }

    /// Index of the interface among the worker's.
    pub fn local_port(&self) -> usize {
        self.iface.index.into()
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

    /// Makes all later sends and writes take effect after the reads before them. Permanently: this type does not know
    /// where the fence is among the pending requests, and programs without fences lose nothing.
    pub fn fence(&mut self) {
        self.fenced = true;
        self.revoke_inline_budget();
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
            if let TxDesc::Out(buffer) | TxDesc::In(buffer, _) | TxDesc::InPieces(buffer, _) = held
            {
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
