//! Arrivals through shared-memory rings: which ring is polled next, and what happens with a message.
//!
//! Messages of several senders are handled in the order of [`order`]. A progress call of a worker that was idle handles
//! one message, the next one two, then four: a program that checks for arrivals after each call sees them one after the
//! other.

use super::arrival::{deliver, on_am, on_eager};
use crate::engine::matcher::PostedRecv;
use crate::engine::worker::{HOT_RINGS, Rx, ShmRx, Worker};
use crate::op::{rx_dispatch, stream, tag};
use crate::proto::{failure, resolve};
use crate::tl::Message;
use crate::tl::shm::order::{self, RingSet};
use crate::tl::shm::ring::Consumer;
use crate::wire::header::Kind;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Maximum number of messages taken from one ring before its sender gets credit for them.
pub(super) const BATCH: u32 = 16;
/// Maximum number of messages that one progress call handles where several rings have some.
const MERGED: u32 = 64;
/// Maximum number of rings behind [`HOT_RINGS`] that each progress call polls all. An MPI that yields its core between
/// two calls waits for all other ranks of the core between them.
const COLD_PER_CALL: usize = 24;
/// Number of progress calls in which all rings behind [`HOT_RINGS`] are polled once if there are more than
/// [`COLD_PER_CALL`].
const CALLS: usize = 4;

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

