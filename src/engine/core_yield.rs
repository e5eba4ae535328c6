//! Yields of the core by a worker: the policies of [`yield_policy`](super::yield_policy), carried out.

use super::worker::{Rx, Worker};
use crate::sys::sync::give_way;
use std::time::{Duration, Instant};

/// Whether the worker has been polled for long without an arrival and without an operation of the caller.
#[inline(never)]
pub fn is_polled_in_vain(worker: &Worker, rx: &mut Rx) -> bool {
    rx.idle_yield.is_over(|| {
        // `events` counts the messages of all rings where there are more rings than `taken` counts.
        let others = rx.events.wrapping_add(worker.stats.operations());
        rx.tl.shm.taken().wrapping_add(others)
    })
}

/// Yields the core, and adds the time that this took to the account of the caller.
#[cold]
#[inline(never)]
pub fn yield_core(worker: &Worker, account: fn(&mut Rx, Duration)) {
    if let Some(rx) = worker.rx.try_lock() {
        rx.tl.shm.note_progress(|| 0);
    }
    let began = Instant::now();
    give_way(0);
    let took = began.elapsed();
    if let Some(mut rx) = worker.rx.try_lock() {
        account(&mut rx, took);
        rx.yielded_ms += took.as_millis() as u64;
    }
}

/// Called after many failed compare-and-swaps: calls `progress` if the user does not, so that peers get their answers,
/// and yields the core. In a callback, and while another thread progresses, it only yields.
#[cold]
#[inline(never)]
pub fn back_off(worker: &Worker, failures: u32, progress: fn(&Worker) -> u32) {
    /// Failures between two yields of a caller that cannot lock the account.
    const BLIND: u32 = 1024;
    let operations = worker.stats.atomics();
    let Some(mut rx) = worker.rx.try_lock() else {
        if failures % BLIND == 0 {
            give_way(0);
        }
        return;
    };
    let calls = rx.calls;
    let relief = rx.contention.look(operations, calls);
    drop(rx);
    if relief.progress {
        progress(worker);
        if let Some(mut rx) = worker.rx.try_lock() {
            let calls = rx.calls;
            rx.contention.progressed(calls);
        }
    }
    if relief.offer {
        yield_core(worker, |rx, took| rx.contention.offered(took));
    }
}
