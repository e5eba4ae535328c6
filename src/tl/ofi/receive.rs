//! Completions: packets that have arrived, and sends that have ended.

use super::bindings::*;
use super::buffers::BufferRef;
use super::conn::{OfiConn, conn_down, with_sender};
use super::ended_context::EndedContext;
use super::endpoint::{BATCH, Completed, Entries};
use super::iface::OfiIface;
use super::multi_recv::MultiRecvRef;
use super::op_context::{ContextKind, OpContext};
use super::op_failure::{end_broken, log_failure, on_failed, status_of};
use super::packet::*;
use super::reorder::SeqArrival;
use super::sender::OfiSender;
use super::short::record_in_turn;
use super::{connect, loss, multi_recv, rma_completion};
use super::{failover_ack, failover_request};
use crate::ctypes::*;
use crate::sys::log;
use crate::tl::Message;
use crate::tl::sink::Sink;
use std::mem::MaybeUninit;

/// Most batches of completions that a progress call handles that does other work, too.
const BATCHES: usize = 8;

/// What a completion queue returns that has no entry now.
const EMPTY: isize = -(FI_EAGAIN as isize);

/// Sends what waits for room, and handles a batch of completions, or several where other work waits. Returns the number
/// of events. The worker is not inherited.
#[inline(always)]
pub fn poll<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S) -> u32 {
    if iface.is_busy {
        return poll_all(iface, sink.cold());
    }
    let mut entries = [const { MaybeUninit::uninit() }; BATCH];
    match iface.ep.read(&mut entries) {
        Some(read) if read > 0 => take_all(iface, sink, &entries, read as usize),
        Some(EMPTY) => 0,
        Some(read) => on_no_entry(iface, sink.cold(), read),
        None => poll_all(iface, sink.cold()),
    }
}

/// [`poll`] where more is to be done than to read completions.
#[cold]
fn poll_all<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S) -> u32 {
    let count = poll_and_end(iface, sink);
    iface.is_busy = iface.has_work();
    count
}

