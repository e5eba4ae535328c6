//! Messages that two workers write into each other's memory over the Tofu interconnect before a ring exists: tickets,
//! ring requests, grants.
//!
//! Each worker has a ticket queue. A worker that needs a ring takes a ticket there, an atomic addition by the adapter,
//! and writes its request into the slot of that number, once fewer tickets wait than there are slots: no request is
//! overwritten, and as many arrive as the queue has slots. A ticket is valid once. The answer is a grant: a ring for
//! the frames of one direction, in the memory of the process that reads them.
#![forbid(unsafe_code)]

use super::le_struct::packed;

/// Slots of a ticket queue.
pub const TICKET_SLOTS: u32 = 64;
/// Bytes of a slot; in front of the first one is the word with the counts of tickets taken and served.
pub const TICKET_SLOT_BYTES: usize = 256;
/// Offset of the slots in a ticket queue, bytes.
pub const TICKET_SLOTS_AT: usize = 256;
/// Bytes of a ticket queue.
pub const TICKET_QUEUE_BYTES: usize = TICKET_SLOTS_AT + TICKET_SLOTS as usize * TICKET_SLOT_BYTES;
/// Bytes of the control words that a sender has for each ring it writes to: the reader's position, and the grant.
pub const CTRL_BYTES: usize = 64;
/// Offset in the control words where a reader that is destroyed writes the proof of the grant and [`LEFT`], bytes.
pub const LEFT_AT: usize = 8;
/// Bit that is set in no proof.
pub const LEFT: u64 = 1 << 32;
/// Offset of the grant in the control words, bytes.
pub const GRANT_AT: usize = 32;
/// Adds one served ticket: the upper half of the ticket word counts those, the lower half the tickets taken.
pub const SERVED: u64 = 1 << 32;

/// The ticket word: counts of a ticket queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketWord {
    /// Tickets taken, modulo 2^32: the number of the next one.
    pub tickets: u32,
    /// Tickets served, modulo 2^32: their slots are free again.
    pub served: u32,
}

impl TicketWord {
    pub fn read(word: u64) -> TicketWord {
        TicketWord {
            tickets: word as u32,
            served: (word >> 32) as u32,
        }
    }

    /// Whether the holder of this ticket may write its request.
    pub fn has_come(self, ticket: u32) -> bool {
        ticket.wrapping_sub(self.served) < TICKET_SLOTS || self.is_past(ticket)
    }

    /// Whether the slot of this ticket has been served.
    pub fn is_past(self, ticket: u32) -> bool {
        (self.served.wrapping_sub(ticket) as i32) > 0
    }

    /// Number of tickets that were taken and not served, if that is more than there are slots.
    pub fn max_waiting(self) -> Option<u32> {
        let waiting = self.tickets.wrapping_sub(self.served);
        (waiting > TICKET_SLOTS && !self.is_past(self.tickets)).then_some(waiting)
    }

    /// Value to add to the word of a ticket queue with `served` served tickets, to repair writes by a worker that takes
    /// no tickets.
    pub fn repair_word(self, served: u32) -> u64 {
        if self.served != served {
            u64::from(served.wrapping_sub(self.served)) << 32
        } else if self.is_past(self.tickets) {
            // The count of tickets is never less than that of served ones.
            served.wrapping_sub(self.tickets).into()
        } else {
            0
        }
    }
}

/// Which tickets of a ticket queue were served, as its owner counts them.
#[derive(Clone, Debug, Default)]
pub struct TicketTracker {
    /// All tickets before this one were served, modulo 2^32.
    served: u32,
    /// Bit mask of the [`TICKET_SLOTS`] tickets from that one on that were served.
    ahead: u64,
}

impl TicketTracker {
    /// The slot of this number has been read. Returns by how many tickets `served` advances.
    pub fn serve(&mut self, slot: u32) -> u32 {
        let offset = slot.wrapping_sub(self.served) % TICKET_SLOTS;
        self.ahead |= 1 << offset;
        let more = self.ahead.trailing_ones();
        self.ahead = self.ahead.checked_shr(more).unwrap_or(0);
        self.served = self.served.wrapping_add(more);
        more
    }

    /// Marks so many tickets, [`TICKET_SLOTS`] or more, as served though no request has arrived.
    pub fn skip(&mut self, tickets: u32) {
        debug_assert!(tickets >= TICKET_SLOTS);
        self.served = self.served.wrapping_add(tickets);
        self.ahead = 0;
    }

    /// The first ticket that was not served.
    pub fn served(&self) -> u32 {
        self.served
    }

