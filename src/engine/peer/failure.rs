//! Failure of a peer: its status, and whether its process has ended.

use super::Peer;
use crate::ctypes::*;
use crate::sys::host;
use crate::tl::Lane;
use std::sync::atomic::Ordering;

impl Peer {
    /// Sets the status of a failed peer; true the first time.
    pub fn set_failed(&self, status: ucs_status_t) -> bool {
        // Relaxed: an independent value; the list of failed peers has a lock.
        self.status
            .compare_exchange(
                UCS_OK as i8,
                status as i8,
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Whether its worker, which has closed its ring, was destroyed. The lane to it shows that in mapped memory;
    /// without one it costs a file system look-up.
    pub fn was_destroyed(&self) -> bool {
        let tx = self.tx.lock();
        let mapped = tx.lane.as_ref().filter(|lane| lane.is_mapped());
        let is_abandoned = mapped.map(Lane::is_abandoned);
        drop(tx);
        is_abandoned.unwrap_or_else(|| self.is_dead())
    }

    /// Whether its worker or process on this host is gone. Costs a file system look-up.
    pub fn is_dead(&self) -> bool {
        !self.is_own && self.inbox.is_some_and(|l| l.is_dead(host::place()))
    }
}
