//! What the sending half of a transport does for the layers above: the contract of a lane. docs/TRANSPORTS.md explains
//! it in the order in which a transport is written.
//!
//! A lane leads to one peer, in one direction. The thread that holds the lock of the peer's transmit state uses it, so
//! that one thread at a time calls these functions. None of them blocks, calls the user, or frees a request; none but
//! [`LaneOps::teardown`] makes a system call that is not needed to send.

use super::{SplitCopy, SplitCopyId, Token};
use crate::wire::{frame, packet_hdr};

/// Longest part of a message that is sent in several records, where the lane copies it, bytes. From the second part on
/// both sides copy at once, so that shorter parts overlap more of a message; parts of half this length were not faster.
pub const FRAGMENT: usize = 8 << 10;

/// Longest record that counts as short, bytes: one that fits into a slot of a ring in shared memory.
pub const MAX_SHORT: usize = 112;

/// Longest record that every lane takes, bytes. A ring in shared memory asserts that it does.
pub const MAX_BCOPY: usize = 32 << 10;
const _: () = assert!(MAX_BCOPY <= packet_hdr::MAX_RECORD && MAX_BCOPY <= frame::MAX_RECORD);

/// Longest segment that an option may set, bytes: the receiver of one allocates all of it.
pub const MAX_SEG: usize = 1 << 20;

/// Longest messages that a lane sends in one record, by the options of its transport.
#[derive(Clone, Copy, Debug)]
pub struct AmLimits {
    /// Copied, and sent from user memory; at most [`MAX_SEG`] bytes.
    pub max_bcopy: usize,
    pub max_zcopy: usize,
}

/// Why a lane can send nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneError {
    /// The peer has written malformed data into the ring in shared memory, or the ring cannot be mapped, which is
    /// logged.
    Unusable,
    /// The lane has not taken a record for which it had reported room.
    Refused,
    /// A device cannot read the rest of a message, of which the peer has the beginning.
    Unreadable,
}

impl LaneError {
    /// Text for the log, behind the name of the peer.
    pub fn text(self) -> &'static str {
        match self {
            LaneError::Unusable => {
                "cannot be sent to: the shared ring to it is corrupt, or cannot be mapped"
            }
            LaneError::Refused => "cannot be sent to: its lane failed while a message was written",
            LaneError::Unreadable => "has a part of a message, the rest of which cannot be read",
        }
    }
}

/// Result of sending from user memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZcopyResult {
    Sent,
    /// There is no room now; nothing was done.
    NoRoom,
    /// The lane copies every payload; nothing was done.
    Unsupported,
}

/// What becomes of the lane to a peer that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Teardown {
    /// The caller drops it now, without the lock.
    Drop,
    /// Requests still point into its memory: the caller tries again.
    Later,
    /// The transport's own progress drops it, when its device is done.
    Kept,
}

/// Kind of the queue pair that a lane uses, or will use.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpTransport {
    /// No queue pair.
    None = 0,
    /// A queue pair; of which kind is not known yet.
    Unknown = 1,
    /// RC: a queue pair of the connection's own.
    Own = 2,
    /// UD: the interface's queue pair for datagrams.
    Datagrams = 3,
}

/// A record: its header fields as `wire::header` has them.
#[derive(Clone, Copy)]
pub struct RecordHdr {
    pub kind: u8,
    pub aux: u8,
    pub imm: u64,
}

/// The sending half of a transport, to one peer.
///
/// The methods without a body are what every transport does; the others have the body of a transport that lacks the
/// capability. Everything is dispatched statically, by the arms of [`Lane`](super::Lane).
pub trait LaneOps {
    /// Error if a record is not taken for which there was room.
    const REFUSED: LaneError;
    /// Longest part of a message in several records that the lane copies, bytes.
    const MAX_PART: usize = FRAGMENT;
    /// No operation of either side takes effect any more after the sender was dropped.
    const STOPS_WHEN_DROPPED: bool = false;
    /// All that the lane accepts has left this process when the call returns: [`is_drained`](Self::is_drained) is
    /// always true.
    const DRAINS_IN_CALL: bool = false;
    /// The lane writes into memory of the peer's process that is mapped here.
    const IS_MAPPED: bool = false;
    /// A lane that nothing uses any more stays until the peer ends, which the device, or a probe, reports.
    const STAYS_UNUSED: bool = false;

