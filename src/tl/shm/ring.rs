//! The ring: a single-producer, single-consumer queue of messages in memory that two processes share.
//!
//! A message is 8 bytes of control word, 8 bytes of immediate and a record of bytes. It occupies one slot of two cache
//! lines; records of up to [`INLINE`] bytes lie in the slot, so that a small message costs one transfer of a cache
//! line, and larger ones in a circular space ([`super::space`]), or, those of more than [`SMALL`] bytes of a producer
//! that sends much, in a larger one ([`super::big_buf`]). The slot's control word carries the number of the lap: the
//! consumer knows a fresh slot from a stale one without an index that both sides would share. The consumer publishes
//! how far it has read; the producer looks there only when it seems to have run out of room.
//!
//! The first [`START_SLOTS`] messages have slots of their own, in the ring's [`Start`], which a sender maps together
//! with those of all other senders. The rest of the ring is mapped by its producer when it needs more ([`Start`] says
//! how).
//!
//! The first message of an epoch ([`super::order`]) carries the epoch's number.
//!
//! The producer is not trusted: the consumer checks kind and length against its own account of the
//! ring, and computes the record's place itself. Nor is the consumer: the producer checks tails.

use super::big_buf::{AREA, AREAS, BigBuf, BigBufs, HOT};
use super::chunk_board::ChunkBoard;
use super::close::{CloseAnswer, CloseWord};
use super::order::Epoch;
use super::space::{Populated, TxSpace, place};
use crate::sys::arch::OwnLine;
use crate::sys::copy::{self, TINY, prefetch_to_read, prefetch_to_write};
use crate::sys::populate::PageAccess;
use crate::sys::sync::{AtomicU64, Bytes, Ordering, fence};
use std::ptr::NonNull;

mod start;
pub(super) use start::BodySource;
use start::FIRST;
pub use start::{NoBody, RingParts, START_SLOTS, Start, Unusable};

/// Slots of a ring. A power of two.
pub const SLOTS: usize = if cfg!(loom) { 2 } else { 128 };
/// Bytes of a record that fit into a slot.
pub const INLINE: usize = 112;
/// As many where the slot also has the number of an epoch.
const INLINE_WITH_EPOCH: usize = INLINE - size_of::<u64>();
/// Longest record that leaves the end of the slot's first cache line to the number of an epoch, bytes.
const INLINE_FIRST_LINE: usize = 40;
/// Bytes of the data area. A power of two.
pub const DATA: usize = if cfg!(loom) { 512 } else { 64 << 10 };
/// Longest record: half of the data area, so that one always fits once the consumer has caught up.
pub const MAX_RECORD: usize = DATA / 2;
/// Longest record that lies in the ring also when its producer has an area, bytes: 1 KiB of data and its headers. Lines
/// of the ring are still in the two cores' caches, which is best for a record that is answered.
pub const SMALL: usize = (1 << 10) + 64;
/// As many where records follow each other without an answer. In the ring 512 B take 0.11 us then, in an area 0.07; 192
/// B take as long in either.
const SMALL_UNANSWERED: usize = 256;
/// Of an area that a producer has taken, so many bytes are populated each time that it looks for room in the ring,
/// where its records are answered: about a quarter of what it has sent since the last time, which costs about a fifth
/// of the time that the sending takes.
const PREPARED: usize = 16 << 10;
/// As many where records follow each other without an answer. The ring takes up to four times as long for them as the
/// area does, and longer than it takes to populate as many bytes: the sooner all of the area is, the better.
const PREPARED_UNANSWERED: usize = 128 << 10;
/// The number of the area is so many bits above the length.
const AREA_SHIFT: u32 = 24;
/// Beside the length: the slot has the number of an epoch, which begins with this message.
const NEW_EPOCH: usize = 1 << 31;
const _: () = assert!(AREAS < NEW_EPOCH >> AREA_SHIFT);

/// One message's place.
#[repr(C, align(128))]
struct RingSlot {
    /// lap (16 bits) | kind (8) | aux (8) | record length (24) | area (7) | new epoch (1), stored last by the producer.
    word: AtomicU64,
    imm: AtomicU64,
    inline: Bytes<INLINE>,
}

