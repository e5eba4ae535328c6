//! Hot path of `ucp_worker_progress`: an idle worker polls its rings, or its only other transport, and returns.

use super::arrival::{Called, Inlined};
use crate::ctypes::*;
use crate::engine::cm::CmState;
use crate::engine::core_yield::{is_polled_in_vain, yield_core};
use crate::engine::pointers::PeerRef;
use crate::engine::progress_flags::ProgressBits;
use crate::engine::worker::{Rx, Worker};
use crate::op::sink::WorkerSink;
use crate::op::{deferred, listener, signal, sink, tick, traced_progress};
use crate::proto::tx;
use crate::tl::held::Held;
use crate::tl::ring_sink::BATCH;
use crate::tl::{PolledRings, PolledSignal, SoleIface, TlRx};
use crate::wire::header::NoteHdr;
use std::mem::MaybeUninit;

/// `ucp_worker_progress`: returns the number of events. Returns 0 at once in a callback of progress, and while another
/// thread progresses the worker.
#[inline(always)]
pub fn progress(worker: &Worker) -> u32 {
    if worker.rx.is_held() {
        return match worker.mt {
            true => move_on::<true>(worker),
            false => 0,
        };
    }
    // SAFETY: single-thread mode, and `is_held` is false: no progress call up the stack borrows `rx`.
    let rx = unsafe { worker.rx.alone() };
    rx.calls -= 1;
    if !worker.progress_flags.none() || rx.calls == 0 {
        // SAFETY: as said; the borrow of `rx` has ended.
        return unsafe { progress_sole(worker) };
    }
    if rx.tl.shm.has_cold_rings() {
        return poll_many_rings(worker, rx);
    }
    poll_rings(worker, rx)
}

/// Progress of `ucpx_cq_poll` for completion queue `cq`, which is empty: takes signals straight from the ring of a
/// worker that polls only one ring. Returns their number, 0 if no message has arrived. `None`: nothing was done,
/// because there may be more to do.
#[inline(always)]
pub fn take_signals(
    worker: &Worker,
    cq: u8,
    out: &mut [MaybeUninit<ucpx_cq_entry_t>],
) -> Option<usize> {
    let (first, rest) = out.split_first_mut()?;
    match take_signal(worker, cq, first) {
        PolledSignal::Signal if rest.is_empty() => Some(1),
        PolledSignal::Signal => Some(1 + take_more(worker, cq, rest)),
        PolledSignal::Idle => Some(0),
        PolledSignal::Other => None,
    }
}

/// Takes the signals that follow one.
#[inline(never)]
fn take_more(worker: &Worker, cq: u8, out: &mut [MaybeUninit<ucpx_cq_entry_t>]) -> usize {
    let taken = |entry| matches!(take_signal(worker, cq, entry), PolledSignal::Signal);
    // The sender gets credit at once: there are as many as it sends.
    let most = out.len().min(BATCH as usize - 1);
    let end = out[..most].iter_mut().map(taken).position(|taken| !taken);
    end.unwrap_or(most)
}

/// Takes the next message of the only ring, if that is a signal for completion queue `cq`.
#[inline(always)]
fn take_signal(worker: &Worker, cq: u8, entry: &mut MaybeUninit<ucpx_cq_entry_t>) -> PolledSignal {
    if worker.rx.is_held() || !worker.progress_flags.none() {
        return PolledSignal::Other;
    }
    // SAFETY: single-thread mode, and `is_held` is false: no progress call up the stack borrows `rx`.
    let rx = unsafe { worker.rx.alone() };
    // The clock is due in the next call.
    if rx.calls == 1 {
        return PolledSignal::Other;
    }
    // Memory in another region than that of the last access is searched for by progress.
    let permits = |to: &NoteHdr| {
        let regions = &worker.ctx.regions;
        regions.permits_again(&worker.last_region, to.addr, to.len)
    };
    let taken = |peer: PeerRef, value, behind: NoteHdr| {
        entry.write(signal::entry(peer.get(), value, &behind));
    };
    let polled = (rx.tl).take_signal(inlined(worker), cq, permits, taken);
    if !matches!(polled, PolledSignal::Other) {
        rx.calls -= 1;
    }
    polled
}

/// Polls a worker's rings, of which there are few.
#[inline(always)]
fn poll_rings(worker: &Worker, rx: &mut Rx) -> u32 {
    match rx.tl.look_at_rings(&worker.tl) {
        PolledRings::Idle => 0,
        PolledRings::New => poll_new_rings(worker, rx),
        PolledRings::Ready(first) => handle_ring(worker, rx, first),
    }
}

/// Polls all rings after those of new senders were added.
#[cold]
#[inline(never)]
fn poll_new_rings(worker: &Worker, rx: &mut Rx) -> u32 {
    rx.tl.accept_rings(&worker.tl, sink::cold(worker));
    worker.rx.hold(true);
    let count = rx.tl.poll_rings(inlined(worker));
    worker.rx.hold(false);
    count
}

