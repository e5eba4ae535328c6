//! Copies between memory of devices of two processes, or within one: by the driver, on streams of this side, which
//! progress polls. The other side does nothing.
//!
//! The memory of a cancelled request returns to its user when the copy has ended, as for transfers by adapters
//! ([`zcopy`]).

use super::{PostResult, zcopy};
use crate::ctypes::*;
use crate::engine::completion;
use crate::engine::device_copies::RunningCopy;
use crate::engine::peer::{Peer, PeerHold};
use crate::engine::request::{self, Extra, Request, TxState, Zcopy, ZcopyRole, ZcopyState};
use crate::engine::worker::Worker;
use crate::sys::cuda::{CudaError, MemoryInfo};
use crate::sys::log;
use crate::tl::TlZcopy;
use crate::tl::cuda::{CopyDirection, CopyPieces, DirectCopy, LocalMemory};
use crate::tl::rma::RmaKey;
use crate::wire::device_handle::DeviceHandle;

/// What one request copies.
pub struct CopyRequest<'a> {
    pub handle: &'a DeviceHandle,
    /// Address in the owner's address space.
    pub remote_addr: u64,
    pub local: LocalMemory,
    /// The local memory, as the driver knows it.
    pub near: MemoryInfo,
    pub direction: CopyDirection,
    pub role: ZcopyRole,
}

/// Begins the copy of a request. False: it is not possible, and nothing was done.
///
/// # Safety
/// The caller owns the request, whose peer is set, until this returns; its memory is the local one, and valid until the
/// request completes.
pub unsafe fn begin(worker: &Worker, req: *mut Request, what: CopyRequest<'_>) -> bool {
    let Some(cuda) = &worker.ctx.cuda else {
        return false;
    };
    if what.direction == CopyDirection::FromRemote && !cuda.may_read(what.handle) {
        return false;
    }
    // SAFETY: the caller owns the request.
    cuda.note_owner(unsafe { (*req).peer() }.uid, what.handle);
    let range = (what.remote_addr, what.local.len as u64);
    let Some(remote) = cuda.open_remote(what.handle, range, &what.near) else {
        return false;
    };
    let sleeper = worker.wakeup.as_ref().map(|wake| wake.sleeper());
    // SAFETY: the caller's promise.
    unsafe {
        let begun = DirectCopy::begin(cuda, remote, what.local, what.direction, sleeper);
        add(worker, req, begun, (what.role, what.remote_addr))
    }
}

/// Begins the copy of pieces for a request without data of its own. False: it is not possible, and nothing was done.
///
/// # Safety
/// The caller owns the request, whose peer is set, until this returns; the local memory of the pieces is valid until
/// the request completes.
pub unsafe fn begin_pieces(worker: &Worker, req: *mut Request, pieces: CopyPieces) -> bool {
    let Some(cuda) = &worker.ctx.cuda else {
        return false;
    };
    let sleeper = worker.wakeup.as_ref().map(|wake| wake.sleeper());
    // SAFETY: the caller's promise.
    unsafe {
        let begun = DirectCopy::begin_pieces(cuda, pieces, sleeper);
        add(worker, req, begun, (ZcopyRole::Access, 0))
    }
}

/// Adds a copy that has begun for a request to those that progress looks at. False: it has not begun.
///
/// # Safety
/// The caller owns the request, whose peer is set, until this returns.
unsafe fn add(
    worker: &Worker,
    req: *mut Request,
    begun: Result<DirectCopy, CudaError>,
    (role, remote_addr): (ZcopyRole, u64),
) -> bool {
    let copy = match begun {
        Ok(copy) => copy,
        Err(e) => {
            note_failure(&e);
            return false;
        }
    };
    // SAFETY: the caller owns the request.
    let r = unsafe { &mut *req };
    let mut transfer = Zcopy::new(TlZcopy::Driver, role, remote_addr, RmaKey::None);
    (transfer.in_flight, transfer.fate) = (1, ZcopyState::Posted);
    r.extra = Some(Box::new(Extra::Transfer(transfer)));
    r.sent = TxState::AwaitReply;
    let peer = PeerHold::new(r.peer());
    let mut copies = worker.device_copies.lock();
    let flushes = Vec::new();
    copies.push(RunningCopy {
        req,
        role,
        peer,
        copy,
        flushes,
    });
    // Under the lock, under which the flag is cleared.
    worker.progress_flags.raise_copies();
    drop(copies);
    worker.wake();
    true
}

#[cold]
fn note_failure(e: &CudaError) {
    log::diag!("a copy between memory of devices has failed, messages carry the data: {e}");
}

/// Requests the data of a receive in messages.
///
/// # Safety
/// The caller owns the request, and nothing accesses its memory.
unsafe fn fall_back(req: *mut Request, peer: &Peer) {
    // SAFETY: the caller's request, which is complete in all fields and in no list.
    let posted = unsafe {
        zcopy::rtr_am(&mut *req);
        match peer.status() {
            UCS_OK => super::post(req),
            status => PostResult::Failed(status),
        }
    };
    if let PostResult::Failed(status) = posted {
        // SAFETY: the caller owns the request.
        unsafe { completion::complete(req, status) };
    }
}

