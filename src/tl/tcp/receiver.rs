//! The receiving half of a connection: reads bytes and returns messages.
//!
//! Long records of a kind that can be handled in pieces are returned as they arrive, so that their payload can be read
//! from the socket directly into its place.

use super::SharedSocket;
use super::stream::{self, ReadError};
use crate::ctypes::ucs_status_t::UCS_OK;
use crate::tl::Message;
use crate::tl::payload::{PartialRecord, PayloadMem};
use crate::wire::frame::{self, HEADER};
use std::sync::Arc;

/// Minimum bytes of the buffer: it holds a whole record, a piece, or the bytes read beyond a payload.
const LEAST: usize = 20 << 10;
const _: () = assert!(LEAST >= HEADER + WHOLE && LEAST >= PIECE && LEAST >= BEYOND);
/// Records longer than this are handled in pieces if their kind allows it.
const WHOLE: usize = (16 << 10) + 64;
/// Bytes read beyond the end of a payload that goes to its place: the header of the next record.
const BEYOND: usize = 1 << 10;
/// Length of pieces that go through the buffer because their place is not contiguous.
pub const PIECE: usize = 16 << 10;

/// The stream of the peer is no sequence of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorruptStream;

/// Result of a read to the place of a payload.
#[derive(Clone, Copy, Debug)]
pub struct DirectRead {
    /// Bytes that went to the place.
    pub bytes: usize,
    /// There may be more to read.
    pub more: bool,
}

/// What the buffer holds.
pub enum Buffered {
    /// A whole message, in the buffer until [`TcpReceiver::consume`].
    Message(Message),
    /// A long record has arrived in part: see [`TcpReceiver::bulk`].
    PartialRecord,
    /// More has to be read first.
    Starved,
}

/// The receiving half of a connection, used by the progress thread.
pub struct TcpReceiver {
    link: Arc<SharedSocket>,
    /// Empty before the first read; longer than the initial `size` after a record that needs it.
    buffer: Vec<u8>,
    /// Bytes of the buffer: the most that one read takes.
    size: usize,
    start: usize,
    end: usize,
    /// Length of the message that `show` returned.
    shown: usize,
    bulk: Option<PartialRecord>,
    /// The last read took less than it could: the socket was empty then.
    emptied: bool,
}

impl TcpReceiver {
    /// `size`: bytes that one read takes, at least `LEAST`.
    pub fn new(link: Arc<SharedSocket>, size: usize) -> Self {
        Self {
            link,
            buffer: Vec::new(),
            size: size.max(LEAST),
            start: 0,
            end: 0,
            shown: 0,
            bulk: None,
            emptied: true,
        }
    }

    /// Whether nothing is buffered and the last read emptied the socket: the epoll set reports further arrivals.
    pub fn is_drained(&self) -> bool {
        self.emptied && self.start == self.end && self.bulk.is_none()
    }

    /// The socket and its epoll set, which the sending half owns, too.
    pub fn link(&self) -> &Arc<SharedSocket> {
        &self.link
    }

    /// The long record that has arrived in part.
    pub fn bulk(&self) -> Option<&PartialRecord> {
        self.bulk.as_ref()
    }

    /// The long record that has arrived in part, and `n` bytes of its payload, which are in the buffer.
    pub fn piece(&mut self, n: usize) -> Option<(&mut PartialRecord, &[u8])> {
        let bytes = &self.buffer[self.start..self.end];
        Some((self.bulk.as_mut()?, &bytes[..n]))
    }

    /// The bytes that were read and not consumed.
    pub fn buffered(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The next message or part of a long record in the buffer.
    ///
    /// # Errors
    /// [`CorruptStream`].
    pub fn show(&mut self) -> Result<Buffered, CorruptStream> {
        if self.bulk.is_some() {
            return Ok(Buffered::PartialRecord);
        }
        let Some((header, record)) = self.buffered().split_first_chunk::<HEADER>() else {
            return Ok(Buffered::Starved);
        };
        let frame = frame::decode(header).ok_or(CorruptStream)?;
        if frame.len > WHOLE && frame::in_pieces(frame.kind) {
            let size = frame.kind.header_size();
            let Some(bytes) = record.get(..size) else {
                return Ok(Buffered::Starved);
            };
            let mut head = [0; 8];
            head[..size].copy_from_slice(bytes);
            self.bulk = Some(PartialRecord {
                frame,
                head,
                done: 0,
                status: UCS_OK,
            });
            self.take(HEADER + size);
            return Ok(Buffered::PartialRecord);
        }
        if record.len() < frame.len {
            // `decode` has checked the length.
            self.size = self.size.max(HEADER + frame.len);
            return Ok(Buffered::Starved);
        }
        let record = record.as_ptr();
        self.shown = HEADER + frame.len;
        Ok(Buffered::Message(Message {
            kind: frame.kind as u8,
            aux: frame.aux,
            imm: frame.imm,
            len: frame.len,
            record,
        }))
    }

    /// Removes the message that `show` returned from the buffer.
    pub fn consume(&mut self) {
        let shown = std::mem::take(&mut self.shown);
        self.take(shown);
    }

    /// Removes the first `n` bytes from the buffer.
    pub fn take(&mut self, n: usize) {
        self.start += n;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Records that `n` bytes of the long record's payload were handled. Returns the record when it is complete.
    pub fn payload_done(&mut self, n: usize) -> Option<PartialRecord> {
        let bulk = self.bulk.as_mut()?;
        bulk.done += n;
        if bulk.left() == 0 {
            self.bulk.take()
        } else {
            None
        }
    }

    /// Reads what has arrived, at most `limit` bytes, into the buffer. Returns whether there may be more.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read(&mut self, limit: usize) -> Result<bool, ReadError> {
        self.compact();
        let room = (self.buffer.len() - self.end).min(limit);
        let target = libc::iovec {
            iov_base: self.buffer[self.end..].as_mut_ptr().cast(),
            iov_len: room,
        };
        // SAFETY: `target` is the unused part of the buffer, writable for `room` bytes.
        let n = unsafe { stream::read(self.link.fd(), &mut [target]) }?;
        self.end += n;
        self.emptied = n < room;
        Ok(!self.emptied)
    }

    /// Reads payload to its place, and up to [`BEYOND`] bytes behind it into the buffer, which the caller has emptied.
    /// Returns what went to the place.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read_to<H>(&mut self, memory: &mut PayloadMem<H>) -> Result<DirectRead, ReadError> {
        let (target, len) = memory.bytes();
        debug_assert!(self.start == self.end);
        self.compact();
        let mut parts = [
            libc::iovec {
                iov_base: target.cast(),
                iov_len: len,
            },
            libc::iovec {
                iov_base: self.buffer.as_mut_ptr().cast(),
                iov_len: BEYOND,
            },
        ];
        // SAFETY: `target` is writable for `len` bytes as long as `memory` exists; the buffer has at least `BEYOND`
        // bytes.
        let n = unsafe { stream::read(self.link.fd(), &mut parts) }?;
        self.end = n.saturating_sub(len);
        self.emptied = n < len + BEYOND;
        Ok(DirectRead {
            bytes: n.min(len),
            more: !self.emptied,
        })
    }

    /// Moves the remaining bytes to the front of the buffer, and extends the buffer to `size`.
    fn compact(&mut self) {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.buffer.is_empty() {
            // Zeroed pages of the kernel, which the allocation does not write.
            self.buffer = vec![0; self.size];
        } else if self.buffer.len() < self.size {
            self.buffer.resize(self.size, 0);
        }
    }
}
