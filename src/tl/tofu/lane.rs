//! The contract of a lane, for a ring in the peer's memory that the Tofu interconnect writes.

use super::sender::TofuSender;
use crate::tl::Token;
use crate::tl::contract::{LaneError, LaneOps, RecordHdr, ShortAm, Teardown};
use crate::tl::lane::sends_records;
use crate::tl::lane_short::copies_records;

impl LaneOps for TofuSender {
    sends_records!(LaneError::Refused, Ok);
    copies_records!();
    const STAYS_UNUSED: bool = true;

    /// Short records and puts have to take their turn behind what is pending.
    fn on_pending(&mut self) {
        self.revoke_budget();
    }

    fn is_drained(&self) -> bool {
        self.is_drained()
    }

    fn drain(&mut self) -> bool {
        self.drain()
    }

    fn flush_marker(&mut self, token: Token) -> bool {
        self.flush_marker(token)
    }

    fn fence(&mut self) {
        self.fence();
    }

    fn pass_fence(&mut self) -> bool {
        self.fence();
        true
    }

    fn are_rails_drained(&mut self) -> bool {
        self.is_contiguous()
    }

    fn for_each_token(&self, act: &mut dyn FnMut(Token)) {
        self.waiting().into_iter().for_each(act);
    }

    fn detach(&mut self, wanted: &dyn Fn(Token) -> bool) -> Vec<Token> {
        self.detach_owner(wanted)
    }

    fn zcopy_tokens(&self) -> Vec<Token> {
        self.zcopy_owners()
    }

    /// The connection's progress drops the sender when the TNI has reported every operation.
    fn teardown(&mut self, _is_dead: bool) -> Teardown {
        Teardown::Kept
    }
}

impl ShortAm for TofuSender {
    const RENEWS: bool = true;

    #[inline(always)]
    unsafe fn am_short(
        &mut self,
        kind: u8,
        imm: impl FnOnce() -> u64,
        data: *const u8,
        len: usize,
        count: impl FnOnce(),
    ) -> bool {
        if !self.has_send_budget() {
            return false;
        }
        // Before the send: nothing has to be saved across that call.
        count();
        // SAFETY: the caller's bytes and mode.
        unsafe { self.send_tiny(kind, imm(), data, len) };
        true
    }

    fn renew_short(&mut self) -> bool {
        self.refill_send_budget()
    }
}
