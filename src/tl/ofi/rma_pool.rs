//! The operations of an endpoint on memory of peers that have not ended.

use super::buffers::{BufferRef, OfiBufferPool};
use super::op_context::{ContextKind, OpContext};
use super::tx_link::OfiTxLink;
use crate::tl::Token;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

/// Operations for which memory is allocated at once.
const CHUNK: usize = 64;

/// What an operation accesses in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RmaAccess {
    /// A buffer, or bytes that the provider has copied: a put.
    Put,
    /// A buffer, from which the result is copied to so many bytes at this address.
    Get(*mut u8, usize),
    /// The memory of the request.
    Zcopy,
    /// So many bytes at this address in the memory of the request, which are read another way if the operation fails.
    Read(*mut u8, usize),
}

impl RmaAccess {
    /// Whether it accesses the memory of the request.
    fn is_in_place(self) -> bool {
        matches!(self, RmaAccess::Zcopy | RmaAccess::Read(..))
    }
}

/// An operation. `context` is the first member: an operation's context is the address of its value.
#[repr(C)]
struct RmaOp {
    context: OpContext,
    /// The connection; `None` if the value is free.
    link: Option<Arc<OfiTxLink>>,
    access: RmaAccess,
    buffer: Option<BufferRef>,
    /// The request that waits for it.
    token: Token,
    state: RmaState,
}

/// State of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RmaState {
    /// It is counted as outstanding.
    Posted,
    /// It has ended with an error; its request is to be detached.
    Failed,
    /// Nothing waits for its completion any more.
    Abandoned,
}

/// An operation of an [`RmaOpPool`], which is not freed before the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RmaOpRef(NonNull<RmaOp>);

// SAFETY: a name of memory that its pool keeps; the lock of the worker orders the accesses.
unsafe impl Send for RmaOpRef {}

impl RmaOpRef {
    /// The operation with this context, which is one of an operation on memory of a peer.
    pub fn of_context(context: *mut c_void) -> Option<RmaOpRef> {
        NonNull::new(context.cast()).map(RmaOpRef)
    }

    /// What the post of the operation passes to the provider.
    pub fn context(self) -> *mut c_void {
        self.0.as_ptr().cast()
    }
}

/// The operations of an endpoint, whose lock the caller of all functions holds.
#[derive(Default)]
pub struct RmaOpPool {
    free: Vec<RmaOpRef>,
    /// What [`RmaOpRef`] and providers point to.
    chunks: Vec<NonNull<[RmaOp]>>,
}

// SAFETY: the pointers are to memory of the pool's own.
unsafe impl Send for RmaOpPool {}

impl Drop for RmaOpPool {
    fn drop(&mut self) {
        for chunk in self.chunks.drain(..) {
            // SAFETY: made by `grow` from a box; the endpoint, whose operations use it, was closed before.
            drop(unsafe { Box::from_raw(chunk.as_ptr()) });
        }
    }
}

impl RmaOpPool {
    /// An operation that is about to be posted, for a connection, with the request that waits for it.
    pub fn take(
        &mut self,
        link: &Arc<OfiTxLink>,
        access: RmaAccess,
        buffer: Option<BufferRef>,
        token: Token,
    ) -> Option<RmaOpRef> {
        if self.free.is_empty() {
            self.grow();
        }
        let op = self.free.pop()?;
        // SAFETY: the value is free, and stays as long as the pool.
        let value = unsafe { &mut *op.0.as_ptr() };
        value.link = Some(link.clone());
        (value.access, value.buffer, value.token) = (access, buffer, token);
        value.state = RmaState::Posted;
        Some(op)
    }

    /// Gives back an operation that was not posted. Returns its buffer.
    pub fn give_back(&mut self, op: RmaOpRef) -> Option<BufferRef> {
        // SAFETY: the value is the caller's, and stays as long as the pool.
        let value = unsafe { &mut *op.0.as_ptr() };
        value.link = None;
        value.token = Token::NONE;
        self.free.push(op);
        value.buffer.take()
    }

    /// The memory that an operation reads into which is read another way if it fails: address and bytes. `None`: it is
    /// another operation.
    pub fn repeatable(&self, op: RmaOpRef) -> Option<(*mut u8, usize)> {
        // SAFETY: the value stays as long as the pool.
        match unsafe { (*op.0.as_ptr()).access } {
            RmaAccess::Read(ptr, len) => Some((ptr, len)),
            RmaAccess::Put | RmaAccess::Get(..) | RmaAccess::Zcopy => None,
        }
    }

    /// Takes the [repeatable](Self::repeatable) operations of a connection whose completions cannot be read any more:
    /// the request, and the memory.
    pub fn take_reads(&mut self, link: &Arc<OfiTxLink>) -> Vec<(Token, *mut u8, usize)> {
        let mut found = Vec::new();
        let ops: Vec<RmaOpRef> = self.of_link(link).collect();
        for op in ops {
            // SAFETY: the value stays as long as the pool; the caller holds the lock.
            let value = unsafe { &mut *op.0.as_ptr() };
            if let (RmaState::Posted, RmaAccess::Read(ptr, len)) = (value.state, value.access) {
                let token = std::mem::replace(&mut value.token, Token::NONE);
                found.extend((!token.is_none()).then_some((token, ptr, len)));
                value.state = RmaState::Abandoned;
                link.rma.completed();
            }
        }
        found
    }

