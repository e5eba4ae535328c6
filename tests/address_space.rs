//! Address space of shared memory: an inbox and its senders map only the parts they use, and more rings are created
//! when they run out.

use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::sync::{Mutex, MutexGuard, PoisonError};
use ucp::tl::shm::RingOwner;
use ucp::tl::shm::inbox::{Inbox, RINGS};
use ucp::tl::shm::outbox::Outbox;
use ucp::tl::shm::ring::Consumer;

/// The tests measure the address space of their process: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// The only test that runs. From here on no other thread reserves the 64 MiB of an arena of malloc.
fn alone() -> MutexGuard<'static, ()> {
    // SAFETY: changes a setting of the allocator, under its own lock.
    assert_eq!(unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) }, 1);
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Initial number of rings of an inbox.
const FIRST: usize = 32;

fn open(inbox: &Inbox, uid: u64) -> std::io::Result<Outbox> {
    let me = RingOwner {
        uid,
        inbox: inbox.locator(),
    };
    Outbox::open(inbox.locator(), &me, &mut None).map(|outbox| *outbox)
}

/// This process's address space according to the kernel, `VmSize` or `VmPeak`, KiB.
fn address_space(what: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(what)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Limits the address space of this process to what it will never need.
fn limit_address_space(is_limited: bool) {
    let mut limit = MaybeUninit::uninit();
    // SAFETY: `limit` is valid for writes, and written before it is read.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_AS, limit.as_mut_ptr()), 0);
        let mut limit = limit.assume_init();
        limit.rlim_cur = if is_limited {
            1 << 46
        } else {
            libc::RLIM_INFINITY
        };
        assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &raw const limit), 0);
    }
}

/// A sender maps the front of the inbox, 548 KiB, and its ring's body only for messages that need it. Where address
/// space is limited, it maps one ring.
#[test]
fn an_inbox_and_its_senders_map_what_they_use() {
    let _alone = alone();
    for (named, is_limited) in [(false, false), (true, false), (false, true), (true, true)] {
        limit_address_space(is_limited);
        // Costs of the first one are not measured.
        drop(open(&Inbox::create(named).unwrap(), 1).unwrap());
        let before = address_space("VmSize");
        let inbox = Inbox::create(named).unwrap();
        let senders: Vec<_> = (0..FIRST as u64)
            .map(|uid| {
                let mut outbox = open(&inbox, uid).unwrap();
                assert_eq!(outbox.send(1, 0, uid, 1000, |_| ()), Ok(true));
                outbox
            })
            .collect();
        let taken = address_space("VmSize") - before;
        let most = if is_limited { 8 << 10 } else { 24 << 10 };
        assert!(
            taken < most,
            "{taken} KiB for {FIRST} senders, named: {named}, limited: {is_limited}"
        );
        drop((senders, inbox));
        assert!(address_space("VmSize") < before + 1024, "all is unmapped");
    }
}

/// A sender and the receiver use every ring, those of parts that were created later as well.
#[test]
fn rings_are_made_before_they_run_out() {
    let _alone = alone();
    for named in [false, true] {
        let mut inbox = Inbox::create(named).unwrap();
        let doorbell = inbox.doorbell();
        let mut senders = Vec::new();
        let mut waited = 0;
        while senders.len() < RINGS {
            match open(&inbox, senders.len() as u64) {
                Ok(outbox) => senders.push(outbox),
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::WouldBlock);
                    assert!(doorbell.has_new_ring(), "the receiver is signaled");
                    assert_eq!(inbox.accept(&doorbell).len(), FIRST << waited.max(1) >> 1);
                    waited += 1;
                }
            }
        }
        assert_eq!(
            waited,
            (RINGS / FIRST).ilog2() as usize,
            "all were taken so often"
        );
        assert_eq!(
            open(&inbox, 5000).err().map(|e| e.kind()),
            Some(ErrorKind::WouldBlock)
        );
        let last = inbox.accept(&doorbell);
        assert!(
            last.iter()
                .all(|(index, _)| (RINGS / 2..RINGS).contains(index))
        );
        for (index, sender) in last {
            let outbox = &mut senders[sender.uid as usize];
            // SAFETY: the record has room for a byte.
            let fill = |dst: *mut u8| unsafe { dst.write(7) };
            assert_eq!(outbox.send(1, 0, sender.uid, 1, fill), Ok(true));
            // SAFETY: its only consumer, dropped before the inbox.
            let mut consumer = unsafe { Consumer::new(inbox.ring(index)) };
            let message = consumer.peek().unwrap().unwrap();
            assert_eq!((message.imm, message.len), (sender.uid, 1));
        }
    }
}

/// A polling receiver creates rings before they run out: no sender has to wait.
#[test]
fn a_receiver_that_looks_is_ahead() {
    let _alone = alone();
    let mut inbox = Inbox::create(false).unwrap();
    let doorbell = inbox.doorbell();
    let mut senders = Vec::new();
    for uid in 0..RINGS as u64 {
        senders.push(open(&inbox, uid).unwrap());
        assert_eq!(inbox.accept(&doorbell).len(), 1);
    }
}
