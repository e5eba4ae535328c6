//! Pieces of a list that go by message. The owner of their memory may collect short ones: each says whether others
//! follow, so one is held back until the next one comes.

use super::SglOp;
use crate::engine::datatype::Data;
use crate::engine::request::Request;
use crate::proto::tx::rma_sw;
use crate::wire::list_piece::{ListPiece, MAX_COLLECTED_LIST, MAX_COLLECTED_PIECE};
use std::ptr::NonNull;

/// The pieces of a list that the owner may collect.
#[derive(Default)]
pub(super) struct MessagePieces {
    /// The next one.
    held: Option<NonNull<Request>>,
    /// Whether others were sent.
    has_sent: bool,
    /// Bytes of all.
    bytes: usize,
}

impl SglOp<'_> {
    /// Posts a piece of memory that only the peer's devices access, by message, or the one before it. `ptr`: host
    /// memory, which can be read in any case: the last piece is sent, unless the connection ends.
    ///
    /// # Safety
    /// The memory is valid until the user's request completes.
    pub(super) unsafe fn queue_for_device(&mut self, (ptr, len): (*mut u8, usize), addr: u64) {
        let data = Data::Contig { ptr, len };
        let messages = &mut self.messages;
        if len > MAX_COLLECTED_PIECE || messages.bytes + len > MAX_COLLECTED_LIST {
            // SAFETY: the caller's memory.
            return unsafe { self.queue(data, addr, None) };
        }
        messages.bytes += len;
        // SAFETY: new requests; the fields of the child are set before it is posted.
        let child = unsafe {
            let child = self.child(data);
            rma_sw::set_am(&mut *child, self.direction, addr);
            child
        };
        let held = NonNull::new(child);
        let Some(before) = std::mem::replace(&mut self.messages.held, held) else {
            return;
        };
        self.messages.has_sent = true;
        // SAFETY: the caller's memory; the request is in no queue, as it was held until now.
        unsafe { self.post_held(before, ListPiece::Further) };
    }

    /// Posts the last piece by message, if there is one.
    ///
    /// # Safety
    /// The memory of the list is valid.
    pub(super) unsafe fn post_last_message(&mut self) {
        let messages = std::mem::take(&mut self.messages);
        let Some(last) = messages.held else {
            return;
        };
        let position = match messages.has_sent {
            true => ListPiece::Last,
            false => ListPiece::Alone,
        };
        // SAFETY: the caller's memory; the request is in no queue, as it was held until now.
        unsafe { self.post_held(last, position) };
    }

    /// Posts a piece that was held.
    ///
    /// # Safety
    /// The request is in no queue, and complete but for its position in the list. The memory of the list is valid.
    unsafe fn post_held(&mut self, mut piece: NonNull<Request>, position: ListPiece) {
        // SAFETY: the caller's promise.
        unsafe {
            piece.as_mut().msg.aux = position.aux();
            self.post(piece.as_ptr());
        }
    }
}
