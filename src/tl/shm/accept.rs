//! Rings that peers take in a worker's inbox, and their end.

use super::inbox::{Doorbell, RINGS};
use super::ring::Consumer;
use super::worker::{ShmRx, ShmWorker};
use crate::ctypes::*;
use crate::sys::log;
use crate::tl::sink::Sink;

/// Starts to poll the rings that peers have taken.
#[cold]
pub fn accept<S: Sink>(shm: &mut ShmWorker<S::Peer>, doorbell: &Doorbell, sink: S) {
    let Some(inbox) = shm.inbox.as_mut() else {
        return;
    };
    // Closed rings are freed before all are taken.
    if 4 * shm.rings.len() >= 3 * RINGS {
        shm.is_crowded = true;
    }
    let accepted = inbox.accept(doorbell);
    // At once if the senders are expected: the list is not copied each time that its length has doubled.
    let expected = doorbell.expected().min(RINGS);
    if shm.rings.len() + accepted.len() > shm.rings.capacity() && expected > shm.rings.len() {
        shm.rings.reserve_exact(expected - shm.rings.len());
    }
    for (_, sender) in &accepted {
        sink.prefetch_peer(sender.uid);
    }
    for (index, sender) in accepted {
        let Some(peer) = sink.local_peer(sender.uid, sender.inbox) else {
            log::once!(
                Error,
                "a process claims to be worker {:#x}, which is another process: its ring is not polled",
                sender.uid
            );
            inbox.free(index);
            continue;
        };
        log::debug!(
            "worker {:#x} (pid {}) sends through ring {index}",
            sender.uid,
            sender.inbox.id.pid
        );
        // SAFETY: the ring was zero when its sender took it; it is valid as long as the inbox, which is dropped after
        // the rings; this is its only consumer: `accept` reports it once.
        let consumer =
            unsafe { Consumer::new(inbox.ring(index)).with_big_bufs(inbox.big_bufs(index)) };
        // SAFETY: the ring is part of the inbox, which outlives the peers.
        sink.with_cma(peer, |cma| unsafe { cma.attach(&consumer) });
        sink.incoming_up(peer);
        shm.rings.push(ShmRx {
            consumer,
            index,
            peer,
        });
    }
}

/// Frees the rings whose sender has closed them or is dead, so that the inbox can grant them to other senders.
pub fn free_finished<S: Sink>(shm: &mut ShmWorker<S::Peer>, sink: S) {
    let Some(inbox) = shm.inbox.as_mut() else {
        return;
    };
    shm.rings.retain_mut(|ring| {
        // A sender that is alive may still write, so that its ring cannot be given to another one.
        let gone = ring.consumer.is_stopped() && sink.is_dead(ring.peer);
        let finished = gone || ring.consumer.is_finished();
        if finished {
            // A sender that is destroyed closes its ring: its failure is raised without waiting for the next liveness
            // check.
            if !gone && sink.was_destroyed(ring.peer) {
                sink.lane_down(ring.peer, UCS_ERR_CONNECTION_RESET);
            }
            if sink.with_cma(ring.peer, |cma| cma.detach(&ring.consumer)) {
                sink.drop_split_writes(ring.peer);
            }
            inbox.free(ring.index);
            sink.incoming_refused(ring.peer);
        }
        !finished
    });
}
