//! Detects dead peers of this host that have sent no disconnect. Called by progress, a few times a second.
//!
//! The process of a peer that is waited for (its endpoints handle errors, or a request needs it) is monitored
//! ([`process_monitor`]), and a worker that was destroyed while its process is alive is marked in memory that is mapped
//! here. Both cost very little for each peer. Where neither is possible the peer is checked in turn, within a second.
//! In each round a few of all peers are checked besides: that finds the other cases (a process that has executed
//! another program), and the death of peers that no endpoint or request needs.
//!
//! A round reads memory of every peer, which the caches of a core do not hold if the peers are many. As long as no peer
//! is waited for, the rounds of a worker with many peers are therefore further apart.

use crate::ctypes::*;
use crate::engine::peer::{Peer, PeerSet};
use crate::engine::pointers::PeerRef;
use crate::engine::request::Request;
use crate::engine::worker::{Rx, Worker};
use crate::sys::host;
use crate::sys::process_monitor::{self, ExitState};
use crate::tl::Lane;
use std::collections::HashSet;

/// Milliseconds between two rounds of a worker that progresses, if it has few peers or waits for one.
pub const CHECK_INTERVAL_MS: u64 = 200;
/// Number of peers for which another [`CHECK_INTERVAL_MS`] passes between two rounds.
const PEERS_PER_INTERVAL: usize = 128;
/// Maximum number of intervals between two rounds: a peer is noticed within a second that dies while it is not waited
/// for, and is waited for afterwards.
const MAX_INTERVALS: usize = 3;
/// Number of peers checked in turn in each round: a check takes 1 to 2 us.
const LOOKS_PER_ROUND: usize = 8;
/// Number of rounds in which all peers are checked that are waited for and whose processes cannot be monitored.
const ROUNDS_OF_BLIND: usize = 3;
/// Maximum number of processes whose monitoring starts in one round.
const MAX_NEW_PER_ROUND: usize = 64;

/// State of a peer in a round.
struct ProbedPeer<'a> {
    uid: u64,
    peer: &'a Peer,
    /// A request, or an endpoint that handles errors, waits for it.
    is_urgent: bool,
    /// Its inbox is mapped, which shows whether the worker was destroyed.
    is_mapped: bool,
    /// Its worker was destroyed.
    was_destroyed: bool,
}

/// Whether a round is due, at coarse milliseconds `now`.
pub fn is_due(rx: &Rx, now: u64) -> bool {
    now >= rx.liveness.next_round
}

/// Fails peers that [`dead_peers`] has found; those whose messages still wait in a ring fail in the next round, which
/// is then due. Rings that a peer has taken were accepted since it was found dead.
pub fn fail(worker: &Worker, rx: &mut Rx, dead: Vec<PeerRef>) {
    for peer in dead {
        // Messages sent before the peer died are still in its ring. They are handled in the order of all senders, and
        // the failure follows them.
        if rx.tl.shm.has_messages_of(peer) {
            rx.check_peers_now();
            continue;
        }
        rx.tl.shm.stop(peer);
        worker.fail_peer(peer.get(), UCS_ERR_CONNECTION_RESET);
    }
}

