//! The ring: a single-producer, single-consumer queue of messages in memory that two processes share.
//!
//! A message is 8 bytes of control word, 8 bytes of immediate and a record of bytes. It occupies one slot of two cache
//! lines; records of up to [`INLINE`] bytes lie in the slot, so that a small message costs one transfer of a cache
//! line. Longer records lie in a circular data space ([`super::space`]), or, those of more than [`SMALL`] bytes of a
//! producer that sends much, in a big buffer ([`super::big_buf`]). The slot's control word carries the number of the
//! lap: it distinguishes a fresh slot from a stale one without an index that both sides share. The consumer publishes
//! how far it has read; the producer reads that only when it has no room by the last value.
//!
//! The first [`START_SLOTS`] messages have slots of their own, in the ring's [`Start`], which a sender maps together
//! with those of all other senders. The producer maps the rest of the ring when it needs more ([`Start`] says how).
//!
//! The first message of an epoch ([`super::order`]) carries the epoch's number.
//!
//! The producer is not trusted: the consumer checks kind and length against its own counts of the ring, and computes
//! the record's position itself. The consumer is not trusted either: the producer checks the tails.

use super::big_buf::MAX_BIG_BUFS;
use super::chunk_board::ChunkBoard;
use super::close::CloseWord;
use crate::sys::sync::{AtomicU64, Bytes, Ordering, fence};
use crate::tl::contract::{MAX_BCOPY, MAX_SHORT};
use std::ptr::NonNull;

mod consumer;
mod producer;
mod slot_pages;
mod start;
pub use consumer::Consumer;
pub use producer::Producer;
use slot_pages::SlotPages;
pub(super) use start::BodySource;
use start::FIRST;
pub use start::{BodyError, RingParts, START_SLOTS, Start, Unusable};

/// Slots of a ring. A power of two.
pub const SLOTS: usize = if cfg!(loom) { 2 } else { 128 };
/// Bytes of a slot.
pub(super) const SLOT: usize = 128;
/// Bytes of a record that fit into a slot.
pub const INLINE: usize = SLOT - 2 * size_of::<u64>();
/// Bytes of a record that fit into a slot which also has the number of an epoch.
const INLINE_WITH_EPOCH: usize = INLINE - size_of::<u64>();
/// Bytes of a record that lie in the slot's first cache line.
const FIRST_LINE: usize = SLOT / 2 - 2 * size_of::<u64>();
/// Longest record that leaves the end of the slot's first cache line to the number of an epoch, bytes.
const FIRST_LINE_WITH_EPOCH: usize = FIRST_LINE - size_of::<u64>();
/// Bytes of the data space. A power of two.
pub const DATA: usize = if cfg!(loom) { 512 } else { 64 << 10 };
/// Longest record: half of the data space, so that one always fits once the consumer has caught up.
pub const MAX_RECORD: usize = DATA / 2;
const _: () = assert!(INLINE == MAX_SHORT && (cfg!(loom) || MAX_BCOPY <= MAX_RECORD));
/// Longest record that lies in the ring even when its producer has a big buffer, bytes: 1 KiB of data and its headers.
/// Lines of the ring are still in the two cores' private caches, which is best for a record that is replied to.
pub const SMALL: usize = (1 << 10) + 64;
/// [`SMALL`] where records follow each other without a reply. 512 B take 0.11 us in the ring then, and 0.07 us in an
/// big buffer; 192 B take as long in either.
const SMALL_UNANSWERED: usize = 256;
/// Bytes of a big buffer that are populated at a time: takes a few microseconds.
const PREPARED: usize = 16 << 10;
/// Bytes that a producer sends through the ring from one such step to the next: populating costs about a fifth of the
/// time of sending.
const SENT_PER_STEP: u64 = DATA as u64;
/// [`SENT_PER_STEP`] where records of more than [`SMALL`] bytes follow each other without a reply, and the producer has
/// room for the next one.
const SENT_PER_STEP_WITH_ROOM: u64 = 2 * DATA as u64;
/// Position in the control word's length of the number of the big buffer, bits.
const BIG_BUF_SHIFT: u32 = 24;
/// Flag beside the length: the slot has the number of an epoch, which begins with this message.
const NEW_EPOCH: usize = 1 << 31;
const _: () = assert!(MAX_BIG_BUFS < NEW_EPOCH >> BIG_BUF_SHIFT);

