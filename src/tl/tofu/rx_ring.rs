//! A ring in memory of this worker, which one peer writes.

use super::ring_layout::{RingLayout, RingReader};
use super::ring_pool::RingMemory;
use super::vcq_ops::read_before_post;
use crate::sys::sync::{Ordering, dma_mem};
use crate::tl::reassembly::split;
use crate::wire::packet_hdr::{HEAD, MORE, PacketHdr};

/// The peer has written bytes that are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorruptFrame;

/// Used by the progress thread only.
pub struct RxRing {
    piece: RingMemory,
    reader: RingReader,
    /// Frames that have arrived, modulo 2^32, by notices or by their count.
    arrived: u32,
}

impl RxRing {
    /// A ring without frames in this memory, which is zeroed and has at least `shape.size` bytes. It is freed with the
    /// ring.
    pub fn new(piece: RingMemory, shape: RingLayout) -> RxRing {
        debug_assert!(shape.size as usize <= piece.len());
        RxRing {
            piece,
            reader: RingReader::new(shape),
            arrived: 0,
        }
    }

    /// Steering address of the ring's memory, which the peer puts frames to.
    pub fn stadd(&self) -> u64 {
        self.piece.stadd()
    }

    /// The layout that the peer writes by.
    pub fn shape(&self) -> RingLayout {
        self.reader.shape()
    }

    /// Counts a frame whose notice has arrived.
    #[inline]
    pub fn note(&mut self) {
        self.arrived = self.arrived.wrapping_add(1);
    }

    /// Reads the count of frames, where they come without notices.
    pub fn scan(&mut self) {
        let at = self.shape().count_at() as usize;
        // SAFETY: within the ring's memory, aligned, and all threads of this process access it as an atomic.
        let count = unsafe { dma_mem::word_at(self.piece.ptr().add(at)) };
        // Acquire: pairs with the TNI's write of the count, which comes after those of the frames.
        self.arrived = count.load(Ordering::Acquire) as u32;
    }

    /// The next frame, which stays valid until [`advance`](Self::advance).
    ///
    /// # Errors
    /// The bytes are no frame.
    #[inline]
    pub fn peek(&self) -> Result<Option<(PacketHdr, &[u8])>, CorruptFrame> {
        let ahead = self.arrived.wrapping_sub(self.reader.frames());
        if ahead == 0 {
            return Ok(None);
        }
        let (at, packet) = (self.reader.at(), self.shape().packet as usize);
        // SAFETY: the reader's offset plus a frame's maximum length is within the ring's memory. The peer wrote the
        // frame before its notice; if it writes again, only its own messages change: bytes are checked, and copied
        // where they are used twice.
        let bytes = unsafe { std::slice::from_raw_parts(self.piece.ptr().add(at), packet) };
        let (head, rest) = split(bytes).ok_or(CorruptFrame)?;
        let is_next = head.credit == self.reader.frames() as u16;
        let len = frame_len(head, packet);
        dma_mem::reads(bytes.as_ptr(), len);
        let bytes = rest
            .get(..len - HEAD)
            .filter(|_| is_next && ahead <= self.shape().window);
        Ok(Some((head, bytes.ok_or(CorruptFrame)?)))
    }

    /// The next frame, of `len` bytes with its header, has been read.
    #[inline]
    pub fn advance(&mut self, len: usize) {
        self.reader.advance(len);
    }

    /// Whether a credit is due once there is nothing else to do.
    #[inline(always)]
    pub fn is_due(&self) -> bool {
        self.reader.is_due()
    }

    /// Whether a credit is due at once.
    pub fn is_overdue(&self) -> bool {
        self.reader.is_overdue()
    }

    /// The credit word to post: the writer may then overwrite what was read.
    pub fn send_credit(&mut self) -> u64 {
        let word = self.reader.note_credit();
        read_before_post();
        word
    }
}

/// Bytes of a frame: a longer record continues in the next ones.
fn frame_len(head: PacketHdr, packet: usize) -> usize {
    match head.kind {
        // A continuation is never longer than the rest of a frame.
        MORE => HEAD.saturating_add(head.len),
        _ => HEAD + head.len.min(packet - HEAD),
    }
}
