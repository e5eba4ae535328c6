//! The end of internal endpoints, which were made because a message asked for a way back and which the user has not
//! created himself: they go when the counterpart is closed or the peer is lost.
//!
//! The user may have been given one to answer by, and is not told of its end. So the last [`KEPT`] of those stay
//! usable, and an answer that comes late does not go to another peer.

use crate::engine::endpoint::{CLOSED, Endpoint, INTERNAL};
use crate::engine::peer::Peer;
use crate::engine::worker::Worker;
use std::sync::atomic::Ordering;

/// Ended endpoints that the user may still answer by, at most: 100 bytes each, and their peers.
const KEPT: usize = 256;

/// The counterpart of an endpoint is closed. Nothing happens to one that the user has created, or can still create to
/// receive what has come as a stream.
///
/// # Safety
/// The endpoint is listed.
pub unsafe fn end(worker: &Worker, peer: &Peer, ep: *mut Endpoint) {
    let streams = worker.streams.lock();
    // SAFETY: the caller's endpoint lives; the lock of its stream is held.
    let has_stream = unsafe { (*ep).stream.is_some() };
    drop(streams);
    if !has_stream {
        remove(worker, peer, ep);
    }
}

/// A peer is lost: nobody can create its internal endpoints any more.
pub fn end_all(worker: &Worker, peer: &Peer) {
    let all = peer.eps.lock().all().to_vec();
    for ep in all {
        remove(worker, peer, ep);
    }
}

fn remove(worker: &Worker, peer: &Peer, ep: *mut Endpoint) {
    let mut eps = peer.eps.lock();
    // Under the lock: another thread may be making it the user's, or closing it.
    // SAFETY: endpoints stay allocated as long as the worker; one that is removed here was listed and lives.
    let e = unsafe { &*ep };
    // SAFETY: as above.
    if !e.is_internal() || !unsafe { eps.remove(ep) } {
        return;
    }
    eps.internal -= 1;
    peer.notify_endpoints(eps.all().len());
    let given = e.given.load(Ordering::Relaxed);
    // Under the lock of `eps`, as in `forget`: it is always found in one of the two lists.
    if given {
        worker.ended.lock().push_back(ep);
    }
    drop(eps);
    match given {
        true => retire_kept(worker, KEPT),
        false => retire(worker, ep),
    }
}

/// Has progress free an endpoint that is in no list, unless the user is closing it.
fn retire(worker: &Worker, ep: *mut Endpoint) {
    // SAFETY: the caller's endpoint, which is not freed yet.
    if unsafe { (*ep).set(CLOSED) } {
        worker.closed_eps.lock().push(ep);
        worker.progress_flags.raise_chores();
    }
}

/// Has progress free the ended endpoints that are kept for the user, but for the last `most`.
pub fn retire_kept(worker: &Worker, most: usize) {
    loop {
        let mut ended = worker.ended.lock();
        if ended.len() <= most {
            return;
        }
        if let Some(oldest) = ended.pop_front() {
            // Under the lock: a close that finds it in no list any more finds it closed.
            retire(worker, oldest);
        }
    }
}

/// The user closes an internal endpoint, which he was given: it is an endpoint of his from here on.
///
/// # Safety
/// The endpoint is allocated.
pub unsafe fn forget(worker: &Worker, peer: &Peer, ep: *mut Endpoint) {
    let mut eps = peer.eps.lock();
    // SAFETY: the caller's endpoint.
    let e = unsafe { &*ep };
    if !e.is_internal() {
        return;
    }
    e.clear(INTERNAL);
    if eps.by_sn(e.sn) == Some(ep) {
        eps.internal -= 1;
    } else {
        worker.ended.lock().retain(|&other| other != ep);
    }
}
