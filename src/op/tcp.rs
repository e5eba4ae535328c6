//! The calls of a worker's progress and end into the TCP transport, and what it polls with it: listeners, and pending
//! requests.

use super::{ib, listener, sink};
use crate::engine::request::PeerRef;
use crate::engine::worker::{Rx, Worker};
use crate::proto::tx;
use crate::tl::ib::oob::IbOob;
use crate::tl::sink::Sink;

/// Progresses connections, messages and pending queues. Called only while there are connections, or some are to be
/// made.
#[inline(never)]
pub fn progress(worker: &Worker, rx: &mut Rx) -> u32 {
    let mut count = poll(worker, rx);
    // Sends requests that callbacks have queued in this call.
    if worker.progress_flags.backlog() != 0 {
        count += tx::progress_backlog(worker);
    }
    if let Some(sockets) = rx.tl.tcp.as_deref() {
        sockets.end_poll();
    }
    count
}

fn poll(worker: &Worker, rx: &mut Rx) -> u32 {
    let busy = listener::is_busy(worker);
    let count = if busy { listener::progress(worker) } else { 0 };
    let has_rings = !rx.shm_rings.is_empty();
    let Some(sockets) = rx.tl.tcp.as_deref_mut() else {
        worker.progress_flags.set_networked(busy);
        return count;
    };
    if !sockets.is_due(has_rings) {
        return count;
    }
    let wanted = worker.peer_lists.connect_tcp.lock().take();
    sockets.start(
        sink::cold(worker),
        wanted.into_iter().map(|(peer, ())| peer),
    );
    let ports = rx.ib.as_deref_mut();
    let mut oob = IbOob {
        sink: sink::cold(worker),
        ports,
    };
    if oob.is_due() {
        oob.start(sockets);
    }
    let polled = sockets.progress(sink::cold(worker), &mut oob, has_rings);
    if polled.has_read_events {
        set_networked(worker, sockets.is_quiet(), &oob);
    }
    count + polled.count
}

/// Polls the sockets at a clock tick.
pub fn tick(worker: &Worker, rx: &mut Rx) -> u32 {
    let Some(sockets) = rx.tl.tcp.as_deref_mut() else {
        return 0;
    };
    let ports = rx.ib.as_deref_mut();
    let mut oob = IbOob {
        sink: sink::cold(worker),
        ports,
    };
    let polled = sockets.tick(sink::cold(worker), &mut oob);
    if polled.has_read_events {
        set_networked(worker, sockets.is_quiet(), &oob);
    }
    polled.count
}

/// Notes whether the network is to be polled further. `is_quiet`: there are no sockets but the listening one.
fn set_networked(worker: &Worker, is_quiet: bool, oob: &IbOob<impl Sink<Peer = PeerRef>>) {
    // Relaxed: a thread that queues a connection sets the flag again, under the lock of `connect_tcp`.
    let connecting = worker.peer_lists.connect_tcp.lock();
    let is_active =
        oob.is_due() || !connecting.is_empty() || !is_quiet || listener::is_busy(worker);
    worker.progress_flags.set_networked(is_active);
    drop(connecting);
    // A peer may have begun a connection by a message on a socket.
    if let Some(ports) = oob.ports.as_deref() {
        ib::raise_flags(worker, ports);
    }
}