    /// Whether the slot of this number is expected to get the request of this ticket.
    pub fn expects(&self, ticket: u32, slot: u32) -> bool {
        let offset = ticket.wrapping_sub(self.served);
        ticket % TICKET_SLOTS == slot && offset < TICKET_SLOTS && self.ahead >> offset & 1 == 0
    }

    /// The ticket that the slot belongs to now.
    pub fn ticket(&self, slot: u32) -> u32 {
        let offset = slot.wrapping_sub(self.served) % TICKET_SLOTS;
        self.served.wrapping_add(offset)
    }

    /// The slots of the window whose tickets were not served, in the order of the tickets.
    pub fn missing(&self) -> Vec<u32> {
        let offsets = (0..TICKET_SLOTS).filter(|offset| self.ahead >> offset & 1 == 0);
        let slots = offsets.map(|offset| self.served.wrapping_add(offset) % TICKET_SLOTS);
        slots.collect()
    }

    /// The slot whose ticket holds the others up.
    pub fn outstanding(&self) -> u32 {
        self.served % TICKET_SLOTS
    }
}

/// Offset of a ticket's slot in the ticket queue, bytes.
pub fn slot_at(ticket: u32) -> usize {
    TICKET_SLOTS_AT + (ticket % TICKET_SLOTS) as usize * TICKET_SLOT_BYTES
}

/// The slot that contains this offset in a ticket queue, in bytes; the offset may be the end of a request.
pub fn slot_of(at: usize) -> Option<u32> {
    let slot = at.checked_sub(TICKET_SLOTS_AT)? / TICKET_SLOT_BYTES;
    u32::try_from(slot).ok().filter(|&slot| slot < TICKET_SLOTS)
}

/// Most rails of a worker: one for each of the machine's network interfaces but that of its first queue.
pub const MAX_RAILS: usize = 5;

/// The VCQs of a worker's rails, in their order. 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RailVcqs([u64; MAX_RAILS]);

impl RailVcqs {
    /// The first [`MAX_RAILS`] of these, at most up to the first 0.
    pub fn of(vcqs: impl Iterator<Item = u64>) -> RailVcqs {
        let mut rails = RailVcqs::default();
        let vcqs = vcqs.take_while(|&vcq| vcq != 0);
        for (rail, vcq) in rails.0.iter_mut().zip(vcqs) {
            *rail = vcq;
        }
        rails
    }

    /// The VCQs of all rails.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().copied().take_while(|&vcq| vcq != 0)
    }

    /// Number of rails.
    pub fn count(&self) -> usize {
        self.iter().count()
    }
}

/// "rucp-tf2": the digit is incremented when the format changes.
const MAGIC: u64 = u64::from_le_bytes(*b"rucp-tf2");

packed! {
    /// A worker's request for a ring.
    RingRequest, 124 {
        magic: u64,
        /// Uid of the sender's worker.
        from: u64,
        /// Uid of the worker to connect to.
        to: u64,
        /// The secret in the address of that worker.
        secret: u64,
        /// Secret that a ring request of the receiver has to carry.
        back: u64,
        /// The sender's VCQ, and the STADDs there of its ticket queue and of the control words for this ring.
        vcq: u64,
        ticket_queue: u64,
        ctrl_word: u64,
        /// Proof that the grant has to carry.
        proof: u32,
        /// How often the sender had lost that worker before.
        losses: u32,
        /// The ticket.
        ticket: u32,
        /// Longest frame that the sender writes, bytes.
        packet: u32,
        /// The sender's [`crate::tl::tofu::address::TofuLocator::number`].
        number: u32,
        /// VCQs of the sender's rails.
        rail_0: u64,
        rail_1: u64,
        rail_2: u64,
        rail_3: u64,
        rail_4: u64,
    } valid when |g| g.magic == MAGIC
}

