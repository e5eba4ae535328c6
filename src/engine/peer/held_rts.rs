//! RTS messages that are in none of the worker's lists, because the user holds them or a call is receiving them, and
//! which of them the peer has cancelled meanwhile.

use std::collections::HashMap;

/// A peer's held RTS messages, by the peer's request id: whether each is cancelled.
#[derive(Default)]
pub struct HeldRts(HashMap<u64, bool>);

impl HeldRts {
    /// Adds an RTS that leaves the lists.
    pub fn hold(&mut self, id: u64) {
        self.0.insert(id, false);
    }

    /// Removes an RTS. `is_received`: a request in the lists receives it, and still has to query a cancel that arrived
    /// before.
    pub fn release(&mut self, id: u64, is_received: bool) {
        if !is_received || self.0.get(&id) == Some(&false) {
            self.0.remove(&id);
        }
        if self.0.is_empty() {
            self.0 = HashMap::new();
        }
    }

    /// Records the peer's cancel of an RTS that is in no list. Ignored if it is not held.
    pub fn cancel(&mut self, id: u64) {
        if let Some(is_withdrawn) = self.0.get_mut(&id) {
            *is_withdrawn = true;
        }
    }

    /// Whether the peer has cancelled an RTS.
    pub fn is_cancelled(&self, id: u64) -> bool {
        self.0.get(&id) == Some(&true)
    }

    /// Removes the cancel of an RTS that a request in the lists receives.
    pub fn end_cancelled(&mut self, id: u64) {
        if self.is_cancelled(id) {
            self.0.remove(&id);
        }
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_held_messages_are_remembered() {
        let mut offers = HeldRts::default();
        for id in 0..100_000 {
            offers.cancel(id);
        }
        assert!(offers.is_empty());
        offers.hold(7);
        assert!(!offers.is_cancelled(7));
        offers.cancel(7);
        offers.cancel(8);
        assert!(offers.is_cancelled(7) && !offers.is_cancelled(8));
        offers.release(7, false);
        assert!(offers.is_empty());
    }

    /// A receive that enters the lists at the end of its call finds a cancel that arrived before.
    #[test]
    fn a_receive_detects_a_cancel_during_its_call() {
        let mut offers = HeldRts::default();
        offers.hold(7);
        offers.cancel(7);
        offers.release(7, true);
        assert!(offers.is_cancelled(7));
        offers.end_cancelled(7);
        assert!(offers.is_empty());
        offers.hold(9);
        offers.release(9, true);
        assert!(offers.is_empty());
    }
}
