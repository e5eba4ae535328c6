//! The layer above the transports, as they see it.

use super::payload::{self, PayloadHold};
use super::{listener, rx_dispatch, signal, stream};
use crate::ctypes::*;
use crate::engine::cm::CmState;
use crate::engine::completion::complete_receive;
use crate::engine::peer::Peer;
use crate::engine::pointers::PeerRef;
use crate::engine::request::Request;
use crate::engine::stats::TallyCell;
use crate::engine::worker::Worker;
use crate::proto::select::message::longest_record;
use crate::proto::tx::completion::{self, EndedRequests};
use crate::proto::tx::{self, zcopy};
use crate::proto::{detach, failure, flush, loss_log, rndv, split_copy};
use crate::tl::payload::{PartialRecord, PayloadMem, PayloadPlace};
use crate::tl::rail_event::RailEvent;
use crate::tl::ring_sink::RingSink;
use crate::tl::sink::{LostPart, PeerContact, PeerState, Sink};
use crate::tl::{CmaPeer, IfaceKind, InboxLocator, Lane, LaneTarget, Message, TlWorker, Token};
use crate::wire::header::{Kind, NoteHdr, SignalWord};
use std::fmt;

/// Handles the most frequent messages: the hot path's part of a sink.
pub trait ShortMessages: Copy {
    /// Handles a message of one of the frequent kinds. False: it is of another kind, and nothing was done.
    fn handle(self, worker: &Worker, m: Message) -> bool;
}

/// Handles the most frequent messages of rings: functions of [`RingSink`] that are the hot path's.
pub trait ShortRings: ShortMessages {
    const BATCHES: bool;
    fn handle_eager(self, worker: &Worker, m: Message);
    fn handle_am(self, worker: &Worker, m: Message) -> bool;
    fn handle_signal(self, worker: &Worker, peer: &Peer, cq: u8, value: u64, head: NoteHdr)
    -> bool;
    fn handle_batch(self, worker: &Worker, first: Message, next: impl FnMut() -> Option<Message>);
}

/// Leaves every message to [`Sink::deliver`].
#[derive(Clone, Copy)]
pub struct NoShort;

impl ShortMessages for NoShort {
    fn handle(self, _worker: &Worker, _m: Message) -> bool {
        false
    }
}

/// A worker's peers for the progress of a transport. `short` gets each message first.
#[derive(Clone, Copy)]
pub struct WorkerSink<'a, H> {
    worker: &'a Worker,
    short: H,
}

impl<'a, H: ShortMessages> WorkerSink<'a, H> {
    #[inline(always)]
    pub fn new(worker: &'a Worker, short: H) -> Self {
        WorkerSink { worker, short }
    }
}

/// A sink for rare events, which the hot path does not handle.
#[inline(always)]
pub fn cold(worker: &Worker) -> WorkerSink<'_, NoShort> {
    WorkerSink::new(worker, NoShort)
}

impl<'a, H: ShortMessages> Sink for WorkerSink<'a, H> {
    type Peer = PeerRef;
    type Hold = PayloadHold<'a>;
    type Completions = EndedRequests;
    type Cold = WorkerSink<'a, NoShort>;

    #[inline(always)]
    fn cold(self) -> Self::Cold {
        cold(self.worker)
    }

    #[inline(always)]
    fn deliver_short(self, peer: PeerRef, m: Message) -> bool {
        let len = m.len;
        let handled = self.short.handle(self.worker, m);
        if handled {
            peer.get().stats().received.add(len);
        }
        handled
    }

    unsafe fn deliver(self, peer: PeerRef, m: &Message) -> bool {
        let peer = peer.get();
        peer.stats().received.add(m.len);
        // SAFETY: the caller's record.
        let handled = unsafe { rx_dispatch::message(self.worker, peer, m) };
        if handled.is_err() {
            failure::fail_corrupt(peer, "an invalid message");
        }
        handled.is_ok()
    }

    fn deliver_imm(self, peer: PeerRef, imm: u32, len: usize) {
        let peer = peer.get();
        peer.stats().received.add(0);
        match SignalWord::decode(imm) {
            Some(word) => signal::on_imm(self.worker, peer, word, len),
            None => rndv::put_zcopy::on_word(self.worker, peer, imm),
        }
    }

