//! The calls of a worker's progress and end into the InfiniBand transport.

use super::sink::{self, ShortMessages, WorkerSink};
use crate::engine::request::PeerRef;
use crate::engine::worker::{Rx, Worker};
use crate::tl::ib::worker::IbWorker;
use crate::tl::ib::{close, connect, connect_rails, receive, upkeep};

/// Progresses connections and messages. Called only while there are connections, or some are to be made. `short` gets
/// each message first.
#[inline(always)]
pub fn progress(worker: &Worker, rx: &mut Rx, short: impl ShortMessages) -> u32 {
    let Some(ports) = rx.ib.as_deref_mut() else {
        worker.progress_flags.take_connect_ib();
        worker.progress_flags.clear_ib();
        return 0;
    };
    let count = receive::poll(ports, WorkerSink::new(worker, short));
    if worker.progress_flags.take_connect_ib() {
        connect_peers(worker, ports);
    }
    count
}

/// Begins the connections that requests wait for, and handles rail events.
#[cold]
#[inline(never)]
fn connect_peers(worker: &Worker, ports: &mut IbWorker<PeerRef>) {
    let wanted = worker.peer_lists.connect_ib.lock().take();
    let peers = wanted.into_iter().map(|(peer, ())| peer);
    connect::start(ports, sink::cold(worker), peers);
    let events = worker.peer_lists.rails.lock().take();
    connect_rails::start(ports, sink::cold(worker), events.into_iter());
    raise_flags(worker, ports);
}

/// Has progress called for what `ports` has to do.
pub fn raise_flags(worker: &Worker, ports: &IbWorker<PeerRef>) {
    if !ports.is_quiet() {
        worker.progress_flags.raise_ib();
    }
    if !ports.oob_requests.is_empty() {
        worker.progress_flags.raise_network();
    }
}

/// Does what is due at `now`, coarse milliseconds; clears the progress flag when no connection needs polling. Called
/// when the clock has advanced. Returns the number of events.
#[cold]
pub fn tick(worker: &Worker, ports: &mut IbWorker<PeerRef>, now: u64) -> u32 {
    let sink = sink::cold(worker);
    ports.stop_timer();
    worker.ctx.tl.ib.trim();
    upkeep::tick(ports, sink, now);
    let count = receive::poll(ports, sink);
    raise_flags(worker, ports);
    if ports.is_quiet() && worker.progress_flags.has_ib() {
        let wanted = worker.peer_lists.connect_ib.lock();
        if wanted.is_empty() {
            worker.progress_flags.clear_ib();
        }
    }
    count
}

/// Closes all connections of a worker that is destroyed.
pub fn close(worker: &Worker, ports: &mut IbWorker<PeerRef>) {
    close::close(ports, sink::cold(worker));
}
