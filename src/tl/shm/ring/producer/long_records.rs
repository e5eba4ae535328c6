//! Room for records that do not fit into a slot: in the ring's own data space, or in a big buffer.

use super::{Producer, TxBigBuf};
use crate::tl::shm::big_buf::{BIG_BUF_AFTER, BIG_BUF_AFTER_SHORT};
use crate::tl::shm::ring::{
    BIG_BUF_SHIFT, PREPARED, SENT_PER_STEP, SENT_PER_STEP_WITH_ROOM, SLOTS, SMALL,
    SMALL_UNANSWERED, Unusable, data_of,
};
use crate::tl::shm::space::{Populated, TxSpace};

impl Producer {
    /// Allocates room for a long record, if there is some: returns the address of the record, and the number of its
    /// big buffer in its position above the length of the control word.
    #[inline(always)]
    pub(super) fn take_long(&mut self, len: usize) -> Result<Option<(*mut u8, u64)>, Unusable> {
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
        Ok(if self.long_refill(len)? {
            self.take_known(len)
        } else {
            None
        })
    }

    /// Reads the consumer's tails, prepares a big buffer if its producer has sent enough, and populates what a record
    /// of `len` bytes needs. True when there is a free slot.
    #[cold]
    #[inline(never)]
    pub(super) fn long_refill(&mut self, len: usize) -> Result<bool, Unusable> {
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

    /// Takes a big buffer if one is free, and populates a part of it if enough was sent since the last part. `len`:
    /// bytes of the next record. True when all of it is populated.
    ///
    /// Populating all of it at once would keep the receiver waiting for as long as thousands of records take. Where
    /// long records follow each other without a reply a part is populated while the ring is full: the producer waits
    /// anyway.
    fn prepare_big_buf(&mut self, len: usize) -> bool {
        let sent_per_step = if self.answered || len <= SMALL || !self.own.has_room(len) {
            SENT_PER_STEP
        } else {
            SENT_PER_STEP_WITH_ROOM
        };
        if self.own.given_out() < self.prepared_at + sent_per_step {
            return false;
        }
        self.prepared_at = self.own.given_out();
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
                space.prepare(big_buf.memory.as_ptr(), PREPARED)
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
    pub(super) fn has_long_room(&self, len: usize) -> bool {
        let own = |len| self.own.has_room(len);
        let room = match &self.big_buf {
            Some(big_buf) if len > self.small => big_buf.space.has_room(len) && own(self.small),
            _ => own(len),
        };
        room && self.head.n < self.limit
    }
}
