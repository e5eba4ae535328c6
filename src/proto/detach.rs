//! Detaching from peers that live: what shared memory holds for two workers goes when neither has an endpoint to the
//! other and nothing is under way.
//!
//! A worker without an endpoint to a peer, all of whose messages that peer has handled, offers to close its ring in the
//! peer's inbox ([`crate::tl::shm::close`]), and keeps the ring aside. It takes the offer back when it needs the ring
//! again, which costs one exchange. The peer agrees if it has no endpoint to this worker either. It then forgets how
//! many endpoints there have been between the two, and so does this worker when it sees the answer: the next endpoints
//! are paired as the first ones were. Where the peer's user may still answer by an endpoint that has ended, the numbers
//! are remembered, and the rings go all the same.
//!
//! Numbers are given out under the lock of `tx`, as the offer and its answer are: an endpoint is numbered before or
//! after both have forgotten.

use super::{failure, release};
use crate::ctypes::*;
use crate::engine::peer::{Peer, PeerTx};
use crate::engine::worker::{Rx, Worker};
use crate::tl::Lane;
use crate::tl::shm::close::CloseAnswer;
use crate::tl::shm::outbox::Outbox;
use std::collections::HashSet;
use std::sync::atomic::Ordering;

/// Peers without endpoints whose workers are looked for in one round: a look costs 1 to 2 us.
const LOOKS: usize = 32;

/// An endpoint to a peer has gone, or its ring in our inbox: it may be the last.
pub fn note_idle(worker: &Worker, peer: &Peer) {
    // Relaxed: under the lock of the list where it matters.
    if (peer.inbox.is_some() || peer.has_rings())
        && peer.uid != worker.uid
        && !peer.is_stub()
        && !peer.is_idle.swap(true, Ordering::Relaxed)
    {
        worker.idle.lock().push(peer);
    }
}

/// An endpoint to this peer is about to be numbered, or a ring to be used. From here on the peer may know of it.
pub fn resume(peer: &Peer, tx: &mut PeerTx) {
    let Some(mut outbox) = tx.closing_outbox.take() else {
        return;
    };
    match outbox.take_back() {
        Ok(()) => {
            tx.lane = Some(Lane::Shm(outbox));
            tx.is_known = true;
        }
        // Dropped, and so closed: the next message takes another ring.
        Err(answer) => settle(peer, tx, answer),
    }
}

/// The peer has agreed that the ring to it goes.
fn settle(peer: &Peer, tx: &mut PeerTx, answer: CloseAnswer) {
    if answer == CloseAnswer::Forgotten {
        forget(peer, tx);
    }
}

/// Forgets how many endpoints there have been.
fn forget(peer: &Peer, tx: &mut PeerTx) {
    tx.is_known = false;
    peer.eps.lock().next_sn = 0;
    peer.force_closed.store(false, Ordering::Relaxed);
    peer.answered.store(false, Ordering::Relaxed);
}

/// Whether nothing is under way to a peer, and nothing that it was asked for is outstanding. `named`: peers that lists
/// of progress name.
fn is_quiet(peer: &Peer, tx: &PeerTx, named: &HashSet<*const Peer>) -> bool {
    tx.pending.is_empty()
        && tx.flushes.is_empty()
        && !tx.in_pending_list
        && !tx.connecting
        && peer.rma_idle()
        // Relaxed: a flush that is to tell of it has an endpoint, or looks later.
        && !peer.rma_refused.load(Ordering::Relaxed)
        && peer.replies_in_place.load(Ordering::Relaxed) == 0
        && !named.contains(&(&raw const *peer))
}

/// Puts the ring to a quiet peer aside and offers to close it. False: the peer has not handled everything yet, or
/// another transport leads to it.
fn set_aside(tx: &mut PeerTx) -> bool {
    match tx.lane.take() {
        None => true,
        Some(Lane::Shm(outbox)) if outbox.offer_close() => {
            tx.closing_outbox = Some(outbox);
            true
        }
        other => {
            tx.lane = other;
            false
        }
    }
}

