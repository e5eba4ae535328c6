//! What a client's endpoint leads to until its server is known: what waits there sets out then, or is lost with it.

use crate::ctypes::*;
use crate::engine::cm::{CmEntry, SessionState};
use crate::engine::endpoint::Endpoint;
use crate::engine::peer::Peer;
use crate::engine::request;
use crate::engine::worker::Worker;
use crate::proto::{failure, resolve, tx};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A worker has accepted a client of this one, and its message is faster than its answer: the client's endpoint
/// leads there from now on. Its number alone would not do: who knows this worker can guess it.
pub fn on_proof(worker: &Worker, peer: &Peer, secret: u64) {
    let mut guard = worker.cm.lock();
    let Some(x) = guard.as_deref_mut() else {
        return;
    };
    let asked = x
        .entries
        .iter_mut()
        .find_map(|(&token, entry)| match entry {
            CmEntry::CmSession(s) if s.state == SessionState::Asked && s.secret == secret => {
                Some((token, s))
            }
            _ => None,
        });
    let Some((token, ep, nobody)) = asked.and_then(|(t, s)| Some((t, s.ep, s.stub.take()?))) else {
        return;
    };
    drop(guard);
    settle(worker, token, ep, nobody, peer);
}

/// A client's endpoint leads to its server from now on.
pub(super) fn settle(
    worker: &Worker,
    token: u64,
    ep: *mut Endpoint,
    nobody: Arc<Peer>,
    peer: &Peer,
) {
    migrate(worker, ep, &nobody, peer);
    // SAFETY: the endpoint lives as long as its session names it.
    if let Some(ep) = unsafe { ep.as_mut() } {
        failure::begin(worker, ep, peer);
    }
    if let Some(x) = worker.cm.lock().as_deref_mut() {
        x.retire(token, nobody);
    }
}

/// Moves an endpoint and its requests from the placeholder to the peer.
fn migrate(worker: &Worker, ep: *mut Endpoint, nobody: &Peer, peer: &Peer) {
    // SAFETY: the endpoint lives as long as its session names it, and is in the placeholder's list.
    if let Some(e) = unsafe { ep.as_ref() } {
        // SAFETY: as above.
        unsafe {
            resolve::unlist(nobody, ep);
            resolve::move_to_peer(peer, ep);
        }
        peer.hold();
        e.set_peer(peer);
        nobody.release();
    }
    let mut from = nobody.tx.lock();
    let mut to = peer.tx.lock();
    // Until the placeholder is freed.
    peer.hold();
    // Release: pairs with the Acquire load in `Peer::successor`.
    nobody
        .successor_ptr
        .store((&raw const *peer).cast_mut(), Ordering::Release);
    let waiting = std::mem::take(&mut from.pending);
    worker.progress_flags.dequeued(waiting.len());
    for req in waiting {
        // SAFETY: a queued request lives.
        unsafe {
            (*req).peer = peer;
            tx::enqueue(peer, &mut to, req);
        }
    }
    drop((from, to));
    if peer.status() != UCS_OK {
        // It failed while the server was asked: what came after its end is ended here.
        for req in failure::take_requests(worker, peer, |_| true) {
            // SAFETY: taken out of every list.
            unsafe { request::complete(req, peer.status()) };
        }
        // SAFETY: as above.
        if let Some(e) = unsafe { ep.as_mut() } {
            failure::fail_endpoint(worker, e, peer.status());
        }
    }
}

/// A client's attempt has failed, and with it what waits.
pub(super) fn fail(nobody: *const Peer, status: ucs_status_t) {
    // SAFETY: placeholders live as long as something leads to them.
    if let Some(peer) = unsafe { nobody.as_ref() } {
        tx::fail_peer(peer, status);
    }
}
