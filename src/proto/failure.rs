//! Peers that die or go: how they are noticed, and what becomes of everything that involves them.

use super::{close_grace, cm, internal, release, resolve, rndv_cancel, split_copy, tx};
use crate::ctypes::*;
use crate::engine::endpoint::{CLOSED, Endpoint, FRESH, INTERNAL, LEFT};
use crate::engine::peer::Peer;
use crate::engine::request::{self, Request, ZcopyState};
use crate::engine::unexpected::PayloadSource;
use crate::engine::worker::{Rx, Worker};
use crate::sys::{clock, host, log, process, process_monitor};
use crate::tl::Lane;
use crate::wire::header::{EpImm, Kind};
use indexmap::IndexSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Whether a peer's worker or process is gone. A file system look-up.
pub fn is_dead(worker: &Worker, peer: &Peer) -> bool {
    peer.uid != worker.uid && peer.inbox.is_some_and(|l| l.is_dead(host::place()))
}

/// Whether the worker that an address names still exists; a peer that is connected to it is asked first.
///
/// # Errors
/// `UCS_ERR_UNREACHABLE`
pub fn exists(worker: &Worker, peer: &Peer) -> Result<(), ucs_status_t> {
    let now = clock::coarse_ms() as u32;
    // Relaxed: it is a hint. A worker can be gone a moment after a look, too.
    let seen = peer.status() == UCS_OK && peer.probed_at.load(Ordering::Relaxed) == now;
    let connected = || peer.status() == UCS_OK && peer.tx.lock().lane.is_some();
    if seen || connected() {
        return Ok(());
    }
    if !is_dead(worker, peer) {
        peer.probed_at.store(now, Ordering::Relaxed);
        return Ok(());
    }
    log::error!("worker {:#x} is gone. Destination is unreachable", peer.uid);
    tx::fail_peer(peer, UCS_ERR_CONNECTION_RESET);
    Err(UCS_ERR_UNREACHABLE)
}

/// Lets the death of a peer's process wake the worker when it sleeps, and the keepalive interval. For endpoints that
/// handle errors.
pub fn watch(worker: &Worker, peer: &Peer) {
    let Some(wake) = worker.wakeup.as_ref() else {
        return;
    };
    let interval = worker.ctx.policy.keepalive_ms;
    let keepalive = (interval != u64::MAX).then(|| Duration::from_millis(interval));
    match wake.make_watch(keepalive) {
        Ok(watch) => {
            // A process that other transports lead to is not seen; one's own needs no look.
            let Some(inbox) = peer.inbox.filter(|_| !peer.same_process) else {
                return watch.add_timed(peer.uid);
            };
            let process = inbox.process(host::place());
            watch.add(peer.uid, process.and_then(process_monitor::watch));
            // It can have died, and its number be another's, before it was watched.
            if is_dead(worker, peer) {
                tx::fail_peer(peer, UCS_ERR_CONNECTION_RESET);
            }
        }
        Err(e) => log::warn!(
            "the death of peer {:#x} will not wake the worker: {e}",
            peer.uid
        ),
    }
}

/// An endpoint is made. Its peer can be lost already: the handler hears of it from progress.
pub fn begin(worker: &Worker, ep: &mut Endpoint, peer: &Peer) {
    if peer.status() != UCS_OK {
        if ep.reports_failures() {
            fail_endpoint(worker, ep, peer.status());
        }
    } else if ep.handles_errors() {
        if ep.err_mode == ucp_err_handling_mode_t::UCP_ERR_HANDLING_MODE_FAILOVER as u8 {
            peer.set_failover();
        }
        peer.watch_death.store(true, Ordering::Relaxed);
        watch(worker, peer);
        tx::connect_eagerly(peer);
    }
}

/// The opposite of [`watch`].
pub fn unwatch(worker: &Worker, peer: &Peer) {
    if let Some(watch) = worker.wakeup.as_ref().and_then(|w| w.watch()) {
        watch.remove(peer.uid);
    }
}

