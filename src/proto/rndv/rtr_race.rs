//! Receives of medium size within a host: RTR with a fallback to CMA if the sender does not answer.
//!
//! Two copies through the ring, by two cores at once and in a cache that they share, take a third of the time of one
//! CMA copy. That needs a sender that progresses now. So the RTR names a chunk board with one chunk, which the sender
//! claims before it sends. If nothing arrives for a while, the receiver claims it and copies by CMA.
//!
//! Cores that share no cache are slow at this: the measured times of receives show whether they do (`RndvTimes`), and
//! of many messages at a time the pace at which parts are copied out of the ring.

use super::get_cma;
use crate::engine::peer::{CopyScheme, RndvTimes};
use crate::engine::pointers::PeerRef;
use crate::engine::request::Request;
use crate::engine::worker::{RtrRace, Worker};
use crate::proto::req_lookup;
use crate::tl::SplitCopy;
use std::time::{Duration, Instant};

/// Time without a part after which the receiver claims the message. A sender that progresses answers within a few
/// transfers of a cache line, 0.1 to 0.3 us each; of a sender that does not, a fifth of the time of the copy is lost.
const CLAIM_AFTER: Duration = Duration::from_micros(2);

/// Lists a race for progress, before the RTR is sent.
///
/// # Safety
/// The caller owns the request.
pub(super) unsafe fn watch(worker: &Worker, req: *mut Request, id: u64, split_copy: SplitCopy) {
    // SAFETY: the caller's request.
    let (r, peer) = unsafe { (&*req, (*req).peer()) };
    let now = Instant::now();
    worker.rtr_races.lock().push(RtrRace {
        // SAFETY: the peer of an RTR race.
        peer: unsafe { PeerRef::new(peer) },
        id,
        split_copy,
        parts: peer.parts(),
        since: now,
        timed: (!r.rndv_recv().one_of_many).then_some((r.info.length, now)),
    });
    worker.progress_flags.raise_deferred();
    worker.wake();
}

/// Handles the races in the list. Returns whether any is still open.
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
            match close(worker, a) {
                Some(req) => late.push((req, a.peer, a.timed)),
                None if is_complete(worker, a) => note(a.peer, a.timed, RndvTimes::note),
                // The sender has claimed it, late: when the receive completes is not seen here.
                None => {}
            }
        }
        waits
    });
    let left = !asked.is_empty();
    drop(asked);
    for (req, peer, timed) in late {
        note(peer, timed, RndvTimes::note_late);
        // SAFETY: the request was removed from the table: this thread owns it.
        let step = unsafe { get_cma::copy(worker, req, CopyScheme::Split, None) };
        get_cma::go_on(worker, req, step);
    }
    left
}

/// Adds the time of a race to the measurements, if it is measured.
fn note(
    peer: PeerRef,
    timed: Option<(usize, Instant)>,
    add: fn(&RndvTimes, usize, CopyScheme, Duration),
) {
    if let Some((len, began)) = timed {
        let times = &peer.get().rndv_times;
        add(times, len, CopyScheme::Race, began.elapsed());
    }
}

/// Whether the receive is complete.
fn is_complete(worker: &Worker, a: &RtrRace) -> bool {
    worker.ids.lock().get(a.id).is_none()
}

/// Whether the sender still has time. Parts of any message show that it progresses.
fn is_awaited(worker: &Worker, a: &mut RtrRace, now: Instant) -> bool {
    if is_complete(worker, a) {
        return false;
    }
    let parts = a.peer.get().parts();
    if parts != a.parts {
        (a.parts, a.since) = (parts, now);
    }
    now.duration_since(a.since) < CLAIM_AFTER
}

/// Ends a race. Returns the request if the sender has not claimed it; then the caller owns it.
fn close(worker: &Worker, a: &RtrRace) -> Option<*mut Request> {
    let peer = a.peer.get();
    // SAFETY: a lane is not dropped while it has an open split copy.
    let ours = unsafe { a.split_copy.claim_whole() };
    peer.close_split_copy(a.split_copy);
    ours.then(|| req_lookup::take(worker, peer, a.id)).flatten()
}
