//! Stub peers: where a client's requests wait until the server's worker address is known, or the connection fails.

use crate::ctypes::*;
use crate::engine::cm::{CmEntry, SessionState};
use crate::engine::completion;
use crate::engine::endpoint::EndpointRef;
use crate::engine::peer::Peer;
use crate::engine::pointers::PeerRef;
use crate::engine::worker::Worker;
use crate::proto::tx::{self, peer_requests};
use crate::proto::{endpoints, failure};
use std::sync::Arc;

/// Handles the proof of a server that has accepted a client of this worker, when a message arrives before the CM reply:
/// the client's endpoint moves to that peer. The secret is checked because the endpoint's number can be guessed.
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
    let Some((token, ep, stub)) = asked.and_then(|(t, s)| Some((t, s.ep, s.stub.take()?))) else {
        return;
    };
    drop(guard);
    settle(worker, token, ep, stub, peer);
}

/// Connects a client's endpoint to the server's peer.
pub(super) fn settle(
    worker: &Worker,
    token: u64,
    ep: Option<EndpointRef>,
    stub: Arc<Peer>,
    peer: &Peer,
) {
    migrate(worker, ep, &stub, peer);
    if let Some(ep) = ep {
        failure::begin(worker, ep.get(), peer);
    }
    if let Some(x) = worker.cm.lock().as_deref_mut() {
        x.retire(token, stub);
    }
}

/// Moves an endpoint and its requests from the stub peer to the server's peer.
fn migrate(worker: &Worker, ep: Option<EndpointRef>, stub: &Peer, peer: &Peer) {
    if let Some(ep) = ep {
        endpoints::unlist(stub, ep.get());
        endpoints::move_to_peer(peer, ep);
        peer.hold();
        ep.get().set_peer(peer);
        stub.release();
    }
    let mut from = stub.tx.lock();
    let mut to = peer.tx.lock();
    stub.set_successor(peer);
    let waiting = std::mem::take(&mut from.pending);
    worker.progress_flags.dequeued(waiting.len());
    for req in waiting {
        // SAFETY: a queued request is not freed.
        unsafe {
            (*req).peer = Some(PeerRef::new(peer));
            tx::enqueue(peer, &mut to, req);
        }
    }
    drop((from, to));
    if peer.status() != UCS_OK {
        // The peer had failed before: requests added to it after that are completed here.
        for req in peer_requests::take(worker, peer, |_| true) {
            // SAFETY: the request was removed from all lists: this thread owns it.
            unsafe { completion::complete(req, peer.status()) };
        }
        if let Some(ep) = ep {
            failure::fail_endpoint(worker, ep.get(), peer.status());
        }
    }
}