/// Ends everything that involves peers that were lost. Runs in progress.
#[cold]
pub fn handle_failed(worker: &Worker, rx: &mut Rx) {
    let lost = std::mem::take(&mut *worker.failed_peers.lock());
    if let Some(ports) = rx.ib.as_deref_mut().filter(|_| !lost.is_empty()) {
        ports.end(&lost);
    }
    for peer in lost {
        // SAFETY: peers that lists of progress name are not freed.
        let peer = unsafe { &*peer };
        log::debug!("peer {:#x} is lost: {:?}", peer.uid, peer.status());
        unwatch(worker, peer);
        peer.stats().set_failed();
        worker.drop_partials(peer);
        let mut matcher = worker.matcher.lock();
        let dropped = matcher.retain_unexpected(
            |u| !matches!(u.source, PayloadSource::Rts { peer: p, .. } if std::ptr::eq(p, peer)),
        );
        let left = matcher.unexpected_len();
        worker.stats.worker().set_unexpected(left);
        drop(matcher);
        dropped.iter().for_each(|(_, u)| u.source.release());
        // First of all: whose memory a device writes must not get it back before that is over.
        let mut ended: IndexSet<_> = tx::zcopy::drop_lane(peer).into_iter().collect();
        // Of which a part was posted it is in both.
        ended.extend(take_requests(worker, peer, |_| true));
        for req in ended {
            // SAFETY: taken out of every list.
            unsafe {
                let status = ending(&*req, peer.status());
                // An adapter that works on its memory does so until it says that it has done.
                if !tx::zcopy::detach(peer, req, status) {
                    request::complete(req, status);
                }
            }
        }
        release::begin(worker, peer);
        internal::end_all(worker, peer);
        let eps = peer.eps.lock().all().to_vec();
        for ep in eps {
            // SAFETY: listed endpoints live.
            let ep = unsafe { &mut *ep };
            // A peer that closed its end before it left is no failure for an endpoint that is being closed.
            if !ep.has(LEFT) {
                fail_endpoint(worker, ep, peer.status());
            }
        }
    }
}

/// How a request ends with its peer: some had been ended before, but for the device.
fn ending(r: &Request, status: ucs_status_t) -> ucs_status_t {
    match r.transfer().map(|t| t.fate) {
        Some(ZcopyState::Ends(earlier)) => earlier,
        _ => status,
    }
}

/// Takes all requests of a peer that `wanted` selects out of the lists that they are in.
pub fn take_requests(
    worker: &Worker,
    peer: &Peer,
    wanted: impl Fn(&Request) -> bool,
) -> Vec<*mut Request> {
    // SAFETY: requests in lists live.
    let wanted = |req: *mut Request| unsafe { std::ptr::eq((*req).peer, peer) && wanted(&*req) };
    // A request can be in several of them, and there can be very many.
    let mut taken = IndexSet::new();
    let mut tx = peer.tx.lock();
    let before = tx.pending.len();
    let first = tx.pending.front().copied();
    tx.pending.retain(|&r| {
        !wanted(r) || {
            taken.insert(r);
            false
        }
    });
    worker.progress_flags.dequeued(before - tx.pending.len());
    peer.stats().set_pending(tx.pending.len());
    // A frame of the first one may be under way: the rest of it has to follow all the same.
    if first != tx.pending.front().copied()
        && let Some(Lane::Tcp(sender)) = tx.lane.as_mut()
    {
        sender.settle();
    }
    tx.flushes.retain(|&(_, r)| {
        !wanted(r) || {
            taken.insert(r);
            false
        }
    });
    if let Some(Lane::Ib(sender)) = tx.lane.as_mut() {
        let reading = sender.detach_owner(|owner| wanted(owner.cast()));
        taken.extend(reading.into_iter().map(|owner| owner.cast::<Request>()));
    }
    if let Some(Lane::Tofu(sender)) = tx.lane.as_mut() {
        let reading = sender.detach_owner(|owner| wanted(owner.cast()));
        taken.extend(reading.into_iter().map(|owner| owner.cast::<Request>()));
    }
    taken.extend(tx::zcopy::take(&tx, wanted));
    drop(tx);
    let mut pulls = Vec::new();
    worker.cma_gets.lock().retain(|&r| {
        !wanted(r) || {
            pulls.push(r);
            false
        }
    });
    for &req in &pulls {
        // SAFETY: out of the list: ours.
        split_copy::settle(worker, peer, unsafe { &mut *req });
    }
    taken.extend(pulls);
    let mut ids = worker.ids.lock();
    let named: Vec<_> = ids.iter().filter(|&(_, r)| wanted(r)).collect();
    for (id, req) in named {
        ids.remove(id);
        if !taken.insert(req) {
            // Not sent yet: the peer does not know it by its name.
            // SAFETY: taken out of every list.
            unsafe { (*req).id = 0 };
        }
    }
    drop(ids);
    taken.into_iter().collect()
}

