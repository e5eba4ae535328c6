//! What two workers write into each other's memory over the Tofu interconnect before they talk: tickets, greetings, grants.
//!
//! Each worker has a hall. Who wants to talk to it takes a ticket there, an atomic addition by the adapter, and writes its greeting
//! into the place of that number, as soon as few enough wait: no greeting is written over another one, and as many arrive
//! as the hall has places. The answer is a grant: a ring for the frames of one direction, in the memory of who reads them.
#![forbid(unsafe_code)]

use super::packed::packed;

/// Places of a hall.
pub const PLACES: u32 = 64;
/// Bytes of a place; the first ones lie behind the word of the tickets and those that were served.
pub const PLACE: usize = 128;
/// Where the places begin in a hall, bytes.
pub const PLACES_AT: usize = 256;
/// Bytes of a hall.
pub const HALL: usize = PLACES_AT + PLACES as usize * PLACE;
/// Bytes of a cell, which each sender has for each ring that it writes to: how far the reader is, and the grant.
pub const CELL: usize = 64;
/// Where the grant lies in a cell, bytes.
pub const GRANT_AT: usize = 32;
/// One more was served: the upper half of a hall's word counts those, the lower half tickets.
pub const SERVED: u64 = 1 << 32;

/// The word of a hall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Tickets taken, modulo 2^32: the next one's number.
    pub tickets: u32,
    /// Of how many the places are free again.
    pub served: u32,
}

impl Turn {
    pub fn read(word: u64) -> Turn {
        Turn {
            tickets: word as u32,
            served: (word >> 32) as u32,
        }
    }

    /// Whether who has this ticket may write.
    pub fn has_come(self, ticket: u32) -> bool {
        ticket.wrapping_sub(self.served) < PLACES || self.is_past(ticket)
    }

    /// Whether the place of this ticket has been served.
    pub fn is_past(self, ticket: u32) -> bool {
        (self.served.wrapping_sub(ticket) as i32) > 0
    }
}

/// Which tickets of a hall were served, as its owner knows it.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    /// All before this one, modulo 2^32.
    served: u32,
    /// Which of the [`PLACES`] from that one on.
    ahead: u64,
}

impl Turns {
    /// The place of this number has been read: how many tickets more than before have been served with all before them.
    pub fn serve(&mut self, place: u32) -> u32 {
        let offset = place.wrapping_sub(self.served) % PLACES;
        self.ahead |= 1 << offset;
        let more = self.ahead.trailing_ones();
        self.ahead = self.ahead.checked_shr(more).unwrap_or(0);
        self.served = self.served.wrapping_add(more);
        more
    }

    /// The places of the window whose tickets were not served, the first one first.
    pub fn missing(&self) -> Vec<u32> {
        let offsets = (0..PLACES).filter(|offset| self.ahead >> offset & 1 == 0);
        let places = offsets.map(|offset| self.served.wrapping_add(offset) % PLACES);
        places.collect()
    }

    /// The place whose ticket holds the others up.
    pub fn awaited(&self) -> u32 {
        self.served % PLACES
    }
}

/// Where the place of a ticket is in a hall, bytes.
pub fn place_at(ticket: u32) -> usize {
    PLACES_AT + (ticket % PLACES) as usize * PLACE
}

/// The place that an address in a hall is in, or at the end of a greeting in; bytes from the hall's beginning.
pub fn place_of(at: usize) -> Option<u32> {
    let place = at.checked_sub(PLACES_AT)? / PLACE;
    u32::try_from(place).ok().filter(|&place| place < PLACES)
}

/// "rucp-tf1": raised with the format.
const MAGIC: u64 = u64::from_le_bytes(*b"rucp-tf1");

packed! {
    /// How a worker asks for a ring.
    Greeting, 88 {
        magic: u64,
        /// The sender's worker.
        from: u64,
        /// The worker that it wants.
        to: u64,
        /// From the address of that worker.
        secret: u64,
        /// What the receiver presents in a greeting of its own.
        back: u64,
        /// The sender's virtual control queue, and the steering addresses there of its hall and of the cell for this ring.
        vcq: u64,
        hall: u64,
        cell: u64,
        /// What the grant has to present.
        proof: u32,
        /// How often the sender had lost that worker before.
        losses: u32,
        /// The ticket.
        ticket: u32,
        /// Longest record in the sender's longest frames, in frames.
        frames: u32,
        /// Longest frame that the sender writes, bytes.
        packet: u32,
        /// The sender's [`super::address::TofuLocator::number`].
        number: u32,
    } valid when |g| g.magic == MAGIC
}

impl Greeting {
    pub const fn magic() -> u64 {
        MAGIC
    }
}

const _: () = assert!(Greeting::SIZE <= PLACE);

packed! {
    /// The answer: rides in a descriptor.
    Grant, 32 {
        /// Steering address of the ring.
        ring: u64,
        /// Of the greeting.
        proof: u32,
        /// Bytes of the ring's memory; 0: there is none.
        size: u32,
        /// Longest frame, bytes.
        packet: u32,
        /// Frames that may be under way or unread.
        window: u32,
        /// [`COUNTED`]
        flags: u32,
        /// Why there is none, a status.
        refusal: i32,
    }
}

/// Flag of a [`Grant`]: no notice comes with a frame, its count is written behind it.
pub const COUNTED: u32 = 1;

const _: () = assert!(GRANT_AT + Grant::SIZE <= CELL);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_come_in_order_and_wrap() {
        for served in [0, 5, u32::MAX - 3] {
            let turn = Turn::read(u64::from(served) << 32 | 7);
            assert_eq!(turn, Turn { tickets: 7, served });
            for ahead in 0..PLACES {
                assert!(turn.has_come(served.wrapping_add(ahead)));
                assert!(!turn.is_past(served.wrapping_add(ahead)));
            }
            assert!(!turn.has_come(served.wrapping_add(PLACES)));
            let before = served.wrapping_sub(1);
            assert!(turn.is_past(before) && turn.has_come(before));
        }
    }

    #[test]
    fn what_comes_early_is_served_with_what_it_waits_for() {
        let mut turns = Turns::default();
        for round in 0..5 {
            let first = round * 37 % PLACES;
            assert_eq!(turns.awaited(), first);
            for early in (1..37).rev() {
                assert_eq!(turns.serve((first + early) % PLACES), 0);
            }
            assert_eq!(turns.serve(first), 37);
        }
        for place in 1..PLACES {
            assert_eq!(turns.serve((turns.awaited() + place) % PLACES), 0);
        }
        assert_eq!(turns.missing(), [turns.awaited()]);
        assert_eq!(turns.serve(turns.awaited()), PLACES, "all at once");
        assert_eq!(turns.missing().len(), PLACES as usize);
    }

    #[test]
    fn greetings_of_strangers_are_none() {
        let greeting = Greeting {
            magic: MAGIC,
            from: 1,
            to: 2,
            secret: 3,
            back: 4,
            vcq: 5,
            hall: 6,
            cell: 7,
            proof: 8,
            losses: 9,
            ticket: 10,
            frames: 11,
            packet: 12,
            number: 13,
        };
        let mut bytes = greeting.encode();
        assert_eq!(Greeting::decode(&bytes), Some(greeting));
        for n in 0..bytes.len() {
            assert_eq!(Greeting::decode(&bytes[..n]), None);
        }
        bytes[0] ^= 1;
        assert_eq!(Greeting::decode(&bytes), None);
    }
}
