//! Edata tags: the byte in an MRQ notice that names the operation.
//!
//! Each operation with a notice has a tag of its own, except reads: when tags run short, reads of one connection share
//! a tag, and complete when all their notices have arrived. So no other field of a notice is relied upon.
#![forbid(unsafe_code)]

use super::completion::Completion;
use super::outstanding::{NONE, Outstanding};

/// Number of tags. The first is never allocated; larger edata values are [`generation_of`]s.
pub const SLOTS: usize = 128;
/// The tag that is never allocated: in a TCQ entry, that of an operation without an edata tag.
pub const NO_SLOT: u64 = 0;
/// The last tag is reserved for the worker's own atomic operation, which cannot wait for a free one.
pub const OWN_SLOT: u8 = SLOTS as u8 - 1;
/// Reads do not share tags while more than this many are free, and only then do reads of several pieces take tags.
const PLENTY: usize = SLOTS / 2;
/// Tags that reads leave for operations that do not share.
const RESERVED: usize = 16;
/// Maximum number of reads that share a tag.
const MOST: u16 = 24;

/// Generation of the n-th connection, from 128 to 255: consecutive connections have different ones.
pub fn generation_of(n: u32) -> u8 {
    SLOTS as u8 + (n % (256 - SLOTS as u32)) as u8
}

/// State of one tag.
#[derive(Clone, Copy, Debug)]
struct EdataTag {
    owner: Option<Completion>,
    /// Notices that are still to come.
    to_come: u16,
    /// A notice has arrived, an error was reported, the tag is sealed, or it is that of the pieces of a list: no
    /// further read joins.
    closed: bool,
    failed: bool,
    /// The reads that share the tag, a list in [`Outstanding`].
    first: u32,
    last: u32,
    count: u16,
    /// The seal of its operations ([`EdataTags::seal`]); 0: none.
    age: u16,
}

const FREE: EdataTag = EdataTag {
    owner: None,
    to_come: 0,
    closed: false,
    failed: false,
    first: NONE,
    last: NONE,
    count: 0,
    age: 0,
};

impl EdataTag {
    /// Whether it belongs to reads, atomic operations or writes by rails of this connection.
    fn is_read_of(&self, conn: u32) -> bool {
        use Completion::{Changes, Reads, Reply};
        matches!(self.owner, Some(Reads(of) | Reply(of) | Changes(of)) if of == conn)
    }
}

/// What a notice with a tag completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagHit {
    /// An operation of this owner, which shares the tag with no other owner.
    One(Completion),
    /// One of several reads of this connection, not the last.
    Part(u32),
    /// The last of several reads of this connection: the first of the list of reads that complete now, and whether all
    /// of them are well.
    All { conn: u32, first: u32, well: bool },
}

/// The tags of one VCQ.
pub struct EdataTags {
    slots: Vec<EdataTag>,
    free: Vec<u8>,
    /// The tag that a read took last; 0 at first, which is never allocated.
    latest: u8,
}

impl EdataTags {
    /// All tags are free but [`NO_SLOT`] and [`OWN_SLOT`], which [`alloc`](Self::alloc) never returns.
    pub fn new() -> EdataTags {
        EdataTags {
            slots: vec![FREE; SLOTS],
            free: (1..OWN_SLOT).rev().collect(),
            latest: 0,
        }
    }

    /// Allocates a tag for an operation.
    pub fn alloc(&mut self, owner: Completion) -> Option<u8> {
        let slot = self.free.pop()?;
        self.slots[usize::from(slot)] = EdataTag {
            owner: Some(owner),
            to_come: 1,
            ..FREE
        };
        Some(slot)
    }

    /// Counts one more notice with this tag, if it is still this owner's. False: it is not.
    pub fn share(&mut self, number: u8, owner: Completion) -> bool {
        let slot = &mut self.slots[usize::from(number)];
        let shared = slot.owner == Some(owner);
        slot.to_come += u16::from(shared);
        shared
    }

    /// Takes the reserved tag. False: the notice of its last operation never came.
    pub fn alloc_own(&mut self) -> bool {
        let slot = &mut self.slots[usize::from(OWN_SLOT)];
        let is_free = slot.owner.is_none();
        *slot = EdataTag {
            owner: Some(Completion::Own),
            to_come: 1,
            ..FREE
        };
        is_free
    }

    /// The tag that one more read of a connection is to use, if there is one.
    fn room(&mut self, conn: u32) -> Option<u8> {
        let joins =
            |s: &EdataTag| s.owner == Some(Completion::Reads(conn)) && !s.closed && s.count < MOST;
        let latest = self.latest;
        if self.free.len() <= PLENTY && joins(&self.slots[usize::from(latest)]) {
            return Some(latest);
        }
        if self.free.len() > RESERVED {
            return self.alloc(Completion::Reads(conn)).inspect(|&slot| {
                // The read that joins is counted by the caller.
                self.slots[usize::from(slot)].to_come = 0;
            });
        }
        let any = self.slots.iter().position(joins)?;
        Some(any as u8)
    }

