//! Another worker as this worker knows it: its address, the lane to it, and the requests that wait for room.

mod endpoints;
mod failure;
mod held_rts;
mod reference;
mod rma_counts;
mod rndv_times;
mod set;
mod short_rma;
mod split_copy;
mod notes;

use super::endpoint::EndpointRef;
use super::pointers::WorkerRef;
use super::policy::Policy;
use super::request::Request;
use super::stats::{PeerEntry, StatsPage};
use crate::ctypes::*;
use crate::sys::copy::{prefetch_to_read, prefetch_to_write};
use crate::sys::fork::DisabledInChild;
use crate::sys::lock::MtLock;
use crate::tl::contract::QpTransport;
use crate::tl::rma::RmaDevice;
use crate::tl::{
    CloseOffer, CmaPeer, CmaState, FallbackTarget, HostLink, InboxLocator, Lane, LaneTarget,
};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicI8, AtomicPtr, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

pub use endpoints::EpTable;
pub use held_rts::HeldRts;
use notes::PeerNotes;
pub use reference::PeerHold;
pub use rma_counts::RmaCounts;
pub use rndv_times::{CopyScheme, RndvTimes};
pub use set::PeerSet;
use short_rma::ShortRma;
pub use short_rma::{ShortAccess, ShortKind};

/// Device index of a peer without a connection.
const NO_CONNECTION: u8 = u8::MAX;

/// A worker that our endpoints lead to, or that has sent to us. Lives as long as our worker, unless it has failed and
/// nothing names it any more (`proto::release`).
pub struct Peer {
    pub uid: u64,
    worker: WorkerRef,
    /// Its inbox, if shared memory reaches it.
    pub inbox: Option<InboxLocator>,
    /// Where a connection to it is made, if shared memory does not reach it.
    pub target: Option<Box<LaneTarget>>,
    /// Where a TCP connection is made because no ring in its inbox can be had: set once, under the lock of `tx`.
    fallback: OnceLock<Box<FallbackTarget>>,
    /// How often this worker had lost that worker before: both ends distinguish old connections from new ones by it.
    losses: u32,
    /// It is the worker itself.
    is_own: bool,
    /// It is in this process: its memory is accessed directly.
    pub same_process: bool,
    pub tx: MtLock<PeerTx>,
    pub eps: MtLock<EpTable>,
    /// Remote accesses by message.
    pub rma: RmaCounts,
    cma_state: CmaState,
    /// Selects CMA or message for short accesses to memory that is not mapped.
    pub short_rma: ShortRma,
    /// References, without those of progress.
    references: AtomicU32,
    /// Where its traffic is counted, on the worker's page.
    stats: AtomicPtr<PeerEntry>,
    /// Its RTS messages that are in no list, because the user holds a descriptor or message that refers to them, or a
    /// call has begun to receive them.
    pub held_rts: parking_lot::Mutex<HeldRts>,
    /// Of a stub peer: the server's peer, as soon as that is known.
    successor_ptr: AtomicPtr<Peer>,
    notes: PeerNotes,
    /// The times of rendezvous receives from it on this host. Written by progress and by receives.
    pub rndv_times: RndvTimes,
    /// Number of the device of its connection among the context's; [`NO_CONNECTION`] before there is one.
    dev_index: AtomicU8,
    /// How it is or will be reached by queue pairs: a [`QpTransport`].
    qp_transport: AtomicU8,
    /// `UCS_OK`, or the status with which it failed.
    status: AtomicI8,
    /// Disables it in forked children; set once its address is stable.
    pub(super) in_children: Option<DisabledInChild>,
}

/// Sending state towards a peer.
pub struct PeerTx {
    /// Made by the first operation.
    pub lane: Option<Lane>,
    /// Where a TCP connection can be made if no ring can be had in the peer's inbox, or its network cannot connect;
    /// none while a ring is held.
    pub fallback_target: Option<Box<FallbackTarget>>,
    /// The way to a peer on this host while no lane leads there.
    pub host_link: HostLink,
    /// A connection is being made, or the peer was asked to make one.
    pub connecting: bool,
    /// Requests that wait for room, in order.
    pub pending: VecDeque<*mut Request>,
    /// Gets by message were sent after the last fence.
    pub unfenced_gets: bool,
    /// Flushes that wait for answers.
    pub flushes: Vec<AwaitedFlush>,
    /// This peer is in the worker's list of peers with pending requests.
    pub in_pending_list: bool,
    /// Flushes wait for the peer's position in the ring, which progress reads: it counts as a pending request.
    pub polls_position: bool,
    /// The peer may know the number of endpoints between the two workers.
    pub is_known: bool,
    /// The last ring was given back because it was not used: the peer keeps what it knows of this worker.
    pub has_given_back: bool,
}