/// Polls at most [`HOT_RINGS`] rings, in single-thread mode.
#[inline(always)]
pub(super) fn poll_few(worker: &Worker, rx: &mut Rx) -> u32 {
    let ready = rx.shm_rings.iter().position(|c| !c.consumer.is_empty());
    // Messages of a new sender can precede the message that was found.
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

/// Polls all rings after the rings of new senders were added.
#[cold]
#[inline(never)]
fn poll_new(worker: &Worker, rx: &mut Rx) -> u32 {
    resolve::accept(worker, rx);
    worker.rx.hold(true);
    let count = poll_all::<false>(worker, rx);
    worker.rx.hold(false);
    count
}

/// Handles messages of at most [`HOT_RINGS`] rings, of which ring `first` has some. While it runs, progress called by a
/// callback returns 0.
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

/// Polls all rings.
#[inline(never)]
pub(super) fn poll_all<const MT: bool>(worker: &Worker, rx: &mut Rx) -> u32 {
    let hot = rx.shm_rings.len().min(HOT_RINGS);
    let mut first = rx.shm_rings[..hot]
        .iter()
        .position(|c| !c.consumer.is_empty());
    // Messages that precede it are found when it is handled.
    if first.is_none() && rx.shm_rings.len() > HOT_RINGS {
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

/// Polls some of the rings behind the hot ones, in turn. The first one with a message changes places with a hot one
/// that is empty, if there is one. Returns its number; messages in the other rings are found later.
fn look_at_turns(rx: &mut Rx) -> Option<usize> {
    let others = rx.shm_rings.len() - HOT_RINGS;
    let mut left = match others {
        0..=COLD_PER_CALL => others,
        _ => others.div_ceil(CALLS),
    };
    while left > 0 {
        if rx.cursor < HOT_RINGS || rx.cursor >= rx.shm_rings.len() {
            rx.cursor = HOT_RINGS;
        }
        let turn = &rx.shm_rings[rx.cursor..];
        let turn = &turn[..left.min(turn.len())];
        if let Some(i) = turn.iter().position(|c| !c.consumer.is_empty()) {
            let found = rx.cursor + i;
            rx.cursor = found + 1;
            let mut hot = rx.shm_rings[..HOT_RINGS].iter();
            let place = hot.position(|c| c.consumer.is_empty()).unwrap_or(found);
            rx.shm_rings.swap(found, place);
            return Some(place);
        }
        rx.cursor += turn.len();
        left -= turn.len();
    }
    None
}

/// Doubles the budget of the next call, at most [`BATCH`], if this one, which handled `count` messages, has used all of
/// it.
#[inline(always)]
fn grow_budget(rx: &mut Rx, count: u32) {
    if count >= rx.budget {
        rx.budget = (2 * rx.budget).min(BATCH);
    }
}

/// Handles messages of the only ring, which has some, in single-thread mode. The caller has checked that no sender had
/// taken a new ring before.
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

/// Handles messages of the rings `at`: the first of them has some, the others may have.
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

/// Handles up to `most` further messages of this ring, if no other ring has any.
#[inline(never)]
fn poll_behind<const MT: bool>(worker: &Worker, rx: &mut Rx, ring: usize, most: u32) -> u32 {
    match poll_lone(worker, rx, ring, most) {
        0 => 0,
        seen => poll::<MT>(worker, &mut rx.shm_rings[ring], seen, || true),
    }
}

/// [`order::lone`], but 0 if a sender has taken a new ring: messages in that ring could precede these.
#[inline(always)]
fn poll_lone(worker: &Worker, rx: &mut Rx, ring: usize, most: u32) -> u32 {
    let seen = order::lone(&mut rx.shm_rings, ring, most);
    match worker.doorbell.has_new_ring() {
        true => 0,
        false => seen,
    }
}

/// Handles messages of several rings in the order of their epochs; some of the rings `at` have messages.
#[inline(never)]
fn poll_merged<const MT: bool>(worker: &Worker, rx: &mut Rx, at: Range<usize>) -> u32 {
    let most = match rx.budget {
        BATCH => MERGED,
        few => few,
    };
    let mut count = take_merged::<MT>(worker, rx, at, most);
    // A message in a ring outside of `at` precedes the rest: all rings are merged.
    if rx.merge.is_blocked() && count < most {
        let all = 0..rx.shm_rings.len();
        count += take_merged::<MT>(worker, rx, all, most - count);
    }
    grow_budget(rx, count);
    count
}

/// Handles up to `most` messages that the merge finds in the rings `at`.
fn take_merged<const MT: bool>(worker: &Worker, rx: &mut Rx, at: Range<usize>, most: u32) -> u32 {
    rx.merge.look(&mut rx.shm_rings, at, most);
    // Messages of a new sender can precede these.
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

/// Handles 1 to `most` messages of one ring. `goes_on` is called before each message but the first; false leaves the
/// message in the ring.
#[inline(always)]
pub(super) fn poll<const MT: bool>(
    worker: &Worker,
    channel: &mut ShmRx,
    most: u32,
    goes_on: impl Fn() -> bool,
) -> u32 {
    let received = &channel.peer.get().stats().received;
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

/// Handles up to [`BATCH`] consecutive eager tagged messages in a worker that threads share: all are matched under one
/// lock, then copied and completed without it. Returns their number and their bytes.
#[inline(never)]
fn on_eagers(
    worker: &Worker,
    channel: &mut ShmRx,
    first: Message,
    most: u32,
    goes_on: impl Fn() -> bool,
) -> (u32, u64) {
    let mut matched =
        [const { MaybeUninit::<(*mut PostedRecv, Message)>::uninit() }; BATCH as usize];
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
        // SAFETY: one of the first `found` entries, which the loop before has written. The matcher has removed the
        // request: this thread owns it. The record is readable until `release`.
        unsafe {
            let (posting, m) = matched.get_unchecked(next as usize).assume_init_ref();
            deliver::<true>(*posting, m.imm, m.record, m.len);
        }
        next += 1;
    }
    (count, bytes)
}

/// Handles a message of any other kind.
#[inline(never)]
fn other(
    worker: &Worker,
    channel: &mut ShmRx,
    (kind, aux): (u8, u8),
    imm: u64,
    record: *const u8,
    len: usize,
) {
    let m = Message {
        kind,
        aux,
        imm,
        len,
        record,
    };
    // SAFETY: the record is readable until `advance`.
    unsafe {
        if m.kind == Kind::StreamData as u8 {
            return stream::on_data(worker, channel.peer.get(), m.imm, m.record, m.len);
        }
        if rx_dispatch::message(worker, channel.peer.get(), &m).is_err() {
            failure::fail_corrupt(channel.peer.get(), "an invalid message");
            channel.consumer.stop();
        }
    }
}

#[cold]
#[inline(never)]
fn give_up(channel: &mut ShmRx) {
    channel.consumer.stop();
    failure::fail_corrupt(channel.peer.get(), "a malformed message");
}
