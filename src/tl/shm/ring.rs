//! The ring: a single-producer, single-consumer queue of messages in memory that two processes share.
//!
//! A message is 8 bytes of control word, 8 bytes of immediate and a record of bytes. It occupies one slot of two cache
//! lines; records of up to [`INLINE`] bytes lie in the slot, so that a small message costs one transfer of a cache
//! line. Longer records lie in a circular data space ([`super::space`]), or, those of more than [`SMALL`] bytes of a
//! producer that sends much, in a large buffer ([`super::big_buf`]). The slot's control word carries the number of the
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

use super::big_buf::{
    BIG_BUF_AFTER, BIG_BUF_AFTER_SHORT, BIG_BUF_BYTES, BigBuf, BigBufs, MAX_BIG_BUFS,
};
use super::chunk_board::ChunkBoard;
use super::close::{CloseAnswer, CloseWord};
use super::order::Epoch;
use super::space::{Populated, TxSpace, place};
use crate::sys::copy::{self, TINY, prefetch_to_read, prefetch_to_write};
use crate::sys::populate::PageAccess;
use crate::sys::sync::{AtomicU64, Bytes, Ordering, fence};
use std::ptr::NonNull;

mod slot_pages;
mod start;
use slot_pages::SlotPages;
pub(super) use start::BodySource;
use start::FIRST;
pub use start::{NoBody, RingParts, START_SLOTS, Start, Unusable};

/// Slots of a ring. A power of two.
pub const SLOTS: usize = if cfg!(loom) { 2 } else { 128 };
/// Bytes of a slot.
pub(super) const SLOT: usize = 128;
/// Bytes of a record that fit into a slot.
pub const INLINE: usize = SLOT - 2 * size_of::<u64>();
/// Bytes of a record that fit into a slot which also has the number of an epoch.
const INLINE_WITH_EPOCH: usize = INLINE - size_of::<u64>();
/// Longest record that leaves the end of the slot's first cache line to the number of an epoch, bytes.
const INLINE_FIRST_LINE: usize = 40;
/// Bytes of the data space. A power of two.
pub const DATA: usize = if cfg!(loom) { 512 } else { 64 << 10 };
/// Longest record: half of the data space, so that one always fits once the consumer has caught up.
pub const MAX_RECORD: usize = DATA / 2;
/// Longest record that lies in the ring even when its producer has a big buffer, bytes: 1 KiB of data and its headers.
/// Lines of the ring are still in the two cores' private caches, which is best for a record that is replied to.
pub const SMALL: usize = (1 << 10) + 64;
/// [`SMALL`] where records follow each other without a reply. 512 B take 0.11 us in the ring then, and 0.07 us in an
/// big buffer; 192 B take as long in either.
const SMALL_UNANSWERED: usize = 256;
/// Bytes of a big buffer that are populated each time its producer looks for room in the ring, where its records are
/// replied to: about a quarter of what it has sent since the last time, which costs about a fifth of the time of
/// sending.
const PREPARED: usize = 16 << 10;
/// [`PREPARED`] where records of more than [`SMALL`] bytes follow each other without a reply. The ring takes up to four
/// times as long for them as the big buffer does, and longer than populating as many bytes takes: the sooner all of the
/// big buffer is populated, the better.
const PREPARED_UNANSWERED: usize = 128 << 10;
/// Position in the control word's length of the number of the big buffer, bits.
const BIG_BUF_SHIFT: u32 = 24;
/// Flag beside the length: the slot has the number of an epoch, which begins with this message.
const NEW_EPOCH: usize = 1 << 31;
const _: () = assert!(MAX_BIG_BUFS < NEW_EPOCH >> BIG_BUF_SHIFT);

