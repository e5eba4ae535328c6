//! Which side copies which chunk of a long message: both claim chunks until none is left.
//!
//! A share is the state of one such message. The receiver opens a share in the memory of the ring through which it
//! sends to the message's sender, and sends the share's number and generation. Then both sides take the number of the
//! next chunk by compare-and-swap, copy that chunk, and take another one. A sender that does not progress takes none:
//! the receiver then copies everything. The receiver closes the share when all chunks are taken and the sender has
//! counted its own as done; the generation makes a late claim fail.
//!
//! Neither side trusts the words here. A sender that writes wrong values corrupts its own message only; a receiver that
//! does so makes the sender copy, inside of the message, to where the sender could have copied anyway.

use crate::sys::sync::{AtomicU64, Ordering};
use std::ptr::{self, NonNull};

/// Messages of one direction that both sides copy at a time; the receiver copies further ones alone.
pub const SHARES: usize = if cfg!(loom) { 1 } else { 32 };

/// `failed` if no copy has failed.
const NONE: u64 = 0;

/// A share: the state of one message.
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

/// The shares of one direction. All zero: none is open.
#[repr(C)]
pub struct ChunkBoard {
    shares: [ChunkState; SHARES],
}

/// Result of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimResult {
    /// The caller has claimed this chunk.
    Piece(u32),
    /// All chunks are taken, or the share is used for another message.
    None,
}

impl ChunkState {
    /// Starts a new generation with no chunk taken. Called by the receiver; the share is not open.
    pub fn open(&self, generation: u32) {
        self.done.store(0, Ordering::Relaxed);
        self.failed.store(NONE, Ordering::Relaxed);
        // Release: pairs with the Acquire loads in `claim`; the resets come before the sender's counting.
        self.next
            .store(u64::from(generation) << 32, Ordering::Release);
    }

    /// Claims the next one of `pieces` chunks.
    pub fn claim(&self, generation: u32, pieces: u32) -> ClaimResult {
        // Each failure means that the other side has taken a chunk. More failures than chunks mean a hostile peer.
        for _ in 0..=pieces {
            // Acquire: pairs with the Release store in `open`.
            let word = self.next.load(Ordering::Acquire);
            let piece = word as u32;
            if (word >> 32) as u32 != generation || piece >= pieces {
                return ClaimResult::None;
            }
            let taken =
                self.next
                    .compare_exchange(word, word + 1, Ordering::Acquire, Ordering::Relaxed);
            if taken.is_ok() {
                return ClaimResult::Piece(piece);
            }
        }
        ClaimResult::None
    }

    /// Takes all remaining chunks, so that the sender starts no other; returns how many were taken before. Called by a
    /// receiver that ends the copy early.
    pub fn close(&self, generation: u32, pieces: u32) -> u32 {
        // Relaxed: the count orders no other memory.
        let closed = u64::from(generation) << 32 | u64::from(pieces);
        (self.next.swap(closed, Ordering::Relaxed) as u32).min(pieces)
    }

    /// Counts a chunk that the sender has copied.
    pub fn copied(&self) {
        // Release: pairs with the Acquire load in `state`; the copy comes before. Only the sender writes it, so no
        // read-modify-write is needed.
        let done = self.done.load(Ordering::Relaxed);
        self.done.store(done + 1, Ordering::Release);
    }

    /// Records that the sender could not copy a chunk; it claims no other.
    pub fn give_up(&self, piece: u32) {
        self.failed.store(u64::from(piece) + 1, Ordering::Relaxed);
        self.copied();
    }

    /// Number of chunks that the sender has finished, and the one that it could not copy. Called by the receiver.
    pub fn state(&self, pieces: u32) -> (u32, Option<u32>) {
        // Acquire: pairs with the Release store in `copied`.
        let done = self.done.load(Ordering::Acquire);
        let failed = match self.failed.load(Ordering::Relaxed) {
            NONE => None,
            n => Some((n - 1) as u32).filter(|&piece| piece < pieces),
        };
        (done.min(pieces.into()) as u32, failed)
    }
}

impl ChunkBoard {
    /// The share with this number, which a peer sends; `None` if there is no such share.
    pub fn share(&self, number: usize) -> Option<&ChunkState> {
        self.shares.get(number)
    }

    /// The number of a share of this board.
    pub fn number(&self, share: NonNull<ChunkState>) -> Option<usize> {
        self.shares.iter().position(|s| ptr::eq(s, share.as_ptr()))
    }

    #[cfg(loom)]
    pub fn empty() -> ChunkBoard {
        let share = |_| ChunkState {
            next: AtomicU64::new(0),
            done: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        };
        ChunkBoard {
            shares: std::array::from_fn(share),
        }
    }
}

