//! Going to sleep without missing what comes meanwhile.

use crate::ctypes::*;
use crate::engine::wake::Wake;
use crate::engine::watch::Watch;
use crate::engine::worker::Worker;
use crate::proto::{parting, tx};
use crate::sys::log;

/// Asks the peers to wake this worker. `UCS_ERR_BUSY` if there is something to do first; `UCS_ERR_IO_ERROR` where the
/// program has closed the descriptors.
pub fn arm(worker: &Worker, wake: &Wake) -> ucs_status_t {
    if !wake.is_intact() {
        log::error!("ucp_worker_arm: the worker's descriptors were closed");
        return UCS_ERR_IO_ERROR;
    }
    if wake.take_signal() {
        return UCS_ERR_BUSY;
    }
    // Called from a callback, or while another thread progresses: there is something going on.
    let Some(mut rx) = worker.rx.try_lock() else {
        return UCS_ERR_BUSY;
    };
    let rx = &mut *rx;
    wake.drain();
    if parting::hasten(worker) {
        return UCS_ERR_BUSY;
    }
    if wake.watch().is_some_and(Watch::take) {
        // The next progress looks at the peers.
        (rx.calls, rx.checked_at) = (1, 0);
        return UCS_ERR_BUSY;
    }
    if let Some(inbox) = rx.inbox.as_ref() {
        // SAFETY: a worker drops its `wake` before its inbox.
        unsafe { wake.listen(inbox) };
        inbox.arm();
    }
    let keepalive = worker.ctx.policy.keepalive_ms;
    wake.fall_asleep();
    // Only after arming: a message that was sent before a sender could see it is seen here.
    let busy = is_stuck(worker)
        || worker.cqs.any_ready()
        || worker.duties.chores()
        || (rx.sockets.as_mut()).is_some_and(|s| s.behind() > 0 || !s.sleep_until_due())
        || (worker.exchange.lock().as_mut()).is_some_and(|x| !x.sleep_until_due())
        || !worker.dials.lock().is_empty()
        || !worker.pairings.lock().is_empty()
        || rx.ports.as_mut().is_some_and(|p| !p.fall_asleep(keepalive))
        || worker.doorbell.has_new_ring()
        || rx
            .channels
            .iter_mut()
            .any(|c| !matches!(c.consumer.peek(), Ok(None)))
        || pending(worker, wake);
    if rx.ports.as_ref().is_some_and(|p| p.timed) {
        // The next progress looks at the clock.
        rx.calls = 1;
    }
    if !busy {
        return UCS_OK;
    }
    if let Some(inbox) = rx.inbox.as_ref() {
        inbox.disarm();
    }
    wake.stay_awake();
    UCS_ERR_BUSY
}

/// Whether something is queued that only progress can move: nothing wakes the worker when it can go on.
fn is_stuck(worker: &Worker) -> bool {
    worker.duties.backlog() != 0
        // SAFETY: peers that lists of progress name are not freed.
        && (worker.busy.lock().iter()).any(|&peer| !tx::is_watched(unsafe { &*peer }))
}

/// Whether a descriptor is ready. The next progress call looks at them.
fn pending(worker: &Worker, wake: &Wake) -> bool {
    let pending = wake.pending();
    if pending {
        if let Some(x) = worker.exchange.lock().as_deref_mut() {
            x.urgent = true;
        }
        worker.duties.call_network();
        worker.duties.call_ports();
    }
    pending
}

/// Sleeps, unless there is something to do.
pub fn wait(worker: &Worker, wake: &Wake) -> ucs_status_t {
    match arm(worker, wake) {
        UCS_OK => {
            wake.wait();
            UCS_OK
        }
        UCS_ERR_BUSY => UCS_OK,
        status => status,
    }
}
