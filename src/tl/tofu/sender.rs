//! The sending half of a connection, guarded by the peer's lock.

mod bcopy;
mod flushes;
mod pieces;
mod rma;
mod short;

use super::ctrl_words::CtrlWord;
use super::iface::TofuIface;
use super::op_queue::{CONN_CBDATA, Completion, OpQueue, OpTag};
use super::ring_layout::{RingLayout, RingWriter};
use super::tx_acks::TxAcks;
use super::utofu::{OpFlags, Stadd, VcqId};
use super::vcq::PostFlags;
use super::vcq_ops::VcqOps;
use crate::sys::trace;
use crate::tl::Token;
use crate::wire::packet_hdr::{BYE, PacketHdr};
use crate::wire::tofu_msg::RailVcqs;
use flushes::PendingFlushes;
use std::sync::Arc;

/// Maximum number of unacknowledged posts of a connection: each can fail with a notice, and the MRQ is finite. From
/// `FLUSH_AT` on a flush request is posted.
pub(super) const MAX_UNACKED: u32 = 256;
const FLUSH_AT: u32 = MAX_UNACKED / 2;

/// A ring that a peer has granted.
#[derive(Clone, Copy, Debug)]
pub struct RemoteRing {
    /// The peer's VCQ with the connection's path set ([`super::vcq::Vcq::route`]): the destination of posts.
    pub vcq: VcqId,
    pub ring: Stadd,
    pub shape: RingLayout,
    /// Frames come without notices: the sender writes their count behind them.
    pub counted: bool,
    /// The VCQs of the peer's rails.
    pub rails: RailVcqs,
}

/// What precedes the next read, atomic operation or write by a rail. None of them is ordered with puts, or with another
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadGate {
    Open,
    /// It is the first after a flush that is pending: the outstanding ones are sealed before it is posted.
    Flush,
    /// It waits until the posts before a fence, so many, have arrived. Then as for [`Flush`](Self::Flush).
    Fence {
        posted: u32,
    },
}

// SAFETY: the buffers belong to the sender; `last` is used only in the call that sets it; requests of pending flushes
// are followed only by the thread that completes them.
unsafe impl Send for TofuSender {}

/// A short put: its destination, and the user's data, which are read in the call alone.
#[derive(Clone, Copy, Debug)]
struct ShortPut {
    stadd: Stadd,
    data: *const u8,
}

/// Used by one thread at a time, which holds the peer's lock.
pub struct TofuSender {
    /// Budgets: short puts, and short records, that may be posted without checks.
    put_budget: i32,
    short: u32,
    /// Posts since the beginning, modulo 2^32, including the remaining budget of short puts.
    until: u32,
    /// Calls and flags of short puts and records.
    vcq_ops: VcqOps,
    post_flags: PostFlags,
    /// The last short put, which is repeated if the VCQ was busy.
    last: ShortPut,
    iface: Arc<TofuIface>,
    flow: Arc<TxAcks>,
    ctrl_word: CtrlWord,
    tag: OpTag,
    to: RemoteRing,
    writer: RingWriter,
    /// The peer's rails, by the index of this worker's rail that leads there, with the path set.
    rails: Box<[VcqId]>,
    /// Data that rails have written may not have arrived yet.
    apart: bool,
    /// Reads, atomic operations and writes by rails that were posted, modulo 2^32, and how many of them have to
    /// complete before anything more is posted.
    reads: u32,
    behind: Option<u32>,
    gate: ReadGate,
    /// Flushes that wait.
    pending_flushes: PendingFlushes,
    /// Edata tag of the last non-fetching atomic operation.
    slot: u8,
    /// Staging memory of a record of several frames; its header, and the bytes already posted, while it is not fully
    /// posted.
    record: Vec<u8>,
    rest: Option<(PacketHdr, usize)>,
    /// Frames that an empty ring holds: longer records are posted in several steps.
    at_once: usize,
    /// BYE was sent.
    parted: bool,
    /// Buffers for the frames of the record that is being sent.
    buffers: Vec<(u16, *mut u8)>,
    /// A post was refused: nothing more is posted, and the connection fails.
    broken: bool,
}

