//! The large data buffers of an inbox: a sender of long records takes one, a sender that finds none free does without,
//! and a sender that closes returns its own. And page faults: the memory a pair grows into is populated before records
//! use it.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use ucp::sys::populate::{PageAccess, populate};
use ucp::tl::shm::RingOwner;
use ucp::tl::shm::big_buf::{BIG_BUF_AFTER, BIG_BUF_AFTER_SHORT, MAX_BIG_BUFS};
use ucp::tl::shm::inbox::Inbox;
use ucp::tl::shm::outbox::Outbox;
use ucp::tl::shm::ring::Consumer;

const LEN: usize = 16 << 10;
/// After this many bytes of long records a sender's buffer is populated and in use.
const SETTLED: u64 = 12 * BIG_BUF_AFTER;

/// One sender's connection to an inbox, both ends in this thread.
struct RingSender {
    outbox: Outbox,
    consumer: Consumer,
    index: usize,
    sent: u64,
    /// Address of the last record in the receiver's mapping.
    last: *const u8,
}

fn open(inbox: &mut Inbox, uid: u64) -> RingSender {
    let me = RingOwner {
        uid,
        inbox: inbox.locator(),
    };
    let outbox = *Outbox::open(inbox.locator(), &me, &mut None).unwrap();
    let (index, sender) = inbox.accept(&inbox.doorbell()).pop().unwrap();
    assert_eq!(sender.uid, uid);
    // SAFETY: its only consumer, dropped before the ring is free and before the inbox.
    let consumer = unsafe { Consumer::new(inbox.ring(index)).with_big_bufs(inbox.big_bufs(index)) };
    RingSender {
        outbox,
        consumer,
        index,
        sent: 0,
        last: std::ptr::null(),
    }
}

impl RingSender {
    /// Sends this many bytes in records whose every byte is checked.
    fn send(&mut self, inbox: &mut Inbox, bytes: u64) {
        self.send_records(inbox, bytes / LEN as u64, LEN, |_| ());
    }

    /// Sends this many records of `len` bytes. `look` gets the address of each, in the sender's and in the receiver's
    /// mapping, before it is accessed there.
    fn send_records(
        &mut self,
        inbox: &mut Inbox,
        number: u64,
        len: usize,
        look: impl Fn(*const u8),
    ) {
        let doorbell = inbox.doorbell();
        for _ in 0..number {
            self.sent += 1;
            let byte = self.sent as u8;
            let fill = |dst: *mut u8| {
                look(dst);
                // SAFETY: the record has room for `len` bytes.
                unsafe { dst.write_bytes(byte, len) }
            };
            assert_eq!(self.outbox.send(1, 0, self.sent, len, fill), Ok(true));
            let m = self.consumer.peek().unwrap().unwrap();
            look(m.record);
            self.last = m.record;
            // SAFETY: readable until `advance`.
            let record = unsafe { std::slice::from_raw_parts(m.record, m.len) };
            assert!((m.imm, m.len) == (self.sent, len) && record.iter().all(|&b| b == byte));
            self.consumer.advance();
            self.consumer.release();
            if doorbell.has_new_ring() {
                assert!(inbox.accept(&doorbell).is_empty());
            }
        }
    }

    /// Whether the last record was in a large data buffer.
    fn uses_big_buf(&self, inbox: &Inbox) -> bool {
        let ring = inbox.ring(self.index).body.as_ptr();
        // SAFETY: a ring is followed by other ones or by the big buffers.
        let behind = unsafe { ring.add(1) };
        !(ring.cast()..behind.cast()).contains(&self.last.cast_mut().cast::<u8>())
    }

