//! The closed set of lanes.

use super::contract::{LaneError, LaneOps, QpTransport, RecordHdr, Teardown};
use super::network::Network;
use super::networks::networks;
use super::{SplitCopy, SplitCopyId, Token, shm};

/// A sender that a lane may have: code that knows the transport gets it without a match.
pub trait LaneSender: LaneOps {
    /// The lane's sender, if there is a lane of this transport.
    fn of(lane: &mut Option<Lane>) -> Option<&mut Self>;
}

macro_rules! lane {
    ($($(#[$cfg:meta])* $Kind:ident $net:ident $Context:ident;)* @) => {
        /// The transport to a peer, with its state. The sending thread holds the peer's lock, so that one thread at a
        /// time sends.
        pub enum Lane {
            /// A ring in the peer's shared memory.
            Shm(Box<shm::outbox::Outbox>),
            $($(#[$cfg])* $Kind(Box<<super::$net::context::$Context as Network>::Sender>),)*
        }

        $(
            $(#[$cfg])*
            impl LaneSender for <super::$net::context::$Context as Network>::Sender {
                #[inline(always)]
                fn of(lane: &mut Option<Lane>) -> Option<&mut Self> {
                    match lane {
                        Some(Lane::$Kind(sender)) => Some(sender.as_mut()),
                        _ => None,
                    }
                }
            }
        )*
    };
}
networks!(lane);

macro_rules! define_with_sender {
    ($($(#[$cfg:meta])* $Kind:ident $net:ident $Context:ident;)* @ $dollar:tt) => {
        /// Evaluates an expression with the sender of a lane, by static dispatch: once for each type of sender. The
        /// sender is a reference, mutable if that to the lane is.
        macro_rules! with_sender {
            ($dollar lane:expr, $dollar sender:ident => $dollar value:expr) => {
                match $dollar lane {
                    $crate::tl::Lane::Shm($dollar sender) => $dollar value,
                    $($(#[$cfg])* $crate::tl::Lane::$Kind($dollar sender) => $dollar value,)*
                }
            };
        }
    };
}
networks!(define_with_sender $);
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
    /// Copies the rest of a partly sent record into memory of the lane, so that the user's memory can be released.
    pub fn settle(&mut self) {
        with_sender!(self, sender => sender.settle());
    }

    /// Whether short messages are better collected until the next progress call: the device was called for this lane
    /// since the last one.
    pub fn is_collecting(&self) -> bool {
        with_sender!(self, sender => sender.is_collecting())
    }

    /// Announces that several messages follow (`on`), or have followed: what the lane collects between the two calls is
    /// sent by the second.
    pub fn batch(&mut self, on: bool) {
        with_sender!(self, sender => sender.batch(on));
    }

    /// Called when a message was queued behind the lane: progress will send it, before any that the lane could send at
    /// once.
    pub fn on_pending(&mut self) {
        with_sender!(self, sender => sender.on_pending());
    }

    /// Whether the peer's process is known to have ended, where that can be asked and a message to it might not return:
    /// for messages that no request waits for.
    pub fn is_peer_dead(&self) -> bool {
        with_sender!(self, sender => sender.is_peer_dead())
    }

    /// Whether an event of the worker's descriptors reports when pending messages can be sent; if not, progress has to
    /// try.
    pub fn has_room_event(&self) -> bool {
        with_sender!(self, sender => sender.has_room_event())
    }

    /// Whether everything that was accepted has left this process; whether it has arrived, where the transport reports
    /// arrival. Posts nothing.
    pub fn is_drained(&self) -> bool {
        with_sender!(self, sender => LaneOps::is_drained(&**sender))
    }

    /// Whether everything that was accepted has left this process, or has arrived where the transport reports arrival,
    /// for a caller that waits for it: also posts what the transport needs to get there.
    pub fn drain(&mut self) -> bool {
        with_sender!(self, sender => LaneOps::drain(&mut **sender))
    }

    /// Makes the lane return `token` as complete when all that was accepted so far has arrived, whatever is accepted
    /// afterwards. False: there is nothing to wait for, or the transport does not report arrival.
    pub fn flush_marker(&mut self, token: Token) -> bool {
        with_sender!(self, sender => LaneOps::flush_marker(&mut **sender, token))
    }

    /// Orders operations that are posted from now on after the effects of the reads and atomic operations before.
    pub fn fence(&mut self) {
        with_sender!(self, sender => LaneOps::fence(&mut **sender));
    }

    /// Handles a fence that has come to the head of the pending queue. False: operations before it, by other devices
    /// than that of the lane itself, have to complete first, and the fence stays there.
    pub fn pass_fence(&mut self) -> bool {
        with_sender!(self, sender => LaneOps::pass_fence(&mut **sender))
    }

    /// Whether everything that rails have sent has arrived. Called while nothing more is posted.
    pub fn are_rails_drained(&mut self) -> bool {
        with_sender!(self, sender => sender.are_rails_drained())
    }

    /// Calls `act` for the tokens of all operations that the lane will report, some of them more than once.
    pub fn for_each_token(&self, mut act: impl FnMut(Token)) {
        with_sender!(self, sender => sender.for_each_token(&mut act));
    }

    /// Takes back the tokens that `wanted` selects of operations that do not access the memory of their request: they
    /// are not reported any more. Returns them.
    pub fn detach(&mut self, wanted: impl Fn(Token) -> bool) -> Vec<Token> {
        with_sender!(self, sender => sender.detach(&wanted))
    }

    /// The tokens of operations that access the memory of their request, some of them more than once.
    pub fn zcopy_tokens(&self) -> Vec<Token> {
        with_sender!(self, sender => sender.zcopy_tokens())
    }

    /// Counts rendezvous that this side has cancelled, in a place that a peer which copies from the user's memory by
    /// itself (CMA) reads: from here on it trusts no copy of their memory.
    pub fn count_cancelled(&self, offers: u64) {
        with_sender!(self, sender => sender.count_cancelled(offers));
    }

    /// Whether the peer copies from the user's memory now.
    pub fn is_copied(&self) -> bool {
        with_sender!(self, sender => sender.is_copied())
    }

    /// Opens a split copy, of a message from the peer that both sides copy. `None`: too many are open, or the transport
    /// has none.
    pub fn open_split_copy(&mut self) -> Option<(SplitCopy, SplitCopyId)> {
        with_sender!(self, sender => LaneOps::open_split_copy(&mut **sender))
    }

    /// Closes a split copy that this lane has opened: the peer claims no chunk of it any more, or finds another
    /// generation.
    pub fn close_split_copy(&mut self, split: SplitCopy) {
        with_sender!(self, sender => LaneOps::close_split_copy(&mut **sender, split));
    }

    /// Whether the device of this side writes into registered memory of the peer from registered memory (put_zcopy).
    pub fn can_put_zcopy(&self) -> bool {
        with_sender!(self, sender => sender.can_put_zcopy())
    }

    /// The peer's port to which the lane leads, whose rkeys this side uses. `None`: it leads to no port, or is not
    /// connected.
    pub fn remote_port(&self) -> Option<usize> {
        with_sender!(self, sender => LaneOps::remote_port(&**sender))
    }

    /// The kind of queue pair that the lane uses.
    pub fn qp_transport(&self) -> QpTransport {
        with_sender!(self, sender => sender.qp_transport())
    }

    /// Whether no operation takes effect any more after the lane was dropped.
    pub fn stops_when_dropped(&self) -> bool {
        fn of<S: LaneOps>(_: &S) -> bool {
            S::STOPS_WHEN_DROPPED
        }
        with_sender!(self, sender => of(&**sender))
    }

    /// Whether it is one in place of a lane that cannot be made.
    pub fn is_fallback(&self) -> bool {
        matches!(self, Lane::Tcp(_))
    }

    /// Whether all that the lane accepts has left this process when the call returns.
    pub fn drains_in_call(&self) -> bool {
        fn of<S: LaneOps>(_: &S) -> bool {
            S::DRAINS_IN_CALL
        }
        with_sender!(self, sender => of(&**sender))
    }

    /// Whether the lane writes into memory of the peer's process that is mapped here.
    pub fn is_mapped(&self) -> bool {
        fn of<S: LaneOps>(_: &S) -> bool {
            S::IS_MAPPED
        }
        with_sender!(self, sender => of(&**sender))
    }

    /// Whether a lane that nothing uses any more stays until the peer ends.
    pub fn stays_unused(&self) -> bool {
        fn of<S: LaneOps>(_: &S) -> bool {
            S::STAYS_UNUSED
        }
        with_sender!(self, sender => of(&**sender))
    }

    /// Whether the peer's worker was destroyed, as far as memory shows that is mapped here.
    pub fn is_abandoned(&self) -> bool {
        with_sender!(self, sender => LaneOps::is_abandoned(&**sender))
    }

    /// When the peer last progressed, in monotonic nanoseconds; 0: it has not progressed yet, or does not for a while.
    /// `None`: memory that is mapped here does not show it.
    pub fn progressed_at(&self) -> Option<u64> {
        with_sender!(self, sender => LaneOps::progressed_at(&**sender))
    }

    /// Sends a record, which `fill` writes. False: there is no room now.
    ///
    /// # Errors
    /// The lane can send nothing any more.
    pub fn am_bcopy(
        &mut self,
        hdr: RecordHdr,
        len: usize,
        fill: impl FnOnce(*mut u8),
    ) -> Result<bool, LaneError> {
        with_sender!(self, sender => sender.am_bcopy(hdr, len, fill))
    }

    /// Ends a lane whose peer has failed. Returns whether the caller drops it. `is_dead`: the peer's process has ended:
    /// it accesses nothing any more.
    pub fn teardown(&mut self, is_dead: bool) -> Teardown {
        with_sender!(self, sender => sender.teardown(is_dead))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_ring_in_shared_memory_is_called_corrupt() {
        assert_eq!(shm::outbox::Outbox::REFUSED, LaneError::Unusable);
        macro_rules! refused {
            ($($(#[$cfg:meta])* $Kind:ident $net:ident $Context:ident;)* @) => {
                [$($(#[$cfg])* <crate::tl::$net::context::$Context as Network>::Sender::REFUSED),*]
            };
        }
        assert!(
            networks!(refused)
                .iter()
                .all(|&error| error == LaneError::Refused)
        );
        assert!(!LaneError::Refused.text().contains("ring"));
    }
}
