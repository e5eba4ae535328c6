//! A worker: its queues, its peers and all state of progress.

use super::am::{AmDescs, AmHandler, PartialAm};
use super::cm::CmState;
use super::context::Context;
use super::cq::Cqs;
use super::endpoint::Endpoint;
use super::err_handlers::ErrHandlers;
use super::ib_worker::{IbWorker, RailEvent};
use super::inherited;
use super::matcher::Matcher;
use super::peer::{CopyScheme, Peer, PeerHandle, PeerHold};
use super::probe_state::ProbeState;
use super::progress_flags::ProgressFlags;
use super::ptr_map::PtrMap;
use super::regions::LastRegion;
use super::request::{PeerRef, REQUEST_SIZE, Request, RequestPool};
use super::stats::StatsPage;
use super::stream::StreamQueue;
use super::tcp_worker::TcpWorker;
use super::tofu_worker::TofuWorker;
use super::unexpected::PartialTag;
use super::unexpected::UnexpectedTag;
use super::wakeup::Wakeup;
use super::yield_policy::{BacklogYield, CasBackoff, IdleYield};
use crate::ctypes::*;
use crate::sys::copy::TINY;
use crate::sys::fork::{self, Origin};
use crate::sys::lock::MtLock;
use crate::sys::pool::Pool;
use crate::sys::regcache::LocalCache;
use crate::sys::{host, log};
use crate::tl::LaneTarget;
use crate::tl::ib::loopback::LoopbackQp;
use crate::tl::ib::mr::Devices;
use crate::tl::shm::chunk_board::ChunkState;
use crate::tl::shm::inbox::{Doorbell, Inbox};
use crate::tl::shm::order::Merge;
use crate::tl::shm::outbox::OpenSplitCopy;
use crate::tl::shm::ring::Consumer;
use crate::tl::shm::{InboxLocator, RingOwner};
use crate::tl::tofu::iface::TofuIface;
use crate::wire::address::{IbLocator, ShmLocator, TcpLocator, TofuLocator, WorkerAddress};
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

/// Requests that are allocated together: as many as UCX allocates.
pub(super) const REQUESTS_PER_CHUNK: usize = 128;
/// Endpoints that are allocated together.
pub(super) const EPS_PER_CHUNK: usize = 32;
/// Longest user header of an active message, bytes. MPICH 5.0.1 assumes 8000 and some without a query.
pub const MAX_AM_HEADER: usize = 8192;

/// Parameters of [`Worker::new`] that come from `ucp_worker_params_t`.
pub struct WorkerParams {
    pub thread_mode: u32,
    pub name: Option<String>,
    pub am_alignment: usize,
    pub client_id: Option<u64>,
    pub ignore_leaks: bool,
    pub user_data: *mut std::ffi::c_void,
    /// The user's epoll descriptor.
    pub event_fd: Option<i32>,
    pub edge: bool,
}

