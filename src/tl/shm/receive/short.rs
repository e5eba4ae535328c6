//! Polling of the rings: what each message passes. The sink is the first argument, where the callers have it, too: that
//! saves moves between registers.

use crate::tl::Message;
use crate::tl::ring_sink::{BATCH, RingSink};
use crate::tl::shm::accept::accept;
use crate::tl::shm::inbox::{Doorbell, Inbox};
use crate::tl::shm::last_look::LastLook;
use crate::tl::shm::order::{self, Run};
use crate::tl::shm::receive::apart;
use crate::tl::shm::worker::{HOT_RINGS, ShmRx, ShmWorker};
use crate::wire::header::{Kind, NoteHdr};
use std::ops::Range;

/// Maximum number of messages that one progress call handles where several rings have some, or half as many as there
/// are rings: the call looks at all of them.
const MERGED: u32 = 64;

/// Most rings of which single messages are handled without a merge: that takes about two looks at each of them for each
/// message.
const MAX_UNMERGED_RINGS: usize = 32;

/// What a poll has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolledRings {
    /// No message.
    Idle,
    /// A sender has taken a new ring, which is to be accepted before anything is handled.
    New,
    /// The first ring that has a message: [`handle`] handles it.
    Ready(usize),
}

/// What [`take_signal`] has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolledSignal {
    /// No message.
    Idle,
    /// A signal, which was removed.
    Signal,
    /// Another message, or another ring: progress handles it.
    Other,
}

/// Takes the next message of the only ring, if that is a signal for completion queue `cq` behind data that `permits`
/// allows: `taken` gets its sender, its value, and the place of the data. Single-thread mode.
#[inline(always)]
pub fn take_signal<S: RingSink>(
    sink: S,
    shm: &mut ShmWorker<S::Peer>,
    cq: u8,
    permits: impl FnOnce(&NoteHdr) -> bool,
    taken: impl FnOnce(S::Peer, u64, NoteHdr),
) -> PolledSignal {
    let [ring] = &mut shm.rings[..] else {
        return PolledSignal::Other;
    };
    let is_empty = ring.consumer.is_empty();
    // Messages of a new sender can precede the message that was found.
    if sink.shared().shm.doorbell.has_new_ring() {
        return PolledSignal::Other;
    }
    if is_empty {
        shm.budget = 1;
        return PolledSignal::Idle;
    }
    let Some((value, [addr, len])) = ring.consumer.peek_words(Kind::Note as u8, cq) else {
        return PolledSignal::Other;
    };
    let behind = NoteHdr {
        addr: u64::from_le(addr),
        len: u64::from_le(len),
    };
    if !permits(&behind) {
        return PolledSignal::Other;
    }
    sink.count(sink.counter(ring.peer), 1, NoteHdr::SIZE as u64);
    taken(ring.peer, value, behind);
    ring.consumer.advance();
    ring.consumer.release();
    PolledSignal::Signal
}

/// Looks at [`HOT_RINGS`] rings at most: there are no more.
#[inline(always)]
pub fn poll_few<P>(shm: &mut ShmWorker<P>, doorbell: &Doorbell) -> PolledRings {
    let ready = shm.rings.iter().position(|c| !c.consumer.is_empty());
    polled(shm, doorbell, ready)
}

/// What a look has found that has seen messages in ring `ready`.
#[inline(always)]
fn polled<P>(shm: &mut ShmWorker<P>, doorbell: &Doorbell, ready: Option<usize>) -> PolledRings {
    // Messages of a new sender can precede the message that was found.
    if doorbell.has_new_ring() {
        return PolledRings::New;
    }
    match ready {
        Some(first) => PolledRings::Ready(first),
        None => {
            shm.budget = 1;
            PolledRings::Idle
        }
    }
}