/// [`poll`], and ends connections that have failed.
fn poll_and_end<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S) -> u32 {
    send_waiting(iface, sink);
    if iface.is_dead {
        return end_broken(iface, sink) + rma_completion::end_failed(iface, sink);
    }
    let mut count = 0;
    let mut entries = [const { MaybeUninit::uninit() }; BATCH];
    for _ in 0..BATCHES {
        match iface.ep.poll(&mut entries) {
            Completed::Some(n) => count += take_all(iface, sink, &entries, n),
            Completed::Failed(failed) => on_failed(iface, sink, &failed),
            Completed::Dead(error) => {
                iface.die(error);
                count += end_broken(iface, sink);
                return count + rma_completion::end_failed(iface, sink);
            }
            // Everything that has arrived was handled.
            Completed::Nothing => {
                iface.was_empty = true;
                count += end_broken(iface, sink);
                failover_ack::send_acks(iface);
                return count + rma_completion::end_failed(iface, sink);
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
fn on_no_entry<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S, read: isize) -> u32 {
    match iface.ep.completed(read) {
        Completed::Failed(failed) => on_failed(iface, sink, &failed),
        Completed::Dead(error) => iface.die(error),
        Completed::Nothing | Completed::Some(_) => return 0,
    }
    poll_all(iface, sink)
}

/// Sends what waits for room, and fails the connections to which packets could not be sent.
fn send_waiting<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S) {
    iface.flush_control();
    for link in iface.ep.take_blocked() {
        if let Some(peer) = iface.of_link(&link).and_then(|conn| conn.peer) {
            with_sender(sink, peer, OfiSender::flush);
        }
    }
    for (link, error) in iface.ep.take_failed() {
        log_failure(iface, link.conn, error, "");
        iface.fail_conn(&link, status_of(error));
    }
}

/// Handles the first `n` entries, which were written. Returns the number of events.
#[inline(always)]
fn take_all<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S, entries: &Entries, n: usize) -> u32 {
    let mut count = 0;
    // SAFETY: no queue returns more than it has room for.
    for entry in unsafe { entries.get_unchecked(..n) } {
        // SAFETY: the first `n` entries were written.
        let entry = unsafe { entry.assume_init_ref() };
        // SAFETY: the context is that of an operation of the endpoint.
        let (events, ends) = match unsafe { OpContext::kind(entry.op_context) } {
            Some(ContextKind::Receive) => take_packet(iface, sink, entry),
            Some(ContextKind::MultiRecv) => take_packet_of_several(iface, sink, entry),
            Some(ContextKind::Send | ContextKind::Rma) => take_ended(iface, sink, entry),
            None => (0, false),
        };
        count += events;
        // A callback has forked: the rest is the parent's.
        if ends {
            break;
        }
    }
    count
}

/// Handles the packet of a buffer for one. Returns the number of events, and whether the worker is inherited now.
#[inline(always)]
fn take_packet<S: Sink>(
    iface: &mut OfiIface<S::Peer>,
    sink: S,
    entry: &fi_cq_data_entry,
) -> (u32, bool) {
    let Some(buffer) = BufferRef::of_context(entry.op_context) else {
        return (0, false);
    };
    // SAFETY: the receive is complete, and the buffer is posted again behind the last use of the bytes.
    let count = on_arrival(iface, sink, unsafe { buffer.packet(entry.len) });
    if sink.is_inherited() {
        return (count, true);
    }
    iface.ep.post_receive(buffer);
    (count, false)
}

/// Handles the completion of a buffer for several packets. Returns the number of events, and whether the worker is
/// inherited now.
#[inline(always)]
fn take_packet_of_several<S: Sink>(
    iface: &mut OfiIface<S::Peer>,
    sink: S,
    entry: &fi_cq_data_entry,
) -> (u32, bool) {
    let Some(buffer) = MultiRecvRef::of_context(entry.op_context) else {
        return (0, false);
    };
    let mut count = 0;
    if multi_recv::has_packet(entry) {
        // SAFETY: the buffer is posted again behind the last use of the bytes.
        count = on_arrival(iface, sink, unsafe { buffer.packet(entry) });
        if sink.is_inherited() {
            return (count, true);
        }
    }
    if multi_recv::is_released(entry.flags) {
        iface.ep.post_multi_recv(buffer);
    }
    (count, false)
}

/// Handles the end of a send, or of an operation on memory. Returns the number of events, and whether the worker is
/// inherited now.
#[inline(never)]
fn take_ended<S: Sink>(
    iface: &mut OfiIface<S::Peer>,
    sink: S,
    entry: &fi_cq_data_entry,
) -> (u32, bool) {
    // SAFETY: the context is that of an operation of the endpoint.
    match unsafe { EndedContext::of(entry.op_context) } {
        Some(EndedContext::Sent(buffer)) => {
            // SAFETY: the queue reports each operation once, by its buffer.
            unsafe { iface.ep.sent(buffer) };
            (1, false)
        }
        Some(EndedContext::Rma(op)) => {
            // SAFETY: the queue reports each operation once.
            let count = unsafe { rma_completion::on_ended(iface, sink.cold(), op, None) };
            (count, sink.is_inherited())
        }
        Some(EndedContext::Received(_) | EndedContext::MultiRecv(_)) | None => (0, false),
    }
}

/// Handles a packet that has arrived. Returns the number of events.
#[inline(always)]
fn on_arrival<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S, packet: &[u8]) -> u32 {
    iface.failed_receives = 0;
    if record_in_turn(iface, sink, packet) {
        1
    } else {
        on_packet(iface, sink.cold(), packet)
    }
}