/// Handed out as `ucp_worker_h`.
pub struct Worker {
    pub ctx: &'static Context,
    /// Threads may call it concurrently.
    pub mt: bool,
    pub params: WorkerParams,
    pub uid: u64,
    /// Locator of its inbox for peers of this host, if shared memory is used.
    pub locator: Option<InboxLocator>,
    /// Its InfiniBand and RoCE ports.
    pub ib: Option<IbLocator>,
    /// Its Tofu VCQ.
    pub tofu: Option<TofuLocator>,
    /// Index of its network interface among the context's.
    pub tni: usize,
    /// Its TCP listening socket.
    pub tcp: Option<TcpLocator>,
    /// Its TCP listening socket if that is only for the wireup of queue pairs.
    pub wireup_listener: Option<TcpLocator>,
    pub(super) extra_op_flags: AtomicU32,
    /// Receives of tagged messages take the fast path. Changes only in a forked child, which has a single thread.
    pub(super) fast_path_recv: Cell<bool>,
    /// Most messages that the running receive loop handles. In a forked child the loop ends with the message whose
    /// callback has forked. The progress thread's.
    pub receive_limit: Cell<u32>,
    /// The process that made it: a forked child inherits it and must not use it.
    origin: Origin,
    /// Disables it in forked children; set once its address is stable.
    in_children: Option<fork::DisabledInChild>,
    /// In front of `rx`: dropped before the inbox, which its thread reads.
    pub wakeup: Option<Wakeup>,
    /// Reports rings that new senders have taken in the inbox.
    pub doorbell: Doorbell,
    /// What only the progress thread touches.
    pub rx: MtLock<Rx>,
    pub matcher: MtLock<Matcher<UnexpectedTag>>,
    pub am: MtLock<Vec<AmHandler>>,
    /// Payloads that handlers keep.
    pub am_descs: AmDescs,
    /// Eager active messages of which some fragments have arrived, by peer. The progress thread's.
    pub partial_ams: MtLock<HashMap<*const Peer, PartialAm>>,
    /// Eager tagged messages of which some fragments have arrived, by peer. The progress thread's.
    pub partial_tags: MtLock<HashMap<*const Peer, PartialTag>>,
    pub streams: MtLock<StreamQueue>,
    /// Completion queues; none before the first.
    pub cqs: Cqs,
    pub pool: MtLock<RequestPool>,
    pub ep_pool: MtLock<Pool>,
    pub ids: MtLock<PtrMap<*mut Request>>,
    /// Sockaddr connection establishment; `None` before the first listener or client. In front of the peers, to which
    /// its stub peers lead.
    pub cm: MtLock<Option<Box<CmState>>>,
    pub peers: MtLock<HashMap<u64, Box<Peer>>>,
    /// Peers with pending requests; read only if `progress_flags` count any.
    pub pending_peers: MtLock<VecDeque<*const Peer>>,
    /// Receives that copy from a peer's memory, a piece for each progress call.
    pub cma_gets: MtLock<VecDeque<*mut Request>>,
    /// Receives whose senders were sent an RTR and may not progress.
    pub rtr_races: MtLock<Vec<RtrRace>>,
    /// The receive by CMA whose time is measured.
    pub timed_get: MtLock<Option<TimedGet>>,
    /// Our messages whose receivers let us copy chunks, some for each progress call.
    pub split_pushes: MtLock<Vec<SplitPush>>,
    /// Region of each peer's last access. The progress thread's.
    pub last_region: LastRegion,
    /// Queue pair to the own process by which a device executes atomic operations for peers that cannot use it
    /// directly; `None` before the first.
    pub loopback: MtLock<Option<LoopbackQp>>,
    /// Its interface to the Tofu interconnect, if it has one.
    pub tofu_iface: Option<Arc<TofuIface>>,
    /// Requests that a fence has removed from their queues: progress completes them.
    pub flushed_done: MtLock<Vec<*mut Request>>,
    /// Failed peers that are not handled yet.
    pub failed_peers: MtLock<Vec<*const Peer>>,
    /// Failed peers whose lanes are still to be dropped, and those that are to be freed after that. The progress
    /// thread's.
    pub departing: MtLock<Vec<*const Peer>>,
    pub departed: MtLock<Vec<*const Peer>>,
    /// Peers whose last endpoint is gone, or whose ring in our inbox is. Only progress removes them.
    pub idle: MtLock<Vec<*const Peer>>,
    /// Error handlers that are due, and the one that runs.
    pub err_handlers: MtLock<ErrHandlers>,
    /// Closed endpoints that progress may still read: their memory is not reused yet.
    pub closed_eps: MtLock<Vec<*mut Endpoint>>,
    /// Internal endpoints whose counterparts are closed and by which the user may still reply, the oldest first.
    pub ended: MtLock<VecDeque<*mut Endpoint>>,
    /// Endpoints whose counterparts were closed in order, and clock ticks since then.
    pub grace_eps: MtLock<Vec<(*mut Endpoint, u32)>>,
    /// Whether there is work in these lists, in the network or in `connect_*`.
    pub progress_flags: ProgressFlags,
    /// A fence was called while remote accesses by message were outstanding.
    pub fenced: AtomicBool,
    /// A fence was ever called: connections that are made from now on keep their gets in order, too.
    pub fences: AtomicBool,
    /// Peers to which TCP sockets, and queue pairs, are to be connected.
    pub connect_tcp: MtLock<Vec<*const Peer>>,
    pub connect_ib: MtLock<Vec<*const Peer>>,
    /// Peers at which a Tofu ring is to be requested.
    pub connect_tofu: MtLock<Vec<*const Peer>>,
    /// Work for rails to peers.
    pub rails: MtLock<Vec<(*const Peer, RailEvent)>>,
    /// Registrations that this worker found lately; `None` before the first lookup.
    pub ib_mrs: MtLock<Option<LocalCache<Devices>>>,
    /// Failed peers that were replaced: endpoints still lead to them.
    pub replaced_peers: MtLock<Vec<Box<Peer>>>,
    /// Failed peers that are in no list any more and that progress may still name. The progress thread's.
    pub unlisted: MtLock<Vec<Box<Peer>>>,
    /// Initial `losses` of a new peer: more than any freed peer had. Under the lock of `peers`.
    pub losses: AtomicU32,
    /// Tables of protocols that were printed.
    pub printed_tables: parking_lot::Mutex<Vec<String>>,
    /// Compare-and-swaps that found another value, modulo 2^32: by any thread, and a few may be lost.
    pub failed_swaps: AtomicU32,
    /// The statistics page, for other processes. Last: the fields above point into it.
    pub stats: StatsPage,
}

