//! What comes over the Tofu interconnect: notices of frames in our rings, and of what was waited for.

use super::rx_dispatch;
use crate::ctypes::*;
use crate::engine::peer::Peer;
use crate::engine::tofu_worker::{RegionKind, TofuWorker};
use crate::engine::worker::{Rx, Worker};
use crate::proto::tx::rma_ib;
use crate::proto::{failure, flush, tofu_close, tofu_listen, tofu_wireup, tx};
use crate::sys::{clock, log};
use crate::tl::Lane;
use crate::tl::shm::ring::RingMessage;
use crate::tl::tofu::op_queue::{CREDITS, Completion, ErrSource, OpTag, QueueEvent};
use crate::tl::tofu::rx_ring::RxRing;
use crate::tl::tofu::sender::TofuSender;
use crate::tl::tofu::utofu::{MrqNotice, code_name};
use crate::tl::tofu::vcq::RemoteAddr;
use crate::wire::ib_packet::{BYE, HEAD, PacketHdr};
use crate::wire::tofu_msg::{LEFT, LEFT_AT};
use std::ffi::c_void;
use std::ptr::NonNull;

/// Notices taken in one call.
const BATCH: u32 = 16;
/// Frames taken of one ring that has no notices, in one call.
const SOME: u32 = 8;
/// How long a worker that goes waits until what it has sent has arrived, milliseconds.
const LINGER_MS: u64 = 1000;

