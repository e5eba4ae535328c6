//! Detects dead peers of this host that have sent no disconnect. Called by progress, a few times a second.
//!
//! The process of a peer that is waited for (its endpoints handle errors, or a request needs it) is monitored
//! ([`process_monitor`]), and a worker that was destroyed while its process is alive is marked in memory that is mapped
//! here. Both cost very little for each peer. Where neither is possible the peer is checked in turn, within a second.
//! In each round a few of all peers are checked besides: that finds the other cases (a process that has executed
//! another program), and the death of peers that no endpoint or request needs.

use crate::ctypes::*;
use crate::engine::peer::{Peer, PeerHandle, PeerSet};
use crate::engine::pointers::PeerRef;
use crate::engine::request::Request;
use crate::engine::worker::{Rx, Worker};
use crate::sys::host;
use crate::sys::process_monitor::{self, ExitState};
use crate::tl::Lane;
use std::collections::HashSet;

/// Milliseconds between two rounds of a worker that progresses.
pub const CHECK_INTERVAL_MS: u64 = 200;
/// Number of peers checked in turn in each round: a check takes 1 to 2 us.
const LOOKS_PER_ROUND: usize = 8;
/// Number of rounds in which all peers are checked that are waited for and whose processes cannot be monitored.
const ROUNDS_OF_BLIND: usize = 3;
/// Maximum number of processes whose monitoring starts in one round.
const MAX_NEW_PER_ROUND: usize = 64;

/// State of a peer in a round.
struct ProbedPeer<'a> {
    peer: &'a Peer,
    /// A request, or an endpoint that handles errors, waits for it.
    is_urgent: bool,
    /// Its inbox is mapped, which shows whether the worker was destroyed.
    is_mapped: bool,
    /// Its worker was destroyed.
    was_destroyed: bool,
}

/// Fails the peers that are dead; those whose messages still wait in a ring fail in the next round, which is then due.
pub fn fail_dead_peers(worker: &Worker, rx: &mut Rx) {
    for peer in dead_peers(worker, rx) {
        // Messages sent before the peer died are still in its ring. They are handled in the order of all senders, and
        // the failure follows them.
        if rx.tl.shm.has_messages_of(peer) {
            rx.last_failure_check = 0;
            continue;
        }
        rx.tl.shm.stop(peer);
        worker.fail_peer(peer.get(), UCS_ERR_CONNECTION_RESET);
    }
}

/// Peers whose processes or workers have ended without a disconnect.
fn dead_peers(worker: &Worker, rx: &mut Rx) -> Vec<PeerRef> {
    process_monitor::poll();
    let peers = reachable_peers(worker, rx);
    let waited_for = waited_for(worker);
    let seen: Vec<_> = peers
        .iter()
        .map(|peer| see(peer.get(), &waited_for))
        .collect();
    let liveness = &mut rx.liveness;
    liveness.retain(|uid| {
        let at = seen.binary_search_by_key(&uid, |s| s.peer.uid);
        at.is_ok_and(|at| seen[at].is_urgent)
    });
    // By uid, which differs between peers that have not failed.
    let mut looks: HashSet<u64> = HashSet::new();
    let (mut blind, mut new) = (Vec::new(), 0);
    for s in &seen {
        let state = liveness.state(s.peer);
        if s.was_destroyed || liveness.is_dying(s.peer) || state == ExitState::Exited {
            looks.insert(s.peer.uid);
        } else if s.is_urgent && state == ExitState::Lost {
            if !s.peer.same_process && new < MAX_NEW_PER_ROUND {
                new += 1;
                let process = s.peer.inbox.and_then(|at| at.process(host::place()));
                if let Some(watched) = process.and_then(process_monitor::watch) {
                    liveness.watch(s.peer, watched);
                    // The process may have died, and its pid may be another's, before it was monitored.
                    looks.insert(s.peer.uid);
                    continue;
                }
            }
            if !(s.is_mapped && s.peer.same_process) {
                blind.push(s.peer);
            }
        } else if s.is_urgent && !s.is_mapped {
            blind.push(s.peer);
        }
    }
    let all: Vec<_> = seen.iter().map(|s| s.peer).collect();
    let in_turn = liveness.turn.next(&all, LOOKS_PER_ROUND);
    let blind_now = blind.len().div_ceil(ROUNDS_OF_BLIND);
    let in_turn = in_turn
        .into_iter()
        .chain(liveness.urgent_turn.next(&blind, blind_now));
    looks.extend(in_turn.map(|peer| peer.uid));
    let mut dead = peers;
    dead.retain(|peer| {
        let peer = peer.get();
        looks.contains(&peer.uid) && {
            let is_dead = peer.is_dead();
            liveness.looked(peer, is_dead);
            is_dead
        }
    });
    dead
}

/// The peers that are reached by shared memory and have not failed, in the order of their uids. Unmaps the inboxes of
/// destroyed workers to which no message was sent: mapped memory is not freed.
fn reachable_peers(worker: &Worker, rx: &Rx) -> Vec<PeerRef> {
    let mut known: Vec<_> = rx.tl.shm.peers().collect();
    known.extend(worker.all_peers().into_iter().filter_map(|p| match p {
        PeerHandle::Settled(ref p) => {
            let mut tx = p.tx.lock();
            tx.host_link.unmap_abandoned();
            let is_looked_at = p.watches_death() || tx.lane.as_ref().is_some_and(Lane::is_mapped);
            // SAFETY: the peer is used in this progress call, which frees peers later.
            is_looked_at.then(|| unsafe { PeerRef::new(p) })
        }
        // A stub peer has no process.
        PeerHandle::Placeholder(_) => None,
    }));
    known.retain(|peer| {
        let peer = peer.get();
        peer.status() == UCS_OK && peer.uid != worker.uid && peer.inbox.is_some()
    });
    known.sort_unstable_by_key(|peer| peer.get().uid);
    known.dedup();
    known
}

/// The peers for which requests wait: for an answer, or for the copy of their memory.
fn waited_for(worker: &Worker) -> PeerSet {
    // SAFETY: requests in lists are not freed, and stay there as long as the list's lock is held.
    let peer_of = |req: *mut Request| unsafe { (*req).peer };
    let gets = worker.cma_gets.lock();
    let mut peers: PeerSet = gets.iter().filter_map(|&r| peer_of(r)).collect();
    drop(gets);
    // Most consecutive requests are for one peer.
    let mut last = None;
    for (_, req) in worker.ids.lock().iter() {
        let peer = peer_of(req);
        if peer != last {
            peers.extend(peer);
            last = peer;
        }
    }
    peers
}

fn see<'a>(peer: &'a Peer, waited_for: &PeerSet) -> ProbedPeer<'a> {
    let tx = peer.tx.lock();
    let lane = tx.lane.as_ref();
    ProbedPeer {
        peer,
        is_urgent: peer.watches_death()
            || !tx.pending.is_empty()
            || !tx.flushes.is_empty()
            || waited_for.contains(peer),
        is_mapped: lane.is_some_and(Lane::is_mapped),
        was_destroyed: lane.is_some_and(Lane::is_abandoned),
    }
}