    /// Whether a record of up to `len` bytes can be sent now, as the next one.
    ///
    /// # Errors
    /// The lane can send nothing any more.
    fn has_room(&mut self, len: usize) -> Result<bool, LaneError>;

    /// Sends a record of `len` bytes, which `fill` writes. False: there is no room now, and `fill` was not called.
    /// Records arrive in the order of the calls, each once, or the peer fails. The record is complete for its sender
    /// with this call: nothing of the user's memory is needed any more.
    ///
    /// # Errors
    /// The lane can send nothing any more.
    fn am_bcopy(
        &mut self,
        hdr: RecordHdr,
        len: usize,
        fill: impl FnOnce(*mut u8),
    ) -> Result<bool, LaneError>;

    /// Sends a record of `len` bytes that are copied from `data`, straight from the call of the hot path. False:
    /// nothing was done, and the record goes another way. `received`: how many messages the peer has sent; `None` if
    /// threads share the peer.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes.
    #[inline(always)]
    unsafe fn am_now(
        &mut self,
        _kind: u8,
        _imm: u64,
        _data: *const u8,
        _len: usize,
        _received: impl FnOnce() -> Option<u64>,
    ) -> bool {
        false
    }

    /// Sends a record of three parts without copying what the device takes at once. It is complete for its sender with
    /// this call, as by [`am_bcopy`](Self::am_bcopy).
    fn am_zcopy(&mut self, _hdr: RecordHdr, _parts: [&[u8]; 3]) -> ZcopyResult {
        ZcopyResult::Unsupported
    }

    /// Starts to send a record of a head and a payload that is not copied. After [`ZcopyResult::Sent`]
    /// [`is_midway`](Self::is_midway) returns whether the payload is still needed.
    ///
    /// # Safety
    /// `payload` stays readable until `is_midway` is false, or [`settle`](Self::settle) was called.
    unsafe fn am_zcopy_kept(
        &mut self,
        _hdr: RecordHdr,
        _head: &[u8],
        _payload: *const [u8],
    ) -> ZcopyResult {
        ZcopyResult::Unsupported
    }

    /// Whether a record is partly sent whose payload is in the user's memory. Nothing else can be sent then.
    fn is_midway(&self) -> bool {
        false
    }

    /// Sends as much of a partly sent record as the device takes now.
    fn continue_record(&mut self) {}

    /// Copies the rest of a partly sent record, so that the user's memory can be released.
    fn settle(&mut self) {}

    /// Whether short messages are better collected until the next progress call: the device was called for this lane
    /// since the last one.
    fn is_collecting(&self) -> bool {
        false
    }

    /// Several messages follow (`on`), or have followed: what was collected between the two calls is sent by the
    /// second.
    fn batch(&mut self, _on: bool) {}

    /// Called when a message is queued behind the lane: progress will send it, before any that the lane could send at
    /// once.
    fn on_pending(&mut self) {}

    /// Whether an event of the worker's descriptors reports when pending messages can be sent.
    fn has_room_event(&self) -> bool {
        false
    }

    /// Whether the peer's process is known to have ended, where that can be asked and a message to it might not return:
    /// for messages that no request waits for.
    fn is_peer_dead(&self) -> bool {
        false
    }

    /// Whether everything that was accepted has left this process; whether it has arrived, where the transport reports
    /// arrival.
    fn is_drained(&self) -> bool;

    /// [`is_drained`](Self::is_drained) for a caller that waits for it: also posts what the transport needs to get
    /// there.
    fn drain(&mut self) -> bool {
        self.is_drained()
    }

