//! Rings that are not used for some time, towards peers of this host with many senders.
//!
//! A worker looks at every ring of its inbox once for each message, so that messages of several senders keep their
//! order: a nanosecond for each sender, used or not. A sender that has endpoints, and has sent nothing
//! between two rounds, `UCX_SHM_IDLE_TIMEOUT` apart, therefore offers to close its ring, as one without endpoints does
//! (`proto::detach`), if the peer's inbox has had to grow. The peer agrees where it has many rings, and nothing is
//! outstanding. The next message withdraws the offer by one atomic exchange, or takes another ring.

use super::{detach, release};
use crate::ctypes::UCS_OK;
use crate::engine::peer::{Peer, PeerTx};
use crate::engine::worker::{Rx, Worker};
use crate::tl::CloseOffer;

/// Closes the rings whose peers have agreed, and offers to close unused ones. Called in progress, periodically; `now`:
/// coarse milliseconds.
pub fn progress(worker: &Worker, rx: &mut Rx, now: u64) {
    if rx.unused_rings.has_offers {
        rx.unused_rings.has_offers = close_agreed(worker);
    }
    if now.saturating_sub(rx.unused_rings.last_round) >= worker.ctx.policy.shm_idle_ms {
        rx.unused_rings.last_round = now;
        rx.unused_rings.has_offers |= offer_unused(worker);
    }
}

/// Closes the rings whose peers have agreed. Whether there are offers without an answer.
fn close_agreed(worker: &Worker) -> bool {
    let (mut has_offers, mut closed) = (false, Vec::new());
    for peer in worker.peer_lists.on_host.lock().iter() {
        let mut tx = peer.get().tx.lock();
        if !tx.host_link.is_closing_unused() {
            continue;
        }
        match tx.host_link.take_closed() {
            None => has_offers = true,
            Some((answer, lane)) => {
                detach::settle(peer.get(), &mut tx, answer);
                closed.push(lane);
            }
        }
    }
    // Unmapping is slow: the lanes are dropped without the locks.
    has_offers
}

/// Offers to close the rings by which nothing was sent since the last call. Whether there are any.
fn offer_unused(worker: &Worker) -> bool {
    let mut unused = Vec::new();
    for peer in worker.peer_lists.on_host.lock().iter() {
        if is_unused(worker, peer.get(), &mut peer.get().tx.lock()) {
            unused.push(peer);
        }
    }
    if unused.is_empty() {
        return false;
    }
    let named = release::named_by_requests(worker);
    for peer in &unused {
        let mut tx = peer.get().tx.lock();
        if detach::is_quiet(peer.get(), &mut tx, &named) {
            tx.offer_close(CloseOffer::Unused);
        }
    }
    true
}

/// Whether the ring of a peer with endpoints was not used since the last round, and its inbox is crowded.
fn is_unused(worker: &Worker, peer: &Peer, tx: &mut PeerTx) -> bool {
    tx.has_unused_ring()
        && peer.uid != worker.uid
        && peer.status() == UCS_OK
        && !peer.eps.lock().all().is_empty()
}
