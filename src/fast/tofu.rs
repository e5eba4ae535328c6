//! Polling of the Tofu interconnect in the hot path, in single-thread mode.

use super::progress::{called, inlined};
use super::shm::BATCH;
use crate::engine::worker::{Rx, Worker};
use crate::tl::tofu::receive::short::{self, Polled};

/// Polls the MRQ, and other sources only if they may have something.
///
/// # Safety
/// Single-thread mode, and no caller holds progress, or a reference to the queue.
#[inline(never)]
pub unsafe fn poll(worker: &Worker, rx: &mut Rx) -> u32 {
    let polled = match rx.tl.tofu.as_deref_mut() {
        // SAFETY: single-thread mode, and no other reference to the queue lives.
        Some(rings) => unsafe { short::poll(rings) },
        None => Polled::All,
    };
    match polled {
        Polled::Idle => 0,
        Polled::All => poll_all(worker, rx),
        // SAFETY: the caller's promise.
        Polled::Notice(code) => unsafe { take(worker, rx, code) },
    }
}

/// Polls everything of the interconnect.
#[inline(never)]
fn poll_all(worker: &Worker, rx: &mut Rx) -> u32 {
    worker.rx.hold(true);
    let count = rx.tl.progress_tofu(called(worker));
    worker.rx.hold(false);
    rx.events += u64::from(count);
    count
}

/// Handles the worker's notice. If the previous call has received one, too, more are likely to be there: they are
/// handled at once, and then, unless the MRQ is empty, everything else.
///
/// # Safety
/// As for [`poll`].
#[inline(never)]
unsafe fn take(worker: &Worker, rx: &mut Rx, code: i32) -> u32 {
    let calls = rx.calls;
    let Some(rings) = rx.tl.tofu.as_deref_mut() else {
        return 0;
    };
    worker.rx.hold(true);
    let in_a_row = std::mem::replace(&mut rings.credited_at, calls) == calls + 1;
    // SAFETY: the caller's promise; the hold keeps callbacks from progress.
    let mut count = unsafe { short::handle(rings, inlined(worker), code) };
    if in_a_row {
        // SAFETY: the caller's promise.
        count += unsafe { take_more(worker, rx) };
    }
    worker.rx.hold(false);
    rx.events += u64::from(count);
    count
}

/// Handles further notices, and then, unless the MRQ is empty, everything else.
///
/// # Safety
/// As for [`poll`]; the caller holds progress.
#[inline(never)]
unsafe fn take_more(worker: &Worker, rx: &mut Rx) -> u32 {
    let Some(rings) = rx.tl.tofu.as_deref_mut() else {
        return 0;
    };
    // SAFETY: the caller's promise.
    let (count, is_empty) = unsafe { short::handle_more(rings, inlined(worker), BATCH) };
    if is_empty {
        return count;
    }
    count + rx.tl.progress_tofu(called(worker))
}