    fn has_big_buf(&self, inbox: &Inbox) -> bool {
        let big_bufs = inbox.big_bufs(self.index).unwrap();
        (1..=MAX_BIG_BUFS as u8).any(|number| big_bufs.find(number).is_some())
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

/// The buffer of a sender without reverse traffic is populated while records are sent through the ring, a little at a
/// time: a window of records never waits for all of it.
#[test]
fn unanswered_records_do_not_wait_for_a_big_buffer() {
    const WINDOW: u64 = 128 << 10;
    const PAGE: u64 = 4 << 10;
    let mut inbox = Inbox::create(false).unwrap();
    let mut sender = open(&mut inbox, 1);
    let mut sent = 0;
    loop {
        let before = faults();
        for _ in 0..WINDOW / LEN as u64 {
            sender.send(&mut inbox, LEN as u64);
            sender.outbox.look_ahead_of_long(0, LEN);
        }
        sent += WINDOW;
        if sender.uses_big_buf(&inbox) {
            break;
        }
        // Pages that are populated are counted, too. The first window uses those of the ring.
        let new = faults() - before;
        let most = (WINDOW / 4 / PAGE) as i64;
        assert!(sent == WINDOW || new < most, "{new} pages at {sent}");
        assert!(sent < 10 * BIG_BUF_AFTER, "still in the ring");
    }
    assert!(sent > BIG_BUF_AFTER);
    sender.end(&mut inbox);
}

/// Short records gain little in a big buffer, and populating it takes as long as thousands of them.
#[test]
fn short_unanswered_records_use_a_big_buffer_after_many_more() {
    const LEN: u64 = 512;
    let mut inbox = Inbox::create(false).unwrap();
    let mut sender = open(&mut inbox, 1);
    let mut sent = 0;
    loop {
        sender.send_records(&mut inbox, 1, LEN as usize, |_| ());
        sender.outbox.look_ahead_of_long(0, LEN as usize);
        sent += LEN;
        assert!(sent > BIG_BUF_AFTER_SHORT || !sender.has_big_buf(&inbox));
        if sender.uses_big_buf(&inbox) {
            break;
        }
        assert!(sent < 4 * BIG_BUF_AFTER_SHORT, "still in the ring");
    }
    assert!(sent > BIG_BUF_AFTER_SHORT, "{sent}");
    sender.end(&mut inbox);
}

#[test]
fn big_buffers_go_from_one_sender_to_the_next() {
    let mut inbox = Inbox::create(false).unwrap();
    for uid in 0..3 * MAX_BIG_BUFS as u64 {
        let mut sender = open(&mut inbox, uid);
        sender.send(&mut inbox, BIG_BUF_AFTER / 2);
        assert!(!sender.has_big_buf(&inbox), "it has not sent much yet");
        sender.send(&mut inbox, SETTLED);
        assert!(
            sender.has_big_buf(&inbox) && sender.uses_big_buf(&inbox),
            "sender {uid}"
        );
        sender.end(&mut inbox);
    }
}

#[test]
fn a_sender_without_buffer_works_until_one_is_free() {
    let mut inbox = Inbox::create(false).unwrap();
    let mut senders: Vec<RingSender> = (0..=MAX_BIG_BUFS as u64)
        .map(|uid| open(&mut inbox, uid))
        .collect();
    for sender in &mut senders {
        sender.send(&mut inbox, 2 * BIG_BUF_AFTER);
    }
    let having = |senders: &[RingSender], inbox: &Inbox| {
        senders.iter().filter(|w| w.has_big_buf(inbox)).count()
    };
    assert_eq!(having(&senders, &inbox), MAX_BIG_BUFS);
    let mut last = senders.pop().unwrap();
    assert!(!last.has_big_buf(&inbox));
    senders.swap_remove(3).end(&mut inbox);
    last.send(&mut inbox, 2 * BIG_BUF_AFTER);
    assert!(last.has_big_buf(&inbox));
    senders.push(last);
    for sender in senders {
        sender.end(&mut inbox);
    }
}

/// A sender's buffer in the memory of a destroyed receiver is freed, though the sender has it mapped.
#[test]
fn the_dead_keep_no_memory() {
    let mut inbox = Inbox::create(false).unwrap();
    let mut sender = open(&mut inbox, 7);
    sender.send(&mut inbox, 2 * BIG_BUF_AFTER);
    assert!(sender.has_big_buf(&inbox));
    let memory = inbox.ring(sender.index).body.cast::<u8>();
    // SAFETY: a ring is mapped as long as its inbox.
    let resident = || unsafe {
        let mut pages = [0u8; 16];
        libc::mincore(memory.as_ptr().cast(), 16 * 4096, pages.as_mut_ptr());
        pages.iter().filter(|&&page| page & 1 != 0).count()
    };
    assert!(resident() > 8);
    sender.outbox.discard_unread();
    assert_eq!(resident(), 0);
    assert!(!sender.has_big_buf(&inbox));
}

/// Page faults of this thread so far.
fn faults() -> i64 {
    // SAFETY: an all-zero structure is a valid value, and is valid for writes.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
        usage.ru_minflt
    }
}

/// A pair that exchanges small records uses the same pages again, however many records it has sent before.
#[test]
fn small_records_cost_no_page_faults() {
    let mut inbox = Inbox::create(false).unwrap();
    let mut sender = open(&mut inbox, 1);
    sender.send_records(&mut inbox, 1000, 192, |_| ());
    for thousand in 2..=20 {
        let before = faults();
        sender.send_records(&mut inbox, 1000, 192, |_| ());
        let new = faults() - before;
        assert!(new < 4, "{new} in exchanges up to {thousand},000");
    }
    sender.end(&mut inbox);
}

/// Whether the system can populate pages.
fn can_populate() -> bool {
    let mut page = vec![0u8; 8192];
    // SAFETY: it lies in the vector.
    unsafe { populate(page.as_mut_ptr(), 1, PageAccess::Write) }
}

/// The sender's slots are populated before its messages reach them: those of the start by its claim.
#[test]
fn the_slots_of_the_first_messages_are_populated() {
    if !can_populate() {
        return eprintln!("skipped: this system does not populate pages");
    }
    let mut inbox = Inbox::create(false).unwrap();
    let mut sender = open(&mut inbox, 1);
    let pagemap = File::open("/proc/self/pagemap").unwrap();
    for n in 1..=300 {
        let is_at_sender = Cell::new(true);
        sender.send_records(&mut inbox, 1, 8, |slot| {
            if is_at_sender.replace(false) {
                assert!(is_populated(&pagemap, slot), "message {n}");
            }
        });
    }
    sender.end(&mut inbox);
}

/// Whether a page table of this process has the page of an address: an access does not fault.
fn is_populated(pagemap: &File, address: *const u8) -> bool {
    let mut entry = [0; 8];
    let at = address as u64 / 4096 * 8;
    pagemap.read_exact_at(&mut entry, at).unwrap();
    u64::from_ne_bytes(entry) >> 63 == 1
}

/// Where the system can populate pages, long records find theirs populated at both ends: in the ring from its second
/// round on, and in a big buffer from the first.
#[test]
fn long_records_find_their_pages_populated() {
    const LEN: usize = 2 << 10;
    if !can_populate() {
        return eprintln!("skipped: this system does not populate pages");
    }
    let mut inbox = Inbox::create(false).unwrap();
    let mut sender = open(&mut inbox, 1);
    sender.send_records(&mut inbox, 32, LEN, |_| ());
    let pagemap = File::open("/proc/self/pagemap").unwrap();
    let look = |record| assert!(is_populated(&pagemap, record));
    sender.send_records(&mut inbox, SETTLED / LEN as u64, LEN, look);
    assert!(sender.uses_big_buf(&inbox));
    sender.end(&mut inbox);
}
