//! Arm and wait: a worker that sleeps without missing an event.

use super::sink;
use crate::ctypes::*;
use crate::engine::peer_monitor::PeerMonitor;
use crate::engine::wakeup::Wakeup;
use crate::engine::worker::Worker;
use crate::proto::{close_grace, tx, waits};
use crate::sys::log;
use crate::tl::IfaceKind;

/// Arms the worker's wakeup. `UCS_ERR_BUSY` if there is something to do first; `UCS_ERR_IO_ERROR` where the program has
/// closed the descriptors.
pub fn arm(worker: &Worker, wake: &Wakeup) -> ucs_status_t {
    if !wake.is_intact() {
        log::error!("ucp_worker_arm: the worker's descriptors were closed");
        return UCS_ERR_IO_ERROR;
    }
    if wake.take_signal() {
        return UCS_ERR_BUSY;
    }
    // Called in a callback, or while another thread progresses.
    let Some(mut rx) = worker.rx.try_lock() else {
        return UCS_ERR_BUSY;
    };
    let rx = &mut *rx;
    wake.drain();
    if close_grace::expire_all(worker) {
        return UCS_ERR_BUSY;
    }
    if wake.watch().is_some_and(PeerMonitor::take) {
        // The next progress call checks the peers.
        rx.calls = 1;
        rx.check_peers_now();
        return UCS_ERR_BUSY;
    }
    #[cfg(not(loom))]
    if let Some(futex) = rx.tl.shm.bell() {
        // SAFETY: a worker drops its `wake` before its inbox, which has the futex.
        unsafe { wake.listen(futex) };
    }
    rx.tl.shm.arm();
    wake.arm();
    // Checked after arming: a message whose sender did not see that this worker is armed is found here.
    let busy = is_stuck(worker)
        || worker.cqs.any_ready()
        || worker.progress_flags.has_deferred()
        || has_due_copies(worker)
        || (worker.cm.lock().as_mut()).is_some_and(|x| !x.sleep_until_due())
        || has_connects(worker)
        || !rx.tl.arm(sink::cold(worker))
        || worker.tl.has_new_ring()
        || rx.tl.shm.has_messages()
        || pending(worker, wake);
    if rx.tl.is_timed() {
        // The next progress call reads the clock.
        rx.calls = 1;
    }
    if !busy {
        waits::armed(worker, rx);
        if let Some(call) = rx.trace.as_deref_mut() {
            call.armed();
        }
        return UCS_OK;
    }
    rx.tl.shm.disarm();
    wake.disarm();
    UCS_ERR_BUSY
}

/// Whether copies of devices may have ended. Without a call of the driver: it wakes the worker.
fn has_due_copies(worker: &Worker) -> bool {
    worker.progress_flags.has_copies()
        && (worker.device_copies.lock().iter()).any(|running| running.copy.is_due())
}

/// Whether peers wait for a connection.
fn has_connects(worker: &Worker) -> bool {
    let flags = &worker.progress_flags;
    (IfaceKind::ALL.iter()).any(|&kind| flags.has_connects(kind))
}

/// Whether a pending queue waits for room that no event reports: only progress can send it.
fn is_stuck(worker: &Worker) -> bool {
    let pending = &worker.peer_lists.pending;
    worker.progress_flags.backlog() != 0
        && (pending.lock().iter()).any(|peer| !tx::is_watched(peer.get()))
}

/// Whether a descriptor is ready. Then the next progress call polls the interfaces.
fn pending(worker: &Worker, wake: &Wakeup) -> bool {
    let pending = wake.pending();
    if pending {
        if let Some(x) = worker.cm.lock().as_deref_mut() {
            x.set_urgent();
        }
        for &kind in IfaceKind::ALL {
            worker.progress_flags.raise(kind);
        }
    }
    pending
}

/// Sleeps until an event, unless there is something to do.
pub fn wait(worker: &Worker, wake: &Wakeup) -> ucs_status_t {
    match arm(worker, wake) {
        UCS_OK => {
            wake.wait();
            UCS_OK
        }
        UCS_ERR_BUSY => UCS_OK,
        status => status,
    }
}
