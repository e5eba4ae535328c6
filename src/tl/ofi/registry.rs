//! The endpoints of a context's workers, one for each interface: memory that peers may access is registered in the
//! domain of each.

use super::iface::OfiIface;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// The registry of a context.
#[derive(Default)]
pub struct OfiRegistry(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    ifaces: Vec<(u16, Weak<OfiIface>)>,
    last: u16,
}

impl OfiRegistry {
    /// Adds the endpoint of a new interface. Returns its number, which is not 0 and no other endpoint has; 0: all are
    /// taken, and no memory is accessed by this endpoint.
    pub fn enter(&self, iface: &Arc<OfiIface>) -> u16 {
        let mut inner = self.0.lock();
        inner.ifaces.retain(|(_, iface)| iface.strong_count() > 0);
        let taken: Vec<u16> = inner.ifaces.iter().map(|&(number, _)| number).collect();
        let number = first_free(&taken, inner.last);
        if number != 0 {
            inner.last = number;
            inner.ifaces.push((number, Arc::downgrade(iface)));
        }
        number
    }

    /// The endpoints, with their numbers.
    pub fn ifaces(&self) -> Vec<(u16, Arc<OfiIface>)> {
        let inner = self.0.lock();
        let all = inner.ifaces.iter();
        all.filter_map(|(number, iface)| Some((*number, iface.upgrade()?)))
            .collect()
    }
}

/// The first number behind `last` that is not taken, and not 0; 0: there is none.
fn first_free(taken: &[u16], last: u16) -> u16 {
    let mut numbers = (1..=u16::MAX).map(|i| last.wrapping_add(i));
    let is_free = |number: &u16| *number != 0 && !taken.contains(number);
    numbers.find(is_free).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_free_and_not_zero() {
        assert_eq!(first_free(&[], 0), 1);
        assert_eq!(first_free(&[1, 2], 0), 3);
        assert_eq!(first_free(&[1], u16::MAX), 2);
        assert_eq!(first_free(&[], u16::MAX - 1), u16::MAX);
        let all: Vec<u16> = (1..=u16::MAX).collect();
        assert_eq!(first_free(&all[..60], 0), 61);
        assert_eq!(first_free(&all, 5), 0);
    }
}
