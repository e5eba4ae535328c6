//! Another worker, as this one knows it: where it is, the ring to it, what waits for room.

mod endpoints;
mod held_rts;
mod reference;
mod short_rma;

use super::endpoint::Endpoint;
use super::request::Request;
use super::stats::PeerEntry;
use super::worker::Worker;
use crate::ctypes::*;
use crate::sys::fork::DisabledInChild;
use crate::sys::lock::MtLock;
use crate::tl::shm::InboxLocator;
use crate::tl::shm::chunk_board::{ChunkBoard, ChunkState};
use crate::tl::shm::outbox::{OpenChunkBoard, Outbox, WaitingOutbox};
use crate::tl::shm::ring::CancelCounter;
use crate::tl::{Lane, LaneTarget, tcp};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicBool, AtomicI8, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering,
};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub use endpoints::EpTable;
pub use held_rts::HeldRts;
pub use reference::PeerRef;
use short_rma::ShortRma;

/// What is known of the right to copy from and to the peer's memory.
pub const CMA_UNKNOWN: u8 = 0;
pub const CMA_YES: u8 = 1;
pub const CMA_NO: u8 = 2;
/// We may, the peer may not.
pub const CMA_ALONE: u8 = 3;

/// Nanoseconds for a MiB that count at most: what takes longer was interrupted, or is as far away as matters.
const SLOWEST: u64 = 120_000;

/// Of a peer that no connection leads to.
const NO_CONNECTION: u8 = u8::MAX;

/// How queue pairs reach a peer.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpTransport {
    /// They do not.
    None = 0,
    /// They will, one way or the other.
    Unknown = 1,
    /// By one of its own.
    Own = 2,
    /// By the one for datagrams.
    Datagrams = 3,
}

/// A worker that endpoints of ours lead to, or that talked to us. Lives as long as our worker, unless it is lost and
/// nothing names it any more (`proto::release`).
pub struct Peer {
    pub uid: u64,
    pub worker: *const Worker,
    /// Its inbox, if shared memory reaches it.
    pub inbox: Option<InboxLocator>,
    /// Where a connection to it is made, if shared memory does not reach it.
    pub target: Option<Box<LaneTarget>>,
    /// Where a TCP connection is made because no ring in its inbox can be had: set once, under the lock of `tx`.
    fallback: OnceLock<Box<tcp::TcpTarget>>,
    /// How often this worker had lost that worker before: the two ends tell old connections from new ones by it.
    pub losses: u32,
    /// It is in this process: its memory is ours.
    pub same_process: bool,
    /// It is in this PID namespace: its pid means something to us.
    pub same_pid_ns: bool,
    pub tx: MtLock<PeerTx>,
    pub eps: MtLock<EpTable>,
    /// Remote accesses by message: parts sent (counted under `tx`), and parts answered or given up.
    pub rma_sent: AtomicU64,
    pub rma_done: AtomicU64,
    /// It refused one that no request stands for: the next flush to end tells.
    pub rma_refused: AtomicBool,
    /// Refusals of the accesses up to this one are told by no flush: the endpoint that made them was closed by force.
    /// Under `tx`.
    pub rma_excused: AtomicU64,
    pub cma: AtomicU8,
    /// Which of the two ways short accesses to memory that is not mapped take.
    pub short_rma: ShortRma,
    /// References that others than progress have.
    references: AtomicU32,
    /// Where its traffic is counted, on the worker's page.
    stats: AtomicPtr<PeerEntry>,
    /// In the ring that it sends through, null if there is none.
    pub cancels: AtomicPtr<CancelCounter>,
    /// How many of them we were told of, and how many of those before it took that ring.
    pub cancels_seen: AtomicU64,
    pub cancels_before: AtomicU64,
    /// Its offers that are in no list: a descriptor or a message that the user holds refers to them, or a call that has
    /// begun to receive them.
    pub held_rts: parking_lot::Mutex<HeldRts>,
    /// A placeholder leads here as soon as the server is known.
    pub successor_ptr: AtomicPtr<Peer>,
    /// The shares of long messages to it, in the ring that it opened to us; null before and after.
    pub board: AtomicPtr<ChunkBoard>,
    /// Parts of messages that have come, modulo 2^32: a peer that sends some is at work for us.
    pub parts: AtomicU32,
    /// Nanoseconds that it takes to copy a MiB of such parts out of the ring, of late; 0: not known. Progress writes
    /// it.
    pub copy_ns_per_mib: AtomicU32,
    /// Long messages from it that are not to be asked for before one is, whatever the pace was. Progress and receives
    /// write it.
    pub probe_skip: AtomicU8,
    /// Coarse milliseconds, modulo 2^32, of the last look that found its worker when an endpoint was made.
    pub probed_at: AtomicU32,
    /// An endpoint that handles errors was made to it: its end is to be noticed even if nothing is ever sent.
    pub watch_death: AtomicBool,
    /// An endpoint to it was closed by force when the user had no other: the worker's flushes do not wait for what it
    /// was given.
    pub force_closed: AtomicBool,
    /// The user was given an endpoint to answer on, which is his as long as the worker lives.
    pub answered: AtomicBool,
    /// It is in the worker's list of peers without endpoints.
    pub is_idle: AtomicBool,
    /// One that fails over: its connection is to outlive a port, if it is not made yet.
    failover: AtomicBool,
    /// Replies to its reads that wait for room and were not copied: they are sent from the memory that was read.
    pub replies_in_place: AtomicU32,
    /// Number of the device of its connection among the context's; [`NO_CONNECTION`] before there is one.
    via: AtomicU8,
    /// Whether it is, or will be, reached by queue pairs, one of its own or datagrams: of `QpTransport`.
    queues: AtomicU8,
    /// `UCS_OK`, or why it cannot be talked to any more.
    status: AtomicI8,
    /// Disables it in children, from when it has its place.
    pub(super) in_children: Option<DisabledInChild>,
}