/// What the consumer writes and the producer reads.
#[repr(C)]
struct Tails {
    /// Slots consumed since the beginning.
    slots: AtomicU64,
    /// Bytes given back since the beginning: [`SpaceCounts`].
    data: AtomicU64,
}

/// Bytes given back of the two spaces since the beginning, each modulo 2^32.
#[derive(Clone, Copy, Default)]
#[repr(C, align(8))]
struct SpaceCounts {
    /// Of the ring's own data.
    own: u32,
    /// Of the area.
    area: u32,
}

impl SpaceCounts {
    #[inline(always)]
    fn to_word(self) -> u64 {
        u64::from(self.own) | u64::from(self.area) << 32
    }

    fn from_word(word: u64) -> Self {
        Self {
            own: word as u32,
            area: (word >> 32) as u32,
        }
    }
}

/// What the two ends tell each other of memory that the consumer copies from by itself.
#[repr(C)]
pub struct CancelCounter {
    /// Offers that the producer has taken back.
    count: AtomicU64,
    /// 1 while the consumer copies.
    copied: AtomicU64,
}

impl CancelCounter {
    /// The producer takes so many offers back. Nobody has been told yet that the memory is free.
    pub fn take_back(&self, offers: u64) {
        // SeqCst: comes before the look at `copied`, as the consumer's `copied` comes before its look at `count`: one
        // of the two sees the other.
        self.count.fetch_add(offers, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Whether the consumer is copying.
    pub fn is_copied(&self) -> bool {
        // Acquire: pairs with the Release store in `end_copy`.
        self.copied.load(Ordering::Acquire) != 0
    }

    /// The consumer begins to copy; what has been taken back so far.
    pub fn begin_copy(&self) -> u64 {
        // SeqCst: as in `take_back`.
        self.copied.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.count.load(Ordering::SeqCst)
    }

    /// What has been taken back by now.
    pub fn count(&self) -> u64 {
        // The copy comes before the load.
        fence(Ordering::SeqCst);
        self.count.load(Ordering::SeqCst)
    }

    /// The consumer has copied.
    pub fn end_copy(&self) {
        // Release: pairs with the Acquire load in `is_copied`.
        self.copied.store(0, Ordering::Release);
    }
}

/// The shared memory of a ring. All zero is an empty ring.
#[repr(C, align(4096))]
pub struct RingMem {
    /// Not used where the ring has one elsewhere ([`RingParts`]).
    start: Start,
    /// Of messages in the other direction, which this ring's producer receives.
    board: ChunkBoard,
    slots: [RingSlot; SLOTS],
    data: Bytes<DATA>,
}

/// A message as the consumer sees it. `record` points into the ring and is valid until
/// [`Consumer::advance`]; another process can write there, so it is copied before it is trusted.
#[derive(Clone, Copy)]
pub struct RingMessage {
    pub kind: u8,
    pub aux: u8,
    pub imm: u64,
    pub len: usize,
    pub record: *const u8,
}

/// The other side broke the rules of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorruptRing;

/// Lap number of the `n`-th message: 1 to 32768, so that zeroed memory is never a message. A slot is
/// rewritten in every lap: what is stale in it is the lap before.
#[inline(always)]
fn lap(n: u64) -> u64 {
    (n / SLOTS as u64) % 0x8000 + 1
}

/// Where in a slot's inline bytes the number of an epoch lies, beside a record of `len` bytes: in a cache line that is
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
    // SAFETY: inside of the slot. A hostile producer can change it meanwhile: any number is an epoch.
    unsafe { place.cast::<u64>().read_unaligned() }
}

/// The first slot of a ring's body, which may be dangling.
fn slots_of(mem: NonNull<RingMem>) -> NonNull<RingSlot> {
    let slots = std::mem::offset_of!(RingMem, slots);
    let first = mem.as_ptr().cast::<u8>().wrapping_add(slots);
    // SAFETY: a ring does not end at the last address, and neither does what is dangling.
    unsafe { NonNull::new_unchecked(first.cast()) }
}

/// Where one end stands.
#[derive(Clone, Copy)]
struct RingCursor {
    /// The slot of the next message, and the number of the lap that it is in.
    slot: NonNull<RingSlot>,
    lap: u64,
    /// The number of the next message: [`FIRST`] is the first one's.
    n: u64,
    /// The first slot of the body, not to be accessed before the body is mapped.
    first: NonNull<RingSlot>,
}

/// Of a consumer that takes no more: no slot says so.
const NO_LAP: u64 = u64::MAX;

impl RingCursor {
    /// At the first message of a ring. `body`: none is mapped where it is dangling.
    fn new(start: NonNull<Start>, body: NonNull<RingMem>) -> Self {
        Self {
            slot: Start::first_slot(start),
            lap: lap(FIRST),
            n: FIRST,
            first: slots_of(body),
        }
    }