/// The slot of one message: a pair of cache lines, which x86-64 fetches together. A [`Start`] and a [`RingMem`] place
/// slots at multiples of 128 bytes.
#[repr(C, align(64))]
struct RingSlot {
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

/// A message as the consumer sees it. `record` points into the ring and is valid until [`Consumer::advance`]; another
/// process can write there, so its bytes are copied before they are checked.
#[derive(Clone, Copy)]
pub struct RingMessage {
    pub kind: u8,
    pub aux: u8,
    pub imm: u64,
    pub len: usize,
    pub record: *const u8,
}

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
    match len {
        INLINE_FIRST_LINE..=INLINE_WITH_EPOCH if len > INLINE_FIRST_LINE => INLINE_WITH_EPOCH,
        _ => INLINE_FIRST_LINE,
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

/// The sending end, used by one thread at a time.
pub struct Producer {
    /// Dangling as long as `unmapped` is Some.
    mem: NonNull<RingMem>,
    start: NonNull<Start>,
    head: RingCursor,
    /// How the body is mapped; None when it is mapped.
    unmapped: Option<BodySource>,
    /// Slots that the consumer has freed, at the last read of the tails.
    given_back: u64,
    /// `head.n` may grow to this value before the tails must be read again, or more slots populated.
    limit: u64,
    slot_pages: SlotPages,
    /// The ring's own data space.
    own: TxSpace<DATA>,
    /// For records of more than `small` bytes.
    big_buf: Option<TxBigBuf>,
    /// [`SMALL`] or [`SMALL_UNANSWERED`]; [`usize::MAX`] while there is no populated big buffer.
    small: usize,
    /// Records that followed another one without a reply, since the message of number `counted_from`.
    unanswered: u64,
    counted_from: u64,
    /// Whether they were fewer than half when they were last counted.
    answered: bool,
    epoch: Epoch,
    /// None: only the ring's own data space may be used.
    big_bufs: Option<BigBufs>,
}

/// The big buffer that a producer has taken.
struct TxBigBuf {
    big_buf: BigBuf,
    space: TxSpace<BIG_BUF_BYTES>,
}

// SAFETY: the ring's memory is shared by design; the pointers in it do not depend on the thread.
unsafe impl Send for Producer {}

impl Producer {
    /// # Safety
    /// `ring` is a zeroed ring that outlives the producer, which is its only one. The counter of `epoch` outlives the
    /// producer, and all rings of the receiver use the same counter.
    pub unsafe fn new(ring: impl Into<RingParts>, epoch: Epoch) -> Self {
        let RingParts { start, body } = ring.into();
        Self::at(start, body, None, epoch)
    }

    /// Creates the producer of a ring whose start is mapped and whose body `body` maps once it is needed.
    ///
    /// # Safety
    /// Those of [`new`](Self::new); `start` and the body belong to one ring.
    pub(super) unsafe fn starting(start: NonNull<Start>, body: BodySource, epoch: Epoch) -> Self {
        Self::at(start, NonNull::dangling(), Some(body), epoch)
    }

    fn at(
        start: NonNull<Start>,
        mem: NonNull<RingMem>,
        unmapped: Option<BodySource>,
        epoch: Epoch,
    ) -> Self {
        let populated = Populated::first_page();
        let (limit, slot_pages, own) = match unmapped {
            None => (2 * SLOTS as u64, SlotPages::All, TxSpace::new(populated)),
            Some(_) => (
                SLOTS as u64,
                SlotPages::Unpopulated,
                TxSpace::unmapped(populated),
            ),
        };
        Self {
            mem,
            start,
            head: RingCursor::new(start, mem),
            unmapped,
            given_back: 0,
            limit,
            slot_pages,
            own,
            big_buf: None,
            small: usize::MAX,
            unanswered: 0,
            counted_from: FIRST,
            answered: true,
            epoch,
            big_bufs: None,
        }
    }

    /// Allows the producer to take one of the inbox's `big_bufs`, if it has any.
    ///
    /// # Safety
    /// `big_bufs` belong to the ring's inbox, and outlive the producer.
    pub unsafe fn with_big_bufs(mut self, big_bufs: Option<BigBufs>) -> Self {
        self.big_bufs = big_bufs;
        self
    }

    /// Sends a record of at most [`TINY`] bytes, if there is room by the last values read and the present epoch is this
    /// producer's: calls nothing but `imm`, and that only if it sends.
    ///
    /// # Safety
    /// `len` bytes at `src` are readable (any `src` for 0).
    #[inline(always)]
    pub unsafe fn send_tiny(
        &mut self,
        kind: u8,
        imm: impl FnOnce() -> u64,
        src: *const u8,
        len: usize,
    ) -> bool {
        debug_assert!(len <= TINY);
        if !self.epoch.lasts_for_tiny() || self.head.n == self.limit {
            return false;
        }
        // SAFETY: the ring outlives the producer, and only the producer writes the slot (below `limit`). By the caller,
        // `src` is readable.
        unsafe {
            let slot = self.head.slot.as_ref();
            copy::tiny(slot.inline.to_write(0, len), src, len);
            slot.imm.store(imm(), Ordering::Relaxed);
            let word = self.head.lap | u64::from(kind) << 16 | (len as u64) << 32;
            // Release: pairs with the Acquire load in `Consumer::peek`; record and imm come before.
            slot.word.store(word, Ordering::Release);
        }
        self.head.step();
        true
    }

    /// Sends a record of at most [`TINY`] bytes that begins an epoch, because another sender has sent a message in
    /// between.
    ///
    /// # Safety
    /// `len` bytes at `src` are readable.
    #[inline]
    pub unsafe fn send_tiny_in_new_epoch(
        &mut self,
        kind: u8,
        imm: u64,
        src: *const u8,
        len: usize,
    ) -> bool {
        if !self.epoch.is_for_tiny() || self.head.n == self.limit {
            return false;
        }
        let slot = self.slot();
        // SAFETY: the ring outlives the producer, and only the producer writes the slot (below `limit`). By the caller,
        // `src` is readable.
        unsafe { copy::tiny(slot.inline.to_write(0, len), src, len) };
        self.write_epoch(len);
        self.publish(kind, 0, imm, (len | NEW_EPOCH) as u64);
        true
    }

    /// Begins an epoch, and writes its number into the slot of a message whose record has `len` bytes.
    fn write_epoch(&mut self, len: usize) {
        let epoch = self.epoch.begin();
        let place = self.slot().inline.to_write(epoch_at(len), size_of::<u64>());
        // SAFETY: only the producer writes the slot (below `limit`), and the record leaves these bytes free.
        unsafe { place.cast::<u64>().write_unaligned(epoch) };
    }

    /// Sends a record of `len` bytes (up to [`MAX_RECORD`]), which `fill` writes in place. `Ok(false)`: there is no
    /// room now, and `fill` was not called.
    ///
    /// # Errors
    /// [`Unusable`] when the consumer's counts are impossible, or the ring cannot be mapped.
    #[inline]
    pub fn send(
        &mut self,
        kind: u8,
        aux: u8,
        imm: u64,
        len: usize,
        fill: impl FnOnce(*mut u8),
    ) -> Result<bool, Unusable> {
        debug_assert!(len <= MAX_RECORD);
        if !self.epoch.lasts() {
            return self.send_in_new_epoch(kind, aux, imm, len, fill);
        }
        if len <= INLINE {
            if self.head.n == self.limit && !self.refill()? {
                return Ok(false);
            }
            fill(self.slot().inline.to_write(0, len));
            self.publish(kind, aux, imm, len as u64);
        } else {
            let Some((record, big_buf)) = self.take_long(len)? else {
                return Ok(false);
            };
            fill(record);
            self.publish(kind, aux, imm, len as u64 | big_buf);
        }
        Ok(true)
    }

    /// Sends a record that begins an epoch, because another sender has sent a message in between; see
    /// [`send`](Self::send).
    #[cold]
    #[inline(never)]
    fn send_in_new_epoch(
        &mut self,
        kind: u8,
        aux: u8,
        imm: u64,
        len: usize,
        fill: impl FnOnce(*mut u8),
    ) -> Result<bool, Unusable> {
        let mut word = (len | NEW_EPOCH) as u64;
        if len <= INLINE_WITH_EPOCH {
            if self.head.n == self.limit && !self.refill()? {
                return Ok(false);
            }
            fill(self.slot().inline.to_write(0, len));
        } else {
            let Some((record, big_buf)) = self.take_long(len)? else {
                return Ok(false);
            };
            fill(record);
            word |= big_buf;
        }
        self.write_epoch(len);
        self.publish(kind, aux, imm, word);
        Ok(true)
    }

    /// Allocates room for a long record, if there is some: returns the address of the record, and the number of its
    /// big buffer in its position above the length of the control word.
    #[inline(always)]
    fn take_long(&mut self, len: usize) -> Result<Option<(*mut u8, u64)>, Unusable> {
        if self.head.n < self.limit
            && let Some(place) = self.take_known(len)
        {
            return Ok(Some(place));
        }
        self.take_long_late(len)
    }

    /// Allocates room for a long record by the last values read of the consumer; the caller has checked that a slot is
    /// free.
    #[inline(always)]
    fn take_known(&mut self, len: usize) -> Option<(*mut u8, u64)> {
        match &mut self.big_buf {
            Some(TxBigBuf { big_buf, space }) if len > self.small => {
                let offset = space.take(len)?;
                // SAFETY: inside of the big buffer, which outlives the producer.
                let record = unsafe { big_buf.memory.add(offset) };
                Some((record.as_ptr(), u64::from(big_buf.number) << BIG_BUF_SHIFT))
            }
            _ => {
                let offset = self.own.take(len)?;
                // SAFETY: the ring outlives the producer; the consumer does not access the allocated range before the
                // message is published.
                let record = unsafe { data_of(self.mem).as_ref() }.to_write(offset, len);
                Some((record, 0))
            }
        }
    }

    /// Allocates room for a long record after reading the consumer's tails, and prepares a big buffer.
    #[cold]
    #[inline(never)]
    fn take_long_late(&mut self, len: usize) -> Result<Option<(*mut u8, u64)>, Unusable> {
        Ok(match self.long_refill(len)? {
            true => self.take_known(len),
            false => None,
        })
    }

    /// Reads the consumer's tails, prepares a big buffer if its producer has sent enough, and populates what a record
    /// of `len` bytes needs. True when there is a free slot.
    #[cold]
    #[inline(never)]
    fn long_refill(&mut self, len: usize) -> Result<bool, Unusable> {
        let free = self.refill()?;
        if self.unmapped.is_some() {
            return Ok(false);
        }
        let small = self.classify();
        let is_in_use = self.small != usize::MAX;
        let after = if len > SMALL {
            BIG_BUF_AFTER
        } else {
            BIG_BUF_AFTER_SHORT
        };
        if is_in_use || len > small && self.own.given_out() >= after && self.prepare_big_buf(len) {
            self.small = small;
        }
        if len <= self.small {
            // SAFETY: the ring, which has `DATA` bytes of data space, outlives the producer.
            unsafe { self.own.extend(data_of(self.mem).cast().as_ptr(), len) };
        }
        Ok(free)
    }

    /// Takes a big buffer if one is free, and populates a part of it before a record of `len` bytes is sent. True when
    /// all of it is populated.
    fn prepare_big_buf(&mut self, len: usize) -> bool {
        let step = if self.answered || len <= SMALL {
            PREPARED
        } else {
            PREPARED_UNANSWERED
        };
        if self.big_buf.is_none() {
            let big_buf = self.big_bufs.and_then(|big_bufs| big_bufs.claim());
            self.big_buf = big_buf.map(|big_buf| TxBigBuf {
                big_buf,
                space: TxSpace::new(Populated::none()),
            });
        }
        match &mut self.big_buf {
            // SAFETY: a big buffer has `BIG_BUF_BYTES` bytes and is mapped as long as the producer exists.
            Some(TxBigBuf { big_buf, space }) => unsafe {
                space.prepare(big_buf.memory.as_ptr(), step)
            },
            None => false,
        }
    }

    /// The maximum length of small records: it depends on whether they follow each other without a reply, as most of
    /// those since the last call did or did not.
    fn classify(&mut self) -> usize {
        let sent = self.head.n - self.counted_from;
        if sent >= SLOTS as u64 / 4 {
            self.answered = 2 * self.unanswered <= sent;
            self.unanswered = 0;
            self.counted_from = self.head.n;
        }
        if self.answered {
            SMALL
        } else {
            SMALL_UNANSWERED
        }
    }

    /// Whether there is a slot and, by the last values read, room for a long record of `len` bytes or any shorter one.
    fn has_long_room(&self, len: usize) -> bool {
        let own = |len| self.own.has_room(len);
        let room = match &self.big_buf {
            Some(big_buf) if len > self.small => big_buf.space.has_room(len) && own(self.small),
            _ => own(len),
        };
        room && self.head.n < self.limit
    }

    /// Whether a record of `len` bytes, or any shorter one, can be sent now.
    ///
    /// # Errors
    /// [`Unusable`] when the consumer's counts are impossible, or the ring cannot be mapped.
    pub fn has_room(&mut self, len: usize) -> Result<bool, Unusable> {
        // In a new epoch fewer bytes fit into a slot.
        if len <= INLINE_WITH_EPOCH {
            return Ok(self.head.n < self.limit || self.refill()?);
        }
        Ok(self.has_long_room(len) || self.long_refill(len)? && self.has_long_room(len))
    }

    /// Writes the control word of the next slot. `len`: with the bits of big buffer and epoch above it.
    #[inline(always)]
    fn publish(&mut self, kind: u8, aux: u8, imm: u64, len: u64) {
        let slot = self.slot();
        slot.imm.store(imm, Ordering::Relaxed);
        let word = self.head.lap | u64::from(kind) << 16 | u64::from(aux) << 24 | len << 32;
        // Release: pairs with the Acquire load in `Consumer::peek`; record and imm come before.
        slot.word.store(word, Ordering::Release);
        self.head.step();
    }

    /// Prefetches the slot [`AHEAD`] messages later for writing; for callers that will send further messages.
    #[inline(always)]
    pub fn look_ahead(&self) {
        prefetch_to_write(self.head.ahead());
    }

    /// Counts a record that followed another one without a reply in between.
    #[inline(always)]
    pub fn count_unanswered(&mut self) {
        self.unanswered += 1;
    }

    /// Maps the ring's body if it is not mapped, which is why there was no room then, reads the consumer's tails, and
    /// populates slots. True when there is a free slot.
    #[cold]
    fn refill(&mut self) -> Result<bool, Unusable> {
        if self.unmapped.is_some() && !self.has_body()? {
            return Ok(false);
        }
        // SAFETY: the ring outlives the producer.
        let tails = unsafe { self.start.as_ref() }.tails();
        // Acquire: pairs with the Release stores in `Consumer::release`; the consumer's reads of the memory that it
        // frees come before the producer's writes.
        let (slots, data) = (
            tails.slots.load(Ordering::Acquire),
            SpaceCounts::from_word(tails.data.load(Ordering::Acquire)),
        );
        if slots < self.given_back || slots > self.head.n || !self.own.refill(data.own) {
            return Err(Unusable);
        }
        self.given_back = slots;
        if self.head.n >= self.slot_pages.limit() {
            // SAFETY: the body is mapped, and outlives the producer.
            unsafe { self.slot_pages.extend(self.mem) };
        }
        // No message of the start lies in a slot of the body: those are free before the first lap.
        self.limit = (slots.max(SLOTS as u64) + SLOTS as u64).min(self.slot_pages.limit());
        if let Some(big_buf) = &mut self.big_buf
            && !big_buf.space.refill(data.big_buf)
        {
            return Err(Unusable);
        }
        Ok(self.head.n < self.limit)
    }

    /// Maps the ring's body if it is not mapped. False: the receiver is gone, and its memory with it.
    #[inline(never)]
    fn has_body(&mut self) -> Result<bool, Unusable> {
        let Some(source) = &self.unmapped else {
            return Ok(true);
        };
        let body = match source.find() {
            Ok(body) => body,
            Err(NoBody::Gone) => return Ok(false),
            Err(NoBody::Unmapped) => return Err(Unusable),
        };
        self.unmapped = None;
        self.mem = body;
        self.head.first = slots_of(body);
        if self.head.n == SLOTS as u64 {
            self.head.slot = self.head.first;
        }
        Ok(true)
    }

    /// The counter of canceled rendezvous of this ring.
    pub fn cancel_counter(&self) -> &CancelCounter {
        // SAFETY: the ring outlives the producer.
        unsafe { self.start.as_ref() }.cancel_counter()
    }

    /// The chunk states of messages that this producer's worker receives from the consumer's worker. Mapped as long as
    /// the ring. `None`: the ring's body cannot be mapped.
    pub fn board(&mut self) -> Option<NonNull<ChunkBoard>> {
        let mapped = self.has_body() == Ok(true);
        mapped.then(|| board_of(self.mem))
    }

    /// Closes the ring: nothing is sent afterwards.
    pub fn close(&mut self) {
        self.close_word().close();
    }

    /// Offers to close the ring. Only where it is [`drained`](Self::drained); nothing may be sent before the offer was
    /// withdrawn.
    pub fn offer_close(&self) {
        self.close_word().offer();
    }

    /// Withdraws the offer to close the ring.
    ///
    /// # Errors
    /// The consumer has answered: the ring cannot be used any more.
    pub fn withdraw_offer(&mut self) -> Result<(), CloseAnswer> {
        self.close_word().withdraw()
    }

    /// The consumer's answer to the offer to close the ring, if there is one.
    pub fn answer(&self) -> Option<CloseAnswer> {
        self.close_word().answer()
    }

    fn close_word(&self) -> &CloseWord {
        // SAFETY: the ring outlives the producer.
        unsafe { self.start.as_ref() }.close_word()
    }

    /// Whether the consumer has read everything.
    pub fn drained(&self) -> bool {
        // SAFETY: the ring outlives the producer.
        let tails = unsafe { self.start.as_ref() }.tails();
        // Acquire: pairs with the Release store in `Consumer::release`. The tail is 0 before the first release.
        tails.slots.load(Ordering::Acquire).max(FIRST) == self.head.n
    }

    #[inline(always)]
    fn slot(&self) -> &RingSlot {
        // SAFETY: the ring outlives the producer.
        unsafe { self.head.slot.as_ref() }
    }
}

/// The receiving end, used by one thread at a time.
pub struct Consumer {
    tail: RingCursor,
    mem: NonNull<RingMem>,
    start: NonNull<Start>,
    given_back: SpaceCounts,
    /// `given_back` after the message that `peek` returned.
    given_back_next: SpaceCounts,
    /// Epoch of the last message that was read.
    epoch: u64,
    /// Populated part of the ring's own data space.
    populated: Populated<DATA>,
    /// The big buffer that the producer has taken, from its first record there on.
    big_buf: Option<RxBigBuf>,
    /// None: the producer may use none.
    big_bufs: Option<BigBufs>,
}

/// The big buffer that the producer has taken, at the consumer.
struct RxBigBuf {
    big_buf: BigBuf,
    populated: Populated<BIG_BUF_BYTES>,
}

// SAFETY: the ring's memory is shared by design; the pointers in it do not depend on the thread.
unsafe impl Send for Consumer {}

impl Consumer {
    /// # Safety
    /// `ring` was zeroed before its producer was created, and outlives the consumer, which is its only one.
    pub unsafe fn new(ring: impl Into<RingParts>) -> Self {
        let RingParts { start, body } = ring.into();
        Self {
            tail: RingCursor::new(start, body),
            mem: body,
            start,
            given_back: SpaceCounts::default(),
            given_back_next: SpaceCounts::default(),
            epoch: 0,
            populated: Populated::first_page(),
            big_buf: None,
            big_bufs: None,
        }
    }

    /// Allows the ring's producer to take one of the inbox's `big_bufs`, if it has any.
    ///
    /// # Safety
    /// `big_bufs` belong to the ring's inbox, and outlive the consumer.
    pub unsafe fn with_big_bufs(mut self, big_bufs: Option<BigBufs>) -> Self {
        self.big_bufs = big_bufs;
        self
    }

    /// The address of the next record, which has `len` bytes and lies in the ring's own data space.
    #[inline(always)]
    fn next_in_ring(&mut self, len: usize) -> *const u8 {
        let (offset, used) = place::<DATA>(self.given_back.own as usize, len);
        let end = self.given_back.own.wrapping_add(used as u32);
        self.given_back_next.own = end;
        let data = data_of(self.mem);
        if !self.populated.covers(end) {
            // SAFETY: the ring, which has `DATA` bytes of data space, outlives the consumer.
            unsafe { (self.populated).extend(data.cast().as_ptr(), end, PageAccess::Read) };
        }
        // SAFETY: the ring outlives the consumer.
        unsafe { data.as_ref() }.to_read(offset, len)
    }

    /// The address of the next record, which has `len` bytes and lies in the big buffer of this number.
    #[inline(always)]
    fn next_in_big_buf(&mut self, number: u8, len: usize) -> Result<*const u8, CorruptRing> {
        let big_buf = match &mut self.big_buf {
            Some(known) if known.big_buf.number == number => known,
            known => follow(known, self.big_bufs, number)?,
        };
        let (offset, used) = place::<BIG_BUF_BYTES>(self.given_back.big_buf as usize, len);
        let end = self.given_back.big_buf.wrapping_add(used as u32);
        self.given_back_next.big_buf = end;
        let memory = big_buf.big_buf.memory.as_ptr();
        if !big_buf.populated.covers(end) {
            // SAFETY: the big buffer has `BIG_BUF_BYTES` bytes and outlives the consumer.
            unsafe { big_buf.populated.extend(memory, end, PageAccess::Read) };
        }
        // SAFETY: the offset is inside of the big buffer by `place`.
        Ok(unsafe { memory.add(offset) })
    }

    /// The counter of canceled rendezvous, in the ring's memory.
    pub fn cancel_counter(&self) -> *mut CancelCounter {
        // SAFETY: the ring outlives the consumer.
        unsafe { self.start.as_ref() }.cancel_counter() as *const CancelCounter
            as *mut CancelCounter
    }

    /// The oldest message, which stays until [`advance`](Self::advance).
    ///
    /// # Errors
    /// [`CorruptRing`] when the slot holds values that no correct producer writes.
    #[inline(always)]
    pub fn peek(&mut self) -> Result<Option<RingMessage>, CorruptRing> {
        // SAFETY: the ring outlives the consumer.
        let slot = unsafe { self.tail.slot.as_ref() };
        // Acquire: pairs with the Release store in `Producer::publish`. Loaded once: the other process may change the
        // word at any time.
        let word = slot.word.load(Ordering::Acquire);
        if word & 0xFFFF != self.tail.lap {
            return Ok(None);
        }
        let mut len = (word >> 32) as usize;
        let record = if len <= INLINE {
            slot.inline.to_read(0, len)
        } else if len & NEW_EPOCH != 0 && len & !NEW_EPOCH <= INLINE_WITH_EPOCH {
            len &= !NEW_EPOCH;
            self.epoch = self.epoch.max(epoch_of(slot, len));
            slot.inline.to_read(0, len)
        } else {
            if len & NEW_EPOCH != 0 {
                self.epoch = self
                    .epoch
                    .max(epoch_of(slot, len & ((1 << BIG_BUF_SHIFT) - 1)));
            }
            let big_buf = (len & !NEW_EPOCH) >> BIG_BUF_SHIFT;
            len &= (1 << BIG_BUF_SHIFT) - 1;
            if len <= INLINE_WITH_EPOCH || len > MAX_RECORD {
                return Err(CorruptRing);
            }
            match big_buf {
                0 => self.next_in_ring(len),
                number => self.next_in_big_buf(number as u8, len)?,
            }
        };
        Ok(Some(RingMessage {
            kind: (word >> 16) as u8,
            aux: (word >> 24) as u8,
            imm: slot.imm.load(Ordering::Relaxed),
            len,
            record,
        }))
    }

    /// How many of the next `most` messages have arrived. All of them were sent before the return.
    pub fn visible(&self, most: u32) -> u32 {
        self.count(0, most, |_| true)
    }

    /// How many of the next `most` messages have arrived and belong to the epoch of the first one.
    pub fn same_epoch(&self, most: u32) -> u32 {
        // A message after the first one that belongs to a new epoch has the flag.
        1 + self.count(1, most, |word| (word >> 32) as usize & NEW_EPOCH == 0)
    }

    /// How many messages, from the one `skip` places on, have arrived and satisfy `is`; at most `most` including those
    /// that were skipped.
    fn count(&self, skip: u32, most: u32, is: impl Fn(u64) -> bool) -> u32 {
        if self.is_stopped() {
            return 0;
        }
        let (mut at, mut count) = (self.tail, 0);
        while count < most.min(SLOTS as u32) {
            // SAFETY: the ring outlives the consumer.
            // Acquire: pairs with the Release store in `Producer::publish`: the caller's next look at another ring sees
            // the messages that were sent before this one.
            let word = unsafe { at.slot.as_ref() }.word.load(Ordering::Acquire);
            if word & 0xFFFF != at.lap || count >= skip && !is(word) {
                break;
            }
            at.step();
            count += 1;
        }
        count.saturating_sub(skip)
    }

    /// The epoch of the oldest message; `None`: there is none.
    pub fn epoch(&mut self) -> Option<u64> {
        // SAFETY: the ring outlives the consumer.
        let slot = unsafe { self.tail.slot.as_ref() };
        // Acquire: pairs with the Release store in `Producer::publish`.
        let word = slot.word.load(Ordering::Acquire);
        if word & 0xFFFF != self.tail.lap {
            return None;
        }
        let len = (word >> 32) as usize;
        if len & NEW_EPOCH != 0 {
            // Epochs of a ring only grow. Any number that a hostile producer writes counts as an epoch.
            self.epoch = self
                .epoch
                .max(epoch_of(slot, len & ((1 << BIG_BUF_SHIFT) - 1)));
        }
        Some(self.epoch)
    }

    /// Whether `peek` would return None. One load.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        // SAFETY: the ring outlives the consumer.
        // Acquire: pairs with the Release store in `Producer::publish`: the caller's next load of the doorbell sees
        // senders that incremented it before.
        let word = unsafe { self.tail.slot.as_ref() }
            .word
            .load(Ordering::Acquire);
        word & 0xFFFF != self.tail.lap
    }

    /// Prefetches the slot [`AHEAD`] messages later for reading; for callers that expect messages there: the producer
    /// would only take away a line that it is about to write.
    #[inline(always)]
    pub fn look_ahead(&self) {
        prefetch_to_read(self.tail.ahead());
    }

    /// Removes the message that `peek` returned.
    #[inline(always)]
    pub fn advance(&mut self) {
        self.tail.step();
        self.given_back = self.given_back_next;
    }

    /// Publishes to the producer how far it may write: called at the end of a batch.
    #[inline(always)]
    pub fn release(&mut self) {
        // SAFETY: the ring outlives the consumer.
        let tails = unsafe { self.start.as_ref() }.tails();
        // Release: pairs with the Acquire loads in `Producer::refill` and `Producer::drained`; the reads of the records
        // come before.
        tails
            .data
            .store(self.given_back.to_word(), Ordering::Release);
        tails.slots.store(self.tail.n, Ordering::Release);
    }

    /// Number of the next message: the messages that were taken, plus [`FIRST`].
    pub fn taken(&self) -> u64 {
        self.tail.n
    }

    /// Makes `peek` return None from now on: the sender broke the rules or died.
    pub fn stop(&mut self) {
        self.tail.lap = NO_LAP;
    }

    /// Whether [`stop`](Self::stop) was called.
    pub fn is_stopped(&self) -> bool {
        self.tail.lap == NO_LAP
    }

    /// The chunk states of messages that this consumer's worker sends to the producer's worker. Mapped as long as the
    /// ring.
    pub fn board(&self) -> NonNull<ChunkBoard> {
        board_of(self.mem)
    }

    /// Whether the producer has closed the ring: it sends nothing after the messages that are in the ring now.
    pub fn closed(&self) -> bool {
        self.close_word().is_closed()
    }

    /// Whether the producer offers to close the ring, and all its messages were taken.
    pub fn is_close_offered(&mut self) -> bool {
        self.close_word().is_offered() && matches!(self.peek(), Ok(None))
    }

    /// Agrees to the producer's offer to close the ring. False: the producer has withdrawn it.
    pub fn agree_to_close(&mut self, answer: CloseAnswer) -> bool {
        self.close_word().agree(answer)
    }

    fn close_word(&self) -> &CloseWord {
        // SAFETY: the ring outlives the consumer.
        unsafe { self.start.as_ref() }.close_word()
    }
}

/// Returns the big buffer of this number, which the producer has begun to use: it takes one big buffer, once. `known`:
/// the big buffer of the producer so far.
#[cold]
#[inline(never)]
fn follow(
    known: &mut Option<RxBigBuf>,
    big_bufs: Option<BigBufs>,
    number: u8,
) -> Result<&mut RxBigBuf, CorruptRing> {
    match (big_bufs.and_then(|big_bufs| big_bufs.find(number)), &known) {
        (Some(big_buf), None) => Ok(known.insert(RxBigBuf {
            big_buf,
            populated: Populated::none(),
        })),
        _ => Err(CorruptRing),
    }
}

/// A sender that is interrupted between the beginning of its epoch and its message.
#[cfg(all(test, not(loom)))]
impl Producer {
    /// Begins an epoch; returns its number.
    pub(super) fn begin_late(&mut self) -> u64 {
        self.epoch.begin()
    }

    /// Sends the first message of the epoch, without data.
    pub(super) fn publish_late(&mut self, epoch: u64, kind: u8, imm: u64) {
        let place = self.slot().inline.to_write(epoch_at(0), size_of::<u64>());
        // SAFETY: only the producer writes the slot, as there is room.
        unsafe { place.cast::<u64>().write_unaligned(epoch) };
        self.publish(kind, 0, imm, NEW_EPOCH as u64);
    }
}

#[cfg(all(test, loom))]
pub(super) mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests;