impl RingRequest {
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

const _: () = assert!(RingRequest::SIZE <= TICKET_SLOT_BYTES);

packed! {
    /// The answer to a request, sent in a descriptor.
    Grant, 32 {
        /// STADD of the ring.
        ring: u64,
        /// The proof in the request.
        proof: u32,
        /// Bytes of the ring's memory; 0: there is none.
        size: u32,
        /// Longest frame, bytes.
        packet: u32,
        /// Frames that may be in flight or unread.
        window: u32,
        /// [`COUNTED`]
        flags: u32,
        /// A status: why there is no ring.
        refusal: i32,
    }
}

/// Flag of a [`Grant`]: a frame comes without a notice, and its count is written behind it.
pub const COUNTED: u32 = 1;

const _: () = assert!(GRANT_AT + Grant::SIZE <= CTRL_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_come_in_order_and_wrap() {
        for served in [0, 5, u32::MAX - 3] {
            let ticket_word = TicketWord::read(u64::from(served) << 32 | 7);
            assert_eq!(ticket_word, TicketWord { tickets: 7, served });
            for ahead in 0..TICKET_SLOTS {
                assert!(ticket_word.has_come(served.wrapping_add(ahead)));
                assert!(!ticket_word.is_past(served.wrapping_add(ahead)));
            }
            assert!(!ticket_word.has_come(served.wrapping_add(TICKET_SLOTS)));
            let before = served.wrapping_sub(1);
            assert!(ticket_word.is_past(before) && ticket_word.has_come(before));
        }
    }

    #[test]
    fn early_tickets_are_served_with_the_ones_before_them() {
        let mut ticket_tracker = TicketTracker::default();
        for round in 0..5 {
            let first = round * 37 % TICKET_SLOTS;
            assert_eq!(ticket_tracker.outstanding(), first);
            for early in (1..37).rev() {
                assert_eq!(ticket_tracker.serve((first + early) % TICKET_SLOTS), 0);
            }
            assert_eq!(ticket_tracker.serve(first), 37);
        }
        for slot in 1..TICKET_SLOTS {
            assert_eq!(
                ticket_tracker.serve((ticket_tracker.outstanding() + slot) % TICKET_SLOTS),
                0
            );
        }
        assert_eq!(ticket_tracker.missing(), [ticket_tracker.outstanding()]);
        assert_eq!(
            ticket_tracker.serve(ticket_tracker.outstanding()),
            TICKET_SLOTS,
            "all at once"
        );
        assert_eq!(ticket_tracker.missing().len(), TICKET_SLOTS as usize);
    }

    #[test]
    fn a_ticket_is_valid_once() {
        let mut ticket_tracker = TicketTracker::default();
        ticket_tracker.skip(u32::MAX - 10);
        for ticket in (0..200u32).map(|n| (u32::MAX - 10).wrapping_add(n)) {
            let slot = ticket % TICKET_SLOTS;
            assert!(ticket_tracker.expects(ticket, slot) && ticket_tracker.ticket(slot) == ticket);
            assert!(
                !ticket_tracker.expects(ticket, (slot + 1) % TICKET_SLOTS),
                "elsewhere"
            );
            assert!(
                !ticket_tracker.expects(ticket.wrapping_add(TICKET_SLOTS), slot),
                "early"
            );
            ticket_tracker.serve(slot);
            assert!(!ticket_tracker.expects(ticket, slot), "again");
        }
        ticket_tracker.serve((ticket_tracker.served() + 3) % TICKET_SLOTS);
        let ahead = ticket_tracker.served() + 3;
        assert!(!ticket_tracker.expects(ahead, ahead % TICKET_SLOTS));
    }

    #[test]
    fn any_ticket_word_is_repaired() {
        let served = 0xFFFF_FFF0;
        let honest = [0, 5, 1000].map(|n: u32| TicketWord {
            tickets: n.wrapping_add(served),
            served,
        });
        for ticket_word in honest {
            assert_eq!(ticket_word.repair_word(served), 0);
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
                let correction = TicketWord::read(word).repair_word(served);
                word = word.wrapping_add(correction);
                correction == 0
            });
            let ticket_word = TicketWord::read(word);
            assert!(amended && ticket_word.served == served, "{word:#x}");
            assert!(!ticket_word.is_past(ticket_word.tickets));
        }
    }

    #[test]
    fn more_tickets_than_slots_are_a_backlog() {
        let waiting = |tickets, served| TicketWord { tickets, served }.max_waiting();
        assert_eq!(waiting(64, 0), None);
        assert_eq!(waiting(65, 0), Some(65));
        assert_eq!(waiting(100, u32::MAX), Some(101));
        assert_eq!(waiting(0, 5), None);
    }

    #[test]
    fn foreign_ring_requests_are_not_decoded() {
        let request = RingRequest {
            magic: MAGIC,
            from: 1,
            to: 2,
            secret: 3,
            back: 4,
            vcq: 5,
            ticket_queue: 6,
            ctrl_word: 7,
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
        assert_eq!(request.rails(), RailVcqs::of([14, 15].into_iter()));
        assert_eq!(request.rails().iter().collect::<Vec<_>>(), [14, 15]);
        let mut other = request;
        other.set_rails(RailVcqs::default());
        assert_eq!(other.rails().count(), 0);
        let mut bytes = request.encode();
        assert_eq!(RingRequest::decode(&bytes), Some(request));
        for n in 0..bytes.len() {
            assert_eq!(RingRequest::decode(&bytes[..n]), None);
        }
        bytes[0] ^= 1;
        assert_eq!(RingRequest::decode(&bytes), None);
    }
}