/// Answers the peers that offer to close their rings in our inbox. Runs in progress, now and then.
fn answer_offers(worker: &Worker, rx: &mut Rx, named: &HashSet<*const Peer>) {
    for c in &mut rx.shm_rings {
        if !c.consumer.is_close_offered() {
            continue;
        }
        // SAFETY: peers that incoming rings name are not freed.
        let peer = unsafe { &*c.peer };
        let mut tx = peer.tx.lock();
        let agrees = peer.is_connected()
            && is_quiet(peer, &tx, named)
            && peer.eps.lock().all().is_empty()
            && set_aside(&mut tx);
        if !agrees {
            continue;
        }
        let is_known = peer.is_held() || !peer.held_rts.lock().is_empty();
        if is_known {
            c.consumer.agree_to_close(CloseAnswer::Released);
        } else if c.consumer.agree_to_close(CloseAnswer::Forgotten) {
            forget(peer, &mut tx);
        }
        drop(tx);
        note_idle(worker, peer);
    }
}

/// What becomes of a peer without endpoints in this round.
enum DetachStep {
    /// It has endpoints again, sends to us, or is lost: other lists have it.
    Drop,
    /// It is looked at again.
    Keep,
    /// Its worker should be looked for: nothing else tells of its end.
    Look,
    /// Nothing is known of it and nothing names it.
    Free,
}

/// Moves the end of what is held for peers without endpoints on. Runs in progress, now and then.
pub fn progress(worker: &Worker, rx: &mut Rx) {
    let offers = rx
        .shm_rings
        .iter_mut()
        .any(|c| c.consumer.is_close_offered());
    if !offers && worker.idle.lock().is_empty() {
        return;
    }
    let named = release::named_by_requests(worker);
    answer_offers(worker, rx, &named);
    let mut senders: HashSet<*const Peer> = rx.shm_rings.iter().map(|c| c.peer).collect();
    if let Some(rings) = rx.tofu.as_deref() {
        senders.extend(rings.peers());
    }
    let idle = std::mem::take(&mut *worker.idle.lock());
    let (mut kept, mut looked_at) = (Vec::with_capacity(idle.len()), Vec::new());
    for peer in idle {
        // SAFETY: peers in this list are not freed.
        let p = unsafe { &*peer };
        match step(p, &named, &senders) {
            DetachStep::Keep => kept.push(peer),
            DetachStep::Look if looked_at.len() < LOOKS => {
                if failure::is_dead(worker, p) {
                    super::tx::fail_peer(p, UCS_ERR_CONNECTION_RESET);
                }
                looked_at.push(peer);
            }
            DetachStep::Look => kept.push(peer),
            DetachStep::Free if release::unlist_living(worker, p) => {}
            DetachStep::Free => kept.push(peer),
            DetachStep::Drop => p.is_idle.store(false, Ordering::Relaxed),
        }
    }
    // Those that were looked at have their turn behind the others.
    let mut idle = worker.idle.lock();
    kept.append(&mut looked_at);
    kept.append(&mut idle);
    *idle = kept;
}

fn step(peer: &Peer, named: &HashSet<*const Peer>, senders: &HashSet<*const Peer>) -> DetachStep {
    let mut tx = peer.tx.lock();
    if !peer.is_connected() || !peer.eps.lock().all().is_empty() {
        return DetachStep::Drop;
    }
    if let Some(answer) = tx
        .closing_outbox
        .as_ref()
        .and_then(|outbox| outbox.answer())
    {
        let outbox: Option<Box<Outbox>> = tx.closing_outbox.take();
        settle(peer, &mut tx, answer);
        drop(tx);
        // Unmapping takes long: not under the lock.
        drop(outbox);
        return DetachStep::Keep;
    }
    if tx.closing_outbox.is_some() {
        return DetachStep::Look;
    }
    if matches!(tx.lane, Some(Lane::Tofu(_))) {
        // The interconnect tells of its end, or a probe does.
        return DetachStep::Drop;
    }
    if tx.lane.is_some() {
        if is_quiet(peer, &tx, named) {
            set_aside(&mut tx);
        }
        return DetachStep::Keep;
    }
    let is_unused = !tx.is_known && is_quiet(peer, &tx, named);
    drop(tx);
    match senders.contains(&(&raw const *peer)) {
        // The end of that ring brings it back.
        true => DetachStep::Drop,
        false if is_unused && !peer.is_held() => DetachStep::Free,
        false => DetachStep::Look,
    }
}
