//! Endpoints of peers, and the serial numbers by which both sides name them.

use super::detach;
use crate::engine::endpoint::{Endpoint, EndpointRef, EpFlags};
use crate::engine::peer::{EpTable, Peer};
use crate::engine::worker::Worker;
use crate::wire::header::SN_BITS;

/// Serial numbers below this one are counted by both sides; those of clients and servers are above.
const COUNTED: u32 = 1 << (SN_BITS - 1);

/// Makes an endpoint of the user. If a message of the peer has requested a reply endpoint before, that internal
/// endpoint becomes the user's.
pub fn new_endpoint(worker: &Worker, peer: &Peer, no_loopback: bool) -> EndpointRef {
    let mut tx = peer.tx.lock();
    detach::resume(peer, &mut tx);
    let mut eps = peer.eps.lock();
    let (sn, remote_sn) = if no_loopback && peer.uid == worker.uid {
        number_of_half(&mut eps)
    } else {
        let sn = take_numbers(&mut eps, 1);
        (sn, sn)
    };
    // Searched only if there can be one: programs make thousands of endpoints to one peer.
    let waiting = (eps.internal > 0).then(|| eps.by_sn(sn)).flatten();
    if let Some(ep) = waiting {
        eps.internal -= 1;
        // An endpoint with a number that is new to the user is internal.
        ep.get().clear(EpFlags::INTERNAL);
        ep.get().set_remote_sn(remote_sn);
        return ep;
    }
    let ep = worker.new_endpoint(peer, sn, remote_sn, EpFlags::empty());
    list(peer, &mut eps, ep)
}

fn take_numbers(eps: &mut EpTable, count: u32) -> u32 {
    let sn = eps.next_sn;
    eps.next_sn = (sn + count) % COUNTED;
    sn
}

/// Endpoints of a worker to itself without loopback form pairs: the first of two takes the number of the second as
/// well. Returns its own number and that of the other.
fn number_of_half(eps: &mut EpTable) -> (u32, u32) {
    let mask = COUNTED - 1;
    if let Some(sn) = eps.other_half.take() {
        return (sn, sn.wrapping_sub(1) & mask);
    }
    let sn = take_numbers(eps, 2);
    let other = (sn + 1) & mask;
    eps.other_half = Some(other);
    (sn, other)
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
    eps.internal += 1;
    let remote_sn = if eps.other_half == Some(sn) {
        sn.wrapping_sub(1) & (COUNTED - 1)
    } else {
        sn
    };
    let ep = worker.new_endpoint(peer, sn, remote_sn, EpFlags::INTERNAL);
    list(peer, &mut eps, ep)
}

/// The local endpoint of the peer's endpoint number `sn`: made if the user has not made it yet, `None` if the user has
/// closed it.
pub fn counterpart(worker: &Worker, peer: &Peer, sn: u32) -> Option<EndpointRef> {
    if let Some(ep) = peer.ep_by_sn(sn) {
        return Some(ep);
    }
    // Clients and servers agree on their numbers before they use them.
    if sn >= COUNTED {
        return None;
    }
    detach::resume(peer, &mut peer.tx.lock());
    let eps = peer.eps.lock();
    let ahead = sn.wrapping_sub(eps.next_sn) % COUNTED;
    let awaited = eps.other_half == Some(sn);
    drop(eps);
    // Numbers wrap: half of them count as future ones.
    (awaited || ahead < COUNTED / 2).then(|| reply_endpoint(worker, peer, sn))
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
