//! Failure of a peer: its status, and whether its process has ended.

use super::Peer;
use crate::ctypes::*;
use crate::sys::host;
use std::sync::atomic::Ordering;

impl Peer {
    /// Fails the peer: nothing more is sent to it or expected of it. Progress ends its requests and endpoints. Only the
    /// first status counts.
    #[cold]
    pub fn fail(&self, status: ucs_status_t) {
        if self.set_failed(status) {
            self.handle_failure();
        }
    }

    /// Makes progress end the requests and endpoints of the peer, which has failed: those that it finds then.
    #[cold]
    pub fn handle_failure(&self) {
        let worker = self.worker();
        worker.peer_lists.failed.lock().push(self);
        worker.progress_flags.raise_deferred();
        worker.wake();
    }

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

    /// Whether its worker or process on this host is gone. Costs a file system look-up.
    pub fn is_dead(&self) -> bool {
        self.uid != self.worker().uid && self.inbox.is_some_and(|l| l.is_dead(host::place()))
    }
}
