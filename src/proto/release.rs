//! Gives back what this worker holds for lost peers: the socket, or the mapping of the peer's inbox.

use super::failure;
use crate::engine::peer::Peer;
use crate::engine::worker::Worker;
use crate::tl::Lane;

/// A peer is lost and its requests have ended: its lane is dropped by [`progress`]. Runs in progress.
pub fn begin(worker: &Worker, peer: &Peer) {
    worker.departing.lock().push(peer);
}

/// Drops the lanes of lost peers. Runs in progress, after receives that shared copies with these peers have ended.
pub fn progress(worker: &Worker) {
    if worker.departing.lock().is_empty() {
        return;
    }
    // Only progress adds to the list.
    let mut departing = std::mem::take(&mut *worker.departing.lock());
    // SAFETY: peers live as long as the worker.
    departing.retain(|&peer| !detach(worker, unsafe { &*peer }));
    *worker.departing.lock() = departing;
}

/// Drops the lane to a lost peer. False if another thread still uses the ring: it is to be tried again.
fn detach(worker: &Worker, peer: &Peer) -> bool {
    let is_dead = failure::is_dead(worker, peer);
    let mut tx = peer.tx.lock();
    match tx.lane.as_mut() {
        // The socket is closed with the sending half, or when the receiving half has seen its end.
        Some(Lane::Tcp(sender)) => sender.shut(),
        // Receives that began before the loss name shares in the ring's memory.
        Some(Lane::Shm(outbox)) if outbox.has_open_share() => return false,
        Some(Lane::Shm(outbox)) if is_dead => outbox.forsake(),
        Some(Lane::Shm(_)) => {}
        Some(Lane::Ib(_) | Lane::Tofu(_)) | None => return true,
    }
    // Nothing is sent to a lost peer: no other lane takes its place.
    let lane = tx.lane.take();
    drop(tx);
    // Unmapping takes long: not under the lock.
    drop(lane);
    true
}