/// The way to a peer.
pub struct PeerTx {
    /// Made by the first operation.
    pub lane: Option<Lane>,
    /// Where a TCP connection can be made if no ring can be had in the peer's inbox; none while a ring is held.
    pub fallback_target: Option<Box<tcp::TcpTarget>>,
    /// The peer's inbox, mapped when an endpoint was created, or by an operation that found no free ring there.
    pub waiting: Option<Box<WaitingOutbox>>,
    /// A connection is being made, or the peer was asked to make one.
    pub connecting: bool,
    /// Requests that wait for room, in order.
    pub pending: VecDeque<*mut Request>,
    /// Reads by message were sent, and no fence behind them.
    pub unfenced_gets: bool,
    /// Flushes that wait until `rma_done` reaches their number.
    pub flushes: Vec<(u64, *mut Request)>,
    /// This peer is in the worker's list of those with something pending.
    pub in_pending_list: bool,
    /// The ring that we offer to close, as nothing needs it. In place of the lane.
    pub closing_outbox: Option<Box<Outbox>>,
    /// The peer may know how many endpoints there have been between the two workers.
    pub is_known: bool,
}

/// One of a worker's peers.
pub enum PeerHandle {
    /// It lives at least as long as the reference.
    Settled(PeerRef),
    /// Another thread's close can free it as soon as nobody holds it.
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

impl Peer {
    /// A peer that nobody has talked to.
    pub fn new(
        worker: &Worker,
        uid: u64,
        inbox: Option<InboxLocator>,
        target: Option<LaneTarget>,
    ) -> Self {
        let here = crate::sys::host::place();
        let same_pid_ns = inbox.is_some_and(|l| l.pid_ns == here.pid_ns);
        Self {
            uid,
            worker,
            fallback: OnceLock::new(),
            losses: 0,
            inbox,
            same_process: same_pid_ns && inbox.is_some_and(|l| l.id.pid == here.pid),
            same_pid_ns,
            tx: MtLock::new(
                worker.mt,
                PeerTx {
                    lane: None,
                    fallback_target: None,
                    waiting: None,
                    connecting: false,
                    pending: VecDeque::new(),
                    unfenced_gets: false,
                    flushes: Vec::new(),
                    in_pending_list: false,
                    closing_outbox: None,
                    is_known: false,
                },
            ),
            eps: MtLock::new(worker.mt, EpTable::default()),
            rma_sent: AtomicU64::new(0),
            rma_done: AtomicU64::new(0),
            rma_refused: AtomicBool::new(false),
            rma_excused: AtomicU64::new(0),
            cma: AtomicU8::new(if worker.ctx.cma_allowed() && same_pid_ns {
                CMA_UNKNOWN
            } else {
                CMA_NO
            }),
            short_rma: ShortRma::default(),
            references: AtomicU32::new(0),
            stats: AtomicPtr::new(worker.stats.overflow_entry().as_ptr()),
            cancels: AtomicPtr::new(std::ptr::null_mut()),
            cancels_seen: AtomicU64::new(0),
            cancels_before: AtomicU64::new(0),
            held_rts: parking_lot::Mutex::default(),
            successor_ptr: AtomicPtr::default(),
            board: AtomicPtr::new(std::ptr::null_mut()),
            parts: AtomicU32::new(0),
            copy_ns_per_mib: AtomicU32::new(0),
            probe_skip: AtomicU8::new(0),
            probed_at: AtomicU32::new(0),
            watch_death: AtomicBool::new(false),
            force_closed: AtomicBool::new(false),
            answered: AtomicBool::new(false),
            is_idle: AtomicBool::new(false),
            failover: AtomicBool::new(false),
            replies_in_place: AtomicU32::new(0),
            via: AtomicU8::new(NO_CONNECTION),
            queues: AtomicU8::new(match target {
                Some(LaneTarget::Ib(_)) => QpTransport::Unknown as u8,
                _ => QpTransport::None as u8,
            }),
            status: AtomicI8::new(UCS_OK as i8),
            in_children: None,
            target: target.map(Box::new),
        }
    }

