//! Polls of rings on the heap, with senders in the same thread.

use super::*;
use crate::sys::sync::Ordering;
use crate::tl::shm::order::tests::{Scene, send};
use crate::tl::shm::ring::Producer;

/// Three senders and their rings. The senders end before the memory.
struct Senders {
    senders: Vec<Producer>,
    rings: Vec<ShmRx<usize>>,
    scene: Scene,
}

impl Senders {
    fn new() -> Self {
        let scene = Scene::new(3);
        let ring = |(index, consumer)| {
            let peer = index;
            ShmRx {
                consumer,
                index,
                peer,
            }
        };
        Self {
            senders: scene.senders(),
            rings: scene.receiver().into_iter().enumerate().map(ring).collect(),
            scene,
        }
    }

    fn send(&mut self, from: usize) {
        assert!(send(&mut self.senders[from], 0, 0));
    }

    fn take(&mut self, from: usize) {
        let consumer = &mut self.rings[from].consumer;
        assert!(matches!(consumer.peek(), Ok(Some(_))));
        consumer.advance();
        consumer.release();
    }

    fn epoch(&self) -> u64 {
        self.scene.counter.load(Ordering::Relaxed)
    }

    fn look(&self) -> LastLook {
        LastLook::at_empty(&self.rings, self.epoch())
    }

    fn holds(&self, look: &mut LastLook) -> bool {
        look.holds(&self.rings, || self.epoch())
    }
}

#[test]
fn every_message_ends_it_whoever_sends() {
    for next in [0, 1, 2] {
        let mut senders = Senders::new();
        senders.send(1);
        senders.take(1);
        let mut look = senders.look();
        assert!(senders.holds(&mut look) && senders.holds(&mut look));
        senders.send(next);
        assert!(
            !senders.holds(&mut look),
            "a message of sender {next} is missed"
        );
        assert_eq!(look, LastLook::Unclear);
    }
}

#[test]
fn every_sixteenth_poll_looks_at_all_rings() {
    let mut senders = Senders::new();
    senders.send(0);
    senders.take(0);
    let mut look = senders.look();
    let polls = (0..).take_while(|_| senders.holds(&mut look)).count();
    assert_eq!(polls as u32, POLLS - 1);
}

/// A sender that was preempted between the begin of its epoch and its message is waited for.
#[test]
fn an_epoch_without_its_first_message_keeps_polls_at_all_rings() {
    let mut senders = Senders::new();
    senders.send(0);
    senders.take(0);
    senders.scene.counter.fetch_add(1, Ordering::Relaxed);
    assert_eq!(senders.look(), LastLook::Unclear);
}

/// The rings change places, and are freed.
#[test]
fn a_number_that_names_another_ring_ends_it() {
    let mut senders = Senders::new();
    for sender in [0, 2] {
        senders.send(sender);
        senders.take(sender);
    }
    let look = senders.look();
    senders.rings.swap(1, 2);
    assert!(!senders.holds(&mut look.clone()));
    senders.rings.truncate(1);
    assert!(!senders.holds(&mut look.clone()));
}
