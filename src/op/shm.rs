//! The calls of a worker's progress into the receiving half of shared memory.

use super::sink;
use crate::engine::worker::{Rx, Worker};
use crate::tl::shm::accept;

/// Starts to poll the rings that peers have taken in the worker's inbox.
#[cold]
pub fn accept(worker: &Worker, rx: &mut Rx) {
    let doorbell = &worker.tl.shm.doorbell;
    accept::accept(&mut rx.tl.shm, doorbell, sink::cold(worker));
}

/// Frees the rings that no sender uses any more.
pub fn free_finished(worker: &Worker, rx: &mut Rx) {
    accept::free_finished(&mut rx.tl.shm, sink::cold(worker));
}
