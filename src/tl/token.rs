//! The name of an operation of the layer above.

use std::ptr;

/// Names an operation that a lane has accepted to the layer above, which gets the token back when the operation is
/// complete: the address of its request. A transport keeps, compares and returns tokens; it never follows one. Whether
/// the request still exists is a promise of the layer above: it takes its tokens back before it frees a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Token(*mut ());

impl Token {
    /// An operation that nothing waits for.
    pub const NONE: Token = Token(ptr::null_mut());

    /// The token of an operation whose request is at this address, not null.
    #[inline(always)]
    pub fn new<T>(request: *mut T) -> Token {
        Token(request.cast())
    }

    /// Whether nothing waits for the operation.
    #[inline(always)]
    pub fn is_none(self) -> bool {
        self.0.is_null()
    }

    /// The address that [`new`](Self::new) got; null for [`NONE`](Self::NONE).
    #[inline(always)]
    pub fn address<T>(self) -> *mut T {
        self.0.cast()
    }
}
