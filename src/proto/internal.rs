//! The end of internal endpoints, which the library made because a message requested a reply endpoint: they are removed
//! when the peer's endpoint is closed or the peer fails.
//!
//! A handler may have got one as reply endpoint, and the user is not notified of its end. So the last [`KEPT`] of those
//! stay allocated, and a late reply does not go to another peer.

use crate::engine::endpoint::{Endpoint, EpFlags};
use crate::engine::peer::Peer;
use crate::engine::worker::Worker;
use std::sync::atomic::Ordering;

/// Maximum number of removed endpoints kept for replies: 100 bytes each, and their peers.
const KEPT: usize = 256;

/// Removes an internal endpoint whose peer's endpoint is closed; not one that the user has created, or can still create
/// to receive stream data.
///
/// # Safety
/// The endpoint is listed.
pub unsafe fn end(worker: &Worker, peer: &Peer, ep: *mut Endpoint) {
    let streams = worker.streams.lock();
    // SAFETY: the caller's endpoint is valid; the lock of its stream is held.
    let has_stream = unsafe { (*ep).stream.is_some() };
    drop(streams);
    if !has_stream {
        remove(worker, peer, ep);
    }
}

/// Removes the internal endpoints of a failed peer, which can no longer be created.
pub fn end_all(worker: &Worker, peer: &Peer) {
    let all = peer.eps.lock().all().to_vec();
    for ep in all {
        remove(worker, peer, ep);
    }
}

fn remove(worker: &Worker, peer: &Peer, ep: *mut Endpoint) {
    let mut eps = peer.eps.lock();
    // Under the lock: another thread may be creating the endpoint for the user, or closing it.
    // SAFETY: endpoints stay allocated as long as their worker exists.
    let e = unsafe { &*ep };
    // SAFETY: the endpoint was listed, and listed endpoints are not freed.
    if !e.is_internal() || !unsafe { eps.remove(ep) } {
        return;
    }
    eps.internal -= 1;
    peer.notify_endpoints(eps.all().len());
    let user_held = e.user_held.load(Ordering::Relaxed);
    // Under the lock of `eps`, under which `forget` searches too: the endpoint is always in one of the two lists.
    if user_held {
        worker.ended.lock().push_back(ep);
    }
    drop(eps);
    if user_held {
        retire_kept(worker, KEPT)
    } else {
        retire(worker, ep)
    }
}

/// Lets progress free an endpoint that is in no list, unless the user is closing it.
fn retire(worker: &Worker, ep: *mut Endpoint) {
    // SAFETY: the caller's endpoint, which is not freed yet.
    if unsafe { (*ep).set(EpFlags::CLOSED) } {
        worker.closed_eps.lock().push(ep);
        worker.progress_flags.raise_deferred();
    }
}

/// Lets progress free the removed endpoints that are kept for replies, except the last `most`.
pub fn retire_kept(worker: &Worker, most: usize) {
    loop {
        let mut ended = worker.ended.lock();
        if ended.len() <= most {
            return;
        }
        if let Some(oldest) = ended.pop_front() {
            // Under the lock: a close that does not find the endpoint in a list finds it closed.
            retire(worker, oldest);
        }
    }
}

/// Makes an internal endpoint, which the user closes, an endpoint of the user.
///
/// # Safety
/// The endpoint is allocated.
pub unsafe fn forget(worker: &Worker, peer: &Peer, ep: *mut Endpoint) {
    let mut eps = peer.eps.lock();
    // SAFETY: the caller's endpoint is allocated.
    let e = unsafe { &*ep };
    if !e.is_internal() {
        return;
    }
    e.clear(EpFlags::INTERNAL);
    if eps.by_sn(e.sn) == Some(ep) {
        eps.internal -= 1;
    } else {
        worker.ended.lock().retain(|&other| other != ep);
    }
}