    /// Goes on to the next slot.
    #[inline(always)]
    fn step(&mut self) {
        self.n += 1;
        if self.n % SLOTS as u64 != 0 {
            // SAFETY: not the last slot of the ring or of its start: one follows.
            self.slot = unsafe { self.slot.add(1) };
            return;
        }
        self.slot = self.first;
        if self.lap != NO_LAP {
            self.lap = lap(self.n);
        }
    }

    /// The slot that comes some messages later.
    #[inline(always)]
    fn ahead(&self) -> *const RingSlot {
        // Wrapping: before the body is mapped this is no slot's address, and the hint has no effect.
        self.first
            .as_ptr()
            .wrapping_add((self.n + AHEAD) as usize % SLOTS)
    }
}

fn board_of(mem: NonNull<RingMem>) -> NonNull<ChunkBoard> {
    // SAFETY: both ends are made of a ring.
    unsafe { NonNull::new_unchecked(&raw mut (*mem.as_ptr()).board) }
}

/// Slots ahead of the one in use that are brought into the cache: the transfer of a line takes as long
/// as a few messages.
const AHEAD: u64 = 4;

fn data_of(mem: NonNull<RingMem>) -> NonNull<Bytes<DATA>> {
    // SAFETY: both ends are made of a ring.
    unsafe { NonNull::new_unchecked(&raw mut (*mem.as_ptr()).data) }
}

/// The sending end. One thread at a time.
pub struct Producer {
    /// Dangling as long as `unmapped` is something.
    mem: NonNull<RingMem>,
    start: NonNull<Start>,
    head: RingCursor,
    /// How the body is mapped, until it is.
    unmapped: Option<BodySource>,
    /// Slots that the consumer has given back, as far as is known.
    given_back: u64,
    /// `head.n` may go up to here before the tails must be read again.
    limit: u64,
    /// Of the ring's own data.
    own: TxSpace<DATA>,
    /// For records of more than `small` bytes.
    area: Option<TxBigBuf>,
    /// [`SMALL`] or [`SMALL_UNANSWERED`]; [`usize::MAX`] while there is no area that is populated.
    small: usize,
    /// Records that followed another one without an answer, since the message of number `counted_from`.
    unanswered: u64,
    counted_from: u64,
    /// Whether they were fewer than half when they were last counted.
    answered: bool,
    epoch: Epoch,
    /// None: only the ring's own data is to be used.
    areas: Option<BigBufs>,
}

/// The area that a producer has taken.
struct TxBigBuf {
    area: BigBuf,
    space: TxSpace<AREA>,
}

// SAFETY: the ring's memory is shared by design; the producer's own state moves with it.
unsafe impl Send for Producer {}

impl Producer {
    /// # Safety
    /// `ring` is a zeroed ring that outlives the producer, and this is its only one. The counter of `epoch` outlives
    /// the producer, and all rings of the receiver have the same.
    pub unsafe fn new(ring: impl Into<RingParts>, epoch: Epoch) -> Self {
        let RingParts { start, body } = ring.into();
        Self::at(start, body, None, epoch)
    }