    /// Where TCP connections to it are made, if messages to it go by TCP.
    pub fn socket_target(&self) -> Option<&tcp::TcpTarget> {
        match self.target.as_deref() {
            Some(LaneTarget::Tcp(target)) => Some(target),
            _ => self.fallback.get().map(|target| &**target),
        }
    }

    /// Whether messages to it go by a ring in its inbox.
    pub fn uses_inbox(&self) -> bool {
        self.inbox.is_some() && self.fallback.get().is_none()
    }

    /// From now on messages to it go by TCP in place of a ring in its inbox. The caller has the lock of `tx`, and no
    /// ring was taken.
    pub fn set_fallback(&self, target: Box<tcp::TcpTarget>) {
        let first = self.fallback.set(target);
        debug_assert!(first.is_ok(), "no ring is asked for after the first time");
    }

    /// Whether messages to it go by rings over the Tofu interconnect.
    #[inline]
    pub fn has_rings(&self) -> bool {
        matches!(self.target.as_deref(), Some(LaneTarget::Tofu(_)))
    }

    /// Whether TCP was chosen when the peer was made. Messages by a fallback connection keep to the sizes for a ring:
    /// their protocol can be chosen before.
    pub fn has_socket(&self) -> bool {
        self.inbox.is_none() && self.queues() == QpTransport::None && !self.has_rings()
    }

    /// How queue pairs reach it.
    pub fn queues(&self) -> QpTransport {
        // Relaxed: a fact for those who ask, nothing hangs on it.
        match self.queues.load(Ordering::Relaxed) {
            0 => QpTransport::None,
            1 => QpTransport::Unknown,
            2 => QpTransport::Own,
            _ => QpTransport::Datagrams,
        }
    }

    /// A connection stands through the interface of this number; `own`: by a queue pair of its own.
    pub fn set_qp_transport(&self, iface: usize, own: bool) {
        let queues = if own {
            QpTransport::Own
        } else {
            QpTransport::Datagrams
        };
        self.queues.store(queues as u8, Ordering::Relaxed);
        self.set_dev_index(iface);
    }

    /// The device of its connection, if there is one; a number that no device has if that is not known.
    pub fn via(&self) -> Option<usize> {
        // Relaxed: a number for those who ask, nothing hangs on it.
        let via = self.via.load(Ordering::Relaxed);
        (via != NO_CONNECTION).then_some(via.into())
    }

    /// A connection to it stands, through this device.
    pub fn set_dev_index(&self, device: usize) {
        let via = u8::try_from(device).unwrap_or(NO_CONNECTION);
        self.via
            .store(via.min(NO_CONNECTION - 1), Ordering::Relaxed);
    }

    /// Its connection, which is about to be made, is to outlive a port.
    pub fn set_failover(&self) {
        self.failover.store(true, Ordering::Relaxed);
    }

    /// Whether its connection is to outlive a port.
    pub fn fails_over(&self) -> bool {
        // Relaxed: set before a connection is asked for, which whoever makes it sees by a lock; later it says nothing.
        self.failover.load(Ordering::Relaxed)
    }

    /// Where its traffic is counted.
    #[inline(always)]
    pub fn stats(&self) -> &PeerEntry {
        // SAFETY: an entry of the worker's page, which outlives its peers. Relaxed: entries are not moved.
        unsafe { &*self.stats.load(Ordering::Relaxed) }
    }

    /// Gives it an entry of its own on the worker's page, now that there will be traffic.
    #[cold]
    pub fn note_traffic(&self, worker: &Worker) {
        let rest = worker.stats.overflow_entry().as_ptr();
        if self.stats.load(Ordering::Relaxed) != rest {
            return;
        }
        let _alone = worker.stats.claims.lock();
        if self.stats.load(Ordering::Relaxed) == rest {
            let pid = self.inbox.map_or(0, |inbox| inbox.id.pid);
            let entry = worker.stats.claim(self.uid, pid);
            self.stats.store(entry.as_ptr(), Ordering::Relaxed);
            let endpoints = self.eps.lock().all().len();
            self.stats().set_endpoints(endpoints);
        }
    }

