//! Short records of the hot path: the provider copies them in the call that sends them (`fi_inject`), and records of a
//! connection that arrive in their turn.

use super::iface::OfiIface;
use super::packet::{MAX_SHORT_PACKET, PacketHdr, RECORD, RECORD_HEADER};
use super::sender::OfiSender;
use crate::sys::copy;
use crate::tl::Message;
use crate::tl::sink::Sink;
use crate::wire::frame;
use crate::wire::header::Kind;
use std::mem::MaybeUninit;

impl OfiSender {
    /// Sends a record of `len` bytes that are copied from `data`, without a buffer and without a completion. False: it
    /// goes another way, and nothing was done.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes.
    #[inline(always)]
    pub unsafe fn inject(
        &mut self,
        kind: u8,
        imm: impl FnOnce() -> u64,
        data: *const u8,
        len: usize,
    ) -> bool {
        if RECORD_HEADER + len > self.max_inject || self.has_held() {
            return false;
        }
        let header = self.to.header(RECORD, self.link.sent());
        let head = frame::encode(kind, 0, imm(), len);
        let mut packet = MaybeUninit::<[u8; MAX_SHORT_PACKET]>::uninit();
        let at: *mut u8 = packet.as_mut_ptr().cast();
        // SAFETY: the packet has room for the headers and `len` bytes, which are readable at `data`.
        unsafe {
            at.copy_from_nonoverlapping(header.as_ptr(), header.len());
            let frame = at.add(PacketHdr::SIZE);
            frame.copy_from_nonoverlapping(head.as_ptr(), head.len());
            copy::short(at.add(RECORD_HEADER), data, len);
            (self.ep).inject(at, RECORD_HEADER + len, &self.link)
        }
    }
}

/// The frame and the record of an eager message of one of the two frequent kinds. `None`: there is another record.
#[inline(always)]
fn eager_in_frame(head: &[u8; frame::HEADER], record: &[u8]) -> Option<Message> {
    const TAG: u64 = Kind::TagEager as u64;
    const AM: u64 = Kind::AmEager as u64;
    const { assert!(Kind::TagEager.header_size() == 0 && Kind::AmEager.header_size() == 0) };
    let (word, imm) = head.split_first_chunk::<8>()?;
    let word = u64::from_le_bytes(*word);
    // Without `aux`, and of the length that it has.
    let kind = word >> 32;
    let is_eager = (kind == TAG || kind == AM) && word as u32 as usize == record.len();
    is_eager.then(|| Message {
        kind: kind as u8,
        aux: 0,
        imm: imm.first_chunk().map_or(0, |imm| u64::from_le_bytes(*imm)),
        len: record.len(),
        record: record.as_ptr(),
    })
}

/// The header of a packet with a record, its frame, and the record. `None`: it is another packet, or too short.
#[inline(always)]
fn split_record(packet: &[u8]) -> Option<(PacketHdr, &[u8; frame::HEADER], &[u8])> {
    let (headers, record) = packet.split_first_chunk::<RECORD_HEADER>()?;
    let (header, head) = headers.split_first_chunk::<{ PacketHdr::SIZE }>()?;
    // Before the header is decoded, which checks no more of its kind then. The kind is its last field.
    let kind = header.last_chunk().map(|kind| u32::from_le_bytes(*kind));
    if kind != Some(RECORD) {
        return None;
    }
    Some((PacketHdr::decode(header)?, head.first_chunk()?, record))
}

/// Handles an eager message that arrives in its turn. False: the packet is another one, and nothing was done.
#[inline(always)]
pub fn record_in_turn<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S, packet: &[u8]) -> bool {
    let Some((hdr, head, record)) = split_record(packet) else {
        return false;
    };
    let Some(conn) = iface.granted(hdr.grant()) else {
        return false;
    };
    let Some(peer) = conn.peer.filter(|&peer| !sink.has_failed(peer)) else {
        return false;
    };
    let Some(m) = eager_in_frame(head, record) else {
        return false;
    };
    if !conn.order.take_next(hdr.seq) {
        return false;
    }
    // A failure was reported by the layer above.
    // SAFETY: the record is in the packet, which is readable during the call.
    unsafe {
        if !sink.deliver_short(peer, m) {
            sink.deliver(peer, &m);
        }
    }
    true
}