/// A message whose receiver lets this process copy a part of it.
pub struct SplitPush {
    pub peer: PeerRef,
    /// Our request.
    pub id: u64,
    /// Address in the receiver's memory.
    pub target: u64,
    /// Bytes of a chunk.
    pub chunk: usize,
    /// In our inbox; valid while the receiver's ring exists.
    pub chunk_state: NonNull<ChunkState>,
    pub generation: u32,
}

/// A receive for which an RTR lets the sender send at once.
pub struct RtrRace {
    pub peer: PeerRef,
    /// The receive.
    pub id: u64,
    /// In the ring that leads to the peer: the side that claims its only chunk moves the message.
    pub split_copy: OpenSplitCopy,
    /// Value of the peer's `parts` and when that last changed.
    pub parts: u32,
    pub since: Instant,
    /// Bytes of the message, and when the receive began, if its time is measured.
    pub timed: Option<(usize, Instant)>,
}

/// A receive by CMA whose time is measured.
pub struct TimedGet {
    /// Identifies the receive; not dereferenced.
    pub req: *const Request,
    pub scheme: CopyScheme,
    pub began: Instant,
}

/// Number of incoming rings that each progress call polls; the others are polled in turn.
pub const HOT_RINGS: usize = 8;

/// State of the progress thread: interfaces, incoming rings and idle time.
pub struct Rx {
    /// `None` where shared memory is not used.
    pub inbox: Option<Inbox>,
    pub shm_rings: Vec<Box<ShmRx>>,
    /// `None` where TCP is not used.
    pub tcp: Option<Box<TcpWorker>>,
    /// `None` where there are no ports, or they are not used.
    pub ib: Option<Box<IbWorker>>,
    /// `None` where there is no Tofu interconnect, or it is not used.
    pub tofu: Option<Box<TofuWorker>>,
    /// Most messages of a ring that the next progress call handles: 1 after an idle call, at most 16.
    pub budget: u32,
    pub merge: Merge,
    /// Next ring, behind the hot ones, to be polled.
    pub cursor: usize,
    /// Progress calls until the clock is read again.
    pub calls: u32,
    /// Progress calls between the last two clock ticks.
    pub clock_interval: u32,
    /// Coarse milliseconds of the last clock tick.
    pub last_tick: u64,
    /// Coarse milliseconds of the last check of the peers.
    pub last_failure_check: u64,
    pub liveness: ProbeState,
    /// Count of events, without messages of rings on the fast path.
    pub events: u64,
    /// Milliseconds since the last clock tick in which other threads had the core.
    pub yielded_ms: u64,
    pub idle_yield: IdleYield,
    pub backlog_yield: BacklogYield,
    pub contention: CasBackoff,
}

/// An incoming ring.
pub struct ShmRx {
    pub consumer: Consumer,
    pub index: usize,
    pub peer: PeerRef,
}

