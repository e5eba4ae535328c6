//! The sending half of a connection with failover: each record is kept until the peer has acknowledged it.

use super::former_conns::{FormerConn, FormerConns};
use super::packet::{Grant, KEPT, PacketHdr};
use super::replay::ReplayQueue;
use super::sender::{HeldPackets, OfiSender};
use super::shared_ep::OfiSharedEp;
use super::tx_link::OfiTxLink;
use crate::wire::frame;
use std::sync::Arc;

/// What the sender of a connection with failover holds.
pub struct KeptPackets {
    replay: ReplayQueue,
    moved_from: FormerConns,
}

impl OfiSender {
    /// Keeps every record until the peer has acknowledged it.
    pub fn with_failover(mut self) -> OfiSender {
        self.max_inject = 0;
        self.held = HeldPackets::Kept(Box::new(KeptPackets {
            replay: ReplayQueue::new(self.link.sent()),
            moved_from: FormerConns::default(),
        }));
        self
    }

    /// Whether every record is kept until the peer has acknowledged it.
    #[inline(always)]
    pub(super) fn has_failover(&self) -> bool {
        self.replay().is_some()
    }

    /// The records that the peer has not acknowledged, of a connection with failover.
    #[inline(always)]
    pub(super) fn replay(&self) -> Option<&ReplayQueue> {
        match &self.held {
            HeldPackets::Kept(kept) => Some(&kept.replay),
            HeldPackets::None | HeldPackets::Waiting(_) => None,
        }
    }

    /// The connections that have carried the packets before, with operations on the peer's memory that are outstanding,
    /// or were.
    fn moved_from(&self) -> &[FormerConn] {
        match &self.held {
            HeldPackets::Kept(kept) => kept.moved_from.all(),
            HeldPackets::None | HeldPackets::Waiting(_) => &[],
        }
    }

    /// The endpoints and connections besides the present one whose operations on the peer's memory may be outstanding.
    pub(super) fn other_conns(&self) -> impl Iterator<Item = (&OfiSharedEp, &Arc<OfiTxLink>)> {
        let rail = self.rail().into_iter();
        let moved = self.moved_from().iter();
        rail.map(|rail| (&*rail.ep, &rail.link))
            .chain(moved.map(|conn| (&*conn.ep, &conn.link)))
    }

    /// Whether no operation of a former connection is outstanding.
    pub(super) fn is_drained_of_moved(&self) -> bool {
        match &self.held {
            HeldPackets::Kept(kept) => kept.moved_from.is_drained(),
            HeldPackets::None | HeldPackets::Waiting(_) => true,
        }
    }

    fn replay_mut(&mut self) -> Option<&mut ReplayQueue> {
        match &mut self.held {
            HeldPackets::Kept(kept) => Some(&mut kept.replay),
            HeldPackets::None | HeldPackets::Waiting(_) => None,
        }
    }

    /// Sends a record of `len` bytes, which `fill` writes, and keeps it. The caller has found room.
    pub(super) fn send_kept(
        &mut self,
        (kind, aux, imm): (u8, u8, u64),
        len: usize,
        fill: impl FnOnce(*mut u8),
    ) {
        let Some(replay) = self.replay_mut() else {
            return;
        };
        let total = frame::HEADER + len;
        let mut packet = Vec::with_capacity(total);
        packet.extend(frame::encode(kind, aux, imm, len));
        fill(packet.spare_capacity_mut().as_mut_ptr().cast());
        // SAFETY: the capacity is `total`, whose first bytes `extend` has written, and the others `fill`.
        unsafe { packet.set_len(total) };
        replay.keep(packet.into_boxed_slice());
        self.link.next_seq();
        self.post_kept();
    }

    /// Posts the kept packets that were not posted on this connection, as far as there is room. True: all are posted.
    pub(super) fn post_kept(&mut self) -> bool {
        let OfiSender {
            ep,
            link,
            to,
            held: HeldPackets::Kept(kept),
            ..
        } = self
        else {
            return true;
        };
        let replay = &mut kept.replay;
        while let Some((number, packet)) = replay.next_unposted() {
            if link.outstanding() >= ep.window || !post(ep, link, *to, number, packet) {
                ep.block(link);
                return false;
            }
            replay.set_posted();
        }
        replay.is_posted()
    }

    /// The peer has received the kept packets before `next`.
    pub fn acknowledged(&mut self, next: u32) {
        if let HeldPackets::Kept(kept) = &mut self.held {
            kept.replay.acknowledge(next);
        }
    }

    /// Forgets the former connections whose operations have all ended. Called several times a second.
    pub fn forget_drained(&mut self) {
        if let HeldPackets::Kept(kept) = &mut self.held {
            kept.moved_from.forget_drained();
        }
    }

    /// Number of the first packet that was sent, and that the peer has not acknowledged.
    pub fn unacknowledged(&self) -> Option<u32> {
        self.replay()?.unacknowledged()
    }

    /// The connection has failed: nothing is sent until [`move_to`](Self::move_to). Returns the number of the next
    /// packet.
    pub fn pause(&mut self) -> u32 {
        if let Some(replay) = self.replay_mut() {
            replay.pause();
        }
        self.link.sent()
    }

    /// The connection goes on by another interface, where the peer, whose end is `to`, expects the packet `next`: sends
    /// those from it on again. False: there is no such packet.
    pub fn move_to(
        &mut self,
        ep: Arc<OfiSharedEp>,
        link: Arc<OfiTxLink>,
        to: Grant,
        next: u32,
    ) -> bool {
        link.continue_at(self.link.sent());
        let (ep, link) = (
            std::mem::replace(&mut self.ep, ep),
            std::mem::replace(&mut self.link, link),
        );
        self.to = to;
        if let HeldPackets::Kept(kept) = &mut self.held {
            kept.moved_from.add(ep, link);
        }
        let is_known = (self.replay_mut()).is_some_and(|replay| replay.resume(next));
        if is_known {
            self.post_kept();
        }
        is_known
    }
}

/// Sends a packet with this number. False: there is no room.
fn post(ep: &OfiSharedEp, link: &Arc<OfiTxLink>, to: Grant, number: u32, packet: &[u8]) -> bool {
    let Some(buffer) = ep.take_buffer() else {
        return false;
    };
    let header = to.header(KEPT, number);
    // SAFETY: the buffer was taken, and has room for the header, the frame and the longest record.
    unsafe {
        let at = buffer.data();
        at.copy_from_nonoverlapping(header.as_ptr(), header.len());
        let body = at.add(PacketHdr::SIZE);
        body.copy_from_nonoverlapping(packet.as_ptr(), packet.len());
    }
    let total = PacketHdr::SIZE + packet.len();
    let is_posted = ep.post(buffer, total, link, false).is_ok();
    if !is_posted {
        ep.give_back(buffer);
    }
    is_posted
}
