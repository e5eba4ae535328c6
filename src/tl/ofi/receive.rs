//! Completions: packets that have arrived, and sends that have ended.

use super::bindings::*;
use super::choice::IfaceRole;
use super::conn::{OfiConn, conn_down, with_sender};
use super::ended_context::EndedContext;
use super::endpoint::{BATCH, Completed, Entries, FailedOp};
use super::fabric;
use super::hello::FailedConnect;
use super::packet::*;
use super::reorder::SeqArrival;
use super::sender::OfiSender;
use super::short::record_in_turn;
use super::worker::OfiWorker;
use super::{connect, loss, multi_recv, rma_completion, upkeep};
use crate::ctypes::*;
use crate::sys::log;
use crate::tl::Message;
use crate::tl::sink::Sink;
use std::ffi::c_int;
use std::mem::MaybeUninit;

/// Most batches of completions that one progress call handles.
const BATCHES: usize = 8;

/// Receives that may fail one after the other before the provider counts as dead.
const MAX_FAILED_RECEIVES: u32 = 1000;

/// What a completion queue returns that has no entry now.
const EMPTY: isize = -(FI_EAGAIN as isize);

/// Sends what waits for room, and handles completions. Returns the number of events. The worker is not inherited.
#[inline(always)]
pub fn poll<S: Sink>(worker: &mut OfiWorker<S::Peer>, sink: S) -> u32 {
    if worker.is_busy {
        return poll_all(worker, sink.cold());
    }
    let mut count = 0;
    let mut entries = [const { MaybeUninit::uninit() }; BATCH];
    for _ in 0..BATCHES {
        let Some(read) = worker.iface.read(&mut entries) else {
            return count + poll_all(worker, sink.cold());
        };
        if read <= 0 {
            if read != EMPTY {
                count += on_no_entry(worker, sink.cold(), read);
            }
            break;
        }
        count += take_all(worker, sink, &entries, read as usize);
        // The queue had no more. In a child that a callback has forked the endpoint is the parent's.
        if (read as usize) < BATCH || sink.is_inherited() {
            break;
        }
    }
    count
}

/// [`poll`] where more is to be done than to read completions.
#[cold]
fn poll_all<S: Sink>(worker: &mut OfiWorker<S::Peer>, sink: S) -> u32 {
    let count = poll_and_end(worker, sink);
    worker.is_busy = worker.has_work();
    count
}

/// [`poll`], and ends connections that have failed.
fn poll_and_end<S: Sink>(worker: &mut OfiWorker<S::Peer>, sink: S) -> u32 {
    send_waiting(worker, sink);
    if worker.is_dead {
        return end_broken(worker, sink);
    }
    let mut count = 0;
    let mut entries = [const { MaybeUninit::uninit() }; BATCH];
    for _ in 0..BATCHES {
        match worker.iface.poll(&mut entries) {
            Completed::Some(n) => count += take_all(worker, sink, &entries, n),
            Completed::Failed(failed) => on_failed(worker, sink, &failed),
            Completed::Dead(error) => {
                worker.die(error);
                return count + end_broken(worker, sink);
            }
            // Everything that has arrived was handled.
            Completed::Nothing => {
                worker.was_empty = true;
                count += end_broken(worker, sink);
                return count + rma_completion::end_failed(worker, sink);
            }
        }
        if sink.is_inherited() {
            break;
        }
    }
    count
}

/// Handles what a read of the queue says that has returned no entry. Returns the number of events.
#[cold]
fn on_no_entry<S: Sink>(worker: &mut OfiWorker<S::Peer>, sink: S, read: isize) -> u32 {
    match worker.iface.completed(read) {
        Completed::Failed(failed) => on_failed(worker, sink, &failed),
        Completed::Dead(error) => worker.die(error),
        Completed::Nothing | Completed::Some(_) => return 0,
    }
    poll_all(worker, sink)
}

/// Sends what waits for room, and fails the connections to which packets could not be sent.
fn send_waiting<S: Sink>(worker: &mut OfiWorker<S::Peer>, sink: S) {
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
}

/// Handles the first `n` entries, which were written. Returns the number of events.
#[inline(always)]
fn take_all<S: Sink>(worker: &mut OfiWorker<S::Peer>, sink: S, entries: &Entries, n: usize) -> u32 {
    let mut count = 0;
    // SAFETY: no queue returns more than it has room for.
    for entry in unsafe { entries.get_unchecked(..n) } {
        // SAFETY: the first `n` entries were written.
        count += take(worker, sink, unsafe { entry.assume_init_ref() });
        // A callback has forked: the rest is the parent's.
        if sink.is_inherited() {
            break;
        }
    }
    count
}