    /// As [`new`](Self::new), of a ring of which the start is mapped and the body is mapped by `body` once it is
    /// needed.
    ///
    /// # Safety
    /// As there.
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
        let (limit, own) = match unmapped {
            None => (2 * SLOTS as u64, TxSpace::new(populated)),
            Some(_) => (SLOTS as u64, TxSpace::unmapped(populated)),
        };
        Self {
            mem,
            start,
            head: RingCursor::new(start, mem),
            unmapped,
            given_back: 0,
            limit,
            own,
            area: None,
            small: usize::MAX,
            unanswered: 0,
            counted_from: FIRST,
            answered: true,
            epoch,
            areas: None,
        }
    }

    /// Lets it take an area of its inbox, if that has some.
    ///
    /// # Safety
    /// They are those of the ring's inbox, and outlive the producer.
    pub unsafe fn with_areas(mut self, areas: Option<BigBufs>) -> Self {
        self.areas = areas;
        self
    }

    /// Sends a record of at most [`TINY`] bytes, if there is room as far as is known and the epoch is still this
    /// producer's: calls nothing but `imm`, and that only then.
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
        // SAFETY: the ring outlives the producer; the slot is the producer's (below `limit`).
        unsafe {
            let slot = self.head.slot.as_ref();
            copy::tiny(slot.inline.to_write(0, len), src, len);
            slot.imm.store(imm(), Ordering::Relaxed);
            let word = self.head.lap | u64::from(kind) << 16 | (len as u64) << 32;
            // Release: as in `publish`.
            slot.word.store(word, Ordering::Release);
        }
        self.head.step();
        true
    }

    /// As [`send_tiny`](Self::send_tiny), of the first message since another sender has sent one.
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
        // SAFETY: the ring outlives the producer; the slot is the producer's (below `limit`).
        unsafe { copy::tiny(slot.inline.to_write(0, len), src, len) };
        self.write_epoch(len);
        self.publish(kind, 0, imm, (len | NEW_EPOCH) as u64);
        true
    }

    /// Begins an epoch, and writes its number into the slot of a message whose record has `len` bytes.
    fn write_epoch(&mut self, len: usize) {
        let epoch = self.epoch.begin();
        let place = self.slot().inline.to_write(epoch_at(len), size_of::<u64>());
        // SAFETY: the slot is the producer's (below `limit`), and the record leaves these bytes free.
        unsafe { place.cast::<u64>().write_unaligned(epoch) };
    }

    /// Sends a record of `len` bytes (up to [`MAX_RECORD`]), which `fill` writes in place.
    /// `Ok(false)`: no room now, `fill` was not called.
    ///
    /// # Errors
    /// [`Unusable`] when the consumer's account is impossible, or the ring cannot be mapped.
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
            let Some((record, area)) = self.take_long(len)? else {
                return Ok(false);
            };
            fill(record);
            self.publish(kind, aux, imm, len as u64 | area);
        }
        Ok(true)
    }

    /// As [`send`](Self::send), of the first message since another sender has sent one: it begins an epoch.
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
            let Some((record, area)) = self.take_long(len)? else {
                return Ok(false);
            };
            fill(record);
            word |= area;
        }
        self.write_epoch(len);
        self.publish(kind, aux, imm, word);
        Ok(true)
    }

    /// Takes room for a long record, if there is some: where the record is to be written, and the number of its area as
    /// the control word has it above the length.
    #[inline(always)]
    fn take_long(&mut self, len: usize) -> Result<Option<(*mut u8, u64)>, Unusable> {
        if self.head.n < self.limit
            && let Some(place) = self.take_known(len)
        {
            return Ok(Some(place));
        }
        self.take_long_late(len)
    }

    /// As [`take_long`](Self::take_long), of the room that is known, where a slot is free.
    #[inline(always)]
    fn take_known(&mut self, len: usize) -> Option<(*mut u8, u64)> {
        match &mut self.area {
            Some(TxBigBuf { area, space }) if len > self.small => {
                let offset = space.take(len)?;
                // SAFETY: inside of the area, which outlives the producer.
                let record = unsafe { area.memory.add(offset) };
                Some((record.as_ptr(), u64::from(area.number) << AREA_SHIFT))
            }
            _ => {
                let offset = self.own.take(len)?;
                // SAFETY: the ring outlives the producer; the range is free.
                let record = unsafe { data_of(self.mem).as_ref() }.to_write(offset, len);
                Some((record, 0))
            }
        }
    }

    /// As [`take_long`](Self::take_long), by what the consumer has given back since, or in an area.
    #[cold]
    #[inline(never)]
    fn take_long_late(&mut self, len: usize) -> Result<Option<(*mut u8, u64)>, Unusable> {
        Ok(match self.long_refill(len)? {
            true => self.take_known(len),
            false => None,
        })
    }

    /// Reads the consumer's tails, prepares an area if it is time for one, and populates what a record of `len` bytes
    /// needs. True when there is a free slot.
    #[cold]
    #[inline(never)]
    fn long_refill(&mut self, len: usize) -> Result<bool, Unusable> {
        let free = self.refill()?;
        if self.unmapped.is_some() {
            return Ok(false);
        }
        let small = self.classify();
        let is_in_use = self.small != usize::MAX;
        if is_in_use || len > small && self.own.given_out() >= HOT && self.prepare_area() {
            self.small = small;
        }
        if len <= self.small {
            // SAFETY: the ring outlives the producer.
            unsafe { self.own.extend(data_of(self.mem).cast().as_ptr(), len) };
        }
        Ok(free)
    }

    /// Takes an area if there is one, and populates a part of it. True when all of it is populated.
    fn prepare_area(&mut self) -> bool {
        let step = if self.answered {
            PREPARED
        } else {
            PREPARED_UNANSWERED
        };
        if self.area.is_none() {
            let area = self.areas.and_then(|areas| areas.claim());
            self.area = area.map(|area| TxBigBuf {
                area,
                space: TxSpace::new(Populated::none()),
            });
        }
        match &mut self.area {
            // SAFETY: areas are mapped as long as the producer lives.
            Some(TxBigBuf { area, space }) => unsafe { space.prepare(area.memory.as_ptr(), step) },
            None => false,
        }
    }

    /// Up to which length records are small: that depends on whether they follow each other without an answer, as most
    /// of those did since this was last asked.
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

    /// Whether there is a slot and, as far as is known, room for a long record of `len` bytes or any shorter one.
    fn has_long_room(&self, len: usize) -> bool {
        let own = |len| self.own.has_room(len);
        let room = match &self.area {
            Some(area) if len > self.small => area.space.has_room(len) && own(self.small),
            _ => own(len),
        };
        room && self.head.n < self.limit
    }

    /// Whether a record of `len` bytes, or any shorter one, can be sent now.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn has_room(&mut self, len: usize) -> Result<bool, Unusable> {
        // In a new epoch fewer bytes fit into a slot.
        if len <= INLINE_WITH_EPOCH {
            return Ok(self.head.n < self.limit || self.refill()?);
        }
        Ok(self.has_long_room(len) || self.long_refill(len)? && self.has_long_room(len))
    }

    /// `len`: as the control word has it, with area and epoch.
    #[inline(always)]
    fn publish(&mut self, kind: u8, aux: u8, imm: u64, len: u64) {
        let slot = self.slot();
        slot.imm.store(imm, Ordering::Relaxed);
        let word = self.head.lap | u64::from(kind) << 16 | u64::from(aux) << 24 | len << 32;
        // Release: pairs with the Acquire load in `Consumer::peek`; record and imm come before.
        slot.word.store(word, Ordering::Release);
        self.head.step();
    }

    /// Brings a slot after the next ones into the cache, for a caller who is going to send some.
    #[inline(always)]
    pub fn look_ahead(&self) {
        prefetch_to_write(self.head.ahead());
    }

    /// The last record followed another one without an answer in between.
    #[inline(always)]
    pub fn count_unanswered(&mut self) {
        self.unanswered += 1;
    }

    /// Maps the ring's body if it is not mapped, which is what is missing then, and reads the consumer's tails; true
    /// when there is a free slot.
    #[cold]
    fn refill(&mut self) -> Result<bool, Unusable> {
        if self.unmapped.is_some() && !self.has_body()? {
            return Ok(false);
        }
        // SAFETY: the ring outlives the producer.
        let tails = unsafe { self.start.as_ref() }.tails();
        // Acquire: pairs with the Release stores in `Consumer::release`; the consumer's reads of
        // what it gives back come before our writes.
        let (slots, data) = (
            tails.slots.load(Ordering::Acquire),
            SpaceCounts::from_word(tails.data.load(Ordering::Acquire)),
        );
        if slots < self.given_back || slots > self.head.n || !self.own.refill(data.own) {
            return Err(Unusable);
        }
        self.given_back = slots;
        // No message of the start lies in a slot of the body: those are free before the first lap.
        self.limit = slots.max(SLOTS as u64) + SLOTS as u64;
        if let Some(area) = &mut self.area
            && !area.space.refill(data.area)
        {
            return Err(Unusable);
        }
        Ok(self.head.n < self.limit)
    }

    /// Maps the ring's body if it is not mapped. False: the receiver is gone, and with it the memory.
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

    /// What it has taken back.
    pub fn withdrawals(&self) -> &CancelCounter {
        // SAFETY: the ring outlives the producer.
        unsafe { self.start.as_ref() }.withdrawals()
    }

    /// The shares of what this end's owner receives from the consumer's. Mapped as long as the ring. `None`: the ring's
    /// body cannot be mapped.
    pub fn board(&mut self) -> Option<NonNull<ChunkBoard>> {
        let mapped = self.has_body() == Ok(true);
        mapped.then(|| board_of(self.mem))
    }

    /// Tells the consumer that nothing will follow.
    pub fn close(&mut self) {
        self.close_word().close();
    }

    /// Offers to close the ring. Only where it is [`drained`](Self::drained): nothing is sent before the offer was
    /// taken back.
    pub fn offer_close(&self) {
        self.close_word().offer();
    }

    /// Takes the offer to close the ring back.
    ///
    /// # Errors
    /// The consumer has answered: the ring cannot be used any more.
    pub fn take_back(&mut self) -> Result<(), CloseAnswer> {
        self.close_word().take_back()
    }

    /// What the consumer has answered to the offer to close the ring, if it has.
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
        // Acquire: pairs with the Release store in `Consumer::release`. It is 0 before the first one.
        tails.slots.load(Ordering::Acquire).max(FIRST) == self.head.n
    }

    #[inline(always)]
    fn slot(&self) -> &RingSlot {
        // SAFETY: the ring outlives the producer.
        unsafe { self.head.slot.as_ref() }
    }
}

