//! Split copy at the sender: it writes chunks of a long message into the receiver's memory while the receiver reads
//! others.

use super::chunk_board::{ChunkState, ClaimResult};
use super::cma_peer::CmaPeer;
use super::split_copy::{Chunks, SplitCopyId};
use crate::sys::cma::{CmaDirection, Spans};
use std::ptr::NonNull;

/// Maximum number of bytes that a sender copies in one progress call.
const STEP: usize = 512 << 10;
/// Shortest chunk that a receiver may set, bytes.
const MIN_CHUNK: usize = 4096;

/// A message whose receiver lets this process copy a part of it.
pub struct SplitWrite {
    /// Address in the receiver's memory.
    target: u64,
    /// Bytes of a chunk, at least [`MIN_CHUNK`].
    chunk: usize,
    /// In the inbox of this worker; valid while the receiver's ring exists.
    chunk_state: NonNull<ChunkState>,
    generation: u32,
}

impl CmaPeer<'_> {
    /// Claims all of a message of one chunk to the peer. False: the receiver has claimed it.
    pub fn claim_whole(self, id: SplitCopyId) -> bool {
        self.chunk_state(id.number)
            .is_some_and(|state| state.claim(id.generation, 1) == ClaimResult::Chunk(0))
    }

    /// The sender's part of a split copy that the peer has opened, into its memory at `target`, by chunks of `chunk`
    /// bytes. `None`: the peer has opened none, or this process may not write.
    pub fn split_write(self, id: SplitCopyId, target: u64, chunk: usize) -> Option<SplitWrite> {
        let chunk_state = NonNull::from(self.chunk_state(id.number)?);
        (self.is_usable() && chunk >= MIN_CHUNK).then_some(SplitWrite {
            target,
            chunk,
            chunk_state,
            generation: id.generation,
        })
    }
}

impl SplitWrite {
    /// Copies some chunks of the message of `len` bytes at `source`. False: there is no more to do.
    ///
    /// # Safety
    /// The peer has made the value, and `source` is readable for `len` bytes.
    pub unsafe fn advance(&self, peer: CmaPeer<'_>, source: *const u8, len: usize) -> bool {
        // SAFETY: the ring is mapped as long as the peer's `CmaState` exists, by the promise of `CmaPeer::attach`.
        let chunk_state = unsafe { self.chunk_state.as_ref() };
        let chunks = Chunks::of(len, self.chunk);
        let (count, mut moved) = (chunks.count(), 0);
        while moved < STEP {
            let ClaimResult::Chunk(index) = chunk_state.claim(self.generation, count) else {
                return false;
            };
            let Some((offset, n)) = chunks.range(index) else {
                return false;
            };
            let mut there = Spans::one(self.target.wrapping_add(offset as u64), n);
            let mut here = Spans::one(source as u64 + offset as u64, n);
            // SAFETY: the range is inside the memory at `source`.
            let copied = unsafe { peer.transfer(CmaDirection::Write, &mut here, &mut there) };
            if copied != Ok(()) {
                chunk_state.give_up(index);
                return false;
            }
            chunk_state.copied();
            moved += n;
        }
        true
    }
}
