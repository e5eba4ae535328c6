//! The requests of a peer, in whichever lists and lanes they wait: taken out of all, or without their endpoint.

use super::{device_copy, zcopy};
use crate::engine::endpoint::Endpoint;
use crate::engine::peer::Peer;
use crate::engine::pointers::EndpointId;
use crate::engine::request::Request;
use crate::engine::worker::Worker;
use crate::proto::split_copy;
use indexmap::IndexSet;

/// Removes all requests of a peer that `wanted` selects from the lists that they are in.
pub fn take(worker: &Worker, peer: &Peer, wanted: impl Fn(&Request) -> bool) -> Vec<*mut Request> {
    // SAFETY: requests in lists are not freed.
    let wanted = |req: *mut Request| unsafe { (*req).is_to(peer) && wanted(&*req) };
    // A request can be in several lists, and there can be very many requests.
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
    // A frame of the first request may be half sent: the rest of it has to follow.
    if first != tx.pending.front().copied()
        && let Some(lane) = tx.lane.as_mut()
    {
        lane.settle();
    }
    tx.flushes.retain(|flush| {
        !wanted(flush.req) || {
            taken.insert(flush.req);
            false
        }
    });
    if let Some(lane) = tx.lane.as_mut() {
        let waiting = lane.detach(|token| wanted(Request::by_token(token)));
        taken.extend(waiting.into_iter().map(Request::by_token));
    }
    taken.extend(zcopy::take(&tx, wanted));
    if worker.progress_flags.has_copies() {
        taken.extend(device_copy::take(worker, wanted));
    }
    drop(tx);
    let mut pulls = Vec::new();
    worker.cma_gets.lock().retain(|&r| {
        !wanted(r) || {
            pulls.push(r);
            false
        }
    });
    for &req in &pulls {
        // SAFETY: the request was removed from the list: this thread owns it.
        split_copy::settle(peer, unsafe { &mut *req });
    }
    taken.extend(pulls);
    let mut ids = worker.ids.lock();
    let named: Vec<_> = ids.iter().filter(|&(_, r)| wanted(r)).collect();
    for (id, req) in named {
        ids.remove(id);
        if !taken.insert(req) {
            // The request was not sent: the peer does not have its id.
            // SAFETY: the request was removed from all lists: this thread owns it.
            unsafe { (*req).id = 0 };
        }
    }
    drop(ids);
    taken.into_iter().collect()
}

/// Clears a closed endpoint in requests that continue: another endpoint may be allocated in its memory.
pub fn forget_endpoint(worker: &Worker, peer: &Peer, ep: *const Endpoint) {
    let forget = |req: *mut Request| {
        // SAFETY: requests in lists are not freed, and stay there as long as the list's lock is held.
        let r = unsafe { &mut *req };
        if r.ep == EndpointId::of(ep) {
            r.ep = EndpointId::NONE;
        }
    };
    let tx = peer.tx.lock();
    tx.pending.iter().for_each(|&r| forget(r));
    tx.flushes.iter().for_each(|flush| forget(flush.req));
    if let Some(lane) = &tx.lane {
        lane.for_each_token(|token| forget(Request::by_token(token)));
    }
    drop(tx);
    let copies = worker.device_copies.lock();
    copies.iter().for_each(|running| forget(running.req));
    drop(copies);
    worker.cma_gets.lock().iter().for_each(|&r| forget(r));
    worker.ids.lock().iter().for_each(|(_, r)| forget(r));
}