impl Worker {
    /// A worker without connections.
    ///
    /// # Errors
    /// The errors of making its inbox, its sockets or its wakeup.
    pub fn new(ctx: &'static Context, params: WorkerParams) -> io::Result<Box<Worker>> {
        let mt = params.thread_mode == ucs_thread_mode_t::UCS_THREAD_MODE_MULTI as u32;
        let inbox = inbox(ctx)?;
        // Without a device nothing can be connected.
        let sockets = match ctx.devices.is_empty() {
            true => None,
            false => {
                let tuning = ctx.policy.connecting.tuning(ctx.policy.keepalive_ms);
                let sockets = TcpWorker::new(tuning, &ctx.devices);
                let sockets =
                    sockets.map_err(|e| unreachable_reason("port (UCX_TCP_PORT_RANGE)", &e))?;
                Some(Box::new(sockets))
            }
        };
        let locator = sockets.as_ref().map(|s| s.locator());
        let (wireup_tcp, tcp) = match ctx.tcp_for_wireup_only {
            true => (locator, None),
            false => (None, locator),
        };
        let wakes = ctx.has(ucp_feature::UCP_FEATURE_WAKEUP);
        let ports = match ctx.ib_ports.is_empty() {
            true => None,
            false => {
                let ports = IbWorker::new(&ctx.ib_ports, mt, wakes);
                Some(Box::new(
                    ports.map_err(|e| unreachable_reason("InfiniBand queues", &e))?,
                ))
            }
        };
        let reaches_others = inbox.is_some() && ctx.policy.shm || tcp.is_some() || ports.is_some();
        let rings = rings(ctx, mt, reaches_others)?;
        let flags = ProgressFlags::default();
        if rings.is_some() {
            flags.raise_tofu();
        }
        let wake = if wakes {
            let wake = Wakeup::new(&params, inbox.as_ref());
            Some(wake.map_err(|e| unreachable_reason("wakeup", &e))?)
        } else {
            None
        };
        if let (Some(wake), Some(sockets)) = (&wake, &sockets) {
            wake.add(sockets.epoll.fd())?;
        }
        if let (Some(wake), Some(ports)) = (&wake, &ports) {
            for fd in ports.descriptors() {
                wake.add(fd)?;
            }
        }
        let request = REQUEST_SIZE + ctx.request_size;
        let uid = host::random_u64();
        let stats = StatsPage::new(uid, ctx.options.vfs_enable)?;
        let name = params.name.as_deref().unwrap_or_default();
        stats.set_names(name, &ctx.name, params.thread_mode);
        let pool = RequestPool::new(request, 16, REQUESTS_PER_CHUNK);
        // SAFETY: the page is dropped after the pool; only the pool writes this counter.
        let pool = unsafe { pool.count_in(stats.worker().requests()) };
        // SAFETY: the function sets the status and flags of those that have not completed.
        let pool = unsafe { pool.disabled_in_children(inherited::disable_requests) };
        let ep_pool = Pool::new(size_of::<Endpoint>(), align_of::<Endpoint>(), EPS_PER_CHUNK);
        // SAFETY: the function sets a flag in each of them.
        let ep_pool = unsafe { ep_pool.disabled_in_children(inherited::disable_endpoints) };
        let extra_op_flags = ctx.policy.extra_op_flags;
        let mut worker = Box::new(Worker {
            ctx,
            mt,
            uid,
            locator: inbox.as_ref().map(Inbox::locator),
            doorbell: inbox
                .as_ref()
                .map_or_else(Doorbell::unconnected, Inbox::doorbell),
            ib: ports
                .as_ref()
                .map(|p| p.locator(ctx.policy.ib.as_ref().map_or(0, |ib| ib.qp_transports()))),
            tofu: rings.as_ref().map(|rings| rings.locator()),
            tofu_iface: rings.as_ref().map(|rings| rings.iface.clone()),
            tni: rings.as_ref().map_or(0, |rings| rings.iface.tni),
            tcp,
            wireup_listener: wireup_tcp,
            extra_op_flags: AtomicU32::new(extra_op_flags),
            fast_path_recv: Cell::new(!mt && extra_op_flags == 0 && ctx.has(UCP_FEATURE_TAG)),
            receive_limit: Cell::new(0),
            origin: Origin::here(),
            in_children: None,
            rx: MtLock::new(
                mt,
                Rx {
                    inbox,
                    shm_rings: Vec::new(),
                    budget: 1,
                    merge: Merge::default(),
                    tcp: sockets,
                    ib: ports,
                    tofu: rings,
                    cursor: 0,
                    calls: 1,
                    clock_interval: 1,
                    last_tick: 0,
                    last_failure_check: 0,
                    liveness: ProbeState::default(),
                    events: 0,
                    yielded_ms: 0,
                    idle_yield: IdleYield::default(),
                    backlog_yield: BacklogYield::default(),
                    contention: CasBackoff::default(),
                },
            ),
            matcher: MtLock::new(mt, Matcher::new()),
            am: MtLock::new(mt, Vec::new()),
            am_descs: AmDescs::new(mt, params.am_alignment),
            partial_ams: MtLock::new(mt, HashMap::new()),
            partial_tags: MtLock::new(mt, HashMap::new()),
            streams: MtLock::new(mt, StreamQueue::default()),
            cqs: Cqs::new(mt),
            pool: MtLock::new(mt, pool),
            ep_pool: MtLock::new(mt, ep_pool),
            ids: MtLock::new(mt, PtrMap::new()),
            peers: MtLock::new(mt, HashMap::new()),
            pending_peers: MtLock::new(mt, VecDeque::new()),
            cma_gets: MtLock::new(mt, VecDeque::new()),
            rtr_races: MtLock::new(mt, Vec::new()),
            timed_get: MtLock::new(mt, None),
            split_pushes: MtLock::new(mt, Vec::new()),
            failed_peers: MtLock::new(mt, Vec::new()),
            departing: MtLock::new(mt, Vec::new()),
            departed: MtLock::new(mt, Vec::new()),
            idle: MtLock::new(mt, Vec::new()),
            last_region: LastRegion::default(),
            loopback: MtLock::new(mt, None),
            flushed_done: MtLock::new(mt, Vec::new()),
            err_handlers: MtLock::new(mt, ErrHandlers::default()),
            closed_eps: MtLock::new(mt, Vec::new()),
            ended: MtLock::new(mt, VecDeque::new()),
            grace_eps: MtLock::new(mt, Vec::new()),
            progress_flags: flags,
            fenced: AtomicBool::new(false),
            fences: AtomicBool::new(false),
            connect_tcp: MtLock::new(mt, Vec::new()),
            connect_ib: MtLock::new(mt, Vec::new()),
            connect_tofu: MtLock::new(mt, Vec::new()),
            rails: MtLock::new(mt, Vec::new()),
            ib_mrs: MtLock::new(mt, None),
            cm: MtLock::new(mt, None),
            replaced_peers: MtLock::new(mt, Vec::new()),
            unlisted: MtLock::new(mt, Vec::new()),
            losses: AtomicU32::new(0),
            failed_swaps: AtomicU32::new(0),
            wakeup: wake,
            params,
            printed_tables: parking_lot::Mutex::default(),
            stats,
        });
        let place = NonNull::from(&mut *worker).cast();
        // SAFETY: the address of the worker is stable; the entry is removed when it is dropped.
        worker.in_children = Some(unsafe {
            fork::DisabledInChild::new(place, size_of::<Worker>(), inherited::disable)
        });
        Ok(worker)
    }

