//! Arrivals through rings: which ring is polled next, and what the layer above does with a message.
//!
//! Messages of several senders are handled in the order of [`order`](super::order). A progress call of a worker that
//! was idle handles one message, the next one two, then four: a program that checks for arrivals after each call sees
//! them one after the other.

pub mod short;

use super::order::RingSet;
use super::ring::Consumer;
use super::worker::ShmRx;

impl<P> RingSet for Vec<ShmRx<P>> {
    fn count(&self) -> usize {
        self.len()
    }

    fn ring(&mut self, number: usize) -> &mut Consumer {
        &mut self[number].consumer
    }
}

/// A ring, and a look at each of the others, for whether these are empty.
#[inline(always)]
fn apart<P>(rings: &mut [ShmRx<P>], ring: usize) -> Option<(&mut ShmRx<P>, impl Fn() -> bool)> {
    let (before, rest) = rings.split_at_mut_checked(ring)?;
    let (own, behind) = rest.split_first_mut()?;
    let is_empty = |other: &ShmRx<P>| other.consumer.is_empty();
    let others_are_empty = move || before.iter().all(is_empty) && behind.iter().all(is_empty);
    Some((own, others_are_empty))
}