/// The receiving end. One thread at a time.
pub struct Consumer {
    tail: RingCursor,
    mem: NonNull<RingMem>,
    start: NonNull<Start>,
    given_back: SpaceCounts,
    /// `given_back` after the message that `peek` showed.
    given_back_next: SpaceCounts,
    /// That of the last message that was looked at.
    epoch: u64,
    /// Of the ring's own data.
    populated: Populated<DATA>,
    /// The one that the producer has taken, from its first record on.
    area: Option<RxBigBuf>,
    /// None: the producer has none to use.
    areas: Option<BigBufs>,
}

/// The area that the producer has taken, as the consumer knows it.
struct RxBigBuf {
    area: BigBuf,
    populated: Populated<AREA>,
}

// SAFETY: as for `Producer`.
unsafe impl Send for Consumer {}

impl Consumer {
    /// # Safety
    /// `ring` was zeroed before its producer began, outlives the consumer, and this is its only one.
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
            area: None,
            areas: None,
        }
    }

    /// Lets its producer take an area of their inbox, if that has some.
    ///
    /// # Safety
    /// They are those of the ring's inbox, and outlive the consumer.
    pub unsafe fn with_areas(mut self, areas: Option<BigBufs>) -> Self {
        self.areas = areas;
        self
    }

    /// The place of the next record, which has `len` bytes and lies in the ring's own data.
    #[inline(always)]
    fn next_in_ring(&mut self, len: usize) -> *const u8 {
        let (offset, used) = place::<DATA>(self.given_back.own as usize, len);
        let end = self.given_back.own.wrapping_add(used as u32);
        self.given_back_next.own = end;
        let data = data_of(self.mem);
        if !self.populated.covers(end) {
            // SAFETY: the ring outlives the consumer.
            unsafe { (self.populated).extend(data.cast().as_ptr(), end, PageAccess::Read) };
        }
        // SAFETY: as above.
        unsafe { data.as_ref() }.to_read(offset, len)
    }

    /// As [`next_in_ring`](Self::next_in_ring), in the area of this number.
    #[inline(always)]
    fn next_in_area(&mut self, number: u8, len: usize) -> Result<*const u8, CorruptRing> {
        let area = match &mut self.area {
            Some(known) if known.area.number == number => known,
            known => follow(known, self.areas, number)?,
        };
        let (offset, used) = place::<AREA>(self.given_back.area as usize, len);
        let end = self.given_back.area.wrapping_add(used as u32);
        self.given_back_next.area = end;
        let memory = area.area.memory.as_ptr();
        if !area.populated.covers(end) {
            // SAFETY: the area outlives the consumer.
            unsafe { area.populated.extend(memory, end, PageAccess::Read) };
        }
        // SAFETY: inside of the area by `place`.
        Ok(unsafe { memory.add(offset) })
    }

    /// What the producer has taken back: in the ring's memory.
    pub fn withdrawals(&self) -> *mut CancelCounter {
        // SAFETY: the ring outlives the consumer.
        unsafe { self.start.as_ref() }.withdrawals() as *const CancelCounter as *mut CancelCounter
    }

    /// The oldest message, which stays until [`advance`](Self::advance).
    ///
    /// # Errors
    /// [`CorruptRing`] when the slot holds what no producer writes.
    #[inline(always)]
    pub fn peek(&mut self) -> Result<Option<RingMessage>, CorruptRing> {
        // SAFETY: the ring outlives the consumer.
        let slot = unsafe { self.tail.slot.as_ref() };
        // Acquire: pairs with the Release store in `Producer::publish`. Loaded once: the other
        // process may change it at any time.
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
                    .max(epoch_of(slot, len & ((1 << AREA_SHIFT) - 1)));
            }
            let area = (len & !NEW_EPOCH) >> AREA_SHIFT;
            len &= (1 << AREA_SHIFT) - 1;
            if len <= INLINE_WITH_EPOCH || len > MAX_RECORD {
                return Err(CorruptRing);
            }
            match area {
                0 => self.next_in_ring(len),
                number => self.next_in_area(number as u8, len)?,
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

    /// How many of the next `most` messages are here. They were all sent before this is answered.
    pub fn visible(&self, most: u32) -> u32 {
        self.count(0, most, |_| true)
    }

    /// How many of the next `most` messages are here and of the first one's epoch.
    pub fn same_epoch(&self, most: u32) -> u32 {
        // Of a message after the first one: a new epoch would begin with it.
        1 + self.count(1, most, |word| (word >> 32) as usize & NEW_EPOCH == 0)
    }

    /// How many messages from the one in `skip` places on are here and are so, if there are no more than `most` with
    /// those that were skipped.
    fn count(&self, skip: u32, most: u32, is: impl Fn(u64) -> bool) -> u32 {
        if self.is_stopped() {
            return 0;
        }
        let (mut at, mut count) = (self.tail, 0);
        while count < most.min(SLOTS as u32) {
            // SAFETY: the ring outlives the consumer.
            // Acquire: pairs with the Release store in `Producer::publish`: the caller's next look at another ring
            // sees what was sent before this message.
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
            // Epochs of a ring only grow. Whatever a hostile producer writes counts as an epoch.
            self.epoch = self
                .epoch
                .max(epoch_of(slot, len & ((1 << AREA_SHIFT) - 1)));
        }
        Some(self.epoch)
    }

    /// Whether `peek` would show something. One load.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        // SAFETY: the ring outlives the consumer.
        // Acquire: pairs with the Release store in `Producer::publish`: the caller's next look at the doorbell sees
        // a sender that had rung before.
        let word = unsafe { self.tail.slot.as_ref() }
            .word
            .load(Ordering::Acquire);
        word & 0xFFFF != self.tail.lap
    }

    /// Brings a message after the next ones into the cache, for a caller who expects some: a line
    /// that the producer is about to write would only be taken away from it.
    #[inline(always)]
    pub fn look_ahead(&self) {
        prefetch_to_read(self.tail.ahead());
    }

    /// Done with the message that `peek` showed.
    #[inline(always)]
    pub fn advance(&mut self) {
        self.tail.step();
        self.given_back = self.given_back_next;
    }

    /// Tells the producer how far it may go: to be called at the end of a batch.
    #[inline(always)]
    pub fn release(&mut self) {
        // SAFETY: the ring outlives the consumer.
        let tails = unsafe { self.start.as_ref() }.tails();
        // Release: pairs with the Acquire loads in `Producer::refill`.
        tails
            .data
            .store(self.given_back.to_word(), Ordering::Release);
        tails.slots.store(self.tail.n, Ordering::Release);
    }

    /// Counts the messages that were taken.
    pub fn taken(&self) -> u64 {
        self.tail.n
    }

    /// Shows no message from here on: the sender broke the rules or died.
    pub fn stop(&mut self) {
        self.tail.lap = NO_LAP;
    }

    /// Whether it was stopped.
    pub fn is_stopped(&self) -> bool {
        self.tail.lap == NO_LAP
    }

    /// The shares of what this end's owner sends to the producer's. Mapped as long as the ring.
    pub fn board(&self) -> NonNull<ChunkBoard> {
        board_of(self.mem)
    }

    /// Whether the producer has said that nothing will follow what is in the ring now.
    pub fn closed(&self) -> bool {
        self.close_word().is_closed()
    }

    /// Whether the producer offers to close the ring, and has sent nothing that was not taken.
    pub fn is_close_offered(&mut self) -> bool {
        self.close_word().is_offered() && matches!(self.peek(), Ok(None))
    }

    /// Agrees to the producer's offer. False: the producer has taken it back.
    pub fn agree_to_close(&mut self, answer: CloseAnswer) -> bool {
        self.close_word().agree(answer)
    }

    fn close_word(&self) -> &CloseWord {
        // SAFETY: the ring outlives the consumer.
        unsafe { self.start.as_ref() }.close_word()
    }
}

