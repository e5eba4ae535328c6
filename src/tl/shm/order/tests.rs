//! The merge of several rings, with senders that run strictly one after the other.

use super::*;
use crate::tl::shm::ring::{Producer, RingMem};
use proptest::prelude::*;
use std::alloc::{Layout, alloc_zeroed, dealloc};

impl RingSet for Vec<Consumer> {
    fn count(&self) -> usize {
        self.len()
    }

    fn ring(&mut self, number: usize) -> &mut Consumer {
        &mut self[number]
    }
}

/// Rings of one receiver.
pub(in crate::tl::shm) struct Scene {
    pub(in crate::tl::shm) counter: Box<AtomicU64>,
    memories: Vec<NonNull<RingMem>>,
}

impl Scene {
    pub(in crate::tl::shm) fn new(rings: usize) -> Self {
        // SAFETY: the layout is not empty.
        let ring =
            || NonNull::new(unsafe { alloc_zeroed(Layout::new::<RingMem>()) }.cast()).unwrap();
        Scene {
            counter: Box::default(),
            memories: (0..rings).map(|_| ring()).collect(),
        }
    }

    pub(in crate::tl::shm) fn senders(&self) -> Vec<Producer> {
        // SAFETY: the counter is dropped after the senders.
        let epoch = || unsafe { Epoch::new(NonNull::from(&*self.counter), true) };
        // SAFETY: the rings are zeroed, and each has one producer.
        let sender = |&mem| unsafe { Producer::new(mem, epoch()) };
        self.memories.iter().map(sender).collect()
    }

    pub(in crate::tl::shm) fn receiver(&self) -> Vec<Consumer> {
        // SAFETY: the rings are zeroed, and each has one consumer.
        self.memories
            .iter()
            .map(|&mem| unsafe { Consumer::new(mem) })
            .collect()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for mem in &self.memories {
            // SAFETY: allocated in `new`; senders and receiver are dropped.
            unsafe { dealloc(mem.as_ptr().cast(), Layout::new::<RingMem>()) };
        }
    }
}

/// Takes the messages of one call, whose first look is at the first `hot` rings.
fn take(merge: &mut Merge, rings: &mut Vec<Consumer>, hot: usize, most: u32, into: &mut Vec<u64>) {
    merge.look(rings, 0..hot, most);
    merge.look_again(rings);
    let mut count = 0;
    while let Some(run) = merge.next(rings, most - count) {
        for _ in 0..run.len {
            let m = rings[run.ring].peek().unwrap().unwrap();
            into.push(m.imm);
            rings[run.ring].advance();
        }
        rings[run.ring].release();
        count += run.len;
        merge.taken(rings, run);
    }
    assert!(count <= most);
}

/// Takes the messages of one call one by one, as long as none has to wait for a merge of all rings. The look at them
/// begins at the first ring from number `from` on, round the end, that has any.
fn take_earliest(rings: &mut Vec<Consumer>, from: usize, most: u32, into: &mut Vec<u64>) -> u32 {
    let (mut count, all) = (0, rings.len());
    while count < most
        && let Some(from) = (from..from + all).find(|ring| !rings[ring % all].is_empty())
        && let Some(run) = earliest(rings, from % all, most - count)
    {
        for _ in 0..run.len {
            let m = rings[run.ring].peek().unwrap().unwrap();
            into.push(m.imm);
            rings[run.ring].advance();
        }
        rings[run.ring].release();
        count += run.len;
    }
    assert!(count <= most);
    count
}

pub(in crate::tl::shm) fn send(tx: &mut Producer, number: u64, len: usize) -> bool {
    let byte = number as u8;
    // SAFETY: the record has room for `len` bytes.
    tx.send(1, 0, number, len, |to| unsafe { to.write_bytes(byte, len) })
        .unwrap()
}

