//! Claims that were never announced, and rings that are created for senders that find none free.

use super::*;
use crate::tl::shm::memory::FIRST_RINGS;

/// Processes that die between claim and announcement leave claims.
#[test]
fn rings_are_made_when_a_sender_finds_none_free() {
    for written in [FIRST_RINGS as u32, u32::MAX] {
        let mut inbox = Inbox::create(false).unwrap();
        let doorbell = inbox.doorbell();
        let sender = RingOwner {
            uid: 1,
            inbox: inbox.locator(),
        };
        let claim = |inbox: &Inbox| inbox.table.claim(&sender, inbox.table.begin_search());
        assert!((0..FIRST_RINGS).all(|_| claim(&inbox).is_some()));
        assert_eq!(claim(&inbox), None);
        for _ in 0..2 {
            assert!(inbox.table.request_rings(written) && doorbell.has_new_ring());
        }
        assert_eq!(inbox.accept(&doorbell), []);
        assert_eq!(inbox.memory.rings(), 2 * FIRST_RINGS);
        assert!(claim(&inbox).is_some());
        // A sender that saw the number of rings before the last growth.
        assert!(inbox.table.request_rings(FIRST_RINGS as u32));
        assert_eq!(inbox.accept(&doorbell), []);
        assert_eq!(inbox.memory.rings(), 2 * FIRST_RINGS);
    }
}

/// More senders than there are entries announce their rings before the receiver looks once, and none is missed.
#[test]
fn all_rings_of_many_senders_are_accepted_at_once() {
    const SENDERS: usize = STARTS + 70;
    let mut inbox = Inbox::create(false).unwrap();
    let doorbell = inbox.doorbell();
    (0..SENDERS).for_each(|_| doorbell.expect_one());
    assert_eq!(doorbell.expected(), SENDERS);
    assert_eq!(inbox.accept(&doorbell), []);
    assert!(inbox.memory.rings() >= SENDERS);
    let owner = |uid| RingOwner {
        uid,
        inbox: inbox.locator(),
    };
    for uid in 0..SENDERS as u64 {
        let search = inbox.table.begin_search();
        inbox.table.prefetch_for_sender(search);
        let index = inbox.table.claim(&owner(uid), search).unwrap();
        assert_eq!(index as u64, uid);
        inbox.table.announce(index);
    }
    let accepted = inbox.accept(&doorbell);
    let uids = (accepted.iter()).map(|(index, sender)| (*index as u64, sender.uid));
    assert!(uids.eq((0..SENDERS as u64).map(|uid| (uid, uid))));
    assert!(!doorbell.has_new_ring());
    assert_eq!(inbox.accept(&doorbell), []);
}

#[test]
fn a_ring_that_there_is_not_is_not_accepted() {
    let mut inbox = Inbox::create(false).unwrap();
    let doorbell = inbox.doorbell();
    for index in [FIRST_RINGS, STARTS, RINGS - 1] {
        inbox.table.announce(index);
    }
    assert_eq!(inbox.accept(&doorbell), []);
}
