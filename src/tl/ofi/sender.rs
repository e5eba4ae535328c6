//! The sending half of a connection.

use super::buffers::MAX_PACKET;
use super::iface::OfiIface;
use super::packet::{Grant, PROBE, PacketHdr, RECORD, RECORD_HEADER, bare};
use super::tx_link::OfiTxLink;
use crate::wire::frame;
use std::sync::Arc;

/// Used by the thread that holds the peer's lock.
pub struct OfiSender {
    pub(super) iface: Arc<OfiIface>,
    pub(super) link: Arc<OfiTxLink>,
    /// The peer's end.
    pub(super) to: Grant,
    /// A packet that was accepted, and that the provider has not taken; empty if there is none.
    waiting: Vec<u8>,
}

impl OfiSender {
    /// The sender of a connection whose other end is `to`.
    pub fn new(iface: Arc<OfiIface>, link: Arc<OfiTxLink>, to: Grant) -> Self {
        Self {
            iface,
            link,
            to,
            waiting: Vec::new(),
        }
    }

    /// Whether a descriptor reports that there is room: the completion of a send makes it readable, and an armed worker
    /// tries again what the provider has refused.
    pub fn has_room_event(&self) -> bool {
        self.iface.has_event
    }

    /// Whether everything that was accepted has left this process, and operations on memory of the peer have taken
    /// effect.
    pub fn is_drained(&self) -> bool {
        let sent = self.link.outstanding() == 0 && !self.link.has_unsignaled();
        self.waiting.is_empty() && sent && self.is_rma_drained()
    }

    /// [`is_drained`](Self::is_drained) for a caller that waits for it: has a completion report what was sent without.
    pub fn drain(&mut self) -> bool {
        if self.flush() && self.link.has_unsignaled() {
            // Without room the next call tries again.
            let _ = self.iface.send(&bare(self.to, PROBE, 0), &self.link);
        }
        self.drain_rma();
        self.is_drained()
    }

    /// Whether a record of `len` bytes can be sent now: none waits for room, and few are outstanding.
    pub fn has_room(&mut self, len: usize) -> bool {
        debug_assert!(len <= MAX_PACKET - RECORD_HEADER);
        self.flush() && self.link.outstanding() < self.iface.window
    }

    /// Sends a record of `len` bytes, which `fill` writes. False: there is no room now, and `fill` was not called.
    pub fn send(
        &mut self,
        kind: u8,
        aux: u8,
        imm: u64,
        len: usize,
        fill: impl FnOnce(*mut u8),
    ) -> bool {
        if !self.has_room(len) {
            return false;
        }
        let Some(buffer) = self.iface.take_buffer() else {
            self.iface.block(&self.link);
            return false;
        };
        let header = self.to.header(RECORD, self.link.next_seq());
        let head = frame::encode(kind, aux, imm, len);
        let data = buffer.data();
        // SAFETY: the buffer was taken, and has room for the headers and the longest record.
        let record = unsafe {
            data.copy_from_nonoverlapping(header.as_ptr(), header.len());
            let at = data.add(PacketHdr::SIZE);
            at.copy_from_nonoverlapping(head.as_ptr(), head.len());
            data.add(RECORD_HEADER)
        };
        fill(record);
        let total = RECORD_HEADER + len;
        if self.iface.post(buffer, total, &self.link, false).is_err() {
            // SAFETY: the headers and `fill` have written so many bytes, and no operation uses the buffer.
            self.waiting.extend(unsafe { buffer.packet(total) });
            self.iface.give_back(buffer);
            self.iface.block(&self.link);
        }
        true
    }

    /// Sends the packet that waits for room. True: none waits any more.
    pub fn flush(&mut self) -> bool {
        if self.waiting.is_empty() {
            return true;
        }
        if self.iface.send(&self.waiting, &self.link).is_err() {
            self.iface.block(&self.link);
            return false;
        }
        self.waiting.clear();
        true
    }
}
