//! Receive path of the Tofu interconnect: notices of frames in this worker's rings, and completions of its operations.

mod close;
mod error;

use super::rx_dispatch;
use crate::ctypes::*;
use crate::engine::peer::Peer;
use crate::engine::request::{PeerRef, Request};
use crate::engine::worker::{Rx, Worker};
use crate::proto::tx::completion;
use crate::proto::{failure, flush, tofu_listen, tofu_wireup};
use crate::sys::log;
use crate::tl::Lane;
use crate::tl::Message;
use crate::tl::Token;
use crate::tl::tofu::op_queue::{CREDITS, Completion, OpTag, QueueEvent};
use crate::tl::tofu::rx_ring::RxRing;
use crate::tl::tofu::utofu::NO_NOTICE;
use crate::tl::tofu::worker::{RegionKind, TofuWorker};
use crate::wire::packet_hdr::{BYE, HEAD, PacketHdr};
pub use close::close;
use error::{fail_mrq, on_failure};
use std::ptr::NonNull;

/// Notices taken per call.
const BATCH: u32 = 16;
/// Frames taken per call from a ring without notices.
const SOME: u32 = 8;

/// Polls and handles events: returns their number. `short` gets each message first; true: it has handled it.
#[inline(never)]
pub fn progress(
    worker: &Worker,
    rx: &mut Rx,
    short: impl Fn(&Worker, Message) -> bool + Copy,
) -> u32 {
    let Some(rings) = rx.tofu.as_deref_mut() else {
        return 0;
    };
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
        on_event(worker, rings, event, short);
    }
    if !rings.iface.rails.is_empty() {
        count += look_at_rails(worker, rings, short);
    }
    // A callback has forked, and this is the child: the VCQs belong to its parent.
    if rings.mrq_failed() && worker.progress_flags.is_inherited() {
        return count;
    }
    if rings.iface.has_unfinished() {
        count += go_on_with_all(rings);
    }
    if !rings.counted().is_empty() {
        count += look_at_counts(worker, rings, short);
    }
    if worker.progress_flags.take_connect_tofu() {
        tofu_wireup::start(worker, rings);
    }
    count
}

/// Continues records that are not fully posted, and flush requests that could not be posted. Returns how many are done.
#[cold]
#[inline(never)]
fn go_on_with_all(rings: &mut TofuWorker<PeerRef>) -> u32 {
    let conns = rings.iface.take_unfinished().into_iter();
    conns.map(|conn| go_on(rings, conn)).sum()
}

/// Continues the record and the flush request of one connection. Returns 1 if both are done.
fn go_on(rings: &mut TofuWorker<PeerRef>, number: u32) -> u32 {
    let Some(peer) = rings.conn(number).map(|conn| conn.peer.get()) else {
        return 0;
    };
    let has_gone = match peer.tx.lock().lane.as_mut() {
        Some(Lane::Tofu(sender)) => sender.go_on(),
        _ => true,
    };
    if !has_gone {
        rings.iface.leave_unfinished(number);
    }
    end_flushes(peer);
    has_gone.into()
}

/// Polls the rails and handles their events.
#[inline(never)]
fn look_at_rails(
    worker: &Worker,
    rings: &mut TofuWorker<PeerRef>,
    short: impl Fn(&Worker, Message) -> bool + Copy,
) -> u32 {
    let mut count = 0;
    while count < BATCH && !rings.mrq_failed() {
        let Some(event) = rings.iface.poll_rails() else {
            break;
        };
        count += 1;
        on_event(worker, rings, event, short);
    }
    count
}

/// A peer has written at, or before, this steering address.
#[inline(always)]
pub fn arrived(
    worker: &Worker,
    rings: &mut TofuWorker<PeerRef>,
    stadd: u64,
    short: impl Fn(&Worker, Message) -> bool + Copy,
) {
    match rings.place(stadd) {
        Some(RegionKind::Ring(number)) => {
            take(worker, rings, number, u32::MAX, RxRing::note, short);
        }
        Some(RegionKind::TicketSlot(slot)) => {
            // A peer that connects again has counted its last frames before the ring request.
            look_at_counts(worker, rings, short);
            tofu_listen::on_ring_request(worker, rings, slot);
        }
        Some(RegionKind::CtrlWord(conn)) => tofu_wireup::on_grant(worker, rings, conn),
        None => log::diag!("a notice for an unregistered address is dropped: {stadd:#x}"),
    }
}

/// Handles a result of `utofu_poll_mrq` and its notice, the worker's `notice`: returns the number of events.
#[inline(never)]
pub fn on_flush_reply(
    worker: &Worker,
    rings: &mut TofuWorker<PeerRef>,
    code: i32,
    short: impl Fn(&Worker, Message) -> bool + Copy,
) -> u32 {
    let event = rings.iface.queue.lock().event(code, &rings.notice);
    rings.notice.notice_type = NO_NOTICE;
    let count = u32::from(event.is_some());
    if let Some(event) = event {
        on_event(worker, rings, event, short);
    }
    count
}

