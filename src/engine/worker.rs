//! A worker: its queues, its peers and all state of progress.

mod cqs;
mod create;
mod endpoints;
mod inherited;
mod peer_lists;
mod peers;
mod reference;
mod rx;

use super::am::{AmDescs, AmHandler};
use super::cm::CmState;
use super::context::{Context, RECORDED};
use super::cq::Cqs;
use super::device_copies::RunningCopy;
use super::endpoint::EndpointRef;
use super::err_handlers::ErrHandlers;
use super::matcher::Matcher;
use super::peer::{CopyScheme, Peer};
use super::pointers::PeerRef;
use super::progress_flags::ProgressFlags;
use super::regions::LastRegion;
use super::request::{Request, RequestIds, RequestPool};
use super::stats::StatsPage;
use super::stream::StreamQueue;
use super::traced_requests::TracedRequests;
use super::unexpected::UnexpectedTag;
use super::wakeup::{Wakeup, WakeupParams};
use crate::ctypes::*;
use crate::sys::copy::TINY;
use crate::sys::fork::{self, Origin};
use crate::sys::lock::MtLock;
use crate::sys::pool::Pool;
use crate::tl::address::WorkerAddress;
use crate::tl::{RingOwner, SplitCopy, SplitWrite, TlWorker};
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

pub use peer_lists::{FlushNeed, PeerList, PeerLists, PeerMap};
pub use rx::Rx;

/// Longest user header of an active message, bytes. MPICH 5.0.1 assumes 8000 and some without a query.
pub const MAX_AM_HEADER: usize = 8192;

/// Parameters of [`Worker::new`] that come from `ucp_worker_params_t`.
pub struct WorkerParams {
    pub thread_mode: u32,
    pub name: Option<String>,
    pub am_alignment: usize,
    pub client_id: Option<u64>,
    pub ignore_leaks: bool,
    pub wakeup: WakeupParams,
}

impl WorkerParams {
    /// Whether threads may call the worker concurrently.
    pub fn is_multi_threaded(&self) -> bool {
        self.thread_mode == ucs_thread_mode_t::UCS_THREAD_MODE_MULTI as u32
    }
}