    /// Its number of endpoints is now `n`. The caller has `eps`.
    pub fn notify_endpoints(&self, n: usize) {
        // SAFETY: peers do not outlive their worker.
        let rest = unsafe { &*self.worker }.stats.overflow_entry();
        if self.stats.load(Ordering::Relaxed) != rest.as_ptr() {
            self.stats().set_endpoints(n);
        }
    }

    /// What a client's endpoint leads to until its server is known. Nothing can be sent; requests wait.
    pub fn stub(worker: &Worker) -> Self {
        let mut nobody = Self::new(worker, 0, None, None);
        // Nobody is to be connected to.
        nobody.tx.get_mut().connecting = true;
        nobody
    }

    /// Whether it is such a placeholder.
    pub fn is_stub(&self) -> bool {
        self.uid == 0
    }

    /// The peer that has taken this placeholder's place.
    #[inline(always)]
    pub fn successor<'a>(&self) -> Option<&'a Peer> {
        // Acquire: pairs with the Release store in `stub_peer::migrate`.
        // SAFETY: the placeholder has a reference to it until it is freed itself.
        unsafe { self.successor_ptr.load(Ordering::Acquire).as_ref() }
    }

    /// Whether it is a placeholder, and the server is not known yet.
    #[inline(always)]
    pub fn awaits_server(&self) -> bool {
        self.is_stub() && self.successor().is_none()
    }

    /// Whether it can be talked to, as far as is known: [`status`](Self::status) is `UCS_OK`.
    #[inline(always)]
    pub fn is_connected(&self) -> bool {
        self.status.load(Ordering::Relaxed) == 0
    }

    /// `UCS_OK` while it can be talked to.
    #[inline(always)]
    pub fn status(&self) -> ucs_status_t {
        match self.status.load(Ordering::Relaxed) {
            0 => UCS_OK,
            raw => ucs_status_t::from_raw(raw),
        }
    }

    /// Marks it as lost; true the first time.
    pub fn set_failed(&self, status: ucs_status_t) -> bool {
        self.status
            .compare_exchange(
                UCS_OK as i8,
                status as i8,
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Bytes of the shortest message to it, with the user's header, that travels by rendezvous.
    #[inline]
    pub fn rndv_thresh(&self, worker: &Worker) -> usize {
        if self.inbox.is_some() {
            worker.ctx.policy.rndv_thresh
        } else {
            worker.ctx.policy.rndv_thresh_inter
        }
    }

    /// Whether all remote accesses by message have been answered.
    #[inline(always)]
    pub fn rma_idle(&self) -> bool {
        // Acquire: pairs with the Release add where answers arrive.
        self.rma_done.load(Ordering::Acquire) >= self.rma_sent.load(Ordering::Relaxed)
    }

    /// A part of so many bytes was copied out of the ring in so long. What is better counts sooner than what is worse,
    /// and one interrupt does not make a near peer a distant one.
    pub fn note_copy_pace(&self, bytes: usize, took: Duration) {
        let sample = (took.as_nanos() as u64 * (1 << 20) / bytes as u64).min(SLOWEST);
        let known = u64::from(self.copy_ns_per_mib.load(Ordering::Relaxed));
        let pace = match known {
            0 => sample,
            _ if sample < known => (known + sample) / 2,
            _ => (3 * known + sample) / 4,
        };
        self.copy_ns_per_mib
            .store(pace.max(1) as u32, Ordering::Relaxed);
    }

    /// Opens a share of a message from it, if a ring leads to it and has one left.
    pub fn open_share(&self) -> Option<OpenChunkBoard> {
        match self.tx.lock().lane.as_mut() {
            Some(Lane::Shm(outbox)) => outbox.open_share(),
            _ => None,
        }
    }

    /// Gives a share back: the peer claims nothing of it any more, or finds another generation.
    pub fn close_share(&self, share: NonNull<ChunkState>) {
        if let Some(Lane::Shm(outbox)) = self.tx.lock().lane.as_mut() {
            outbox.close_share(share);
        }
    }

    /// Copying has worked.
    #[inline(always)]
    pub fn note_cma(&self) {
        if self.cma.load(Ordering::Relaxed) == CMA_UNKNOWN {
            self.cma.store(CMA_YES, Ordering::Relaxed);
        }
    }

    /// Whether its memory can be copied from and to, as far as is known.
    pub fn cma_usable(&self) -> bool {
        self.same_process || self.cma.load(Ordering::Relaxed) != CMA_NO
    }

    /// The endpoint with this number.
    pub fn ep_by_sn(&self, sn: u32) -> Option<*mut Endpoint> {
        self.eps.lock().by_sn(sn)
    }
}
