//! What the context of a completion leads to.

use super::buffers::BufferRef;
use super::multi_recv::MultiRecvRef;
use super::op_context::{ContextKind, OpContext};
use super::rma_pool::RmaOpRef;
use std::ffi::c_void;

/// An operation that has ended.
#[derive(Clone, Copy, Debug)]
pub enum EndedContext {
    /// A packet has arrived in the buffer.
    Received(BufferRef),
    /// A packet has arrived in the buffer, or the provider has released it, or both.
    MultiRecv(MultiRecvRef),
    /// The packet in the buffer was sent.
    Sent(BufferRef),
    Rma(RmaOpRef),
}

impl EndedContext {
    /// The operation with this context. `None`: the provider does not say which one it was.
    ///
    /// # Safety
    /// The context is null, or that of an operation of the endpoint.
    #[inline(always)]
    pub unsafe fn of(context: *mut c_void) -> Option<EndedContext> {
        // SAFETY: the values of operations begin with their contexts, and are not freed before the endpoint.
        match unsafe { OpContext::kind(context) }? {
            ContextKind::Receive => BufferRef::of_context(context).map(EndedContext::Received),
            ContextKind::MultiRecv => {
                MultiRecvRef::of_context(context).map(EndedContext::MultiRecv)
            }
            ContextKind::Send => BufferRef::of_context(context).map(EndedContext::Sent),
            ContextKind::Rma => RmaOpRef::of_context(context).map(EndedContext::Rma),
        }
    }
}
