//! The endpoints to one peer, with lookup by serial number.

use crate::engine::endpoint::{Endpoint, EndpointRef, EpFlags};
use crate::wire::header::SN_BITS;
use std::collections::HashMap;

/// Serial numbers below this one are counted by both sides; those of clients and servers are above.
const COUNTED: u32 = 1 << (SN_BITS - 1);

/// The endpoints to a peer. An endpoint is found by its number in constant time, however many were closed before.
#[derive(Default)]
pub struct EpTable {
    /// The open endpoints, in no order; an endpoint has its index in `slot`.
    all: Vec<EndpointRef>,
    /// Endpoints whose index in `all` is not their number; `None` before the first endpoint is closed.
    #[allow(clippy::box_collection, reason = "8 bytes of each peer instead of 48")]
    displaced: Option<Box<HashMap<u32, EndpointRef>>>,
    /// Number of the next endpoint that the user makes.
    next_sn: u32,
    /// In the peer of the own worker: number of the endpoint that the last one with `NO_LOOPBACK` leads to, until it is
    /// made.
    other_half: Option<u32>,
    /// How many of them are internal.
    internal: u32,
}

impl EpTable {
    /// The numbers of an endpoint that the user makes: its own and that of its counterpart.
    pub fn take_number(&mut self) -> (u32, u32) {
        let sn = self.take_numbers(1);
        (sn, sn)
    }

    /// The numbers of an endpoint of the worker to itself without loopback: such endpoints form pairs, and the first of
    /// two takes the number of the second as well.
    pub fn take_number_of_half(&mut self) -> (u32, u32) {
        let mask = COUNTED - 1;
        if let Some(sn) = self.other_half.take() {
            return (sn, sn.wrapping_sub(1) & mask);
        }
        let sn = self.take_numbers(2);
        let other = (sn + 1) & mask;
        self.other_half = Some(other);
        (sn, other)
    }

    fn take_numbers(&mut self, count: u32) -> u32 {
        let sn = self.next_sn;
        self.next_sn = (sn + count) % COUNTED;
        sn
    }

    /// Begins to count again: neither worker has an endpoint to the other.
    pub fn reset_numbers(&mut self) {
        self.next_sn = 0;
    }

    /// The counterpart's number of the endpoint with number `sn`, which a message of the peer names.
    pub fn remote_sn_of(&self, sn: u32) -> u32 {
        if self.other_half == Some(sn) {
            sn.wrapping_sub(1) & (COUNTED - 1)
        } else {
            sn
        }
    }

    /// Whether both sides count endpoints with such a number. Clients and servers agree on others before they use them.
    pub fn is_counted(sn: u32) -> bool {
        sn < COUNTED
    }

    /// Whether the user has not made the endpoint with this counted number yet, which is in no table.
    pub fn is_to_come(&self, sn: u32) -> bool {
        let ahead = sn.wrapping_sub(self.next_sn) % COUNTED;
        // Numbers wrap: half of them count as future ones.
        self.other_half == Some(sn) || ahead < COUNTED / 2
    }

    /// The internal endpoint with this number, which becomes the user's: the number is new to the user.
    pub fn adopt(&mut self, sn: u32) -> Option<EndpointRef> {
        // Searched only if there can be one: programs make thousands of endpoints to one peer.
        let waiting = (self.internal > 0).then(|| self.by_sn(sn)).flatten()?;
        self.internal -= 1;
        waiting.get().clear(EpFlags::INTERNAL);
        Some(waiting)
    }

    /// Makes an internal endpoint one of the user, which closes it. False if it is not in the table.
    pub fn adopt_closing(&mut self, ep: &Endpoint) -> bool {
        ep.clear(EpFlags::INTERNAL);
        let is_listed = self.by_sn(ep.sn).is_some_and(|found| found.is(ep));
        self.internal -= u32::from(is_listed);
        is_listed
    }

    /// Removes an endpoint if it is internal. False if it is not, or not in the table.
    pub fn remove_internal(&mut self, ep: &Endpoint) -> bool {
        let is_removed = ep.is_internal() && self.remove(ep);
        self.internal -= u32::from(is_removed);
        is_removed
    }

    /// Whether the user has an endpoint.
    pub fn any_open(&self) -> bool {
        self.all.len() > self.internal as usize
    }

    /// The open endpoints.
    pub fn all(&self) -> &[EndpointRef] {
        &self.all
    }

    /// Removes all endpoints.
    pub fn take(&mut self) -> Vec<EndpointRef> {
        self.displaced = None;
        std::mem::take(&mut self.all)
    }

