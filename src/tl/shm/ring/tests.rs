//! The ring with real threads: order, sizes, room, and invalid values of the other side that each side refuses.

use super::*;
use crate::sys::copy::{self, TINY};
use crate::sys::sync::AtomicU32;
use crate::tl::Message;
use crate::tl::shm::big_buf::{BIG_BUF_BYTES, BigBufs, MAX_BIG_BUFS};
use crate::tl::shm::order::Epoch;
use std::alloc::{Layout, alloc_zeroed};
use std::cell::Cell;
use std::ops::Range;

/// A ring on the heap, leaked: tests are short.
pub(in crate::tl::shm) fn ring() -> (Producer, Consumer, NonNull<RingMem>) {
    let layout = Layout::new::<RingMem>();
    // SAFETY: the layout is not empty.
    let mem = NonNull::new(unsafe { alloc_zeroed(layout) }.cast::<RingMem>()).unwrap();
    // SAFETY: the ring is zeroed and leaked, with one producer and one consumer.
    unsafe { (Producer::new(mem, epoch()), Consumer::new(mem), mem) }
}

/// The epoch of the only sender of a receiver.
fn epoch() -> Epoch {
    let counter: &'static AtomicU64 = Box::leak(Box::default());
    // SAFETY: the counter is leaked.
    unsafe { Epoch::new(NonNull::from(counter), true) }
}

/// Big buffers on the heap, leaked as well, as ring 0 sees them; and their owner words.
fn big_bufs() -> (BigBufs, &'static [AtomicU32; MAX_BIG_BUFS]) {
    let layout = Layout::from_size_align(MAX_BIG_BUFS * BIG_BUF_BYTES, 4096).unwrap();
    // SAFETY: the layout is not empty.
    let memory = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap();
    let owners: &'static [AtomicU32; MAX_BIG_BUFS] = Box::leak(Box::default());
    // SAFETY: the words and the big buffers are leaked.
    let big_bufs = unsafe { BigBufs::new(NonNull::from(owners).cast(), memory, 0) };
    (big_bufs, owners)
}

fn bytes_of(m: &Message) -> &[u8] {
    // SAFETY: the record is `len` bytes long until `advance`.
    unsafe { std::slice::from_raw_parts(m.record, m.len) }
}

fn pattern(n: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| (n as usize * 31 + i) as u8).collect()
}

/// Sends `count` records of the lengths that `len_of` returns from another thread, and checks their order and every
/// byte of them.
fn exchange(mut tx: Producer, rx: &mut Consumer, count: u64, len_of: fn(u64) -> usize) {
    std::thread::scope(|s| {
        s.spawn(move || {
            for n in 0..count {
                let bytes = pattern(n, len_of(n));
                // SAFETY: `dst` has room for the record.
                let fill = |dst: *mut u8| unsafe {
                    dst.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
                };
                while !tx.send(1, n as u8, n, bytes.len(), fill).unwrap() {
                    std::hint::spin_loop();
                }
            }
        });
        for n in 0..count {
            let m = loop {
                if let Some(m) = rx.peek().unwrap() {
                    break m;
                }
                rx.release();
            };
            assert_eq!((m.imm, m.kind, m.aux, m.len), (n, 1, n as u8, len_of(n)));
            assert!(bytes_of(&m) == pattern(n, m.len), "record {n}");
            rx.advance();
        }
        rx.release();
    });
}

/// Exchanges the amount that several big buffers hold, in records of all lengths.
fn exchange_much(tx: Producer, rx: &mut Consumer) {
    exchange(tx, rx, 1500, |n| {
        (n * 7919 % (MAX_RECORD as u64 + 1)) as usize
    });
}

#[test]
fn threads_exchange_records_of_every_size_in_order() {
    let (tx, mut rx, _) = ring();
    exchange(tx, &mut rx, 20_000, |n| (n * 7919 % 3000) as usize);
}

#[test]
fn short_copies_are_exact() {
    let (mut tx, mut rx, _) = ring();
    for len in 0..=INLINE {
        let (bytes, mut into) = (pattern(9, len), vec![0; len]);
        // SAFETY: both are `len` long.
        unsafe { copy::short(into.as_mut_ptr(), bytes.as_ptr(), len) };
        assert_eq!(into, bytes);
    }
    // A sender's first message begins an epoch, so `send_tiny` does not take it.
    assert!(tx.send(2, 0, 0, 0, |_| ()).unwrap() && rx.peek().unwrap().is_some());
    rx.advance();
    for len in 0..=TINY {
        let bytes = pattern(9, len);
        // SAFETY: `bytes` is `len` long.
        assert!(unsafe { tx.send_tiny(2, || 0, bytes.as_ptr(), len) });
        let m = rx.peek().unwrap().unwrap();
        assert_eq!(bytes_of(&m), bytes);
        rx.advance();
    }
}