fn on_event(
    worker: &Worker,
    rings: &mut TofuWorker<PeerRef>,
    event: QueueEvent,
    short: impl Fn(&Worker, Message) -> bool + Copy,
) {
    match event {
        QueueEvent::Arrived(stadd) => arrived(worker, rings, stadd, short),
        QueueEvent::Ended { owner, value } => on_end(worker, rings, owner, value),
        QueueEvent::Completed {
            conn,
            request,
            well,
            ..
        } => on_read(rings, conn, request, well),
        QueueEvent::ZcopyDone { request, well, .. } => on_done(request, well),
        QueueEvent::Failed { source, code } => {
            // The peer may have counted frames before it failed.
            look_at_counts(worker, rings, short);
            on_failure(rings, source, code);
        }
        QueueEvent::MrqFailed { code } => fail_mrq(worker, rings, code),
    }
}

/// A read, atomic operation or write by a rail has completed.
fn on_read(rings: &mut TofuWorker<PeerRef>, conn: u32, request: Token, well: bool) {
    let conn = rings.conn(conn).filter(|conn| conn.flow.read_done());
    let watched = conn.map(|conn| conn.peer.get());
    on_done(request, well);
    if let Some(peer) = watched {
        end_flushes(peer);
    }
}

/// Completes the flushes of a peer that have nothing left to wait for.
fn end_flushes(peer: &Peer) {
    let next = || match peer.tx.lock().lane.as_mut() {
        Some(Lane::Tofu(sender)) => sender.next_flushed(),
        _ => None,
    };
    while let Some(owner) = next() {
        // SAFETY: the request waited for this flush, and is in no list any more.
        unsafe { flush::marker_sent(Request::by_token(owner)) };
    }
}

/// The TNI has completed an operation of a request.
fn on_done(request: Token, well: bool) {
    if request.is_none() {
        return;
    }
    // SAFETY: the queue has just reported that the request waited for the operation.
    unsafe {
        if well {
            completion::on_read(request)
        } else {
            completion::on_failed(request)
        }
    }
}

fn on_end(worker: &Worker, rings: &mut TofuWorker<PeerRef>, owner: Completion, value: u64) {
    match owner {
        Completion::Ticket(conn) => tofu_wireup::on_ticket(worker, rings, conn, value),
        Completion::Flush(conn) => {
            if let Some(conn) = rings.conn(conn) {
                conn.flow.complete();
                end_flushes(conn.peer.get());
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
fn look_at_counts(
    worker: &Worker,
    rings: &mut TofuWorker<PeerRef>,
    short: impl Fn(&Worker, Message) -> bool + Copy,
) -> u32 {
    let mut count = 0;
    for i in 0..rings.counted().len() {
        let number = rings.counted()[i];
        count += take(worker, rings, number, SOME, RxRing::scan, short);
    }
    count
}

/// Handles up to `most` frames of a ring, whose count of arrived frames is updated first: returns their number.
#[inline(always)]
fn take(
    worker: &Worker,
    rings: &mut TofuWorker<PeerRef>,
    number: u32,
    most: u32,
    note: impl Fn(&mut RxRing),
    short: impl Fn(&Worker, Message) -> bool,
) -> u32 {
    let Some(incoming) = rings.incoming(number).map(NonNull::from) else {
        return 0;
    };
    let mut count = 0;
    // SAFETY: incoming rings are boxed, and dropped only when the clock ticks, not while this reference lives.
    let incoming = unsafe { &mut *incoming.as_ptr() };
    let peer = incoming.peer.get();
    note(&mut incoming.ring);
    while count < most && !incoming.ended {
        let (head, bytes) = match incoming.ring.peek() {
            Ok(Some(frame)) => frame,
            Ok(None) => break,
            Err(_) => {
                incoming.ended = true;
                failure::fail_corrupt(peer, "a malformed frame");
                return count + 1;
            }
        };
        count += 1;
        let len = HEAD + bytes.len();
        match incoming.assembly.whole(head, bytes) {
            Some(m) if short(worker, m) => peer.stats().received.add(bytes.len()),
            _ => {
                let assembled = incoming.assembly.take(head, bytes);
                incoming.ended = deliver(worker, peer, head, assembled.map_err(|_| ()));
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
fn schedule_credit(rings: &mut TofuWorker<PeerRef>, number: u32) {
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
fn send_credit(rings: &mut TofuWorker<PeerRef>, number: u32) {
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

/// Handles a frame that `short` has not handled. True: no more frames are read.
#[inline(never)]
fn deliver(worker: &Worker, peer: &Peer, head: PacketHdr, m: Result<Option<Message>, ()>) -> bool {
    if head.kind == BYE {
        log::debug!("worker {:#x} has ended its connection", peer.uid);
        peer.fail(UCS_ERR_CONNECTION_RESET);
        return true;
    }
    let what = match m {
        Ok(None) => return false,
        Ok(Some(m)) => {
            peer.stats().received.add(m.len);
            // SAFETY: the record is in the ring, or in the reassembly memory until the next frame.
            match unsafe { rx_dispatch::message(worker, peer, &m) } {
                Ok(()) => return false,
                Err(_) => "an invalid message",
            }
        }
        Err(()) => "a malformed message",
    };
    failure::fail_corrupt(peer, what);
    true
}