/// Peers whose processes or workers have ended without a disconnect. `now`: coarse milliseconds.
pub fn dead_peers(worker: &Worker, rx: &mut Rx, now: u64) -> Vec<PeerRef> {
    process_monitor::poll();
    let peers = reachable_peers(worker, rx);
    let waited_for = waited_for(worker);
    let seen: Vec<_> = peers
        .iter()
        .filter_map(|(uid, peer)| see(worker, *uid, peer.get(), &waited_for))
        .collect();
    let liveness = &mut rx.liveness;
    let any_urgent = seen.iter().any(|s| s.is_urgent);
    liveness.next_round = now + interval_ms(seen.len(), any_urgent);
    liveness.retain(|uid| {
        let at = seen.binary_search_by_key(&uid, |s| s.uid);
        at.is_ok_and(|at| seen[at].is_urgent)
    });
    // By uid, which differs between peers that have not failed.
    let mut looks: HashSet<u64> = HashSet::new();
    let (mut blind, mut new) = (Vec::new(), 0);
    for s in &seen {
        let state = liveness.state(s.uid);
        if s.was_destroyed || liveness.is_dying(s.uid) || state == ExitState::Exited {
            looks.insert(s.uid);
        } else if s.is_urgent && state == ExitState::Lost {
            if !s.peer.same_process && new < MAX_NEW_PER_ROUND {
                new += 1;
                let process = s.peer.inbox.and_then(|at| at.process(host::place()));
                if let Some(watched) = process.and_then(process_monitor::watch) {
                    liveness.watch(s.uid, watched);
                    // The process may have died, and its pid may be another's, before it was monitored.
                    looks.insert(s.uid);
                    continue;
                }
            }
            if !(s.is_mapped && s.peer.same_process) {
                blind.push(s.uid);
            }
        } else if s.is_urgent && !s.is_mapped {
            blind.push(s.uid);
        }
    }
    let all: Vec<_> = seen.iter().map(|s| s.uid).collect();
    let in_turn = liveness.turn.next(&all, LOOKS_PER_ROUND);
    let blind_now = blind.len().div_ceil(ROUNDS_OF_BLIND);
    looks.extend(in_turn);
    looks.extend(liveness.urgent_turn.next(&blind, blind_now));
    let looked_at = seen.iter().filter(|s| looks.contains(&s.uid));
    let mut dead = Vec::new();
    for ProbedPeer { uid, peer, .. } in looked_at {
        let is_dead = peer.is_dead();
        liveness.looked(*uid, is_dead);
        if is_dead {
            // SAFETY: the peer is used in this progress call, which frees peers later.
            dead.push(unsafe { PeerRef::new(peer) });
        }
    }
    dead
}

/// Milliseconds until the next round of a worker with so many peers.
fn interval_ms(peers: usize, any_urgent: bool) -> u64 {
    let intervals = match any_urgent {
        true => 1,
        false => peers.div_ceil(PEERS_PER_INTERVAL).clamp(1, MAX_INTERVALS),
    };
    intervals as u64 * CHECK_INTERVAL_MS
}

/// The peers that are or may be reached by shared memory, with their uids and in the order of these. Unmaps the inboxes
/// of destroyed workers to which no message was sent: mapped memory is not freed.
fn reachable_peers(worker: &Worker, rx: &Rx) -> Vec<(u64, PeerRef)> {
    let senders = rx.tl.shm.peers().map(|peer| (peer.get().uid, peer));
    let mut known = Vec::with_capacity(2 * senders.size_hint().0);
    known.extend(senders);
    for peer in worker.peer_lists.on_host.lock().iter() {
        let p = peer.get();
        let mut tx = p.tx.lock();
        tx.host_link.unmap_abandoned();
        if p.watches_death() || tx.lane.as_ref().is_some_and(Lane::is_mapped) {
            known.push((p.uid, peer));
        }
    }
    known.sort_unstable_by_key(|&(uid, _)| uid);
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

/// The state of a peer; `None` for one that has failed, is this worker, or is not reached by shared memory.
fn see<'a>(
    worker: &Worker,
    uid: u64,
    peer: &'a Peer,
    waited_for: &PeerSet,
) -> Option<ProbedPeer<'a>> {
    if peer.status() != UCS_OK || uid == worker.uid || peer.inbox.is_none() {
        return None;
    }
    let tx = peer.tx.lock();
    let lane = tx.lane.as_ref();
    Some(ProbedPeer {
        uid,
        peer,
        is_urgent: peer.watches_death()
            || !tx.pending.is_empty()
            || !tx.flushes.is_empty()
            || waited_for.contains(peer),
        is_mapped: lane.is_some_and(Lane::is_mapped),
        was_destroyed: lane.is_some_and(Lane::is_abandoned),
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A peer that a request begins to wait for right after a round is noticed within a second.
    #[test]
    fn rounds_are_further_apart_with_many_peers_that_are_not_waited_for() {
        assert_eq!(interval_ms(0, false), CHECK_INTERVAL_MS);
        assert_eq!(interval_ms(128, false), CHECK_INTERVAL_MS);
        assert_eq!(interval_ms(129, false), 2 * CHECK_INTERVAL_MS);
        assert_eq!(interval_ms(1 << 20, false), 3 * CHECK_INTERVAL_MS);
        assert_eq!(interval_ms(1 << 20, true), CHECK_INTERVAL_MS);
        assert!(interval_ms(usize::MAX, false) + CHECK_INTERVAL_MS < 1000);
    }
}
