//! Receive path of the Tofu interconnect: notices of frames in this worker's rings, and completions of its operations.

mod disconnect;
mod errors;
pub mod short;

use super::op_queue::{CREDITS, Completion, OpTag, QueueEvent};
use super::peer_lane::with_sender;
use super::rx_ring::RxRing;
use super::utofu::NO_NOTICE;
use super::worker::{RegionKind, TofuWorker};
use super::{connect, listen};
use crate::ctypes::*;
use crate::sys::log;
use crate::tl::reassembly::CorruptPacket;
use crate::tl::sink::Sink;
use crate::tl::{Message, Token};
use crate::wire::packet_hdr::{BYE, HEAD, PacketHdr};
pub use disconnect::close;
use errors::{fail_mrq, on_failure};
use std::ptr::NonNull;

/// Notices taken per call.
pub const BATCH: u32 = 16;
/// Frames taken per call from a ring without notices.
const SOME: u32 = 8;

/// Polls and handles events: returns their number.
#[inline(always)]
pub fn progress<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S) -> u32 {
    let mut count = 0;
    while count < BATCH && !rings.mrq_failed() {
        let event = rings.iface.queue.lock().poll();
        let Some(event) = event else {
            if let Some(number) = rings.schedule_ack(None) {
                send_credit(rings, number);
            }
            break;
        };
        count += 1;
        on_event(rings, sink, event);
    }
    if !rings.iface.rails.is_empty() {
        count += look_at_rails(rings, sink);
    }
    // A callback has forked, and this is the child: the VCQs belong to its parent.
    if rings.mrq_failed() && sink.is_inherited() {
        return count;
    }
    if rings.iface.has_unfinished() {
        count += go_on_with_all(rings, sink);
    }
    if !rings.counted().is_empty() {
        count += look_at_counts(rings, sink);
    }
    count
}

/// Continues records that are not fully posted, and flush requests that could not be posted. Returns how many are done.
#[cold]
#[inline(never)]
fn go_on_with_all<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S) -> u32 {
    let conns = rings.iface.take_unfinished().into_iter();
    conns.map(|conn| go_on(rings, sink, conn)).sum()
}

/// Continues the record and the flush request of one connection. Returns 1 if both are done.
fn go_on<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S, number: u32) -> u32 {
    let Some(peer) = rings.conn(number).map(|conn| conn.peer) else {
        return 0;
    };
    let has_gone = with_sender(sink, peer, |sender| sender.go_on()).unwrap_or(true);
    if !has_gone {
        rings.iface.leave_unfinished(number);
    }
    end_flushes(sink, peer);
    has_gone.into()
}

/// Polls the rails and handles their events.
#[inline(never)]
fn look_at_rails<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S) -> u32 {
    let mut count = 0;
    while count < BATCH && !rings.mrq_failed() {
        let Some(event) = rings.iface.poll_rails() else {
            break;
        };
        count += 1;
        on_event(rings, sink, event);
    }
    count
}

/// A peer has written at, or before, this steering address.
#[inline(always)]
pub fn arrived<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S, stadd: u64) {
    match rings.place(stadd) {
        Some(RegionKind::Ring(number)) => {
            take(rings, sink, number, u32::MAX, RxRing::note);
        }
        Some(RegionKind::TicketSlot(slot)) => {
            // A peer that connects again has counted its last frames before the ring request.
            look_at_counts(rings, sink);
            listen::on_ring_request(rings, sink, slot);
        }
        Some(RegionKind::CtrlWord(conn)) => connect::on_grant(rings, sink, conn),
        None => log::diag!("a notice for an unregistered address is dropped: {stadd:#x}"),
    }
}

/// Handles a result of `utofu_poll_mrq` and its notice, the worker's `notice`: returns the number of events.
#[inline(never)]
pub fn on_flush_reply<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S, code: i32) -> u32 {
    let event = rings.iface.queue.lock().event(code, &rings.notice);
    rings.notice.notice_type = NO_NOTICE;
    let count = u32::from(event.is_some());
    if let Some(event) = event {
        on_event(rings, sink, event);
    }
    count
}

fn on_event<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S, event: QueueEvent) {
    match event {
        QueueEvent::Arrived(stadd) => arrived(rings, sink, stadd),
        QueueEvent::Ended { owner, value } => on_end(rings, sink, owner, value),
        QueueEvent::Completed {
            conn,
            request,
            well,
            ..
        } => on_read(rings, sink, conn, request, well),
        QueueEvent::ZcopyDone { request, well, .. } => on_done(sink, request, well),
        QueueEvent::Failed { source, code } => {
            // The peer may have counted frames before it failed.
            look_at_counts(rings, sink);
            on_failure(rings, sink, source, code);
        }
        QueueEvent::MrqFailed { code } => fail_mrq(rings, sink, code),
    }
}

/// A read, atomic operation or write by a rail has completed.
fn on_read<S: Sink>(
    rings: &mut TofuWorker<S::Peer>,
    sink: S,
    conn: u32,
    request: Token,
    well: bool,
) {
    let conn = rings.conn(conn).filter(|conn| conn.flow.read_done());
    let watched = conn.map(|conn| conn.peer);
    on_done(sink, request, well);
    if let Some(peer) = watched {
        end_flushes(sink, peer);
    }
}

