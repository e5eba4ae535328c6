//! Split copy: the receiver reads chunks of a long message from the sender's memory while the sender writes others into
//! the receiver's. This is the receiver's side; [`super::split_write`] is the sender's.
//!
//! Two cores copy nearly twice as fast as one. The receiver opens a chunk state ([`super::chunk_board`]), sends its id
//! to the sender, and starts to copy. A sender that progresses copies too. One that does not, may not write, or is
//! late, leaves all chunks to the receiver.

use super::chunk_board::{ChunkState, ClaimResult};
use std::ptr::NonNull;

/// Length of a chunk in bytes: long enough for a system call, short enough that neither side waits long for the other.
const CHUNK_BYTES: std::ops::RangeInclusive<usize> = 16 << 10..=256 << 10;
/// Number of chunks of a message, within those bounds.
const CHUNKS: usize = 8;
/// Maximum length of a chunk of one of many messages, bytes: each side copies others of them, whole if they are not
/// longer. A chunk costs a system call, and one more boundary whose cache lines both caches need.
const MAX_CHUNK: usize = 1 << 20;

/// A part of the message: offset and bytes.
pub type ByteRange = (usize, usize);

/// How a message is cut into chunks.
#[derive(Clone, Copy, Debug)]
pub struct Chunks {
    len: usize,
    chunk: usize,
}

impl Chunks {
    /// As the receiver of a message of `len` bytes cuts it. `one_of_many`: the sender has other messages that wait.
    pub fn new(len: usize, one_of_many: bool) -> Chunks {
        let chunk = if one_of_many {
            len.next_multiple_of(4096).min(MAX_CHUNK)
        } else {
            (len / CHUNKS)
                .next_multiple_of(4096)
                .clamp(*CHUNK_BYTES.start(), *CHUNK_BYTES.end())
        };
        Chunks { len, chunk }
    }

    /// As the receiver has cut it: into chunks of `chunk` bytes, which is not 0.
    pub(super) fn of(len: usize, chunk: usize) -> Chunks {
        Chunks { len, chunk }
    }

    /// Bytes of a chunk, a multiple of 4096.
    pub fn chunk_bytes(self) -> usize {
        self.chunk
    }

    /// The number of chunks.
    pub(super) fn count(self) -> u32 {
        // More chunks than there are numbers would exceed any address space.
        u32::try_from(self.len.div_ceil(self.chunk)).unwrap_or(u32::MAX)
    }

    /// Offset and bytes of the chunk with this number. `None`: there is no such chunk.
    pub(super) fn range(self, index: u32) -> Option<ByteRange> {
        let offset = (index as usize).checked_mul(self.chunk)?;
        (offset < self.len).then(|| (offset, self.chunk.min(self.len - offset)))
    }
}

/// Names a split copy in messages to the sender.
#[derive(Clone, Copy, Debug)]
pub struct SplitCopyId {
    /// Index of the chunk state on the board of the ring that the message goes through.
    pub number: u8,
    /// Never 0.
    pub generation: u32,
}

/// A split copy at the receiver of a message, from [`Lane::open_split_copy`](crate::tl::Lane::open_split_copy) until
/// [`Lane::close_split_copy`](crate::tl::Lane::close_split_copy).
#[derive(Clone, Copy, Debug)]
pub struct SplitCopy {
    /// In the ring that leads to the sender.
    chunk_state: NonNull<ChunkState>,
    generation: u32,
    /// Chunks that only the receiver copies.
    own: u32,
}

/// Next step of a receiver with a split copy.
pub enum NextChunk {
    /// Copy this chunk.
    Copy(ByteRange),
    /// Wait for the sender's chunks.
    Wait,
    /// Copy this chunk, which the sender could not; then the copy is complete.
    Last(Option<ByteRange>),
}

impl SplitCopy {
    /// For a chunk state that is open with this generation.
    pub(super) fn new(chunk_state: &ChunkState, generation: u32) -> SplitCopy {
        SplitCopy {
            chunk_state: NonNull::from(chunk_state),
            generation,
            own: 0,
        }
    }

    /// The chunk state, which may be unmapped.
    pub(super) fn chunk_state(self) -> NonNull<ChunkState> {
        self.chunk_state
    }

    /// Claims the receiver's next chunk.
    ///
    /// # Safety
    /// The lane that has opened the split copy exists.
    pub unsafe fn next(&mut self, chunks: Chunks) -> NextChunk {
        // SAFETY: the ring is mapped as long as its lane exists.
        let chunk_state = unsafe { self.chunk_state.as_ref() };
        let count = chunks.count();
        // At most as many as there are: the sender's values are not trusted.
        if self.own < count
            && let ClaimResult::Chunk(index) = chunk_state.claim(self.generation, count)
            && let Some(range) = chunks.range(index)
        {
            self.own += 1;
            return NextChunk::Copy(range);
        }
        let (done, failed) = chunk_state.state(count);
        if self.own + done < count {
            return NextChunk::Wait;
        }
        NextChunk::Last(failed.and_then(|index| chunks.range(index)))
    }

    /// Claims all of a message of one chunk. False: the sender has claimed it.
    ///
    /// # Safety
    /// The lane that has opened the split copy exists.
    pub unsafe fn claim_whole(&self) -> bool {
        // SAFETY: the ring is mapped as long as its lane exists.
        let chunk_state = unsafe { self.chunk_state.as_ref() };
        chunk_state.claim(self.generation, 1) == ClaimResult::Chunk(0)
    }

    /// Prevents that further chunks are claimed; [`next`](Self::next) shows when the sender's are complete.
    ///
    /// # Safety
    /// The lane that has opened the split copy exists.
    pub unsafe fn stop(&mut self, chunks: Chunks) {
        let count = chunks.count();
        // SAFETY: the ring is mapped as long as its lane exists.
        let taken = unsafe { self.chunk_state.as_ref() }.close(self.generation, count);
        self.own += count - taken.max(self.own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_a_message_without_overlap() {
        for len in [
            32 << 10,
            (32 << 10) + 1,
            65536,
            100_000,
            1 << 20,
            (1 << 20) + 1,
            5_000_001,
            1 << 30,
        ] {
            let alone = Chunks::new(len, false);
            assert!(CHUNK_BYTES.contains(&alone.chunk_bytes()));
            for chunks in [alone, Chunks::new(len, true)] {
                assert_eq!(chunks.chunk_bytes() % 4096, 0);
                let mut at = 0;
                for index in 0..chunks.count() {
                    let (offset, n) = chunks.range(index).unwrap();
                    assert!(offset == at && n > 0);
                    at += n;
                }
                assert_eq!(at, len);
                assert_eq!(chunks.range(chunks.count()), None);
            }
        }
    }
}
