//! The lane that a peer's messages take: opened by the first of them, or before it.

use crate::ctypes::*;
use crate::engine::peer::{Peer, Tx};
use crate::engine::worker::Worker;
use crate::proto::{detach, info};
use crate::sys::log;
use crate::tl::Lane;
use crate::tl::shm::outbox::Outbox;
use std::io::ErrorKind;

/// Takes a ring in the peer's inbox. False: all are taken, try again later.
#[cold]
pub(super) fn connect(peer: &Peer, tx: &mut Tx) -> Result<bool, ucs_status_t> {
    // SAFETY: peers do not outlive their worker.
    let worker = unsafe { &*peer.worker };
    let (Some(inbox), Some(me)) = (peer.inbox, worker.as_sender()) else {
        if !tx.dialing {
            tx.dialing = true;
            worker.dial(peer);
        }
        return Ok(false);
    };
    detach::resume(peer, tx);
    if tx.lane.is_some() {
        return Ok(true);
    }
    match Outbox::open(inbox, &me, &mut tx.waiting) {
        Ok(outbox) => {
            tx.met = true;
            tx.lane = Some(Lane::Shm(Box::new(outbox)));
            peer.note_traffic(worker);
            detach::note_idle(worker, peer);
            log_lanes(worker, peer);
            Ok(true)
        }
        Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            log::debug!("peer {:#x} (pid {}) is gone", peer.uid, inbox.id.pid);
            Err(UCS_ERR_CONNECTION_RESET)
        }
        Err(e) => {
            log::error!(
                "cannot open the shared memory of peer {:#x} (pid {}): {e}",
                peer.uid,
                inbox.id.pid
            );
            Err(UCS_ERR_UNREACHABLE)
        }
    }
}

/// Has a connection made to a peer that only one shows the end of: nothing need be sent first.
pub fn reach_out(peer: &Peer) {
    let mut tx = peer.tx.lock();
    if peer.target.is_some() && tx.lane.is_none() && !tx.dialing {
        tx.dialing = true;
        // SAFETY: peers do not outlive their worker.
        unsafe { &*peer.worker }.dial(peer);
    }
}

/// Says which lanes serve a peer: to people, and to the statistics.
pub fn log_lanes(worker: &Worker, peer: &Peer) {
    let info::Lanes { messages, copies } = info::lanes(peer);
    peer.stats().set_lanes(&messages, &copies);
    log::info!(
        "{} {} ep_cfg: tag({messages} {copies}) rma({messages} {copies}) amo({messages}) am({messages} {copies})",
        worker.ctx.name,
        info::kind(worker, peer)
    );
    info::connected(worker, peer);
}