    /// Whether a request waits for an operation.
    pub fn is_awaited(&self, op: RmaOpRef) -> bool {
        // SAFETY: the value stays as long as the pool.
        !unsafe { (*op.0.as_ptr()).token.is_none() }
    }

    /// The connection of an operation.
    pub fn link(&self, op: RmaOpRef) -> Option<Arc<OfiTxLink>> {
        // SAFETY: the value stays as long as the pool.
        unsafe { (*op.0.as_ptr()).link.clone() }
    }

    /// Handles the end of an operation, with or without an error (`well`): copies the result. Returns the request that
    /// waited for it, if it is to be completed. A get through a buffer that has failed keeps its request until that is
    /// [detached](Self::detach).
    ///
    /// # Safety
    /// A completion has reported the operation, and this call is the first for it. The request of a get, if there is
    /// one, is not freed.
    pub unsafe fn end(
        &mut self,
        op: RmaOpRef,
        well: bool,
        buffers: &mut OfiBufferPool,
    ) -> Option<Token> {
        // SAFETY: the value stays as long as the pool.
        let value = unsafe { &mut *op.0.as_ptr() };
        if value.state == RmaState::Posted
            && let Some(link) = &value.link
        {
            link.rma.completed();
        }
        if let (true, false, RmaAccess::Get(into, len), Some(buffer)) =
            (well, value.token.is_none(), value.access, value.buffer)
        {
            // SAFETY: the request, which is not freed, has the room; the read has written so many bytes.
            unsafe { into.copy_from_nonoverlapping(buffer.data(), len) };
        }
        if let Some(buffer) = value.buffer.take() {
            buffers.give_back(buffer);
        }
        let token = (!value.token.is_none()).then_some(value.token);
        if !well && token.is_some() && matches!(value.access, RmaAccess::Get(..)) {
            value.state = RmaState::Failed;
            return None;
        }
        self.give_back(op);
        token
    }

    /// The operations of a connection that wait for a completion, or failed ones that have a request.
    fn of_link(&self, link: &Arc<OfiTxLink>) -> impl Iterator<Item = RmaOpRef> {
        let all = self.chunks.iter().flat_map(|chunk| {
            // SAFETY: the chunk has `CHUNK` values.
            (0..CHUNK).map(|i| RmaOpRef(unsafe { chunk.cast::<RmaOp>().add(i) }))
        });
        all.filter(move |op| {
            // SAFETY: the value stays as long as the pool; the caller holds the lock.
            let of = unsafe { &(*op.0.as_ptr()).link };
            of.as_ref().is_some_and(|of| Arc::ptr_eq(of, link))
        })
    }

    /// Whether operations of a connection that have not ended access the memory of their requests.
    pub fn has_in_place(&self, link: &Arc<OfiTxLink>) -> bool {
        self.of_link(link).any(|op| {
            // SAFETY: the value stays as long as the pool; the caller holds the lock.
            let (state, access) = unsafe { ((*op.0.as_ptr()).state, (*op.0.as_ptr()).access) };
            state == RmaState::Posted && access.is_in_place()
        })
    }

    /// Calls `act` with the requests that wait for operations of a connection. `in_place`: of operations that access
    /// the memory of the request alone.
    pub fn each_token(&self, link: &Arc<OfiTxLink>, in_place: bool, mut act: impl FnMut(Token)) {
        for op in self.of_link(link) {
            // SAFETY: the value stays as long as the pool; the caller holds the lock.
            let (token, access) = unsafe { ((*op.0.as_ptr()).token, (*op.0.as_ptr()).access) };
            if !token.is_none() && (!in_place || access.is_in_place()) {
                act(token);
            }
        }
    }

    /// Takes the requests that `wanted` selects of gets through buffers of a connection: their ends are not
    /// reported any more.
    pub fn detach(&mut self, link: &Arc<OfiTxLink>, wanted: impl Fn(Token) -> bool) -> Vec<Token> {
        let mut found = Vec::new();
        let ops: Vec<RmaOpRef> = self.of_link(link).collect();
        for op in ops {
            // SAFETY: the value stays as long as the pool; the caller holds the lock.
            let value = unsafe { &mut *op.0.as_ptr() };
            if value.access.is_in_place() || value.token.is_none() || !wanted(value.token) {
                continue;
            }
            found.push(std::mem::replace(&mut value.token, Token::NONE));
            if value.state == RmaState::Failed {
                self.give_back(op);
            }
        }
        found
    }

