//! Datagrams in the order in which they were sent, each once.

use std::collections::VecDeque;

/// Those of one peer's. Numbers are modulo 2^32.
#[derive(Default)]
pub struct Reorder {
    /// Number of the next one.
    next: u32,
    /// Those behind it that came earlier; the first place is that of the next.
    ahead: VecDeque<Option<Box<[u8]>>>,
    /// Bytes that they have together.
    held: usize,
}

/// What is to be done with a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It is the next one.
    Now,
    /// It is kept, or dropped where that would be too much: one in front of it is missing.
    Early,
    /// It has been here before.
    Again,
}

impl Reorder {
    /// A datagram with this number arrives; `most`: how many may be ahead of the next.
    pub fn arrive(&mut self, number: u32, bytes: &[u8], most: u32) -> Arrival {
        let ahead = number.wrapping_sub(self.next);
        if ahead == 0 {
            self.step();
            return Arrival::Now;
        }
        if ahead > u32::MAX / 2 {
            return Arrival::Again;
        }
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

    /// The next one, if it came earlier.
    pub fn pop(&mut self) -> Option<Box<[u8]>> {
        let bytes = self.ahead.front_mut()?.take()?;
        self.held -= bytes.len();
        self.step();
        Some(bytes)
    }

    fn step(&mut self) {
        self.next = self.next.wrapping_add(1);
        self.ahead.pop_front();
        // Places behind the last that is kept are of no use.
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
        /// Whatever is lost, repeated or out of order: what comes out is what was sent, in order.
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
