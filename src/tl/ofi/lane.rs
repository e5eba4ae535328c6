//! The contract of a lane, for a connection by libfabric.

use super::sender::OfiSender;
use crate::tl::Token;
use crate::tl::contract::{LaneError, LaneOps, RecordHdr, ShortAm, Teardown};
use crate::tl::lane::sends_records;

impl LaneOps for OfiSender {
    sends_records!(LaneError::Refused, Ok);

    #[inline(always)]
    unsafe fn am_now(
        &mut self,
        kind: u8,
        imm: u64,
        data: *const u8,
        len: usize,
        _received: impl FnOnce() -> Option<u64>,
    ) -> bool {
        // SAFETY: the caller's bytes.
        unsafe { self.send_now(kind, imm, data, len) }
    }

    fn has_room_event(&self) -> bool {
        OfiSender::has_room_event(self)
    }

    /// `shm` takes a lock in the memory of the peer for each message: it waits for ever if the peer was killed with it.
    fn is_peer_dead(&self) -> bool {
        self.link.is_peer_dead()
    }

    #[inline(always)]
    fn is_drained(&self) -> bool {
        self.is_drained()
    }

    fn drain(&mut self) -> bool {
        self.drain()
    }

    /// Nothing is ordered by the provider: what was posted has to take effect.
    fn pass_fence(&mut self) -> bool {
        self.drain()
    }

    /// A message could overtake puts.
    fn are_rails_drained(&mut self) -> bool {
        self.drain_rma()
    }

    fn for_each_token(&self, act: &mut dyn FnMut(Token)) {
        self.ep.each_token(&self.link, false, &mut *act);
        for (ep, link) in self.other_conns() {
            ep.each_token(link, false, &mut *act);
        }
    }

    fn detach(&mut self, wanted: &dyn Fn(Token) -> bool) -> Vec<Token> {
        self.ep.detach(&self.link, wanted)
    }

    fn zcopy_tokens(&self) -> Vec<Token> {
        let mut tokens = Vec::new();
        (self.ep).each_token(&self.link, true, |token| tokens.push(token));
        for (ep, link) in self.other_conns() {
            ep.each_token(link, true, |token| tokens.push(token));
        }
        tokens
    }

    fn can_put_zcopy(&self) -> bool {
        self.can_put()
    }

    /// Sends that are outstanding have buffers of the interface; operations on memory of the peer are reported by it.
    fn teardown(&mut self, _is_dead: bool) -> Teardown {
        Teardown::Drop
    }
}

impl ShortAm for OfiSender {
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
        let is_sent = unsafe { self.inject(kind, imm, data, len) };
        if is_sent {
            count();
        }
        is_sent
    }
}