/// Handles a completion without an error. Returns the number of events.
#[inline(always)]
fn take<S: Sink>(worker: &mut OfiWorker<S::Peer>, sink: S, entry: &fi_cq_data_entry) -> u32 {
    // SAFETY: the context is that of an operation of the endpoint.
    let ended = unsafe { EndedContext::of(entry.op_context) };
    let packet = match ended {
        // SAFETY: the receive is complete, and the buffer is posted again behind the last use of the bytes.
        Some(EndedContext::Received(buffer)) => unsafe { buffer.packet(entry.len) },
        Some(EndedContext::MultiRecv(buffer)) => {
            if !multi_recv::has_packet(entry) {
                worker.iface.post_multi_recv(buffer);
                return 0;
            }
            // SAFETY: the buffer is posted again behind the last use of the bytes.
            unsafe { buffer.packet(entry) }
        }
        Some(EndedContext::Sent(buffer)) => {
            // SAFETY: the queue reports each operation once, by its buffer.
            unsafe { worker.iface.sent(buffer) };
            return 1;
        }
        // SAFETY: the queue reports each operation once.
        Some(EndedContext::Rma(op)) => unsafe {
            return rma_completion::on_ended(worker, sink.cold(), op, None);
        },
        None => return 0,
    };
    let count = if record_in_turn(worker, sink, packet) {
        1
    } else {
        on_packet(worker, sink.cold(), packet)
    };
    worker.failed_receives = 0;
    if sink.is_inherited() {
        return count;
    }
    match ended {
        Some(EndedContext::Received(buffer)) => worker.iface.post_receive(buffer),
        Some(EndedContext::MultiRecv(buffer)) if multi_recv::is_released(entry.flags) => {
            worker.iface.post_multi_recv(buffer);
        }
        _ => {}
    }
    count
}

/// Handles a packet. Returns the number of events.
#[inline(never)]
fn on_packet<S: Sink>(worker: &mut OfiWorker<S::Peer>, sink: S, packet: &[u8]) -> u32 {
    let Some(hdr) = PacketHdr::decode(packet) else {
        log::diag!("a packet by libfabric is dropped: it has no header");
        loss::on_dropped(worker);
        return 0;
    };
    let body = &packet[PacketHdr::SIZE..];
    if hdr.kind == HELLO {
        connect::on_hello(worker, sink, body);
        return 1;
    }
    let own = hdr.grant();
    let Some(conn) = worker.granted(own) else {
        if worker.was_granted(own) {
            log::trace!("a packet by libfabric is dropped: it is of a former connection");
        } else {
            log::diag!("a packet by libfabric is dropped: it is of no connection");
            loss::on_dropped(worker);
        }
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
        PROBE => {
            if !conn.order.has_all_before(hdr.seq) {
                loss::on_gap(worker, own, hdr.seq);
            }
            return 0;
        }
        CHECK => loss::on_check(worker, sink, own, body),
        SENT => loss::on_sent(worker, own, &hdr, body),
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
        SeqArrival::Early => {
            loss::on_gap(worker, own, hdr.seq);
            return 1;
        }
        SeqArrival::Repeated => {
            loss::on_repeated(worker, own);
            return 1;
        }
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
            sink.deliver(peer, &m);
        },
        None => malformed(conn, sink),
    }
}

/// The peer has ended the connection.
#[cold]
fn on_end<S: Sink>(worker: &mut OfiWorker<S::Peer>, sink: S, own: Grant) {
    let role = worker.role;
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
        conn_down(role, sink, peer, &link, UCS_ERR_CONNECTION_RESET);
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
        Some(EndedContext::Received(buffer) | EndedContext::Sent(buffer)) => buffer,
        Some(EndedContext::Rma(op)) => {
            // SAFETY: the queue reports each operation once.
            unsafe { rma_completion::on_ended(worker, sink, op, Some(failed)) };
            return;
        }
        Some(EndedContext::MultiRecv(buffer)) => {
            if on_failed_receive(worker, failed) && multi_recv::is_released(failed.flags) {
                worker.iface.post_multi_recv(buffer);
            }
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
            if on_failed_receive(worker, failed) {
                worker.iface.post_receive(buffer);
            }
        }
    }
}

/// Handles a receive that has failed. Returns whether there are to be others.
fn on_failed_receive<P: Copy + Eq>(worker: &mut OfiWorker<P>, failed: &FailedOp) -> bool {
    let FailedOp { error, detail, .. } = failed;
    let text = fabric::error(*error);
    log::diag!("a packet by libfabric is dropped: {text}: {detail}");
    worker.failed_receives += 1;
    if worker.failed_receives > MAX_FAILED_RECEIVES {
        worker.die(*error);
        return false;
    }
    // No worker sends a message that is longer than any packet.
    if !matches!(u32::try_from(*error), Ok(FI_ETRUNC | FI_EMSGSIZE)) {
        loss::on_failed_receive(worker);
    }
    true
}

/// Logs that an operation on a connection, by its number, has failed.
pub(super) fn log_failure<P>(worker: &mut OfiWorker<P>, conn: u32, error: c_int, detail: &str) {
    let error = fabric::error(error);
    let mut uid = 0;
    if let Some(conn) = worker.conns.get_mut(conn as usize) {
        uid = conn.uid;
        if let Some(request) = &mut conn.request {
            request.obstacle = error.to_string();
        }
    }
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
    let (role, mut count) = (worker.role, 0);
    for (link, status) in std::mem::take(&mut worker.broken) {
        let Some(conn) = worker.of_link(&link) else {
            continue;
        };
        let (peer, last) = (conn.peer.take(), connect::last_words(conn));
        let (uid, request) = (conn.uid, conn.request.take());
        if let Some((link, packet)) = last.filter(|_| !worker.is_dead) {
            worker.send_control(&link, packet);
        }
        match (peer, request) {
            (None, _) => continue,
            (Some(peer), request) if request.is_none() || role == IfaceRole::Rail => {
                conn_down(role, sink, peer, &link, status);
            }
            (Some(_), None) => {}
            (Some(peer), Some(request)) => worker.unanswered.push(FailedConnect {
                peer,
                uid,
                status,
                obstacle: request.obstacle,
            }),
        }
        count += 1;
    }
    count
}
