//! Close grace: after the peer has closed its endpoint in order, the local endpoint may be closed without a failure.
//!
//! Two programs that are done close their endpoints at about the same time, one of them first. For the other this is a
//! failure only if its endpoint stays open: it fails after [`LOOKS`] liveness checks, or when the worker goes to sleep.

use super::failure;
use crate::ctypes::*;
use crate::engine::endpoint::{Endpoint, EndpointRef, EpFlags};
use crate::engine::worker::Worker;

/// Number of liveness checks, [`super::liveness::CHECK_INTERVAL_MS`] apart, after which an open endpoint fails. Checks
/// are counted instead of time, because a stopped process could not close the endpoint.
const LOOKS: u32 = 3;

/// Starts the grace of an endpoint that the peer has closed in order.
pub fn begin(worker: &Worker, ep: &Endpoint) {
    if !ep.has(EpFlags::CLOSED | EpFlags::INTERNAL) && ep.set(EpFlags::LEFT) {
        // SAFETY: an endpoint of the worker; `forget` takes it out of the list.
        let left = unsafe { EndpointRef::new(ep) };
        worker.grace_eps.lock().push((left, 0));
    }
}

/// Counts a liveness check.
pub fn tick(worker: &Worker) {
    advance(worker, 1);
}

/// Ends the grace of all endpoints: a program that goes to sleep closes none. True if progress has to fail an endpoint.
pub fn expire_all(worker: &Worker) -> bool {
    advance(worker, LOOKS)
}

fn advance(worker: &Worker, looks: u32) -> bool {
    let mut left = worker.grace_eps.lock();
    left.iter_mut().for_each(|(_, seen)| *seen += looks);
    let due = left.iter().any(|&(_, seen)| seen >= LOOKS);
    if due {
        worker.progress_flags.raise_deferred();
    }
    due
}

/// Fails the endpoints whose grace has expired. Called in progress.
pub fn end_due(worker: &Worker) {
    loop {
        let mut left = worker.grace_eps.lock();
        let Some(i) = left.iter().position(|&(_, seen)| seen >= LOOKS) else {
            return;
        };
        let (ep, _) = left.swap_remove(i);
        drop(left);
        let ep = ep.get();
        failure::end_endpoint(worker, ep.peer(), ep, UCS_ERR_CONNECTION_RESET);
    }
}

/// Removes an endpoint that was closed.
pub fn forget(worker: &Worker, ep: &Endpoint) {
    worker.grace_eps.lock().retain(|&(e, _)| !e.is(ep));
}