/// Handles messages of at most [`HOT_RINGS`] rings, of which ring `first` has some, in single-thread mode. The caller
/// has checked that no sender had taken a new ring before.
#[inline(always)]
pub fn handle<S: RingSink>(sink: S, shm: &mut ShmWorker<S::Peer>, first: usize) -> u32 {
    match shm.rings.len() {
        1 => poll_sole(sink, shm),
        n => poll_several(sink, shm, first..n),
    }
}

/// Polls all rings.
#[inline(never)]
pub fn poll_all<S: RingSink>(sink: S, shm: &mut ShmWorker<S::Peer>) -> u32 {
    let first = match shm.has_cold_rings() {
        true => look_at_many(shm),
        false => shm.rings.iter().position(|c| !c.consumer.is_empty()),
    };
    // Messages that precede it are found when it is handled.
    match first {
        Some(first) => handle_hot(sink, shm, first),
        None => {
            shm.budget = 1;
            0
        }
    }
}

/// Looks at rings of which there are more than [`HOT_RINGS`]. The caller has checked that there are.
#[inline(always)]
pub fn poll_many<P>(shm: &mut ShmWorker<P>, doorbell: &Doorbell) -> PolledRings {
    let ready = look_at_many(shm);
    polled(shm, doorbell, ready)
}

/// Number of a ring that has messages, if any has.
#[inline(always)]
fn look_at_many<P>(shm: &mut ShmWorker<P>) -> Option<usize> {
    let inbox = shm.inbox.as_ref();
    let epoch = || inbox.map_or(0, Inbox::epoch);
    if shm.last_look.holds(&shm.rings, epoch) {
        return None;
    }
    look_at_each(shm)
}

/// Looks at each ring, at the one that had messages last first.
#[inline(never)]
fn look_at_each<P>(shm: &mut ShmWorker<P>) -> Option<usize> {
    let epoch = shm.inbox.as_ref().map_or(0, Inbox::epoch);
    let has_message = |ring: &ShmRx<P>| !ring.consumer.is_empty();
    if !shm.rings.get(shm.last_ready).is_some_and(has_message) {
        let Some(found) = shm.rings.iter().position(has_message) else {
            shm.last_look = LastLook::at_empty(&shm.rings, epoch);
            return None;
        };
        shm.last_ready = found;
    }
    Some(shm.last_ready)
}

/// Handles messages of ring `first`, which has some, and of those behind it, [`HOT_RINGS`] at most. The caller has
/// checked that no sender had taken a new ring before.
#[inline(always)]
pub fn handle_hot<S: RingSink>(sink: S, shm: &mut ShmWorker<S::Peer>, first: usize) -> u32 {
    let end = shm.rings.len().min(first + HOT_RINGS);
    poll_several(sink, shm, first..end)
}

/// Doubles the budget of the next call, at most [`BATCH`], if this one, which handled `count` messages, has used all of
/// it.
#[inline(always)]
fn grow_budget<P>(shm: &mut ShmWorker<P>, count: u32) {
    if count >= shm.budget {
        shm.budget = grown(shm.budget);
    }
}

/// The budget of the call after one that has used all of this one.
#[inline(always)]
fn grown(budget: u32) -> u32 {
    (2 * budget).min(BATCH)
}

/// Handles messages of the only ring, which has some, in single-thread mode. The caller has checked that no sender had
/// taken a new ring before.
#[inline(always)]
fn poll_sole<S: RingSink>(sink: S, shm: &mut ShmWorker<S::Peer>) -> u32 {
    let [ring] = &mut shm.rings[..] else {
        return 0;
    };
    let (doorbell, budget) = (&sink.shared().shm.doorbell, &mut shm.budget);
    poll(
        sink,
        ring,
        *budget,
        || !doorbell.has_new_ring(),
        || *budget = grown(*budget),
    )
}