    /// Takes a tag for a read: of its own, or one that it shares.
    pub fn join(&mut self, conn: u32, read: u32, all: &mut Outstanding) -> Option<u8> {
        let number = self.room(conn)?;
        self.latest = number;
        let slot = &mut self.slots[usize::from(number)];
        (slot.to_come, slot.count) = (slot.to_come + 1, slot.count + 1);
        match slot.last {
            NONE => slot.first = read,
            last => all.chain_behind(last, read),
        }
        slot.last = read;
        Some(number)
    }

    /// Takes a tag for a read of several pieces, each of which has a notice. `None`: tags run short; the others are for
    /// reads that share them, and for operations that do not.
    pub fn alloc_pieces(&mut self, conn: u32, read: u32, notices: u16) -> Option<u8> {
        if self.free.len() <= PLENTY {
            return None;
        }
        let number = self.alloc(Completion::Reads(conn))?;
        let slot = &mut self.slots[usize::from(number)];
        (slot.to_come, slot.closed, slot.count) = (notices, true, 1);
        (slot.first, slot.last) = (read, read);
        Some(number)
    }

    /// A notice with this tag has arrived, well or not.
    pub fn complete(&mut self, edata: u64, well: bool) -> Option<TagHit> {
        let number = usize::try_from(edata).ok()?;
        let slot = self.slots.get_mut(number)?;
        let owner = slot.owner?;
        slot.to_come -= 1;
        (slot.closed, slot.failed) = (true, slot.failed || !well);
        let hit = match owner {
            Completion::Reads(conn) if slot.to_come > 0 => TagHit::Part(conn),
            Completion::Reads(conn) => TagHit::All {
                conn,
                first: slot.first,
                well: !slot.failed,
            },
            owner => TagHit::One(owner),
        };
        if slot.to_come == 0 {
            *slot = FREE;
            if number != usize::from(OWN_SLOT) {
                self.free.push(number as u8);
            }
        }
        Some(hit)
    }

    /// Gives the tags of outstanding reads and atomic operations of a connection this age, except those that have one:
    /// no later read joins them. Ages count from 1, modulo 2^16, without 0.
    pub fn seal(&mut self, conn: u32, age: u16) {
        for slot in self.slots.iter_mut().filter(|s| s.is_read_of(conn)) {
            slot.closed = true;
            if slot.age == 0 {
                slot.age = age;
            }
        }
    }

    /// Whether a read or an atomic operation of a connection is outstanding that has this age or an earlier one.
    pub fn has_sealed(&self, conn: u32, age: u16) -> bool {
        let is_older = |s: &EdataTag| s.age != 0 && age.wrapping_sub(s.age) as i16 >= 0;
        let mut slots = self.slots.iter();
        slots.any(|s| is_older(s) && s.is_read_of(conn))
    }

    /// The operation that the notice with this tag belongs to.
    pub fn owner(&self, edata: u64) -> Option<Completion> {
        self.slots.get(usize::try_from(edata).ok()?)?.owner
    }

