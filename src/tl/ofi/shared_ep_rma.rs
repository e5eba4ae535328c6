//! Puts and gets, as the threads of a worker post them.

use super::bindings::*;
use super::buffers::MAX_PACKET;
use super::choice::IfaceRole;
use super::endpoint::{OfiEndpoint, PostError};
use super::endpoint_rma::{OfiLocalMem, OfiRemoteMem};
use super::iov::OfiIov;
use super::object::{OfiAccess, OfiRegistered};
use super::rma_limits::RmaLimits;
use super::rma_pool::{RmaAccess, RmaOpRef};
use super::shared_ep::{OfiQueues, OfiSharedEp};
use super::tx_link::OfiTxLink;
use crate::tl::Token;
use crate::tl::amo::AmoOp;
use std::ffi::{c_int, c_void};
use std::io;
use std::ptr::null_mut;
use std::sync::Arc;

/// An operation that has ended.
pub enum EndedRma {
    /// Nothing is to be done.
    Handled,
    /// It is one of this connection, and its end is to be handled.
    Of(Arc<OfiTxLink>),
}

impl OfiSharedEp {
    /// Registers user memory.
    ///
    /// # Errors
    /// The provider's error.
    ///
    /// # Safety
    /// `len` bytes at `base` stay mapped until the registration ends, or no operation uses it any more.
    pub unsafe fn register(
        &self,
        base: *mut u8,
        len: usize,
        access: OfiAccess,
    ) -> io::Result<OfiRegistered> {
        // SAFETY: the caller's memory.
        unsafe { (self.queues.lock().ep).register_user(base, len, access.bits()) }
    }

    /// Ends a registration of user memory.
    pub fn deregister(&self, index: usize) {
        self.queues.lock().ep.deregister(index);
    }

    /// How memory of peers is accessed; `None`: it is not.
    pub fn rma(&self) -> Option<&RmaLimits> {
        self.rma.as_ref()
    }

    /// Posts a put of the first bytes of `left`, which are copied. Returns their number; 0: there is no room now.
    ///
    /// # Safety
    /// `left` bytes at `data` are readable.
    pub unsafe fn put(
        &self,
        link: &Arc<OfiTxLink>,
        there: OfiRemoteMem,
        data: *const u8,
        left: usize,
    ) -> usize {
        let Some(rma) = self.rma.filter(|rma| link.rma.outstanding() < rma.window) else {
            return 0;
        };
        let mut queues = self.queues.lock();
        let n = left.min(MAX_PACKET).min(rma.max);
        if n <= queues.max_inject_write {
            let here = OfiLocalMem {
                ptr: data.cast_mut(),
                len: n,
                desc: null_mut(),
            };
            let flags = rma.flags() | u64::from(FI_INJECT);
            // SAFETY: the caller's bytes, which the provider copies.
            let post =
                |ep: &mut OfiEndpoint, context| unsafe { ep.write(here, there, flags, context) };
            let posted = queues.post_op(link, RmaAccess::Put, Token::NONE, false, post);
            match posted {
                // Not every provider combines the flags: a buffer is as good.
                Err(PostError::Failed(error)) if is_unsupported(error) => {
                    queues.max_inject_write = 0;
                }
                posted => return queues.bytes(posted, link, n),
            }
        }
        let post = |ep: &mut OfiEndpoint, here: OfiLocalMem, context| {
            let here = OfiLocalMem { len: n, ..here };
            // SAFETY: the buffer has room for `n` bytes, the caller has as many, and the operation keeps the buffer.
            unsafe {
                here.ptr.copy_from_nonoverlapping(data, n);
                ep.write(here, there, rma.flags(), context)
            }
        };
        let posted = queues.post_buffered(link, RmaAccess::Put, Token::NONE, post);
        queues.bytes(posted, link, n)
    }

    /// Posts a get of the first bytes of `left`, through a buffer. Returns their number; 0: there is no room now.
    ///
    /// # Safety
    /// `left` bytes at `into` are writable until the request of the token is complete, or detached.
    pub unsafe fn get(
        &self,
        link: &Arc<OfiTxLink>,
        there: OfiRemoteMem,
        (into, left): (*mut u8, usize),
        token: Token,
    ) -> usize {
        let Some(rma) = self.rma.filter(|rma| link.rma.outstanding() < rma.window) else {
            return 0;
        };
        let n = left.min(MAX_PACKET).min(rma.max);
        let post = |ep: &mut OfiEndpoint, here: OfiLocalMem, context| {
            let here = OfiLocalMem { len: n, ..here };
            // SAFETY: the buffer has room for `n` bytes, and the operation keeps it.
            unsafe { ep.read(here, there, context) }
        };
        let mut queues = self.queues.lock();
        let posted = queues.post_buffered(link, RmaAccess::Get(into, n), token, post);
        queues.bytes(posted, link, n)
    }

