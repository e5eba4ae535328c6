//! The lane of a peer, opened by the first message or before it.

use crate::ctypes::*;
use crate::engine::peer::{Peer, PeerTx};
use crate::engine::worker::Worker;
use crate::proto::{detach, loss_log, proto_info};
use crate::sys::trace::{self, ArgValue};
use crate::sys::{advice, log};
use std::fmt::Arguments;
use std::io::ErrorKind;

/// Takes a ring in the peer's inbox, or requests a connection for the other transports. False: there is no lane yet,
/// the caller tries again later.
#[cold]
pub(super) fn connect(peer: &Peer, tx: &mut PeerTx) -> Result<bool, ucs_status_t> {
    let worker = peer.worker();
    let inbox = peer.inbox.filter(|_| peer.uses_inbox());
    let (Some(inbox), Some(me)) = (inbox, worker.as_sender()) else {
        if !tx.connecting {
            tx.connecting = true;
            worker.connect(peer);
        }
        return Ok(false);
    };
    detach::resume(peer, tx);
    if tx.lane.is_some() {
        return Ok(true);
    }
    match tx.host_link.open(inbox, &me) {
        Ok(lane) => {
            (tx.is_known, tx.has_given_back) = (true, false);
            tx.fallback_target = None;
            tx.lane = Some(lane);
            peer.note_traffic(&worker.stats);
            // The end of its last endpoint lists it.
            if peer.eps.lock().all().is_empty() {
                detach::note_idle(worker, peer);
            }
            log_lanes(worker, peer);
            Ok(true)
        }
        Err(e) if e.kind() == ErrorKind::WouldBlock => {
            if tx.host_link.is_receiver_full() {
                // Without a fallback the request waits for a ring: another sender may release one.
                let reason = format_args!("it has no shared memory for more peers");
                switch_to_fallback(worker, peer, tx, reason);
            }
            Ok(false)
        }
        Err(e) if e.kind() == ErrorKind::NotFound => {
            log::debug!("peer {:#x} (pid {}) is gone", peer.uid, inbox.id.pid);
            loss_log::on_gone(peer);
            Err(UCS_ERR_CONNECTION_RESET)
        }
        Err(e) => {
            let advice = advice::on_shared_memory(&e);
            let reason = format_args!("its shared memory cannot be mapped: {e}{advice}");
            if switch_to_fallback(worker, peer, tx, reason) {
                return Ok(false);
            }
            log::once!(
                Error, each log::words(&e),
                "cannot open the shared memory of peer {:#x} (pid {}): {e}{advice}",
                peer.uid,
                inbox.id.pid
            );
            Err(UCS_ERR_UNREACHABLE)
        }
    }
}

/// Opens a ring in the inbox of a peer that shared memory reaches, if there is room for one: messages may follow.
#[cold]
pub fn open_ring(peer: &Peer, tx: &mut PeerTx) {
    if peer.inbox.is_some() && peer.status() == UCS_OK {
        // The access that follows detects a peer that is gone.
        let _ = connect(peer, tx);
    }
}

/// Requests a TCP connection to a peer that the network of its target cannot connect. False: TCP is not allowed, or
/// does not reach the peer; or there is a lane.
#[cold]
pub fn fall_back(peer: &Peer, reason: &str) -> bool {
    let mut tx = peer.tx.lock();
    tx.lane.is_none() && switch_to_fallback(peer.worker(), peer, &mut tx, format_args!("{reason}"))
}

/// Requests a TCP connection to a peer in whose inbox no ring is available, or that its network cannot connect. False:
/// TCP is not allowed, or does not reach the peer. The order of messages is kept: messages on an earlier ring were
/// handled before it was closed, and no further one is sent on a ring.
#[cold]
fn switch_to_fallback(worker: &Worker, peer: &Peer, tx: &mut PeerTx, reason: Arguments) -> bool {
    let Some(target) = tx.fallback_target.take() else {
        return false;
    };
    match peer.inbox {
        Some(inbox) => log::once!(
            Warn, each log::words(reason),
            "worker {:#x} (pid {}) is reached by tcp: {reason}",
            peer.uid,
            inbox.id.pid
        ),
        None => log::once!(
            Warn, each log::words(reason),
            "worker {:#x} is reached by tcp: {reason}",
            peer.uid
        ),
    }
    tx.host_link.unmap();
    tx.connecting = true;
    peer.set_fallback(target);
    worker.connect(peer);
    true
}

/// Requests a connection to a peer whose death only a connection shows, before anything is sent.
pub fn connect_eagerly(peer: &Peer) {
    let mut tx = peer.tx.lock();
    if peer.target.is_some() && tx.lane.is_none() && !tx.connecting {
        tx.connecting = true;
        peer.worker().connect(peer);
    }
}

/// Logs the lanes of a peer, and stores them for the statistics.
pub fn log_lanes(worker: &Worker, peer: &Peer) {
    let proto_info::LaneNames { messages, copies } = proto_info::lanes(peer);
    peer.stats().set_lanes(messages, copies);
    if trace::is_on() {
        let args = [
            ("worker", ArgValue::Hex(worker.uid)),
            ("peer", ArgValue::Hex(peer.uid)),
            ("pid", peer.inbox.map_or(0, |inbox| inbox.id.pid).into()),
            ("messages", messages.to_string().into()),
            ("copies", copies.to_string().into()),
        ];
        trace::instant("wireup", "lanes", &args);
    }
    log::info!(
        "{} {} ep_cfg: tag({messages} {copies}) rma({messages} {copies}) amo({messages}) am({messages} {copies})",
        worker.ctx.name,
        proto_info::kind(worker, peer)
    );
    proto_info::print_connected(worker, peer);
}
