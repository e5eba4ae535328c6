//! Arrivals through the rings of shared memory: which ring comes next, and what becomes of a message.
//!
//! Messages of several senders are handled in the order of [`order`]. A progress call of a
//! worker that was idle handles one message, the next one twice as many, and so on: programs that look after each call
//! at what has arrived see the arrivals one after the other.

use super::{deliver, on_am, on_eager};
use crate::engine::matcher::PostedRecv;
use crate::engine::worker::{Rx, ShmRx, Worker};
use crate::op::{rx_dispatch, stream, tag};
use crate::proto::{failure, resolve};
use crate::tl::shm::order::{self, RingSet};
use crate::tl::shm::ring::{Consumer, RingMessage};
use crate::wire::header::Kind;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Most messages that are taken from one ring before its sender is told that there is room.
pub(super) const BATCH: u32 = 16;
/// Most messages that one progress call handles where several rings have some.
const MERGED: u32 = 64;
/// Rings that are looked at in every call; further ones take turns.
pub(super) const HOT: usize = 8;
/// Calls in which all of those have their turn, and how many have it in one call at least. Fewer looks a call find what
/// has come through the others later, and so after more looks in all.
const CALLS: usize = 4;
const TURNS: usize = 4;

impl RingSet for Vec<Box<ShmRx>> {
    fn count(&self) -> usize {
        self.len()
    }

    fn ring(&mut self, number: usize) -> &mut Consumer {
        &mut self[number].consumer
    }

    #[inline(always)]
    fn others_are_empty(&self, ring: usize) -> bool {
        let (before, behind) = (&self[..ring], &self[ring + 1..]);
        before.iter().all(|c| c.consumer.is_empty()) && behind.iter().all(|c| c.consumer.is_empty())
    }
}

/// Messages from at most [`HOT`] rings, in single-thread mode.
#[inline(always)]
pub(super) fn poll_few(worker: &Worker, rx: &mut Rx) -> u32 {
    let ready = rx.shm_rings.iter().position(|c| !c.consumer.is_empty());
    // What a new sender has sent before a message that is here comes before it.
    if worker.doorbell.has_new_ring() {
        return poll_new(worker, rx);
    }
    match ready {
        Some(first) => poll_ready(worker, rx, first),
        None => {
            rx.budget = 1;
            0
        }
    }
}

/// The same, where a sender has taken a ring.
#[cold]
#[inline(never)]
fn poll_new(worker: &Worker, rx: &mut Rx) -> u32 {
    resolve::accept(worker, rx);
    worker.rx.hold(true);
    let count = poll_all::<false>(worker, rx);
    worker.rx.hold(false);
    count
}

/// Messages of at most [`HOT`] rings, of which the one of this number has some. Callbacks that call progress find it
/// busy.
#[inline(never)]
fn poll_ready(worker: &Worker, rx: &mut Rx, first: usize) -> u32 {
    worker.rx.hold(true);
    let count = match rx.shm_rings.len() {
        1 => poll_sole(worker, rx),
        n => poll_several::<false>(worker, rx, first..n),
    };
    worker.rx.hold(false);
    count
}

/// Messages from all rings.
#[inline(never)]
pub(super) fn poll_all<const MT: bool>(worker: &Worker, rx: &mut Rx) -> u32 {
    let hot = rx.shm_rings.len().min(HOT);
    let mut first = rx.shm_rings[..hot]
        .iter()
        .position(|c| !c.consumer.is_empty());
    // What comes before it is found when it is handled.
    if first.is_none() && rx.shm_rings.len() > HOT {
        first = look_at_turns(rx);
    }
    match first {
        Some(first) => poll_several::<MT>(worker, rx, first..hot.max(first + 1)),
        None => {
            rx.budget = 1;
            0
        }
    }
}