impl PeerTx {
    /// Whether the lane is a ring in a crowded inbox by which nothing was sent since the last call.
    pub fn has_unused_ring(&mut self) -> bool {
        HostLink::is_unused(&mut self.lane)
    }

    /// Sets the lane to a quiet peer of this host aside and offers to close it. False: the peer has not handled all
    /// messages yet, or the lane is another transport's.
    pub fn offer_close(&mut self, offer: CloseOffer) -> bool {
        self.host_link.offer_close(&mut self.lane, offer)
    }
}

/// A flush that waits for the answers to RMA by message.
pub struct AwaitedFlush {
    pub req: *mut Request,
    /// Messages of RMA that were sent before it.
    pub sent_before: u64,
    /// It completes when `rma.done()` reaches this: `sent_before`, and the gets among them that were cancelled.
    pub target: u64,
    /// Signals without an answer that were sent before it, ever: the peer has handled them when its position in the
    /// ring is this one.
    pub signals: u64,
    pub signaled: u64,
}

/// One of a worker's peers.
pub enum PeerHandle {
    /// It lives at least as long as the reference.
    Settled(PeerHold),
    /// Stub peer: a close in another thread may drop the last other reference.
    Placeholder(Arc<Peer>),
}

impl std::ops::Deref for PeerHandle {
    type Target = Peer;

    fn deref(&self) -> &Peer {
        match self {
            PeerHandle::Settled(peer) => peer,
            PeerHandle::Placeholder(peer) => peer,
        }
    }
}

/// What a new peer has of its worker.
pub struct PeerOwner<'a> {
    pub worker: WorkerRef,
    /// Uid of the worker.
    pub uid: u64,
    /// Process of the worker; 0: shared memory reaches no peer of it.
    pub pid: u32,
    /// Threads may call the worker concurrently.
    pub mt: bool,
    /// Copies by the kernel are allowed.
    pub cma_allowed: bool,
    pub stats: &'a StatsPage,
}

impl Peer {
    /// A peer without any connection.
    pub fn new(
        owner: &PeerOwner,
        uid: u64,
        inbox: Option<InboxLocator>,
        target: Option<LaneTarget>,
    ) -> Self {
        let here = crate::sys::host::place();
        let same_pid_ns = inbox.is_some_and(|l| l.pid_ns == here.pid_ns);
        let qp_transport = target
            .as_ref()
            .map_or(QpTransport::None, LaneTarget::qp_transport);
        Self {
            uid,
            worker: owner.worker,
            fallback: OnceLock::new(),
            losses: 0,
            inbox,
            is_own: uid == owner.uid,
            same_process: same_pid_ns && inbox.is_some_and(|l| l.id.pid == owner.pid),
            tx: MtLock::new(
                owner.mt,
                PeerTx {
                    lane: None,
                    fallback_target: None,
                    host_link: HostLink::default(),
                    connecting: false,
                    pending: VecDeque::new(),
                    unfenced_gets: false,
                    flushes: Vec::new(),
                    in_pending_list: false,
                    polls_position: false,
                    is_known: false,
                    has_given_back: false,
                },
            ),
            eps: MtLock::new(owner.mt, EpTable::default()),
            rma: RmaCounts::default(),
            cma_state: CmaState::new(owner.cma_allowed && same_pid_ns),
            short_rma: ShortRma::default(),
            references: AtomicU32::new(0),
            stats: AtomicPtr::new(owner.stats.overflow_entry().as_ptr()),
            held_rts: parking_lot::Mutex::default(),
            successor_ptr: AtomicPtr::default(),
            notes: PeerNotes::default(),
            rndv_times: RndvTimes::default(),
            dev_index: AtomicU8::new(NO_CONNECTION),
            qp_transport: AtomicU8::new(qp_transport as u8),
            status: AtomicI8::new(UCS_OK as i8),
            in_children: None,
            target: target.map(Box::new),
        }
    }

