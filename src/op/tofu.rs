//! The calls of a worker's progress and end into the Tofu transport.

use super::sink::{self, ShortMessages, WorkerSink};
use crate::engine::request::PeerRef;
use crate::engine::worker::{Rx, Worker};
use crate::tl::tofu::worker::TofuWorker;
use crate::tl::tofu::{connect, receive};

/// Polls and handles events, and begins connections: returns the number of events. `short` gets each message first.
#[inline(never)]
pub fn progress(worker: &Worker, rx: &mut Rx, short: impl ShortMessages) -> u32 {
    let Some(tofu) = rx.tofu.as_deref_mut() else {
        return 0;
    };
    let sink = WorkerSink::new(worker, short);
    let count = receive::progress(tofu, sink);
    if worker.progress_flags.take_connect_tofu() {
        connect_peers(worker, tofu);
    }
    count
}

/// Begins connections to the peers that requests wait for.
#[cold]
#[inline(never)]
fn connect_peers(worker: &Worker, tofu: &mut TofuWorker<PeerRef>) {
    // A callback has forked, and this is the child: it connects to no peer.
    if worker.progress_flags.is_inherited() {
        return;
    }
    let peers = worker.peer_lists.connect_tofu.lock().take();
    let peers = peers.into_iter().map(|(peer, ())| peer);
    connect::start(tofu, sink::cold(worker), peers);
}

/// Does what is due at `now`, coarse milliseconds.
pub fn tick(worker: &Worker, tofu: &mut TofuWorker<PeerRef>, now: u64) {
    connect::tick(tofu, sink::cold(worker), now);
}

/// Closes all connections of a worker that is destroyed.
pub fn close(worker: &Worker, tofu: &mut TofuWorker<PeerRef>) {
    receive::close(tofu, sink::cold(worker));
}
