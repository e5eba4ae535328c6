//! Endpoints whose counterparts were closed in order: who closes his own end soon hears of no failure.
//!
//! Two programs that are done close their endpoints at about the same time. One is first, and to the other one that is
//! no failure unless he keeps his end: then it fails, after some looks at the clock or when the worker goes to sleep.

use super::failure;
use crate::ctypes::*;
use crate::engine::endpoint::{CLOSED, Endpoint, INTERNAL, LEFT};
use crate::engine::worker::Worker;

/// Looks at the clock, [`super::liveness::CHECK_INTERVAL_MS`] apart, until an endpoint that is not closed fails.
/// Counted, because a process that was not running while the time passed could not close it.
const LOOKS: u32 = 3;

/// The counterpart of an endpoint was closed in order.
pub fn begin(worker: &Worker, ep: &mut Endpoint) {
    if !ep.has(CLOSED | INTERNAL) && ep.set(LEFT) {
        worker.grace_eps.lock().push((ep, 0));
    }
}

/// Another look at the clock.
pub fn tick(worker: &Worker) {
    advance(worker, 1);
}

/// The worker goes to sleep: nobody is about to close anything. True if progress has something to do first.
pub fn expire_all(worker: &Worker) -> bool {
    advance(worker, LOOKS)
}

fn advance(worker: &Worker, looks: u32) -> bool {
    let mut left = worker.grace_eps.lock();
    left.iter_mut().for_each(|(_, seen)| *seen += looks);
    let due = left.iter().any(|&(_, seen)| seen >= LOOKS);
    if due {
        worker.progress_flags.raise_chores();
    }
    due
}

/// Ends the endpoints whose time is up. Runs in progress.
pub fn end_due(worker: &Worker) {
    loop {
        let mut left = worker.grace_eps.lock();
        let Some(i) = left.iter().position(|&(_, seen)| seen >= LOOKS) else {
            return;
        };
        let (ep, _) = left.swap_remove(i);
        drop(left);
        // SAFETY: the list names endpoints until they are closed; endpoints stay allocated as long as the worker.
        let ep = unsafe { &mut *ep };
        failure::end_endpoint(worker, ep.peer(), ep, UCS_ERR_CONNECTION_RESET);
    }
}

/// An endpoint is closed.
pub fn forget(worker: &Worker, ep: *const Endpoint) {
    worker
        .grace_eps
        .lock()
        .retain(|&(e, _)| !std::ptr::eq(e, ep));
}
