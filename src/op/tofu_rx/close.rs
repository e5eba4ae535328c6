//! Closes the interface of a worker that is destroyed: disconnects, and waits for what is outstanding.

use super::error::forget;
use super::{on_done, on_end, on_read};
use crate::ctypes::*;
use crate::engine::request::PeerRef;
use crate::engine::worker::Worker;
use crate::proto::tofu_close;
use crate::sys::clock;
use crate::tl::Lane;
use crate::tl::tofu::op_queue::QueueEvent;
use crate::tl::tofu::sender::TofuSender;
use crate::tl::tofu::vcq::RemoteAddr;
use crate::tl::tofu::worker::TofuWorker;
use crate::wire::tofu_msg::{LEFT, LEFT_AT};

/// Time that the destruction of a worker waits until its sends have arrived, milliseconds.
const LINGER_MS: u64 = 1000;

fn drop_lanes(worker: &Worker) {
    worker
        .all_peers()
        .iter()
        .for_each(|peer| tofu_close::drop_lane(peer));
}

/// Sends BYE on all connections.
pub(super) fn send_disconnect(worker: &Worker) {
    with_senders(worker, &mut |sender| {
        sender.send_disconnect();
        false
    });
}

/// Calls `act` with the sender to each peer that has not failed. True: it has returned true for any.
fn with_senders(worker: &Worker, act: &mut dyn FnMut(&mut TofuSender) -> bool) -> bool {
    let mut any = false;
    for peer in worker.all_peers() {
        if peer.status() == UCS_OK
            && let Some(Lane::Tofu(sender)) = peer.tx.lock().lane.as_mut()
        {
            any |= act(sender);
        }
    }
    any
}

/// Rings of peers to which there is no lane: no frame can notify them that this worker closes.
pub(super) fn writers_alone(rings: &mut TofuWorker<PeerRef>) -> Vec<u32> {
    let all = rings.all_incoming().filter(|(_, incoming)| {
        let peer = incoming.peer.get();
        !incoming.ended && peer.status() == UCS_OK && peer.tx.lock().lane.is_none()
    });
    all.map(|(number, _)| number).collect()
}

/// Puts the disconnect word to as many of these writers as there is room for; the others remain in the list.
pub(super) fn post_disconnect(rings: &mut TofuWorker<PeerRef>, writers: &mut Vec<u32>) {
    while let Some(&number) = writers.last() {
        let to = rings.incoming(number).map(|incoming| {
            let stadd = incoming.ctrl_word.stadd + LEFT_AT as u64;
            let word = LEFT | u64::from(incoming.proof);
            (
                word,
                RemoteAddr {
                    stadd,
                    ..incoming.ctrl_word
                },
            )
        });
        if let Some((word, to)) = to
            && let Ok(false) = rings.iface.queue.lock().post_disconnect(number, word, to)
        {
            return;
        }
        writers.pop();
    }
}

/// Closes all connections, and waits until what was sent to peers that are alive has arrived.
pub fn close(worker: &Worker, rings: &mut TofuWorker<PeerRef>) {
    let mut writers = writers_alone(rings);
    let until = clock::coarse_ms() + LINGER_MS;
    let poll = |rings: &TofuWorker<PeerRef>| {
        let event = rings.iface.queue.lock().poll();
        event.or_else(|| rings.iface.poll_rails())
    };
    loop {
        post_disconnect(rings, &mut writers);
        let drains = with_senders(worker, &mut |sender| {
            !(sender.send_disconnect() && sender.drain())
        });
        let disconnecting = !writers.is_empty() || rings.iface.queue.lock().is_disconnecting();
        if !(drains || disconnecting) || clock::coarse_ms() >= until {
            break;
        }
        while let Some(event) = poll(rings) {
            match event {
                QueueEvent::Ended { owner, value } => on_end(worker, rings, owner, value),
                // A peer that has closed first receives nothing any more.
                QueueEvent::Failed { source, .. } => forget(worker, rings, source),
                QueueEvent::MrqFailed { .. } => return drop_lanes(worker),
                // The worker closes: arrivals are dropped.
                QueueEvent::Arrived(_) => {}
                QueueEvent::Completed {
                    conn,
                    request,
                    well,
                    ..
                } => on_read(rings, conn, request, well),
                QueueEvent::ZcopyDone { request, well, .. } => on_done(request, well),
            }
        }
        std::thread::yield_now();
    }
    drop_lanes(worker);
}