/// Handed out as `ucp_worker_h`.
pub struct Worker {
    pub ctx: &'static Context,
    /// Threads may call it concurrently.
    pub mt: bool,
    pub params: WorkerParams,
    pub uid: u64,
    extra_op_flags: AtomicU32,
    /// Receives of tagged messages take the fast path. Changes only in a forked child, which has a single thread.
    fast_path_recv: Cell<bool>,
    /// Most messages that the running receive loop handles. In a forked child the loop ends with the message whose
    /// callback has forked. The progress thread's.
    receive_limit: Cell<u32>,
    /// The process that made it: a forked child inherits it and must not use it.
    origin: Origin,
    /// Disables it in forked children; set once its address is stable.
    in_children: Option<fork::DisabledInChild>,
    /// In front of `rx`: dropped before the inbox, which its thread reads.
    pub wakeup: Option<Wakeup>,
    /// What only the progress thread touches.
    pub rx: MtLock<Rx>,
    pub matcher: MtLock<Matcher<UnexpectedTag>>,
    pub am: MtLock<Vec<AmHandler>>,
    /// Payloads that handlers keep.
    pub am_descs: AmDescs,
    pub streams: MtLock<StreamQueue>,
    /// Completion queues; none before the first.
    pub cqs: Cqs,
    pub pool: MtLock<RequestPool>,
    pub ep_pool: MtLock<Pool>,
    pub ids: RequestIds,
    /// Sockaddr connection establishment; `None` before the first listener or client. In front of the peers, to which
    /// its stub peers lead.
    pub cm: MtLock<Option<Box<CmState>>>,
    pub peers: MtLock<HashMap<u64, Box<Peer>>>,
    /// Lists of peers for which there is work, and what is kept by peer.
    pub peer_lists: PeerLists,
    /// Receives that copy from a peer's memory, a piece for each progress call.
    pub cma_gets: MtLock<VecDeque<*mut Request>>,
    /// Copies of devices for requests. `progress_flags` say whether there are any.
    pub device_copies: MtLock<Vec<RunningCopy>>,
    /// Receives whose senders were sent an RTR and may not progress.
    pub rtr_races: MtLock<Vec<RtrRace>>,
    /// The receive by CMA whose time is measured.
    pub timed_get: MtLock<Option<TimedGet>>,
    /// Our messages whose receivers let us copy chunks, some for each progress call.
    pub split_pushes: MtLock<Vec<SplitPush>>,
    /// Region of each peer's last access. The progress thread's.
    pub last_region: LastRegion,
    /// What its threads share of the transports: its address, too.
    pub tl: TlWorker,
    /// Requests that a fence has removed from their queues: progress completes them.
    pub flushed_done: MtLock<Vec<*mut Request>>,
    /// Error handlers that are due, and the one that runs.
    pub err_handlers: MtLock<ErrHandlers>,
    /// Closed endpoints that progress may still read: their memory is not reused yet.
    pub closed_eps: MtLock<Vec<EndpointRef>>,
    /// Internal endpoints whose counterparts are closed and by which the user may still reply, the oldest first.
    pub ended: MtLock<VecDeque<EndpointRef>>,
    /// Endpoints whose counterparts were closed in order, and clock ticks since then.
    pub grace_eps: MtLock<Vec<(EndpointRef, u32)>>,
    /// Whether there is work in these lists, in the network or in `peer_lists`.
    pub progress_flags: ProgressFlags,
    /// A fence was called while remote accesses by message were outstanding.
    fenced: AtomicBool,
    /// A fence was ever called: connections that are made from now on keep their gets in order, too.
    fences: AtomicBool,
    /// Failed peers that were replaced: endpoints still lead to them.
    pub replaced_peers: MtLock<Vec<Box<Peer>>>,
    /// Failed peers that are in no list any more and that progress may still name. The progress thread's.
    pub unlisted: MtLock<Vec<Box<Peer>>>,
    /// Initial `losses` of a new peer: more than any freed peer had. Under the lock of `peers`.
    losses: AtomicU32,
    /// Tables of protocols that were printed.
    printed_tables: parking_lot::Mutex<Vec<String>>,
    /// Compare-and-swaps that found another value, modulo 2^32: by any thread, and a few may be lost.
    failed_swaps: AtomicU32,
    /// Requests whose completion the timeline records.
    pub traced: TracedRequests,
    /// The statistics page, for other processes. Last: the fields above point into it.
    pub stats: StatsPage,
}

/// A message whose receiver lets this process copy a part of it.
pub struct SplitPush {
    pub peer: PeerRef,
    /// Our request.
    pub id: u64,
    /// Made by the peer's [`CmaPeer`](crate::tl::CmaPeer).
    pub write: SplitWrite,
}

/// A receive for which an RTR lets the sender send at once.
pub struct RtrRace {
    pub peer: PeerRef,
    /// The receive.
    pub id: u64,
    /// The side that claims its only chunk moves the message.
    pub split_copy: SplitCopy,
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

impl Worker {
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

    /// Most messages that the running receive loop handles. The progress thread's.
    #[inline(always)]
    pub fn receive_limit(&self) -> u32 {
        self.receive_limit.get()
    }

    /// Begins a receive loop of so many messages.
    #[inline(always)]
    pub fn set_receive_limit(&self, messages: u32) {
        self.receive_limit.set(messages);
    }

    /// Whether the last fence was called while remote accesses by message were outstanding.
    #[inline(always)]
    pub fn is_fenced(&self) -> bool {
        // Relaxed: a fence of another thread is ordered by the program.
        self.fenced.load(Ordering::Relaxed)
    }

    /// A fence is called. `busy`: remote accesses by message are outstanding.
    pub fn set_fenced(&self, busy: bool) {
        self.fenced.store(busy, Ordering::Relaxed);
    }

