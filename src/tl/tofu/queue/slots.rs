//! Operations whose notices somebody waits for: a byte in the notice says which.
//!
//! Everything that waits has a number of its own, but for reads: when numbers run short, several of one connection
//! share one, and end when the notices of all of them have come. So nothing else in a notice need be relied upon.
#![forbid(unsafe_code)]

use super::event::Owner;
use super::under_way::{NONE, UnderWay};

/// Operations that can be told apart. The first is nobody's, the numbers behind are [`colour`]s.
pub const SLOTS: usize = 128;
pub const NO_SLOT: u64 = 0;
/// The last is kept for the worker's own atomic operation, which cannot wait for another's end.
pub const OWN_SLOT: u8 = SLOTS as u8 - 1;
/// As long as so many are free reads do not share.
const PLENTY: usize = SLOTS / 2;
/// So many are kept for what does not share.
const RESERVED: usize = 16;
/// Reads that share one, at most.
const MOST: u16 = 24;

/// The colour of the n-th connection: those that are under way at the same time, and those that have just ended, have
/// others.
pub fn colour(n: u32) -> u8 {
    SLOTS as u8 + (n % (256 - SLOTS as u32)) as u8
}

/// One number's.
#[derive(Clone, Copy, Debug)]
struct Slot {
    owner: Option<Owner>,
    /// Notices that are still to come.
    to_come: u16,
    /// Some have come, or have told of a failure: nobody joins any more.
    closed: bool,
    failed: bool,
    /// The reads that share it, linked by [`UnderWay`].
    first: u32,
    last: u32,
    count: u16,
}

const FREE: Slot = Slot {
    owner: None,
    to_come: 0,
    closed: false,
    failed: false,
    first: NONE,
    last: NONE,
    count: 0,
};

/// Whose a notice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// It is its owner's, who shares with nobody else.
    One(Owner),
    /// One of several reads of this connection: not the last.
    Part(u32),
    /// The last of them: the first of those that end now, whether all of them are well.
    All { link: u32, first: u32, well: bool },
}

/// A queue's.
pub struct Slots {
    slots: Vec<Slot>,
    free: Vec<u8>,
    /// The one that a read has taken last: 0 at first, which is nobody's.
    latest: u8,
}

impl Slots {
    pub fn new() -> Slots {
        Slots {
            slots: vec![FREE; SLOTS],
            free: (1..OWN_SLOT).rev().collect(),
            latest: 0,
        }
    }

    /// The byte that the owner's notice is to have.
    pub fn take(&mut self, owner: Owner) -> Option<u8> {
        let slot = self.free.pop()?;
        self.slots[usize::from(slot)] = Slot {
            owner: Some(owner),
            to_come: 1,
            ..FREE
        };
        Some(slot)
    }

    /// One more notice is to have this byte, if it is this owner's still.
    pub fn share(&mut self, number: u8, owner: Owner) -> bool {
        let slot = &mut self.slots[usize::from(number)];
        let shared = slot.owner == Some(owner);
        slot.to_come += u16::from(shared);
        shared
    }

    /// Takes the byte that is kept for it. False: the notice of the last one never came.
    pub fn take_own(&mut self) -> bool {
        let slot = &mut self.slots[usize::from(OWN_SLOT)];
        let is_free = slot.owner.is_none();
        *slot = Slot {
            owner: Some(Owner::Own),
            to_come: 1,
            ..FREE
        };
        is_free
    }

    /// Where one more read of a connection finds room, if it does.
    fn room(&mut self, link: u32) -> Option<u8> {
        let joins = |s: &Slot| s.owner == Some(Owner::Reads(link)) && !s.closed && s.count < MOST;
        let latest = self.latest;
        if self.free.len() <= PLENTY && joins(&self.slots[usize::from(latest)]) {
            return Some(latest);
        }
        if self.free.len() > RESERVED {
            return self.take(Owner::Reads(link)).inspect(|&slot| {
                // Counted by who joins.
                self.slots[usize::from(slot)].to_come = 0;
            });
        }
        let any = self.slots.iter().position(joins)?;
        Some(any as u8)
    }

    /// The byte that the notice of a read is to have.
    pub fn join(&mut self, link: u32, read: u32, all: &mut UnderWay) -> Option<u8> {
        let number = self.room(link)?;
        self.latest = number;
        let slot = &mut self.slots[usize::from(number)];
        (slot.to_come, slot.count) = (slot.to_come + 1, slot.count + 1);
        match slot.last {
            NONE => slot.first = read,
            last => all.link_behind(last, read),
        }
        slot.last = read;
        Some(number)
    }

