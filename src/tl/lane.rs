//! The closed set of lanes.

use super::contract::{LaneOps, Teardown};
use super::{Token, ib, shm, tcp, tofu};

/// The transport to a peer, with its state. The sending thread holds the peer's lock, so that one thread at a time
/// sends.
pub enum Lane {
    /// A ring in the peer's shared memory.
    Shm(Box<shm::outbox::Outbox>),
    /// The sending half of a connection between two queue pairs.
    Ib(Box<ib::sender::IbSender>),
    /// A ring in the peer's memory, written by the Tofu interconnect.
    Tofu(Box<tofu::sender::TofuSender>),
    /// The sending half of a TCP connection.
    Tcp(Box<tcp::sender::TcpSender>),
}

/// Evaluates an expression with the sender of a lane, by static dispatch: once for each type of sender. The sender is a
/// reference, mutable if that to the lane is.
macro_rules! with_sender {
    ($lane:expr, $sender:ident => $value:expr) => {
        match $lane {
            $crate::tl::Lane::Shm($sender) => $value,
            $crate::tl::Lane::Ib($sender) => $value,
            $crate::tl::Lane::Tofu($sender) => $value,
            $crate::tl::Lane::Tcp($sender) => $value,
        }
    };
}
pub(crate) use with_sender;

/// The part of [`LaneOps`] that sends records by copies, by the sender's own functions `has_room` and `send`: in an
/// `impl` of the trait. `$refused`: the error if a record is not taken for which there was room; `$result`: converts
/// the result of those functions.
macro_rules! sends_records {
    ($refused:expr, $result:expr) => {
        const REFUSED: LaneError = $refused;

        fn has_room(&mut self, len: usize) -> Result<bool, LaneError> {
            $result(Self::has_room(self, len))
        }

        #[inline(always)]
        fn am_bcopy(
            &mut self,
            hdr: RecordHdr,
            len: usize,
            fill: impl FnOnce(*mut u8),
        ) -> Result<bool, LaneError> {
            $result(Self::send(self, hdr.kind, hdr.aux, hdr.imm, len, fill))
        }
    };
}
pub(super) use sends_records;

/// [`LaneOps`] of whichever sender the lane has, as far as it is called through the enum. Where the transport is known,
/// and for records, its sender is called ([`with_sender!`]).
impl Lane {
    pub fn settle(&mut self) {
        with_sender!(self, sender => sender.settle());
    }

    pub fn is_collecting(&self) -> bool {
        with_sender!(self, sender => sender.is_collecting())
    }

    pub fn batch(&mut self, on: bool) {
        with_sender!(self, sender => sender.batch(on));
    }

    pub fn on_pending(&mut self) {
        with_sender!(self, sender => sender.on_pending());
    }

    pub fn has_room_event(&self) -> bool {
        with_sender!(self, sender => sender.has_room_event())
    }

    pub fn is_drained(&self) -> bool {
        with_sender!(self, sender => LaneOps::is_drained(&**sender))
    }

    pub fn drain(&mut self) -> bool {
        with_sender!(self, sender => LaneOps::drain(&mut **sender))
    }

    pub fn flush_marker(&mut self, token: Token) -> bool {
        with_sender!(self, sender => LaneOps::flush_marker(&mut **sender, token))
    }

    pub fn fence(&mut self) {
        with_sender!(self, sender => LaneOps::fence(&mut **sender));
    }

    pub fn pass_fence(&mut self) -> bool {
        with_sender!(self, sender => LaneOps::pass_fence(&mut **sender))
    }

    pub fn are_rails_drained(&mut self) -> bool {
        with_sender!(self, sender => sender.are_rails_drained())
    }

    pub fn for_each_token(&self, mut act: impl FnMut(Token)) {
        with_sender!(self, sender => sender.for_each_token(&mut act));
    }

    pub fn detach(&mut self, wanted: impl Fn(Token) -> bool) -> Vec<Token> {
        with_sender!(self, sender => sender.detach(&wanted))
    }

    pub fn zcopy_tokens(&self) -> Vec<Token> {
        with_sender!(self, sender => sender.zcopy_tokens())
    }

    pub fn can_put_zcopy(&self) -> bool {
        with_sender!(self, sender => sender.can_put_zcopy())
    }

    pub fn remote_port(&self) -> Option<usize> {
        with_sender!(self, sender => LaneOps::remote_port(&**sender))
    }

    pub fn teardown(&mut self, is_dead: bool) -> Teardown {
        with_sender!(self, sender => sender.teardown(is_dead))
    }
}
