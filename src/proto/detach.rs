//! Detaching from peers that are alive: shared memory that two workers hold for each other is freed when neither has an
//! endpoint to the other and nothing is outstanding.
//!
//! A worker without an endpoint to a peer, all of whose messages the peer has handled, offers to close its ring in the
//! peer's inbox ([`HostLink`](crate::tl::HostLink)), and sets the ring aside. It withdraws the offer when it needs the
//! ring again, by one atomic exchange. The peer agrees if it has no endpoint to this worker either. It then resets the
//! count of endpoints between the two, and so does this worker when it sees the answer: the next endpoints are paired
//! from the start. Where the peer's user may still send on an endpoint that is closed here, the count is kept, and only
//! the rings are freed. A worker that has given its ring back as an unused one (`unused_rings`) takes another one for
//! the offer.
//!
//! Serial numbers are assigned under the lock of `tx`, under which the offer and its answer are handled too: an
//! endpoint is numbered before or after both sides have reset the count.

use super::{answers, release};
use crate::ctypes::*;
use crate::engine::peer::{Peer, PeerSet, PeerTx};
use crate::engine::worker::{Rx, Worker};
use crate::tl::{CloseAnswer, CloseOffer, Lane};

/// Maximum number of idle peers whose workers are checked in one round: a check takes 1 to 2 us.
const LOOKS: usize = 32;

/// Lists a peer as idle, of which an endpoint was freed or the incoming ring closed: it may have been the last.
pub fn note_idle(worker: &Worker, peer: &Peer) {
    if (peer.inbox.is_some() || peer.has_rings())
        && peer.uid != worker.uid
        && !peer.is_stub()
        && peer.set_idle()
    {
        worker.peer_lists.idle.lock().push(peer);
    }
}

/// Called before an endpoint to this peer is numbered or its ring used: withdraws an offer to close the ring.
pub fn resume(peer: &Peer, tx: &mut PeerTx) {
    match tx.host_link.resume() {
        None => {}
        Some(Ok(lane)) => {
            tx.lane = Some(lane);
            tx.is_known = true;
        }
        // The next message takes another ring.
        Some(Err(answer)) => settle(peer, tx, answer),
    }
}

/// Handles the peer's agreement to close the ring to it.
pub(super) fn settle(peer: &Peer, tx: &mut PeerTx, answer: CloseAnswer) {
    match answer {
        CloseAnswer::Released => {}
        CloseAnswer::Forgotten => forget(peer, tx),
        CloseAnswer::GivenBack => tx.has_given_back = true,
    }
}

/// Resets the count of endpoints between the two workers.
fn forget(peer: &Peer, tx: &mut PeerTx) {
    tx.is_known = false;
    peer.eps.lock().reset_numbers();
    peer.forget_endpoints();
}

/// Whether nothing is pending or outstanding to a peer, in either direction. `named`: peers that lists of progress
/// name.
pub(super) fn is_quiet(peer: &Peer, tx: &mut PeerTx, named: &PeerSet) -> bool {
    tx.pending.is_empty()
        && tx.flushes.is_empty()
        && !tx.in_pending_list
        && !tx.connecting
        && answers::is_idle(peer, tx)
        // Relaxed: a flush that has to report a refused access has an endpoint, or reads this later.
        && !peer.is_rma_refused()
        && !peer.has_replies_in_place()
        && !named.contains(peer)
}

/// Answers the peers that offer to close their rings in this worker's inbox. Called in progress, periodically.
fn reply_to_offers(worker: &Worker, rx: &mut Rx, named: &PeerSet) {
    for (offer, ring) in rx.tl.shm.offered() {
        let peer = ring.peer.get();
        let mut tx = peer.tx.lock();
        if !peer.is_connected() || !is_quiet(peer, &mut tx, named) {
            continue;
        }
        if offer == CloseOffer::Unused {
            // Its endpoints and ours stay, and our ring there. It knows the number of endpoints between the two.
            tx.is_known |= ring.agree_to_close(offer, CloseAnswer::GivenBack);
            continue;
        }
        if !peer.eps.lock().all().is_empty() || !tx.offer_close(CloseOffer::NoEndpoint) {
            continue;
        }
        let is_known = peer.is_held() || !peer.held_rts.lock().is_empty();
        if is_known {
            ring.agree_to_close(offer, CloseAnswer::Released);
        } else if ring.agree_to_close(offer, CloseAnswer::Forgotten) {
            forget(peer, &mut tx);
        }
        drop(tx);
        note_idle(worker, peer);
    }
}