/// The receiver's record of the open shares of a board.
#[derive(Default)]
pub struct OpenBoards {
    open: u32,
    generation: u32,
}

const _: () = assert!(SHARES <= 32);

impl OpenBoards {
    /// Returns a share that is not open, and the generation to open it with.
    pub fn take(&mut self) -> Option<(usize, u32)> {
        let number = self.open.trailing_ones() as usize;
        if number >= SHARES {
            return None;
        }
        self.open |= 1 << number;
        // Never 0, the generation of untouched memory.
        self.generation = self.generation.wrapping_add(1).max(1);
        Some((number, self.generation))
    }

    /// Whether any share is open.
    pub fn any_open(&self) -> bool {
        self.open != 0
    }

    /// Frees a share: its message is complete, and the sender has finished the chunks that it had claimed.
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

    const PIECES: u32 = 3;

    struct Scene {
        board: ChunkBoard,
        /// The receiver's buffer: loom detects two threads that access a chunk at the same time.
        buffer: [UnsafeCell<u32>; PIECES as usize],
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

    fn copy(scene: &Scene, piece: u32) {
        // SAFETY: the caller has claimed the chunk.
        scene.buffer[piece as usize].with_mut(|b| unsafe { *b += piece + 1 });
    }

    fn explore(sender: fn(&Scene), receiver: fn(&Scene)) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let scene = scene();
            scene.board.share(0).unwrap().open(1);
            let sending = {
                let scene = scene.clone();
                thread::spawn(move || sender(&scene))
            };
            receiver(&scene);
            sending.join().unwrap();
        });
    }

    /// The sender, as in `proto::split_copy`.
    fn send(scene: &Scene) {
        let share = scene.board.share(0).unwrap();
        while let ClaimResult::Piece(piece) = share.claim(1, PIECES) {
            copy(scene, piece);
            share.copied();
        }
    }

    #[test]
    fn loom_every_piece_is_copied_once() {
        explore(send, |scene| {
            let share = scene.board.share(0).unwrap();
            let mut own = 0;
            while let ClaimResult::Piece(piece) = share.claim(1, PIECES) {
                copy(scene, piece);
                own += 1;
            }
            while own + share.state(PIECES).0 < PIECES {
                thread::yield_now();
            }
            for (piece, cell) in scene.buffer.iter().enumerate() {
                // SAFETY: both sides have finished.
                cell.with(|b| assert_eq!(unsafe { *b }, piece as u32 + 1));
            }
        });
    }

    /// The receiver copies a chunk that the sender cannot copy.
    #[test]
    fn loom_what_the_sender_cannot_copy_the_receiver_does() {
        explore(
            |scene| {
                let share = scene.board.share(0).unwrap();
                if let ClaimResult::Piece(piece) = share.claim(1, PIECES) {
                    share.give_up(piece);
                }
            },
            |scene| {
                let share = scene.board.share(0).unwrap();
                let mut own = 0;
                while let ClaimResult::Piece(piece) = share.claim(1, PIECES) {
                    copy(scene, piece);
                    own += 1;
                }
                while own + share.state(PIECES).0 < PIECES {
                    thread::yield_now();
                }
                if let Some(piece) = share.state(PIECES).1 {
                    copy(scene, piece);
                }
                for (piece, cell) in scene.buffer.iter().enumerate() {
                    // SAFETY: both sides have finished.
                    cell.with(|b| assert_eq!(unsafe { *b }, piece as u32 + 1));
                }
            },
        );
    }

    /// After the receiver has closed a share and the claimed chunks are done, no other thread accesses its buffer.
    #[test]
    fn loom_a_closed_share_is_left_alone() {
        explore(send, |scene| {
            let share = scene.board.share(0).unwrap();
            let taken = share.close(1, PIECES);
            while share.state(PIECES).0 < taken {
                thread::yield_now();
            }
            // SAFETY: the share is closed, and the sender has finished its chunks.
            (0..PIECES).for_each(|p| scene.buffer[p as usize].with_mut(|b| unsafe { *b = 0 }));
        });
    }

    /// A late sender finds the share open for another message, and claims no chunk.
    #[test]
    fn loom_a_late_claim_misses() {
        explore(send, |scene| {
            let share = scene.board.share(0).unwrap();
            let mut own = 0;
            while let ClaimResult::Piece(piece) = share.claim(1, PIECES) {
                copy(scene, piece);
                own += 1;
            }
            while own + share.state(PIECES).0 < PIECES {
                thread::yield_now();
            }
            share.open(2);
            // SAFETY: the first message is complete.
            (0..PIECES).for_each(|p| scene.buffer[p as usize].with_mut(|b| unsafe { *b = 0 }));
            assert_eq!(share.claim(2, PIECES), ClaimResult::Piece(0));
            assert_eq!(share.state(PIECES), (0, None));
        });
    }
}