/// Handles a packet. Returns the number of events.
#[inline(never)]
fn on_packet<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S, packet: &[u8]) -> u32 {
    let Some(hdr) = PacketHdr::decode(packet) else {
        log::diag!("a packet by libfabric is dropped: it has no header");
        loss::on_dropped(iface);
        return 0;
    };
    let body = &packet[PacketHdr::SIZE..];
    if hdr.kind == HELLO {
        connect::on_hello(iface, sink, body);
        return 1;
    }
    if hdr.kind == MOVE {
        failover_request::on_move(iface, body);
        return 1;
    }
    let own = hdr.grant();
    let Some(conn) = iface.granted(own) else {
        if iface.was_granted(own) {
            failover_request::on_former(iface, &hdr);
            log::trace!("a packet by libfabric is dropped: it is of a former connection");
        } else {
            log::diag!("a packet by libfabric is dropped: it is of no connection");
            loss::on_dropped(iface);
        }
        return 0;
    };
    // The peer sends it again by the connection that has taken the place of this one.
    if conn.failover.has_moved() {
        failover_request::on_former(iface, &hdr);
        return 0;
    }
    match hdr.kind {
        ACCEPT => connect::on_accept(iface, sink, &hdr, body),
        BYE_ACK => conn.has_ended = true,
        FLUSHED => conn.link.rma.set_answered(hdr.seq),
        FLUSH => {
            let (to, link) = (conn.remote, conn.link.clone());
            if let Some(to) = to {
                iface.send_control(&link, bare(to, FLUSHED, hdr.seq));
            }
        }
        RESET => on_end(iface, sink, own),
        PROBE => {
            if !conn.order.has_all_before(hdr.seq) {
                loss::on_gap(iface, own, hdr.seq);
            }
            failover_ack::on_probe(iface, own);
            return 0;
        }
        CHECK => loss::on_check(iface, sink, own, body),
        SENT => loss::on_sent(iface, own, &hdr, body),
        ACK => failover_ack::on_ack(iface, sink, own, hdr.seq),
        MOVED => failover_request::on_moved(iface, sink, own, body),
        KEPT => {
            let count = in_order(iface, sink, own, &hdr, packet);
            // A callback may have forked.
            if !sink.is_inherited() {
                failover_ack::on_kept(iface, own);
            }
            return count;
        }
        _ => return in_order(iface, sink, own, &hdr, packet),
    }
    1
}

/// Handles a packet that has a number, and those behind it that have arrived before.
fn in_order<S: Sink>(
    iface: &mut OfiIface<S::Peer>,
    sink: S,
    own: Grant,
    hdr: &PacketHdr,
    packet: &[u8],
) -> u32 {
    let Some(conn) = iface.granted(own) else {
        return 0;
    };
    match conn.order.arrive(hdr.seq, packet) {
        SeqArrival::Early => {
            loss::on_gap(iface, own, hdr.seq);
            return 1;
        }
        SeqArrival::Repeated => {
            loss::on_repeated(iface, own);
            return 1;
        }
        SeqArrival::TooFar => {
            malformed(conn, sink);
            return 1;
        }
        SeqArrival::Now => {}
    }
    let mut count = 1;
    numbered(iface, sink, own, hdr.kind, &packet[PacketHdr::SIZE..]);
    while !sink.is_inherited()
        && let Some(conn) = iface.granted(own)
        && let Some(packet) = conn.order.pop()
    {
        count += 1;
        if let Some(hdr) = PacketHdr::decode(&packet) {
            numbered(iface, sink, own, hdr.kind, &packet[PacketHdr::SIZE..]);
        }
    }
    count
}

/// Handles the next packet in order.
fn numbered<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S, own: Grant, kind: u32, body: &[u8]) {
    let Some(conn) = iface.granted(own) else {
        return;
    };
    let Some(peer) = conn.peer.filter(|&peer| !sink.has_failed(peer)) else {
        return;
    };
    if kind == BYE {
        return on_end(iface, sink, own);
    }
    debug_assert!(kind == RECORD || kind == KEPT);
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
fn on_end<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S, own: Grant) {
    let Some(conn) = iface.granted(own) else {
        return;
    };
    log::debug!("worker {:#x} has ended its connection", conn.uid);
    conn.has_ended = true;
    // While the connection moves the sender has the link of another one.
    let attempt = conn
        .failover
        .session()
        .filter(|session| session.attempt.is_some());
    let moves_lane = attempt.map(|session| session.is_lane);
    let (peer, link, role) = (conn.peer.take(), conn.link.clone(), conn.role);
    if let Some(to) = conn.remote {
        iface.send_control(&link, bare(to, BYE_ACK, 0));
    }
    match (peer, moves_lane) {
        (Some(peer), Some(true)) => sink.lane_down(peer, UCS_ERR_CONNECTION_RESET),
        (Some(peer), None) => conn_down(role, sink, peer, &link, UCS_ERR_CONNECTION_RESET),
        (Some(_), Some(false)) | (None, _) => {}
    }
}

#[cold]
fn malformed<S: Sink>(conn: &OfiConn<S::Peer>, sink: S) {
    if let Some(peer) = conn.peer {
        sink.malformed(peer, "a malformed packet");
    }
}
