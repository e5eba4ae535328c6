//! The end of internal endpoints, which the library made because a message requested a reply endpoint: they are removed
//! when the peer's endpoint is closed or the peer fails.
//!
//! A handler may have got one as reply endpoint, and the user is not notified of its end. So the last [`KEPT`] of those
//! stay allocated, and a late reply does not go to another peer.

use crate::engine::endpoint::{Endpoint, EndpointRef, EpFlags};
use crate::engine::peer::Peer;
use crate::engine::worker::Worker;

/// Maximum number of removed endpoints kept for replies: 100 bytes each, and their peers.
const KEPT: usize = 256;

/// Removes an internal endpoint whose peer's endpoint is closed; not one that the user has created, or can still create
/// to receive stream data.
pub fn end(worker: &Worker, peer: &Peer, ep: &Endpoint) {
    // SAFETY: an endpoint of the worker.
    let has_stream = unsafe { worker.streams.lock().has(ep) };
    if !has_stream {
        remove(worker, peer, ep);
    }
}

/// Removes the internal endpoints of a failed peer, which can no longer be created.
pub fn end_all(worker: &Worker, peer: &Peer) {
    let all = peer.eps.lock().all().to_vec();
    for ep in all {
        remove(worker, peer, ep.get());
    }
}

fn remove(worker: &Worker, peer: &Peer, e: &Endpoint) {
    let mut eps = peer.eps.lock();
    // Under the lock: another thread may be creating the endpoint for the user, or closing it.
    if !eps.remove_internal(e) {
        return;
    }
    peer.notify_endpoints(&worker.stats, eps.all().len());
    let user_held = e.is_user_held();
    // Under the lock of `eps`, under which `forget` searches too: the endpoint is always in one of the two lists.
    if user_held {
        // SAFETY: an endpoint of the worker; progress takes it out of the list before it frees it.
        worker
            .ended
            .lock()
            .push_back(unsafe { EndpointRef::new(e) });
    }
    drop(eps);
    if user_held {
        retire_kept(worker, KEPT)
    } else {
        retire(worker, e)
    }
}

/// Lets progress free an endpoint that is in no list, unless the user is closing it.
fn retire(worker: &Worker, e: &Endpoint) {
    if e.set(EpFlags::CLOSED) {
        // SAFETY: an endpoint of the worker; progress takes it out of the list before it frees it.
        worker
            .closed_eps
            .lock()
            .push(unsafe { EndpointRef::new(e) });
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
            retire(worker, oldest.get());
        }
    }
}

/// Makes an internal endpoint, which the user closes, an endpoint of the user.
pub fn forget(worker: &Worker, peer: &Peer, e: &Endpoint) {
    let mut eps = peer.eps.lock();
    if !e.is_internal() {
        return;
    }
    if !eps.adopt_closing(e) {
        worker.ended.lock().retain(|other| !other.is(e));
    }
}
