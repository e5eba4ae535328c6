//! Completions: packets that have arrived, and sends that have ended.

use super::bindings::*;
use super::ended_context::EndedContext;
use super::endpoint::{BATCH, Completed, FailedOp};
use super::fabric;
use super::packet::*;
use super::reorder::SeqArrival;
use super::sender::OfiSender;
use super::worker::{OfiConn, OfiWorker, with_sender};
use super::{connect, loss, rma_completion, upkeep};
use crate::ctypes::*;
use crate::sys::log;
use crate::tl::Message;
use crate::tl::sink::Sink;
use std::ffi::c_int;

/// Most batches of completions that one progress call handles.
const BATCHES: usize = 8;

/// Receives that may fail one after the other before the provider counts as dead.
const MAX_FAILED_RECEIVES: u32 = 1000;

/// Sends what waits for room, and handles completions. Returns the number of events.
pub fn poll<S: Sink>(worker: &mut OfiWorker<S::Peer>, sink: S) -> u32 {
    if sink.is_inherited() {
        return 0;
    }
    worker.flush_control();
    for link in worker.iface.take_blocked() {
        if let Some(peer) = worker.of_link(&link).and_then(|conn| conn.peer) {
            with_sender(sink, peer, OfiSender::flush);
        }
    }
    for (link, error) in worker.iface.take_failed() {
        log_failure(worker, link.conn, error, "");
        worker.fail_conn(&link, status_of(error));
    }
    if worker.is_dead {
        return end_broken(worker, sink);
    }
    let mut count = 0;
    let mut entries = [fi_cq_msg_entry::default(); BATCH];
    for _ in 0..BATCHES {
        match worker.iface.poll(&mut entries) {
            Completed::Nothing => {
                count += end_broken(worker, sink) + rma_completion::end_failed(worker, sink);
                break;
            }
            Completed::Some(n) => count += take(worker, sink, &entries[..n]),
            Completed::Failed(failed) => on_failed(worker, sink, &failed),
            Completed::Dead(error) => {
                worker.die(error);
                count += end_broken(worker, sink);
                break;
            }
        }
        // A callback has forked, and this is the child: the endpoint is the parent's.
        if sink.is_inherited() {
            break;
        }
    }
    count
}

/// Handles completions without errors. Returns the number of events.
fn take<S: Sink>(worker: &mut OfiWorker<S::Peer>, sink: S, entries: &[fi_cq_msg_entry]) -> u32 {
    let mut count = 0;
    for entry in entries {
        // SAFETY: the context is that of an operation of the endpoint.
        let buffer = match unsafe { EndedContext::of(entry.op_context) } {
            Some(EndedContext::Packet(buffer)) => buffer,
            Some(EndedContext::Rma(op)) => {
                // SAFETY: the queue reports each operation once.
                count += unsafe { rma_completion::on_ended(worker, sink, op, None) };
                continue;
            }
            None => continue,
        };
        // SAFETY: the queue reports each operation once, by its buffer.
        if unsafe { worker.iface.sent(buffer) }.is_some() {
            count += 1;
            continue;
        }
        // A callback of the packet before has forked: the rest is the parent's.
        if sink.is_inherited() {
            return count;
        }
        // SAFETY: the receive is complete, and the buffer is posted again behind the last use of the bytes.
        count += on_packet(worker, sink, unsafe { buffer.packet(entry.len) });
        worker.failed_receives = 0;
        if !sink.is_inherited() {
            worker.iface.post_receive(buffer);
        }
    }
    count
}

/// Handles a packet. Returns the number of events.
fn on_packet<S: Sink>(worker: &mut OfiWorker<S::Peer>, sink: S, packet: &[u8]) -> u32 {
    let Some(hdr) = PacketHdr::decode(packet) else {
        log::diag!("a packet by libfabric is dropped: it has no header");
        return 0;
    };
    let body = &packet[PacketHdr::SIZE..];
    if hdr.kind == HELLO {
        connect::on_hello(worker, sink, body);
        return 1;
    }
    let own = Grant {
        conn: hdr.conn,
        key: hdr.key,
    };
    let Some(conn) = worker.granted(own) else {
        log::trace!("a packet by libfabric is dropped: it is of a former connection");
        return 0;
    };
    match hdr.kind {
        ACCEPT => connect::on_accept(worker, sink, &hdr, body),
        BYE_ACK => conn.has_ended = true,
        FLUSHED => conn.link.rma.set_answered(hdr.seq),
        FLUSH => {
            let (to, link) = (conn.remote, conn.link.clone());
            if let Some(to) = to {
                worker.send_control(&link, bare(to, FLUSHED, hdr.seq));
            }
        }
        RESET => on_end(worker, sink, own),
        PROBE => return 0,
        CHECK | SENT => loss::on_packet(worker, own, &hdr),
        _ => return in_order(worker, sink, own, &hdr, packet),
    }
    1
}

/// Handles a packet that has a number, and those behind it that have arrived before.
fn in_order<S: Sink>(
    worker: &mut OfiWorker<S::Peer>,
    sink: S,
    own: Grant,
    hdr: &PacketHdr,
    packet: &[u8],
) -> u32 {
    let Some(conn) = worker.granted(own) else {
        return 0;
    };
    match conn.order.arrive(hdr.seq, packet) {
        SeqArrival::Later => return 1,
        SeqArrival::TooFar => {
            malformed(conn, sink);
            return 1;
        }
        SeqArrival::Now => {}
    }
    let mut count = 1;
    numbered(worker, sink, own, hdr.kind, &packet[PacketHdr::SIZE..]);
    while !sink.is_inherited()
        && let Some(conn) = worker.granted(own)
        && let Some(packet) = conn.order.pop()
    {
        count += 1;
        if let Some(hdr) = PacketHdr::decode(&packet) {
            numbered(worker, sink, own, hdr.kind, &packet[PacketHdr::SIZE..]);
        }
    }
    count
}

