//! Endpoints of peers, and the serial numbers by which both sides name them.

use super::detach;
use crate::engine::endpoint::{Endpoint, EndpointRef, EpFlags};
use crate::engine::peer::{EpTable, Peer};
use crate::engine::worker::Worker;

/// Makes an endpoint of the user. If a message of the peer has requested a reply endpoint before, that internal
/// endpoint becomes the user's.
pub fn new_endpoint(worker: &Worker, peer: &Peer, no_loopback: bool) -> EndpointRef {
    let mut tx = peer.tx.lock();
    detach::resume(peer, &mut tx);
    let mut eps = peer.eps.lock();
    let (sn, remote_sn) = if no_loopback && peer.uid == worker.uid {
        eps.take_number_of_half()
    } else {
        eps.take_number()
    };
    if let Some(ep) = eps.adopt(sn) {
        ep.get().set_remote_sn(remote_sn);
        return ep;
    }
    let ep = worker.new_endpoint(peer, sn, remote_sn, EpFlags::empty());
    list(peer, &mut eps, ep)
}

/// Makes an endpoint of the user with the numbers that client and server have agreed on.
pub fn numbered_endpoint(worker: &Worker, peer: &Peer, sn: u32, remote_sn: u32) -> EndpointRef {
    let mut eps = peer.eps.lock();
    let ep = worker.new_endpoint(peer, sn, remote_sn, EpFlags::empty());
    list(peer, &mut eps, ep)
}

/// Adds an endpoint that was removed from one peer's table to that of another.
pub fn move_to_peer(peer: &Peer, ep: EndpointRef) {
    let mut eps = peer.eps.lock();
    eps.insert(ep);
    peer.notify_endpoints(&peer.worker().stats, eps.all().len());
}

/// The endpoint with number `sn` of a peer, as a reply endpoint; made if there is none.
pub fn reply_endpoint(worker: &Worker, peer: &Peer, sn: u32) -> EndpointRef {
    if let Some(ep) = peer.ep_by_sn(sn) {
        return ep;
    }
    let mut tx = peer.tx.lock();
    detach::resume(peer, &mut tx);
    // The peer has assigned the number.
    tx.is_known = true;
    let mut eps = peer.eps.lock();
    let remote_sn = eps.remote_sn_of(sn);
    let ep = worker.new_endpoint(peer, sn, remote_sn, EpFlags::INTERNAL);
    list(peer, &mut eps, ep)
}

/// The local endpoint of the peer's endpoint number `sn`: made if the user has not made it yet, `None` if the user has
/// closed it.
pub fn counterpart(worker: &Worker, peer: &Peer, sn: u32) -> Option<EndpointRef> {
    if let Some(ep) = peer.ep_by_sn(sn) {
        return Some(ep);
    }
    if !EpTable::is_counted(sn) {
        return None;
    }
    detach::resume(peer, &mut peer.tx.lock());
    let is_to_come = peer.eps.lock().is_to_come(sn);
    is_to_come.then(|| reply_endpoint(worker, peer, sn))
}

fn list(peer: &Peer, eps: &mut EpTable, ep: Endpoint) -> EndpointRef {
    let worker = peer.worker();
    peer.hold();
    let memory = worker
        .ep_pool
        .lock()
        .get(|_| ())
        .cast::<Endpoint>()
        .as_ptr();
    // SAFETY: a new element of the right size, which the pool gets back after the endpoint was unlisted.
    let ep = unsafe {
        memory.write(ep);
        EndpointRef::new(&*memory)
    };
    eps.insert(ep);
    peer.notify_endpoints(&worker.stats, eps.all().len());
    ep
}

/// Removes an endpoint from its peer's table, if it is in it.
pub fn unlist(peer: &Peer, ep: &Endpoint) {
    let mut eps = peer.eps.lock();
    if eps.remove(ep) {
        peer.notify_endpoints(&peer.worker().stats, eps.all().len());
    }
}
