//! The endpoints to one peer, with lookup by serial number.

use crate::engine::endpoint::{Endpoint, EndpointRef};
use std::collections::HashMap;

/// The endpoints to a peer. An endpoint is found by its number in constant time, however many were closed before.
#[derive(Default)]
pub struct EpTable {
    /// The open endpoints, in no order; an endpoint has its index in `slot`.
    all: Vec<EndpointRef>,
    /// Endpoints whose index in `all` is not their number; `None` before the first endpoint is closed.
    #[allow(clippy::box_collection, reason = "8 bytes of each peer instead of 48")]
    displaced: Option<Box<HashMap<u32, EndpointRef>>>,
    /// Number of the next endpoint that the user makes.
    pub next_sn: u32,
    /// In the peer of the own worker: number of the endpoint that the last one with `NO_LOOPBACK` leads to, until it is
    /// made.
    pub other_half: Option<u32>,
    /// How many of them are internal.
    pub internal: u32,
}

impl EpTable {
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
}
