//! The order of messages of two senders under loom: in every order of the steps of senders and receiver, a message is
//! handled behind those that its sender knew of.

use super::*;
use crate::tl::shm::ring::loom_tests::empty;
use crate::tl::shm::ring::{Producer, RingMem};
use loom::sync::Arc;
use loom::thread;

/// State of the senders outside of the rings: a flag from one to the other, and the end of both.
#[derive(Default)]
struct Beside {
    flagged: AtomicU64,
}

struct Scene {
    counter: NonNull<AtomicU64>,
    memories: [NonNull<RingMem>; 2],
}

impl RingSet for Vec<Consumer> {
    fn count(&self) -> usize {
        self.len()
    }

    fn ring(&mut self, number: usize) -> &mut Consumer {
        &mut self[number]
    }
}

impl Scene {
    fn new() -> Self {
        Scene {
            counter: NonNull::from(Box::leak(Box::new(AtomicU64::new(0)))),
            memories: std::array::from_fn(|_| NonNull::from(Box::leak(Box::new(empty())))),
        }
    }

    fn sender(&self, number: usize) -> Producer {
        // SAFETY: the ring is empty, this is its only producer, and it is leaked until `drop`.
        unsafe { Producer::new(self.memories[number], Epoch::new(self.counter, true)) }
    }

    fn receiver(&self) -> Vec<Consumer> {
        // SAFETY: the ring is empty, this is its only consumer, and it is leaked until `drop`.
        self.memories
            .map(|mem| unsafe { Consumer::new(mem) })
            .into()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // SAFETY: leaked in `new`; senders and receiver are dropped.
        drop(unsafe { Box::from_raw(self.counter.as_ptr()) });
        for mem in self.memories {
            // SAFETY: leaked in `new`; senders and receiver are dropped.
            drop(unsafe { Box::from_raw(mem.as_ptr()) });
        }
    }
}

fn send(tx: &mut Producer, number: u64) {
    while !tx.send(0, 0, number, 0, |_| ()).unwrap() {
        thread::yield_now();
    }
}

/// Takes the messages of a run out of their ring.
fn take(rings: &mut [Consumer], run: Run, numbers: &mut Vec<u64>) {
    let ring = &mut rings[run.ring];
    for _ in 0..run.len {
        let message = ring.peek().unwrap().unwrap();
        numbers.push(message.imm);
        ring.advance();
    }
    ring.release();
}

/// A call that merges the rings.
fn take_merged(rings: &mut Vec<Consumer>, merge: &mut Merge, numbers: &mut Vec<u64>) {
    merge.look(rings, 0..2, 2);
    merge.look_again(rings);
    while let Some(run) = merge.next(rings, 2) {
        take(rings, run, numbers);
        merge.taken(rings, run);
    }
}

/// A call that takes single messages without a merge.
fn take_earliest(rings: &mut Vec<Consumer>, merge: &mut Merge, numbers: &mut Vec<u64>) {
    let Some(ring) = rings.iter().position(|ring| !ring.is_empty()) else {
        return;
    };
    match earliest(rings, ring, 2) {
        Some(run) => take(rings, run, numbers),
        None => take_merged(rings, merge, numbers),
    }
}

/// A call that skips the merge where only one ring has messages.
fn take_lone(rings: &mut Vec<Consumer>, merge: &mut Merge, numbers: &mut Vec<u64>) {
    let Some(ring) = rings.iter().position(|ring| !ring.is_empty()) else {
        return;
    };
    for most in 1..=2 {
        if rings[ring].is_empty() {
            return;
        }
        let mut others = (0..rings.len()).filter(|&other| other != ring);
        let others_are_empty = || others.all(|other| rings[other].is_empty());
        match lone(&rings[ring], most, others_are_empty) {
            0 if most == 1 => return take_merged(rings, merge, numbers),
            len => take(rings, Run { ring, len }, numbers),
        }
    }
}

/// One call of a receiver.
type Call = fn(&mut Vec<Consumer>, &mut Merge, &mut Vec<u64>);

/// Takes messages as progress does until `count` have arrived; returns their numbers.
fn receive(rings: &mut Vec<Consumer>, count: usize, call: Call) -> Vec<u64> {
    let (mut merge, mut numbers) = (Merge::default(), Vec::new());
    while numbers.len() < count {
        let before = numbers.len();
        call(rings, &mut merge, &mut numbers);
        if numbers.len() == before {
            thread::yield_now();
        }
    }
    numbers
}

fn place(numbers: &[u64], number: u64) -> usize {
    numbers.iter().position(|&n| n == number).unwrap()
}

/// Sender 0 sets a flag for sender 1 after its message. `before`: number of messages that sender 1 has sent before it
/// reads the flag.
fn explore(before: u64, call: Call) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(if before > 1 { 2 } else { 3 });
    model.check(move || {
        let scene = Scene::new();
        let (mut a, mut b) = (scene.sender(0), scene.sender(1));
        let beside = Arc::new(Beside::default());
        let (from, to) = (beside.clone(), beside);
        let sender = thread::spawn(move || {
            send(&mut a, 10);
            // Release: pairs with the Acquire load of the other sender.
            from.flagged.store(1, Ordering::Release);
        });
        let listener = thread::spawn(move || {
            for number in 0..before {
                send(&mut b, 20 + number);
            }
            // Acquire: pairs with the Release store of the other sender.
            let knew = to.flagged.load(Ordering::Acquire) == 1;
            send(&mut b, if knew { 31 } else { 30 });
        });
        let mut rings = scene.receiver();
        let numbers = receive(&mut rings, before as usize + 2, call);
        sender.join().unwrap();
        listener.join().unwrap();
        if numbers.contains(&31) {
            assert!(place(&numbers, 10) < place(&numbers, 31), "{numbers:?}");
        }
        drop(rings);
    });
}

#[test]
fn loom_messages_that_a_sender_had_seen_come_first() {
    explore(0, take_merged);
}

/// Sender 1 already has an epoch, which may be later than that of the message that it knows of.
#[test]
fn loom_messages_that_a_sender_with_an_epoch_had_seen_come_first() {
    explore(1, take_merged);
}

#[test]
fn loom_seen_messages_come_before_a_lone_message() {
    explore(0, take_lone);
}

#[test]
fn loom_seen_messages_come_before_a_lone_message_with_an_epoch() {
    explore(1, take_lone);
}

/// Sender 1's ring has more messages than the first call takes.
#[test]
fn loom_seen_messages_come_before_further_lone_messages() {
    explore(2, take_lone);
}

#[test]
fn loom_seen_messages_come_before_an_earliest_message() {
    explore(0, take_earliest);
}

#[test]
fn loom_seen_messages_come_before_an_earliest_message_with_an_epoch() {
    explore(1, take_earliest);
}
