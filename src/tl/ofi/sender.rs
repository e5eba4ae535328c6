//! The sending half of a connection.

use super::buffers::{BufferRef, MAX_PACKET};
use super::failover_sender::KeptPackets;
use super::packet::{Grant, MAX_SHORT_PACKET, PROBE, PacketHdr, RECORD, RECORD_HEADER, bare};
use super::rail::OfiRailState;
use super::replay::ReplayQueue;
use super::shared_ep::OfiSharedEp;
use super::tx_link::OfiTxLink;
use crate::wire::frame;
use std::sync::Arc;

/// Used by the thread that holds the peer's lock.
pub struct OfiSender {
    pub(super) ep: Arc<OfiSharedEp>,
    pub(super) link: Arc<OfiTxLink>,
    /// The peer's end.
    pub(super) to: Grant,
    /// Longest packet that is sent from the stack, bytes.
    pub(super) max_inject: usize,
    /// The connection that reads parts of long messages.
    pub(super) rail: OfiRailState,
    pub(super) held: HeldPackets,
}

/// The packets that a sender has accepted and holds.
pub(super) enum HeldPackets {
    None,
    /// One that the provider has not taken.
    Waiting(Box<[u8]>),
    /// Of a connection with failover, those that the peer has not acknowledged.
    Kept(Box<KeptPackets>),
}

impl OfiSender {
    /// The sender of a connection whose other end is `to`.
    pub fn new(ep: Arc<OfiSharedEp>, link: Arc<OfiTxLink>, to: Grant) -> Self {
        Self {
            max_inject: ep.max_inject.min(MAX_SHORT_PACKET),
            ep,
            link,
            to,
            rail: OfiRailState::default(),
            held: HeldPackets::None,
        }
    }

    /// Whether a descriptor reports that there is room: the completion of a send makes it readable, and an armed worker
    /// tries again what the provider has refused.
    pub fn has_room_event(&self) -> bool {
        self.ep.has_event
    }

    /// Whether everything that was accepted has left this process, or has arrived if packets are kept, and operations
    /// on memory of the peer have taken effect. Never again once the connection fails: the flush ends with its peer.
    #[inline(always)]
    pub fn is_drained(&self) -> bool {
        if self.has_held() {
            return self.is_drained_of_held();
        }
        let sent = self.link.outstanding() == 0 && !self.link.has_unsignaled();
        sent && self.is_rma_drained() && !self.link.has_failed()
    }

    /// [`is_drained`](Self::is_drained) of a sender that holds packets, or keeps them.
    #[cold]
    fn is_drained_of_held(&self) -> bool {
        let is_kept = self.replay().is_some_and(ReplayQueue::is_empty);
        is_kept && self.is_rma_drained() && self.is_drained_of_moved()
    }

    /// [`is_drained`](Self::is_drained) for a caller that waits for it: has a completion report what was sent without.
    pub fn drain(&mut self) -> bool {
        if self.flush() && !self.has_failover() && self.link.has_unsignaled() {
            // Without room the next call tries again.
            let probe = bare(self.to, PROBE, self.link.sent());
            let _ = self.ep.send(&probe, &self.link);
        }
        self.drain_rma();
        self.is_drained()
    }

    /// Whether a record of `len` bytes can be sent now: none waits for room, and few are outstanding.
    pub fn has_room(&mut self, len: usize) -> bool {
        debug_assert!(len <= MAX_PACKET - RECORD_HEADER);
        let has_room = self.flush() && self.link.outstanding() < self.ep.window;
        has_room && self.replay().is_none_or(ReplayQueue::has_room)
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
        if self.has_failover() {
            self.send_kept((kind, aux, imm), len, fill);
            return true;
        }
        let Some(buffer) = self.ep.take_buffer() else {
            self.ep.block(&self.link);
            return false;
        };
        let seq = self.link.next_seq();
        // SAFETY: the buffer was taken.
        fill(unsafe { self.write_headers(buffer, seq, (kind, aux, imm), len) });
        let total = RECORD_HEADER + len;
        if self.ep.post(buffer, total, &self.link, false).is_err() {
            // SAFETY: the headers and `fill` have written so many bytes, and no operation uses the buffer.
            self.held = HeldPackets::Waiting(unsafe { buffer.packet(total) }.into());
            self.ep.give_back(buffer);
            self.ep.block(&self.link);
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
        if self.has_failover() {
            // SAFETY: `at` has room for the record; the caller's bytes.
            let fill = |at: *mut u8| unsafe { at.copy_from_nonoverlapping(data, len) };
            self.send_kept((kind, 0, imm), len, fill);
            return true;
        }
        let Some(buffer) = self.ep.take_buffer() else {
            return false;
        };
        // SAFETY: the buffer was taken, and has room for the headers and the record; the caller's bytes.
        unsafe {
            let record = self.write_headers(buffer, self.link.sent(), (kind, 0, imm), len);
            record.copy_from_nonoverlapping(data, len);
        }
        let total = RECORD_HEADER + len;
        let is_sent = self.ep.post(buffer, total, &self.link, false).is_ok();
        if is_sent {
            self.link.next_seq();
        } else {
            self.ep.give_back(buffer);
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

    /// Whether packets are held: nothing may be sent before them.
    #[inline(always)]
    pub fn has_held(&self) -> bool {
        !matches!(self.held, HeldPackets::None)
    }

    /// Sends what waits for room. True: nothing waits any more.
    pub fn flush(&mut self) -> bool {
        match &self.held {
            HeldPackets::None => true,
            HeldPackets::Waiting(packet) => {
                if self.ep.send(packet, &self.link).is_err() {
                    self.ep.block(&self.link);
                    return false;
                }
                self.held = HeldPackets::None;
                true
            }
            HeldPackets::Kept(_) => self.post_kept(),
        }
    }
}
