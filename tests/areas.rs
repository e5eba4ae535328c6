//! The larger data areas of an inbox: who sends much takes one, who comes when none is left does without, and whoever
//! goes gives his back.

use ucp::tl::shm::Sender;
use ucp::tl::shm::area::{AREAS, HOT};
use ucp::tl::shm::inbox::Inbox;
use ucp::tl::shm::outbox::Outbox;
use ucp::tl::shm::ring::Consumer;

const LEN: usize = 16 << 10;

/// One sender's way into an inbox, both ends in this thread.
struct Way {
    outbox: Outbox,
    consumer: Consumer,
    index: usize,
    sent: u64,
}

fn open(inbox: &mut Inbox, uid: u64) -> Way {
    let me = Sender {
        uid,
        inbox: inbox.locator(),
    };
    let outbox = Outbox::open(inbox.locator(), &me).unwrap();
    let (index, sender) = inbox.accept(&inbox.doorbell()).pop().unwrap();
    assert_eq!(sender.uid, uid);
    // SAFETY: its only consumer, dropped before the ring is free and before the inbox.
    let consumer = unsafe { Consumer::new(inbox.ring(index)).with_areas(inbox.areas(index)) };
    Way {
        outbox,
        consumer,
        index,
        sent: 0,
    }
}

impl Way {
    /// Sends so many bytes in records whose every byte is checked.
    fn send(&mut self, bytes: u64) {
        for _ in 0..bytes / LEN as u64 {
            self.sent += 1;
            let byte = self.sent as u8;
            // SAFETY: the record has room for `LEN` bytes.
            let fill = |dst: *mut u8| unsafe { dst.write_bytes(byte, LEN) };
            assert_eq!(self.outbox.send(1, 0, self.sent, LEN, fill), Ok(true));
            let m = self.consumer.peek().unwrap().unwrap();
            // SAFETY: readable until `advance`.
            let record = unsafe { std::slice::from_raw_parts(m.record, m.len) };
            assert!((m.imm, m.len) == (self.sent, LEN) && record.iter().all(|&b| b == byte));
            self.consumer.advance();
            self.consumer.release();
        }
    }

    fn has_area(&self, inbox: &Inbox) -> bool {
        let areas = inbox.areas(self.index).unwrap();
        (1..=AREAS as u8).any(|number| areas.find(number).is_some())
    }

    fn end(self, inbox: &mut Inbox) {
        let Self {
            outbox,
            consumer,
            index,
            ..
        } = self;
        drop((outbox, consumer));
        inbox.free(index);
    }
}

#[test]
fn areas_go_from_one_to_the_next() {
    let mut inbox = Inbox::create(false).unwrap();
    for uid in 0..3 * AREAS as u64 {
        let mut way = open(&mut inbox, uid);
        way.send(HOT / 2);
        assert!(!way.has_area(&inbox), "it has not sent much yet");
        way.send(8 * HOT);
        assert!(way.has_area(&inbox), "sender {uid}");
        way.end(&mut inbox);
    }
}

#[test]
fn who_finds_none_left_does_without_until_one_is() {
    let mut inbox = Inbox::create(false).unwrap();
    let mut ways: Vec<Way> = (0..=AREAS as u64)
        .map(|uid| open(&mut inbox, uid))
        .collect();
    for way in &mut ways {
        way.send(2 * HOT);
    }
    let having = |ways: &[Way], inbox: &Inbox| ways.iter().filter(|w| w.has_area(inbox)).count();
    assert_eq!(having(&ways, &inbox), AREAS);
    let mut last = ways.pop().unwrap();
    assert!(!last.has_area(&inbox));
    ways.swap_remove(3).end(&mut inbox);
    last.send(2 * HOT);
    assert!(last.has_area(&inbox));
    ways.push(last);
    for way in ways {
        way.end(&mut inbox);
    }
}

/// What a sender leaves in the memory of a receiver that is gone is freed, though the sender has it mapped.
#[test]
fn the_dead_keep_no_memory() {
    let mut inbox = Inbox::create(false).unwrap();
    let mut way = open(&mut inbox, 7);
    way.send(2 * HOT);
    assert!(way.has_area(&inbox));
    let memory = inbox.ring(way.index).cast::<u8>();
    // SAFETY: a ring is mapped as long as its inbox.
    let resident = || unsafe {
        let mut pages = [0u8; 16];
        libc::mincore(memory.as_ptr().cast(), 16 * 4096, pages.as_mut_ptr());
        pages.iter().filter(|&&page| page & 1 != 0).count()
    };
    assert!(resident() > 8);
    way.outbox.forsake();
    assert_eq!(resident(), 0);
    assert!(!way.has_area(&inbox));
}
