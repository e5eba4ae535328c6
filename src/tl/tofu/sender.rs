//! The sending half of a connection: what a peer's lock guards.

mod rma;
mod flushes;
mod bcopy;
mod short;

use super::ctrl_words::CtrlWord;
use super::iface::TofuIface;
use super::op_queue::{Completion, LINKS, OpQueue, OpTag};
use super::ring_layout::{RingLayout, RingWriter};
use super::tx_acks::TxAcks;
use super::utofu::{STRONG_ORDER, Stadd, VcqId};
use super::vcq::PostFlags;
use super::vcq_ops::VcqOps;
use crate::wire::ib_packet::{BYE, PacketHdr};
use crate::wire::tofu_msg::RailVcqs;
use flushes::PendingFlushes;
use std::ffi::c_void;
use std::sync::Arc;

/// Posts of a connection of which nobody has told that they have arrived, at most: each can fail, with a notice of its
/// own, and the queue of notices has an end. From so many on somebody asks.
pub(super) const MOST_UNTOLD: u32 = 256;
const ASK_AT: u32 = MOST_UNTOLD / 2;

/// What a peer has granted.
#[derive(Clone, Copy, Debug)]
pub struct RemoteRing {
    /// The peer's queue, with the connection's path: what it is posted to ([`super::vcq::Vcq::route`]).
    pub vcq: VcqId,
    pub ring: Stadd,
    pub shape: RingLayout,
    /// Frames come without notices: their count is written behind them.
    pub counted: bool,
    /// The queues of the peer's rails.
    pub rails: RailVcqs,
}

// SAFETY: the buffers are the sender's own, and it moves with them; who waits behind a mark is followed by whoever is
// told.
unsafe impl Send for TofuSender {}

/// One thread at a time: whoever holds the peer's lock.
pub struct TofuSender {
    /// So many short writes may go before anything is looked at, and so many short records.
    calm: i32,
    short: u32,
    /// What will have been posted when the short writes are, since the beginning, modulo 2^32.
    until: u32,
    /// What is short goes this way, and is told by this.
    line: VcqOps,
    told: PostFlags,
    /// The last short write, in case that the queue had no room.
    last: (Stadd, *const u8),
    iface: Arc<TofuIface>,
    flow: Arc<TxAcks>,
    cell: CtrlWord,
    mark: OpTag,
    to: RemoteRing,
    writer: RingWriter,
    /// The peer's rails that ours of the same places lead to, each with its path.
    rails: Box<[VcqId]>,
    /// Something that was written by rails may not be there yet.
    apart: bool,
    /// Reads, atomic operations and writes by rails that were posted, modulo 2^32, and how many of them have to have
    /// come before anything more goes.
    reads: u32,
    behind: Option<u32>,
    /// Posts in front of a fence: what does not write keeps no order with them, and goes when they have arrived.
    fenced: Option<u32>,
    /// Flushes that wait.
    marks: PendingFlushes,
    /// What the last atomic operation without a reply was told by.
    slot: u8,
    /// Where a record is put together that takes several frames; its head, and how much of it has gone, while it is not
    /// all.
    record: Vec<u8>,
    rest: Option<(PacketHdr, usize)>,
    /// Frames that find room in the ring together, if it is empty: longer records go in several goes.
    at_once: usize,
    /// BYE was said.
    parted: bool,
    /// Buffers for the frames of the record that is being sent.
    buffers: Vec<(u16, *mut u8)>,
    /// The adapter has refused something: nothing goes any more, and the connection hears of it.
    broken: bool,
}

impl TofuSender {
    pub fn new(
        iface: Arc<TofuIface>,
        flow: Arc<TxAcks>,
        cell: CtrlWord,
        mark: OpTag,
        to: RemoteRing,
    ) -> TofuSender {
        let rails = iface.rails.iter().zip(to.rails.iter());
        TofuSender {
            rails: rails.map(|(rail, peer)| rail.vcq.route(peer)).collect(),
            apart: false,
            calm: 0,
            short: 0,
            until: 0,
            line: iface.vcq.line(),
            told: PostFlags {
                flags: STRONG_ORDER,
                edata: mark.colour,
                cbdata: LINKS + mark.link as usize,
            },
            last: (0, std::ptr::null()),
            iface,
            flow,
            cell,
            mark,
            to,
            writer: RingWriter::new(to.shape),
            reads: 0,
            behind: None,
            fenced: None,
            marks: PendingFlushes::default(),
            slot: 0,
            record: Vec::new(),
            rest: None,
            at_once: to.shape.most_frames(),
            parted: false,
            buffers: Vec::new(),
            broken: false,
        }
    }

    /// What was posted since the beginning, modulo 2^32.
    #[inline]
    fn posted(&self) -> u32 {
        self.until.wrapping_sub(self.calm.max(0) as u32)
    }

    /// One more is.
    #[inline(always)]
    fn posts(&mut self) {
        self.until = self.until.wrapping_add(1);
    }

    #[cold]
    fn fail(&mut self, code: i32) {
        self.broken = true;
        self.revoke_budget();
        self.iface.queue.lock().fail(self.mark.link, code);
    }

