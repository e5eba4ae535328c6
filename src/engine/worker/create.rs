//! Creation of a worker.

use super::{PeerLists, Rx, Worker, WorkerParams, inherited};
use crate::ctypes::*;
use crate::engine::am::AmDescs;
use crate::engine::context::{Context, RECORDED};
use crate::engine::cq::Cqs;
use crate::engine::endpoint::{EPS_PER_CHUNK, Endpoint};
use crate::engine::err_handlers::ErrHandlers;
use crate::engine::inherited::{disable_endpoints, disable_requests};
use crate::engine::matcher::Matcher;
use crate::engine::pointers::PeerRef;
use crate::engine::progress_flags::ProgressFlags;
use crate::engine::ptr_map::PtrMap;
use crate::engine::regions::LastRegion;
use crate::engine::request::{REQUEST_SIZE, REQUESTS_PER_CHUNK, RequestPool};
use crate::engine::stats::StatsPage;
use crate::engine::stream::StreamQueue;
use crate::engine::traced_requests::TracedRequests;
use crate::engine::wakeup::{Wakeup, WakeupParams};
use crate::sys::fork::{self, Origin};
use crate::sys::host;
use crate::sys::lock::MtLock;
use crate::sys::pool::Pool;
use crate::sys::trace;
use crate::tl::{IfaceParams, TlRx, TlWorker};
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32};

impl Worker {
    /// A worker without connections.
    ///
    /// # Errors
    /// The errors of making its inbox, its sockets or its wakeup.
    pub fn new(ctx: &'static Context, params: WorkerParams) -> io::Result<Box<Worker>> {
        let wakes = ctx.has(ucp_feature::UCP_FEATURE_WAKEUP);
        let uid = host::random_u64();
        let opened = IfaceParams {
            uid,
            client_id: params.client_id,
            keepalive_ms: ctx.policy.keepalive_ms,
            mt: params.is_multi_threaded(),
            wakes,
            shm: ctx.policy.shm,
            loopback: ctx.policy.loopback,
            named_inboxes: ctx.policy.named_inboxes,
        };
        let mut rx = TlRx::open(&ctx.tl, &opened)?;
        let wakeup = if wakes {
            Some(wakeup(&mut rx, &params.wakeup)?)
        } else {
            None
        };
        let always_polled = rx.always_polled();
        let tl = (rx.shared(&ctx.tl, &opened), rx);
        let stats = StatsPage::new(uid, ctx.options.vfs_enable)?;
        let name = params.name.as_deref().unwrap_or_default();
        stats.set_names(name, &ctx.name, params.thread_mode);
        let mut worker = Box::new(assemble(ctx, params, uid, (tl, wakeup), stats));
        if worker.rx.lock().trace.is_some() {
            worker.progress_flags.set_recorded();
        }
        for kind in always_polled {
            worker.progress_flags.raise(kind);
        }
        let place = NonNull::from(&mut *worker).cast();
        // SAFETY: the address of the worker is stable; the entry is removed when it is dropped.
        worker.in_children = Some(unsafe {
            fork::DisabledInChild::new(place, size_of::<Worker>(), inherited::disable)
        });
        Ok(worker)
    }
}

/// What wakes a worker with these interfaces.
///
/// # Errors
/// The errors of the system calls.
fn wakeup(rx: &mut TlRx<PeerRef>, params: &WakeupParams) -> io::Result<Wakeup> {
    let wake = Wakeup::new(params);
    let wake = wake.map_err(|e| io::Error::new(e.kind(), format!("no wakeup: {e}")))?;
    rx.shm.enable_wake(wake.wake_fd());
    let mut added = Ok(());
    rx.each_descriptor(&mut |fd| {
        if added.is_ok() {
            added = wake.add(fd);
        }
    });
    added.map(|()| wake)
}

/// A pool of requests, which counts them on the worker's page.
fn request_pool(ctx: &Context, stats: &StatsPage) -> RequestPool {
    let pool = RequestPool::new(REQUEST_SIZE + ctx.request_size, 16, REQUESTS_PER_CHUNK);
    // SAFETY: the page is dropped after the pool; only the pool writes this counter.
    let pool = unsafe { pool.count_in(stats.worker().requests()) };
    // SAFETY: the function sets the status and flags of those that have not completed.
    unsafe { pool.disabled_in_children(disable_requests) }
}

/// A pool of endpoints.
fn ep_pool() -> Pool {
    let pool = Pool::new(size_of::<Endpoint>(), align_of::<Endpoint>(), EPS_PER_CHUNK);
    // SAFETY: the function sets a flag in each of them.
    unsafe { pool.disabled_in_children(disable_endpoints) }
}

/// All fields of a worker.
fn assemble(
    ctx: &'static Context,
    params: WorkerParams,
    uid: u64,
    ((tl, rx), wakeup): ((TlWorker, TlRx<PeerRef>), Option<Wakeup>),
    stats: StatsPage,
) -> Worker {
    let mt = params.is_multi_threaded();
    let extra_op_flags = ctx.policy.extra_op_flags;
    let recorded = if trace::is_on() { RECORDED } else { 0 };
    Worker {
        ctx,
        mt,
        uid,
        tl,
        extra_op_flags: AtomicU32::new(extra_op_flags | recorded),
        fast_path_recv: Cell::new(!mt && extra_op_flags == 0 && ctx.has(UCP_FEATURE_TAG)),
        receive_limit: Cell::new(0),
        origin: Origin::here(),
        in_children: None,
        rx: MtLock::new(mt, Rx::new(rx)),
        matcher: MtLock::new(mt, Matcher::new()),
        am: MtLock::new(mt, Vec::new()),
        am_descs: AmDescs::new(mt, params.am_alignment),
        streams: MtLock::new(mt, StreamQueue::default()),
        cqs: Cqs::new(mt),
        pool: MtLock::new(mt, request_pool(ctx, &stats)),
        ep_pool: MtLock::new(mt, ep_pool()),
        ids: MtLock::new(mt, PtrMap::new()),
        peers: MtLock::new(mt, HashMap::new()),
        peer_lists: PeerLists::new(mt),
        cma_gets: MtLock::new(mt, VecDeque::new()),
        device_copies: MtLock::new(mt, Vec::new()),
        rtr_races: MtLock::new(mt, Vec::new()),
        timed_get: MtLock::new(mt, None),
        split_pushes: MtLock::new(mt, Vec::new()),
        last_region: LastRegion::default(),
        flushed_done: MtLock::new(mt, Vec::new()),
        err_handlers: MtLock::new(mt, ErrHandlers::default()),
        closed_eps: MtLock::new(mt, Vec::new()),
        ended: MtLock::new(mt, VecDeque::new()),
        grace_eps: MtLock::new(mt, Vec::new()),
        progress_flags: ProgressFlags::default(),
        fenced: AtomicBool::new(false),
        fences: AtomicBool::new(false),
        cm: MtLock::new(mt, None),
        replaced_peers: MtLock::new(mt, Vec::new()),
        unlisted: MtLock::new(mt, Vec::new()),
        losses: AtomicU32::new(0),
        failed_swaps: AtomicU32::new(0),
        wakeup,
        params,
        printed_tables: parking_lot::Mutex::default(),
        traced: TracedRequests::default(),
        stats,
    }
}
