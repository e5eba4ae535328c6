//! Pieces of a list that go by message. The owner of their memory may collect short ones: each says whether others
//! follow, so one is held back until the next one comes.

use super::SglOp;
use crate::ctypes::ucs_status_t;
use crate::engine::datatype::Data;
use crate::engine::request::Request;
use crate::proto::tx::rma_sw;
use crate::wire::list_piece::{ListPiece, MAX_COLLECTED_LIST, MAX_COLLECTED_PIECE};
use std::ptr;

/// The pieces of a list that the owner may collect.
pub(super) struct MessagePieces {
    /// The next one; null: none.
    held: *mut Request,
    /// Whether others were sent.
    has_sent: bool,
    /// Bytes of all.
    bytes: usize,
}

impl Default for MessagePieces {
    fn default() -> MessagePieces {
        MessagePieces {
            held: ptr::null_mut(),
            has_sent: false,
            bytes: 0,
        }
    }
}

impl SglOp<'_> {
    /// Posts a piece of memory that only the peer's devices access, by message, or the one before it. `ptr`: host
    /// memory, which can be read in any case: the last piece is sent, unless the connection ends.
    ///
    /// # Errors
    /// Those of [`queue`](Self::queue).
    ///
    /// # Safety
    /// The memory is valid until the user's request completes.
    pub(super) unsafe fn queue_for_device(
        &mut self,
        (ptr, len): (*mut u8, usize),
        addr: u64,
    ) -> Result<(), ucs_status_t> {
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
        let before = std::mem::replace(&mut self.messages.held, child);
        if before.is_null() {
            return Ok(());
        }
        self.messages.has_sent = true;
        // SAFETY: a request that was held, and is complete but for this.
        unsafe {
            (*before).msg.aux = ListPiece::Further.aux();
            self.post(before);
        }
        Ok(())
    }

    /// Posts the last piece by message, if there is one.
    ///
    /// # Safety
    /// The memory of the list is valid.
    pub(super) unsafe fn post_last_message(&mut self) {
        let messages = std::mem::take(&mut self.messages);
        if messages.held.is_null() {
            return;
        }
        let position = match messages.has_sent {
            true => ListPiece::Last,
            false => ListPiece::Alone,
        };
        // SAFETY: a request that was held, and is complete but for this.
        unsafe {
            (*messages.held).msg.aux = position.aux();
            self.post(messages.held);
        }
    }
}
