//! Release of what this worker holds for failed peers: the socket or the mapping of the peer's inbox, then the peer
//! itself.
//!
//! Uncounted pointers to a peer are in lists that only progress follows, and in requests, which have completed with the
//! failure or are in such lists. All others are references ([`crate::engine::peer::PeerHold`]). So progress removes a
//! peer without references from the worker's lists of peers, where other threads could find it, and frees it when no
//! list of progress names it.

use super::proto_info;
use crate::engine::peer::{Peer, PeerSet};
use crate::engine::pointers::PeerRef;
use crate::engine::request::Request;
use crate::engine::worker::{Rx, Worker};
use crate::sys::spare;
use crate::tl::contract::Teardown;

/// Called when the requests of a failed peer are complete: [`progress`] drops its lane. Called in progress.
pub fn begin(worker: &Worker, peer: &Peer) {
    // Stub peers have no lane, and the CM frees them.
    if !peer.is_stub() {
        worker.peer_lists.departing.lock().push(peer);
    }
}

/// Drops the lanes of failed peers. Called in progress, after receives with split copies from these peers have ended.
pub fn progress(worker: &Worker) {
    let lists = &worker.peer_lists;
    if lists.departing.lock().is_empty() {
        return;
    }
    let departing = lists.departing.lock().take();
    for (peer, ()) in departing {
        let peer = peer.get();
        let list = if detach(peer) {
            &lists.departed
        } else {
            &lists.departing
        };
        list.lock().push(peer);
    }
}

/// Drops the lane to a failed peer. False if another thread still uses the ring: it has to be tried again.
fn detach(peer: &Peer) -> bool {
    let is_dead = peer.is_dead();
    let mut tx = peer.tx.lock();
    if let Some(lane) = tx.host_link.end(is_dead) {
        drop(tx);
        drop(lane);
        return true;
    }
    match tx.lane.as_mut().map(|lane| lane.teardown(is_dead)) {
        Some(Teardown::Drop) => {}
        Some(Teardown::Later) => return false,
        Some(Teardown::Kept) | None => return true,
    }
    // Nothing is sent to a failed peer: it gets no other lane.
    let lane = tx.lane.take();
    drop(tx);
    // Unmapping is slow: not under the lock.
    drop(lane);
    true
}

/// Removes a detached peer that is alive from the list in which other threads find it. False if another thread has
/// found it before.
pub fn unlist_living(worker: &Worker, peer: &Peer) -> bool {
    let mut peers = worker.peers.lock();
    // Under the lock of the peers: no thread can get a new reference.
    if peer.is_held() {
        return false;
    }
    let is_found = peers
        .get(&peer.uid)
        .is_some_and(|p| std::ptr::eq(&raw const **p, peer));
    if is_found {
        worker.unlisted.lock().extend(peers.remove(&peer.uid));
    }
    is_found
}

/// Frees failed peers that nothing refers to. Called in progress, periodically.
pub fn sweep(worker: &Worker, rx: &mut Rx) {
    unlist(worker);
    let mut unlisted = worker.unlisted.lock();
    if unlisted.is_empty() {
        return;
    }
    // SAFETY: the peers are in `unlisted`, which is locked, until the set is dropped.
    let gone = unlisted
        .iter()
        .map(|peer| unsafe { PeerRef::new(peer) })
        .collect();
    worker.peer_lists.unflushed.lock().remove(&gone);
    let is_listed = |peer: PeerRef| !gone.contains(peer.get());
    worker.peer_lists.on_host.lock().retain(is_listed);
    let named = named(worker, rx);
    unlisted.retain(|peer| {
        // A flush of another thread may have taken a reference while the peer was in the list of unflushed ones.
        let stays = named.contains(peer) || peer.is_held();
        if !stays {
            proto_info::print_used(worker, peer);
            if peer.inbox.is_some() {
                worker.tl.expect_sender_less();
            }
        }
        stays
    });
    drop(unlisted);
    trim(worker, rx);
}