    /// Whether this process is a child, forked after the worker was made. It may then only read what never changes.
    #[inline(always)]
    pub fn is_inherited(&self) -> bool {
        self.origin.is_inherited()
    }

    /// What is added to the flags of operations.
    #[inline(always)]
    pub fn extra_op_flags(&self) -> u32 {
        // Relaxed: changes only while the process has a single thread.
        self.extra_op_flags.load(Ordering::Relaxed)
    }

    /// Whether receives of tagged messages take the fast path.
    #[inline(always)]
    pub fn fast_path_recv(&self) -> bool {
        self.fast_path_recv.get()
    }

    /// Wakes progress, which may sleep in another thread, because there is work.
    #[inline]
    pub fn wake(&self) {
        if let Some(wake) = &self.wakeup {
            wake.wake();
        }
    }

    /// Drops the messages of which a peer has sent a part, as no further fragment arrives.
    pub fn drop_partials(&self, peer: *const Peer) {
        self.am_descs.discard(self.partial_ams.lock().remove(&peer));
        self.partial_tags.lock().remove(&peer);
    }

    /// Runs the user's `request_init` on a new element of the pool.
    pub fn init_request(&self, element: *mut u8) {
        if let Some(init) = self.ctx.request_init {
            // SAFETY: the function gets the user's area of a fresh element.
            unsafe { init(Request::handle(element.cast())) };
        }
    }