impl TofuSender {
    /// The sender to a ring that the peer has granted: `to`, empty so far. `flow` counts the acknowledgements of its
    /// posts, `ctrl_word` is where the peer writes credits, `tag` names the connection in notices. It shares the VCQs
    /// of `iface` with other senders.
    pub fn new(
        iface: Arc<TofuIface>,
        flow: Arc<TxAcks>,
        ctrl_word: CtrlWord,
        tag: OpTag,
        to: RemoteRing,
    ) -> TofuSender {
        let rails = iface.rails.iter().zip(to.rails.iter());
        TofuSender {
            rails: rails.map(|(rail, peer)| rail.vcq.route(peer)).collect(),
            apart: false,
            put_budget: 0,
            short: 0,
            until: 0,
            vcq_ops: iface.vcq.vcq_ops(),
            post_flags: PostFlags {
                flags: OpFlags::STRONG_ORDER,
                edata: tag.generation,
                cbdata: CONN_CBDATA + tag.conn as usize,
            },
            last: ShortPut {
                stadd: 0,
                data: std::ptr::null(),
            },
            iface,
            flow,
            ctrl_word,
            tag,
            to,
            writer: RingWriter::new(to.shape),
            reads: 0,
            behind: None,
            gate: ReadGate::Open,
            pending_flushes: PendingFlushes::default(),
            slot: 0,
            record: Vec::new(),
            rest: None,
            at_once: to.shape.most_frames(),
            parted: false,
            buffers: Vec::new(),
            broken: false,
        }
    }

    /// Posts since the beginning, modulo 2^32.
    #[inline]
    fn posted(&self) -> u32 {
        self.until.wrapping_sub(self.put_budget.max(0) as u32)
    }

    /// Counts a post.
    #[inline(always)]
    fn posts(&mut self) {
        self.until = self.until.wrapping_add(1);
    }

    #[cold]
    fn fail(&mut self, code: i32) {
        self.broken = true;
        self.revoke_budget();
        self.iface.queue.lock().fail(self.tag.conn, code);
    }

    /// From now on nothing is posted before the earlier reads, atomic operations and writes by rails have completed,
    /// and none of these is posted before the earlier puts have arrived.
    pub fn fence(&mut self) {
        self.behind = (!self.has_read()).then_some(self.reads);
        let posted = self.posted();
        self.gate = if !self.flow.has_ended(posted) {
            ReadGate::Fence { posted }
        } else if self.pending_flushes.is_sealed() {
            ReadGate::Open
        } else {
            ReadGate::Flush
        };
        self.revoke_budget();
    }

    /// Whether nothing can be posted now.
    #[inline]
    fn is_held_back(&mut self) -> bool {
        if let Some(behind) = self.behind {
            let missing = behind.wrapping_sub(self.flow.reads_done());
            if (missing as i32) > 0 {
                return true;
            }
            self.behind = None;
        }
        // The rest of a record comes first: its frames count as posts, and one that is refused breaks the connection.
        // So a caller that finds room here can post.
        self.rest.is_some() && !self.push()
            || self.broken
            || self.promised() >= FLUSH_AT && self.is_full()
    }

    /// Whether too many posts are unacknowledged. Posts a flush request in time.
    #[inline(never)]
    fn is_full(&mut self) -> bool {
        self.revoke_budget();
        let unacked = self.flow.unacked(self.posted());
        if unacked >= FLUSH_AT && !self.flow.is_flushing() {
            self.post_flush();
        }
        self.broken || unacked >= MAX_UNACKED && !self.on_credit()
    }