    /// From now on nothing goes before what is counted as a read has come that was posted until now, and none of those
    /// before what was written until now has arrived.
    pub fn fence(&mut self) {
        self.behind = (!self.has_read()).then_some(self.reads);
        let posted = self.posted();
        self.fenced = (!self.flow.has_ended(posted)).then_some(posted);
        self.revoke_budget();
    }

    /// Whether nothing can go now.
    #[inline]
    fn is_held_back(&mut self) -> bool {
        if let Some(behind) = self.behind {
            let missing = behind.wrapping_sub(self.flow.came());
            if (missing as i32) > 0 {
                return true;
            }
            self.behind = None;
        }
        // The rest first: it counts, and may find out that nothing goes any more. Whoever is told that there is room
        // finds some.
        self.rest.is_some() && !self.push()
            || self.broken
            || self.promised() >= ASK_AT && self.is_full()
    }

    /// Whether too much is under way of which nothing has been told. Has it told in time.
    #[inline(never)]
    fn is_full(&mut self) -> bool {
        self.revoke_budget();
        let untold = self.flow.unacked(self.posted());
        if untold >= ASK_AT && !self.flow.is_flushing() {
            self.post_flush();
        }
        self.broken || untold >= MOST_UNTOLD && !self.on_credit()
    }

    /// Hears an answer by itself: who puts very much calls nothing that progresses. Whether something more can be
    /// posted now. Not where threads share the worker: who hears answers there is one at a time.
    #[inline(never)]
    fn on_credit(&mut self) -> bool {
        let queue = &self.iface.queue;
        if queue.is_shared() || !queue.lock().poll_flush_reply(self.mark.link) {
            return false;
        }
        self.flow.complete();
        if !self.marks.is_empty() {
            // Nobody else hears that they have ended.
            self.iface.leave_unfinished(self.mark.link);
        }
        self.flow.unacked(self.posted()) < MOST_UNTOLD
    }

    /// Those who wait for what is under way, once or more for each.
    pub fn waiting(&self) -> Vec<*mut c_void> {
        let mut all = self.on_all_queues(OpQueue::waiting);
        all.extend(self.marks.owners());
        all
    }

    fn on_all_queues(
        &self,
        ask: impl Fn(&mut OpQueue, u32) -> Vec<*mut c_void>,
    ) -> Vec<*mut c_void> {
        let link = self.mark.link;
        let mut found = ask(&mut self.iface.queue.lock(), link);
        for rail in &self.iface.rails {
            found.extend(ask(&mut rail.queue.lock(), link));
        }
        found
    }

    /// Those in whose memory the adapter works, once or more for each.
    pub fn zcopy_owners(&self) -> Vec<*mut c_void> {
        self.on_all_queues(OpQueue::zcopy_owners)
    }

    /// Those who wait for reads that are copied, or by a mark, and of whom this is true, wait no more: who they are.
    pub fn detach_owner(&mut self, wanted: impl Fn(*mut c_void) -> bool) -> Vec<*mut c_void> {
        let mut found = self
            .iface
            .queue
            .lock()
            .detach_owner(self.mark.link, &wanted);
        found.dedup();
        found.extend(self.marks.detach_owner(&wanted));
        found
    }

    /// Whether all that was accepted has arrived.
    pub fn is_drained(&self) -> bool {
        self.broken || self.flow.has_ended(self.posted()) && self.has_read() && self.rest.is_none()
    }

    /// The same, after having it told: somebody waits for it.
    pub fn drain(&mut self) -> bool {
        if self.is_drained() {
            return true;
        }
        if self.rest.is_none() && !self.is_acked(self.posted()) {
            self.post_flush();
        }
        false
    }

    /// Goes on with what had to wait: the rest of a record, and what is to be asked. Whether nothing is left.
    pub fn go_on(&mut self) -> bool {
        self.push() && self.post_marker_flush()
    }

    /// Has it told when all that was sent has arrived, or that the peer is not there.
    fn post_flush(&mut self) {
        // Where too many ask or wait whoever asks next tries again.
        if self.flow.post_flush(self.posted())
            && !self.count(Some(Completion::Flush(self.mark.link)))
        {
            self.flow.cancel_flush();
        }
    }

    /// Whether so many posts have arrived, or what was asked will tell that they have.
    fn is_acked(&self, posted: u32) -> bool {
        // In this order: an answer that is not under way any more is there.
        self.flow.is_flush_posted(posted) || self.flow.is_past(posted)
    }

    /// Finds out whether the peer is still there, if nothing else does.
    pub fn probe(&mut self) {
        if !self.broken && !self.flow.is_flushing() {
            self.post_flush();
        }
    }

    /// Says that this worker goes, behind everything else. False: not yet.
    pub fn send_disconnect(&mut self) -> bool {
        self.parted = self.parted || self.broken || self.send(BYE, 0, 0, 0, |_| {});
        self.parted
    }
}

impl Drop for TofuSender {
    /// Buffers that were taken for a record that is not sent are the queue's again.
    fn drop(&mut self) {
        self.give_back_buffers();
    }
}
