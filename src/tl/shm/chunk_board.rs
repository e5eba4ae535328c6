//! Which side copies which chunk of a long message: both claim chunks until none is left.
//!
//! A chunk state is the state of one such message. The receiver opens a chunk state in the memory of the ring through
//! which it sends to the message's sender, and sends the chunk state's number and generation. Then both sides take the
//! number of the next chunk by compare-and-swap, copy that chunk, and take another one. A sender that does not progress
//! takes none: the receiver then copies everything. The receiver closes the chunk state when all chunks are taken and
//! the sender has counted its own as done; the generation makes a late claim fail.
//!
//! Neither side trusts the words here. A sender that writes wrong values corrupts its own message only; a receiver that
//! does so makes the sender copy, inside of the message, to where the sender could have copied anyway.

use crate::sys::sync::{AtomicU64, Ordering};
use std::ptr::{self, NonNull};

/// Messages of one direction that both sides copy at a time; the receiver copies further ones alone.
pub const MAX_SPLIT_COPIES: usize = if cfg!(loom) { 1 } else { 32 };

/// `failed` if no copy has failed.
const NONE: u64 = 0;

/// A chunk state: the state of one message.
#[repr(C, align(64))]
pub struct ChunkState {
    /// generation (32 bits) | next chunk (32 bits). Both sides write it.
    next: AtomicU64,
    /// Chunks that the sender has copied, or failed to copy. Written by the sender, reset by the receiver.
    done: AtomicU64,
    /// 1 + the chunk that the sender could not copy, after which it claims none. Written by the sender, reset by the
    /// receiver.
    failed: AtomicU64,
}

/// The chunk states of one direction. All zero: none is open.
#[repr(C)]
pub struct ChunkBoard {
    chunk_states: [ChunkState; MAX_SPLIT_COPIES],
}

/// Result of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimResult {
    /// The caller has claimed this chunk.
    Chunk(u32),
    /// All chunks are taken, or the chunk state is used for another message.
    None,
}

impl ChunkState {
    /// Starts a new generation with no chunk taken. Called by the receiver; the chunk state is not open.
    pub fn open(&self, generation: u32) {
        self.done.store(0, Ordering::Relaxed);
        self.failed.store(NONE, Ordering::Relaxed);
        // Release: pairs with the Acquire loads in `claim`; the resets come before the sender's counting.
        self.next
            .store(u64::from(generation) << 32, Ordering::Release);
    }

    /// Claims the next one of `chunks` chunks.
    pub fn claim(&self, generation: u32, chunks: u32) -> ClaimResult {
        // Each failure means that the other side has taken a chunk. More failures than chunks mean a hostile peer.
        for _ in 0..=chunks {
            // Acquire: pairs with the Release store in `open`.
            let word = self.next.load(Ordering::Acquire);
            let chunk = word as u32;
            if (word >> 32) as u32 != generation || chunk >= chunks {
                return ClaimResult::None;
            }
            let taken =
                self.next
                    .compare_exchange(word, word + 1, Ordering::Acquire, Ordering::Relaxed);
            if taken.is_ok() {
                return ClaimResult::Chunk(chunk);
            }
        }
        ClaimResult::None
    }

    /// Takes all remaining chunks, so that the sender starts no other; returns how many were taken before. Called by a
    /// receiver that ends the copy early.
    pub fn close(&self, generation: u32, chunks: u32) -> u32 {
        // Relaxed: the count orders no other memory.
        let closed = u64::from(generation) << 32 | u64::from(chunks);
        (self.next.swap(closed, Ordering::Relaxed) as u32).min(chunks)
    }

    /// Counts a chunk that the sender has copied.
    pub fn copied(&self) {
        // Release: pairs with the Acquire load in `state`; the copy comes before. Only the sender writes it, so no
        // read-modify-write is needed.
        let done = self.done.load(Ordering::Relaxed);
        self.done.store(done + 1, Ordering::Release);
    }

    /// Records that the sender could not copy a chunk; it claims no other.
    pub fn give_up(&self, chunk: u32) {
        self.failed.store(u64::from(chunk) + 1, Ordering::Relaxed);
        self.copied();
    }

    /// Number of chunks that the sender has finished, and the one that it could not copy. Called by the receiver.
    pub fn state(&self, chunks: u32) -> (u32, Option<u32>) {
        // Acquire: pairs with the Release store in `copied`.
        let done = self.done.load(Ordering::Acquire);
        let failed = match self.failed.load(Ordering::Relaxed) {
            NONE => None,
            n => Some((n - 1) as u32).filter(|&chunk| chunk < chunks),
        };
        (done.min(chunks.into()) as u32, failed)
    }
}

impl ChunkBoard {
    /// The chunk state with this number, which a peer sends; `None` if there is no such chunk state.
    pub fn chunk_state(&self, number: usize) -> Option<&ChunkState> {
        self.chunk_states.get(number)
    }

    /// The number of a chunk state of this board.
    pub fn number(&self, chunk_state: NonNull<ChunkState>) -> Option<usize> {
        self.chunk_states
            .iter()
            .position(|s| ptr::eq(s, chunk_state.as_ptr()))
    }

    #[cfg(loom)]
    pub fn empty() -> ChunkBoard {
        let chunk_state = |_| ChunkState {
            next: AtomicU64::new(0),
            done: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        };
        ChunkBoard {
            chunk_states: std::array::from_fn(chunk_state),
        }
    }
}

/// The receiver's record of the open chunk states of a board.
#[derive(Default)]
pub struct OpenBoards {
    open: u32,
    generation: u32,
}

const _: () = assert!(MAX_SPLIT_COPIES <= 32);

