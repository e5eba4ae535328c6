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

/// A message of which the receiver lets this process copy a part.
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::tl::shm::chunk_board::ChunkBoard;
    use crate::tl::shm::cma_peer::CmaState;
    use crate::tl::shm::ring::tests::ring;
    use crate::tl::shm::split_copy::{NextChunk, SplitCopy};

    const LEN: usize = 100_000;
    const ID: SplitCopyId = SplitCopyId {
        number: 3,
        generation: 7,
    };

    /// A split copy as its receiver opens it, and the sender's view of the receiver.
    fn open(state: &CmaState, same_process: bool) -> (SplitCopy, CmaPeer<'_>) {
        let (mut producer, consumer, _) = ring();
        let peer = CmaPeer {
            uid: 1,
            inbox: None,
            same_process,
            state,
        };
        // SAFETY: the ring is leaked.
        unsafe { peer.attach(&consumer) };
        // SAFETY: the ring is leaked.
        let board: &ChunkBoard = unsafe { producer.board().unwrap().as_ref() };
        let chunk_state = board.chunk_state(ID.number.into()).unwrap();
        chunk_state.open(ID.generation);
        (SplitCopy::new(chunk_state, ID.generation), peer)
    }

    #[test]
    fn the_sender_writes_what_the_receiver_has_not_claimed() {
        let state = CmaState::new(true);
        let (mut split, peer) = open(&state, true);
        let source: Vec<u8> = (0..LEN).map(|i| i as u8).collect();
        let mut target = vec![0u8; LEN];
        let chunks = Chunks::new(LEN, false);
        // SAFETY: the ring is leaked.
        let NextChunk::Copy(own) = (unsafe { split.next(chunks) }) else {
            panic!("the first chunk is free");
        };
        let at = target.as_mut_ptr() as u64;
        assert!(peer.split_write(ID, at, MIN_CHUNK - 1).is_none());
        let late = SplitCopyId {
            generation: ID.generation - 1,
            ..ID
        };
        assert!(!peer.claim_whole(late) && !peer.claim_whole(ID));
        let write = peer.split_write(ID, at, chunks.chunk_bytes()).unwrap();
        // SAFETY: the peer has made the value; the source has `LEN` bytes.
        assert!(!unsafe { write.advance(peer, source.as_ptr(), LEN) });
        // SAFETY: the ring is leaked.
        let end = unsafe { split.next(chunks) };
        assert!(matches!(end, NextChunk::Last(None)));
        let (offset, n) = own;
        assert!(target[offset..offset + n].iter().all(|&byte| byte == 0));
        assert_eq!(target[offset + n..], source[offset + n..]);
    }

    #[test]
    fn the_receiver_copies_what_the_sender_could_not() {
        let state = CmaState::new(true);
        // No process: a copy is not permitted.
        let (mut split, peer) = open(&state, false);
        let chunks = Chunks::new(LEN, false);
        let write = peer.split_write(ID, 4096, chunks.chunk_bytes()).unwrap();
        let source = vec![0u8; LEN];
        // SAFETY: the peer has made the value; the source has `LEN` bytes.
        assert!(!unsafe { write.advance(peer, source.as_ptr(), LEN) });
        let mut copied = 0;
        let last = loop {
            // SAFETY: the ring is leaked.
            match unsafe { split.next(chunks) } {
                NextChunk::Copy((_, n)) => copied += n,
                NextChunk::Wait => panic!("the sender has given up"),
                NextChunk::Last(range) => break range,
            }
        };
        assert_eq!(last, Some((0, chunks.chunk_bytes())));
        assert_eq!(copied + chunks.chunk_bytes(), LEN);
    }
}
