//! The order of packets, where a provider does not promise it.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Packets that are kept ahead of a missing one; a peer that sends more of them fails.
const MAX_EARLY: u32 = 4096;

/// The packets of one peer. Numbers are modulo 2^32.
#[derive(Debug, Default)]
pub struct OfiReorder {
    /// Number of the next packet.
    next: u32,
    /// Packets that arrived early, by their number.
    early: BTreeMap<u32, Box<[u8]>>,
}

/// What the caller does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeqArrival {
    /// It is the next one: handle it, and then those that [`OfiReorder::pop`] returns.
    Now,
    /// It is kept until those before it have arrived.
    Early,
    /// One with this number has arrived before: it is dropped.
    Repeated,
    /// The peer is too far ahead: no provider loses so many packets.
    TooFar,
}

impl OfiReorder {
    /// The next packet has this number.
    pub fn starting_at(next: u32) -> OfiReorder {
        OfiReorder {
            next,
            early: BTreeMap::new(),
        }
    }

    /// A packet with this number has arrived.
    pub fn arrive(&mut self, number: u32, packet: &[u8]) -> SeqArrival {
        let ahead = number.wrapping_sub(self.next);
        match ahead {
            0 => {
                self.next = self.next.wrapping_add(1);
                SeqArrival::Now
            }
            1..=MAX_EARLY => {
                if let Entry::Vacant(entry) = self.early.entry(number) {
                    entry.insert(packet.into());
                    return SeqArrival::Early;
                }
                SeqArrival::Repeated
            }
            _ if ahead > u32::MAX / 2 => SeqArrival::Repeated,
            _ => SeqArrival::TooFar,
        }
    }

    /// Takes the packet with this number, if it is the next one and none behind it has arrived early.
    #[inline(always)]
    pub fn take_next(&mut self, number: u32) -> bool {
        let is_next = number == self.next && self.early.is_empty();
        if is_next {
            self.next = number.wrapping_add(1);
        }
        is_next
    }

    /// Whether all packets before this number have arrived.
    pub fn has_all_before(&self, number: u32) -> bool {
        self.next.wrapping_sub(number) <= u32::MAX / 2
    }

    /// Number of the next packet.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Drops the packets that have arrived early: the peer sends them again.
    pub fn forget_early(&mut self) {
        self.early.clear();
    }

    /// The next packet, if it has arrived early.
    pub fn pop(&mut self) -> Option<Box<[u8]>> {
        let packet = self.early.remove(&self.next)?;
        self.next = self.next.wrapping_add(1);
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_handled_in_the_order_of_their_numbers_each_once() {
        let mut order = OfiReorder::starting_at(u32::MAX);
        assert_eq!(order.arrive(1, b"1"), SeqArrival::Early);
        assert_eq!(order.arrive(0, b"0"), SeqArrival::Early);
        assert_eq!(order.arrive(0, b"x"), SeqArrival::Repeated);
        assert!(order.pop().is_none());
        assert_eq!(order.arrive(u32::MAX, b"m"), SeqArrival::Now);
        assert_eq!(order.pop().as_deref(), Some(&b"0"[..]));
        assert_eq!(order.pop().as_deref(), Some(&b"1"[..]));
        assert!(order.pop().is_none());
        assert_eq!(order.arrive(0, b"again"), SeqArrival::Repeated);
        assert_eq!(order.arrive(2 + MAX_EARLY + 1, b""), SeqArrival::TooFar);
        assert_eq!(order.arrive(2, b"2"), SeqArrival::Now);
        assert!(order.pop().is_none(), "what was refused is not kept");
        assert!(!order.take_next(4) && order.take_next(3) && order.has_all_before(4));
        assert!(order.has_all_before(3) && order.has_all_before(u32::MAX - 7));
        assert!(!order.has_all_before(5));
        assert_eq!(order.arrive(6, b"6"), SeqArrival::Early);
        order.forget_early();
        assert!(
            order.next() == 4 && order.take_next(4) && order.arrive(5, b"5") == SeqArrival::Now
        );
        assert!(order.pop().is_none(), "it is sent again");
    }
}