    fn place(self, peer: PeerRef, record: &PartialRecord) -> PayloadPlace<PayloadHold<'a>> {
        payload::place(self.worker, peer.get(), record)
    }

    fn placed(self, memory: PayloadMem<PayloadHold<'a>>, len: usize) {
        if let Some(mut borrowed) = memory.into_hold() {
            borrowed.received(len, Ok(()));
        }
    }

    fn deliver_part(self, peer: PeerRef, record: &mut PartialRecord, bytes: &[u8]) {
        payload::on_part(self.worker, peer.get(), record, bytes);
    }

    fn delivered(self, peer: PeerRef, record: &PartialRecord) {
        payload::on_end(peer.get(), record);
    }

    fn malformed(self, peer: PeerRef, what: &str) {
        failure::fail_corrupt(peer.get(), what);
    }

    #[inline]
    unsafe fn completed(self, token: Token, well: bool) {
        // SAFETY: the request of the token waits for the operation, as the caller says.
        unsafe {
            if well {
                completion::on_read(token)
            } else {
                completion::on_failed(token)
            }
        }
    }

    #[inline]
    unsafe fn flushed(self, token: Token) {
        // SAFETY: the request waited for this flush, and is in no list any more.
        unsafe { flush::marker_sent(Request::by_token(token)) };
    }

    #[inline(always)]
    unsafe fn completed_alone(self, token: Token) {
        // SAFETY: the caller's request, of a user; its only operation is complete.
        unsafe { complete_receive::<false>(Request::by_token(token), UCS_OK) };
    }

    fn repost(self, peer: PeerRef, lost: impl FnOnce(&mut Lane) -> Vec<LostPart>) {
        let peer = peer.get();
        let mut tx = peer.tx.lock();
        let lost = tx.lane.as_mut().map(lost).unwrap_or_default();
        let ended = zcopy::move_again(peer, &mut tx, &lost);
        drop(tx);
        for req in ended {
            // SAFETY: no part of the request is outstanding, and it is in no list.
            unsafe { zcopy::end(req) };
        }
    }

    #[inline]
    fn has_connects(self, kind: IfaceKind) -> bool {
        self.worker.progress_flags.has_connects(kind)
    }

    fn take_connects(self, kind: IfaceKind) -> impl Iterator<Item = PeerRef> {
        let flagged = self.worker.progress_flags.take_connect(kind);
        let wanted = flagged.then(|| self.worker.peer_lists.connects(kind).lock().take());
        wanted.into_iter().flatten().map(|(peer, ())| peer)
    }

    fn take_rail_events(self) -> impl Iterator<Item = (PeerRef, RailEvent)> {
        self.worker.peer_lists.rails.lock().take().into_iter()
    }

    fn set_polled(self, kind: IfaceKind, polled: bool) {
        let worker = self.worker;
        let is_active = || polled || kind == CmState::IFACE && listener::is_busy(worker);
        worker.progress_flags.update(kind, is_active);
    }

    fn send_control(self, peer: PeerRef, kind: Kind, imm: u64, body: &[u8]) {
        tx::control_first(peer.get(), kind, imm, body);
    }

    #[inline(always)]
    fn pending_room(self, _peer: PeerRef) -> bool {
        self.worker.progress_flags.backlog() != 0
    }

    fn peer(self, uid: u64, target: LaneTarget) -> Option<PeerRef> {
        let peer = self.worker.peer(uid, None, Some(target))?;
        // SAFETY: a local variable of a progress call, and then the peer of an incoming ring.
        Some(unsafe { PeerRef::new(&peer) })
    }

    fn local_peer(self, uid: u64, inbox: InboxLocator) -> Option<PeerRef> {
        let peer = self.worker.peer(uid, Some(inbox), None)?;
        // SAFETY: a local variable of a progress call, and then the peer of an incoming ring.
        Some(unsafe { PeerRef::new(&peer) })
    }

    fn prefetch_peer(self, uid: u64) {
        self.worker.prefetch_peer(uid);
    }

    fn incoming_peer(self, uid: u64) -> PeerRef {
        // SAFETY: a local variable of a progress call, and then the peer of a connection.
        unsafe { PeerRef::new(&self.worker.peer_from_incoming(uid)) }
    }

    fn uid(self, peer: PeerRef) -> u64 {
        peer.get().uid
    }

    fn contact(self, peer: PeerRef) -> PeerContact {
        let peer = peer.get();
        PeerContact {
            uid: peer.uid,
            losses: peer.losses(),
            target: peer.target.as_deref().cloned(),
            fallback: peer.fallback().cloned(),
            fails_over: peer.fails_over(),
        }
    }

    fn state(self, peer: PeerRef) -> PeerState {
        let peer = peer.get();
        let tx = peer.tx.lock();
        let (has_lane, is_connecting) = (tx.lane.is_some(), tx.connecting);
        let has_pending = !tx.pending.is_empty();
        let is_idle = !has_pending && peer.inbox.is_none();
        drop(tx);
        PeerState {
            watches_death: peer.watches_death(),
            has_endpoint: peer.eps.lock().any_open(),
            has_lane,
            uses_inbox: peer.uses_inbox(),
            is_connecting,
            is_wanted: !is_idle || peer.is_held(),
            has_pending,
        }
    }

    #[inline]
    fn watches_death(self, peer: PeerRef) -> bool {
        peer.get().watches_death()
    }

    fn is_dead(self, peer: PeerRef) -> bool {
        peer.get().is_dead()
    }

    fn was_destroyed(self, peer: PeerRef) -> bool {
        peer.get().was_destroyed()
    }

    fn has_failed(self, peer: PeerRef) -> bool {
        peer.get().status() != UCS_OK
    }

    fn longest_record(self) -> usize {
        longest_record(&self.worker.ctx.tl.tcp.policy.am_limits)
    }

    fn note_device(self, peer: PeerRef, index: usize) {
        peer.get().set_dev_index(index);
    }

    fn note_failover(self, peer: PeerRef) {
        peer.get().set_failover();
    }

    fn lane_up(self, peer: PeerRef, mut lane: Lane, device: Option<usize>) -> Result<(), Lane> {
        let peer: &Peer = peer.get();
        let mut tx = peer.tx.lock();
        tx.connecting = false;
        if tx.lane.is_some() || peer.uses_inbox() {
            return Err(lane);
        }
        if self.worker.fences_new_lanes() {
            lane.fence();
        }
        // The peer has fallen back, and this worker goes the same way.
        if lane.is_fallback()
            && let Some(target) = tx.fallback_target.take()
        {
            peer.set_fallback(target);
        }
        peer.set_qp_transport(lane.qp_transport());
        if let Some(index) = device {
            peer.set_dev_index(index);
        }
        if !lane.drains_in_call() {
            peer.note_unflushed();
        }
        tx.lane = Some(lane);
        peer.note_traffic(&self.worker.stats);
        tx::log_lanes(self.worker, peer);
        Ok(())
    }

    fn lane_down(self, peer: PeerRef, status: ucs_status_t) {
        self.worker.fail_peer(peer.get(), status);
    }

    fn lane_lost(self, peer: PeerRef, reason: fmt::Arguments<'_>, status: ucs_status_t) {
        loss_log::log_cause(peer.get(), reason);
        self.lane_down(peer, status);
    }

    fn unreachable(self, peer: PeerRef, reason: fmt::Arguments<'_>) {
        failure::unreachable(self.worker, peer.get(), reason);
    }

    fn fall_back(self, peer: PeerRef, reason: &str) -> bool {
        tx::fall_back(peer.get(), reason)
    }

    fn iface_down(self, reaches: fn(&LaneTarget) -> bool, status: ucs_status_t) {
        for peer in self.worker.all_peers() {
            if peer.target.as_deref().is_some_and(reaches) {
                self.worker.fail_peer(&peer, status);
            }
        }
    }

    fn incoming_up(self, peer: PeerRef) {
        peer.get().note_traffic(&self.worker.stats);
    }

    fn incoming_refused(self, peer: PeerRef) {
        // The peer may be known only by its request or its ring.
        detach::note_idle(self.worker, peer.get());
    }

    fn with_cma<R>(self, peer: PeerRef, act: impl FnOnce(CmaPeer<'_>) -> R) -> R {
        act(peer.get().cma())
    }

    fn drop_split_writes(self, peer: PeerRef) {
        split_copy::drop_push(self.worker, peer.get());
    }

    #[inline]
    fn with_lane<R>(self, peer: PeerRef, act: impl FnOnce(&mut Lane) -> R) -> Option<R> {
        peer.get().tx.lock().lane.as_mut().map(act)
    }

    #[inline(always)]
    unsafe fn with_lane_alone<R>(
        self,
        peer: PeerRef,
        act: impl FnOnce(&mut Lane) -> R,
    ) -> Option<R> {
        // SAFETY: the caller's promise.
        unsafe { peer.get().tx.alone() }.lane.as_mut().map(act)
    }

    fn take_lane(self, peer: PeerRef, which: impl FnOnce(&Lane) -> bool) -> Option<Lane> {
        peer.get().tx.lock().lane.take_if(|lane| which(lane))
    }

    #[inline]
    fn is_inherited(self) -> bool {
        self.worker.progress_flags.is_inherited()
    }
}