/// Completes the flushes of a peer that have nothing left to wait for. Those of a peer that has failed end with its
/// status: the reply behind an operation that has failed is no success.
fn end_flushes<S: Sink>(sink: S, peer: S::Peer) {
    if sink.has_failed(peer) {
        return;
    }
    let next = || with_sender(sink, peer, |sender| sender.next_flushed()).flatten();
    while let Some(token) = next() {
        // SAFETY: the sender has just reported that the flush of this token waits for nothing more.
        unsafe { sink.flushed(token) };
    }
}

/// The TNI has completed an operation of a request.
fn on_done<S: Sink>(sink: S, request: Token, well: bool) {
    if request.is_none() {
        return;
    }
    // SAFETY: the queue has just reported that the request waited for the operation.
    unsafe { sink.completed(request, well) };
}

fn on_end<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S, owner: Completion, value: u64) {
    match owner {
        Completion::Ticket(conn) => connect::on_ticket(rings, sink, conn, value),
        Completion::Flush(conn) => {
            if let Some(conn) = rings.conn(conn) {
                conn.flow.complete();
                end_flushes(sink, conn.peer);
            }
        }
        // Reads and atomic operations are reported by `QueueEvent::Completed`; the worker's own operation is polled for
        // by its caller, which may have given up; disconnects are polled for by `is_disconnecting`.
        Completion::Reads(_)
        | Completion::Reply(_)
        | Completion::Changes(_)
        | Completion::Own
        | Completion::CloseNotice(_)
        | Completion::Probe(_) => {}
    }
}

/// Handles frames in the rings without notices: returns their number.
fn look_at_counts<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S) -> u32 {
    let mut count = 0;
    for i in 0..rings.counted().len() {
        let number = rings.counted()[i];
        count += take(rings, sink, number, SOME, RxRing::scan);
    }
    count
}

/// Handles up to `most` frames of a ring, whose count of arrived frames is updated first: returns their number.
#[inline(always)]
fn take<S: Sink>(
    rings: &mut TofuWorker<S::Peer>,
    sink: S,
    number: u32,
    most: u32,
    note: impl Fn(&mut RxRing),
) -> u32 {
    let Some(incoming) = rings.incoming(number).map(NonNull::from) else {
        return 0;
    };
    let mut count = 0;
    // SAFETY: incoming rings are boxed, and dropped only when the clock ticks, not while this reference lives.
    let incoming = unsafe { &mut *incoming.as_ptr() };
    let peer = incoming.peer;
    note(&mut incoming.ring);
    while count < most && !incoming.ended {
        let (head, bytes) = match incoming.ring.peek() {
            Ok(Some(frame)) => frame,
            Ok(None) => break,
            Err(_) => {
                incoming.ended = true;
                sink.malformed(peer, "a malformed frame");
                return count + 1;
            }
        };
        count += 1;
        let len = HEAD + bytes.len();
        match incoming.assembly.whole(head, bytes) {
            Some(m) if sink.deliver_short(peer, m) => {}
            _ => {
                let assembled = incoming.assembly.take(head, bytes);
                incoming.ended = !deliver(sink, (peer, incoming.uid), head, assembled);
                incoming.settle();
            }
        }
        incoming.ring.advance(len);
    }
    if incoming.ring.is_due() {
        schedule_credit(rings, number);
    }
    count
}

/// Schedules a credit to the writer of a ring. A reply to what has arrived is not to wait for this post: the credit is
/// put when nothing else has arrived, or at once when half of the ring was read.
#[inline(never)]
fn schedule_credit<P: Copy + Eq>(rings: &mut TofuWorker<P>, number: u32) {
    if let Some(before) = rings.schedule_ack(Some(number))
        && before != number
    {
        send_credit(rings, before);
    }
    let incoming = rings.incoming(number);
    if incoming.is_some_and(|incoming| incoming.ring.is_overdue()) {
        rings.schedule_ack(None);
        send_credit(rings, number);
    }
}

/// Puts a credit to the writer of a ring.
fn send_credit<P: Copy + Eq>(rings: &mut TofuWorker<P>, number: u32) {
    // In a forked child the VCQ belongs to the parent.
    if rings.mrq_failed() {
        return;
    }
    let Some(incoming) = rings.incoming(number) else {
        return;
    };
    let (word, to) = (incoming.ring.send_credit(), incoming.ctrl_word);
    // Without a completion: that the peer is gone is detected by sends to it.
    let tag = OpTag {
        conn: CREDITS + number,
        generation: 0,
    };
    let mut queue = rings.iface.queue.lock();
    if let Err(code) = queue.put_word(tag, word, to, None) {
        // The writer waits for the credit: it cannot use the connection any more.
        queue.fail(CREDITS + number, code);
    }
}

/// Handles a frame that the frequent path has not handled. False: no more frames of the peer are read.
#[inline(never)]
fn deliver<S: Sink>(
    sink: S,
    (peer, uid): (S::Peer, u64),
    head: PacketHdr,
    m: Result<Option<Message>, CorruptPacket>,
) -> bool {
    if head.kind == BYE {
        log::debug!("worker {uid:#x} has ended its connection");
        sink.lane_down(peer, UCS_ERR_CONNECTION_RESET);
        return false;
    }
    match m {
        Ok(None) => true,
        // SAFETY: the record is in the ring, or in the reassembly memory until the next frame.
        Ok(Some(m)) => unsafe { sink.deliver(peer, &m) },
        Err(CorruptPacket) => {
            sink.malformed(peer, "a malformed message");
            false
        }
    }
}
