//! A forked child's inherited workers and endpoints are disabled: their fast paths are excluded, so that each
//! function of the API detects that they are inherited, and ignores them. The hot path has no additional checks.
//! Outstanding requests are cancelled, without their callbacks. A progress call in whose callback the process has
//! forked ends with that callback.

use super::endpoint::Endpoint;
use super::peer::Peer;
use super::request::{ReqFlags, Request};
use super::worker::{EPS_PER_CHUNK, REQUESTS_PER_CHUNK, Worker};
use crate::ctypes::*;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// Flags that are added to the operations of an inherited worker: they exclude each other, so that every operation
/// takes the slow path.
const BOTH_HINTS: u32 = UCP_OP_ATTR_FLAG_FAST_CMPL as u32 | UCP_OP_ATTR_FLAG_MULTI_SEND as u32;

/// Disables a worker.
///
/// # Safety
/// `worker` is one that is not dropped yet. The process has a single thread.
pub unsafe fn disable(worker: NonNull<()>, _: usize) {
    // SAFETY: the caller's promise; the fields that are used are atomics, or locks.
    let worker = unsafe { worker.cast::<Worker>().as_ref() };
    // Relaxed, here and below: there is one thread.
    worker.fast_path_recv.set(false);
    worker.receive_limit.set(1);
    worker
        .extra_op_flags
        .fetch_or(BOTH_HINTS, Ordering::Relaxed);
    worker.progress_flags.set_inherited();
    worker.rx.disable();
    // Requests that the program holds are freed into the pool. It is sound to use at any time: elements are removed and
    // returned by one store.
    worker.pool.free_in_child();
}

/// Disables the endpoints of a chunk, as if they were closed.
///
/// # Safety
/// A chunk of a worker's pool of endpoints. The process has a single thread.
pub unsafe fn disable_endpoints(chunk: NonNull<()>, _: usize) {
    let first = chunk.cast::<Endpoint>();
    for i in 0..EPS_PER_CHUNK {
        // SAFETY: inside of the chunk. Its elements are endpoints, or were, or are zero: the flags are an atomic in
        // each case.
        unsafe { Endpoint::disable(first.add(i)) };
    }
}

/// Cancels the requests of a chunk that have not ended: a wait for one of them ends.
///
/// # Safety
/// A chunk of a worker's pool of requests, of `size` bytes each. The process has a single thread.
pub unsafe fn disable_requests(chunk: NonNull<()>, size: usize) {
    for i in 0..REQUESTS_PER_CHUNK {
        // SAFETY: inside of the chunk. Its elements are requests, or were, or are zero: the members are written through
        // pointers, whatever a thread that does not exist here was doing with them.
        unsafe {
            let req = chunk.cast::<u8>().add(i * size).cast::<Request>().as_ptr();
            let flags = &(*req).flags;
            // There is one thread.
            if !flags.has(ReqFlags::COMPLETED) {
                (&raw mut (*req).status).write(UCS_ERR_CANCELED);
                flags.add(ReqFlags::COMPLETED | ReqFlags::NO_CALLBACK);
            }
        }
    }
}

/// Disables a peer: nothing is sent to it.
///
/// # Safety
/// A peer that is not dropped yet.
pub unsafe fn disable_peer(peer: NonNull<()>, _: usize) {
    // SAFETY: the caller's promise; the status is an atomic.
    unsafe { peer.cast::<Peer>().as_ref() }.set_failed(UCS_ERR_NOT_CONNECTED);
}