    /// Returns `token` as complete when all that was accepted so far has arrived, whatever is accepted afterwards.
    /// False: there is nothing to wait for, or this transport does not report arrival.
    fn flush_marker(&mut self, _token: Token) -> bool {
        false
    }

    /// Operations that are posted from now on take effect after the reads and atomic operations before.
    fn fence(&mut self) {}

    /// Handles a fence that has come to the head of the pending queue. False: operations before it, by other devices
    /// than that of the lane itself, have to complete first.
    fn pass_fence(&mut self) -> bool {
        true
    }

    /// Whether everything that other devices than that of the lane itself (rails) have sent has arrived. Called while
    /// nothing more is posted.
    fn are_rails_drained(&mut self) -> bool {
        true
    }

    /// Calls `act` for the tokens of all operations that the lane will report, some of them more than once.
    fn for_each_token(&self, _act: &mut dyn FnMut(Token)) {}

    /// Takes back the tokens that `wanted` selects of operations that do not access the memory of their request: they
    /// are not reported any more. Returns them.
    fn detach(&mut self, _wanted: &dyn Fn(Token) -> bool) -> Vec<Token> {
        Vec::new()
    }

    /// The tokens of operations that access the memory of their request, some of them more than once.
    fn zcopy_tokens(&self) -> Vec<Token> {
        Vec::new()
    }

    /// Counts rendezvous that this side has cancelled, in a place that a peer which copies from the user's memory by
    /// itself (CMA) reads: from here on it trusts no copy of their memory.
    fn count_cancelled(&self, _offers: u64) {}

    /// Whether the peer copies from the user's memory now.
    fn is_copied(&self) -> bool {
        false
    }

    /// Opens a split copy, of a message from the peer that both sides copy. `None`: too many are open, or the transport
    /// has none.
    fn open_split_copy(&mut self) -> Option<(SplitCopy, SplitCopyId)> {
        None
    }

    /// Closes a split copy that this lane has opened: the peer claims no chunk of it any more, or finds another
    /// generation.
    fn close_split_copy(&mut self, _split: SplitCopy) {}

    /// Whether the device of this side writes into registered memory of the peer from registered memory (put_zcopy).
    fn can_put_zcopy(&self) -> bool {
        false
    }

    /// The peer's port to which the lane leads, whose rkeys this side uses. `None`: it leads to no port, or is not
    /// connected.
    fn remote_port(&self) -> Option<usize> {
        None
    }

    /// Whether the peer's worker was destroyed, as far as memory shows that is mapped here.
    fn is_abandoned(&self) -> bool {
        false
    }

    /// When the peer last progressed, in monotonic nanoseconds; 0: it has not progressed yet, or does not for a while.
    /// `None`: memory that is mapped here does not show it.
    fn progressed_at(&self) -> Option<u64> {
        None
    }

    /// The kind of queue pair that the lane uses.
    fn qp_transport(&self) -> QpTransport {
        QpTransport::None
    }

    /// Ends a lane whose peer has failed. `is_dead`: the peer's process has ended: it accesses nothing any more.
    fn teardown(&mut self, is_dead: bool) -> Teardown;
}

/// A lane whose device takes short records in a work request or descriptor: part of the hot path.
pub trait ShortAm: LaneOps {
    /// [`renew_short`](Self::renew_short) may make room.
    const RENEWS: bool = false;

    /// Posts a record of up to [`TINY`](crate::sys::copy::TINY) bytes. False: nothing was done. `imm` is called when
    /// the checks have passed, so that its value occupies no register before. `count` is called if the record is sent,
    /// before the post: nothing has to be saved across it.
    ///
    /// # Safety
    /// Single-thread mode; `data` is readable for `len` bytes.
    unsafe fn am_short(
        &mut self,
        kind: u8,
        imm: impl FnOnce() -> u64,
        data: *const u8,
        len: usize,
        count: impl FnOnce(),
    ) -> bool;

    /// Called when [`am_short`](Self::am_short) has refused a record. True: it will take one.
    fn renew_short(&mut self) -> bool {
        false
    }
}