    /// The endpoint with this number.
    pub fn by_sn(&self, sn: u32) -> Option<EndpointRef> {
        let is = |ep: &EndpointRef| ep.get().sn == sn;
        let in_place = self.all.get(sn as usize).copied().filter(is);
        in_place.or_else(|| self.displaced.as_ref()?.get(&sn).copied())
    }

    /// Adds an endpoint that is in no table.
    pub fn insert(&mut self, ep: EndpointRef) {
        let slot = self.all.len() as u32;
        self.internal += u32::from(ep.get().is_internal());
        self.all.push(ep);
        self.set_slot(ep, slot);
    }

    /// Removes an endpoint. False if it is not in the table.
    pub fn remove(&mut self, ep: &Endpoint) -> bool {
        let slot = ep.slot() as usize;
        let Some(listed) = self.all.get(slot).copied().filter(|listed| listed.is(ep)) else {
            return false;
        };
        self.all.swap_remove(slot);
        self.undisplace(listed);
        if let Some(&moved) = self.all.get(slot) {
            self.undisplace(moved);
            self.set_slot(moved, slot as u32);
        }
        true
    }

    /// Records the index of an endpoint that is not among the displaced ones.
    fn set_slot(&mut self, ep: EndpointRef, slot: u32) {
        ep.get().set_slot(slot);
        let sn = ep.get().sn;
        if sn != slot {
            self.displaced.get_or_insert_default().insert(sn, ep);
        }
    }

    /// Removes an endpoint from the displaced ones. A client can name the number of another endpoint, which then stays
    /// and is found by the number.
    fn undisplace(&mut self, ep: EndpointRef) {
        let Some(displaced) = &mut self.displaced else {
            return;
        };
        let sn = ep.get().sn;
        if displaced.get(&sn) == Some(&ep) {
            displaced.remove(&sn);
        }
        if displaced.is_empty() {
            self.displaced = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Endpoints without a peer: only number and index are used.
    fn endpoint(sn: u32) -> Box<Endpoint> {
        Box::new(Endpoint::unconnected(sn))
    }

    fn add(eps: &mut EpTable, ep: &Endpoint) {
        // SAFETY: the tests drop an endpoint when it is removed, or after the table.
        eps.insert(unsafe { EndpointRef::new(ep) });
    }

    fn finds(eps: &EpTable, sn: u32, ep: &Endpoint) -> bool {
        eps.by_sn(sn).is_some_and(|found| found.is(ep))
    }

    #[test]
    fn each_is_found_whatever_was_removed_before() {
        let mut eps = EpTable::default();
        // Half of the numbers are in place at first; every third is removed, from both ends.
        let mut open: Vec<Box<Endpoint>> = (0..100).chain(1000..1100).map(endpoint).collect();
        open.iter().for_each(|ep| add(&mut eps, ep));
        while !open.is_empty() {
            let gone = open.swap_remove(open.len() * 7 % 3 % open.len());
            assert!(eps.remove(&gone) && !eps.remove(&gone));
            assert!(eps.by_sn(gone.sn).is_none());
            assert!(open.iter().all(|ep| finds(&eps, ep.sn, ep)));
        }
        assert!(eps.all().is_empty() && eps.displaced.is_none());
    }

    #[test]
    fn of_two_with_one_number_the_later_is_found_and_both_can_go() {
        let mut eps = EpTable::default();
        let (first, second) = (endpoint(77), endpoint(77));
        add(&mut eps, &first);
        add(&mut eps, &second);
        assert!(finds(&eps, 77, &second));
        assert!(eps.remove(&first));
        assert!(finds(&eps, 77, &second));
        assert!(eps.remove(&second));
        assert!(eps.by_sn(77).is_none());
    }

    #[test]
    fn two_halves_have_each_others_numbers_and_numbers_wrap() {
        let mut eps = EpTable::default();
        assert_eq!(eps.take_number_of_half(), (0, 1));
        assert_eq!((eps.remote_sn_of(1), eps.is_to_come(1)), (0, true));
        assert_eq!(eps.take_number_of_half(), (1, 0));
        assert_eq!((eps.remote_sn_of(1), eps.is_to_come(1)), (1, false));
        eps.next_sn = COUNTED - 1;
        assert_eq!(eps.take_number(), (COUNTED - 1, COUNTED - 1));
        assert!(eps.is_to_come(0) && !eps.is_to_come(COUNTED - 1));
    }
}