/// The producer has begun to use an area of this number: it takes one of its `areas`, once. `known`: the one that it
/// has.
#[cold]
#[inline(never)]
fn follow(
    known: &mut Option<RxBigBuf>,
    areas: Option<BigBufs>,
    number: u8,
) -> Result<&mut RxBigBuf, CorruptRing> {
    match (areas.and_then(|areas| areas.find(number)), &known) {
        (Some(area), None) => Ok(known.insert(RxBigBuf {
            area,
            populated: Populated::none(),
        })),
        _ => Err(CorruptRing),
    }
}

/// A sender that is interrupted.
#[cfg(all(test, not(loom)))]
impl Producer {
    /// Begins an epoch: its number.
    pub(super) fn begin_late(&mut self) -> u64 {
        self.epoch.begin()
    }

    /// Sends the first message of the epoch, without data.
    pub(super) fn publish_late(&mut self, epoch: u64, kind: u8, imm: u64) {
        let place = self.slot().inline.to_write(epoch_at(0), size_of::<u64>());
        // SAFETY: the slot is the producer's: there is room.
        unsafe { place.cast::<u64>().write_unaligned(epoch) };
        self.publish(kind, 0, imm, NEW_EPOCH as u64);
    }
}

#[cfg(all(test, loom))]
pub(super) mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests;
