//! A ring in our memory that one peer writes to.

use super::ring_layout::{RingLayout, RingReader};
use super::ring_pool::RingMemory;
use super::vcq_ops::read_before_post;
use crate::sys::sync::{Ordering, dma_mem};
use crate::tl::ib::reassembly::split;
use crate::wire::ib_packet::{HEAD, MORE, PacketHdr};

/// What a peer wrote is no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorruptFrame;

/// The progressing thread's.
pub struct RxRing {
    piece: RingMemory,
    reader: RingReader,
    /// Frames that notices have told of, modulo 2^32.
    arrived: u32,
}

impl RxRing {
    pub fn new(piece: RingMemory, shape: RingLayout) -> RxRing {
        debug_assert!(shape.size as usize <= piece.len());
        RxRing {
            piece,
            reader: RingReader::new(shape),
            arrived: 0,
        }
    }

    pub fn stadd(&self) -> u64 {
        self.piece.stadd()
    }

    pub fn shape(&self) -> RingLayout {
        self.reader.shape()
    }

    /// A notice has told of one more frame.
    #[inline]
    pub fn note(&mut self) {
        self.arrived = self.arrived.wrapping_add(1);
    }

    /// Looks at the count behind the frames, where no notices come.
    pub fn scan(&mut self) {
        let at = self.shape().count_at() as usize;
        // SAFETY: inside of the piece, aligned, and everybody here takes it for an atomic.
        let count = unsafe { dma_mem::word_at(self.piece.ptr().add(at)) };
        // Acquire: pairs with the adapter's write of the count, which comes after those of the frames.
        self.arrived = count.load(Ordering::Acquire) as u32;
    }

    /// The next frame, which stays in its place until [`advance`](Self::advance).
    ///
    /// # Errors
    /// It makes no sense.
    #[inline]
    pub fn peek(&self) -> Result<Option<(PacketHdr, &[u8])>, CorruptFrame> {
        let ahead = self.arrived.wrapping_sub(self.reader.frames());
        if ahead == 0 {
            return Ok(None);
        }
        let (at, packet) = (self.reader.at(), self.shape().packet as usize);
        // SAFETY: a reader stays inside of the piece, packet and all. The peer wrote it before the notice, and may
        // again, to its own harm: what is read is checked, and copied where it is used twice.
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

    /// A frame of so many bytes, its head among them, has been read.
    #[inline]
    pub fn advance(&mut self, len: usize) {
        self.reader.advance(len);
    }

    /// Whether the writer is to be told how far we are when there is nothing else to do.
    #[inline(always)]
    pub fn is_due(&self) -> bool {
        self.reader.is_due()
    }

    /// The same at once.
    pub fn is_overdue(&self) -> bool {
        self.reader.is_overdue()
    }

    /// What the writer is told by a post: it may write over what was read then.
    pub fn send_credit(&mut self) -> u64 {
        let word = self.reader.note_credit();
        read_before_post();
        word
    }
}

/// Bytes of a frame: a record that is longer goes on in the next.
fn frame_len(head: PacketHdr, packet: usize) -> usize {
    match head.kind {
        // Longer than that it cannot be.
        MORE => HEAD.saturating_add(head.len),
        _ => HEAD + head.len.min(packet - HEAD),
    }
}