/// Handles messages of the rings `at`: the first of them has some, the others may have.
#[inline(never)]
fn poll_several<S: RingSink>(sink: S, shm: &mut ShmWorker<S::Peer>, at: Range<usize>) -> u32 {
    let Some((ring, others_are_empty)) = apart(&mut shm.rings, at.start) else {
        return 0;
    };
    let mut count = match lone(sink, ring, 1, others_are_empty) {
        0 => return poll_mixed(sink, shm, at),
        seen => poll(sink, ring, seen, || true, || ()),
    };
    if count < shm.budget && !ring.consumer.is_empty() {
        count += poll_behind(sink, shm, at.start, shm.budget - count);
    }
    grow_budget(shm, count);
    count
}

/// Handles up to `most` further messages of this ring, if no other ring has any.
#[inline(never)]
fn poll_behind<S: RingSink>(sink: S, shm: &mut ShmWorker<S::Peer>, ring: usize, most: u32) -> u32 {
    let Some((ring, others_are_empty)) = apart(&mut shm.rings, ring) else {
        return 0;
    };
    match lone(sink, ring, most, others_are_empty) {
        0 => 0,
        seen => poll(sink, ring, seen, || true, || ()),
    }
}

/// [`order::lone`], but 0 if a sender has taken a new ring: messages in that ring could precede these.
#[inline(always)]
fn lone<S: RingSink>(
    sink: S,
    ring: &ShmRx<S::Peer>,
    most: u32,
    others_are_empty: impl FnOnce() -> bool,
) -> u32 {
    let seen = order::lone(&ring.consumer, most, others_are_empty);
    match sink.shared().shm.doorbell.has_new_ring() {
        true => 0,
        false => seen,
    }
}

/// Handles messages of several rings, of which the first of `at` has some: those of the ring that precedes the others,
/// as long as calls handle few, else merged.
#[inline(never)]
fn poll_mixed<S: RingSink>(sink: S, shm: &mut ShmWorker<S::Peer>, at: Range<usize>) -> u32 {
    if shm.budget == BATCH || shm.rings.len() > MAX_UNMERGED_RINGS {
        return poll_merged(sink, shm, at);
    }
    let run = order::earliest(&mut shm.rings, at.start, shm.budget);
    // Messages of a new sender can precede these.
    let Some(run) = run.filter(|_| !sink.shared().shm.doorbell.has_new_ring()) else {
        return poll_merged(sink, shm, at);
    };
    // Other rings have messages, too: the next calls handle more, and then merge.
    shm.budget = grown(shm.budget);
    poll_run(sink, &mut shm.rings, run)
}

/// Handles the messages of a run.
#[inline(never)]
fn poll_run<S: RingSink>(sink: S, rings: &mut [ShmRx<S::Peer>], run: Run) -> u32 {
    poll(sink, &mut rings[run.ring], run.len, || true, || ())
}

/// Handles messages of several rings in the order of their epochs; some of the rings `at` have messages.
#[inline(never)]
fn poll_merged<S: RingSink>(sink: S, shm: &mut ShmWorker<S::Peer>, at: Range<usize>) -> u32 {
    let most = match shm.budget {
        BATCH => MERGED.max(shm.rings.len() as u32 / 2),
        few => few,
    };
    let mut count = take_merged(sink, shm, at, most);
    // A message in a ring outside of `at` precedes the rest: all rings are merged.
    if shm.merge.is_blocked() && count < most {
        let all = 0..shm.rings.len();
        count += take_merged(sink, shm, all, most - count);
    }
    grow_budget(shm, count);
    count
}

/// Handles up to `most` messages that the merge finds in the rings `at`.
fn take_merged<S: RingSink>(
    sink: S,
    shm: &mut ShmWorker<S::Peer>,
    at: Range<usize>,
    most: u32,
) -> u32 {
    shm.merge.look(&mut shm.rings, at, most);
    // Messages of a new sender can precede these.
    if sink.shared().shm.doorbell.has_new_ring() {
        accept(shm, &sink.shared().shm.doorbell, sink.cold());
    }
    let (merge, rings) = (&mut shm.merge, &mut shm.rings);
    merge.look_again(rings);
    let mut count = 0;
    while let Some(run) = merge.next(rings, (most - count).min(BATCH)) {
        count += poll_run(sink, rings, run);
        merge.taken(rings, run);
    }
    count
}