    /// Polls the MRQ for a flush reply, for callers that put without calling progress. True: one more post is allowed.
    /// Not where threads share the worker: only the progress thread handles replies there.
    #[inline(never)]
    fn on_credit(&mut self) -> bool {
        let queue = &self.iface.queue;
        if queue.is_shared() || !queue.lock().poll_flush_reply(self.tag.conn) {
            return false;
        }
        self.flow.complete();
        if !self.pending_flushes.is_empty() {
            // Progress does not see this reply, and is to complete the flushes.
            self.iface.leave_unfinished(self.tag.conn);
        }
        self.flow.unacked(self.posted()) < MAX_UNACKED
    }

    /// Requests that wait for operations of this connection; a request may be listed several times.
    pub fn waiting(&self) -> Vec<Token> {
        let mut all = self.on_all_queues(OpQueue::waiting);
        all.extend(self.pending_flushes.owners());
        all
    }

    fn on_all_queues(&self, ask: impl Fn(&mut OpQueue, u32) -> Vec<Token>) -> Vec<Token> {
        let conn = self.tag.conn;
        let mut found = ask(&mut self.iface.queue.lock(), conn);
        for rail in &self.iface.rails {
            found.extend(ask(&mut rail.queue.lock(), conn));
        }
        found
    }

    /// Requests whose own memory the TNI accesses; a request may be listed several times.
    pub fn zcopy_owners(&self) -> Vec<Token> {
        self.on_all_queues(OpQueue::zcopy_owners)
    }

    /// Detaches and returns the requests that satisfy `wanted` and wait for reads into buffers, fetching atomics, or
    /// flushes.
    pub fn detach_owner(&mut self, wanted: impl Fn(Token) -> bool) -> Vec<Token> {
        let mut found = self.iface.queue.lock().detach_owner(self.tag.conn, &wanted);
        found.dedup();
        found.extend(self.pending_flushes.detach_owner(&wanted));
        found
    }

    /// Whether everything accepted has arrived, or the connection is broken.
    pub fn is_drained(&self) -> bool {
        self.broken || self.flow.has_ended(self.posted()) && self.has_read() && self.rest.is_none()
    }

    /// Whether everything accepted has arrived, or the connection is broken; if not, posts a flush request.
    pub fn drain(&mut self) -> bool {
        if self.is_drained() {
            return true;
        }
        if self.rest.is_none() && !self.is_acked(self.posted()) {
            self.post_flush();
        }
        false
    }

    /// Continues what had to wait: the rest of a record, and a flush request. True: nothing is left.
    pub fn go_on(&mut self) -> bool {
        self.push() && self.post_marker_flush()
    }

    /// Posts a flush request: its reply acknowledges all earlier posts, its error shows that the peer is gone.
    fn post_flush(&mut self) {
        // If too many requests or operations are outstanding, the next caller tries again.
        if self.flow.post_flush(self.posted())
            && !self.count(Some(Completion::Flush(self.tag.conn)))
        {
            self.flow.cancel_flush();
        }
    }

    /// Whether `posted` posts are acknowledged, or the reply to an outstanding request will acknowledge them.
    fn is_acked(&self, posted: u32) -> bool {
        // In this order: the reply to a request that is not outstanding any more has been counted.
        self.flow.is_flush_posted(posted) || self.flow.is_past(posted)
    }

    /// Posts a flush request, if none is outstanding, to detect whether the peer is alive.
    pub fn probe(&mut self) {
        if trace::is_on() {
            trace::instant("wire", "keepalive probe", &[]);
        }
        if !self.broken && !self.flow.is_flushing() {
            self.post_flush();
        }
    }

    /// Sends BYE behind everything else: this worker closes the connection. False: not yet.
    pub fn send_disconnect(&mut self) -> bool {
        self.parted = self.parted || self.broken || self.send(BYE, 0, 0, 0, |_| {});
        self.parted
    }
}

impl Drop for TofuSender {
    /// Returns buffers that were taken for a record that is not sent.
    fn drop(&mut self) {
        self.give_back_buffers();
    }
}