proptest! {
    /// Senders send in any order; the receiver looks in any number of calls, for any number of messages.
    #[test]
    fn one_after_the_other_they_arrive_in_order(
        turns in prop::collection::vec((0usize..5, 0usize..300, prop::option::of((1u32..20, 0usize..6))), 1..400)
    ) {
        let scene = Scene::new(5);
        let (mut senders, mut rings) = (scene.senders(), scene.receiver());
        let (mut merge, mut got, mut sent) = (Merge::default(), Vec::new(), 0);
        for (sender, len, look) in turns {
            sent += u64::from(send(&mut senders[sender], sent, len));
            match look {
                Some((most, 5)) => {
                    take_earliest(&mut rings, len % 5, most, &mut got);
                }
                Some((most, hot)) => take(&mut merge, &mut rings, hot, most, &mut got),
                None => {}
            }
        }
        while got.len() < sent as usize {
            let before = got.len();
            take(&mut merge, &mut rings, 5, 3, &mut got);
            prop_assert!(got.len() > before);
        }
        prop_assert_eq!(got, (0..sent).collect::<Vec<_>>());
    }
}

/// A call for few messages leaves the later ones of many rings, whatever their numbers, and the next calls find them.
#[test]
fn few_messages_of_many_rings_are_the_earliest() {
    const RINGS: usize = 40;
    let scene = Scene::new(RINGS);
    let (mut senders, mut rings) = (scene.senders(), scene.receiver());
    let turns = (0..2 * RINGS).map(|turn| turn * 27 % RINGS);
    for (number, sender) in turns.enumerate() {
        assert!(send(&mut senders[sender], number as u64, 8));
    }
    let (mut merge, mut got) = (Merge::default(), Vec::new());
    for most in [1, 2, 4, 8, 64] {
        let before = got.len();
        take(&mut merge, &mut rings, RINGS, most, &mut got);
        assert!(got.len() > before);
    }
    assert!(got.iter().copied().eq(0..got.len() as u64), "{got:?}");
    while got.len() < 2 * RINGS {
        take(&mut merge, &mut rings, RINGS, 64, &mut got);
    }
    assert!(got.iter().copied().eq(0..2 * RINGS as u64));
}

/// Each call finds the earliest message, wherever its ring is, and those behind it of its epoch.
#[test]
fn the_earliest_messages_are_found_without_a_merge() {
    let scene = Scene::new(3);
    let (mut senders, mut rings) = (scene.senders(), scene.receiver());
    for (number, sender) in [2, 2, 0, 1, 1, 1, 2].into_iter().enumerate() {
        assert!(send(&mut senders[sender], number as u64, 8));
    }
    let run = |ring, len| Some(Run { ring, len });
    assert_eq!(earliest(&mut rings, 1, 1), run(2, 1));
    assert_eq!(earliest(&mut rings, 1, 9), run(2, 2));
    let mut got = Vec::new();
    assert_eq!(take_earliest(&mut rings, 0, 3, &mut got), 3);
    assert_eq!(
        earliest(&mut rings, 2, 1),
        run(1, 1),
        "whatever ring is looked at first"
    );
    assert_eq!(
        earliest(&mut rings, 1, 9),
        run(1, 1),
        "the look has begun at its first message"
    );
    assert_eq!(take_earliest(&mut rings, 1, 9, &mut got), 4);
    assert_eq!(got, [0, 1, 2, 3, 4, 5, 6]);
    for number in 7..10 {
        assert!(send(&mut senders[1], number, 8));
    }
    assert_eq!(earliest(&mut rings, 1, 9), run(1, 1), "no other has any");
    rings[1].stop();
    assert_eq!(earliest(&mut rings, 1, 4), None, "it was stopped");
}

/// Rings of which one gets a message when ring 2 is looked at.
struct Overtaken<'a> {
    rings: Vec<Consumer>,
    late: Option<Box<dyn FnOnce() + 'a>>,
}

impl RingSet for Overtaken<'_> {
    fn count(&self) -> usize {
        self.rings.len()
    }

    fn ring(&mut self, number: usize) -> &mut Consumer {
        if number == 2
            && let Some(send) = self.late.take()
        {
            send();
        }
        &mut self.rings[number]
    }
}