    /// The operations that own tags.
    pub fn owners(&self) -> impl Iterator<Item = &Completion> {
        self.slots.iter().filter_map(|slot| slot.owner.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::super::outstanding::OutstandingOp;
    use super::*;

    fn read(conn: u32, slots: &mut EdataTags, all: &mut Outstanding) -> Option<(u8, u32)> {
        let read = all.insert(OutstandingOp::failed_requests(conn));
        let slot = slots.join(conn, read, all);
        if slot.is_none() {
            all.remove(read);
        }
        slot.map(|slot| (slot, read))
    }

    #[test]
    fn reads_share_when_numbers_run_short_and_others_do_not() {
        let (mut slots, mut all) = (EdataTags::new(), Outstanding::default());
        let mut under_way = Vec::new();
        while let Some(one) = read(7, &mut slots, &mut all) {
            under_way.push(one);
        }
        assert!(under_way.len() >= 1024, "{} reads", under_way.len());
        for n in 0..RESERVED as u32 {
            assert!(slots.alloc(Completion::Flush(n)).is_some(), "number {n}");
        }
        assert_eq!(slots.alloc(Completion::Flush(99)), None);
        let mut ended = Vec::new();
        for &(slot, _) in &under_way {
            match slots.complete(slot.into(), true) {
                Some(TagHit::Part(7)) => {}
                Some(TagHit::All {
                    conn: 7,
                    first,
                    well: true,
                }) => all.take_all(first, |read| ended.push(read.conn)),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(ended.len(), under_way.len());
    }

    #[test]
    fn pieces_have_a_tag_of_their_own_which_ends_with_the_last_notice() {
        let (mut slots, mut all) = (EdataTags::new(), Outstanding::default());
        let list = all.insert(OutstandingOp::failed_requests(7));
        let pieces = slots.alloc_pieces(7, list, 3).expect("one");
        while let Some((slot, _)) = read(7, &mut slots, &mut all) {
            assert_ne!(slot, pieces);
        }
        assert_eq!(slots.alloc_pieces(7, list, 3), None, "tags run short");
        for well in [true, false] {
            assert_eq!(slots.complete(pieces.into(), well), Some(TagHit::Part(7)));
        }
        let (conn, first, well) = (7, list, false);
        let last = TagHit::All { conn, first, well };
        assert_eq!(slots.complete(pieces.into(), true), Some(last));
        assert_eq!(slots.owner(pieces.into()), None);
    }

    #[test]
    fn pieces_leave_tags_for_reads_of_every_connection() {
        let (mut slots, mut all) = (EdataTags::new(), Outstanding::default());
        let list = all.insert(OutstandingOp::failed_requests(7));
        while slots.alloc_pieces(7, list, 2).is_some() {}
        let single = (0..1000).filter(|_| read(7, &mut slots, &mut all).is_some());
        assert_eq!(single.count(), 1000);
        assert!(read(8, &mut slots, &mut all).is_some());
    }

    #[test]
    fn a_slot_is_free_after_the_last_notice() {
        let mut slots = EdataTags::new();
        let (mine, other) = (Completion::Changes(3), Completion::Changes(4));
        let slot = slots.alloc(mine).expect("one");
        assert!(slots.share(slot, mine) && !slots.share(slot, other));
        assert_eq!(slots.complete(slot.into(), true), Some(TagHit::One(mine)));
        assert_eq!(slots.owners().count(), 1);
        assert_eq!(slots.complete(slot.into(), true), Some(TagHit::One(mine)));
        assert_eq!(slots.complete(slot.into(), true), None);
        assert!(!slots.share(slot, mine));
    }

    #[test]
    fn the_own_one_is_always_there() {
        let mut slots = EdataTags::new();
        while slots.alloc(Completion::Flush(1)).is_some() {}
        for _ in 0..2 {
            assert!(slots.alloc_own() && !slots.alloc_own());
            let hit = slots.complete(OWN_SLOT.into(), true);
            assert_eq!(hit, Some(TagHit::One(Completion::Own)));
        }
        assert_eq!(slots.alloc(Completion::Flush(2)), None);
    }

    #[test]
    fn a_started_or_foreign_tag_is_not_shared() {
        let (mut slots, mut all) = (EdataTags::new(), Outstanding::default());
        let mut shared = None;
        let mut last = 0;
        while shared.is_none() {
            let (slot, _) = read(1, &mut slots, &mut all).expect("room");
            shared = (slot == last).then_some(slot);
            last = slot;
        }
        let shared = shared.expect("found");
        assert_ne!(read(2, &mut slots, &mut all).expect("room").0, shared);
        assert_eq!(slots.complete(shared.into(), false), Some(TagHit::Part(1)));
        assert_ne!(read(1, &mut slots, &mut all).expect("room").0, shared);
        let last = slots.complete(shared.into(), true);
        assert!(
            matches!(
                last,
                Some(TagHit::All {
                    conn: 1,
                    well: false,
                    ..
                })
            ),
            "{last:?}"
        );
        assert_eq!(slots.complete(shared.into(), true), None);
    }

    #[test]
    fn a_sealed_one_is_joined_no_more_and_older_than_later_ones() {
        let (mut slots, mut all) = (EdataTags::new(), Outstanding::default());
        let mut last = 0;
        // Until two reads share a tag.
        let shared = loop {
            let (slot, _) = read(1, &mut slots, &mut all).expect("room");
            if slot == last {
                break slot;
            }
            last = slot;
        };
        let other = slots.alloc(Completion::Changes(2)).expect("one");
        slots.seal(1, u16::MAX);
        assert!(slots.has_sealed(1, u16::MAX) && !slots.has_sealed(1, u16::MAX - 1));
        // The age after the largest one is 1.
        assert!(slots.has_sealed(1, 1) && !slots.has_sealed(2, 1));
        let (later, _) = read(1, &mut slots, &mut all).expect("room");
        assert_ne!(later, shared);
        slots.seal(1, 1);
        slots.seal(2, 1);
        for slot in 1..OWN_SLOT {
            if ![later, other].contains(&slot) {
                while slots.complete(slot.into(), true).is_some() {}
            }
        }
        assert!(!slots.has_sealed(1, u16::MAX) && slots.has_sealed(1, 1));
        assert!(slots.has_sealed(2, 1) && !slots.has_sealed(2, u16::MAX));
        slots.complete(later.into(), true);
        assert!(!slots.has_sealed(1, 1));
    }
}
