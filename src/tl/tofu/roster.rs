//! The queues of a process's workers: memory that peers may reach is registered for each of them.

use super::utofu::Stadd;
use super::vcq::{Registered, Vcq};
use crate::sys::log;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// A context's.
#[derive(Default)]
pub struct Roster(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    queues: Vec<(u16, Weak<Vcq>)>,
    next: u16,
}

/// What is registered of one piece of memory.
#[derive(Default)]
pub struct Steered {
    registered: Vec<(u16, Registered)>,
}

impl Roster {
    /// A new worker's queue: its number, which no other has as long as there are fewer than 65,536.
    pub fn enter(&self, vcq: &Arc<Vcq>) -> u16 {
        let mut inner = self.0.lock();
        inner.queues.retain(|(_, queue)| queue.strong_count() > 0);
        let taken = |n: u16| inner.queues.iter().any(|&(number, _)| number == n);
        let mut number = inner.next;
        while taken(number) {
            number = number.wrapping_add(1);
        }
        inner.next = number.wrapping_add(1);
        inner.queues.push((number, Arc::downgrade(vcq)));
        number
    }

    /// A worker goes.
    pub fn leave(&self, number: u16) {
        self.0.lock().queues.retain(|&(other, _)| other != number);
    }

    fn queues(&self) -> Vec<(u16, Arc<Vcq>)> {
        let inner = self.0.lock();
        let all = inner.queues.iter();
        all.filter_map(|(number, queue)| Some((*number, queue.upgrade()?)))
            .collect()
    }
}

impl Steered {
    /// Registers memory for the queues that there are now and that do not know it: the numbers of all, and where it begins for
    /// them. A queue that takes no more is left out: accesses of its worker's go by message.
    ///
    /// # Safety
    /// As of [`Registered::new`], until this is dropped.
    pub unsafe fn addresses(
        &mut self,
        roster: &Roster,
        ptr: *mut u8,
        len: usize,
    ) -> Vec<(u16, Stadd)> {
        let queues = roster.queues();
        self.registered
            .retain(|&(number, _)| queues.iter().any(|&(there, _)| there == number));
        for (number, vcq) in queues {
            if self.registered.iter().any(|&(known, _)| known == number) {
                continue;
            }
            // SAFETY: the caller's promise.
            match unsafe { Registered::new(&vcq, ptr, len) } {
                Ok(registered) => self.registered.push((number, registered)),
                Err(e) => log::diag!("memory is reached by message: {e}"),
            }
        }
        let all = self.registered.iter();
        all.map(|(number, registered)| (*number, registered.stadd))
            .collect()
    }
}
