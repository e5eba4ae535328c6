//! The ring under loom: every order of the two sides' steps, and every stale value that they may see.

use super::*;
use crate::tl::shm::order::Epoch;
use loom::thread;

/// Zeroed memory is no valid state of loom's atomics.
pub(in crate::tl::shm) fn empty() -> RingMem {
    RingMem {
        _claim: Bytes::new(),
        start: empty_start(),
        board: ChunkBoard::empty(),
        slots: std::array::from_fn(|_| empty_slot()),
        data: Bytes::new(),
    }
}

fn empty_slot() -> RingSlot {
    RingSlot {
        word: AtomicU64::new(0),
        imm: AtomicU64::new(0),
        inline: Bytes::new(),
    }
}

pub(in crate::tl::shm) fn empty_start() -> Start {
    let tails = Tails {
        slots: AtomicU64::new(0),
        data: AtomicU64::new(0),
        refused: AtomicU64::new(0),
    };
    let slots = std::array::from_fn(|_| empty_slot());
    Start::of(tails, CloseWord::new(), no_withdrawals(), slots)
}

fn no_withdrawals() -> CancelCounter {
    CancelCounter {
        count: AtomicU64::new(0),
        copied: AtomicU64::new(0),
    }
}

/// After a sender has canceled a rendezvous and waited, its memory is not copied from any more, or the copy is
/// discarded.
#[test]
fn loom_cancelled_messages_are_detected() {
    loom::model(|| {
        let words = loom::sync::Arc::new((no_withdrawals(), AtomicU64::new(1)));
        let sender = words.clone();
        let thread = thread::spawn(move || {
            sender.0.count_cancelled(1);
            // A sender that does not wait for the copy writes while the memory may be read: only the count protects the
            // receiver.
            sender.1.store(2, Ordering::Relaxed);
        });
        if words.0.begin_copy() == 0 {
            let copy = words.1.load(Ordering::Relaxed);
            assert!(
                words.0.count() != 0 || copy == 1,
                "trusted bytes outside of the message"
            );
        }
        words.0.end_copy();
        thread.join().unwrap();
        assert!(!words.0.is_copied() && words.0.begin_copy() == 1);
    });
}

/// The body of a ring that is mapped from the beginning.
///
/// # Safety
/// `ring` is a ring's memory.
unsafe fn find_here(ring: NonNull<()>) -> Result<NonNull<RingMem>, BodyError> {
    Ok(ring.cast())
}

/// Runs the two ends against each other in every order with up to three preemptions, with a producer whose body is
/// mapped at once, and with one that maps the body when it needs it.
fn explore(send: fn(&mut Producer), receive: fn(&mut Consumer)) {
    for is_late in [false, true] {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let mem = NonNull::from(Box::leak(Box::new(empty())));
            let counter = NonNull::from(Box::leak(Box::new(AtomicU64::new(0))));
            // SAFETY: the counter is freed after both ends are done.
            let epoch = unsafe { Epoch::new(counter, true) };
            // SAFETY: the ring is empty, has one producer and one consumer, and is freed after both are done; the
            // source is the ring.
            let (mut tx, mut rx) = unsafe {
                let tx = if is_late {
                    let body = BodySource::new(mem.cast(), find_here);
                    Producer::starting(RingParts::from(mem).start, body, epoch)
                } else {
                    Producer::new(mem, epoch)
                };
                (tx, Consumer::new(mem))
            };
            let sender = thread::spawn(move || send(&mut tx));
            receive(&mut rx);
            sender.join().unwrap();
            // SAFETY: both were leaked by `explore` and are not used any more.
            drop(unsafe { (Box::from_raw(mem.as_ptr()), Box::from_raw(counter.as_ptr())) });
        });
    }
}

fn byte(n: u64, i: usize) -> u8 {
    (n as usize * 31 + i + 1) as u8
}

/// Sends message `n` of `len` bytes, waiting for room.
fn send(tx: &mut Producer, n: u64, len: usize) {
    // SAFETY: `to` has room for `len` bytes.
    let fill = |to: *mut u8| (0..len).for_each(|i| unsafe { to.add(i).write(byte(n, i)) });
    while !tx.send(7, n as u8, n, len, fill).unwrap() {
        thread::yield_now();
    }
}

/// Waits for message `n` and checks all of it.
fn receive(rx: &mut Consumer, n: u64, len: usize) {
    receive_as(rx, n, len, n as u8);
}

