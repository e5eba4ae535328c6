//! Arrivals through rings: which ring is polled next, and what the layer above does with a message.
//!
//! Messages of several senders are handled in the order of [`order`](super::order). A progress call of a worker that
//! was idle handles one message, the next one two, then four: a program that checks for arrivals after each call sees
//! them one after the other.

pub mod short;

use super::order::RingSet;
use super::ring::Consumer;
use super::worker::ShmRx;

impl<P> RingSet for Vec<Box<ShmRx<P>>> {
    fn count(&self) -> usize {
        self.len()
    }

    fn ring(&mut self, number: usize) -> &mut Consumer {
        &mut self[number].consumer
    }

    #[inline(always)]
    fn others_are_empty(&self, ring: usize) -> bool {
        let (before, behind) = (&self[..ring], &self[ring + 1..]);
        before.iter().all(|c| c.consumer.is_empty()) && behind.iter().all(|c| c.consumer.is_empty())
    }
}