/// Result of a round for a peer without endpoints.
enum DetachStep {
    /// Remove it from the list: it has endpoints again, sends to this worker, or has failed.
    Drop,
    /// Keep it for the next round.
    Keep,
    /// Check whether its worker is alive: no other event would report its death.
    Look,
    /// Free it: nothing refers to it.
    Free,
}

/// Opens a ring in the inbox of a peer, if there is room for one: `tx::open_ring`.
type OpenRing = fn(&Peer, &mut PeerTx);

/// One round for peers without endpoints. Called in progress, periodically.
pub fn progress(worker: &Worker, rx: &mut Rx, open_ring: OpenRing) {
    if !rx.tl.shm.has_offers() && worker.peer_lists.idle.lock().is_empty() {
        return;
    }
    let named = release::named_by_requests(worker);
    reply_to_offers(worker, rx, &named);
    let mut senders = PeerSet::default();
    rx.tl.each_sender(|peer| senders.insert(peer));
    let idle = worker.peer_lists.idle.lock().take();
    let (mut kept, mut looked_at) = (Vec::with_capacity(idle.len()), Vec::new());
    for (peer, ()) in idle {
        let p = peer.get();
        match step(p, &named, &senders, open_ring) {
            DetachStep::Keep => kept.push(peer),
            DetachStep::Look if looked_at.len() < LOOKS => {
                if p.is_dead() {
                    worker.fail_peer(p, UCS_ERR_CONNECTION_RESET);
                }
                looked_at.push(peer);
            }
            DetachStep::Look => kept.push(peer),
            DetachStep::Free if release::unlist_living(worker, p) => {}
            DetachStep::Free => kept.push(peer),
            DetachStep::Drop => p.clear_idle(),
        }
    }
    // Peers that were checked are checked again after the others.
    kept.append(&mut looked_at);
    worker.peer_lists.idle.lock().put_back(kept.into_iter());
}

fn step(peer: &Peer, named: &PeerSet, senders: &PeerSet, open_ring: OpenRing) -> DetachStep {
    let mut tx = peer.tx.lock();
    if !peer.is_connected() || !peer.eps.lock().all().is_empty() {
        return DetachStep::Drop;
    }
    if tx.host_link.is_closing_unused() {
        // The offer of the time with endpoints: the next one is of a worker without any.
        resume(peer, &mut tx);
    }
    if let Some((answer, lane)) = tx.host_link.take_closed() {
        settle(peer, &mut tx, answer);
        drop(tx);
        // Unmapping is slow: not under the lock.
        drop(lane);
        return DetachStep::Keep;
    }
    if tx.host_link.is_closing() {
        return DetachStep::Look;
    }
    if tx.lane.as_ref().is_some_and(Lane::stays_unused) {
        return DetachStep::Drop;
    }
    if tx.lane.is_some() {
        if is_quiet(peer, &mut tx, named) {
            tx.offer_close(CloseOffer::NoEndpoint);
        }
        return DetachStep::Keep;
    }
    if tx.has_given_back && is_quiet(peer, &mut tx, named) {
        // The peer frees what it knows of this worker when a ring is closed by a worker without endpoints.
        open_ring(peer, &mut tx);
        return match tx.lane {
            Some(_) => DetachStep::Keep,
            None => DetachStep::Look,
        };
    }
    let is_unused = !tx.is_known && is_quiet(peer, &mut tx, named);
    drop(tx);
    if senders.contains(peer) {
        // The end of that ring lists the peer again.
        DetachStep::Drop
    } else if is_unused && !peer.is_held() {
        DetachStep::Free
    } else {
        DetachStep::Look
    }
}
