//! Lines for peers that are lost where no error handler of the user is called.

use crate::engine::endpoint::{EndpointRef, EpFlags};
use crate::engine::peer::Peer;
use crate::sys::{advice, log};
use std::fmt;

/// Whether each of the user's endpoints to a peer reports failures.
pub fn is_reported(peer: &Peer) -> bool {
    let reports = |ep: &EndpointRef| ep.get().reports_failures() || ep.get().has(EpFlags::INTERNAL);
    peer.eps.lock().all().iter().all(reports)
}

/// Called for a message that finds its peer gone. Where the user's endpoints do not handle errors, the first such
/// failure of the process is logged as an error.
#[cold]
pub fn on_gone(peer: &Peer) {
    if !is_reported(peer) {
        log_lost(peer);
    }
}

/// Logs why a peer fails: as an error, once for each reason, where no error handler is called.
#[cold]
pub fn log_cause(peer: &Peer, reason: fmt::Arguments<'_>) {
    let uid = peer.uid;
    peer.note_loss_logged();
    if is_reported(peer) {
        log::diag!("the connection to worker {uid:#x} has failed: {reason}");
    } else {
        log::once!(
            Error, each log::words(reason),
            "the connection to worker {uid:#x} has failed: {reason}"
        );
    }
}

/// Logs the first peer of the process that has failed while operations needed it, and no error handler is called.
pub fn log_lost(peer: &Peer) {
    if peer.is_loss_logged() {
        return;
    }
    let place = match (
        peer.inbox,
        peer.socket_target().and_then(|target| target.address()),
    ) {
        (Some(inbox), _) => format!(" (pid {})", inbox.id.pid),
        (None, Some(address)) => format!(" at {address}"),
        (None, None) => String::new(),
    };
    let uid = peer.uid;
    log_gone(format_args!(
        "the connection to worker {uid:#x}{place} has failed"
    ));
}

/// Logs an error that the end of a peer has caused, the first one of the process.
pub fn log_gone(what: fmt::Arguments<'_>) {
    log::once!(Error, "{what}: {}", advice::ON_END);
}
