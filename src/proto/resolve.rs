//! Reachability: peers from worker addresses.

use crate::ctypes::*;
use crate::engine::peer::{Peer, PeerHold};
use crate::engine::worker::Worker;
use crate::sys::{clock, log};
use crate::tl::address::WorkerAddress;
use crate::tl::reach::Reach;
use crate::tl::{FoundInbox, LaneTarget};

/// The peer of a worker address.
///
/// # Errors
/// `UCS_ERR_UNREACHABLE` if no transport that the options allow reaches it.
pub fn peer_of(worker: &Worker, address: &WorkerAddress) -> Result<PeerHold, ucs_status_t> {
    if let Some(peer) = known_peer(worker, address) {
        prepare_inbox(worker, &peer, None, address);
        return Ok(peer);
    }
    let reach = worker.ctx.tl.reach(&worker.tl, address).map_err(|reason| {
        log::once!(
            Error, each log::words(reason),
            "no active messages transport to worker {:#x}: {reason}. Destination is unreachable",
            address.uid
        );
        UCS_ERR_UNREACHABLE
    })?;
    let (found, target) = match reach {
        Reach::Inbox(found) => (Some(found), None),
        Reach::Network(target) => (None, Some(target)),
    };
    let inbox = found.map(|found| found.inbox);
    let peer = worker.peer(address.uid, inbox, target);
    let peer = peer.ok_or(UCS_ERR_INVALID_ADDR)?;
    prepare_inbox(worker, &peer, found, address);
    keep_fallback(worker, &peer, address);
    Ok(peer)
}

/// Prepares a peer with an inbox for the first message. `found`: what a look-up right before has found of the inbox.
///
/// Keeps the target of a fallback, because the ring may not be mappable later, or the receiver may have no memory for
/// another one. Maps the inbox in advance; a failure is ignored, and the message tries again.
fn prepare_inbox(worker: &Worker, peer: &Peer, found: Option<FoundInbox>, address: &WorkerAddress) {
    let Some(inbox) = peer.inbox else { return };
    if !peer.uses_inbox() || peer.uid == worker.uid {
        return;
    }
    let mut tx = peer.tx.lock();
    if tx.lane.is_some() {
        return;
    }
    if !tx.host_link.is_closing()
        && tx.fallback_target.is_none()
        && let Some(target) = worker.tl.fallback(address)
    {
        tx.fallback_target = Some(Box::new(target));
    }
    if tx.host_link.is_mapped() {
        return;
    }
    let found = found.unwrap_or_else(|| worker.tl.find_inbox(inbox));
    if found.is_alive() {
        peer.set_probed_at(clock::coarse_ms() as u32);
    }
    tx.host_link.map_ahead(found);
}

/// Keeps the target of a fallback for a peer whose network may turn out not to connect.
fn keep_fallback(worker: &Worker, peer: &Peer, address: &WorkerAddress) {
    if !(peer.target.as_deref()).is_some_and(LaneTarget::may_fall_back) {
        return;
    }
    let mut tx = peer.tx.lock();
    if tx.lane.is_none()
        && tx.fallback_target.is_none()
        && peer.fallback().is_none()
        && let Some(target) = worker.tl.fallback(address)
    {
        tx.fallback_target = Some(Box::new(target));
    }
}

/// The peer, if it is known with this inbox: the kernel need not be queried again for its owner.
fn known_peer(worker: &Worker, address: &WorkerAddress) -> Option<PeerHold> {
    let inbox = address.inbox()?;
    let peers = worker.peers.lock();
    let peer = peers.get(&address.uid)?;
    let same = peer.status() == UCS_OK && peer.inbox == Some(inbox);
    same.then(|| PeerHold::new(peer))
}