/// An endpoint goes and its requests go on: they must not be taken for those of another endpoint in its memory.
pub fn forget_endpoint(worker: &Worker, peer: &Peer, ep: *const Endpoint) {
    let forget = |req: *mut Request| {
        // SAFETY: requests in lists live, and stay there as long as their lock is held.
        let r = unsafe { &mut *req };
        if std::ptr::eq(r.ep, ep) {
            r.ep = std::ptr::null();
        }
    };
    let tx = peer.tx.lock();
    tx.pending.iter().for_each(|&r| forget(r));
    tx.flushes.iter().for_each(|&(_, r)| forget(r));
    if let Some(Lane::Ib(sender)) = tx.lane.as_ref() {
        sender.owners().for_each(|owner| forget(owner.cast()));
    }
    if let Some(Lane::Tofu(sender)) = tx.lane.as_ref() {
        sender
            .waiting()
            .into_iter()
            .for_each(|owner| forget(owner.cast()));
    }
    drop(tx);
    worker.cma_gets.lock().iter().for_each(|&r| forget(r));
    worker.ids.lock().iter().for_each(|(_, r)| forget(r));
}

/// The way of an endpoint is gone: its handler is called from progress, once.
pub fn fail_endpoint(worker: &Worker, ep: &mut Endpoint, status: ucs_status_t) {
    if ep.has(CLOSED | INTERNAL) || !ep.fail(status) {
        return;
    }
    end_stream(worker, ep, status);
    if ep.reports_failures() && ep.err_cb.is_some() {
        worker.err_handlers.lock().push(ep, status);
        worker.progress_flags.raise_chores();
        worker.wake();
    } else if ep.handles_errors() {
        log::error!(
            "endpoint {:p} failed and has no error handler: {:?}",
            ep,
            status
        );
    } else {
        log::diag!("endpoint {:p}: the peer is gone: {:?}", ep, status);
    }
    cm::answer(worker, ep);
}

/// Ends the receives that wait for bytes from an endpoint that has failed. What has come stays to be received.
fn end_stream(worker: &Worker, ep: &mut Endpoint, status: ucs_status_t) {
    let mut streams = worker.streams.lock();
    // SAFETY: the caller's endpoint lives.
    let stream = unsafe { streams.of(ep) };
    stream.ended = Some(status);
    let waiting = stream.drain();
    drop(streams);
    for req in waiting {
        // SAFETY: out of the stream: ours.
        unsafe { request::complete(req, status) };
    }
}

/// Calls the error handlers that are due.
#[cold]
pub fn call_handlers(worker: &Worker) -> u32 {
    let mut count = 0;
    loop {
        let Some((ep, status)) = worker.err_handlers.lock().begin(process::this_thread) else {
            return count;
        };
        // SAFETY: an endpoint that was open a moment ago; only progress frees it.
        unsafe {
            if let Some(cb) = (*ep).err_cb {
                cb((*ep).user_data, ep.cast(), status);
                count += 1;
            }
        }
        let closes = worker.err_handlers.lock().end();
        for (close, status) in closes {
            // SAFETY: in no list any more.
            unsafe { request::complete(close, status) };
        }
        // SAFETY: only progress frees it, though its handler may have closed it.
        cm::answer(worker, unsafe { &*ep });
    }
}

/// Tells the peer how an endpoint handles errors, or that it is the server's of a client. Others say nothing; it costs
/// them nothing.
#[cold]
pub fn send_ep_info(worker: &Worker, ep: &Endpoint, peer: &Peer) {
    if ep.session == 0 {
        send_err_mode(ep, peer);
    } else {
        cm::send_cm_proof(worker, ep, peer);
    }
    // Only now: what another thread sends meanwhile must not come first.
    ep.clear(FRESH);
}