    /// How often this worker had lost that worker before.
    pub fn losses(&self) -> u32 {
        self.losses
    }

    /// Sets how often this worker had lost that worker before.
    pub(super) fn set_losses(&mut self, losses: u32) {
        self.losses = losses;
    }

    /// The worker that has the peer.
    #[inline(always)]
    pub(super) fn worker_ref(&self) -> WorkerRef {
        self.worker
    }

    /// Prefetches what the connection of an incoming ring reads and writes.
    pub fn prefetch_for_ring(&self) {
        prefetch_to_read(&raw const self.uid);
        prefetch_to_read(&raw const self.inbox);
        prefetch_to_read(&raw const self.status);
        prefetch_to_write(&raw const self.references);
        prefetch_to_write(&raw const self.cma_state);
        prefetch_to_write(&raw const self.stats);
    }

    /// Copies from and to its memory.
    #[inline(always)]
    pub fn cma(&self) -> CmaPeer<'_> {
        CmaPeer {
            uid: self.uid,
            inbox: self.inbox.as_ref(),
            same_process: self.same_process,
            state: &self.cma_state,
        }
    }

    /// Target of TCP connections to it, if messages to it go by TCP.
    pub fn socket_target(&self) -> Option<&FallbackTarget> {
        let own = self.target.as_deref().and_then(LaneTarget::fallback);
        own.or_else(|| self.fallback())
    }

    /// Where its TCP connections are accepted, if those carry its messages in place of a ring in its inbox, or of a
    /// lane through another network.
    pub fn fallback(&self) -> Option<&FallbackTarget> {
        self.fallback.get().map(|target| &**target)
    }

    /// Whether messages to it go by a ring in its inbox.
    pub fn uses_inbox(&self) -> bool {
        self.inbox.is_some() && self.fallback.get().is_none()
    }

    /// Selects TCP in place of a ring in its inbox, or of a lane through another network. The caller has the lock of
    /// `tx`, and there was no lane.
    pub fn set_fallback(&self, target: Box<FallbackTarget>) {
        let first = self.fallback.set(target);
        debug_assert!(first.is_ok(), "a fallback is requested once");
    }

    /// Whether messages to it go by a ring that a device writes in its memory.
    #[inline]
    pub fn has_rings(&self) -> bool {
        self.target.as_deref().is_some_and(LaneTarget::has_ring)
    }

    /// The adapter for which keys of the peer's memory are resolved; `None`: keys are for ports, or its memory is
    /// accessed by message.
    pub fn resolves_keys(&self) -> Option<RmaDevice> {
        let target = self
            .target
            .as_deref()
            .filter(|_| self.fallback().is_none())?;
        self.worker().tl.resolves_keys(target)
    }

    /// Whether TCP was selected when the peer was made. Messages by a fallback connection keep the size limits of a
    /// ring, as their protocol can be selected before.
    pub fn has_socket(&self) -> bool {
        self.inbox.is_none()
            && match self.target.as_deref() {
                Some(target) => target.fallback().is_some(),
                // The peer has connected to this worker.
                None => self.qp_transport() == QpTransport::None,
            }
    }

    /// How queue pairs reach it.
    pub fn qp_transport(&self) -> QpTransport {
        // Relaxed: an independent value; no other data are published by it.
        match self.qp_transport.load(Ordering::Relaxed) {
            0 => QpTransport::None,
            1 => QpTransport::Unknown,
            2 => QpTransport::Own,
            _ => QpTransport::Datagrams,
        }
    }

    /// A lane is established, over this kind of queue pair; [`QpTransport::None`]: over none, which changes nothing.
    pub fn set_qp_transport(&self, qp_transport: QpTransport) {
        if qp_transport != QpTransport::None {
            self.qp_transport
                .store(qp_transport as u8, Ordering::Relaxed);
        }
    }

    /// The device of its connection, `None` without one; a number that no device has if the device is not known.
    pub fn dev_index(&self) -> Option<usize> {
        // Relaxed: an independent value; no other data are published by it.
        let dev_index = self.dev_index.load(Ordering::Relaxed);
        (dev_index != NO_CONNECTION).then_some(dev_index.into())
    }

    /// A connection to it is established, through this device.
    pub fn set_dev_index(&self, device: usize) {
        let dev_index = u8::try_from(device).unwrap_or(NO_CONNECTION);
        self.dev_index
            .store(dev_index.min(NO_CONNECTION - 1), Ordering::Relaxed);
    }

    /// Counters of its traffic.
    #[inline(always)]
    pub fn stats(&self) -> &PeerEntry {
        // SAFETY: an entry of the worker's page, which outlives its peers. Relaxed: entries are not moved.
        unsafe { &*self.stats.load(Ordering::Relaxed) }
    }

    /// Gives it an entry of its own on the worker's statistics page, before the first traffic.
    #[cold]
    pub fn note_traffic(&self, page: &StatsPage) {
        let rest = page.overflow_entry().as_ptr();
        if self.stats.load(Ordering::Relaxed) != rest {
            return;
        }
        let _alone = page.claims.lock();
        if self.stats.load(Ordering::Relaxed) == rest {
            let pid = self.inbox.map_or(0, |inbox| inbox.id.pid);
            let entry = page.claim(self.uid, pid);
            self.stats.store(entry.as_ptr(), Ordering::Relaxed);
            let endpoints = self.eps.lock().all().len();
            self.stats().set_endpoints(endpoints);
        }
    }

    /// Records on the worker's statistics page that it has `n` endpoints. The caller has the lock of `eps`.
    pub fn notify_endpoints(&self, page: &StatsPage, n: usize) {
        if self.stats.load(Ordering::Relaxed) != page.overflow_entry().as_ptr() {
            self.stats().set_endpoints(n);
        }
    }

    /// A stub peer: what a client's endpoint leads to until its server is known. Nothing is sent; requests wait.
    pub fn stub(owner: &PeerOwner) -> Self {
        let mut peer_stub = Self::new(owner, 0, None, None);
        // No connection is ever made to it.
        peer_stub.tx.get_mut().connecting = true;
        peer_stub
    }

    /// Whether it is a stub peer.
    pub fn is_stub(&self) -> bool {
        self.uid == 0
    }

    /// The peer that has replaced this stub peer.
    #[inline(always)]
    pub fn successor<'a>(&self) -> Option<&'a Peer> {
        // Acquire: pairs with the Release store in `set_successor`.
        // SAFETY: the stub peer has a counted reference to it until the stub peer is freed.
        unsafe { self.successor_ptr.load(Ordering::Acquire).as_ref() }
    }

    /// Replaces this stub peer, which has no successor yet: requests go to `peer` from now on.
    pub fn set_successor(&self, peer: &Peer) {
        // Released when the stub peer is freed.
        peer.hold();
        // Release: pairs with the Acquire load in `successor`.
        self.successor_ptr
            .store(std::ptr::from_ref(peer).cast_mut(), Ordering::Release);
    }

    /// Whether it is a stub peer whose server is not known yet.
    #[inline(always)]
    pub fn awaits_server(&self) -> bool {
        self.is_stub() && self.successor().is_none()
    }

    /// Whether it has not failed: [`status`](Self::status) is `UCS_OK`.
    #[inline(always)]
    pub fn is_connected(&self) -> bool {
        self.status.load(Ordering::Relaxed) == 0
    }

    /// `UCS_OK`, or the status with which it failed.
    #[inline(always)]
    pub fn status(&self) -> ucs_status_t {
        match self.status.load(Ordering::Relaxed) {
            0 => UCS_OK,
            raw => ucs_status_t::from_raw(raw),
        }
    }

    /// Bytes of the shortest message to it, with the user's header, that travels by rendezvous.
    #[inline]
    pub fn rndv_thresh(&self, policy: &Policy) -> usize {
        if self.inbox.is_some() {
            policy.rndv_thresh
        } else {
            policy.rndv_thresh_inter
        }
    }

    /// The endpoint with this number.
    pub fn ep_by_sn(&self, sn: u32) -> Option<EndpointRef> {
        self.eps.lock().by_sn(sn)
    }
}