/// Handles the next packet in order.
fn numbered<S: Sink>(worker: &mut OfiWorker<S::Peer>, sink: S, own: Grant, kind: u32, body: &[u8]) {
    let Some(conn) = worker.granted(own) else {
        return;
    };
    let Some(peer) = conn.peer.filter(|&peer| !sink.has_failed(peer)) else {
        return;
    };
    if kind == BYE {
        return on_end(worker, sink, own);
    }
    debug_assert_eq!(kind, RECORD);
    match Message::in_packet(body) {
        // A failure was reported by the layer above: the connection ends with the next look at it.
        // SAFETY: the record is in the packet, which is readable during the call.
        Some(m) => unsafe {
            if !sink.deliver_short(peer, m) {
                sink.deliver(peer, &m);
            }
        },
        None => malformed(conn, sink),
    }
}

/// The peer has ended the connection.
#[cold]
fn on_end<S: Sink>(worker: &mut OfiWorker<S::Peer>, sink: S, own: Grant) {
    let Some(conn) = worker.granted(own) else {
        return;
    };
    log::debug!("worker {:#x} has ended its connection", conn.uid);
    conn.has_ended = true;
    let (peer, link) = (conn.peer.take(), conn.link.clone());
    if let Some(to) = conn.remote {
        worker.send_control(&link, bare(to, BYE_ACK, 0));
    }
    if let Some(peer) = peer {
        sink.lane_down(peer, UCS_ERR_CONNECTION_RESET);
    }
}

#[cold]
fn malformed<S: Sink>(conn: &OfiConn<S::Peer>, sink: S) {
    if let Some(peer) = conn.peer {
        sink.malformed(peer, "a malformed packet");
    }
}

/// Handles an operation that has ended with an error.
#[cold]
fn on_failed<S: Sink>(worker: &mut OfiWorker<S::Peer>, sink: S, failed: &FailedOp) {
    let FailedOp { error, detail, .. } = failed;
    // SAFETY: the context is that of an operation of the endpoint.
    let buffer = match unsafe { EndedContext::of(failed.context) } {
        Some(EndedContext::Packet(buffer)) => buffer,
        Some(EndedContext::Rma(op)) => {
            // SAFETY: the queue reports each operation once.
            unsafe { rma_completion::on_ended(worker, sink, op, Some(failed)) };
            return;
        }
        None => {
            log::debug!("libfabric reports {}: {detail}", fabric::error(*error));
            // A message without a completion was lost: a probe shows of which connection.
            return upkeep::probe_all(worker);
        }
    };
    // SAFETY: the queue reports each operation once, by its buffer.
    match unsafe { worker.iface.sent(buffer) } {
        Some(link) => {
            log_failure(worker, link.conn, *error, detail);
            worker.fail_conn(&link, status_of(*error));
        }
        None => {
            let text = fabric::error(*error);
            log::diag!("a packet by libfabric is dropped: {text}: {detail}");
            worker.failed_receives += 1;
            if worker.failed_receives > MAX_FAILED_RECEIVES {
                return worker.die(*error);
            }
            // No worker sends a message that is longer than any packet.
            if !matches!(u32::try_from(*error), Ok(FI_ETRUNC | FI_EMSGSIZE)) {
                loss::suspect(worker);
            }
            worker.iface.post_receive(buffer);
        }
    }
}

/// Logs that an operation on a connection, by its number, has failed.
pub(super) fn log_failure<P>(worker: &OfiWorker<P>, conn: u32, error: c_int, detail: &str) {
    let uid = worker.conns.get(conn as usize).map_or(0, |conn| conn.uid);
    let error = fabric::error(error);
    log::diag!("libfabric cannot send to worker {uid:#x}: {error} ({detail})");
}

/// The status of a peer to which a send has failed.
pub(super) fn status_of(error: c_int) -> ucs_status_t {
    match u32::try_from(error).unwrap_or(0) {
        FI_ETIMEDOUT => UCS_ERR_ENDPOINT_TIMEOUT,
        FI_ECONNREFUSED | FI_EHOSTUNREACH | FI_ENETUNREACH | FI_EHOSTDOWN | FI_ENETDOWN => {
            UCS_ERR_UNREACHABLE
        }
        _ => UCS_ERR_CONNECTION_RESET,
    }
}

/// Ends the connections that have failed: everything that has arrived was handled. Returns their number.
fn end_broken<S: Sink>(worker: &mut OfiWorker<S::Peer>, sink: S) -> u32 {
    if worker.broken.is_empty() {
        return 0;
    }
    let mut count = 0;
    for (link, status) in std::mem::take(&mut worker.broken) {
        let Some(conn) = worker.of_link(&link) else {
            continue;
        };
        let (peer, last) = (conn.peer.take(), connect::last_words(conn));
        if let Some((link, packet)) = last.filter(|_| !worker.is_dead) {
            worker.send_control(&link, packet);
        }
        if let Some(peer) = peer {
            sink.lane_down(peer, status);
            count += 1;
        }
    }
    count
}