    /// A notice with this byte has come, well or not.
    pub fn end(&mut self, edata: u64, well: bool) -> Option<Came> {
        let number = usize::try_from(edata).ok()?;
        let slot = self.slots.get_mut(number)?;
        let owner = slot.owner?;
        slot.to_come -= 1;
        (slot.closed, slot.failed) = (true, slot.failed || !well);
        let came = match owner {
            Owner::Reads(link) if slot.to_come > 0 => Came::Part(link),
            Owner::Reads(link) => Came::All {
                link,
                first: slot.first,
                well: !slot.failed,
            },
            owner => Came::One(owner),
        };
        if slot.to_come == 0 {
            *slot = FREE;
            if number != usize::from(OWN_SLOT) {
                self.free.push(number as u8);
            }
        }
        Some(came)
    }

    /// Whose the notice with this byte is.
    pub fn owner(&self, edata: u64) -> Option<Owner> {
        self.slots.get(usize::try_from(edata).ok()?)?.owner
    }

    /// Those who wait.
    pub fn owners(&self) -> impl Iterator<Item = &Owner> {
        self.slots.iter().filter_map(|slot| slot.owner.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::super::under_way::Operation;
    use super::*;

    fn read(link: u32, slots: &mut Slots, all: &mut UnderWay) -> Option<(u8, u32)> {
        let read = all.insert(Operation::nobodys(link));
        let slot = slots.join(link, read, all);
        if slot.is_none() {
            all.remove(read);
        }
        slot.map(|slot| (slot, read))
    }

    #[test]
    fn reads_share_when_numbers_run_short_and_others_do_not() {
        let (mut slots, mut all) = (Slots::new(), UnderWay::default());
        let mut under_way = Vec::new();
        while let Some(one) = read(7, &mut slots, &mut all) {
            under_way.push(one);
        }
        assert!(under_way.len() >= 1024, "{} reads", under_way.len());
        for n in 0..RESERVED as u32 {
            assert!(slots.take(Owner::Flush(n)).is_some(), "number {n}");
        }
        assert_eq!(slots.take(Owner::Flush(99)), None);
        let mut ended = Vec::new();
        for &(slot, _) in &under_way {
            match slots.end(slot.into(), true) {
                Some(Came::Part(7)) => {}
                Some(Came::All {
                    link: 7,
                    first,
                    well: true,
                }) => all.take_all(first, |read| ended.push(read.link)),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(ended.len(), under_way.len());
    }

    #[test]
    fn a_slot_is_free_after_the_last_notice() {
        let mut slots = Slots::new();
        let (mine, other) = (Owner::Changes(3), Owner::Changes(4));
        let slot = slots.take(mine).expect("one");
        assert!(slots.share(slot, mine) && !slots.share(slot, other));
        assert_eq!(slots.end(slot.into(), true), Some(Came::One(mine)));
        assert_eq!(slots.owners().count(), 1);
        assert_eq!(slots.end(slot.into(), true), Some(Came::One(mine)));
        assert_eq!(slots.end(slot.into(), true), None);
        assert!(!slots.share(slot, mine));
    }

    #[test]
    fn the_own_one_is_always_there() {
        let mut slots = Slots::new();
        while slots.take(Owner::Flush(1)).is_some() {}
        for _ in 0..2 {
            assert!(slots.take_own() && !slots.take_own());
            let came = slots.end(OWN_SLOT.into(), true);
            assert_eq!(came, Some(Came::One(Owner::Own)));
        }
        assert_eq!(slots.take(Owner::Flush(2)), None);
    }

    #[test]
    fn nobody_joins_those_of_whom_some_have_ended_or_another_connection() {
        let (mut slots, mut all) = (Slots::new(), UnderWay::default());
        let mut shared = None;
        let mut last = 0;
        while shared.is_none() {
            let (slot, _) = read(1, &mut slots, &mut all).expect("room");
            shared = (slot == last).then_some(slot);
            last = slot;
        }
        let shared = shared.expect("found");
        assert_ne!(read(2, &mut slots, &mut all).expect("room").0, shared);
        assert_eq!(slots.end(shared.into(), false), Some(Came::Part(1)));
        assert_ne!(read(1, &mut slots, &mut all).expect("room").0, shared);
        let last = slots.end(shared.into(), true);
        assert!(
            matches!(
                last,
                Some(Came::All {
                    link: 1,
                    well: false,
                    ..
                })
            ),
            "{last:?}"
        );
        assert_eq!(slots.end(shared.into(), true), None);
    }
}