/// Rings behind the hot ones, a few in turn: the first one that has something takes the place of a hot one that has
/// nothing, or stays where it is. Its number then; what else there is has its turn later, or is found when this is
/// handled.
fn look_at_turns(rx: &mut Rx) -> Option<usize> {
    let others = rx.shm_rings.len() - HOT;
    let mut left = others.div_ceil(CALLS).max(TURNS).min(others);
    while left > 0 {
        if rx.cursor < HOT || rx.cursor >= rx.shm_rings.len() {
            rx.cursor = HOT;
        }
        let turn = &rx.shm_rings[rx.cursor..];
        let turn = &turn[..left.min(turn.len())];
        if let Some(i) = turn.iter().position(|c| !c.consumer.is_empty()) {
            let found = rx.cursor + i;
            rx.cursor = found + 1;
            let mut hot = rx.shm_rings[..HOT].iter();
            let place = hot.position(|c| c.consumer.is_empty()).unwrap_or(found);
            rx.shm_rings.swap(found, place);
            return Some(place);
        }
        rx.cursor += turn.len();
        left -= turn.len();
    }
    None
}

/// The next call may handle twice as many messages if this one, which handled `count`, has used all of its budget.
#[inline(always)]
fn grow_budget(rx: &mut Rx, count: u32) {
    if count >= rx.budget {
        rx.budget = (2 * rx.budget).min(BATCH);
    }
}

/// Messages of the only ring, which has some, in single-thread mode. No sender has taken another one before the caller
/// saw that.
#[inline(always)]
fn poll_sole(worker: &Worker, rx: &mut Rx) -> u32 {
    let [channel] = &mut rx.shm_rings[..] else {
        return 0;
    };
    let count = poll::<false>(worker, channel, rx.budget, || {
        !worker.doorbell.has_new_ring()
    });
    grow_budget(rx, count);
    count
}

/// Messages of several rings: the first `at` these numbers has some, the others may have.
#[inline(never)]
fn poll_several<const MT: bool>(worker: &Worker, rx: &mut Rx, at: Range<usize>) -> u32 {
    let ring = at.start;
    let mut count = match poll_lone(worker, rx, ring, 1) {
        0 => return poll_merged::<MT>(worker, rx, at),
        seen => poll::<MT>(worker, &mut rx.shm_rings[ring], seen, || true),
    };
    if count < rx.budget && !rx.shm_rings[ring].consumer.is_empty() {
        count += poll_behind::<MT>(worker, rx, ring, rx.budget - count);
    }
    grow_budget(rx, count);
    count
}

/// Further messages of the ring of this number, at most `most`, if no other ring has any.
#[inline(never)]
fn poll_behind<const MT: bool>(worker: &Worker, rx: &mut Rx, ring: usize, most: u32) -> u32 {
    match poll_lone(worker, rx, ring, most) {
        0 => 0,
        seen => poll::<MT>(worker, &mut rx.shm_rings[ring], seen, || true),
    }
}

/// As [`order::lone`], and no sender has taken a new ring: what it has sent before these messages would come before
/// them.
#[inline(always)]
fn poll_lone(worker: &Worker, rx: &mut Rx, ring: usize, most: u32) -> u32 {
    let seen = order::lone(&mut rx.shm_rings, ring, most);
    match worker.doorbell.has_new_ring() {
        true => 0,
        false => seen,
    }
}

/// Messages of several rings, of which some of those `at` these numbers have some.
#[inline(never)]
fn poll_merged<const MT: bool>(worker: &Worker, rx: &mut Rx, at: Range<usize>) -> u32 {
    let most = match rx.budget {
        BATCH => MERGED,
        few => few,
    };
    let mut count = take_merged::<MT>(worker, rx, at, most);
    // What came into rings that were not among those holds up the rest: then all are.
    if rx.merge.is_blocked() && count < most {
        let all = 0..rx.shm_rings.len();
        count += take_merged::<MT>(worker, rx, all, most - count);
    }
    grow_budget(rx, count);
    count
}

/// Handles what the merge finds `at` these rings, at most `most` messages.
fn take_merged<const MT: bool>(worker: &Worker, rx: &mut Rx, at: Range<usize>, most: u32) -> u32 {
    rx.merge.look(&mut rx.shm_rings, at, most);
    // What a new sender has sent before these messages comes before them.
    if worker.doorbell.has_new_ring() {
        resolve::accept(worker, rx);
    }
    let (merge, channels) = (&mut rx.merge, &mut rx.shm_rings);
    merge.look_again(channels);
    let mut count = 0;
    while let Some(run) = merge.next(channels, (most - count).min(BATCH)) {
        count += poll::<MT>(worker, &mut channels[run.ring], run.len, || true);
        merge.taken(channels, run);
    }
    count
}