/// The slot of one message: a pair of cache lines, which x86-64 fetches together. A [`Start`] and a [`RingMem`] place
/// slots at multiples of 128 bytes.
#[repr(C, align(64))]
pub(super) struct RingSlot {
    /// lap (16 bits) | kind (8) | aux (8) | record length (24) | big buffer (7) | new epoch (1), stored last by the
    /// producer.
    word: AtomicU64,
    imm: AtomicU64,
    inline: Bytes<INLINE>,
}

/// Counters that the consumer writes and the producer reads.
#[repr(C)]
struct Tails {
    /// Slots consumed since the beginning.
    slots: AtomicU64,
    /// Bytes freed since the beginning: [`SpaceCounts`].
    data: AtomicU64,
    /// Number of the slot behind the last signal that the consumer has refused; 0: it has refused none. Written before
    /// `slots` counts that signal.
    refused: AtomicU64,
}

/// Bytes freed in the two spaces since the beginning, each modulo 2^32.
#[derive(Clone, Copy, Default)]
#[repr(C, align(8))]
struct SpaceCounts {
    /// Of the ring's own data space.
    own: u32,
    /// Of the big buffer.
    big_buf: u32,
}

impl SpaceCounts {
    #[inline(always)]
    fn to_word(self) -> u64 {
        u64::from(self.own) | u64::from(self.big_buf) << 32
    }

    fn from_word(word: u64) -> Self {
        Self {
            own: word as u32,
            big_buf: (word >> 32) as u32,
        }
    }
}

/// State of canceled rendezvous, whose memory the consumer copies from by itself (CMA).
#[repr(C)]
pub struct CancelCounter {
    /// Rendezvous that the producer has canceled.
    count: AtomicU64,
    /// 1 while the consumer copies.
    copied: AtomicU64,
}

