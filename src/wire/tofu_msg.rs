//! What two workers write into each other's memory over the Tofu interconnect before they talk: tickets, greetings,
//! grants.
//!
//! Each worker has a hall. Who wants to talk to it takes a ticket there, an atomic addition by the adapter, and writes
//! its greeting into the place of that number, as soon as few enough wait: no greeting is written over another one, and
//! as many arrive as the hall has places. A ticket is good once. The answer is a grant: a ring for the frames of one
//! direction, in the memory of who reads them.
#![forbid(unsafe_code)]

use super::le_struct::packed;

/// Places of a hall.
pub const PLACES: u32 = 64;
/// Bytes of a place; the first ones lie behind the word of the tickets and those that were served.
pub const PLACE: usize = 256;
/// Where the places begin in a hall, bytes.
pub const PLACES_AT: usize = 256;
/// Bytes of a hall.
pub const HALL: usize = PLACES_AT + PLACES as usize * PLACE;
/// Bytes of a cell, which each sender has for each ring that it writes to: how far the reader is, and the grant.
pub const CELL: usize = 64;
/// Where a reader that goes says so in a cell, by the proof of the grant and [`LEFT`], bytes.
pub const LEFT_AT: usize = 8;
/// What no proof has.
pub const LEFT: u64 = 1 << 32;
/// Where the grant lies in a cell, bytes.
pub const GRANT_AT: usize = 32;
/// One more was served: the upper half of a hall's word counts those, the lower half tickets.
pub const SERVED: u64 = 1 << 32;

/// The word of a hall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketWord {
    /// Tickets taken, modulo 2^32: the next one's number.
    pub tickets: u32,
    /// Of how many the places are free again.
    pub served: u32,
}