    /// Whether connections that are made from now on keep their gets in order, too.
    pub fn fences_new_lanes(&self) -> bool {
        // Relaxed: a fence stores it before it takes the lock of each lane.
        self.fences.load(Ordering::Relaxed)
    }

    /// Connections that are made from now on keep their gets in order, too.
    pub fn set_fences_new_lanes(&self) {
        // Relaxed: read under the lock of a lane that is being opened, before pending requests are posted on it.
        self.fences.store(true, Ordering::Relaxed);
    }

    /// Compare-and-swaps that found another value, modulo 2^32.
    #[inline(always)]
    pub fn failed_swaps(&self) -> u32 {
        // Relaxed: the counter orders no other data.
        self.failed_swaps.load(Ordering::Relaxed)
    }

    /// Counts a compare-and-swap that found another value. Returns their number.
    #[inline(always)]
    pub fn count_failed_swap(&self) -> u32 {
        // Relaxed, a load and a store: counts lost between threads do no harm.
        let failures = self.failed_swaps().wrapping_add(1);
        self.failed_swaps.store(failures, Ordering::Relaxed);
        failures
    }

    /// Whether a table of protocols is printed for the first time.
    pub fn is_first_print(&self, table: &str) -> bool {
        let mut tables = self.printed_tables.lock();
        let is_new = !tables.iter().any(|printed| printed == table);
        if is_new {
            tables.push(table.to_owned());
        }
        is_new
    }

    /// Whether the user may sleep until an event of this worker.
    #[inline(always)]
    pub fn may_sleep(&self) -> bool {
        self.wakeup.is_some()
    }

    /// Wakes progress, which may sleep in another thread, because there is work.
    #[inline]
    pub fn wake(&self) {
        if let Some(wake) = &self.wakeup {
            wake.wake();
        }
    }

    /// Drops the messages, puts and lists of which a peer has sent a part, as no further one arrives.
    pub fn drop_partials(&self, peer: &Peer) {
        let lists = &self.peer_lists;
        self.am_descs.discard(lists.partial_ams.lock().remove(peer));
        lists.partial_tags.lock().remove(peer);
        lists.partial_puts.lock().remove(peer);
        lists.list_pieces.lock().remove(peer);
    }

    /// Runs the user's `request_init` on a new element of the pool.
    pub fn init_request(&self, element: *mut u8) {
        if let Some(init) = self.ctx.request_init {
            // SAFETY: the function gets the user's area of a fresh element.
            unsafe { init(Request::handle(element.cast())) };
        }
    }

    /// Whether operations of a feature can take the fast path: there are no flags to add, the program requested the
    /// feature, and, for tags and active messages only, threads do not overlap and such short messages are eager. Puts
    /// and gets that the timeline records do not: only the slow path records them.
    #[inline(always)]
    pub fn takes_fast_path(&self, feature: ucp_feature) -> bool {
        let policy = &self.ctx.policy;
        let by_message = matches!(feature, UCP_FEATURE_TAG | UCP_FEATURE_AM);
        let eager = !by_message || policy.rndv_thresh.min(policy.rndv_thresh_inter) > TINY;
        let alone = !self.mt || !by_message;
        let unchanged = match feature {
            UCP_FEATURE_RMA => 0,
            _ => RECORDED,
        };
        alone && eager && self.extra_op_flags() & !unchanged == 0 && self.ctx.has(feature)
    }

    /// What this worker writes into a peer's inbox as the owner of a ring.
    pub fn as_sender(&self) -> Option<RingOwner> {
        Some(RingOwner {
            uid: self.uid,
            inbox: self.tl.inbox()?,
        })
    }

    /// The worker's address. `net_only`: without the sections that only reach this host.
    pub fn address(&self, net_only: bool) -> WorkerAddress {
        let mut address = self.tl.own.clone();
        if net_only {
            address.drop_local();
        }
        address
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // First: a fork in another thread reads the worker through it.
        self.in_children = None;
    }
}