/// Looks at all copies, and completes the requests of those that have ended. Returns their number.
#[cold]
pub fn progress(worker: &Worker) -> u32 {
    let mut ended = Vec::new();
    let mut copies = worker.device_copies.lock();
    let mut i = 0;
    while let Some(running) = copies.get_mut(i) {
        match running.copy.poll() {
            None => i += 1,
            Some(end) => ended.push((copies.remove(i), end)),
        }
    }
    if copies.is_empty() {
        worker.progress_flags.clear_copies();
    }
    drop(copies);
    let count = ended.len() as u32;
    for (running, end) in ended {
        let RunningCopy {
            req,
            peer,
            copy,
            flushes,
            role: _,
        } = running;
        // The allocation is not used any more.
        drop(copy);
        // SAFETY: the request was removed from the list, and nothing copies from or to its memory.
        unsafe { complete(req, &peer, end) };
        let status = end.map_or(UCS_ERR_IO_ERROR, |()| UCS_OK);
        for flush in flushes {
            // SAFETY: the flush has waited for this child, and is this thread's if it was the last.
            unsafe {
                if let Some(status) = request::count_child(flush, status) {
                    completion::complete(flush, status);
                }
            }
        }
    }
    count
}

/// Waits for all copies, and completes their requests.
pub fn settle(worker: &Worker) {
    while worker.progress_flags.has_copies() {
        let mut copies = worker.device_copies.lock();
        (copies.iter_mut()).for_each(|running| running.copy.wait());
        drop(copies);
        progress(worker);
    }
}

/// Whether devices copy for puts or gets to this peer, or to any.
pub fn has_accesses(worker: &Worker, peer: Option<&Peer>) -> bool {
    let copies = worker.device_copies.lock();
    copies.iter().any(|running| is_access(running, peer))
}

/// Makes those copies children of a flush.
///
/// # Safety
/// The flush is a parent that has a child to count yet.
pub unsafe fn await_accesses(worker: &Worker, peer: Option<&Peer>, flush: *mut Request) {
    // SAFETY: the caller's promise.
    let Some(children) = (unsafe { request::children_of(flush) }) else {
        return;
    };
    let mut copies = worker.device_copies.lock();
    for running in copies.iter_mut() {
        if is_access(running, peer) {
            children.expect_one_more();
            running.flushes.push(flush);
        }
    }
}

/// Waits for the copies for puts and gets, whose requests progress completes.
pub fn wait_for_accesses(worker: &Worker) {
    if worker.progress_flags.has_copies() {
        let mut copies = worker.device_copies.lock();
        let accesses = copies.iter_mut().filter(|running| is_access(running, None));
        accesses.for_each(|running| running.copy.wait());
    }
}

/// Whether a copy is that of a put or get to this peer, or to any.
fn is_access(running: &RunningCopy, peer: Option<&Peer>) -> bool {
    running.role == ZcopyRole::Access && peer.is_none_or(|peer| std::ptr::eq(peer, &*running.peer))
}

/// Removes the requests that `wanted` selects. The caller ends them, by [`zcopy::detach`] first. Called under the lock
/// of the peer's `tx`.
pub(super) fn take(worker: &Worker, wanted: impl Fn(*mut Request) -> bool) -> Vec<*mut Request> {
    let copies = worker.device_copies.lock();
    let requests = copies.iter().map(|running| running.req);
    // SAFETY: requests in the list are not complete; the caller has the lock.
    let take = |&req: &*mut Request| wanted(req) && unsafe { zcopy::take_one(req) };
    requests.filter(take).collect()
}

/// Completes a request whose copy has ended; one that was taken is the taker's.
///
/// # Safety
/// The request is in no list, or was taken; nothing copies from or to its memory.
unsafe fn complete(req: *mut Request, peer: &Peer, end: Result<(), CudaError>) {
    let tx = peer.tx.lock();
    // SAFETY: not complete: one that was taken is completed after `in_flight` is read, under the lock.
    let Some(t) = (unsafe { (*req).transfer_mut() }) else {
        return;
    };
    t.in_flight = 0;
    let (fate, role) = (t.fate, t.role);
    drop(tx);
    match (fate, end) {
        (ZcopyState::Taken, _) => {}
        // SAFETY: this thread owns the request, of which nothing is in flight.
        (ZcopyState::Ends(_), _) | (_, Ok(())) => unsafe { zcopy::end(req) },
        (_, Err(e)) if role == ZcopyRole::Fetch => {
            note_failure(&e);
            // SAFETY: this thread owns the request.
            unsafe { fall_back(req, peer) };
        }
        (_, Err(e)) => {
            log::error!("a copy of a device's memory has failed: {e}");
            // SAFETY: this thread owns the request.
            unsafe { completion::complete(req, UCS_ERR_IO_ERROR) };
        }
    }
}