/// Frees the memory that lists of peers needed when there were many more peers.
fn trim(worker: &Worker, rx: &mut Rx) {
    let mut peers = worker.peers.lock();
    if spare::is_spare(peers.capacity(), peers.len()) {
        peers.shrink_to_fit();
    }
    drop(peers);
    let lists = &worker.peer_lists;
    for list in [
        &lists.departing,
        &lists.departed,
        &lists.idle,
        &lists.on_host,
    ] {
        list.lock().trim();
    }
    spare::trim(&mut worker.unlisted.lock());
    spare::trim(&mut worker.replaced_peers.lock());
    rx.tl.trim();
}

/// Removes peers from the lists in which other threads find them.
fn unlist(worker: &Worker) {
    let mut departed = worker.peer_lists.departed.lock();
    let due = |peer: PeerRef| is_unused(peer.get()) && !may_be_named_again(peer.get());
    if !departed.iter().any(due) {
        return;
    }
    let mut peers = worker.peers.lock();
    let mut replaced = worker.replaced_peers.lock();
    let mut unlisted = worker.unlisted.lock();
    let mut gone = PeerSet::default();
    departed.retain(|peer| {
        // Under the lock of the peers: no thread can get a new reference.
        let goes = due(peer);
        if goes {
            gone.insert(peer);
        }
        !goes
    });
    for peer in gone.iter() {
        let uid = peer.get().uid;
        if peers.get(&uid).is_some_and(|peer| gone.contains(peer)) {
            unlisted.extend(peers.remove(&uid));
        }
    }
    let mut i = 0;
    while i < replaced.len() {
        if gone.contains(&replaced[i]) {
            unlisted.push(replaced.swap_remove(i))
        } else {
            i += 1
        }
    }
    // A peer that connects again must be distinguished from one that has not noticed an earlier failure.
    let most = unlisted.iter().map(|peer| peer.losses().saturating_add(1));
    if let Some(most) = most.max() {
        worker.raise_losses(most);
    }
}

/// Whether neither the user nor a queue needs a failed peer.
fn is_unused(peer: &Peer) -> bool {
    let tx = peer.tx.lock();
    let idle =
        tx.lane.is_none() && tx.pending.is_empty() && tx.flushes.is_empty() && !tx.in_pending_list;
    drop(tx);
    idle && !peer.is_held()
}

/// Whether an endpoint can still be made to a failed peer with shared memory. It would have to fail: the rings between
/// the two workers are closed for good, and a second peer with this uid would wait for answers on them.
fn may_be_named_again(peer: &Peer) -> bool {
    peer.inbox.is_some() && !peer.is_dead()
}

/// The peers that lists of progress name.
fn named(worker: &Worker, rx: &mut Rx) -> PeerSet {
    let mut named = worker.peer_lists.all();
    add_those_of_requests(worker, &mut named);
    rx.tl.each_peer(&mut |peer| named.insert(peer));
    named
}

/// The peers of requests, of partly received messages, and of pending work for either.
pub fn named_by_requests(worker: &Worker) -> PeerSet {
    let mut named = worker.peer_lists.with_work();
    add_those_of_requests(worker, &mut named);
    named
}

/// Adds the peers of requests, split copies and RTR races.
fn add_those_of_requests(worker: &Worker, named: &mut PeerSet) {
    named.extend(worker.split_pushes.lock().iter().map(|p| p.peer));
    named.extend(worker.rtr_races.lock().iter().map(|a| a.peer));
    // SAFETY: requests in lists are not freed, and stay there as long as the list's lock is held.
    let peer_of = |&req: &*mut Request| unsafe { (*req).peer };
    named.extend(worker.cma_gets.lock().iter().filter_map(peer_of));
    named.extend(worker.flushed_done.lock().iter().filter_map(peer_of));
    named.extend(
        worker
            .ids
            .lock()
            .iter()
            .filter_map(|(_, req)| peer_of(&req)),
    );
}
