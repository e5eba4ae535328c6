//! The contract of a lane, for queue pairs: RC with its rails, or UD.

use super::sender::IbSender;
use crate::tl::Token;
use crate::tl::contract::{LaneError, LaneOps, QpTransport, RecordHdr, ShortAm, Teardown};
use crate::tl::lane::sends_records;
use crate::tl::lane_short::copies_records;

impl LaneOps for IbSender {
    sends_records!(LaneError::Refused, Ok);
    copies_records!();

    /// The queue pair is destroyed.
    const STOPS_WHEN_DROPPED: bool = true;

    /// Completions or a timer make the descriptor readable.
    fn has_room_event(&self) -> bool {
        true
    }

    fn is_drained(&self) -> bool {
        self.is_drained()
    }

    fn drain(&mut self) -> bool {
        self.drain()
    }

    fn flush_marker(&mut self, token: Token) -> bool {
        let can = self.can_flush_marker();
        if can {
            self.flush_marker(token);
        }
        can
    }

    fn fence(&mut self) {
        self.fence();
    }

    fn pass_fence(&mut self) -> bool {
        self.pass_fence()
    }

    fn are_rails_drained(&mut self) -> bool {
        self.rails.is_drained()
    }

    fn for_each_token(&self, act: &mut dyn FnMut(Token)) {
        self.owners().for_each(act);
    }

    fn detach(&mut self, wanted: &dyn Fn(Token) -> bool) -> Vec<Token> {
        self.detach_owner(wanted)
    }

    fn zcopy_tokens(&self) -> Vec<Token> {
        self.zcopy_owners().collect()
    }

    fn can_put_zcopy(&self) -> bool {
        self.zcopy_capable()
    }

    fn remote_port(&self) -> Option<usize> {
        self.is_connected().then(|| self.remote_port())
    }

    fn qp_transport(&self) -> QpTransport {
        if self.is_connected() {
            QpTransport::Own
        } else {
            QpTransport::Datagrams
        }
    }

    /// The queue pair is destroyed when the connection's receive side has ended.
    fn teardown(&mut self, _is_dead: bool) -> Teardown {
        Teardown::Kept
    }
}

impl ShortAm for IbSender {
    #[inline(always)]
    unsafe fn am_short(
        &mut self,
        kind: u8,
        imm: impl FnOnce() -> u64,
        data: *const u8,
        len: usize,
        count: impl FnOnce(),
    ) -> bool {
        // SAFETY: the caller's bytes.
        unsafe { self.send_tiny(kind, imm, data, len, count) }
    }
}
