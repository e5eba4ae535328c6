//! The context of an operation: the address that its completion returns.

use super::bindings::fi_context2;
use std::ffi::c_void;

/// Kinds of operations.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextKind {
    /// A packet that is to arrive in a buffer.
    Receive,
    /// Packets that are to arrive in a buffer, one behind the other.
    MultiRecv,
    /// A packet that is sent from a buffer.
    Send,
    /// An operation on memory of a peer.
    Rma,
}

/// The begin of everything whose address is the context of an operation: the provider's, until the operation has ended
/// (`FI_CONTEXT2`), and the kind.
#[repr(C)]
pub struct OpContext {
    provider: fi_context2,
    kind: ContextKind,
}

impl OpContext {
    /// The context of operations of a kind.
    pub fn new(kind: ContextKind) -> OpContext {
        OpContext {
            provider: fi_context2::default(),
            kind,
        }
    }

    /// The next operation is of another kind. None is outstanding.
    pub fn set_kind(&mut self, kind: ContextKind) {
        self.kind = kind;
    }

    /// The kind of the operation with this context. `None`: the provider does not say which one it was.
    ///
    /// # Safety
    /// It is null, or the address of something that begins with an [`OpContext`] and is not freed.
    #[inline(always)]
    pub unsafe fn kind(context: *mut c_void) -> Option<ContextKind> {
        // SAFETY: the caller's promise; the kind changes while no operation is outstanding.
        unsafe { context.cast::<OpContext>().as_ref() }.map(|context| context.kind)
    }
}
