//! Receives of middle size within a host: the sender is asked for messages, and copied from if it does not come.
//!
//! Two copies through the ring, by two cores at once and in a cache that they share, take a third of the time of one by
//! the kernel. That needs a sender that progresses now. So the question names a share of one piece: the sender claims
//! it before it sends. If nothing comes for a while we do, and copy by ourselves.
//!
//! Cores that share no cache are slow at this. The pace at which parts come out of the ring tells which they are.

use super::get_cma;
use crate::engine::peer::Peer;
use crate::engine::request::Request;
use crate::engine::worker::{RtrRace, Worker};
use crate::proto::req_lookup;
use crate::tl::shm::chunk_board::ClaimResult;
use crate::tl::shm::outbox::OpenChunkBoard;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Longest message that is asked for, bytes: with an area and nothing else in the ring, all of it goes there at once,
/// with parts in every slot, and a sender that leaves again is not waited for.
pub const MAX: usize = 1 << 20;
/// The same where it is not known how near the peer is.
const UNKNOWN: usize = 256 << 10;
/// If the message is one of many: then each core copies others of them.
const UNKNOWN_OF_MANY: usize = 64 << 10;
/// From and to distant cores.
const FAR: usize = 64 << 10;
const FAR_OF_MANY: usize = 32 << 10;
/// Nanoseconds for a MiB of parts between near cores at most: 25 to 40 us where they share a cache and an area is the
/// ring's, 75 where it has none, 300 and more where they share none. Both sides' copies by the kernel take 50 together.
const NEAR: u32 = 55_000;
/// Of so many messages that are not asked for one is, to see whether that is right: processes move.
const TRIED: u8 = 16;
/// A sender that progresses answers within a few handoffs of a cache line, 0.1 to 0.3 us each; what it loses of a
/// sender that does not is a fifth of the time that the copy takes.
const PATIENCE: Duration = Duration::from_micros(2);

/// Whether the sender of a message of `len` bytes can be asked for it.
pub fn may_race(worker: &Worker, peer: &Peer, len: usize) -> bool {
    let by_ring = peer.inbox.is_some() && !peer.same_process;
    len <= MAX && by_ring && worker.ctx.policy.rndv_by_size
}

/// Whether it is, by what is known of the way to it. `one_of_many`: it sends others at the same time.
pub(super) fn is_racing(worker: &Worker, peer: &Peer, len: usize, one_of_many: bool) -> bool {
    may_race(worker, peer, len) && (len <= limit(peer, one_of_many) || is_tried(peer))
}

fn limit(peer: &Peer, one_of_many: bool) -> usize {
    match (peer.copy_ns_per_mib.load(Ordering::Relaxed), one_of_many) {
        (0, false) => UNKNOWN,
        (0, true) => UNKNOWN_OF_MANY,
        (..=NEAR, _) => MAX,
        (_, false) => FAR,
        (_, true) => FAR_OF_MANY,
    }
}

/// Whether it is the turn of a message that would not be asked for. Threads may lose each other's counts: no matter.
fn is_tried(peer: &Peer) -> bool {
    let left = peer.probe_skip.load(Ordering::Relaxed);
    let next = if left == 0 { TRIED } else { left - 1 };
    peer.probe_skip.store(next, Ordering::Relaxed);
    left == 0
}

/// From now on progress looks whether the sender comes. Before it is asked.
pub(super) fn watch(worker: &Worker, peer: &Peer, id: u64, share: OpenChunkBoard) {
    worker.rtr_races.lock().push(RtrRace {
        peer,
        id,
        share,
        parts: peer.parts.load(Ordering::Relaxed),
        since: Instant::now(),
    });
    worker.progress_flags.raise_chores();
    worker.wake();
}

/// Looks after those that were asked. Whether any of them may still be late.
pub fn progress_races(worker: &Worker) -> bool {
    let mut asked = worker.rtr_races.lock();
    if asked.is_empty() {
        return false;
    }
    let now = Instant::now();
    let mut late = Vec::new();
    asked.retain_mut(|a| {
        let waits = is_awaited(worker, a, now);
        if !waits {
            late.extend(close(worker, a));
        }
        waits
    });
    let left = !asked.is_empty();
    drop(asked);
    for req in late {
        // SAFETY: out of the table: ours.
        let step = unsafe { get_cma::copy(worker, req) };
        get_cma::go_on(worker, req, step);
    }
    left
}

/// Whether the sender still has time. As long as parts come it is at work, on this message or on one before.
fn is_awaited(worker: &Worker, a: &mut RtrRace, now: Instant) -> bool {
    if worker.ids.lock().get(a.id).is_none() {
        return false;
    }
    // SAFETY: peers that lists of progress name are not freed.
    let parts = unsafe { &*a.peer }.parts.load(Ordering::Relaxed);
    if parts != a.parts {
        (a.parts, a.since) = (parts, now);
    }
    now.duration_since(a.since) < PATIENCE
}

/// The wait is over. The request, if the sender has not begun: it is the caller's then.
fn close(worker: &Worker, a: &RtrRace) -> Option<*mut Request> {
    // SAFETY: peers that lists of progress name are not freed; the ring to them as long as the share is open.
    let (peer, share) = unsafe { (&*a.peer, a.share.share.as_ref()) };
    let ours = share.claim(a.share.generation, 1) == ClaimResult::Piece(0);
    peer.close_share(a.share.share);
    ours.then(|| req_lookup::take(worker, peer, a.id)).flatten()
}