impl CancelCounter {
    /// Counts canceled rendezvous. Their memory must not be reported as free before.
    pub fn count_cancelled(&self, offers: u64) {
        // SeqCst: comes before the load of `copied`, as the consumer's store to `copied` comes before its load of
        // `count`: one of the two sees the other.
        self.count.fetch_add(offers, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Whether the consumer is copying.
    pub fn is_copied(&self) -> bool {
        // Acquire: pairs with the Release store in `end_copy`.
        self.copied.load(Ordering::Acquire) != 0
    }

    /// Marks the start of a copy by the consumer; returns the number of rendezvous canceled so far.
    pub fn begin_copy(&self) -> u64 {
        // SeqCst: the store comes before the load of `count`, as in `count_cancelled` the addition comes before the
        // load of `copied`.
        self.copied.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.count.load(Ordering::SeqCst)
    }

    /// Number of rendezvous canceled by now.
    pub fn count(&self) -> u64 {
        // The copy comes before the load.
        fence(Ordering::SeqCst);
        self.count.load(Ordering::SeqCst)
    }

    /// Marks the end of a copy by the consumer.
    pub fn end_copy(&self) {
        // Release: pairs with the Acquire load in `is_copied`.
        self.copied.store(0, Ordering::Release);
    }
}

/// The shared memory of a ring. All zero is an empty ring.
#[repr(C, align(4096))]
pub struct RingMem {
    /// Room for the claim that lies before a start in an entry of the inbox: the slots of `start` are placed alike.
    _claim: Bytes<64>,
    /// Not used where the ring has its start elsewhere ([`RingParts`]).
    start: Start,
    /// Shares of messages in the other direction, which this ring's producer receives.
    board: ChunkBoard,
    slots: [RingSlot; SLOTS],
    data: Bytes<DATA>,
}

const _: () = assert!(size_of::<RingSlot>() == SLOT || cfg!(loom));
const _: () = assert!(std::mem::offset_of!(RingMem, start) % SLOT == SLOT / 2 || cfg!(loom));
const _: () = assert!(std::mem::offset_of!(RingMem, slots) % SLOT == 0 || cfg!(loom));

/// The producer has broken the rules of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorruptRing;

/// Lap number of the `n`-th message: 1 to 32768, so that zeroed memory is never a message. Every slot is rewritten in
/// every lap: a stale slot has the number of the previous lap.
#[inline(always)]
fn lap(n: u64) -> u64 {
    (n / SLOTS as u64) % 0x8000 + 1
}

/// Offset of the number of an epoch in a slot's inline bytes, beside a record of `len` bytes: in a cache line that is
/// written anyway.
#[inline(always)]
fn epoch_at(len: usize) -> usize {
    if len > FIRST_LINE_WITH_EPOCH && len <= INLINE_WITH_EPOCH {
        INLINE_WITH_EPOCH
    } else {
        FIRST_LINE_WITH_EPOCH
    }
}

/// The epoch that begins with a slot's message, whose record has `len` bytes.
fn epoch_of(slot: &RingSlot, len: usize) -> u64 {
    let place = slot.inline.to_read(epoch_at(len), size_of::<u64>());
    // SAFETY: inside of the slot. A hostile producer can change the bytes meanwhile: any number is an epoch.
    unsafe { place.cast::<u64>().read_unaligned() }
}

/// The first slot of a ring's body; `mem` may be dangling.
fn slots_of(mem: NonNull<RingMem>) -> NonNull<RingSlot> {
    let slots = std::mem::offset_of!(RingMem, slots);
    let first = mem.as_ptr().cast::<u8>().wrapping_add(slots);
    // SAFETY: neither a ring nor a dangling address is at the end of the address space, so the sum is not 0.
    unsafe { NonNull::new_unchecked(first.cast()) }
}

/// Position of one end in the ring.
#[derive(Clone, Copy)]
struct RingCursor {
    /// The slot of the next message, and the number of its lap.
    slot: NonNull<RingSlot>,
    lap: u64,
    /// The number of the next message; the first one has [`FIRST`].
    n: u64,
    /// The first slot of the body, not to be accessed before the body is mapped.
    first: NonNull<RingSlot>,
}

/// Lap of a consumer that was stopped: no slot has this number.
const NO_LAP: u64 = u64::MAX;

impl RingCursor {
    /// The position of a ring's first message. `body` is dangling if it is not mapped.
    fn new(start: NonNull<Start>, body: NonNull<RingMem>) -> Self {
        Self {
            slot: Start::first_slot(start),
            lap: lap(FIRST),
            n: FIRST,
            first: slots_of(body),
        }
    }

    /// Advances to the next slot.
    #[inline(always)]
    fn step(&mut self) {
        self.n += 1;
        if self.n % SLOTS as u64 != 0 {
            // SAFETY: not the last slot of the body or of the start: one follows.
            self.slot = unsafe { self.slot.add(1) };
            return;
        }
        self.slot = self.first;
        if self.lap != NO_LAP {
            self.lap = lap(self.n);
        }
    }

    /// The slot [`AHEAD`] messages later.
    #[inline(always)]
    fn ahead(&self) -> *const RingSlot {
        // Wrapping: before the body is mapped this is not the address of a slot, and the prefetch has no effect.
        self.first
            .as_ptr()
            .wrapping_add((self.n + AHEAD) as usize % SLOTS)
    }
}

fn board_of(mem: NonNull<RingMem>) -> NonNull<ChunkBoard> {
    // SAFETY: the address of a field of a mapped ring is not null; no reference is made.
    unsafe { NonNull::new_unchecked(&raw mut (*mem.as_ptr()).board) }
}

/// Slots ahead of the one in use that are prefetched: the transfer of a line takes as long as a few messages.
const AHEAD: u64 = 4;

fn data_of(mem: NonNull<RingMem>) -> NonNull<Bytes<DATA>> {
    // SAFETY: the address of a field of a mapped ring is not null; no reference is made.
    unsafe { NonNull::new_unchecked(&raw mut (*mem.as_ptr()).data) }
}

#[cfg(all(test, loom))]
pub(super) mod loom_tests;

#[cfg(all(test, not(loom)))]
pub(super) mod tests;