impl TicketWord {
    pub fn read(word: u64) -> TicketWord {
        TicketWord {
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

    /// Tickets that were taken and not served, if more than there are places for.
    pub fn max_waiting(self) -> Option<u32> {
        let waiting = self.tickets.wrapping_sub(self.served);
        (waiting > PLACES && !self.is_past(self.tickets)).then_some(waiting)
    }

    /// What has to be added to the word, of whose hall so many were served, if somebody has written to it who takes no
    /// tickets.
    pub fn repair_word(self, served: u32) -> u64 {
        match self.served == served {
            false => u64::from(served.wrapping_sub(self.served)) << 32,
            // Tickets are never behind.
            true if self.is_past(self.tickets) => served.wrapping_sub(self.tickets).into(),
            true => 0,
        }
    }
}

/// Which tickets of a hall were served, as its owner knows it.
#[derive(Clone, Debug, Default)]
pub struct TicketTracker {
    /// All before this one, modulo 2^32.
    served: u32,
    /// Which of the [`PLACES`] from that one on.
    ahead: u64,
}

impl TicketTracker {
    /// The place of this number has been read: how many tickets more than before have been served with all before them.
    pub fn serve(&mut self, place: u32) -> u32 {
        let offset = place.wrapping_sub(self.served) % PLACES;
        self.ahead |= 1 << offset;
        let more = self.ahead.trailing_ones();
        self.ahead = self.ahead.checked_shr(more).unwrap_or(0);
        self.served = self.served.wrapping_add(more);
        more
    }

    /// So many tickets, [`PLACES`] or more, are served though nobody has come.
    pub fn skip(&mut self, tickets: u32) {
        debug_assert!(tickets >= PLACES);
        self.served = self.served.wrapping_add(tickets);
        self.ahead = 0;
    }

    /// All before this ticket were served.
    pub fn served(&self) -> u32 {
        self.served
    }

    /// Whether the place of this number is awaited from who has this ticket.
    pub fn expects(&self, ticket: u32, place: u32) -> bool {
        let offset = ticket.wrapping_sub(self.served);
        ticket % PLACES == place && offset < PLACES && self.ahead >> offset & 1 == 0
    }

    /// The ticket whose place this is now.
    pub fn ticket(&self, place: u32) -> u32 {
        let offset = place.wrapping_sub(self.served) % PLACES;
        self.served.wrapping_add(offset)
    }

    /// The places of the window whose tickets were not served, the first one first.
    pub fn missing(&self) -> Vec<u32> {
        let offsets = (0..PLACES).filter(|offset| self.ahead >> offset & 1 == 0);
        let places = offsets.map(|offset| self.served.wrapping_add(offset) % PLACES);
        places.collect()
    }

    /// The place whose ticket holds the others up.
    pub fn outstanding(&self) -> u32 {
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

/// Rails of a worker, at most: one for each of the machine's network interfaces but that of its first queue.
pub const MOST_RAILS: usize = 5;

/// The virtual control queues of a worker's rails, in their order. None has the number 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RailVcqs([u64; MOST_RAILS]);

impl RailVcqs {
    /// The first [`MOST_RAILS`] of these.
    pub fn of(vcqs: impl Iterator<Item = u64>) -> RailVcqs {
        let mut rails = RailVcqs::default();
        for (rail, vcq) in rails.0.iter_mut().zip(vcqs) {
            *rail = vcq;
        }
        rails
    }

    /// Those that there are.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().copied().take_while(|&vcq| vcq != 0)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.iter().count()
    }
}

/// "rucp-tf2": raised with the format.
const MAGIC: u64 = u64::from_le_bytes(*b"rucp-tf2");

packed! {
    /// How a worker asks for a ring.
    Greeting, 124 {
        magic: u64,
        /// The sender's worker.
        from: u64,
        /// The worker that it wants.
        to: u64,
        /// From the address of that worker.
        secret: u64,
        /// What the receiver presents in a greeting of its own.
        back: u64,
        /// The sender's virtual control queue, and the steering addresses there of its hall and of the cell for this
        /// ring.
        vcq: u64,
        hall: u64,
        cell: u64,
        /// What the grant has to present.
        proof: u32,
        /// How often the sender had lost that worker before.
        losses: u32,
        /// The ticket.
        ticket: u32,
        /// Longest frame that the sender writes, bytes.
        packet: u32,
        /// The sender's [`super::address::TofuLocator::number`].
        number: u32,
        /// The sender's rails.
        rail_0: u64,
        rail_1: u64,
        rail_2: u64,
        rail_3: u64,
        rail_4: u64,
    } valid when |g| g.magic == MAGIC
}

impl Greeting {
    pub const fn magic() -> u64 {
        MAGIC
    }

    pub fn rails(&self) -> RailVcqs {
        RailVcqs([
            self.rail_0,
            self.rail_1,
            self.rail_2,
            self.rail_3,
            self.rail_4,
        ])
    }

    pub fn set_rails(&mut self, rails: RailVcqs) {
        [
            self.rail_0,
            self.rail_1,
            self.rail_2,
            self.rail_3,
            self.rail_4,
        ] = rails.0;
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
            let turn = TicketWord::read(u64::from(served) << 32 | 7);
            assert_eq!(turn, TicketWord { tickets: 7, served });
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
        let mut turns = TicketTracker::default();
        for round in 0..5 {
            let first = round * 37 % PLACES;
            assert_eq!(turns.outstanding(), first);
            for early in (1..37).rev() {
                assert_eq!(turns.serve((first + early) % PLACES), 0);
            }
            assert_eq!(turns.serve(first), 37);
        }
        for place in 1..PLACES {
            assert_eq!(turns.serve((turns.outstanding() + place) % PLACES), 0);
        }
        assert_eq!(turns.missing(), [turns.outstanding()]);
        assert_eq!(turns.serve(turns.outstanding()), PLACES, "all at once");
        assert_eq!(turns.missing().len(), PLACES as usize);
    }

    #[test]
    fn a_ticket_is_good_once() {
        let mut turns = TicketTracker::default();
        turns.skip(u32::MAX - 10);
        for ticket in (0..200u32).map(|n| (u32::MAX - 10).wrapping_add(n)) {
            let place = ticket % PLACES;
            assert!(turns.expects(ticket, place) && turns.ticket(place) == ticket);
            assert!(!turns.expects(ticket, (place + 1) % PLACES), "elsewhere");
            assert!(!turns.expects(ticket.wrapping_add(PLACES), place), "early");
            turns.serve(place);
            assert!(!turns.expects(ticket, place), "again");
        }
        turns.serve((turns.served() + 3) % PLACES);
        let ahead = turns.served() + 3;
        assert!(!turns.expects(ahead, ahead % PLACES));
    }

    #[test]
    fn whatever_is_written_into_the_word_is_amended() {
        let served = 0xFFFF_FFF0;
        let honest = [0, 5, 1000].map(|n: u32| TicketWord {
            tickets: n.wrapping_add(served),
            served,
        });
        for turn in honest {
            assert_eq!(turn.repair_word(served), 0);
        }
        for word in [
            0,
            1,
            1 << 30,
            1 << 31,
            1 << 32,
            u64::MAX,
            0x8000_0000_8000_0000,
            5 << 52,
        ] {
            let mut word: u64 = word;
            let amended = (0..3).any(|_| {
                let amends = TicketWord::read(word).repair_word(served);
                word = word.wrapping_add(amends);
                amends == 0
            });
            let turn = TicketWord::read(word);
            assert!(amended && turn.served == served, "{word:#x}");
            assert!(!turn.is_past(turn.tickets));
        }
    }

    #[test]
    fn a_crowd_is_more_than_there_are_places() {
        let crowd = |tickets, served| TicketWord { tickets, served }.max_waiting();
        assert_eq!(crowd(64, 0), None);
        assert_eq!(crowd(65, 0), Some(65));
        assert_eq!(crowd(100, u32::MAX), Some(101));
        assert_eq!(crowd(0, 5), None);
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
            packet: 12,
            number: 13,
            rail_0: 14,
            rail_1: 15,
            rail_2: 0,
            rail_3: 0,
            rail_4: 0,
        };
        assert_eq!(greeting.rails(), RailVcqs::of([14, 15].into_iter()));
        assert_eq!(greeting.rails().iter().collect::<Vec<_>>(), [14, 15]);
        let mut other = greeting;
        other.set_rails(RailVcqs::default());
        assert_eq!(other.rails().count(), 0);
        let mut bytes = greeting.encode();
        assert_eq!(Greeting::decode(&bytes), Some(greeting));
        for n in 0..bytes.len() {
            assert_eq!(Greeting::decode(&bytes[..n]), None);
        }
        bytes[0] ^= 1;
        assert_eq!(Greeting::decode(&bytes), None);
    }
}