#[test]
fn full_ring_refuses_and_recovers() {
    let (mut tx, mut rx, _) = ring();
    let mut sent = 0;
    while tx.send(1, 0, sent, 1000, |_| ()).unwrap() {
        sent += 1;
    }
    assert!(sent >= 60, "64 KiB hold {sent} records of 1000 bytes");
    assert!(!tx.has_room(1000).unwrap() && tx.has_room(INLINE_WITH_EPOCH).unwrap());
    for n in 0..sent {
        assert_eq!(rx.peek().unwrap().unwrap().imm, n);
        rx.advance();
    }
    assert!(rx.peek().unwrap().is_none());
    rx.release();
    assert!(tx.has_room(MAX_RECORD).unwrap());
    assert!(tx.drained());
    assert!(tx.send(1, 0, 0, MAX_RECORD, |_| ()).unwrap());
}

#[test]
fn garbage_is_refused_by_both_sides() {
    let (mut tx, mut rx, _) = ring();
    // What a hostile producer would write.
    let word = lap(FIRST) | ((MAX_RECORD as u64 + 1) << 32);
    tx.slot().word.store(word, Ordering::Release);
    assert_eq!(rx.peek().err(), Some(CorruptRing));
    // SAFETY: the ring is leaked. The values are what a hostile consumer would write.
    let tails = unsafe { tx.start.as_ref() }.tails();
    tails.slots.store(SLOTS as u64 * 9, Ordering::Release);
    let mut r = Ok(true);
    while r == Ok(true) {
        r = tx.send(1, 0, 0, 0, |_| ());
    }
    assert_eq!(r, Err(Unusable));
}

#[test]
fn laps_never_repeat_zero_and_differ_between_neighbours() {
    for n in (0..200_000_000u64).step_by(SLOTS * 1000) {
        assert!(lap(n) != 0 && lap(n) != lap(n + SLOTS as u64));
    }
}

/// The stop also comes in front of the last slot of a lap, and the consumer still advances over the message that `peek`
/// returned.
#[test]
fn a_stopped_consumer_shows_nothing_more() {
    for before in [0, START_SLOTS - 1, START_SLOTS + SLOTS - 1] {
        let (mut tx, mut rx, _) = ring();
        for n in 0..=before {
            assert_eq!(tx.send(1, 0, n as u64, 0, |_| ()), Ok(true));
        }
        for n in 0..before {
            assert_eq!(rx.peek().unwrap().unwrap().imm, n as u64);
            rx.advance();
        }
        rx.release();
        rx.stop();
        assert!(rx.is_empty() && matches!(rx.peek(), Ok(None)));
        rx.advance();
        rx.release();
        assert_eq!(tx.send(1, 0, 0, 0, |_| ()), Ok(true));
        assert!(rx.is_empty() && matches!(rx.peek(), Ok(None)));
    }
}

/// A ring whose body the producer maps when it needs it.
struct Late {
    body: Result<NonNull<RingMem>, BodyError>,
    asked: Cell<u32>,
}

/// # Safety
/// `source` is a [`Late`].
unsafe fn find_late(source: NonNull<()>) -> Result<NonNull<RingMem>, BodyError> {
    // SAFETY: by the caller, `source` is a leaked `Late`.
    let late = unsafe { source.cast::<Late>().as_ref() };
    late.asked.set(late.asked.get() + 1);
    late.body
}

/// Creates a leaked ring. `fails`: the error that mapping the body returns.
fn late_ring(fails: Option<BodyError>) -> (Producer, Consumer, &'static Late) {
    let (_, _, mem) = ring();
    let late = Box::leak(Box::new(Late {
        body: fails.map_or(Ok(mem), Err),
        asked: Cell::new(0),
    }));
    let start = RingParts::from(mem).start;
    // SAFETY: the ring is leaked; one producer and one consumer of it are used.
    unsafe {
        let source = BodySource::new(NonNull::from(&*late).cast(), find_late);
        let tx = Producer::starting(start, source, epoch());
        (tx, Consumer::new(mem), late)
    }
}

/// Checks that these messages arrive, in this order.
fn take(rx: &mut Consumer, numbers: Range<u64>) {
    for n in numbers {
        let m = rx.peek().unwrap().expect("sent");
        assert_eq!((m.imm, bytes_of(&m)), (n, &pattern(n, m.len)[..]));
        rx.advance();
    }
    assert!(rx.is_empty());
    rx.release();
}

fn send(tx: &mut Producer, n: u64, len: usize) -> Result<bool, Unusable> {
    let bytes = pattern(n, len);
    // SAFETY: `dst` has room for the record.
    let fill = |dst: *mut u8| unsafe { dst.copy_from_nonoverlapping(bytes.as_ptr(), len) };
    tx.send(1, 0, n, len, fill)
}

