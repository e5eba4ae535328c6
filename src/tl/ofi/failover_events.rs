//! What a clock tick has to do for the connections of an interface with failover.

use super::address::OfiLocator;
use super::failover_packet::Move;
use super::packet::ParsedHello;
use super::tx_link::OfiTxLink;
use crate::ctypes::ucs_status_t;
use std::sync::Arc;

/// What has happened to connections with failover of an interface since the last clock tick.
#[derive(Default)]
pub struct FailoverEvents {
    /// Connections that have failed, and are to go on by another interface.
    pub failed: Vec<(Arc<OfiTxLink>, ucs_status_t)>,
    /// Requests of peers to move connections here, with where the peers are.
    pub requests: Vec<(Move, OfiLocator)>,
    /// Hellos that may be of connections which another interface has.
    pub hellos: Vec<ParsedHello>,
    /// Keys of former connections that peers have reset.
    pub resets: Vec<u64>,
}

impl FailoverEvents {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        let has_failed = !self.failed.is_empty() || !self.resets.is_empty();
        self.requests.is_empty() && self.hellos.is_empty() && !has_failed
    }
}
