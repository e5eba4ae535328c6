//! Operations whose ends requests wait for.

use std::ffi::c_void;

/// No operation.
pub const NONE: u32 = u32::MAX;

/// One of them.
#[derive(Clone, Copy, Debug)]
pub struct OutstandingOp {
    /// Its connection.
    pub link: u32,
    /// Who waits for it; null: nobody does any more.
    pub whose: *mut c_void,
    /// The buffer that it reads into, and where that is to be copied then; `None`: the adapter works in the owner's
    /// memory.
    pub copy: Option<(u16, *mut u8, usize)>,
    next: u32,
    /// It is taken.
    taken: bool,
}

impl OutstandingOp {
    /// In the owner's memory.
    pub fn in_place(link: u32, whose: *mut c_void) -> OutstandingOp {
        OutstandingOp {
            link,
            whose,
            copy: None,
            next: NONE,
            taken: true,
        }
    }

    /// Into a buffer, for memory that has room for so many bytes.
    pub fn by_buffer(
        link: u32,
        whose: *mut c_void,
        buffer: u16,
        (into, len): (*mut u8, usize),
    ) -> OutstandingOp {
        let copy = Some((buffer, into, len));
        OutstandingOp {
            copy,
            ..OutstandingOp::in_place(link, whose)
        }
    }

    #[cfg(test)]
    pub fn orphans(link: u32) -> OutstandingOp {
        OutstandingOp::in_place(link, std::ptr::null_mut())
    }
}

/// A queue's.
#[derive(Default)]
pub struct Outstanding {
    all: Vec<OutstandingOp>,
    free: Vec<u32>,
}

// SAFETY: the pointers are followed under the queue's lock only, while their owners wait.
unsafe impl Send for Outstanding {}

impl Outstanding {
    /// How many.
    pub fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// One more: its number.
    pub fn insert(&mut self, operation: OutstandingOp) -> u32 {
        if let Some(number) = self.free.pop() {
            self.all[number as usize] = operation;
            return number;
        }
        self.all.push(operation);
        self.all.len() as u32 - 1
    }

    /// One has ended.
    pub fn remove(&mut self, number: u32) -> OutstandingOp {
        let operation = &mut self.all[number as usize];
        operation.taken = false;
        self.free.push(number);
        *operation
    }

    /// Nobody waits for it any more.
    pub fn detach_owner(&mut self, number: u32) {
        self.all[number as usize].whose = std::ptr::null_mut();
    }

    /// One comes behind another in a list.
    pub fn chain_behind(&mut self, last: u32, next: u32) {
        self.all[last as usize].next = next;
    }

    /// A list has ended.
    pub fn take_all(&mut self, first: u32, mut ended: impl FnMut(OutstandingOp)) {
        let mut next = first;
        while next != NONE {
            let operation = self.remove(next);
            next = operation.next;
            ended(operation);
        }
    }

    /// Whether one of them is of this connection, whether or not a request waits for it.
    pub fn names(&self, link: u32) -> bool {
        self.all.iter().any(|o| o.taken && o.link == link)
    }

    /// Those of a connection that somebody waits for.
    pub fn of_conn(&mut self, link: u32) -> impl Iterator<Item = &mut OutstandingOp> {
        let all = self.all.iter_mut();
        all.filter(move |o| o.taken && o.link == link && !o.whose.is_null())
    }
}
