//! Who copies which piece of a long message: both sides claim pieces of it until none is left.
//!
//! The receiver opens a share in the memory of the ring through which it talks to the sender, and tells
//! it the share's place and generation. From then on both take the number of the next piece by
//! compare-and-swap, copy that piece, and take another one. A sender that is busy elsewhere takes none:
//! the receiver then copies everything. The receiver ends the share when all pieces are taken and the
//! sender has said that its own are done; the generation makes a late claim miss.
//!
//! Neither side trusts what it reads here. A sender that lies spoils its own message; a receiver that
//! lies makes the sender copy, inside of the message, to where it could have copied by itself.

use crate::sys::sync::{AtomicU64, Ordering};
use std::ptr::{self, NonNull};

/// Messages of one direction that both sides copy at a time; further ones the receiver copies alone.
pub const SHARES: usize = if cfg!(loom) { 1 } else { 32 };

/// `failed` when nothing has.
const NONE: u64 = 0;

/// One message's account.
#[repr(C, align(64))]
pub struct ChunkState {
    /// generation (32 bits) | next piece (32 bits). Both sides.
    next: AtomicU64,
    /// Pieces that the sender has copied, or failed to. The sender, reset by the receiver.
    done: AtomicU64,
    /// 1 + the piece that the sender could not copy; it claims no more. The sender, reset by the receiver.
    failed: AtomicU64,
}

/// The shares of one direction. All zero: none is open.
#[repr(C)]
pub struct ChunkBoard {
    shares: [ChunkState; SHARES],
}

/// What a claim came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimResult {
    /// This piece is the caller's.
    Piece(u32),
    /// All are taken, or the share is another message's by now.
    None,
}

impl ChunkState {
    /// Begins a new generation with no piece taken. The receiver; the share is not open.
    pub fn open(&self, generation: u32) {
        self.done.store(0, Ordering::Relaxed);
        self.failed.store(NONE, Ordering::Relaxed);
        // Release: pairs with the Acquire loads in `claim`; the resets come before the sender's counting.
        self.next
            .store(u64::from(generation) << 32, Ordering::Release);
    }

    /// Takes the next one of `pieces` pieces.
    pub fn claim(&self, generation: u32, pieces: u32) -> ClaimResult {
        // Each failure means that the other side has taken one. More than there are is a lie.
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

    /// Takes all pieces that are left, so that the sender begins no other. How many were taken before.
    /// The receiver, ending early.
    pub fn close(&self, generation: u32, pieces: u32) -> u32 {
        // Relaxed: only the count matters.
        let closed = u64::from(generation) << 32 | u64::from(pieces);
        (self.next.swap(closed, Ordering::Relaxed) as u32).min(pieces)
    }

    /// The sender has copied one piece.
    pub fn copied(&self) {
        // Release: pairs with the Acquire load in `state`; the copy comes before. One writer: no
        // read-modify-write is needed.
        let done = self.done.load(Ordering::Relaxed);
        self.done.store(done + 1, Ordering::Release);
    }

    /// The sender could not copy a piece and will claim no other.
    pub fn give_up(&self, piece: u32) {
        self.failed.store(u64::from(piece) + 1, Ordering::Relaxed);
        self.copied();
    }

    /// Pieces that the sender is done with, and the one that it could not copy. The receiver.
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
    /// The share with this number, if there is one: the number comes from a peer.
    pub fn share(&self, number: usize) -> Option<&ChunkState> {
        self.shares.get(number)
    }

    /// The inverse.
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

/// The receiver's account of which shares of a board are open.
#[derive(Default)]
pub struct OpenBoards {
    open: u32,
    generation: u32,
}

const _: () = assert!(SHARES <= 32);

impl OpenBoards {
    /// A share that is not open, and the generation to open it with.
    pub fn take(&mut self) -> Option<(usize, u32)> {
        let number = self.open.trailing_ones() as usize;
        if number >= SHARES {
            return None;
        }
        self.open |= 1 << number;
        // Never 0, which is that of untouched memory.
        self.generation = self.generation.wrapping_add(1).max(1);
        Some((number, self.generation))
    }

    /// Whether any share is open.
    pub fn any_open(&self) -> bool {
        self.open != 0
    }

    /// Its message is over: the sender is done with what it had claimed.
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
        /// The receiver's buffer: loom finds two that touch a piece at the same time.
        buffer: [UnsafeCell<u32>; PIECES as usize],
    }

    // SAFETY: the cells are touched by whoever has claimed them; loom checks that.
    unsafe impl Sync for Scene {}
    // SAFETY: as above.
    unsafe impl Send for Scene {}

    fn scene() -> Arc<Scene> {
        Arc::new(Scene {
            board: ChunkBoard::empty(),
            buffer: std::array::from_fn(|_| UnsafeCell::new(0)),
        })
    }

    fn copy(scene: &Scene, piece: u32) {
        // SAFETY: claimed by the caller.
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

    /// The sender as in `proto::share`.
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
                // SAFETY: both are done.
                cell.with(|b| assert_eq!(unsafe { *b }, piece as u32 + 1));
            }
        });
    }

    /// A piece that the sender cannot copy is the receiver's.
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
                    // SAFETY: both are done.
                    cell.with(|b| assert_eq!(unsafe { *b }, piece as u32 + 1));
                }
            },
        );
    }

    /// Once the receiver has closed a share and the claimed pieces are done its buffer is its own.
    #[test]
    fn loom_a_closed_share_is_left_alone() {
        explore(send, |scene| {
            let share = scene.board.share(0).unwrap();
            let taken = share.close(1, PIECES);
            while share.state(PIECES).0 < taken {
                thread::yield_now();
            }
            // SAFETY: closed, and the sender is done with what it had.
            (0..PIECES).for_each(|p| scene.buffer[p as usize].with_mut(|b| unsafe { *b = 0 }));
        });
    }

    /// A sender that comes late finds another message's share, and leaves it alone.
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
            // SAFETY: the first message is over.
            (0..PIECES).for_each(|p| scene.buffer[p as usize].with_mut(|b| unsafe { *b = 0 }));
            assert_eq!(share.claim(2, PIECES), ClaimResult::Piece(0));
            assert_eq!(share.state(PIECES), (0, None));
        });
    }
}
