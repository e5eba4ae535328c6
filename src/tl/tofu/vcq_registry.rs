//! The VCQs of a context's workers: memory that peers may access is registered for each of them.

use super::utofu::Stadd;
use super::vcq::{RegisteredMem, RemoteAddr, Vcq};
use crate::sys::log;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Weak};

/// The registry of a context.
#[derive(Default)]
pub struct VcqRegistry(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    queues: Vec<(u16, Weak<Vcq>)>,
    next: u16,
}

/// Registrations of one memory region, by VCQ.
pub struct MrPerVcq {
    ptr: usize,
    len: usize,
    registered: Vec<(u16, RegisteredMem)>,
}

impl VcqRegistry {
    /// Adds a new worker's VCQs: returns the number of the first, the others have the next ones. Numbers are 16 bits
    /// and unique.
    ///
    /// # Errors
    /// Not as many consecutive numbers are free.
    pub fn enter(&self, vcqs: &[&Arc<Vcq>]) -> io::Result<u16> {
        let mut inner = self.0.lock();
        inner.queues.retain(|(_, queue)| queue.strong_count() > 0);
        let few = vcqs.len() as u16;
        let taken = inner.queues.iter().map(|&(number, _)| number).collect();
        let first = first_free(&taken, inner.next, few).ok_or_else(|| {
            let number = taken.len();
            io::Error::other(format!("the context's workers have {number} VCQs"))
        })?;
        inner.next = first.wrapping_add(few);
        let numbers = (0..few).map(|i| first.wrapping_add(i));
        let queues = vcqs.iter().map(|vcq| Arc::downgrade(vcq));
        inner.queues.extend(numbers.zip(queues));
        Ok(first)
    }

    /// Removes a worker's VCQs: `count`, from the number `first` on.
    pub fn leave(&self, first: u16, count: usize) {
        let is_its = |number: u16| usize::from(number.wrapping_sub(first)) < count;
        self.0.lock().queues.retain(|&(number, _)| !is_its(number));
    }

    /// Whether no worker has a VCQ.
    pub fn is_empty(&self) -> bool {
        self.0.lock().queues.is_empty()
    }

    fn queues(&self) -> Vec<(u16, Arc<Vcq>)> {
        let inner = self.0.lock();
        let all = inner.queues.iter();
        all.filter_map(|(number, queue)| Some((*number, queue.upgrade()?)))
            .collect()
    }
}

/// The first of `count` consecutive free numbers, from `next` on, modulo 2^16.
fn first_free(taken: &HashSet<u16>, next: u16, count: u16) -> Option<u16> {
    let is_free = |first: u16| (0..count).all(|i| !taken.contains(&first.wrapping_add(i)));
    let mut candidates = (0..=u16::MAX).map(|i| next.wrapping_add(i));
    candidates.find(|&first| is_free(first))
}

impl MrPerVcq {
    /// A region without registrations yet.
    ///
    /// # Safety
    /// `len` bytes at `ptr` are mapped, and may be read and written by TNIs, until the value is dropped.
    pub unsafe fn new(ptr: *mut u8, len: usize) -> MrPerVcq {
        MrPerVcq {
            ptr: ptr as usize,
            len,
            registered: Vec::new(),
        }
    }

    /// Address and length of the region in this process.
    pub fn extent(&self) -> (u64, u64) {
        (self.ptr as u64, self.len as u64)
    }

    /// Registers the region for the current VCQs that lack it: returns number and steering address by VCQ. A VCQ
    /// without room is left out: accesses to its worker go by message.
    pub fn addresses(&mut self, vcq_registry: &VcqRegistry) -> Vec<(u16, Stadd)> {
        let queues = vcq_registry.queues();
        self.registered
            .retain(|&(number, _)| queues.iter().any(|&(there, _)| there == number));
        for (number, vcq) in queues {
            self.register(number, &vcq);
        }
        let all = self.registered.iter();
        all.map(|(number, registered)| (*number, registered.stadd))
            .collect()
    }

    /// Remote address of a byte of the region for this VCQ, or for another one of this process if this one has no room.
    /// `None`: no TNI can access it.
    pub fn locate(&mut self, number: u16, vcq: &Arc<Vcq>, addr: u64) -> Option<RemoteAddr> {
        self.register(number, vcq);
        let own = |&&(there, _): &&(u16, RegisteredMem)| there == number;
        let mut all = self.registered.iter();
        let own = self
            .registered
            .iter()
            .find(own)
            .and_then(|(_, r)| r.there());
        let mut there = own.or_else(|| all.find_map(|(_, r)| r.there()))?;
        there.stadd += addr.wrapping_sub(self.ptr as u64);
        Some(there)
    }

    /// Registers the region for a VCQ, if there is room.
    fn register(&mut self, number: u16, vcq: &Arc<Vcq>) {
        if self.registered.iter().any(|&(known, _)| known == number) {
            return;
        }
        // SAFETY: the caller of `new` keeps the memory mapped until the value is dropped.
        match unsafe { RegisteredMem::new(vcq, self.ptr as *mut u8, self.len) } {
            Ok(registered) => self.registered.push((number, registered)),
            Err(e) => log::diag!("memory is reached by message: {e}"),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn consecutive_free_numbers_are_found_or_missed() {
        let taken = HashSet::from([3, 4, 7]);
        assert_eq!(first_free(&taken, 1, 2), Some(1));
        assert_eq!(first_free(&taken, 2, 2), Some(5));
        assert_eq!(first_free(&taken, 4, 3), Some(8));
        assert_eq!(first_free(&HashSet::from([0]), u16::MAX, 2), Some(1));
        let mut taken: HashSet<u16> = (0..=u16::MAX).collect();
        assert_eq!(first_free(&taken, 9, 1), None);
        // Room for one VCQ, but not for one with a rail.
        taken.remove(&5);
        assert_eq!(first_free(&taken, 9, 2), None);
        assert_eq!(first_free(&taken, 9, 1), Some(5));
    }
}
