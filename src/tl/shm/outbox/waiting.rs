//! What a sender has of an inbox in which it has no ring yet.

use super::{Outbox, RingSearch, Theirs};
use crate::sys::sync::Ordering;
use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr;

/// A mapped inbox of a peer in which no ring was claimed yet.
pub struct WaitingOutbox {
    pub(super) memory: Theirs,
    pub(super) search: RingSearch,
    /// Number of rings at the last search.
    pub(super) rings: u32,
    pub(super) tries: u32,
    /// The receiver has failed to create more rings.
    pub(super) receiver_full: bool,
}

/// A [`WaitingOutbox`] in memory that has room for the [`Outbox`] that follows: the first message allocates none.
pub struct WaitingBox(Box<MaybeUninit<Outbox>>);

const _: () = assert!(
    size_of::<WaitingOutbox>() <= size_of::<Outbox>()
        && align_of::<WaitingOutbox>() <= align_of::<Outbox>()
);

impl WaitingBox {
    /// The waiting outbox in new memory.
    pub(super) fn new(waits: WaitingOutbox) -> Self {
        let mut place = Box::<Outbox>::new_uninit();
        // SAFETY: the memory has room for it, by the assertion.
        unsafe { place.as_mut_ptr().cast::<WaitingOutbox>().write(waits) };
        Self(place)
    }

    /// The waiting outbox.
    pub fn get(&self) -> &WaitingOutbox {
        // SAFETY: `new` wrote it.
        unsafe { &*self.0.as_ptr().cast::<WaitingOutbox>() }
    }

    /// [`get`](Self::get) to change it.
    pub(super) fn get_mut(&mut self) -> &mut WaitingOutbox {
        // SAFETY: `new` wrote it.
        unsafe { &mut *self.0.as_mut_ptr().cast::<WaitingOutbox>() }
    }

    /// The waiting outbox, and the memory that it was in.
    pub(super) fn into_parts(self) -> (WaitingOutbox, Box<MaybeUninit<Outbox>>) {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is not used afterwards, and not dropped; `new` wrote the value.
        unsafe {
            let place = ptr::read(&raw const this.0);
            let waits = place.as_ptr().cast::<WaitingOutbox>().read();
            (waits, place)
        }
    }
}

impl Drop for WaitingBox {
    fn drop(&mut self) {
        // SAFETY: `new` wrote it, and it is not used afterwards.
        unsafe { self.0.as_mut_ptr().cast::<WaitingOutbox>().drop_in_place() };
    }
}

/// While no ring is created, one of this many tries searches for a ring that was freed.
const TRIES_PER_SEARCH: u32 = 16;

impl WaitingOutbox {
    /// Whether the receiver had no memory for more rings when a ring was last searched for: one is free only after
    /// another sender has released its ring.
    pub fn is_receiver_full(&self) -> bool {
        self.receiver_full
    }

    /// Whether the receiver has destroyed the inbox. One load from shared memory.
    pub fn is_abandoned(&self) -> bool {
        !self.memory.is_used()
    }

    /// Whether a ring may be free.
    ///
    /// # Errors
    /// `NotFound`: the inbox was destroyed.
    pub(super) fn is_due(&self) -> io::Result<bool> {
        if self.is_abandoned() {
            return Err(io::ErrorKind::NotFound.into());
        }
        // Relaxed: a hint; the search for a ring loads it again.
        let rings = self.memory.table().front().rings.load(Ordering::Relaxed);
        Ok(rings != self.rings || self.tries % TRIES_PER_SEARCH == 0)
    }
}

/// A box in this memory.
pub(super) fn boxed_in<T>(mut place: Box<MaybeUninit<T>>, value: T) -> Box<T> {
    place.write(value);
    // SAFETY: written just now.
    unsafe { place.assume_init() }
}