/// Behind the slots of the start all slots of the body are free, whether the receiver has read the start's messages or
/// not.
#[test]
fn a_few_short_messages_need_no_body() {
    const STARTING: u64 = START_SLOTS as u64;
    let (mut tx, mut rx, late) = late_ring(None);
    assert!(tx.drained(), "nothing was sent");
    for n in 0..STARTING {
        assert_eq!(send(&mut tx, n, INLINE_WITH_EPOCH), Ok(true));
        tx.look_ahead();
    }
    assert_eq!((late.asked.get(), tx.drained()), (0, false));
    let all = STARTING + SLOTS as u64;
    for n in STARTING..all {
        assert_eq!(send(&mut tx, n, 1), Ok(true));
    }
    assert_eq!(send(&mut tx, all, 1), Ok(false), "no slot is free");
    take(&mut rx, 0..all);
    assert!(tx.drained());
    assert_eq!(send(&mut tx, all, 1), Ok(true));
    take(&mut rx, all..all + 1);
    assert_eq!(late.asked.get(), 1);
}

/// A long record lies in the body; the messages behind it use up the slots of the start first.
#[test]
fn a_long_record_needs_the_body() {
    for before in 0..=START_SLOTS as u64 {
        let (mut tx, mut rx, late) = late_ring(None);
        for n in 0..before {
            assert_eq!(send(&mut tx, n, 8), Ok(true));
        }
        assert_eq!(send(&mut tx, before, 1000), Ok(true));
        assert_eq!(late.asked.get(), 1);
        for n in before + 1..20 {
            assert_eq!(send(&mut tx, n, if n % 3 == 0 { 8 } else { 500 }), Ok(true));
        }
        take(&mut rx, 0..20);
    }
}

#[test]
fn without_a_body_only_the_start_is_used() {
    for (why, sent) in [
        (BodyError::Gone, Ok(false)),
        (BodyError::Unmapped, Err(Unusable)),
    ] {
        let (mut tx, mut rx, _) = late_ring(Some(why));
        assert_eq!(send(&mut tx, 0, 1000), sent);
        assert_eq!(tx.has_room(1000), sent);
        assert!(tx.board().is_none());
        for n in 0..START_SLOTS as u64 {
            assert_eq!(send(&mut tx, n, 8), Ok(true));
        }
        assert_eq!(send(&mut tx, 99, 8), sent);
        take(&mut rx, 0..START_SLOTS as u64);
        assert_eq!(send(&mut tx, 99, 8), sent);
    }
}

#[test]
fn a_sender_of_much_data_moves_to_a_big_buffer() {
    let (tx, rx, _) = ring();
    let (big_bufs, owners) = big_bufs();
    owners[0].store(7, Ordering::Relaxed);
    // SAFETY: the big buffers are leaked.
    let (tx, mut rx) = unsafe {
        (
            tx.with_big_bufs(Some(big_bufs)),
            rx.with_big_bufs(Some(big_bufs)),
        )
    };
    exchange_much(tx, &mut rx);
    let taken = || owners.each_ref().map(|o| o.load(Ordering::Relaxed));
    assert_eq!(taken(), [7, 1, 0, 0, 0, 0, 0, 0], "the first free one");
    assert_eq!(rx.big_buf.map(|known| known.big_buf.number), Some(2));
    let mut discarded = Vec::new();
    big_bufs.release(|big_buf| discarded.push(big_buf.number));
    assert_eq!((discarded, taken()), (vec![2], [7, 0, 0, 0, 0, 0, 0, 0]));
}

#[test]
fn without_a_free_big_buffer_it_stays() {
    let (tx, rx, _) = ring();
    let (big_bufs, owners) = big_bufs();
    owners.iter().for_each(|o| o.store(7, Ordering::Relaxed));
    // SAFETY: the big buffers are leaked.
    let (tx, mut rx) = unsafe {
        (
            tx.with_big_bufs(Some(big_bufs)),
            rx.with_big_bufs(Some(big_bufs)),
        )
    };
    exchange_much(tx, &mut rx);
    assert!(rx.big_buf.is_none());
}

#[test]
fn big_buffers_of_other_rings_are_refused() {
    for number in [1, 2, 9, 255] {
        let (tx, rx, _) = ring();
        let (big_bufs, owners) = big_bufs();
        owners[1].store(7, Ordering::Relaxed);
        // SAFETY: the big buffers are leaked.
        let mut rx = unsafe { rx.with_big_bufs(Some(big_bufs)) };
        // What a hostile producer would write.
        let word = lap(FIRST) | (1000 | number << BIG_BUF_SHIFT) << 32;
        tx.slot().word.store(word, Ordering::Release);
        assert_eq!(rx.peek().err(), Some(CorruptRing), "area {number}");
    }
}
