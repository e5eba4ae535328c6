//! What the adapter of a lane does with memory of the peer: the contract of puts, gets and atomic operations.

use super::Lane;
use super::lane::with_sender;
use super::rma::{AmoPost, RailWork, RmaPart, Striping};
use super::rma_pieces::RmaPieces;
use super::shared::{TlContext, TlRkey, TlZcopy};
use super::shm::outbox::Outbox;
use super::tcp::sender::TcpSender;
use crate::sys::cma::IoSpan;

/// A zero-copy transfer that is posted in part.
pub struct ZcopyPart<'a> {
    pub rma: RmaPart<'a>,
    /// The memory, if it is not contiguous.
    pub pieces: Option<&'a [IoSpan]>,
    /// The immediate that the peer gets behind the last byte of a put.
    pub word: Option<u32>,
    pub striping: Striping,
    /// Rails move parts of it: what follows the transfer waits for all of it.
    pub on_rails: &'a mut bool,
    pub tl: &'a mut TlZcopy,
    pub host: &'a dyn RailHost,
}

/// The layer above, as striping sees it.
pub trait RailHost {
    /// The transports' part of the context.
    fn context(&self) -> &TlContext;

    /// The progress of the worker has to do this for the rails of the lane.
    fn raise(&self, work: RailWork);
}

/// What the adapter of a lane does with memory of the peer. The functions have the bodies of a lane without an adapter.
///
/// An operation that is posted with a token is complete when the lane reports the token. `None`, or false of a function
/// with `with_imm`: the lane cannot do this here, and has done nothing.
pub trait RmaOps {
    /// Records that are sent behind a put arrive behind it.
    const ORDERS_PUTS: bool = false;

    /// Posts as much of a put or get through buffers as there is room for. True: all of it. The lane reports gets
    /// alone: a put is complete when it is posted.
    ///
    /// # Safety
    /// The memory is contiguous, and valid until the request completes.
    unsafe fn rma_bcopy(&mut self, _part: RmaPart<'_>) -> Option<bool> {
        None
    }

    /// Posts as much of a put or get of registered memory as there is room for. True: all of it.
    ///
    /// # Safety
    /// The memory is valid until the request completes.
    unsafe fn rma_zcopy(&mut self, _part: ZcopyPart<'_>) -> Option<bool> {
        None
    }

    /// Posts as many pieces of a list as there is room for, through buffers. True: all of them. The lane reports gets
    /// alone: a put is complete when it is posted.
    ///
    /// # Safety
    /// The pieces are valid until the request completes.
    #[inline(always)]
    unsafe fn rma_pieces(&mut self, pieces: RmaPieces<'_>) -> Option<bool> {
        while let Some(piece) = pieces.whole() {
            let part = RmaPart {
                writes: pieces.writes,
                data: piece.here,
                len: piece.len,
                token: pieces.token,
                addr: piece.there,
                key: &pieces.region(pieces.cursor.next).key_at(piece.there),
                offset: &mut pieces.cursor.within,
                outstanding: &mut *pieces.outstanding,
            };
            // SAFETY: the caller's promise.
            if !unsafe { self.rma_bcopy(part) }? {
                return Some(false);
            }
            pieces.cursor.next += 1;
            pieces.cursor.within = 0;
        }
        Some(true)
    }

    /// Posts an atomic operation. False: there is no room now.
    fn atomic(&mut self, _post: AmoPost) -> Option<bool> {
        None
    }

    /// Posts a put of bytes that one operation carries, and copies them. The key contains the memory. False: there is
    /// no room now, or they are too many.
    ///
    /// # Safety
    /// `len` bytes at `data` are readable.
    unsafe fn put_once(&mut self, _to: (&TlRkey, u64), _data: *const u8, _len: usize) -> bool {
        false
    }

    /// [`put_once`](Self::put_once) with an immediate, which the peer gets behind the data.
    ///
    /// # Safety
    /// `len` bytes at `data` are readable.
    unsafe fn put_with_imm(
        &mut self,
        _to: (&TlRkey, u64),
        _data: *const u8,
        _len: usize,
        _word: u32,
    ) -> bool {
        false
    }