/// Handles messages: ring `first` has some. While it runs, progress called by a callback returns 0.
#[inline(never)]
fn handle_ring(worker: &Worker, rx: &mut Rx, first: usize) -> u32 {
    worker.rx.hold(true);
    let count = rx.tl.handle_ring(inlined(worker), first);
    worker.rx.hold(false);
    count
}

/// Polls a worker's rings, of which there are many.
#[inline(never)]
fn poll_many_rings(worker: &Worker, rx: &mut Rx) -> u32 {
    let count = match rx.tl.look_at_many_rings(&worker.tl) {
        PolledRings::Idle => return 0,
        PolledRings::New => poll_new_rings(worker, rx),
        PolledRings::Ready(first) => handle_many_rings(worker, rx, first),
    };
    rx.events += u64::from(count);
    count
}

/// Handles messages: ring `first` of many has some. While it runs, progress called by a callback returns 0.
#[inline(never)]
fn handle_many_rings(worker: &Worker, rx: &mut Rx, first: usize) -> u32 {
    worker.rx.hold(true);
    let count = rx.tl.handle_hot_rings(inlined(worker), first);
    worker.rx.hold(false);
    count
}

/// Progress when flags are raised: the fast path of a worker with IB ports and nothing else to do. Without `rx` as an
/// argument, which would be borrowed to the end of the call: the callees borrow it again.
///
/// # Safety
/// Single-thread mode; nothing borrows the worker's `rx`.
#[inline(never)]
unsafe fn progress_sole(worker: &Worker) -> u32 {
    // SAFETY: the caller's promise. Not used after the calls that borrow it again.
    let rx = unsafe { worker.rx.alone() };
    if !worker.progress_flags.only(SoleIface::KIND) || rx.calls == 0 || worker.tl.has_new_ring() {
        // SAFETY: the caller's promise.
        return unsafe { progress_device_rings(worker) };
    }
    let sole = rx.tl.sole().filter(|_| rx.tl.shm.is_empty());
    let Some(iface) = sole else {
        // SAFETY: the caller's promise.
        return unsafe { progress_shm(worker) };
    };
    // SAFETY: the caller's promise; the interface belongs to `rx.tl`.
    unsafe { poll_sole(worker, iface) }
}

/// Fast path of a worker with Tofu interfaces and nothing else to do; otherwise all of progress.
///
/// # Safety
/// Single-thread mode; nothing borrows the worker's `rx`.
#[inline(never)]
unsafe fn progress_device_rings(worker: &Worker) -> u32 {
    // SAFETY: the caller's promise. Not used after the call that locks it.
    let rx = unsafe { worker.rx.alone() };
    let flags = worker.progress_flags.now();
    if !flags.only(TlRx::<PeerRef>::DEVICE_RINGS)
        || rx.calls == 0
        || worker.tl.has_new_ring()
        || !rx.tl.shm.is_empty()
    {
        // A child that was forked in a callback gets here when the callback has returned.
        if flags.is_aside() {
            return progress_aside(worker);
        }
        if flags.only(TlRx::<PeerRef>::MESSAGES) {
            // SAFETY: the caller's promise.
            return unsafe { progress_messages(worker) };
        }
        return move_on::<false>(worker);
    }
    // SAFETY: the caller's promise.
    unsafe { poll_device_rings(worker) }
}

/// Fast path of a worker with an interface for messages and nothing else to do; otherwise all of progress.
///
/// # Safety
/// Single-thread mode; nothing borrows the worker's `rx`.
#[inline(never)]
unsafe fn progress_messages(worker: &Worker) -> u32 {
    // SAFETY: the caller's promise. Not used after the call that locks it.
    let rx = unsafe { worker.rx.alone() };
    if rx.calls == 0 || worker.tl.has_new_ring() || !rx.tl.shm.is_empty() {
        return move_on::<false>(worker);
    }
    // SAFETY: the caller's promise.
    unsafe { Alone(worker).hold(|tl, _| tl.poll_messages(called(worker))) }
}

/// Polls the worker's Tofu interface, if no other work waits.
///
/// # Safety
/// Single-thread mode; nothing borrows the worker's `rx`.
#[inline(never)]
unsafe fn poll_device_rings(worker: &Worker) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { TlRx::progress_device_rings(Alone(worker)) }
}

/// Progress of a worker with IB ports and shared-memory rings, or with several ports.
///
/// # Safety
/// Single-thread mode; nothing borrows the worker's `rx`.
#[inline(never)]
unsafe fn progress_shm(worker: &Worker) -> u32 {
    // SAFETY: the caller's promise. Not used after the calls that borrow it again.
    let rx = unsafe { worker.rx.alone() };
    if rx.tl.shm.has_cold_rings() {
        return move_on::<false>(worker);
    }
    let rings = poll_rings(worker, rx);
    let came = match rx.tl.sole() {
        // SAFETY: the caller's promise; the interface belongs to `rx.tl`.
        Some(iface) => unsafe { poll_sole(worker, iface) },
        // SAFETY: the caller's promise.
        None => unsafe { Alone(worker).hold(|tl, _| tl.poll_ports(called(worker))) },
    };
    rings + came
}

