//! Sorts datagrams into the order in which they were sent, each once.

use std::collections::VecDeque;

/// The datagrams of one peer. Numbers are modulo 2^32.
#[derive(Default)]
pub struct Reorder {
    /// Number of the next datagram.
    next: u32,
    /// Datagrams behind the next one that arrived early; the first entry is that of the next one.
    ahead: VecDeque<Option<Box<[u8]>>>,
    /// Bytes of all of them.
    held: usize,
    /// Datagrams that arrived early since the next one was last taken.
    early: u32,
}

/// What the caller does with a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The datagram is the next one: handle it.
    Now,
    /// A datagram in front of it is missing: it is kept, or dropped if it is too far ahead.
    Early,
    /// The datagram arrived before: drop it.
    Again,
}

impl Reorder {
    /// Handles the arrival of a datagram with this number; `most`: how many may be kept ahead of the next.
    pub fn arrive(&mut self, number: u32, bytes: &[u8], most: u32) -> Arrival {
        let ahead = number.wrapping_sub(self.next);
        if ahead == 0 {
            self.step();
            return Arrival::Now;
        }
        if ahead > u32::MAX / 2 {
            return Arrival::Again;
        }
        self.early += 1;
        if ahead <= most {
            let place = ahead as usize;
            if self.ahead.len() <= place {
                self.ahead.resize_with(place + 1, || None);
            }
            let kept = &mut self.ahead[place];
            if kept.is_none() {
                self.held += bytes.len();
                *kept = Some(bytes.into());
            }
        }
        Arrival::Early
    }

    /// Takes the next datagram, if it arrived early.
    pub fn pop(&mut self) -> Option<Box<[u8]>> {
        let bytes = self.ahead.front_mut()?.take()?;
        self.held -= bytes.len();
        self.step();
        Some(bytes)
    }

    /// The number of the first datagram that is kept behind missing ones.
    pub fn gap_end(&self) -> Option<u32> {
        let missing = self.ahead.iter().position(Option::is_some)?;
        Some(self.next.wrapping_add(missing as u32))
    }

    /// [`gap_end`](Self::gap_end), if the last early datagram causes a report: the first one does, the second, the
    /// fourth and so on, because a report may be lost, and each is a datagram.
    pub fn gap_to_report(&self) -> Option<u32> {
        self.gap_end().filter(|_| self.early.is_power_of_two())
    }

    fn step(&mut self) {
        self.next = self.next.wrapping_add(1);
        self.early = 0;
        self.ahead.pop_front();
        // Empty entries only.
        if self.held == 0 {
            self.ahead.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn gaps_are_reported() {
        let mut order = Reorder::default();
        assert_eq!(order.gap_end(), None);
        let mut reports = Vec::new();
        for number in 3..11 {
            assert_eq!(order.arrive(number, b"x", 16), Arrival::Early);
            assert_eq!(order.gap_end(), Some(3));
            reports.extend(order.gap_to_report().map(|_| number));
        }
        assert_eq!(reports, [3, 4, 6, 10]);
        assert_eq!(order.arrive(1, b"x", 16), Arrival::Early);
        assert_eq!(order.gap_end(), Some(1), "0 is missing alone");
        assert_eq!(order.arrive(0, b"x", 16), Arrival::Now);
        assert!(order.pop().is_some() && order.pop().is_none());
        assert_eq!(order.gap_end(), Some(3), "2 is missing");
        assert_eq!(order.arrive(2, b"x", 16), Arrival::Now);
        while order.pop().is_some() {}
        assert_eq!(order.gap_end(), None);
    }

    #[test]
    fn late_and_repeated_ones() {
        let mut order = Reorder::default();
        assert_eq!(order.arrive(1, b"b", 8), Arrival::Early);
        assert_eq!(
            order.arrive(9, b"x", 8),
            Arrival::Early,
            "too far ahead: not kept"
        );
        assert!(order.pop().is_none());
        assert_eq!(order.arrive(0, b"a", 8), Arrival::Now);
        assert_eq!(order.pop().as_deref(), Some(&b"b"[..]));
        assert!(order.pop().is_none());
        assert_eq!(order.arrive(1, b"b", 8), Arrival::Again);
        assert_eq!(order.arrive(2, b"c", 8), Arrival::Now);
    }

    proptest! {
        /// With any loss, repetition and order of arrivals the datagrams come out as sent, in order.
        #[test]
        fn order_is_kept(picks in proptest::collection::vec(0u32..24, 1..400)) {
            let mut order = Reorder { next: u32::MAX - 5, ..Reorder::default() };
            let first = order.next;
            let mut out = Vec::new();
            // Numbers that are sent again until they have arrived, as a sender does.
            for pick in picks {
                let number = first.wrapping_add(out.len() as u32).wrapping_add(pick % 12).wrapping_sub(3);
                let bytes = number.to_le_bytes();
                if order.arrive(number, &bytes, 16) == Arrival::Now {
                    out.push(number);
                }
                while let Some(bytes) = order.pop() {
                    out.push(u32::from_le_bytes((*bytes).try_into().unwrap()));
                }
            }
            for (i, number) in out.iter().enumerate() {
                prop_assert_eq!(*number, first.wrapping_add(i as u32));
            }
        }
    }
}
