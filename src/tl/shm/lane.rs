//! The contract of a lane, for a ring in the peer's shared memory.

use super::outbox::Outbox;
use super::ring::Unusable;
use super::split_copy::{SplitCopy, SplitCopyId};
use crate::sys::copy;
use crate::tl::contract::{LaneError, LaneOps, RecordHdr, Teardown};
use crate::tl::lane::sends_records;

impl From<Unusable> for LaneError {
    fn from(_: Unusable) -> Self {
        LaneError::Unusable
    }
}

impl LaneOps for Outbox {
    sends_records!(LaneError::Unusable, |sent| Ok(sent?));
    const DRAINS_IN_CALL: bool = true;
    const IS_MAPPED: bool = true;

    #[inline(always)]
    unsafe fn am_now(
        &mut self,
        kind: u8,
        imm: u64,
        data: *const u8,
        len: usize,
        received: impl FnOnce() -> Option<u64>,
    ) -> bool {
        let sent = self.send(kind, 0, imm, len, move |record| {
            // SAFETY: the record has room for `len` bytes, as many as are readable at `data`.
            unsafe { copy::to_shared(record, data, len) };
        });
        // No prefetch in a peer that threads share: its next message begins with an atomic exchange, which would wait
        // for the cache lines that are being fetched.
        if sent == Ok(true)
            && let Some(received) = received()
        {
            self.look_ahead_of_long(received, len);
        }
        sent == Ok(true)
    }

    fn is_abandoned(&self) -> bool {
        Self::is_abandoned(self)
    }

    fn progressed_at(&self) -> Option<u64> {
        Some(Self::progressed_at(self))
    }

    /// The contents of the ring are in the receiver's memory.
    fn is_drained(&self) -> bool {
        true
    }

    fn open_split_copy(&mut self) -> Option<(SplitCopy, SplitCopyId)> {
        Self::open_split_copy(self)
    }

    fn close_split_copy(&mut self, split: SplitCopy) {
        Self::close_split_copy(self, split);
    }

    fn count_cancelled(&self, offers: u64) {
        self.cancel_counter().count_cancelled(offers);
    }

    fn is_copied(&self) -> bool {
        self.cancel_counter().is_copied()
    }

    fn teardown(&mut self, is_dead: bool) -> Teardown {
        // Receives that were started before the failure have chunk boards in the ring's memory.
        if self.has_open_split_copy() {
            return Teardown::Later;
        }
        if is_dead {
            self.discard_unread();
        }
        Teardown::Drop
    }
}
