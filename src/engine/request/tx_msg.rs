//! The message of a request: header, data and tail, as a lane sends them.

use super::Request;
use crate::wire::header::Kind;
use std::ptr;

/// Maximum bytes of a message's header.
const MAX_HEAD: usize = 32;

/// How the data of a request's message travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TxPayload {
    /// In the message.
    Whole,
    /// In several messages, each with the offset of its part in its header.
    Fragments,
    /// Without the message: the receiver reads them, or the reply brings them.
    HeaderOnly,
}

/// The owner of a message's tail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TailOwner {
    /// The user, until the operation completes.
    User,
    /// The request: a boxed slice.
    Request,
}

/// A message, except for its data, which are the request's.
#[repr(C)]
pub struct TxMsg {
    /// Immediate, by kind: the tag, `AmImm`, the remote address of RMA, or the peer's id of a request.
    pub imm: u64,
    head: [u8; MAX_HEAD],
    /// What follows the data: the rkeys of an RTS, and the user's AM header.
    tail: *const u8,
    tail_len: u32,
    /// 0: there is no message.
    kind: u8,
    /// Status or number, by kind.
    pub aux: u8,
    head_len: u8,
}

impl TxMsg {
    /// No message.
    pub const NONE: TxMsg = TxMsg {
        imm: 0,
        head: [0; MAX_HEAD],
        tail: ptr::null(),
        tail_len: 0,
        kind: 0,
        aux: 0,
        head_len: 0,
    };

    /// Sets all but the tail.
    #[inline]
    pub fn set(&mut self, kind: Kind, aux: u8, imm: u64, head: &[u8]) {
        self.kind = kind as u8;
        self.aux = aux;
        self.imm = imm;
        self.head[..head.len()].copy_from_slice(head);
        self.head_len = head.len() as u8;
    }

    /// The kind of the message, if there is one.
    #[inline]
    pub fn kind(&self) -> Option<Kind> {
        Kind::from_u8(self.kind)
    }

    /// The kind as it is sent.
    #[inline(always)]
    pub fn raw_kind(&self) -> u8 {
        self.kind
    }

    /// Whether it is a message of this kind.
    #[inline(always)]
    pub fn is(&self, kind: Kind) -> bool {
        self.kind == kind as u8
    }

    /// Another kind from here on.
    pub fn set_kind(&mut self, kind: Kind) {
        self.kind = kind as u8;
    }

    /// Drops the message: a device executes the operation.
    pub fn drop_kind(&mut self) {
        self.kind = 0;
    }

    /// The header.
    #[inline(always)]
    pub fn head(&self) -> &[u8] {
        // SAFETY: `set`, which alone writes the length, has stored as many bytes in the array.
        unsafe { self.head.get_unchecked(..self.head_len as usize) }
    }

    /// The memory of the header, which begins with the id of the request where the kind has one.
    #[inline(always)]
    pub fn head_mut(&mut self) -> &mut [u8; MAX_HEAD] {
        &mut self.head
    }

    /// Sets the tail: `len` bytes of the user.
    #[inline(always)]
    pub fn set_tail(&mut self, tail: *const u8, len: u32) {
        (self.tail, self.tail_len) = (tail, len);
    }

    /// Bytes of the tail.
    #[inline(always)]
    pub fn tail_len(&self) -> usize {
        self.tail_len as usize
    }

    /// The tail.
    ///
    /// # Safety
    /// The tail is readable: the operation has not completed.
    #[inline(always)]
    pub unsafe fn tail(&self) -> &[u8] {
        if self.tail_len == 0 {
            return &[];
        }
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.tail, self.tail_len as usize) }
    }
}

impl Request {
    /// Replaces the tail by memory that the request owns.
    pub fn own_tail(&mut self, tail: Box<[u8]>) {
        self.msg.tail_len = tail.len() as u32;
        self.msg.tail = Box::into_raw(tail).cast();
        self.tail_owner = TailOwner::Request;
    }

    /// Copies the tail, so that the user may reuse its memory.
    ///
    /// # Safety
    /// The tail is readable.
    pub unsafe fn copy_tail(&mut self) {
        if self.msg.tail_len > 0 && self.tail_owner == TailOwner::User {
            // SAFETY: the caller's promise.
            let copy = unsafe { self.msg.tail() }.into();
            self.own_tail(copy);
        }
    }

    /// Frees what the request owns.
    pub(in crate::engine) fn drop_extra(&mut self) {
        self.extra = None;
        if self.tail_owner == TailOwner::Request {
            let len = self.msg.tail_len();
            let slice = ptr::slice_from_raw_parts_mut(self.msg.tail.cast_mut(), len);
            // SAFETY: made by `own_tail` from a boxed slice of this length.
            drop(unsafe { Box::from_raw(slice) });
            self.tail_owner = TailOwner::User;
            self.msg.set_tail(ptr::null(), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_parts_that_were_set() {
        let mut msg = TxMsg::NONE;
        assert_eq!((msg.kind(), msg.head(), msg.tail_len()), (None, &[][..], 0));
        let user_header = [7u8; 3];
        msg.set_tail(user_header.as_ptr(), 3);
        msg.set(Kind::AmEager, 1, 2, &[3, 4]);
        assert!(msg.is(Kind::AmEager) && !msg.is(Kind::AmFragment));
        assert_eq!((msg.aux, msg.imm, msg.head()), (1, 2, &[3, 4][..]));
        // SAFETY: the array lives.
        assert_eq!(unsafe { msg.tail() }, user_header);
        msg.drop_kind();
        assert_eq!(msg.kind(), None);
    }
}
