//! Short puts, gets and atomic operations, and flushes, as the hot path posts them.

use super::Token;
use super::shared::{TlContext, TlRkey};

/// What a flush of a lane has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushStep {
    /// Nothing: everything that was accepted has arrived.
    Drained,
    /// To leave its token: the lane reports the arrival.
    Marker,
    /// To wait in another way.
    Wait,
}

/// A lane whose adapter executes short operations in one work request or descriptor: part of the hot path, in
/// single-thread mode. No request is pending when its functions are called, except for
/// [`take_word`](Self::take_word).
pub trait RmaShort {
    /// Keys have [words](Self::word) where no threads overlap, and nowhere else: the caller of the other functions need
    /// not check that.
    const HAS_WORDS: bool = false;
    /// [`put_bcopy`](Self::put_bcopy) exists.
    const HAS_PUT_BCOPY: bool = false;
    /// [`get_once`](Self::get_once) exists.
    const HAS_GET_ONCE: bool = false;
    /// Atomic operations on words of 4 bytes exist.
    const HAS_AMO32: bool = false;
    /// [`renew_put`](Self::renew_put) may make room.
    const RENEWS: bool = false;
    /// Bytes of the longest [`put_short`](Self::put_short).
    const MAX_PUT: usize;
    /// Bytes of the longest [`get_short`](Self::get_short), if the lane has no lower limit.
    const MAX_GET: usize;

    /// Memory of the peer.
    type Remote: Copy;
    /// What an operation takes that the lane reports.
    type Slot: Copy;
    /// An atomic operation of the adapter.
    type Amo: Copy;

    /// A word of up to 8 bytes of a key's region.
    fn word(_key: &TlRkey, _addr: u64) -> Option<Self::Remote> {
        None
    }

    /// Takes room for one [`put_word`](Self::put_word), even if requests are pending. False: there is none.
    fn take_word(&mut self) -> bool {
        false
    }

    /// Puts a word of `LEN` bytes, 4 or 8, for which room was [taken](Self::take_word).
    ///
    /// # Safety
    /// Single-thread mode; `LEN` bytes at `data` are readable.
    unsafe fn put_word<const LEN: usize>(&mut self, _to: Self::Remote, _data: *const u8) {}

    /// Memory of a key's region.
    fn remote(&self, key: &TlRkey, addr: u64, len: usize) -> Option<Self::Remote>;

    /// Puts up to [`MAX_PUT`](Self::MAX_PUT) bytes, which are copied. False: nothing was done. `count` is called before
    /// the post.
    ///
    /// # Safety
    /// Single-thread mode; `len` bytes at `data` are readable.
    unsafe fn put_short(
        &mut self,
        to: Self::Remote,
        data: *const u8,
        len: usize,
        count: impl FnOnce(),
    ) -> bool;

    /// Called when [`put_short`](Self::put_short) has refused a put: makes room for more, if there is any.
    fn renew_put(&mut self) {}

    /// Puts bytes through a buffer. False: nothing was done.
    ///
    /// # Safety
    /// Single-thread mode; `len` bytes at `data` are readable.
    unsafe fn put_bcopy(&mut self, _to: Self::Remote, _data: *const u8, _len: usize) -> bool {
        false
    }

    /// Puts bytes that one operation carries, in any thread mode, and copies them. False: there is no room now, or they
    /// are too many.
    ///
    /// # Safety
    /// `len` bytes at `data` are readable.
    unsafe fn put_at(&mut self, to: Self::Remote, data: *const u8, len: usize) -> bool;

    /// What a get of this length takes. `None`: it cannot be posted now.
    fn get_slot(&mut self, len: usize) -> Option<Self::Slot>;

    /// Gets up to [`MAX_GET`](Self::MAX_GET) bytes. False: nothing was done. `count` is called if it is posted.
    ///
    /// # Safety
    /// Single-thread mode; `into` has room for `len` bytes until the lane reports the token; the slot is new.
    unsafe fn get_short(
        &mut self,
        slot: Self::Slot,
        from: Self::Remote,
        into: (*mut u8, usize),
        token: Token,
        count: impl FnOnce(),
    ) -> bool;

    /// Whether one operation can get this memory, in any thread mode.
    fn can_get_once(&self, _key: &TlRkey, _addr: u64, _len: usize) -> bool {
        false
    }

    /// Gets memory by one operation, in any thread mode. False: nothing was done.
    fn get_once(&mut self, _from: (&TlRkey, u64), _into: (*mut u8, usize), _token: Token) -> bool {
        false
    }

    /// The adapter's operation for one with this number of `ucp_atomic_op_t` on a word of 4 or 8 bytes. `reply` is null
    /// if the previous value is not wanted; of a compare-and-swap it holds the new value. `None`: the adapters of the
    /// context do not have the operation, or it needs a reply.
    ///
    /// # Safety
    /// The operand is readable, and the reply, if it is not null.
    unsafe fn amo(
        context: &TlContext,
        op: (u32, u8),
        operand: *const u8,
        reply: *const u8,
    ) -> Option<Self::Amo>;

    /// A word of `len` bytes on which the peer's adapter executes operations, and what one of them takes. `None`: it
    /// cannot be posted now.
    fn amo_slot(
        &mut self,
        key: &TlRkey,
        addr: u64,
        len: usize,
    ) -> Option<(Self::Remote, Self::Slot)>;

    /// Executes an atomic operation; the previous value goes to `reply`, and the lane reports the token then. False:
    /// nothing was done. `count` is called if it is posted.
    ///
    /// # Safety
    /// Single-thread mode; the slot is new; the reply has room for the word until the lane reports the token.
    unsafe fn amo_short(
        &mut self,
        at: (Self::Remote, Self::Slot),
        amo: Self::Amo,
        reply: Option<(*mut u8, Token)>,
        count: impl FnOnce(),
    ) -> bool;

    /// What a flush has to do now.
    fn flush_step(&self) -> FlushStep;

    /// Leaves the token of a flush, after [`FlushStep::Marker`]. False: nothing was done.
    fn flush_short(&mut self, token: Token) -> bool;
}
