//! The start of a ring: the words of both ends, and the slots of its first messages.
//!
//! The starts of an inbox lie close together, and a sender maps all of them at once with the inbox. The bodies, with
//! the slots of further messages and with longer records, are twenty-one pages each. So a pair of workers that
//! exchanges a few short messages, as the ranks of a large job do with most others, costs one mapping, and the memory
//! of those messages. The slot of a message after them is in the body: the slots of the start count as the last ones of
//! the lap before the body's first, and are not used again. Both ends compute the slot of a message from its number.

use super::{CancelCounter, CloseWord, RingMem, RingSlot, SLOTS, Tails};
use std::ptr::NonNull;

/// Messages of a ring that lie in its start. The number is such that the start and its claim fill an entry of the
/// inbox.
pub const START_SLOTS: usize = if cfg!(loom) { 1 } else { 7 };
/// The number of a ring's first message.
pub(super) const FIRST: u64 = (SLOTS - START_SLOTS) as u64;

/// The start of a ring. All zero is an empty ring.
///
/// The words of both ends have one cache line, so that four starts and their claims fill a page. That costs no
/// transfers: the producer reads the tails once in a lap, and the other words are written and read once in a while.
#[repr(C, align(64))]
pub struct Start {
    tails: Tails,
    close: CloseWord,
    cancel_counter: CancelCounter,
    slots: [RingSlot; START_SLOTS],
}

const _: () = assert!(std::mem::offset_of!(Start, slots) == 64 || cfg!(loom));

impl Start {
    #[cfg(all(test, loom))]
    pub(super) fn of(
        tails: Tails,
        close: CloseWord,
        cancel_counter: CancelCounter,
        slots: [RingSlot; START_SLOTS],
    ) -> Self {
        Self {
            tails,
            close,
            cancel_counter,
            slots,
        }
    }

    /// Counters of what the consumer has consumed and freed. The producer reads them.
    pub(super) fn tails(&self) -> &Tails {
        &self.tails
    }

    /// The word by which both ends agree on the end of the ring.
    pub(super) fn close_word(&self) -> &CloseWord {
        &self.close
    }

    /// The producer counts canceled rendezvous there, and the consumer marks while it copies from the memory of one.
    pub(super) fn cancel_counter(&self) -> &CancelCounter {
        &self.cancel_counter
    }

    /// Pointer to the slots in the start, [`START_SLOTS`] of them; the first belongs to message [`FIRST`]. Makes no
    /// reference, so that `this` need only be mapped.
    pub(in crate::tl::shm) fn first_slot(this: NonNull<Self>) -> NonNull<RingSlot> {
        // SAFETY: the address of a field of a mapped start is not null; no reference is made.
        unsafe { NonNull::new_unchecked((&raw mut (*this.as_ptr()).slots).cast()) }
    }
}

/// The addresses of the two parts of a ring.
#[derive(Clone, Copy, Debug)]
pub struct RingParts {
    pub start: NonNull<Start>,
    /// The body; its own `start` is used only if the field `start` points to it.
    pub body: NonNull<RingMem>,
}

impl From<NonNull<RingMem>> for RingParts {
    /// A ring in one piece.
    fn from(body: NonNull<RingMem>) -> Self {
        // SAFETY: the address of a field of a mapped ring is not null; no reference is made.
        let start = unsafe { NonNull::new_unchecked(&raw mut (*body.as_ptr()).start) };
        Self { start, body }
    }
}

/// Why the body of a ring cannot be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// The receiver is gone, and its memory with it.
    Gone,
    /// The system refuses the mapping, which is logged.
    Unmapped,
}

/// Returns the body of a ring, which it maps if necessary.
pub(in crate::tl::shm) type FindBody =
    unsafe fn(source: NonNull<()>) -> Result<NonNull<RingMem>, BodyError>;

/// How a producer maps the body of its ring.
pub(in crate::tl::shm) struct BodySource {
    source: NonNull<()>,
    find: FindBody,
}

impl BodySource {
    /// # Safety
    /// `find` may be called with `source` as long as this value is used; it returns the body of the producer's ring,
    /// mapped as long as the producer exists.
    pub(in crate::tl::shm) unsafe fn new(source: NonNull<()>, find: FindBody) -> Self {
        Self { source, find }
    }

    /// The body of the ring, mapped as long as the producer exists; the first call maps it.
    ///
    /// # Errors
    /// The receiver is gone, or the system refuses the mapping.
    pub(super) fn find(&self) -> Result<NonNull<RingMem>, BodyError> {
        // SAFETY: the constructor's promise: `find` may be called with `source`.
        unsafe { (self.find)(self.source) }
    }
}

/// Nothing can be sent through a ring any more: the consumer broke its rules, or its body cannot be mapped, which is
/// logged. Has no reason, so that the result of a send fits into a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unusable;
