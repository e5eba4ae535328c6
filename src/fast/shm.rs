//! Polling of shared memory in the hot path, in single-thread mode.

use super::progress::inlined;
use crate::engine::worker::{Rx, Worker};
use crate::op;
use crate::tl::shm::receive::short::{self, PolledRings};

/// Polls a worker's rings, of which there are at most as many as each progress call polls.
#[inline(always)]
pub(super) fn poll_few(worker: &Worker, rx: &mut Rx) -> u32 {
    match short::poll_few(&mut rx.tl.shm, &worker.tl.shm.doorbell) {
        PolledRings::Idle => 0,
        PolledRings::New => poll_new(worker, rx),
        PolledRings::Ready(first) => poll_ready(worker, rx, first),
    }
}

/// Polls all rings after the rings of new senders were added.
#[cold]
#[inline(never)]
fn poll_new(worker: &Worker, rx: &mut Rx) -> u32 {
    op::shm::accept(worker, rx);
    worker.rx.hold(true);
    let count = short::poll_all(inlined(worker), &mut rx.tl.shm);
    worker.rx.hold(false);
    count
}

/// Handles messages: ring `first` has some. While it runs, progress called by a callback returns 0.
#[inline(never)]
fn poll_ready(worker: &Worker, rx: &mut Rx, first: usize) -> u32 {
    worker.rx.hold(true);
    let count = short::handle(inlined(worker), &mut rx.tl.shm, first);
    worker.rx.hold(false);
    count
}