    /// Posts a put (`writes`) or get of the first bytes of the memory of a request. Returns their number; 0: there is
    /// no room now.
    ///
    /// # Safety
    /// The local memory is valid until the request is complete, and registered where the provider wants that.
    pub unsafe fn zcopy(
        &self,
        link: &Arc<OfiTxLink>,
        there: OfiRemoteMem,
        here: OfiLocalMem,
        writes: bool,
        token: Token,
    ) -> usize {
        // SAFETY: the caller's memory.
        unsafe {
            self.zcopy_as(
                link,
                there,
                here,
                (writes, self.role == IfaceRole::Rail),
                token,
            )
        }
    }

    /// Posts a get of the first bytes of the memory of a request, which are read another way if the operation fails.
    /// Returns their number; 0: there is no room now.
    ///
    /// # Safety
    /// The requirements of [`zcopy`](Self::zcopy).
    pub unsafe fn read_repeatable(
        &self,
        link: &Arc<OfiTxLink>,
        there: OfiRemoteMem,
        here: OfiLocalMem,
        token: Token,
    ) -> usize {
        // SAFETY: the caller's memory.
        unsafe { self.zcopy_as(link, there, here, (false, true), token) }
    }

    /// [`zcopy`](Self::zcopy). `repeats`: what is not read is read another way.
    ///
    /// # Safety
    /// The requirements of [`zcopy`](Self::zcopy).
    #[inline(always)]
    unsafe fn zcopy_as(
        &self,
        link: &Arc<OfiTxLink>,
        there: OfiRemoteMem,
        here: OfiLocalMem,
        (writes, repeats): (bool, bool),
        token: Token,
    ) -> usize {
        let Some(rma) = self.rma.filter(|rma| link.rma.outstanding() < rma.window) else {
            return 0;
        };
        let here = OfiLocalMem {
            len: here.len.min(rma.max),
            ..here
        };
        let post = |ep: &mut OfiEndpoint, context| {
            // SAFETY: the caller's memory.
            unsafe {
                if writes {
                    ep.write(here, there, rma.flags(), context)
                } else {
                    ep.read(here, there, context)
                }
            }
        };
        let access = match repeats {
            false => RmaAccess::Zcopy,
            true => RmaAccess::Read(here.ptr, here.len),
        };
        let mut queues = self.queues.lock();
        let posted = queues.post_op(link, access, token, writes, post);
        queues.bytes(posted, link, here.len)
    }

    /// Posts a put (`writes`) or get of pieces of the memory of a request, at most as many as
    /// [`RmaLimits`](RmaLimits::max_iov) allows. Returns their bytes; 0: there is no room now.
    ///
    /// # Safety
    /// The pieces are valid until the request is complete, and registered where the provider wants that.
    pub unsafe fn zcopy_iov(
        &self,
        link: &Arc<OfiTxLink>,
        there: OfiRemoteMem,
        here: &mut OfiIov,
        writes: bool,
        token: Token,
    ) -> usize {
        let Some(rma) = self.rma.filter(|rma| link.rma.outstanding() < rma.window) else {
            return 0;
        };
        let bytes = here.bytes();
        let post = |ep: &mut OfiEndpoint, context| {
            // SAFETY: the caller's memory.
            unsafe {
                if writes {
                    ep.writev(here, there, rma.flags(), context)
                } else {
                    ep.readv(here, there, context)
                }
            }
        };
        let mut queues = self.queues.lock();
        let posted = queues.post_op(link, RmaAccess::Zcopy, token, writes, post);
        queues.bytes(posted, link, bytes)
    }

    /// Posts an atomic operation; the value before it goes to `into`, if there is one. False: there is no room now.
    ///
    /// # Safety
    /// `into` is writable for the size of the word until the request of the token is complete, or detached.
    pub unsafe fn atomic(
        &self,
        link: &Arc<OfiTxLink>,
        there: OfiRemoteMem,
        amo: AmoOp,
        reply: Option<(*mut u8, Token)>,
    ) -> bool {
        if (self.rma).is_none_or(|rma| link.rma.outstanding() >= rma.window) {
            return false;
        }
        let post = |ep: &mut OfiEndpoint, here, context| {
            // SAFETY: the buffer is longer than the operation, which keeps it.
            unsafe { ep.atomic(here, there, amo, context) }
        };
        let mut queues = self.queues.lock();
        let (into, token) = reply.unwrap_or((null_mut(), Token::NONE));
        let access = RmaAccess::Get(into, amo.size.into());
        let posted = queues.post_buffered(link, access, token, post);
        queues.bytes(posted, link, 1) != 0
    }

    /// The memory that an operation reads into which is read another way if it fails. `None`: it is another operation.
    pub fn repeatable(&self, op: RmaOpRef) -> Option<(*mut u8, usize)> {
        self.queues.lock().ops.repeatable(op)
    }

    /// Takes the [repeatable](Self::repeatable) operations of a connection whose completions cannot be read any more:
    /// the request, and the memory.
    pub fn take_reads(&self, link: &Arc<OfiTxLink>) -> Vec<(Token, *mut u8, usize)> {
        self.queues.lock().ops.take_reads(link)
    }

