//! The peers of a worker.

use crate::ctypes::*;
use crate::engine::inherited::disable_peer;
use crate::engine::peer::{Peer, PeerHandle, PeerHold, PeerOwner};
use crate::engine::pointers::WorkerRef;
use crate::engine::worker::{FlushNeed, Worker};
use crate::sys::fork;
use crate::sys::trace::{self, ArgValue};
use crate::tl::rail_event::RailEvent;
use crate::tl::{InboxLocator, LaneTarget};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

impl Worker {
    /// The peer with this identity, made if it is new. `None` when its location contradicts what is known: a worker
    /// does not move.
    pub fn peer(
        &self,
        uid: u64,
        inbox: Option<InboxLocator>,
        target: Option<LaneTarget>,
    ) -> Option<PeerHold> {
        let again = target.is_some();
        let peer = self.peer_or(uid, again, || {
            Peer::new(&self.as_owner(), uid, inbox, target)
        });
        let known = peer.inbox;
        (known == inbox || inbox.is_none() || known.is_none()).then_some(peer)
    }

    /// Prefetches what an incoming ring of a peer needs of it, if it is known.
    pub fn prefetch_peer(&self, uid: u64) {
        if let Some(peer) = self.peers.lock().get(&uid) {
            peer.prefetch_for_ring();
        }
    }

    /// The peer that a connection comes from.
    pub fn peer_from_incoming(&self, uid: u64) -> PeerHold {
        self.peer_or(uid, true, || Peer::new(&self.as_owner(), uid, None, None))
    }

    /// The peer with this uid, or a new one; `again`: a new one also replaces a failed one, because an address or a
    /// connection of it was received after the failure. Endpoints that lead to the failed one still do.
    fn peer_or(&self, uid: u64, again: bool, new: impl FnOnce() -> Peer) -> PeerHold {
        let mut peers = self.peers.lock();
        let lost = peers.get(&uid).filter(|p| p.status() != UCS_OK);
        let losses = lost.filter(|_| again).map(|p| p.losses() + 1);
        if losses.is_some() {
            self.replaced_peers.lock().extend(peers.remove(&uid));
        }
        let peer = peers.entry(uid).or_insert_with(|| {
            let mut peer = Box::new(new());
            // Usually a peer to which this worker has an endpoint has one to this worker.
            if peer.inbox.is_some() {
                self.tl.expect_sender();
                self.peer_lists.on_host.lock().push(&peer);
            }
            // Relaxed: under the lock.
            let fewest = self.losses.load(Ordering::Relaxed);
            peer.set_losses(losses.unwrap_or(0).max(fewest));
            let place = NonNull::from(&*peer).cast();
            // SAFETY: the address of the peer is stable; the entry is removed when it is dropped.
            let disabled =
                unsafe { fork::DisabledInChild::new(place, size_of::<Peer>(), disable_peer) };
            peer.in_children = Some(disabled);
            peer
        });
        PeerHold::new(peer)
    }

    /// What a new peer has of this worker.
    pub fn as_owner(&self) -> PeerOwner<'_> {
        PeerOwner {
            // SAFETY: the worker frees its peers when it is destroyed.
            worker: unsafe { WorkerRef::new(self) },
            uid: self.uid,
            pid: self.tl.inbox().map_or(0, |inbox| inbox.id.pid),
            mt: self.mt,
            cma_allowed: self.ctx.cma_allowed(),
            stats: &self.stats,
        }
    }

    /// Fails a peer: nothing more is sent to it or expected of it. Progress ends its requests and endpoints. Only the
    /// first status counts.
    #[cold]
    pub fn fail_peer(&self, peer: &Peer, status: ucs_status_t) {
        if peer.set_failed(status) {
            self.handle_failure(peer);
        }
    }

    /// Makes progress end the requests and endpoints of a peer, which has failed: those that it finds then.
    #[cold]
    pub fn handle_failure(&self, peer: &Peer) {
        self.peer_lists.failed.lock().push(peer);
        self.progress_flags.raise_deferred();
        self.wake();
    }

    /// Peers that are made from now on begin with so many losses at least.
    pub fn raise_losses(&self, losses: u32) {
        // Relaxed: under the lock of `peers`.
        self.losses.fetch_max(losses, Ordering::Relaxed);
    }

    /// Requests that progress connects to a peer.
    pub fn connect(&self, peer: &Peer) {
        // A peer without a target is connected by its fallback, and one whose target cannot be connected.
        let target = peer.target.as_deref().filter(|_| peer.fallback().is_none());
        let kind = target.map_or(LaneTarget::FALLBACK, LaneTarget::iface);
        if trace::is_on() {
            let args = [
                ("worker", ArgValue::Hex(self.uid)),
                ("peer", ArgValue::Hex(peer.uid)),
                ("interface", format!("{kind:?}").into()),
            ];
            trace::instant("wireup", "connect", &args);
        }
        self.peer_lists.connects(kind).lock().push(peer);
        self.progress_flags.raise_connect(kind);
        self.wake();
    }

    /// Adds work for rails to a peer, whose lock may be held.
    pub fn raise_rails(&self, peer: &Peer, task: RailEvent) {
        self.peer_lists.rails.lock().push_with(peer, task);
        self.progress_flags.raise_connect(RailEvent::IFACE);
        self.wake();
    }

    /// Whether nothing is on the way to any peer, by `is_awaited` for stub peers and by `look` for the others; `then`
    /// gets the result before the locks are released. Stub peers come first: requests that wait there move to the
    /// others.
    #[inline(always)]
    pub fn is_clean_then(
        &self,
        is_awaited: impl Fn(&Peer) -> bool,
        look: impl FnMut(&Peer) -> FlushNeed,
        then: impl FnOnce(bool),
    ) -> bool {
        let exchange = self.cm.lock();
        let mut placeholders = exchange.iter().flat_map(|x| x.stub_peers());
        let mut unflushed = self.peer_lists.unflushed.lock();
        let is_clean = !placeholders.any(|p| is_awaited(p)) && unflushed.is_clean(look);
        then(is_clean);
        is_clean
    }

    /// The peers to which something may be on the way.
    pub fn unflushed_peers(&self) -> Vec<PeerHandle> {
        let exchange = self.cm.lock();
        let placeholders = exchange.iter().flat_map(|x| x.stub_peers());
        let stubs: Vec<_> = placeholders.cloned().map(PeerHandle::Placeholder).collect();
        let mut peers = self.peer_lists.unflushed.lock().handles();
        peers.extend(stubs);
        peers
    }

    /// Calls `each` for all peers but stub peers, under the locks of the lists. Progress alone calls it: it frees no
    /// peer meanwhile.
    pub fn each_settled_peer(&self, mut each: impl FnMut(&Peer)) {
        let peers = self.peers.lock();
        peers.values().for_each(|p| each(p));
        self.replaced_peers.lock().iter().for_each(|p| each(p));
    }

    /// All peers, for rare events that concern every one.
    pub fn all_peers(&self) -> Vec<PeerHandle> {
        let settled = |p: &Peer| PeerHandle::Settled(PeerHold::new(p));
        // Under the lock of `peers` progress frees no peer of either list.
        let peers = self.peers.lock();
        let mut all: Vec<_> = peers.values().map(|p| settled(p)).collect();
        all.extend(self.replaced_peers.lock().iter().map(|p| settled(p)));
        drop(peers);
        if let Some(x) = self.cm.lock().as_ref() {
            all.extend(x.stub_peers().cloned().map(PeerHandle::Placeholder));
        }
        all
    }
}