fn receive_as(rx: &mut Consumer, n: u64, len: usize, aux: u8) {
    let message = loop {
        match rx.peek().unwrap() {
            Some(message) => break message,
            None => thread::yield_now(),
        }
    };
    // Lets the producer run between `peek` and the reading: it must not write the record.
    rx.closed();
    assert_eq!(
        (message.kind, message.aux, message.imm, message.len),
        (7, aux, n, len)
    );
    // SAFETY: the record is `len` bytes long until `advance`.
    assert!(
        (0..len).all(|i| unsafe { message.record.add(i).read() } == byte(n, i)),
        "record {n}"
    );
    rx.advance();
    rx.release();
}

/// More messages than slots: the producer has to wait for the consumer's tail.
#[test]
fn loom_short_records_arrive_whole_and_in_order() {
    const LENS: [usize; 4] = [8, INLINE, 0, 1];
    explore(
        |tx| (0..).zip(LENS).for_each(|(n, len)| send(tx, n, len)),
        |rx| (0..).zip(LENS).for_each(|(n, len)| receive(rx, n, len)),
    );
}

#[test]
fn loom_short_copies_are_published_whole() {
    explore(
        |tx| {
            for n in 0..3 {
                let record = [byte(n, 0), byte(n, 1), byte(n, 2)];
                if n == 0 {
                    // The first message begins the sender's epoch.
                    // SAFETY: `to` has room for three bytes.
                    let fill = |to: *mut u8| unsafe { to.copy_from(record.as_ptr(), 3) };
                    assert!(tx.send(7, 0, n, 3, fill).unwrap());
                    continue;
                }
                // SAFETY: three bytes are readable.
                while !unsafe { tx.send_tiny(7, || n, record.as_ptr(), 3) } {
                    tx.has_room(3).unwrap();
                    thread::yield_now();
                }
            }
        },
        |rx| (0..3).for_each(|n| receive_as(rx, n, 3, 0)),
    );
}

/// The second record leaves too little room at the end of the data space: the third skips it and waits for the first
/// one's bytes to be freed.
#[test]
fn loom_long_records_do_not_overlap() {
    const LENS: [usize; 4] = [MAX_RECORD, MAX_RECORD - 64, INLINE + 1, MAX_RECORD];
    explore(
        |tx| (0..).zip(LENS).for_each(|(n, len)| send(tx, n, len)),
        |rx| (0..).zip(LENS).for_each(|(n, len)| receive(rx, n, len)),
    );
}

/// For the third record there is a free slot, but the second one occupies its bytes: only the count of freed bytes
/// makes the producer wait.
#[test]
fn loom_long_records_wait_for_data_space() {
    const LENS: [usize; 3] = [MAX_RECORD - 64, MAX_RECORD, MAX_RECORD];
    explore(
        |tx| (0..).zip(LENS).for_each(|(n, len)| send(tx, n, len)),
        |rx| (0..).zip(LENS).for_each(|(n, len)| receive(rx, n, len)),
    );
}

/// A consumer that sees the ring closed finds all messages sent before in the ring.
#[test]
fn loom_messages_sent_before_the_end_arrive() {
    explore(
        |tx| {
            send(tx, 0, 8);
            send(tx, 1, INLINE + 1);
            tx.close();
        },
        |rx| {
            while !rx.closed() {
                thread::yield_now();
            }
            let first = rx.peek().unwrap().expect("sent before the end");
            assert_eq!((first.imm, first.len), (0, 8));
            rx.advance();
            let second = rx.peek().unwrap().expect("sent before the end");
            assert_eq!((second.imm, second.len), (1, INLINE + 1));
            rx.advance();
            assert_eq!(rx.peek().unwrap().map(|m| m.imm), None);
        },
    );
}

/// A producer that sees the ring drained may reuse the memory of the records, also memory outside of the ring.
#[test]
fn loom_drained_means_read() {
    explore(
        |tx| {
            send(tx, 0, INLINE + 1);
            while !tx.drained() {
                thread::yield_now();
            }
            // SAFETY: the ring outlives its producer; the consumer does not read the record any more.
            unsafe {
                (*tx.mem.as_ptr())
                    .data
                    .to_write(0, INLINE + 1)
                    .write_bytes(0, INLINE + 1)
            };
        },
        |rx| receive(rx, 0, INLINE + 1),
    );
}
