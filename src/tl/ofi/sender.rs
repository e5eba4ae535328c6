//! The sending half of a connection.

use super::buffers::{BufferRef, MAX_PACKET};
use super::iface::OfiIface;
use super::packet::{Grant, MAX_SHORT_PACKET, PROBE, PacketHdr, RECORD, RECORD_HEADER, bare};
use super::rail::OfiRailState;
use super::tx_link::OfiTxLink;
use crate::wire::frame;
use std::sync::Arc;

/// Used by the thread that holds the peer's lock.
pub struct OfiSender {
    pub(super) iface: Arc<OfiIface>,
    pub(super) link: Arc<OfiTxLink>,
    /// The peer's end.
    pub(super) to: Grant,
    /// Longest packet that is sent from the stack, bytes.
    pub(super) max_inject: usize,
    /// The connection that reads parts of long messages.
    pub(super) rail: OfiRailState,
    /// A packet that was accepted, and that the provider has not taken; empty if there is none.
    waiting: Vec<u8>,
}

impl OfiSender {
    /// The sender of a connection whose other end is `to`.
    pub fn new(iface: Arc<OfiIface>, link: Arc<OfiTxLink>, to: Grant) -> Self {
        Self {
            max_inject: iface.max_inject.min(MAX_SHORT_PACKET),
            iface,
            link,
            to,
            rail: OfiRailState::default(),
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
            let probe = bare(self.to, PROBE, self.link.sent());
            let _ = self.iface.send(&probe, &self.link);
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
        let seq = self.link.next_seq();
        // SAFETY: the buffer was taken.
        fill(unsafe { self.write_headers(buffer, seq, (kind, aux, imm), len) });
        let total = RECORD_HEADER + len;
        if self.iface.post(buffer, total, &self.link, false).is_err() {
            // SAFETY: the headers and `fill` have written so many bytes, and no operation uses the buffer.
            self.waiting.extend(unsafe { buffer.packet(total) });
            self.iface.give_back(buffer);
            self.iface.block(&self.link);
        }
        true
    }

    /// Sends a record of `len` bytes copied from `data`, with or without a buffer. False: there is no room now,
    /// and nothing was done. A call, because the code around it is that of all lanes.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes.
    #[inline(never)]
    pub unsafe fn send_now(&mut self, kind: u8, imm: u64, data: *const u8, len: usize) -> bool {
        // SAFETY: the caller's bytes.
        unsafe { self.inject(kind, || imm, data, len) || self.send_copy(kind, imm, data, len) }
    }

    /// Sends a record of `len` bytes that are copied from `data`. False: there is no room now, and nothing was done.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes.
    pub unsafe fn send_copy(&mut self, kind: u8, imm: u64, data: *const u8, len: usize) -> bool {
        if !self.has_room(len) {
            return false;
        }
        let Some(buffer) = self.iface.take_buffer() else {
            return false;
        };
        // SAFETY: the buffer was taken, and has room for the headers and the record; the caller's bytes.
        unsafe {
            let record = self.write_headers(buffer, self.link.sent(), (kind, 0, imm), len);
            record.copy_from_nonoverlapping(data, len);
        }
        let total = RECORD_HEADER + len;
        let is_sent = self.iface.post(buffer, total, &self.link, false).is_ok();
        if is_sent {
            self.link.next_seq();
        } else {
            self.iface.give_back(buffer);
        }
        is_sent
    }

    /// Writes the headers of the record with this number into a buffer, and returns where the record begins.
    ///
    /// # Safety
    /// The buffer was taken, and was not posted.
    unsafe fn write_headers(
        &self,
        buffer: BufferRef,
        seq: u32,
        (kind, aux, imm): (u8, u8, u64),
        len: usize,
    ) -> *mut u8 {
        let header = self.to.header(RECORD, seq);
        let head = frame::encode(kind, aux, imm, len);
        let data = buffer.data();
        // SAFETY: the caller's buffer has room for the headers and the longest record.
        unsafe {
            data.copy_from_nonoverlapping(header.as_ptr(), header.len());
            let at = data.add(PacketHdr::SIZE);
            at.copy_from_nonoverlapping(head.as_ptr(), head.len());
            data.add(RECORD_HEADER)
        }
    }

    /// Whether a packet waits for room.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
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