    /// Whether operations of a feature can take the fast path: there are no flags to add, the program requested the
    /// feature, and, for tags and active messages only, threads do not overlap and such short messages are eager.
    #[inline(always)]
    pub fn takes_fast_path(&self, feature: ucp_feature) -> bool {
        let policy = &self.ctx.policy;
        let by_message = matches!(feature, UCP_FEATURE_TAG | UCP_FEATURE_AM);
        let eager = !by_message || policy.rndv_thresh.min(policy.rndv_thresh_inter) > TINY;
        let alone = !self.mt || !by_message;
        alone && eager && self.extra_op_flags() == 0 && self.ctx.has(feature)
    }

    /// What this worker writes into a peer's inbox as the owner of a ring.
    pub fn as_sender(&self) -> Option<RingOwner> {
        Some(RingOwner {
            uid: self.uid,
            inbox: self.locator?,
        })
    }

    /// The worker's address. `net_only`: without the sections that only reach this host.
    pub fn address(&self, net_only: bool) -> WorkerAddress {
        let host = host::place().host;
        let shm = self.locator.filter(|_| !net_only).map(|l| ShmLocator {
            host,
            pid_ns: l.pid_ns,
            pid: l.id.pid,
            fd: l.id.fd,
            ino: l.id.ino,
            ipc_ns: l.ipc_ns,
            key: l.key,
            liveness_place: l.liveness_place,
            flags: 0,
        });
        WorkerAddress {
            uid: self.uid,
            client_id: self.params.client_id,
            name: None,
            shm,
            ib: self.ib.clone(),
            tofu: self.tofu,
            tcp: self.tcp.clone(),
            wireup_tcp: self.wireup_listener.clone(),
        }
    }

    /// The peer with this identity, made if it is new. `None` when its location contradicts what is known: a worker
    /// does not move.
    pub fn peer(
        &self,
        uid: u64,
        inbox: Option<InboxLocator>,
        target: Option<LaneTarget>,
    ) -> Option<PeerHold> {
        let again = target.is_some();
        let peer = self.peer_or(uid, again, || Peer::new(self, uid, inbox, target));
        let known = peer.inbox;
        (known == inbox || inbox.is_none() || known.is_none()).then_some(peer)
    }

    /// The peer that a connection comes from.
    pub fn peer_from_incoming(&self, uid: u64) -> PeerHold {
        self.peer_or(uid, true, || Peer::new(self, uid, None, None))
    }

    /// The peer with this uid, or a new one; `again`: a new one also replaces a failed one, because an address or a
    /// connection of it was received after the failure. Endpoints that lead to the failed one still do.
    fn peer_or(&self, uid: u64, again: bool, new: impl FnOnce() -> Peer) -> PeerHold {
        let mut peers = self.peers.lock();
        let lost = peers.get(&uid).filter(|p| p.status() != UCS_OK);
        let losses = lost.filter(|_| again).map(|p| p.losses + 1);
        if losses.is_some() {
            self.replaced_peers.lock().extend(peers.remove(&uid));
        }
        let peer = peers.entry(uid).or_insert_with(|| {
            let mut peer = Box::new(new());
            // Usually a peer to which this worker has an endpoint has one to this worker.
            if peer.inbox.is_some() {
                self.doorbell.expect_one();
            }
            // Relaxed: under the lock.
            let fewest = self.losses.load(Ordering::Relaxed);
            peer.losses = losses.unwrap_or(0).max(fewest);
            let place = NonNull::from(&*peer).cast();
            // SAFETY: the address of the peer is stable; the entry is removed when it is dropped.
            let disabled = unsafe {
                fork::DisabledInChild::new(place, size_of::<Peer>(), inherited::disable_peer)
            };
            peer.in_children = Some(disabled);
            peer
        });
        PeerHold::new(peer)
    }

