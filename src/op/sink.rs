//! The layer above the transports, as they see it.

use super::rx_dispatch;
use crate::ctypes::*;
use crate::engine::peer::Peer;
use crate::engine::request::{PeerRef, Request};
use crate::engine::worker::Worker;
use crate::proto::select::message::longest_record;
use crate::proto::tx::{self, completion};
use crate::proto::{detach, failure, flush};
use crate::tl::sink::{PeerContact, PeerState, Sink};
use crate::tl::{Lane, LaneTarget, Message, Token};
use std::sync::atomic::Ordering;

/// A worker's peers for the progress of a transport. `short` gets each message first; true: it has handled it.
#[derive(Clone, Copy)]
pub struct WorkerSink<'a, F> {
    worker: &'a Worker,
    short: F,
}

impl<'a, F: Fn(&Worker, Message) -> bool + Copy> WorkerSink<'a, F> {
    #[inline(always)]
    pub fn new(worker: &'a Worker, short: F) -> Self {
        WorkerSink { worker, short }
    }
}

/// A sink for rare events, which the hot path does not handle.
pub fn cold(worker: &Worker) -> WorkerSink<'_, impl Fn(&Worker, Message) -> bool + Copy> {
    WorkerSink::new(worker, |_, _| false)
}

impl<F: Fn(&Worker, Message) -> bool + Copy> Sink for WorkerSink<'_, F> {
    type Peer = PeerRef;

    #[inline(always)]
    fn deliver_short(self, peer: PeerRef, m: Message) -> bool {
        let len = m.len;
        let handled = (self.short)(self.worker, m);
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

    fn peer(self, uid: u64, target: LaneTarget) -> Option<PeerRef> {
        let peer = self.worker.peer(uid, None, Some(target))?;
        // SAFETY: a local variable of a progress call, and then the peer of an incoming ring.
        Some(unsafe { PeerRef::new(&peer) })
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
        let by_socket = peer.socket_target().cloned().map(LaneTarget::Tcp);
        PeerContact {
            uid: peer.uid,
            losses: peer.losses,
            target: by_socket.or_else(|| peer.target.as_deref().cloned()),
        }
    }

    fn state(self, peer: PeerRef) -> PeerState {
        let peer = peer.get();
        let tx = peer.tx.lock();
        let (has_lane, is_connecting) = (tx.lane.is_some(), tx.connecting);
        drop(tx);
        PeerState {
            // Relaxed: set once; the next call sees it.
            watches_death: peer.watch_death.load(Ordering::Relaxed),
            has_endpoint: peer.eps.lock().any_open(),
            has_lane,
            uses_inbox: peer.uses_inbox(),
            is_connecting,
        }
    }

    fn has_failed(self, peer: PeerRef) -> bool {
        peer.get().status() != UCS_OK
    }

    fn longest_record(self) -> usize {
        longest_record(&self.worker.ctx.tl.tcp.policy)
    }

    fn note_device(self, peer: PeerRef, index: usize) {
        peer.get().set_dev_index(index);
    }

    fn lane_up(self, peer: PeerRef, lane: Lane) -> bool {
        let peer: &Peer = peer.get();
        let mut tx = peer.tx.lock();
        tx.connecting = false;
        let is_first = tx.lane.is_none();
        if is_first {
            tx.lane = Some(lane);
            peer.note_traffic(self.worker);
            tx::log_lanes(self.worker, peer);
        } else {
            // Its destructor takes locks of the transport.
            drop(tx);
            drop(lane);
        }
        is_first
    }

    fn lane_down(self, peer: PeerRef, status: ucs_status_t) {
        peer.get().fail(status);
    }

    fn iface_down(self, reaches: fn(&LaneTarget) -> bool, status: ucs_status_t) {
        for peer in self.worker.all_peers() {
            if peer.target.as_deref().is_some_and(reaches) {
                peer.fail(status);
            }
        }
    }

    fn incoming_up(self, peer: PeerRef) {
        peer.get().note_traffic(self.worker);
    }

    fn incoming_refused(self, peer: PeerRef) {
        // The peer may be known only by its request.
        detach::note_idle(self.worker, peer.get());
    }

    #[inline]
    fn with_lane<R>(self, peer: PeerRef, act: impl FnOnce(&mut Lane) -> R) -> Option<R> {
        peer.get().tx.lock().lane.as_mut().map(act)
    }

    fn take_lane(self, peer: PeerRef, which: impl FnOnce(&Lane) -> bool) -> Option<Lane> {
        peer.get().tx.lock().lane.take_if(|lane| which(lane))
    }

    #[inline]
    fn is_inherited(self) -> bool {
        self.worker.progress_flags.is_inherited()
    }
}