impl<'a, H: ShortRings> RingSink for WorkerSink<'a, H> {
    const BATCHES: bool = H::BATCHES;
    type Counter = &'a TallyCell;

    #[inline(always)]
    fn shared(&self) -> &TlWorker {
        &self.worker.tl
    }

    #[inline(always)]
    fn counter(self, peer: PeerRef) -> &'a TallyCell {
        &peer.get().stats().received
    }

    #[inline(always)]
    fn count(self, counter: &'a TallyCell, messages: u32, bytes: u64) {
        counter.add_many(messages.into(), bytes);
    }

    #[inline(always)]
    fn handle_eager(self, m: Message) {
        self.short.handle_eager(self.worker, m);
    }

    #[inline(always)]
    fn handle_am(self, m: Message) -> bool {
        self.short.handle_am(self.worker, m)
    }

    #[inline(always)]
    fn handle_signal(self, peer: PeerRef, cq: u8, value: u64, head: NoteHdr) -> bool {
        (self.short).handle_signal(self.worker, peer.get(), cq, value, head)
    }

    #[inline(always)]
    fn handle_batch(self, first: Message, next: impl FnMut() -> Option<Message>) {
        self.short.handle_batch(self.worker, first, next);
    }

    #[inline(always)]
    unsafe fn handle(self, peer: PeerRef, m: &Message) -> bool {
        let peer = peer.get();
        // SAFETY: the caller's record.
        unsafe {
            if m.kind == Kind::StreamData as u8 {
                stream::on_data(self.worker, peer, m.imm, m.record, m.len);
                return true;
            }
            let handled = rx_dispatch::message(self.worker, peer, m);
            if handled.is_err() {
                failure::fail_corrupt(peer, "an invalid message");
            }
            handled.is_ok()
        }
    }
}