impl OpenBoards {
    /// Returns a chunk state that is not open, and the generation to open it with.
    pub fn take(&mut self) -> Option<(usize, u32)> {
        let number = self.open.trailing_ones() as usize;
        if number >= MAX_SPLIT_COPIES {
            return None;
        }
        self.open |= 1 << number;
        // Never 0, the generation of untouched memory.
        self.generation = self.generation.wrapping_add(1).max(1);
        Some((number, self.generation))
    }

    /// Whether any chunk state is open.
    pub fn any_open(&self) -> bool {
        self.open != 0
    }

    /// Frees a chunk state: its message is complete, and the sender has finished the chunks that it had claimed.
    pub fn put(&mut self, number: usize) {
        self.open &= !(1 << number);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    const CHUNKS: u32 = 3;

    struct Scene {
        board: ChunkBoard,
        /// The receiver's buffer: loom detects two threads that access a chunk at the same time.
        buffer: [UnsafeCell<u32>; CHUNKS as usize],
    }

    // SAFETY: only the thread that has claimed a chunk accesses its cell; loom checks that.
    unsafe impl Sync for Scene {}
    // SAFETY: only the thread that has claimed a chunk accesses its cell; loom checks that.
    unsafe impl Send for Scene {}

    fn scene() -> Arc<Scene> {
        Arc::new(Scene {
            board: ChunkBoard::empty(),
            buffer: std::array::from_fn(|_| UnsafeCell::new(0)),
        })
    }

    fn copy(scene: &Scene, chunk: u32) {
        // SAFETY: the caller has claimed the chunk.
        scene.buffer[chunk as usize].with_mut(|b| unsafe { *b += chunk + 1 });
    }

    fn explore(sender: fn(&Scene), receiver: fn(&Scene)) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let scene = scene();
            scene.board.chunk_state(0).unwrap().open(1);
            let sending = {
                let scene = scene.clone();
                thread::spawn(move || sender(&scene))
            };
            receiver(&scene);
            sending.join().unwrap();
        });
    }

    /// The sender, as in `super::split_write`.
    fn send(scene: &Scene) {
        let chunk_state = scene.board.chunk_state(0).unwrap();
        while let ClaimResult::Chunk(chunk) = chunk_state.claim(1, CHUNKS) {
            copy(scene, chunk);
            chunk_state.copied();
        }
    }

    #[test]
    fn loom_every_piece_is_copied_once() {
        explore(send, |scene| {
            let chunk_state = scene.board.chunk_state(0).unwrap();
            let mut own = 0;
            while let ClaimResult::Chunk(chunk) = chunk_state.claim(1, CHUNKS) {
                copy(scene, chunk);
                own += 1;
            }
            while own + chunk_state.state(CHUNKS).0 < CHUNKS {
                thread::yield_now();
            }
            for (chunk, cell) in scene.buffer.iter().enumerate() {
                // SAFETY: both sides have finished.
                cell.with(|b| assert_eq!(unsafe { *b }, chunk as u32 + 1));
            }
        });
    }

    /// The receiver copies a chunk that the sender cannot copy.
    #[test]
    fn loom_the_receiver_copies_chunks_that_the_sender_cannot() {
        explore(
            |scene| {
                let chunk_state = scene.board.chunk_state(0).unwrap();
                if let ClaimResult::Chunk(chunk) = chunk_state.claim(1, CHUNKS) {
                    chunk_state.give_up(chunk);
                }
            },
            |scene| {
                let chunk_state = scene.board.chunk_state(0).unwrap();
                let mut own = 0;
                while let ClaimResult::Chunk(chunk) = chunk_state.claim(1, CHUNKS) {
                    copy(scene, chunk);
                    own += 1;
                }
                while own + chunk_state.state(CHUNKS).0 < CHUNKS {
                    thread::yield_now();
                }
                if let Some(chunk) = chunk_state.state(CHUNKS).1 {
                    copy(scene, chunk);
                }
                for (chunk, cell) in scene.buffer.iter().enumerate() {
                    // SAFETY: both sides have finished.
                    cell.with(|b| assert_eq!(unsafe { *b }, chunk as u32 + 1));
                }
            },
        );
    }

    /// After the receiver has closed a chunk state and the claimed chunks are done, no other thread accesses its
    /// buffer.
    #[test]
    fn loom_a_closed_share_is_left_alone() {
        explore(send, |scene| {
            let chunk_state = scene.board.chunk_state(0).unwrap();
            let taken = chunk_state.close(1, CHUNKS);
            while chunk_state.state(CHUNKS).0 < taken {
                thread::yield_now();
            }
            // SAFETY: the chunk state is closed, and the sender has finished its chunks.
            (0..CHUNKS).for_each(|p| scene.buffer[p as usize].with_mut(|b| unsafe { *b = 0 }));
        });
    }

    /// A late sender finds the chunk state open for another message, and claims no chunk.
    #[test]
    fn loom_a_late_claim_misses() {
        explore(send, |scene| {
            let chunk_state = scene.board.chunk_state(0).unwrap();
            let mut own = 0;
            while let ClaimResult::Chunk(chunk) = chunk_state.claim(1, CHUNKS) {
                copy(scene, chunk);
                own += 1;
            }
            while own + chunk_state.state(CHUNKS).0 < CHUNKS {
                thread::yield_now();
            }
            chunk_state.open(2);
            // SAFETY: the first message is complete.
            (0..CHUNKS).for_each(|p| scene.buffer[p as usize].with_mut(|b| unsafe { *b = 0 }));
            assert_eq!(chunk_state.claim(2, CHUNKS), ClaimResult::Chunk(0));
            assert_eq!(chunk_state.state(CHUNKS), (0, None));
        });
    }
}