/// Polls the worker's only IB interface, if no other work waits. Returns the number of events.
///
/// # Safety
/// Single-thread mode; nothing borrows the worker's `rx`; `iface` belongs to the worker's ports.
#[inline(never)]
unsafe fn poll_sole(worker: &Worker, iface: SoleIface) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { iface.progress(Alone(worker)) }
}

/// A worker in single-thread mode, while nothing borrows its `rx`.
#[derive(Clone, Copy)]
struct Alone<'a>(&'a Worker);

impl<'a> Held for Alone<'a> {
    type Peer = PeerRef;
    type Inlined = WorkerSink<'a, Inlined<false>>;
    type Called = WorkerSink<'a, Called<false>>;
    type Interfaces = TlRx<PeerRef>;

    #[inline(always)]
    fn inlined(self) -> Self::Inlined {
        inlined(self.0)
    }

    #[inline(always)]
    fn called(self) -> Self::Called {
        called(self.0)
    }

    #[inline(always)]
    unsafe fn look<R>(self, act: impl FnOnce(&mut TlRx<PeerRef>) -> R) -> R {
        // SAFETY: the caller's promise.
        act(unsafe { &mut self.0.rx.alone().tl })
    }

    #[inline(always)]
    unsafe fn hold(self, act: impl FnOnce(&mut TlRx<PeerRef>, u32) -> u32) -> u32 {
        // SAFETY: the caller's promise; the hold keeps callbacks from progress.
        let rx = unsafe { self.0.rx.alone() };
        self.0.rx.hold(true);
        let count = act(&mut rx.tl, rx.calls);
        self.0.rx.hold(false);
        rx.events += u64::from(count);
        count
    }
}

/// The sink of a worker in single-thread mode, where each message passes.
#[inline(always)]
fn inlined(worker: &Worker) -> WorkerSink<'_, Inlined<false>> {
    WorkerSink::new(worker, Inlined)
}

/// The sink of a worker in single-thread mode.
#[inline(always)]
fn called(worker: &Worker) -> WorkerSink<'_, Called<false>> {
    WorkerSink::new(worker, Called)
}

/// Progress of a worker in single-thread mode that is inherited or recorded.
#[cold]
#[inline(never)]
fn progress_aside(worker: &Worker) -> u32 {
    if may_progress(worker) {
        return move_on::<false>(worker);
    }
    worker.rx.hold(true);
    0
}

/// Whether a worker that is inherited or recorded may progress: of the latter the call is recorded.
#[cold]
#[inline(never)]
fn may_progress(worker: &Worker) -> bool {
    let is_inherited = worker.progress_flags.is_inherited();
    if !is_inherited {
        traced_progress::begin(worker);
    }
    !is_inherited
}

#[inline(never)]
fn move_on<const MT: bool>(worker: &Worker) -> u32 {
    if MT && worker.progress_flags.is_aside() && !may_progress(worker) {
        return 0;
    }
    let Some(mut guard) = worker.rx.try_lock() else {
        return 0;
    };
    let rx = &mut *guard;
    if MT {
        rx.calls -= 1;
    }
    if worker.tl.has_new_ring() {
        rx.tl.accept_rings(&worker.tl, sink::cold(worker));
    }
    let mut count = rx.tl.poll_rings(WorkerSink::new(worker, Inlined::<MT>));
    worker.progress_flags.clear_copied();
    let flags = &worker.progress_flags;
    let polls_sockets = flags.has(CmState::IFACE);
    if polls_sockets && listener::is_busy(worker) {
        count += listener::progress(worker);
    }
    let sink = WorkerSink::new(worker, Called::<MT>);
    count += rx.tl.progress(sink, || flags.now(), ProgressBits::polls);
    // Also sends requests that callbacks have queued in this call.
    if flags.backlog() != 0 {
        count += tx::progress_backlog(worker);
    }
    if polls_sockets {
        rx.tl.end_progress();
    }
    if worker.progress_flags.has_deferred_or_copies() {
        count += deferred::progress(worker, rx);
    }
    let look = rx.calls == 0;
    if look {
        count += tick::progress(worker, rx);
    }
    rx.events += u64::from(count);
    if MT
        && count > 0
        && rx
            .backlog_yield
            .is_over(worker.stats.worker().unexpected_total())
    {
        drop(guard);
        yield_core(worker, |rx, took| rx.backlog_yield.offered(took));
        return count;
    }
    if look && rx.is_busy_polling() && is_polled_in_vain(worker, rx) {
        drop(guard);
        yield_core(worker, |rx, took| rx.idle_yield.offered(took));
    }
    count
}