    /// Takes the requests of all operations of a connection whose peer has ended, so that no completion comes: none of
    /// them is counted as outstanding any more.
    pub fn abandon(&mut self, link: &Arc<OfiTxLink>) -> Vec<Token> {
        let mut found = Vec::new();
        let ops: Vec<RmaOpRef> = self.of_link(link).collect();
        for op in ops {
            // SAFETY: the value stays as long as the pool; the caller holds the lock.
            let value = unsafe { &mut *op.0.as_ptr() };
            let token = std::mem::replace(&mut value.token, Token::NONE);
            found.extend((!token.is_none()).then_some(token));
            match std::mem::replace(&mut value.state, RmaState::Abandoned) {
                RmaState::Posted => link.rma.completed(),
                RmaState::Failed => drop(self.give_back(op)),
                RmaState::Abandoned => {}
            }
        }
        found
    }

    #[cold]
    fn grow(&mut self) {
        let value = || RmaOp {
            context: OpContext::new(ContextKind::Rma),
            link: None,
            access: RmaAccess::Put,
            buffer: None,
            token: Token::NONE,
            state: RmaState::Posted,
        };
        let chunk: Box<[RmaOp]> = (0..CHUNK).map(|_| value()).collect();
        let chunk = NonNull::from(Box::leak(chunk));
        for i in 0..CHUNK {
            // SAFETY: the chunk has `CHUNK` values.
            let op = unsafe { chunk.cast::<RmaOp>().add(i) };
            self.free.push(RmaOpRef(op));
        }
        self.chunks.push(chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::{null_mut, without_provenance_mut};

    fn token(n: usize) -> Token {
        Token::new(without_provenance_mut::<u8>(n))
    }

    /// A posted operation.
    fn posted(pool: &mut RmaOpPool, link: &Arc<OfiTxLink>, in_place: bool, n: usize) -> RmaOpRef {
        let access = if in_place {
            RmaAccess::Zcopy
        } else {
            RmaAccess::Get(null_mut(), 0)
        };
        link.rma.posted(false);
        pool.take(link, access, None, token(n)).unwrap()
    }

    fn end(pool: &mut RmaOpPool, op: RmaOpRef, well: bool) -> Option<Token> {
        // SAFETY: the operations have no buffers, so that nothing is copied.
        unsafe { pool.end(op, well, &mut OfiBufferPool::default()) }
    }

    fn tokens(pool: &RmaOpPool, link: &Arc<OfiTxLink>, in_place: bool) -> Vec<Token> {
        let mut found = Vec::new();
        pool.each_token(link, in_place, |token| found.push(token));
        found.sort_by_key(|token| token.address::<u8>().addr());
        found
    }

    #[test]
    fn a_detached_get_is_not_reported() {
        let (mut pool, link) = (
            RmaOpPool::default(),
            Arc::new(OfiTxLink::new(1, 2, 3, None)),
        );
        let other = Arc::new(OfiTxLink::new(3, 4, 5, None));
        let ops = [false, true].map(|in_place| posted(&mut pool, &link, in_place, 1));
        let far = posted(&mut pool, &other, false, 1);
        assert!(pool.has_in_place(&link) && !pool.has_in_place(&other));
        assert_eq!(tokens(&pool, &link, false), [token(1), token(1)]);
        assert_eq!(tokens(&pool, &link, true), [token(1)]);
        assert_eq!(pool.detach(&link, |_| true), [token(1)]);
        assert_eq!(end(&mut pool, ops[0], true), None);
        assert_eq!(end(&mut pool, ops[1], true), Some(token(1)));
        assert!(!pool.has_in_place(&link));
        assert_eq!((link.rma.outstanding(), other.rma.outstanding()), (0, 1));
        assert_eq!(end(&mut pool, far, true), Some(token(1)));
        assert!(tokens(&pool, &other, false).is_empty());
    }

    #[test]
    fn a_failed_get_keeps_its_request_until_that_is_detached() {
        let (mut pool, link) = (
            RmaOpPool::default(),
            Arc::new(OfiTxLink::new(1, 2, 3, None)),
        );
        let get = posted(&mut pool, &link, false, 1);
        let zcopy = posted(&mut pool, &link, true, 2);
        assert_eq!(end(&mut pool, get, false), None);
        assert_eq!(end(&mut pool, zcopy, false), Some(token(2)));
        assert_eq!(link.rma.outstanding(), 0);
        assert_eq!(tokens(&pool, &link, false), [token(1)]);
        assert_eq!(pool.detach(&link, |_| true), [token(1)]);
        assert!(tokens(&pool, &link, false).is_empty());
        assert_eq!(pool.free.len(), CHUNK);
    }

    #[test]
    fn operations_of_an_ended_peer_are_reported_once() {
        let (mut pool, link) = (
            RmaOpPool::default(),
            Arc::new(OfiTxLink::new(1, 2, 3, None)),
        );
        let ops: Vec<RmaOpRef> = (1..=3)
            .map(|n| posted(&mut pool, &link, n > 1, n))
            .collect();
        assert_eq!(end(&mut pool, ops[0], false), None);
        assert_eq!(end(&mut pool, ops[1], true), Some(token(2)));
        assert_eq!(pool.abandon(&link), [3, 1].map(token), "the last one first");
        assert_eq!(link.rma.outstanding(), 0);
        assert!(pool.abandon(&link).is_empty());
        assert_eq!(end(&mut pool, ops[2], true), None);
        assert_eq!((link.rma.outstanding(), pool.free.len()), (0, CHUNK));
    }
}
