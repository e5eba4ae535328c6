//! The endpoints of a context's workers, one for each interface: memory that peers may access is registered in the
//! domain of each.

use super::shared_ep::OfiSharedEp;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::{Arc, Weak};

/// The registry of a context.
#[derive(Default)]
pub struct OfiRegistry(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    eps: Vec<(u16, Weak<OfiSharedEp>)>,
    last: u16,
}

impl OfiRegistry {
    /// Adds the endpoint of a new interface. Returns its number, which is not 0 and no other endpoint has; 0: all are
    /// taken, and no memory is accessed by this endpoint.
    pub fn enter(&self, ep: &Arc<OfiSharedEp>) -> u16 {
        let mut inner = self.0.lock();
        inner.eps.retain(|(_, ep)| ep.strong_count() > 0);
        let taken: HashSet<u16> = inner.eps.iter().map(|&(number, _)| number).collect();
        let number = first_free(&taken, inner.last);
        if number != 0 {
            inner.last = number;
            inner.eps.push((number, Arc::downgrade(ep)));
        }
        number
    }

    /// The endpoints, with their numbers.
    pub fn eps(&self) -> Vec<(u16, Arc<OfiSharedEp>)> {
        let inner = self.0.lock();
        let all = inner.eps.iter();
        all.filter_map(|(number, ep)| Some((*number, ep.upgrade()?)))
            .collect()
    }
}

/// The first number behind `last` that is not taken, and not 0; 0: there is none.
fn first_free(taken: &HashSet<u16>, last: u16) -> u16 {
    let mut numbers = (1..=u16::MAX).map(|i| last.wrapping_add(i));
    let is_free = |number: &u16| *number != 0 && !taken.contains(number);
    numbers.find(is_free).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_free_and_not_zero() {
        let free_of = |taken: &[u16], last| first_free(&taken.iter().copied().collect(), last);
        assert_eq!(free_of(&[], 0), 1);
        assert_eq!(free_of(&[1, 2], 0), 3);
        assert_eq!(free_of(&[1], u16::MAX), 2);
        assert_eq!(free_of(&[], u16::MAX - 1), u16::MAX);
        let all: Vec<u16> = (1..=u16::MAX).collect();
        assert_eq!(free_of(&all[..60], 0), 61);
        assert_eq!(free_of(&all, 5), 0);
    }
}
