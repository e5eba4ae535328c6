//! A forked child's inherited workers and endpoints are disabled: their fast paths are excluded, so that each
//! function of the API detects that they are inherited, and ignores them. The hot path has no additional checks.
//! Outstanding requests are cancelled, without their callbacks. A progress call in whose callback the process has
//! forked ends with that callback.

use super::endpoint::{EPS_PER_CHUNK, Endpoint};
use super::peer::Peer;
use super::request::{REQUESTS_PER_CHUNK, ReqFlags, Request};
use crate::ctypes::*;
use std::ptr::NonNull;

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