/// Takes at most `most` messages from one ring, which is one at least. `goes_on`: asked of each but the first when it
/// is there; false leaves it in the ring.
#[inline(always)]
pub(super) fn poll<const MT: bool>(
    worker: &Worker,
    channel: &mut ShmRx,
    most: u32,
    goes_on: impl Fn() -> bool,
) -> u32 {
    // SAFETY: peers that incoming rings and connections name are not freed.
    let received = &unsafe { &*channel.peer }.stats().received;
    let mut count = 0;
    while count < most {
        let m = match channel.consumer.peek() {
            Ok(Some(m)) => m,
            Ok(None) => break,
            Err(_) => {
                give_up(channel);
                break;
            }
        };
        if count > 0 {
            if !goes_on() {
                break;
            }
            channel.consumer.look_ahead();
        }
        let tagged = m.kind == Kind::TagEager as u8;
        if MT && tagged {
            let most = (most - count).min(BATCH);
            let (messages, bytes) = on_eagers(worker, channel, m, most, &goes_on);
            received.add_many(messages.into(), bytes);
            count += messages;
            continue;
        }
        received.add(m.len);
        count += 1;
        if tagged {
            on_eager(worker, m);
        } else if m.kind != Kind::AmEager as u8 || !on_am::<MT>(worker, m) {
            other(worker, channel, (m.kind, m.aux), m.imm, m.record, m.len);
        }
        channel.consumer.advance();
    }
    if count > 0 {
        channel.consumer.release();
    }
    count
}

/// Tagged messages that follow each other, at most [`BATCH`], in a worker that threads share: all are matched under one
/// lock, then copied and ended without it. How many, and their bytes.
#[inline(never)]
fn on_eagers(
    worker: &Worker,
    channel: &mut ShmRx,
    first: RingMessage,
    most: u32,
    goes_on: impl Fn() -> bool,
) -> (u32, u64) {
    let mut matched =
        [const { MaybeUninit::<(*mut PostedRecv, RingMessage)>::uninit() }; BATCH as usize];
    let (mut found, mut count, mut bytes, mut next) = (0, 0, 0, Some(first));
    let mut matcher = worker.matcher.lock();
    while let Some(m) = next.take() {
        (count, bytes) = (count + 1, bytes + m.len as u64);
        let posting = matcher.arrive(m.imm);
        if posting.is_null() {
            // SAFETY: the record is readable until `release`.
            unsafe { tag::add_unexpected_eager(worker, &mut matcher, m.imm, m.record, m.len) };
        } else {
            matched[found].write((posting, m));
            found += 1;
        }
        channel.consumer.advance();
        if count < most
            && let Ok(Some(m)) = channel.consumer.peek()
            && m.kind == Kind::TagEager as u8
            && goes_on()
        {
            channel.consumer.look_ahead();
            next = Some(m);
        }
    }
    drop(matcher);
    worker.receive_limit.set(found as u32);
    let mut next = 0;
    while next < worker.receive_limit.get() {
        // SAFETY: one of the first `found`, which were written above; out of the matcher: ours. The record is readable
        // until `release`.
        unsafe {
            let (posting, m) = matched.get_unchecked(next as usize).assume_init_ref();
            deliver::<true>(*posting, m.imm, m.record, m.len);
        }
        next += 1;
    }
    (count, bytes)
}

/// Every other kind of message.
#[inline(never)]
fn other(
    worker: &Worker,
    channel: &mut ShmRx,
    (kind, aux): (u8, u8),
    imm: u64,
    record: *const u8,
    len: usize,
) {
    let m = RingMessage {
        kind,
        aux,
        imm,
        len,
        record,
    };
    // SAFETY: peers that incoming rings and connections name are not freed; the record is readable until `advance`.
    unsafe {
        if m.kind == Kind::StreamData as u8 {
            return stream::on_data(worker, &*channel.peer, m.imm, m.record, m.len);
        }
        if rx_dispatch::message(worker, &*channel.peer, &m).is_err() {
            failure::fail_corrupt(&*channel.peer, "a message that makes no sense");
            channel.consumer.stop();
        }
    }
}

#[cold]
#[inline(never)]
fn give_up(channel: &mut ShmRx) {
    channel.consumer.stop();
    // SAFETY: peers that incoming rings and connections name are not freed.
    failure::fail_corrupt(unsafe { &*channel.peer }, "what is no message");
}
