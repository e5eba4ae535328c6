//! Which slots of a ring's body are in populated pages, at the producer.
//!
//! A page fault for each page of slots costs as much as ten messages. Two steps instead of one, because most peers send
//! few messages: the first populates the page that the body's first slot is in and the next one.

use super::{RingMem, SLOT, SLOTS, slots_of};
use crate::sys::populate::{PageAccess, populate};
use std::ptr::NonNull;

/// Slots that the first step populates: they end with a page.
const FIRST_STEP: usize = if cfg!(loom) { SLOTS } else { 40 };
const _: () =
    assert!((std::mem::offset_of!(RingMem, slots) + FIRST_STEP * SLOT) % 4096 == 0 || cfg!(loom));

/// The populated slots of a ring's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotPages {
    Unpopulated,
    /// Those of the first step.
    First,
    All,
}

impl SlotPages {
    /// Number of the first message whose slot is not populated.
    pub(super) fn limit(self) -> u64 {
        match self {
            SlotPages::Unpopulated => SLOTS as u64,
            SlotPages::First => (SLOTS + FIRST_STEP) as u64,
            SlotPages::All => u64::MAX,
        }
    }

    /// Takes the next step.
    ///
    /// # Safety
    /// `ring` is a mapped ring.
    #[cold]
    pub(super) unsafe fn extend(&mut self, ring: NonNull<RingMem>) {
        let (slots, next) = match self {
            SlotPages::Unpopulated => (0..FIRST_STEP, SlotPages::First),
            SlotPages::First => (FIRST_STEP..SLOTS, SlotPages::All),
            SlotPages::All => return,
        };
        // SAFETY: a ring has `SLOTS` slots, and by the caller it is mapped.
        unsafe {
            let first = slots_of(ring).add(slots.start).cast();
            populate(first.as_ptr(), slots.len() * SLOT, PageAccess::Write);
        }
        *self = next;
    }
}