/// A sender that is preempted between its look at the epoch and its message sends into a ring that was seen empty.
#[test]
fn a_late_message_of_an_earlier_epoch_leads_to_a_merge() {
    let scene = Scene::new(3);
    let mut senders = scene.senders();
    scene.counter.store(10, Ordering::Relaxed);
    assert!(send(&mut senders[2], 1, 8) && send(&mut senders[0], 2, 8));
    let mut rings = Overtaken {
        rings: scene.receiver(),
        late: None,
    };
    assert_eq!(earliest(&mut rings, 0, 9), Some(Run { ring: 2, len: 1 }));
    let late = || {
        scene.counter.store(1, Ordering::Relaxed);
        assert!(send(&mut senders[1], 0, 8));
    };
    rings.late = Some(Box::new(late));
    assert_eq!(earliest(&mut rings, 0, 9), None);
    assert!(rings.late.is_none());
}

/// A sender without other senders in between has one epoch for all its messages, also tiny ones.
#[test]
fn a_lone_sender_keeps_its_epoch() {
    let scene = Scene::new(2);
    let mut senders = scene.senders();
    let tiny = |tx: &mut Producer| {
        // SAFETY: no bytes.
        unsafe { tx.send_tiny(1, || 0, std::ptr::null(), 0) }
    };
    assert!(!tiny(&mut senders[0]), "it has no epoch yet");
    assert!(send(&mut senders[0], 0, 8) && tiny(&mut senders[0]) && tiny(&mut senders[0]));
    assert_eq!(scene.counter.load(Ordering::Relaxed), 1);
    // SAFETY: no bytes.
    let begin = |tx: &mut Producer| unsafe { tx.send_tiny_in_new_epoch(1, 0, std::ptr::null(), 0) };
    assert!(begin(&mut senders[1]) && !tiny(&mut senders[0]) && tiny(&mut senders[1]));
    assert_eq!(scene.counter.load(Ordering::Relaxed), 2);
}

/// No record is sent by `send_tiny` to a receiver that may sleep.
#[test]
fn without_tiny_records_an_epoch_lasts_all_the_same() {
    let counter = AtomicU64::new(0);
    // SAFETY: the counter outlives the epoch.
    let mut epoch = unsafe { Epoch::new(NonNull::from(&counter), false) };
    assert!(!epoch.lasts());
    assert_eq!(epoch.begin(), 1);
    assert!(epoch.lasts() && !epoch.lasts_for_tiny() && !epoch.is_for_tiny());
}

/// Each length of a record with and without an epoch, byte for byte.
#[test]
fn records_of_every_length_begin_epochs() {
    let scene = Scene::new(2);
    let (mut senders, mut rings) = (scene.senders(), scene.receiver());
    for len in 0..200 {
        for number in [0, 1, 1] {
            let byte = (len + number) as u8;
            // SAFETY: the record has room for `len` bytes.
            let fill = |to: *mut u8| unsafe { to.write_bytes(byte, len) };
            assert!(senders[number].has_room(len).unwrap());
            assert!(senders[number].send(1, 2, 3, len, fill).unwrap());
            let epoch = rings[number].epoch();
            assert_eq!(epoch, Some(scene.counter.load(Ordering::Relaxed)));
            let m = rings[number].peek().unwrap().unwrap();
            assert_eq!((m.kind, m.aux, m.imm, m.len), (1, 2, 3, len));
            // SAFETY: the record is `len` bytes long until `advance`.
            let record = unsafe { std::slice::from_raw_parts(m.record, m.len) };
            assert!(record.iter().all(|&b| b == byte), "length {len}");
            rings[number].advance();
            rings[number].release();
        }
    }
}

/// A sender is interrupted between the beginning of its epoch and its message, while another one, whose later message
/// depends on that message, goes on sending. Messages taken without a merge count, too.
#[test]
fn a_message_that_is_late_in_its_ring_keeps_its_place() {
    for hot in [1, 2] {
        let scene = Scene::new(2);
        let (mut senders, mut rings) = (scene.senders(), scene.receiver());
        let (mut merge, mut got) = (Merge::default(), Vec::new());
        let [first, second] = &mut senders[..] else {
            unreachable!()
        };
        assert!(send(first, 10, 0));
        let late = second.begin_late();
        assert!(send(first, 11, 0));
        take(&mut merge, &mut rings, hot, 4, &mut got);
        second.publish_late(late, 1, 20);
        assert!(send(first, 12, 0));
        take(&mut merge, &mut rings, 2, 4, &mut got);
        assert_eq!(got, [10, 11, 20, 12]);
    }
}