    /// Requests that progress connects to a peer.
    pub fn connect(&self, peer: &Peer) {
        match peer.target.as_deref() {
            Some(LaneTarget::Ib(_)) => {
                self.connect_ib.lock().push(peer);
                self.progress_flags.raise_connect_ib();
            }
            Some(LaneTarget::Tofu(_)) => {
                self.connect_tofu.lock().push(peer);
                self.progress_flags.raise_connect_tofu();
            }
            Some(LaneTarget::Tcp(_)) | None => {
                self.connect_tcp.lock().push(peer);
                self.progress_flags.raise_network();
            }
        }
        self.wake();
    }

    /// Adds work for rails to a peer, whose lock may be held.
    pub fn raise_rails(&self, peer: &Peer, task: RailEvent) {
        self.rails.lock().push((peer, task));
        self.progress_flags.raise_connect_ib();
        self.wake();
    }

    /// Whether a condition is true for any peer. Evaluated under the locks of the lists, stub peers first: requests
    /// that wait there move to the other peers.
    pub fn any_peer(&self, is: impl Fn(&Peer) -> bool) -> bool {
        self.any_peer_then(is, |_| ())
    }

    /// [`any_peer`](Self::any_peer); `then` gets the result before the locks are released.
    #[inline(always)]
    pub fn any_peer_then(&self, is: impl Fn(&Peer) -> bool, then: impl FnOnce(bool)) -> bool {
        let exchange = self.cm.lock();
        let mut placeholders = exchange.iter().flat_map(|x| x.stub_peers());
        let any = placeholders.any(|p| is(p))
            || self.peers.lock().values().any(|p| is(p))
            || self.replaced_peers.lock().iter().any(|p| is(p));
        then(any);
        any
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

impl Drop for Worker {
    fn drop(&mut self) {
        // First: a fork in another thread reads the worker through it.
        self.in_children = None;
    }
}

/// The worker's Tofu rings, if there is an interconnect. `or_else`: peers are reached by other transports, too.
fn rings(ctx: &Context, mt: bool, or_else: bool) -> io::Result<Option<Box<TofuWorker>>> {
    let Some(tuning) = ctx.policy.tofu.filter(|_| !ctx.tnis.is_empty()) else {
        return Ok(None);
    };
    match TofuIface::new(&ctx.tnis, &ctx.vcq_registry, tuning, mt) {
        Ok(iface) => Ok(Some(TofuWorker::new(iface))),
        Err(e) if or_else => {
            log::warn!("a worker does not use Tofu: no {NO_QUEUE}: {e}");
            Ok(None)
        }
        Err(e) => Err(unreachable_reason(NO_QUEUE, &e)),
    }
}

/// End of the error message: the exhausted limit, and what can be done.
const NO_QUEUE: &str = "virtual control queue is left on the network interfaces of this node that UCX_NET_DEVICES \
     allows; fewer workers or processes a node, more interfaces, or, to share control queues earlier, a smaller \
     UCX_TOFU_MAX_VCQS or UCX_TOFU_VCQS_PER_WORKER make room";

/// The worker's inbox, if shared memory or the loopback is to be used.
///
/// # Errors
/// The error of making it, if the worker could not reach any peer without it.
fn inbox(ctx: &Context) -> io::Result<Option<Inbox>> {
    if !ctx.policy.shm && !ctx.policy.loopback {
        return Ok(None);
    }
    match Inbox::create(ctx.policy.named_inboxes) {
        Ok(inbox) => Ok(Some(inbox)),
        Err(e)
            if !ctx.ib_ports.is_empty() || !ctx.devices.is_empty() && !ctx.tcp_for_wireup_only =>
        {
            log::warn!(
                "this worker does not use shared memory, which cannot be allocated: {e} (ulimit -v)"
            );
            Ok(None)
        }
        Err(e) => Err(unreachable_reason("shared memory", &e)),
    }
}

/// An error of worker creation, for the log.
fn unreachable_reason(what: &str, e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("no {what}: {e}"))
}