/// Handles 1 to `most` messages of one ring. `goes_on` is called before each message but the first; false leaves the
/// message in the ring. `on_most` is called if there were `most`.
#[inline(always)]
fn poll<S: RingSink>(
    sink: S,
    ring: &mut ShmRx<S::Peer>,
    most: u32,
    goes_on: impl Fn() -> bool,
    on_most: impl FnOnce(),
) -> u32 {
    let received = sink.counter(ring.peer);
    let mut count = 0;
    loop {
        if count >= most {
            on_most();
            break;
        }
        let m = match ring.consumer.peek() {
            Ok(Some(m)) => m,
            Ok(None) => break,
            Err(_) => {
                give_up(sink, ring);
                break;
            }
        };
        if count > 0 {
            if !goes_on() {
                break;
            }
            ring.consumer.look_ahead();
        }
        let tagged = m.kind == Kind::TagEager as u8;
        if S::BATCHES && tagged {
            let most = (most - count).min(BATCH);
            let (messages, bytes) = take_batch(sink, ring, m, most, &goes_on);
            sink.count(received, messages, bytes);
            count += messages;
            continue;
        }
        sink.count(received, 1, m.len as u64);
        count += 1;
        if tagged {
            sink.handle_eager(m);
        } else if m.kind != Kind::AmEager as u8 || !sink.handle_am(m) {
            other(sink, ring, (m.kind, m.aux), m.imm, m.record, m.len);
        }
        ring.consumer.advance();
    }
    if count > 0 {
        ring.consumer.release();
    }
    count
}

/// Handles up to `most` consecutive eager tagged messages together, and removes them. Returns their number and their
/// bytes.
#[inline(never)]
fn take_batch<S: RingSink>(
    sink: S,
    ring: &mut ShmRx<S::Peer>,
    first: Message,
    most: u32,
    goes_on: impl Fn() -> bool,
) -> (u32, u64) {
    let (mut count, mut bytes) = (1, first.len as u64);
    let consumer = &mut ring.consumer;
    sink.handle_batch(first, || {
        consumer.advance();
        if count < most
            && let Ok(Some(m)) = consumer.peek()
            && m.kind == Kind::TagEager as u8
            && goes_on()
        {
            consumer.look_ahead();
            (count, bytes) = (count + 1, bytes + m.len as u64);
            return Some(m);
        }
        None
    });
    (count, bytes)
}

/// Handles a signal behind data that its sender has stored into memory of this process. A refusal is published beside
/// the position of this end; there is no other answer. `head`: bytes of a [`NoteHdr`].
fn signal<S: RingSink>(sink: S, ring: &mut ShmRx<S::Peer>, cq: u8, value: u64, head: *const u8) {
    // SAFETY: the record is readable until `advance`. Read once: the sender could change it.
    let [addr, len] = unsafe { head.cast::<[u64; 2]>().read_unaligned() }.map(u64::from_le);
    if !sink.handle_signal(ring.peer, cq, value, NoteHdr { addr, len }) {
        ring.consumer.refuse();
    }
}

/// Handles a message of any other kind.
#[inline(never)]
fn other<S: RingSink>(
    sink: S,
    ring: &mut ShmRx<S::Peer>,
    (kind, aux): (u8, u8),
    imm: u64,
    record: *const u8,
    len: usize,
) {
    if kind == Kind::Note as u8 && len == NoteHdr::SIZE {
        return signal(sink, ring, aux, imm, record);
    }
    let m = Message {
        kind,
        aux,
        imm,
        len,
        record,
    };
    // SAFETY: the record is readable until `advance`.
    if !unsafe { sink.handle(ring.peer, &m) } {
        ring.consumer.stop();
    }
}

#[cold]
#[inline(never)]
fn give_up<S: RingSink>(sink: S, ring: &mut ShmRx<S::Peer>) {
    ring.consumer.stop();
    sink.malformed(ring.peer, "a malformed message");
}