    /// Posts a put of registered memory in one operation with an immediate.
    ///
    /// # Safety
    /// The memory is contiguous, and valid until the request completes.
    unsafe fn put_zcopy_with_imm(&mut self, _part: ZcopyPart<'_>) -> bool {
        false
    }

    /// Whether a fence has to be queued, because operations before it are not ordered with those behind it by the
    /// adapter. `is_pending`: requests are pending.
    fn queues_fence(&self, _context: &TlContext, _is_pending: bool) -> bool {
        false
    }
}

impl RmaOps for Outbox {}
impl RmaOps for TcpSender {}

/// [`RmaOps`] of whichever sender the lane has.
impl Lane {
    /// Posts as much of a put or get through buffers as there is room for.
    ///
    /// # Safety
    /// That of [`RmaOps::rma_bcopy`].
    #[inline(always)]
    pub unsafe fn rma_bcopy(&mut self, part: RmaPart<'_>) -> Option<bool> {
        // SAFETY: the caller's promise.
        with_sender!(self, sender => unsafe { sender.rma_bcopy(part) })
    }

    /// Posts as much of a put or get of registered memory as there is room for.
    ///
    /// # Safety
    /// That of [`RmaOps::rma_zcopy`].
    #[inline(always)]
    pub unsafe fn rma_zcopy(&mut self, part: ZcopyPart<'_>) -> Option<bool> {
        // SAFETY: the caller's promise.
        with_sender!(self, sender => unsafe { sender.rma_zcopy(part) })
    }

    /// Posts as many pieces of a list as there is room for.
    ///
    /// # Safety
    /// That of [`RmaOps::rma_pieces`].
    pub unsafe fn rma_pieces(&mut self, pieces: RmaPieces<'_>) -> Option<bool> {
        // SAFETY: the caller's promise.
        with_sender!(self, sender => unsafe { sender.rma_pieces(pieces) })
    }

    /// Posts an atomic operation.
    #[inline(always)]
    pub fn atomic(&mut self, post: AmoPost) -> Option<bool> {
        with_sender!(self, sender => RmaOps::atomic(&mut **sender, post))
    }

    /// Whether records that are sent behind a put arrive behind it.
    #[inline(always)]
    pub fn orders_puts(&self) -> bool {
        fn of<S: RmaOps>(_: &S) -> bool {
            S::ORDERS_PUTS
        }
        with_sender!(self, sender => of(&**sender))
    }

    /// Posts a put of bytes that one operation carries.
    ///
    /// # Safety
    /// That of [`RmaOps::put_once`].
    #[inline(always)]
    pub unsafe fn put_once(&mut self, to: (&TlRkey, u64), data: *const u8, len: usize) -> bool {
        // SAFETY: the caller's promise.
        with_sender!(self, sender => unsafe { RmaOps::put_once(&mut **sender, to, data, len) })
    }

    /// Posts a put of bytes that one operation carries, with an immediate.
    ///
    /// # Safety
    /// That of [`RmaOps::put_with_imm`].
    #[inline(always)]
    pub unsafe fn put_with_imm(
        &mut self,
        to: (&TlRkey, u64),
        data: *const u8,
        len: usize,
        word: u32,
    ) -> bool {
        // SAFETY: the caller's promise.
        with_sender!(self, sender => unsafe { sender.put_with_imm(to, data, len, word) })
    }

    /// Posts a put of registered memory in one operation with an immediate.
    ///
    /// # Safety
    /// That of [`RmaOps::put_zcopy_with_imm`].
    pub unsafe fn put_zcopy_with_imm(&mut self, part: ZcopyPart<'_>) -> bool {
        // SAFETY: the caller's promise.
        with_sender!(self, sender => unsafe { sender.put_zcopy_with_imm(part) })
    }

    /// Whether a fence has to be queued. `is_pending`: requests are pending.
    pub fn queues_fence(&self, context: &TlContext, is_pending: bool) -> bool {
        with_sender!(self, sender => sender.queues_fence(context, is_pending))
    }
}
