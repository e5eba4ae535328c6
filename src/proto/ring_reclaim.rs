//! Frees incoming rings of shared memory, so that the inbox can grant them to other senders.

use super::{detach, split_copy};
use crate::ctypes::*;
use crate::engine::worker::{Rx, Worker};

/// Frees rings whose sender has closed them or is dead.
pub fn progress(worker: &Worker, rx: &mut Rx) {
    let Some(inbox) = rx.inbox.as_mut() else {
        return;
    };
    rx.shm_rings.retain_mut(|c| {
        // A sender that is alive may still write, so that its ring cannot be given to another one.
        let gone = c.consumer.is_stopped() && c.peer.get().is_dead();
        let finished = gone || (c.consumer.closed() && matches!(c.consumer.peek(), Ok(None)));
        if finished {
            let peer = c.peer.get();
            // A sender that is destroyed closes its ring: its failure is raised without waiting for the next liveness
            // check.
            if !gone && peer.is_dead() {
                peer.fail(UCS_ERR_CONNECTION_RESET);
            }
            if peer.cma().detach(&c.consumer) {
                split_copy::drop_push(worker, peer);
            }
            inbox.free(c.index);
            detach::note_idle(worker, peer);
        }
        !finished
    });
}
