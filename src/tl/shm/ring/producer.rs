//! The sending end of a ring.

use super::{BodyError, BodySource, RingParts, Start, Unusable};
use super::{
    CancelCounter, ChunkBoard, DATA, FIRST, FIRST_LINE, INLINE, INLINE_WITH_EPOCH, MAX_RECORD,
    NEW_EPOCH, RingCursor, RingMem, RingSlot, SLOT, SLOTS, SlotPages, SpaceCounts, board_of,
    epoch_at, slots_of,
};
use crate::sys::copy::{self, TINY, prefetch_to_write};
use crate::sys::sync::Ordering;
use crate::tl::shm::big_buf::{BIG_BUF_BYTES, BigBuf, BigBufs};
use crate::tl::shm::close::{CloseAnswer, CloseOffer, CloseWord};
use crate::tl::shm::order::Epoch;
use crate::tl::shm::space::{Populated, TxSpace};
use std::ptr::NonNull;

mod long_records;

/// The sending end, used by one thread at a time.
pub struct Producer {
    /// Dangling as long as `unmapped` is Some.
    pub(super) mem: NonNull<RingMem>,
    pub(super) start: NonNull<Start>,
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
    /// Bytes sent through the ring when a part of the big buffer was last populated.
    prepared_at: u64,
    /// [`super::SMALL`] or [`super::SMALL_UNANSWERED`]; [`usize::MAX`] while there is no populated big buffer.
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
    pub(in crate::tl::shm) unsafe fn starting(
        start: NonNull<Start>,
        body: BodySource,
        epoch: Epoch,
    ) -> Self {
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
            prepared_at: 0,
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

    /// Sends a record of two words, if there is room by the last values read and the present epoch is this producer's:
    /// calls nothing.
    #[inline(always)]
    pub fn send_words(&mut self, kind: u8, aux: u8, imm: u64, words: [u64; 2]) -> bool {
        if !self.epoch.lasts_for_tiny() || self.head.n == self.limit {
            return false;
        }
        let place = self.slot().inline.to_write(0, size_of_val(&words));
        // SAFETY: the ring outlives the producer, and only the producer writes the slot (below `limit`), whose inline
        // bytes have room for two words.
        unsafe { place.cast::<[u64; 2]>().write_unaligned(words) };
        self.publish(kind, aux, imm, size_of_val(&words) as u64);
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

    /// Prefetches the slot [`super::AHEAD`] messages later for writing; for callers that will send further messages.
    #[inline(always)]
    pub fn look_ahead(&self) {
        prefetch_to_write(self.head.ahead());
    }

    /// [`look_ahead`](Self::look_ahead) for records of `len` bytes: of a slot whose second line they reach, both lines.
    /// 64 B follow each other at 17 to 21 instead of 15 to 16 million messages per second then.
    #[inline(always)]
    pub fn look_ahead_of(&self, len: usize) {
        self.look_ahead();
        if len > FIRST_LINE && len <= INLINE {
            let second = self.head.ahead().cast::<u8>().wrapping_add(SLOT / 2);
            prefetch_to_write(second);
        }
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
            Err(BodyError::Gone) => return Ok(false),
            Err(BodyError::Unmapped) => return Err(Unusable),
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
    pub fn offer_close(&self, offer: CloseOffer) {
        self.close_word().offer(offer);
    }

    /// Withdraws this offer to close the ring.
    ///
    /// # Errors
    /// The consumer has answered: the ring cannot be used any more.
    pub fn withdraw_offer(&mut self, offer: CloseOffer) -> Result<(), CloseAnswer> {
        self.close_word().withdraw(offer)
    }

    /// The consumer's answer to this offer to close the ring, if there is one.
    pub fn answer(&self, offer: CloseOffer) -> Option<CloseAnswer> {
        self.close_word().answer(offer)
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

    /// Number of the next message: the messages that were sent, plus [`FIRST`].
    #[inline(always)]
    pub fn sent(&self) -> u64 {
        self.head.n
    }

    /// Number of the first message that the consumer has not handled, and of the message behind the last signal that it
    /// has refused (0: it has refused none). `None`: the consumer counts more messages than were sent.
    pub fn handled(&self) -> Option<(u64, u64)> {
        // SAFETY: the ring outlives the producer.
        let tails = unsafe { self.start.as_ref() }.tails();
        // Acquire: pairs with the Release store in `Consumer::release`: what the consumer did with the messages comes
        // before. The tail is 0 before the first release.
        let handled = tails.slots.load(Ordering::Acquire).max(FIRST);
        // Relaxed: stored before the tail that was loaded, or for a later signal.
        let refused = tails.refused.load(Ordering::Relaxed);
        (handled <= self.head.n).then_some((handled, refused))
    }

    /// The slot of the next message. It may be written only if the consumer has freed it: the message's number is below
    /// `limit`.
    #[inline(always)]
    pub(super) fn slot(&self) -> &RingSlot {
        // SAFETY: the ring outlives the producer.
        unsafe { self.head.slot.as_ref() }
    }
}

/// A sender that is interrupted between the beginning of its epoch and its message.
#[cfg(all(test, not(loom)))]
impl Producer {
    /// Begins an epoch; returns its number.
    pub(in crate::tl::shm) fn begin_late(&mut self) -> u64 {
        self.epoch.begin()
    }

    /// Sends the first message of the epoch, without data.
    pub(in crate::tl::shm) fn publish_late(&mut self, epoch: u64, kind: u8, imm: u64) {
        let place = self.slot().inline.to_write(epoch_at(0), size_of::<u64>());
        // SAFETY: only the producer writes the slot, as there is room.
        unsafe { place.cast::<u64>().write_unaligned(epoch) };
        self.publish(kind, 0, imm, NEW_EPOCH as u64);
    }
}