    /// Handles the end of an operation, if it has ended `well` and no request waits for it.
    ///
    /// # Safety
    /// A completion has reported the operation, and this call is the first for it.
    pub unsafe fn end_unawaited(&self, op: RmaOpRef, well: bool) -> EndedRma {
        let mut queues = self.queues.lock();
        let OfiQueues { ops, buffers, .. } = &mut *queues;
        if well && !ops.is_awaited(op) {
            // SAFETY: the caller's promise; there is no request.
            unsafe { ops.end(op, true, buffers) };
            return EndedRma::Handled;
        }
        ops.link(op).map_or(EndedRma::Handled, EndedRma::Of)
    }

    /// Handles the end of an operation, with or without an error (`well`). Returns the request that is to be completed.
    ///
    /// # Safety
    /// A completion has reported the operation, and this call is the first for it. The request of a get, if there is
    /// one, is not freed.
    pub unsafe fn end_op(&self, op: RmaOpRef, well: bool) -> Option<Token> {
        let mut queues = self.queues.lock();
        let OfiQueues { ops, buffers, .. } = &mut *queues;
        // SAFETY: the caller's promise.
        unsafe { ops.end(op, well, buffers) }
    }

    /// Whether operations of a connection that have not ended access the memory of their requests.
    pub fn has_in_place(&self, link: &Arc<OfiTxLink>) -> bool {
        self.queues.lock().ops.has_in_place(link)
    }

    /// Calls `act` with the requests that wait for operations of a connection. `in_place`: of operations that access
    /// the memory of the request alone. `act` does not use the interface.
    pub fn each_token(&self, link: &Arc<OfiTxLink>, in_place: bool, act: impl FnMut(Token)) {
        self.queues.lock().ops.each_token(link, in_place, act);
    }

    /// Takes the requests that `wanted` selects of gets through buffers of a connection: their ends are not
    /// reported any more.
    pub fn detach(&self, link: &Arc<OfiTxLink>, wanted: &dyn Fn(Token) -> bool) -> Vec<Token> {
        self.queues.lock().ops.detach(link, wanted)
    }

    /// Takes the requests of all operations of a connection whose peer has ended: no completion is waited for.
    pub fn abandon(&self, link: &Arc<OfiTxLink>) -> Vec<Token> {
        self.queues.lock().ops.abandon(link)
    }
}

impl OfiQueues {
    /// Posts an operation by `post`, which gets its context.
    fn post_op(
        &mut self,
        link: &Arc<OfiTxLink>,
        access: RmaAccess,
        token: Token,
        writes: bool,
        post: impl FnOnce(&mut OfiEndpoint, *mut c_void) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        let Some(op) = self.ops.take(link, access, None, token) else {
            return Err(PostError::Again);
        };
        let posted = post(&mut self.ep, op.context());
        match posted {
            Ok(()) => link.rma.posted(writes || access == RmaAccess::Put),
            Err(_) => drop(self.ops.give_back(op)),
        }
        posted
    }

    /// An operation that is about to be posted, through a buffer, and the memory of that.
    ///
    /// # Errors
    /// There is no memory, or it cannot be registered.
    pub(super) fn take_op(
        &mut self,
        link: &Arc<OfiTxLink>,
        access: RmaAccess,
        token: Token,
    ) -> io::Result<(RmaOpRef, OfiLocalMem)> {
        let buffer = self.buffers.take(&mut self.ep)?;
        let Some(op) = self.ops.take(link, access, Some(buffer), token) else {
            self.buffers.give_back(buffer);
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        let here = OfiLocalMem {
            ptr: buffer.data(),
            len: MAX_PACKET,
            desc: buffer.desc(),
        };
        Ok((op, here))
    }

    /// Gives back an operation that no completion will report, with its buffer.
    pub(super) fn give_back_op(&mut self, op: RmaOpRef) {
        if let Some(buffer) = self.ops.give_back(op) {
            self.buffers.give_back(buffer);
        }
    }

    /// Posts an operation through a buffer by `post`, which gets its memory and the context.
    fn post_buffered(
        &mut self,
        link: &Arc<OfiTxLink>,
        access: RmaAccess,
        token: Token,
        post: impl FnOnce(&mut OfiEndpoint, OfiLocalMem, *mut c_void) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        let Ok((op, here)) = self.take_op(link, access, token) else {
            return Err(PostError::Again);
        };
        let posted = post(&mut self.ep, here, op.context());
        match posted {
            Ok(()) => link.rma.posted(access == RmaAccess::Put),
            Err(_) => self.give_back_op(op),
        }
        posted
    }

    /// The bytes that are posted. Without room progress tries again; a connection on which operations fail ends.
    fn bytes(&mut self, posted: Result<(), PostError>, link: &Arc<OfiTxLink>, len: usize) -> usize {
        match posted {
            Ok(()) => return len,
            Err(PostError::Again) => self.block(link),
            Err(PostError::Failed(error)) => self.fail(link, error),
        }
        0
    }
}

/// Whether the error of a post says that the provider does not have the operation, or not with these flags.
fn is_unsupported(error: c_int) -> bool {
    let error = u32::try_from(error).unwrap_or(0);
    matches!(error, FI_EOPNOTSUPP | FI_ENOSYS | FI_EINVAL | FI_EBADFLAGS)
}