fn send_err_mode(ep: &Endpoint, peer: &Peer) {
    let imm = EpImm {
        sn: ep.remote_sn,
        err_mode: ep.err_mode,
    };
    tx::control(peer, Kind::EpInfo, 0, imm.to_u64(), &[]);
}

/// The peer says how its end of an endpoint handles errors.
pub fn on_ep_info(worker: &Worker, peer: &Peer, info: EpImm) {
    let ep = resolve::reply_endpoint(worker, peer, info.sn);
    // SAFETY: listed endpoints live; progress is the only one that writes the field.
    let ep = unsafe { &mut *ep };
    ep.remote_err_mode = info.err_mode;
    if !ep.has(INTERNAL) && ep.mismatched() {
        refuse(worker, ep, peer);
    }
}

/// The two ends of an endpoint disagree about error handling: neither can be used.
pub fn refuse(worker: &Worker, ep: &mut Endpoint, peer: &Peer) {
    log::error!(
        "endpoint {:p}: error handling mode {} here, {} at the peer",
        ep,
        ep.err_mode,
        ep.remote_err_mode
    );
    let imm = EpImm {
        sn: ep.remote_sn,
        err_mode: ep.err_mode,
    };
    tx::control(
        peer,
        Kind::EpClosed,
        UCS_ERR_UNSUPPORTED as i8 as u8,
        imm.to_u64(),
        &[],
    );
    end_endpoint(worker, peer, ep, UCS_ERR_UNSUPPORTED);
}

/// The peer has closed its end of an endpoint: in order, by force (`UCS_ERR_CONNECTION_RESET`), or because it refuses
/// it for another reason.
pub fn on_ep_closed(worker: &Worker, peer: &Peer, sn: u32, status: ucs_status_t) {
    let Some(ep) = peer.ep_by_sn(sn) else {
        return;
    };
    // SAFETY: it was listed a moment ago, and progress, which frees endpoints, is here.
    unsafe { internal::end(worker, peer, ep) };
    // SAFETY: listed endpoints live, and what was listed a moment ago does until progress frees it.
    let ep = unsafe { &mut *ep };
    match status {
        UCS_OK | UCS_ERR_CONNECTION_RESET if !ep.reports_failures() => {}
        // Clients and servers hear of each other at once, as in UCX.
        UCS_OK if ep.session == 0 => close_grace::begin(worker, ep),
        UCS_OK => end_session(worker, peer, ep),
        status => end_endpoint(worker, peer, ep, status),
    }
}

/// Ends a client's or a server's endpoint whose other end was closed in order: what it offers that end drops.
pub fn end_session(worker: &Worker, peer: &Peer, ep: &mut Endpoint) {
    let own: *const Endpoint = ep;
    let is_offer = |r: &Request| std::ptr::eq(r.ep, own) && r.kind == Kind::AmRts as u8;
    let offers = take_requests(worker, peer, is_offer);
    // SAFETY: taken out of every list.
    unsafe { rndv_cancel::end_requests(peer, offers, UCS_ERR_CANCELED) };
    end_endpoint(worker, peer, ep, UCS_ERR_CONNECTION_RESET);
}

/// Ends the requests of an endpoint and the endpoint.
pub fn end_endpoint(worker: &Worker, peer: &Peer, ep: &mut Endpoint, status: ucs_status_t) {
    let own: *const Endpoint = ep;
    let taken = take_requests(worker, peer, |r| std::ptr::eq(r.ep, own));
    // SAFETY: taken out of every list.
    unsafe { rndv_cancel::end_requests(peer, taken, status) };
    fail_endpoint(worker, ep, status);
}

/// A peer's ring holds what no sender writes: nothing of it is believed any more.
#[cold]
pub fn fail_corrupt(peer: &Peer, what: &str) {
    // In a forked child the memory that peers write to is empty.
    // SAFETY: peers do not outlive their worker.
    if unsafe { &*peer.worker }.progress_flags.is_inherited() {
        return;
    }
    log::error!(
        "worker {:#x} (pid {}) sent {what}: closing the way to it",
        peer.uid,
        peer.inbox.map_or(0, |l| l.id.pid)
    );
    tx::fail_peer(peer, UCS_ERR_CONNECTION_RESET);
}
