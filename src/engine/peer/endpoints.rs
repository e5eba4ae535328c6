//! The endpoints to one peer, with lookup by serial number.

use crate::engine::endpoint::Endpoint;
use std::collections::HashMap;

/// The endpoints to a peer. An endpoint is found by its number in constant time, however many were closed before.
#[derive(Default)]
pub struct EpTable {
    /// The open endpoints, in no order; an endpoint has its index in `slot`.
    all: Vec<*mut Endpoint>,
    /// Endpoints whose index in `all` is not their number; `None` before the first endpoint is closed.
    #[allow(clippy::box_collection, reason = "8 bytes of each peer instead of 48")]
    displaced: Option<Box<HashMap<u32, *mut Endpoint>>>,
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
    pub fn all(&self) -> &[*mut Endpoint] {
        &self.all
    }

    /// Removes all endpoints.
    pub fn take(&mut self) -> Vec<*mut Endpoint> {
        self.displaced = None;
        std::mem::take(&mut self.all)
    }

    /// The endpoint with this number.
    pub fn by_sn(&self, sn: u32) -> Option<*mut Endpoint> {
        // SAFETY: listed endpoints live; an endpoint leaves the list before it is freed.
        let is = |ep: &*mut Endpoint| unsafe { (**ep).sn == sn };
        let in_place = self.all.get(sn as usize).copied().filter(is);
        in_place.or_else(|| self.displaced.as_ref()?.get(&sn).copied())
    }

    /// Adds an endpoint.
    ///
    /// # Safety
    /// It lives until it is removed, and is in no list.
    pub unsafe fn insert(&mut self, ep: *mut Endpoint) {
        let slot = self.all.len() as u32;
        self.all.push(ep);
        // SAFETY: the caller's endpoint.
        unsafe { self.set_slot(ep, slot) };
    }

    /// Removes an endpoint. False if it is not in the list.
    ///
    /// # Safety
    /// It lives.
    pub unsafe fn remove(&mut self, ep: *mut Endpoint) -> bool {
        // SAFETY: the caller's endpoint.
        let slot = unsafe { (*ep).slot } as usize;
        if self.all.get(slot) != Some(&ep) {
            return false;
        }
        self.all.swap_remove(slot);
        // SAFETY: the caller's endpoint; listed ones live.
        unsafe {
            self.undisplace(ep);
            if let Some(&moved) = self.all.get(slot) {
                self.undisplace(moved);
                self.set_slot(moved, slot as u32);
            }
        }
        true
    }

    /// Records the index of an endpoint that is not among the displaced ones.
    unsafe fn set_slot(&mut self, ep: *mut Endpoint, slot: u32) {
        // SAFETY: the caller's endpoint, which is in the list.
        unsafe {
            (*ep).slot = slot;
            if (*ep).sn != slot {
                let displaced = self.displaced.get_or_insert_default();
                displaced.insert((*ep).sn, ep);
            }
        }
    }

    /// Removes an endpoint from the displaced ones. A client can name the number of another endpoint, which then stays
    /// and is found by the number.
    unsafe fn undisplace(&mut self, ep: *mut Endpoint) {
        let Some(displaced) = &mut self.displaced else {
            return;
        };
        // SAFETY: the caller's endpoint.
        let sn = unsafe { (*ep).sn };
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
    use std::ptr;

    /// Endpoints without a peer: only number and index are used.
    fn endpoint(sn: u32) -> *mut Endpoint {
        Box::into_raw(Box::new(Endpoint::unconnected(sn)))
    }

    /// # Safety
    /// From `endpoint`, in no list.
    unsafe fn free(ep: *mut Endpoint) {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(ep) });
    }

    #[test]
    fn each_is_found_whatever_was_removed_before() {
        let mut eps = EpTable::default();
        // Half of the numbers are in place at first; every third is removed, from both ends.
        let mut open: Vec<*mut Endpoint> = (0..100).chain(1000..1100).map(endpoint).collect();
        // SAFETY: all endpoints live until the end of the test.
        unsafe {
            open.iter().for_each(|&ep| eps.insert(ep));
            while !open.is_empty() {
                let gone = open.swap_remove(open.len() * 7 % 3 % open.len());
                assert!(eps.remove(gone) && !eps.remove(gone));
                assert_eq!(eps.by_sn((*gone).sn), None);
                for &ep in &open {
                    assert_eq!(eps.by_sn((*ep).sn), Some(ep));
                }
                free(gone);
            }
        }
        assert!(eps.all().is_empty() && eps.displaced.is_none());
    }

    #[test]
    fn of_two_with_one_number_the_later_is_found_and_both_can_go() {
        let mut eps = EpTable::default();
        let (first, second) = (endpoint(77), endpoint(77));
        // SAFETY: both live until the end of the test.
        unsafe {
            eps.insert(first);
            eps.insert(second);
            assert_eq!(eps.by_sn(77), Some(second));
            assert!(eps.remove(first));
            assert!(ptr::eq(eps.by_sn(77).unwrap(), second));
            assert!(eps.remove(second));
            assert_eq!(eps.by_sn(77), None);
            free(first);
            free(second);
        }
    }
}
