//! What comes over the Tofu interconnect: notices of frames in our rings, and of what was waited for.

use super::serve;
use crate::ctypes::*;
use crate::engine::peer::Peer;
use crate::engine::rings::{Place, Rings};
use crate::engine::worker::{Rx, Worker};
use crate::proto::tx::device;
use crate::proto::{failure, flush, hall, opening, tofu_close, tx};
use crate::sys::{clock, log};
use crate::tl::Lane;
use crate::tl::shm::ring::Message;
use crate::tl::tofu::inbound::Inbound;
use crate::tl::tofu::queue::{CREDITS, Event, Mark, Owner, Whose};
use crate::tl::tofu::sender::Sender;
use crate::tl::tofu::utofu::{Notice, code_name};
use crate::tl::tofu::vcq::There;
use crate::wire::packet::{BYE, HEAD, Head};
use crate::wire::tofu::{LEFT, LEFT_AT};
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
    short: impl Fn(&Worker, Message) -> bool + Copy,
) -> u32 {
    let Some(rings) = rx.rings.as_deref_mut() else {
        return 0;
    };
    let mut count = 0;
    while count < BATCH && !rings.is_deaf() {
        let event = rings.iface.queue.lock().poll();
        let Some(event) = event else {
            if let Some(number) = rings.owe(None) {
                tell_writer(rings, number);
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
    if rings.is_deaf() && worker.duties.is_inherited() {
        return count;
    }
    if rings.iface.has_unfinished() {
        count += go_on_with_all(rings);
    }
    if !rings.counted().is_empty() {
        count += look_at_counts(worker, rings, short);
    }
    if worker.duties.take_openings() {
        opening::start(worker, rings);
    }
    count
}

/// Goes on with the records that connections are in the middle of, and with questions that could not be asked. How many
/// have gone.
#[cold]
#[inline(never)]
fn go_on_with_all(rings: &mut Rings) -> u32 {
    let links = rings.iface.take_unfinished().into_iter();
    links.map(|link| go_on(rings, link)).sum()
}

/// The same with that of one connection.
fn go_on(rings: &mut Rings, number: u32) -> u32 {
    let Some(peer) = rings.link(number).map(|link| link.peer) else {
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
    rings: &mut Rings,
    short: impl Fn(&Worker, Message) -> bool + Copy,
) -> u32 {
    let mut count = 0;
    while count < BATCH && !rings.is_deaf() {
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
    rings: &mut Rings,
    stadd: u64,
    short: impl Fn(&Worker, Message) -> bool + Copy,
) {
    match rings.place(stadd) {
        Some(Place::Ring(number)) => {
            take(worker, rings, number, u32::MAX, Inbound::note, short);
        }
        Some(Place::Hall(place)) => {
            // Who comes anew has said before it what it had to say.
            look_at_counts(worker, rings, short);
            hall::on_greeting(worker, rings, place);
        }
        Some(Place::Cell(link)) => opening::on_grant(worker, rings, link),
        None => log::diag!("a notice is of nothing that is there: address {stadd:#x}"),
    }
}

/// Handles what an answer to a poll, with this notice, tells: how much.
#[inline(never)]
pub fn told(
    worker: &Worker,
    rings: &mut Rings,
    code: i32,
    notice: &Notice,
    short: impl Fn(&Worker, Message) -> bool + Copy,
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
    rings: &mut Rings,
    event: Event,
    short: impl Fn(&Worker, Message) -> bool + Copy,
) {
    match event {
        Event::Arrived(stadd) => arrived(worker, rings, stadd, short),
        Event::Ended { owner, value } => on_end(worker, rings, owner, value),
        Event::Came {
            link, whose, well, ..
        } => on_read(rings, link, whose, well),
        Event::Left { whose, well, .. } => on_done(whose, well),
        Event::Failed { whose, code } => {
            // What the peer had counted before it went.
            look_at_counts(worker, rings, short);
            on_failure(rings, whose, code);
        }
        Event::Deaf { code } => go_deaf(worker, rings, code),
    }
}

/// What was read has come.
fn on_read(rings: &mut Rings, link: u32, whose: *mut c_void, well: bool) {
    let link = rings.link(link).filter(|link| link.flow.come());
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
        Some(Lane::Tofu(sender)) => sender.next_marked(),
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
            true => device::on_read(whose),
            false => device::on_failed(whose),
        }
    }
}

fn on_end(worker: &Worker, rings: &mut Rings, owner: Owner, value: u64) {
    match owner {
        Owner::Ticket(link) => opening::on_turn(worker, rings, link, value),
        Owner::Flush(link) => {
            if let Some(link) = rings.link(link) {
                link.flow.end();
                end_flushes(link.peer);
            }
        }
        // Told as what has come; of the worker's own one that nobody waits for any more; who waits for it looks at the
        // queue.
        Owner::Reads(_)
        | Owner::Reply(_)
        | Owner::Changes(_)
        | Owner::Own
        | Owner::Farewell(_)
        | Owner::Probe(_) => {}
    }
}

/// Something has failed.
#[cold]
fn on_failure(rings: &mut Rings, whose: Whose, code: i32) {
    match whose {
        Whose::Link(number) => opening::fail(rings, number, code),
        Whose::Credit(number) => opening::fail_writer(rings, number, code),
        Whose::Nobody => log::error!(
            "something of a worker's own has failed: {} ({code})",
            code_name(code)
        ),
        Whose::Coloured(0, there) => {
            for number in writers(rings, there) {
                opening::fail_writer(rings, number, code);
            }
        }
        Whose::Coloured(colour, there) => {
            for number in suspects(rings, colour, there) {
                opening::fail(rings, number, code);
            }
        }
    }
}

/// The ring whose writer was told something that did not arrive: the one whose cell is there.
fn writers(rings: &mut Rings, there: There) -> Vec<u32> {
    let all = rings.all_incoming();
    let told = all.filter(|(_, incoming)| {
        let cell = incoming.cell;
        cell.vcq == there.vcq && there.stadd.wrapping_sub(cell.stadd) <= size_of::<u64>() as u64
    });
    told.map(|(number, _)| number).collect()
}

/// The links of which something has failed: those of its colour, and of several the one to that queue, whose number
/// uTofu does not promise to be the peer's. None: those that it can have been of are no more.
fn suspects(rings: &mut Rings, colour: u8, there: There) -> Vec<u32> {
    let mut found: Vec<(u32, bool)> = Vec::new();
    for (number, link) in rings.links().filter(|(_, link)| link.mark.colour == colour) {
        // Of a connection whose peer is lost, and whose sender is gone, what was posted before can fail still.
        // SAFETY: peers that lists of progress name are not freed.
        let peer = unsafe { &*link.peer };
        let is_there = opening::locator(peer).is_some_and(|l| l.vcq == there.vcq);
        found.push((number, is_there));
    }
    let told = found.iter().any(|&(_, is_there)| is_there);
    let found = found.into_iter().filter(|&(_, is_there)| is_there || !told);
    found.map(|(number, _)| number).collect()
}

/// The queue of notices is of no use any more: nothing can be heard of anybody.
#[cold]
fn go_deaf(worker: &Worker, rings: &mut Rings, code: i32) {
    if !rings.go_deaf() {
        return;
    }
    log::error!(
        "the message receive queue fails: {} ({code}); if it was too short for the notices of all peers, have \
         them send fewer \
         (UCX_TOFU_RX_QUEUE_LEN)",
        code_name(code)
    );
    // What is sent still goes.
    say_goodbye(worker);
    let mut told = writers_alone(rings);
    say_farewell(rings, &mut told);
    for peer in worker.all_peers() {
        if peer.has_rings() {
            tx::lose(&peer, UCS_ERR_IO_ERROR);
        }
    }
}

/// Rings without notices.
fn look_at_counts(
    worker: &Worker,
    rings: &mut Rings,
    short: impl Fn(&Worker, Message) -> bool + Copy,
) -> u32 {
    let mut count = 0;
    for i in 0..rings.counted().len() {
        let number = rings.counted()[i];
        count += take(worker, rings, number, SOME, Inbound::look, short);
    }
    count
}

/// Takes up to so many frames of a ring, which `hear` tells of more that have come: how many.
#[inline(always)]
fn take(
    worker: &Worker,
    rings: &mut Rings,
    number: u32,
    most: u32,
    hear: impl Fn(&mut Inbound),
    short: impl Fn(&Worker, Message) -> bool,
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
                failure::distrust(peer, "what is no frame");
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
        owe(rings, number);
    }
    count
}

/// The writer of a ring is to be told how far we are. That takes a post, which whoever waits for the answer to what has
/// come need not wait for: there is time for it when nothing more has come, but not for long.
#[inline(never)]
fn owe(rings: &mut Rings, number: u32) {
    if let Some(before) = rings.owe(Some(number))
        && before != number
    {
        tell_writer(rings, before);
    }
    let incoming = rings.incoming(number);
    if incoming.is_some_and(|incoming| incoming.ring.is_overdue()) {
        rings.owe(None);
        tell_writer(rings, number);
    }
}

/// Tells the writer of a ring how far we are.
fn tell_writer(rings: &mut Rings, number: u32) {
    // In a forked child the queue is the parent's.
    if rings.is_deaf() {
        return;
    }
    let Some(incoming) = rings.incoming(number) else {
        return;
    };
    let (word, to) = (incoming.ring.tell(), incoming.cell);
    // To a peer that is gone: whoever sends to it hears of that.
    let told = Mark {
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
fn deliver(worker: &Worker, peer: &Peer, head: Head, m: Result<Option<Message>, ()>) -> bool {
    if head.kind == BYE {
        log::debug!("worker {:#x} has ended its connection", peer.uid);
        tx::lose(peer, UCS_ERR_CONNECTION_RESET);
        return true;
    }
    let what = match m {
        Ok(None) => return false,
        Ok(Some(m)) => {
            peer.stats().received.add(m.len);
            // SAFETY: the record is in the ring, or in the assembly until the next frame.
            match unsafe { serve::message(worker, peer, &m) } {
                Ok(()) => return false,
                Err(_) => "a message that makes no sense",
            }
        }
        Err(()) => "what is no message",
    };
    failure::distrust(peer, what);
    true
}

/// Nobody waits for what was sent to the peer of whom something has failed.
fn forget(worker: &Worker, rings: &mut Rings, whose: Whose) {
    let numbers = match whose {
        Whose::Link(number) => vec![number],
        Whose::Credit(_) | Whose::Nobody | Whose::Coloured(0, _) => Vec::new(),
        Whose::Coloured(colour, there) => suspects(rings, colour, there),
    };
    for number in numbers {
        let peer = rings.link(number).map(|link| link.peer);
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
fn say_goodbye(worker: &Worker) {
    with_senders(worker, &mut |sender| {
        sender.say_goodbye();
        false
    });
}

/// Does something with the sender to each peer that is well. Whether it was true of any.
fn with_senders(worker: &Worker, act: &mut dyn FnMut(&mut Sender) -> bool) -> bool {
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
fn writers_alone(rings: &mut Rings) -> Vec<u32> {
    let all = rings.all_incoming().filter(|(_, incoming)| {
        // SAFETY: peers that lists of progress name are not freed.
        let peer = unsafe { &*incoming.peer };
        !incoming.ended && peer.status() == UCS_OK && peer.tx.lock().lane.is_none()
    });
    all.map(|(number, _)| number).collect()
}

/// Tells as many of these writers as can be that nobody reads any more; those who remain are to be told later.
fn say_farewell(rings: &mut Rings, writers: &mut Vec<u32>) {
    while let Some(&number) = writers.last() {
        let to = rings.incoming(number).map(|incoming| {
            let stadd = incoming.cell.stadd + LEFT_AT as u64;
            let word = LEFT | u64::from(incoming.proof);
            (
                word,
                There {
                    stadd,
                    ..incoming.cell
                },
            )
        });
        if let Some((word, to)) = to
            && let Ok(false) = rings.iface.queue.lock().say_farewell(number, word, to)
        {
            return;
        }
        writers.pop();
    }
}

/// Ends all connections: what was sent arrives, as far as the peers are there.
pub fn hang_up(worker: &Worker, rings: &mut Rings) {
    let mut writers = writers_alone(rings);
    let until = clock::coarse_ms() + LINGER_MS;
    let poll = |rings: &Rings| {
        let event = rings.iface.queue.lock().poll();
        event.or_else(|| rings.iface.poll_rails())
    };
    loop {
        say_farewell(rings, &mut writers);
        let drains = with_senders(worker, &mut |sender| {
            !(sender.say_goodbye() && sender.drain())
        });
        let tells = !writers.is_empty() || rings.iface.queue.lock().says_farewell();
        if !(drains || tells) || clock::coarse_ms() >= until {
            break;
        }
        while let Some(event) = poll(rings) {
            match event {
                Event::Ended { owner, value } => on_end(worker, rings, owner, value),
                // Who has gone first takes nothing any more.
                Event::Failed { whose, .. } => forget(worker, rings, whose),
                Event::Deaf { .. } => return drop_lanes(worker),
                // For nobody any more.
                Event::Arrived(_) => {}
                Event::Came {
                    link, whose, well, ..
                } => on_read(rings, link, whose, well),
                Event::Left { whose, well, .. } => on_done(whose, well),
            }
        }
        std::thread::yield_now();
    }
    drop_lanes(worker);
}
