//! The receiving end of a ring.

use super::{
    BIG_BUF_SHIFT, CancelCounter, ChunkBoard, CorruptRing, DATA, INLINE, INLINE_WITH_EPOCH,
    MAX_RECORD, NEW_EPOCH, NO_LAP, RingCursor, RingMem, RingParts, SLOTS, SpaceCounts, Start,
    board_of, data_of, epoch_of,
};
use crate::sys::copy::prefetch_to_read;
use crate::sys::populate::PageAccess;
use crate::sys::sync::Ordering;
use crate::tl::Message;
use crate::tl::shm::big_buf::{BIG_BUF_BYTES, BigBuf, BigBufs};
use crate::tl::shm::close::{CloseAnswer, CloseOffer, CloseWord};
use crate::tl::shm::space::{Populated, place};
use std::ptr::NonNull;

/// The receiving end, used by one thread at a time. What a look at the ring reads comes first.
#[repr(C)]
pub struct Consumer {
    tail: RingCursor,
    /// Epoch of the last message that was read.
    epoch: u64,
    mem: NonNull<RingMem>,
    start: NonNull<Start>,
    given_back: SpaceCounts,
    /// `given_back` after the message that `peek` returned.
    given_back_next: SpaceCounts,
    /// Populated part of the ring's own data space.
    populated: Populated<DATA>,
    /// The big buffer that the producer has taken, from its first record there on.
    pub(super) big_buf: Option<RxBigBuf>,
    /// None: the producer may use none. Boxed: needed once.
    big_bufs: Option<Box<BigBufs>>,
}

/// The big buffer that the producer has taken, at the consumer.
pub(super) struct RxBigBuf {
    pub(super) big_buf: BigBuf,
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
        self.big_bufs = big_bufs.map(Box::new);
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
            known => follow(known, self.big_bufs.as_deref(), number)?,
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
    pub fn peek(&mut self) -> Result<Option<Message>, CorruptRing> {
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
        Ok(Some(Message {
            kind: (word >> 16) as u8,
            aux: (word >> 24) as u8,
            imm: slot.imm.load(Ordering::Relaxed),
            len,
            record,
        }))
    }

    /// The immediate and the record of the oldest message, if that is of this kind with this `aux`, of two words, and
    /// begins no epoch. It stays until [`advance`](Self::advance).
    #[inline(always)]
    pub fn peek_words(&self, kind: u8, aux: u8) -> Option<(u64, [u64; 2])> {
        // SAFETY: the ring outlives the consumer.
        let slot = unsafe { self.tail.slot.as_ref() };
        // Acquire: pairs with the Release store in `Producer::publish`.
        let word = slot.word.load(Ordering::Acquire);
        let len = size_of::<[u64; 2]>();
        let wanted = u64::from(kind) | u64::from(aux) << 8 | (len as u64) << 16;
        // Compared by parts: no word has the lap of a consumer that was stopped.
        if word & 0xFFFF != self.tail.lap || word >> 16 != wanted {
            return None;
        }
        // SAFETY: inside of the slot. Read once: a hostile producer can change the bytes meanwhile.
        let words = unsafe {
            slot.inline
                .to_read(0, len)
                .cast::<[u64; 2]>()
                .read_unaligned()
        };
        Some((slot.imm.load(Ordering::Relaxed), words))
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

    /// Epoch of the last message that [`peek`](Self::peek) or [`epoch`](Self::epoch) has seen; 0: there was none.
    #[inline(always)]
    pub fn last_epoch(&self) -> u64 {
        self.epoch
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

    /// Prefetches the slot [`super::AHEAD`] messages later for reading; for callers that expect messages there: the
    /// producer would only take away a line that it is about to write.
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

    /// Publishes that the oldest message, a signal, is refused. Called before [`advance`](Self::advance): the producer
    /// sees it no later than the position behind the signal.
    #[cold]
    pub fn refuse(&self) {
        // SAFETY: the ring outlives the consumer.
        let tails = unsafe { self.start.as_ref() }.tails();
        // Relaxed: the Release store of `slots` in `release` publishes it.
        tails.refused.store(self.tail.n + 1, Ordering::Relaxed);
    }

    /// Publishes to the producer how far it may write: called at the end of a batch.
    #[inline(always)]
    pub fn release(&mut self) {
        // SAFETY: the ring outlives the consumer.
        let tails = unsafe { self.start.as_ref() }.tails();
        // Release: pairs with the Acquire loads in `Producer::refill`, `Producer::drained` and `Producer::handled`; the
        // reads of the records, and what was done with them, come before.
        tails
            .data
            .store(self.given_back.to_word(), Ordering::Release);
        tails.slots.store(self.tail.n, Ordering::Release);
    }

    /// Number of the next message: the messages that were taken, plus [`super::FIRST`].
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

    /// Whether the producer has closed the ring, and all its messages were taken.
    pub fn is_finished(&mut self) -> bool {
        self.closed() && matches!(self.peek(), Ok(None))
    }

    /// The producer's offer to close the ring, if there is one, and all its messages were taken.
    pub fn close_offer(&mut self) -> Option<CloseOffer> {
        let offer = self.close_word().offered()?;
        matches!(self.peek(), Ok(None)).then_some(offer)
    }

    /// Agrees to this offer of the producer to close the ring. False: the producer has withdrawn it.
    pub fn agree_to_close(&mut self, offer: CloseOffer, answer: CloseAnswer) -> bool {
        self.close_word().agree(offer, answer)
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
fn follow<'a>(
    known: &'a mut Option<RxBigBuf>,
    big_bufs: Option<&BigBufs>,
    number: u8,
) -> Result<&'a mut RxBigBuf, CorruptRing> {
    match (big_bufs.and_then(|big_bufs| big_bufs.find(number)), &known) {
        (Some(big_buf), None) => Ok(known.insert(RxBigBuf {
            big_buf,
            populated: Populated::none(),
        })),
        _ => Err(CorruptRing),
    }
}
