//! Periodic work of progress: keepalive and timeouts of the transports, listeners, dead peers, finished rings, what the
//! worker waits for.

use super::{listener, sink, traced_progress};
use crate::engine::progress_clock::Tick;
use crate::engine::worker::{Rx, Worker};
use crate::proto::{close_grace, detach, liveness, release, tx, unused_rings, waits};
use crate::sys::clock;

/// Periodic work: finds dead peers and frees finished rings. Returns the number of events, which count as progress: a
/// program may sleep when progress returns 0.
#[cold]
#[inline(never)]
pub fn progress(worker: &Worker, rx: &mut Rx) -> u32 {
    let tick = rx.read_clock();
    if worker.progress_flags.is_aside() {
        // True in a child that was forked in a callback; tested again below.
        if worker.progress_flags.is_inherited() {
            return 0;
        }
        let count = run(worker, rx, tick);
        traced_progress::end(worker, rx);
        return count;
    }
    run(worker, rx, tick)
}

/// The work of a read of the clock.
#[inline(always)]
fn run(worker: &Worker, rx: &mut Rx, Tick { now, advanced }: Tick) -> u32 {
    let mut count = 0;
    rx.tl.shm.note_progress(clock::monotonic_ns);
    let due = advanced.then_some(now);
    count += rx.tl.tick(sink::cold(worker), &worker.ctx.tl, due);
    if worker.progress_flags.is_inherited() {
        return count;
    }
    if advanced {
        count += listener::progress(worker);
    }
    let is_crowded = rx.tl.shm.take_crowded();
    if !is_crowded && now.saturating_sub(rx.last_failure_check) < liveness::CHECK_INTERVAL_MS {
        return count;
    }
    rx.last_failure_check = now;
    waits::progress(worker, rx, now);
    if is_crowded || liveness::is_due(rx, now) {
        fail_dead_peers(worker, rx, now);
    }
    rx.tl.free_rings(sink::cold(worker));
    close_grace::tick(worker);
    release::progress(worker);
    detach::progress(worker, rx, tx::open_ring);
    unused_rings::progress(worker, rx, now);
    release::sweep(worker, rx);
    count
}

/// Fails the peers that are dead, after the messages that they have sent. `now`: coarse milliseconds.
pub fn fail_dead_peers(worker: &Worker, rx: &mut Rx, now: u64) {
    let dead = liveness::dead_peers(worker, rx, now);
    if !dead.is_empty() {
        // A peer may have taken a ring, sent its messages and died since this progress call has polled.
        rx.tl.accept_rings(&worker.tl, sink::cold(worker));
        liveness::fail(worker, rx, dead);
    }
}
