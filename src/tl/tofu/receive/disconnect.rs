//! Closes the interface of a worker that is destroyed: disconnects, and waits for what is outstanding.

use super::errors::forget;
use super::{on_done, on_end, on_read};
use crate::sys::clock;
use crate::tl::interface::LINGER_MS;
use crate::tl::sink::Sink;
use crate::tl::tofu::op_queue::QueueEvent;
use crate::tl::tofu::peer_lane::{drop_lane, with_sender};
use crate::tl::tofu::sender::TofuSender;
use crate::tl::tofu::vcq::RemoteAddr;
use crate::tl::tofu::worker::TofuWorker;
use crate::wire::tofu_msg::{LEFT, LEFT_AT};

/// The peers of all connections: those with a sender, and others.
fn connected<P: Copy + Eq>(rings: &mut TofuWorker<P>) -> Vec<P> {
    rings.conns().map(|(_, conn)| conn.peer).collect()
}

fn drop_lanes<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S) {
    for peer in connected(rings) {
        drop_lane(sink, peer);
    }
}

/// Sends BYE on all connections.
pub(super) fn send_disconnect<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S) {
    with_senders(rings, sink, &mut |sender| {
        sender.send_disconnect();
        false
    });
}

/// Calls `act` with the sender to each peer that has not failed. True: it has returned true for any.
fn with_senders<S: Sink>(
    rings: &mut TofuWorker<S::Peer>,
    sink: S,
    act: &mut dyn FnMut(&mut TofuSender) -> bool,
) -> bool {
    let mut any = false;
    for peer in connected(rings) {
        if !sink.has_failed(peer) {
            any |= with_sender(sink, peer, &mut *act).unwrap_or(false);
        }
    }
    any
}

/// Rings of peers to which there is no lane: no frame can notify them that this worker closes.
pub(super) fn writers_alone<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S) -> Vec<u32> {
    let all = rings.all_incoming().filter(|(_, incoming)| {
        let peer = incoming.peer;
        !incoming.ended && !sink.has_failed(peer) && !sink.state(peer).has_lane
    });
    all.map(|(number, _)| number).collect()
}

/// Puts the disconnect word to as many of these writers as there is room for; the others remain in the list.
pub(super) fn post_disconnect<P: Copy + Eq>(rings: &mut TofuWorker<P>, writers: &mut Vec<u32>) {
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
pub fn close<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S) {
    let mut writers = writers_alone(rings, sink);
    let until = clock::coarse_ms() + LINGER_MS;
    let poll = |rings: &TofuWorker<S::Peer>| {
        let event = rings.iface.queue.lock().poll();
        event.or_else(|| rings.iface.poll_rails())
    };
    loop {
        post_disconnect(rings, &mut writers);
        let drains = with_senders(rings, sink, &mut |sender| {
            !(sender.send_disconnect() && sender.drain())
        });
        let disconnecting = !writers.is_empty() || rings.iface.queue.lock().is_disconnecting();
        if !(drains || disconnecting) || clock::coarse_ms() >= until {
            break;
        }
        while let Some(event) = poll(rings) {
            match event {
                QueueEvent::Ended { owner, value } => on_end(rings, sink, owner, value),
                // A peer that has closed first receives nothing any more.
                QueueEvent::Failed { source, .. } => forget(rings, sink, source),
                QueueEvent::MrqFailed { .. } => return drop_lanes(rings, sink),
                // The worker closes: arrivals are dropped.
                QueueEvent::Arrived(_) => {}
                QueueEvent::Completed {
                    conn,
                    request,
                    well,
                    ..
                } => on_read(rings, sink, conn, request, well),
                QueueEvent::ZcopyDone { request, well, .. } => on_done(sink, request, well),
            }
        }
        std::thread::yield_now();
    }
    drop_lanes(rings, sink);
}