/// Takes what has come: how much. `short` sees each message first, and says whether it has handled it.
#[inline(never)]
pub fn progress(
    worker: &Worker,
    rx: &mut Rx,
    short: impl Fn(&Worker, RingMessage) -> bool + Copy,
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
    // A callback has forked, and this is the child: the queues are its parent's.
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

/// Goes on with the records that connections are in the middle of, and with questions that could not be asked. How many
/// have gone.
#[cold]
#[inline(never)]
fn go_on_with_all(rings: &mut TofuWorker) -> u32 {
    let links = rings.iface.take_unfinished().into_iter();
    links.map(|link| go_on(rings, link)).sum()
}

/// The same with that of one connection.
fn go_on(rings: &mut TofuWorker, number: u32) -> u32 {
    let Some(peer) = rings.conn(number).map(|link| link.peer) else {
        return 0;
    };
    // SAFETY: peers that lists of progress name are not freed.
    let has_gone = match unsafe { &*peer }.tx.lock().lane.as_mut() {
        Some(Lane::Tofu(sender)) => sender.go_on(),
        _ => true,
    };
    if !has_gone {
        rings.iface.leave_unfinished(number);
    }
    end_flushes(peer);
    has_gone.into()
}

/// Takes what rails have to tell.
#[inline(never)]
fn look_at_rails(
    worker: &Worker,
    rings: &mut TofuWorker,
    short: impl Fn(&Worker, RingMessage) -> bool + Copy,
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

/// Something has been written at, or before, this address of ours.
#[inline(always)]
pub fn arrived(
    worker: &Worker,
    rings: &mut TofuWorker,
    stadd: u64,
    short: impl Fn(&Worker, RingMessage) -> bool + Copy,
) {
    match rings.place(stadd) {
        Some(RegionKind::Ring(number)) => {
            take(worker, rings, number, u32::MAX, RxRing::note, short);
        }
        Some(RegionKind::Hall(place)) => {
            // Who comes anew has said before it what it had to say.
            look_at_counts(worker, rings, short);
            tofu_listen::on_greeting(worker, rings, place);
        }
        Some(RegionKind::Cell(link)) => tofu_wireup::on_grant(worker, rings, link),
        None => log::diag!("a notice is of nothing that is there: address {stadd:#x}"),
    }
}

/// Handles what an answer to a poll, with this notice, tells: how much.
#[inline(never)]
pub fn on_flush_reply(
    worker: &Worker,
    rings: &mut TofuWorker,
    code: i32,
    notice: &MrqNotice,
    short: impl Fn(&Worker, RingMessage) -> bool + Copy,
) -> u32 {
    let event = rings.iface.queue.lock().event(code, notice);
    let count = u32::from(event.is_some());
    if let Some(event) = event {
        on_event(worker, rings, event, short);
    }
    count
}

fn on_event(
    worker: &Worker,
    rings: &mut TofuWorker,
    event: QueueEvent,
    short: impl Fn(&Worker, RingMessage) -> bool + Copy,
) {
    match event {
        QueueEvent::Arrived(stadd) => arrived(worker, rings, stadd, short),
        QueueEvent::Ended { owner, value } => on_end(worker, rings, owner, value),
        QueueEvent::Came {
            link, whose, well, ..
        } => on_read(rings, link, whose, well),
        QueueEvent::Left { whose, well, .. } => on_done(whose, well),
        QueueEvent::Failed { whose, code } => {
            // What the peer had counted before it went.
            look_at_counts(worker, rings, short);
            on_failure(rings, whose, code);
        }
        QueueEvent::Deaf { code } => fail_mrq(worker, rings, code),
    }
}

/// What was read has come.
fn on_read(rings: &mut TofuWorker, link: u32, whose: *mut c_void, well: bool) {
    let link = rings.conn(link).filter(|link| link.flow.read_done());
    let watched = link.map(|link| link.peer);
    on_done(whose, well);
    if let Some(peer) = watched {
        end_flushes(peer);
    }
}

/// Ends the flushes of a peer of whom there is nothing to be waited for any more.
fn end_flushes(peer: *const Peer) {
    // SAFETY: peers that lists of progress name are not freed.
    let peer = unsafe { &*peer };
    let next = || match peer.tx.lock().lane.as_mut() {
        Some(Lane::Tofu(sender)) => sender.next_flushed(),
        _ => None,
    };
    while let Some(owner) = next() {
        // SAFETY: it waited, and is in no list any more.
        unsafe { flush::marker_sent(owner.cast()) };
    }
}

/// The adapter has done something for a request.
fn on_done(whose: *mut c_void, well: bool) {
    if whose.is_null() {
        return;
    }
    // SAFETY: the queue has just said that it waited.
    unsafe {
        match well {
            true => rma_ib::on_read(whose),
            false => rma_ib::on_failed(whose),
        }
    }
}

fn on_end(worker: &Worker, rings: &mut TofuWorker, owner: Completion, value: u64) {
    match owner {
        Completion::Ticket(link) => tofu_wireup::on_ticket(worker, rings, link, value),
        Completion::Flush(link) => {
            if let Some(link) = rings.conn(link) {
                link.flow.complete();
                end_flushes(link.peer);
            }
        }
        // Told as what has come; of the worker's own one that nobody waits for any more; who waits for it looks at the
        // queue.
        Completion::Reads(_)
        | Completion::Reply(_)
        | Completion::Changes(_)
        | Completion::Own
        | Completion::Farewell(_)
        | Completion::Probe(_) => {}
    }
}

/// Something has failed.
#[cold]
fn on_failure(rings: &mut TofuWorker, whose: ErrSource, code: i32) {
    match whose {
        ErrSource::Link(number) => tofu_wireup::fail(rings, number, code),
        ErrSource::Credit(number) => tofu_wireup::fail_writer(rings, number, code),
        ErrSource::Nobody => log::error!(
            "something of a worker's own has failed: {} ({code})",
            code_name(code)
        ),
        ErrSource::Coloured(0, there) => {
            for number in writers(rings, there) {
                tofu_wireup::fail_writer(rings, number, code);
            }
        }
        ErrSource::Coloured(colour, there) => {
            for number in overdue_writers(rings, colour, there) {
                tofu_wireup::fail(rings, number, code);
            }
        }
    }
}

/// The ring whose writer was told something that did not arrive: the one whose cell is there.
fn writers(rings: &mut TofuWorker, there: RemoteAddr) -> Vec<u32> {
    let all = rings.all_incoming();
    let told = all.filter(|(_, incoming)| {
        let cell = incoming.cell;
        cell.vcq == there.vcq && there.stadd.wrapping_sub(cell.stadd) <= size_of::<u64>() as u64
    });
    told.map(|(number, _)| number).collect()
}

/// The links of which something has failed: those of its colour, and of several the one to that queue, whose number
/// uTofu does not promise to be the peer's. None: those that it can have been of are no more.
fn overdue_writers(rings: &mut TofuWorker, colour: u8, there: RemoteAddr) -> Vec<u32> {
    let mut found: Vec<(u32, bool)> = Vec::new();
    for (number, link) in rings.links().filter(|(_, link)| link.mark.colour == colour) {
        // Of a connection whose peer is lost, and whose sender is gone, what was posted before can fail still.
        // SAFETY: peers that lists of progress name are not freed.
        let peer = unsafe { &*link.peer };
        let is_there = tofu_wireup::locator(peer).is_some_and(|l| l.vcq == there.vcq);
        found.push((number, is_there));
    }
    let told = found.iter().any(|&(_, is_there)| is_there);
    let found = found.into_iter().filter(|&(_, is_there)| is_there || !told);
    found.map(|(number, _)| number).collect()
}

/// The queue of notices is of no use any more: nothing can be heard of anybody.
#[cold]
fn fail_mrq(worker: &Worker, rings: &mut TofuWorker, code: i32) {
    if !rings.fail_mrq() {
        return;
    }
    log::error!(
        "the message receive queue fails: {} ({code}); if it was too short for the notices of all peers, have \
         them send fewer \
         (UCX_TOFU_RX_QUEUE_LEN)",
        code_name(code)
    );
    // What is sent still goes.
    send_disconnect(worker);
    let mut told = writers_alone(rings);
    post_disconnect(rings, &mut told);
    for peer in worker.all_peers() {
        if peer.has_rings() {
            tx::fail_peer(&peer, UCS_ERR_IO_ERROR);
        }
    }
}

/// Rings without notices.
fn look_at_counts(
    worker: &Worker,
    rings: &mut TofuWorker,
    short: impl Fn(&Worker, RingMessage) -> bool + Copy,
) -> u32 {
    let mut count = 0;
    for i in 0..rings.counted().len() {
        let number = rings.counted()[i];
        count += take(worker, rings, number, SOME, RxRing::scan, short);
    }
    count
}

/// Takes up to so many frames of a ring, which `hear` tells of more that have come: how many.
#[inline(always)]
fn take(
    worker: &Worker,
    rings: &mut TofuWorker,
    number: u32,
    most: u32,
    hear: impl Fn(&mut RxRing),
    short: impl Fn(&Worker, RingMessage) -> bool,
) -> u32 {
    let Some(incoming) = rings.incoming(number).map(NonNull::from) else {
        return 0;
    };
    let mut count = 0;
    // SAFETY: rings stay in their places until the clock has moved on, and none is taken out while this is used.
    let incoming = unsafe { &mut *incoming.as_ptr() };
    // SAFETY: peers that lists of progress name are not freed.
    let peer = unsafe { &*incoming.peer };
    hear(&mut incoming.ring);
    while count < most && !incoming.ended {
        let (head, bytes) = match incoming.ring.peek() {
            Ok(Some(frame)) => frame,
            Ok(None) => break,
            Err(_) => {
                incoming.ended = true;
                failure::fail_corrupt(peer, "what is no frame");
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

/// The writer of a ring is to be told how far we are. That takes a post, which whoever waits for the answer to what has
/// come need not wait for: there is time for it when nothing more has come, but not for long.
#[inline(never)]
fn schedule_credit(rings: &mut TofuWorker, number: u32) {
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

/// Tells the writer of a ring how far we are.
fn send_credit(rings: &mut TofuWorker, number: u32) {
    // In a forked child the queue is the parent's.
    if rings.mrq_failed() {
        return;
    }
    let Some(incoming) = rings.incoming(number) else {
        return;
    };
    let (word, to) = (incoming.ring.send_credit(), incoming.cell);
    // To a peer that is gone: whoever sends to it hears of that.
    let told = OpTag {
        link: CREDITS + number,
        colour: 0,
    };
    let mut queue = rings.iface.queue.lock();
    if let Err(code) = queue.put_word(told, word, to, None) {
        // He waits for it: the connection is of no use to him any more.
        queue.fail(CREDITS + number, code);
    }
}

/// A frame that is not all of a frequent message. True: nothing more comes.
#[inline(never)]
fn deliver(
    worker: &Worker,
    peer: &Peer,
    head: PacketHdr,
    m: Result<Option<RingMessage>, ()>,
) -> bool {
    if head.kind == BYE {
        log::debug!("worker {:#x} has ended its connection", peer.uid);
        tx::fail_peer(peer, UCS_ERR_CONNECTION_RESET);
        return true;
    }
    let what = match m {
        Ok(None) => return false,
        Ok(Some(m)) => {
            peer.stats().received.add(m.len);
            // SAFETY: the record is in the ring, or in the assembly until the next frame.
            match unsafe { rx_dispatch::message(worker, peer, &m) } {
                Ok(()) => return false,
                Err(_) => "a message that makes no sense",
            }
        }
        Err(()) => "what is no message",
    };
    failure::fail_corrupt(peer, what);
    true
}

/// Nobody waits for what was sent to the peer of whom something has failed.
fn forget(worker: &Worker, rings: &mut TofuWorker, whose: ErrSource) {
    let numbers = match whose {
        ErrSource::Link(number) => vec![number],
        ErrSource::Credit(_) | ErrSource::Nobody | ErrSource::Coloured(0, _) => Vec::new(),
        ErrSource::Coloured(colour, there) => overdue_writers(rings, colour, there),
    };
    for number in numbers {
        let peer = rings.conn(number).map(|link| link.peer);
        for p in worker.all_peers() {
            if peer == Some(&raw const *p) {
                tofu_close::drop_lane(&p);
            }
        }
    }
}

fn drop_lanes(worker: &Worker) {
    worker
        .all_peers()
        .iter()
        .for_each(|peer| tofu_close::drop_lane(peer));
}

/// Says by all connections that nothing more comes there.
fn send_disconnect(worker: &Worker) {
    with_senders(worker, &mut |sender| {
        sender.send_disconnect();
        false
    });
}

/// Does something with the sender to each peer that is well. Whether it was true of any.
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

/// The rings of peers to whom nothing was ever sent: no frame can tell them that we go.
fn writers_alone(rings: &mut TofuWorker) -> Vec<u32> {
    let all = rings.all_incoming().filter(|(_, incoming)| {
        // SAFETY: peers that lists of progress name are not freed.
        let peer = unsafe { &*incoming.peer };
        !incoming.ended && peer.status() == UCS_OK && peer.tx.lock().lane.is_none()
    });
    all.map(|(number, _)| number).collect()
}

/// Tells as many of these writers as can be that nobody reads any more; those who remain are to be told later.
fn post_disconnect(rings: &mut TofuWorker, writers: &mut Vec<u32>) {
    while let Some(&number) = writers.last() {
        let to = rings.incoming(number).map(|incoming| {
            let stadd = incoming.cell.stadd + LEFT_AT as u64;
            let word = LEFT | u64::from(incoming.proof);
            (
                word,
                RemoteAddr {
                    stadd,
                    ..incoming.cell
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

/// Ends all connections: what was sent arrives, as far as the peers are there.
pub fn close(worker: &Worker, rings: &mut TofuWorker) {
    let mut writers = writers_alone(rings);
    let until = clock::coarse_ms() + LINGER_MS;
    let poll = |rings: &TofuWorker| {
        let event = rings.iface.queue.lock().poll();
        event.or_else(|| rings.iface.poll_rails())
    };
    loop {
        post_disconnect(rings, &mut writers);
        let drains = with_senders(worker, &mut |sender| {
            !(sender.send_disconnect() && sender.drain())
        });
        let tells = !writers.is_empty() || rings.iface.queue.lock().is_disconnecting();
        if !(drains || tells) || clock::coarse_ms() >= until {
            break;
        }
        while let Some(event) = poll(rings) {
            match event {
                QueueEvent::Ended { owner, value } => on_end(worker, rings, owner, value),
                // Who has gone first takes nothing any more.
                QueueEvent::Failed { whose, .. } => forget(worker, rings, whose),
                QueueEvent::Deaf { .. } => return drop_lanes(worker),
                // For nobody any more.
                QueueEvent::Arrived(_) => {}
                QueueEvent::Came {
                    link, whose, well, ..
                } => on_read(rings, link, whose, well),
                QueueEvent::Left { whose, well, .. } => on_done(whose, well),
            }
        }
        std::thread::yield_now();
    }
    drop_lanes(worker);
}
