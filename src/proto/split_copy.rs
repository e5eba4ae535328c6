//! Long messages that both sides copy: the receiver reads pieces of the sender's memory while the sender
//! writes others to the receiver's.
//!
//! One core copies as fast as it can; two copy nearly twice as much. The receiver offers: it opens a
//! share ([`crate::tl::shm::chunk_board`]), tells the sender with SHARE, and begins to copy. A sender that
//! progresses joins in. One that does not, or may not write, or came too late, leaves all to the receiver.

use super::cma::{self, CmaDirection};
use super::failure;
use crate::engine::peer::{CMA_ALONE, CMA_YES, Peer};
use crate::engine::request::{Request, SplitCopy, TxState};
use crate::engine::worker::{SplitPush, Worker};
use crate::proto::{req_lookup, tx};
use crate::sys::cma::Spans;
use crate::sys::sync::give_way;
use crate::tl::shm::chunk_board::{ChunkState, ClaimResult};
use crate::wire::header::{Kind, ShareHdr};
use std::ptr;
use std::sync::atomic::Ordering;

/// Shorter messages are copied by the time that the sender hears of it, bytes.
pub const MIN: usize = 32 << 10;
/// Pieces: long enough to be worth a system call, short enough that nobody waits long for the other.
const PIECE: std::ops::RangeInclusive<usize> = 16 << 10..=256 << 10;
/// A message is cut into so many pieces, within those bounds.
const PIECES: usize = 8;
/// Pieces of a message that is one of many: each side copies others of them, whole if they are not longer than this.
/// A piece costs a system call, and brings the lines of one more boundary into both caches.
const LONGEST_PIECE: usize = 1 << 20;
/// Bytes that a sender copies in one progress call before it looks at anything else.
const STEP: usize = 512 << 10;
/// Microseconds between two looks at a sender that has not finished a piece, and how many there are.
const SETTLE_US: u32 = 50;
const SETTLE_LOOKS: u32 = 20_000;

/// Bytes of a piece of a message of `len` bytes, a multiple of 4096.
fn piece_of(len: usize, one_of_many: bool) -> usize {
    if one_of_many {
        return len.next_multiple_of(4096).min(LONGEST_PIECE);
    }
    (len / PIECES)
        .next_multiple_of(4096)
        .clamp(*PIECE.start(), *PIECE.end())
}

fn pieces_of(len: usize, piece: usize) -> u32 {
    // A message that needs more pieces than there are numbers is longer than any address space.
    u32::try_from(len.div_ceil(piece)).unwrap_or(u32::MAX)
}

/// A part of the message: offset and bytes.
pub type ByteRange = (usize, usize);

fn range_of(index: u32, piece: usize, len: usize) -> Option<ByteRange> {
    let offset = (index as usize).checked_mul(piece)?;
    (offset < len).then(|| (offset, piece.min(len - offset)))
}

/// The receiver: offers the sender of a rendezvous to copy a part, if that is worth while.
///
/// # Safety
/// The request is the caller's, in the state that `rndv::receive` gives it.
pub unsafe fn offer(req: *mut Request, peer: &Peer) {
    // SAFETY: the caller's request.
    let r = unsafe { &mut *req };
    let len = r.info.length;
    // Only where reading is known to be allowed: nothing is to be taken back then.
    if len < MIN
        || r.listed != 0
        || peer.same_process
        || peer.cma.load(Ordering::Relaxed) != CMA_YES
    {
        return;
    }
    let Some(target) = r.data.as_contig() else {
        return;
    };
    let Some(opened) = peer.open_share() else {
        return;
    };
    let generation = opened.generation;
    r.set_sharing(Some(SplitCopy {
        share: opened.share,
        generation,
        own: 0,
    }));
    let head = ShareHdr {
        addr: target as u64,
        piece: piece_of(len, r.one_of_many) as u32,
        generation,
        number: opened.number,
    };
    tx::control(peer, Kind::Share, 0, r.remote_id, &head.encode());
}

/// What a receiver that shares does next.
pub enum NextPiece {
    /// Copy this.
    Copy(ByteRange),
    /// Wait for the sender's pieces.
    Wait,
    /// Copy this too, which the sender could not; then it is over.
    Last(Option<ByteRange>),
}

/// The receiver: its next piece.
pub fn next(r: &mut Request) -> NextPiece {
    let len = r.info.length;
    let piece = piece_of(len, r.one_of_many);
    let pieces = pieces_of(len, piece);
    let Some(mut sharing) = r.sharing() else {
        return NextPiece::Last(None);
    };
    // SAFETY: the ring outlives the transfer.
    let share = unsafe { sharing.share.as_ref() };
    // Not more than there are: what the sender writes there is not trusted.
    if sharing.own < pieces
        && let ClaimResult::Piece(index) = share.claim(sharing.generation, pieces)
        && let Some(range) = range_of(index, piece, len)
    {
        sharing.own += 1;
        r.set_sharing(Some(sharing));
        return NextPiece::Copy(range);
    }
    let (done, failed) = share.state(pieces);
    if sharing.own + done < pieces {
        return NextPiece::Wait;
    }
    NextPiece::Last(failed.and_then(|index| range_of(index, piece, len)))
}

/// The receiver: the sender could not write, and is not asked again.
pub fn refused(peer: &Peer) {
    peer.cma.store(CMA_ALONE, Ordering::Relaxed);
}

/// The receiver: the transfer is over, and the sender writes no more.
pub fn end(r: &mut Request, peer: &Peer) {
    let sharing = r.sharing();
    r.set_sharing(None);
    if let Some(sharing) = sharing {
        peer.close_share(sharing.share);
    }
}

/// The receiver gives up: no piece is begun any more; [`next`] says when the sender's are done.
pub fn close(r: &mut Request) {
    let pieces = pieces_of(r.info.length, piece_of(r.info.length, r.one_of_many));
    if let Some(mut sharing) = r.sharing() {
        // SAFETY: the ring outlives the transfer.
        let taken = unsafe { sharing.share.as_ref() }.close(sharing.generation, pieces);
        sharing.own += pieces - taken.max(sharing.own);
        r.set_sharing(Some(sharing));
    }
}

/// The receiver's memory is about to become the user's again, whatever the sender does: waits for the
/// piece that it is writing. A sender that is gone writes nothing.
pub fn settle(worker: &Worker, peer: &Peer, r: &mut Request) {
    if r.sharing().is_none() {
        return;
    }
    close(r);
    for _ in 0..SETTLE_LOOKS {
        if !matches!(next(r), NextPiece::Wait) || failure::is_dead(worker, peer) {
            break;
        }
        give_way(SETTLE_US);
    }
    end(r, peer);
}

/// The share of a message of ours that its receiver calls by this number.
fn of_ours(peer: &Peer, number: u8) -> Option<&ChunkState> {
    // SAFETY: the board is in our inbox as long as the pointer is there; its fields are atomics.
    let board = unsafe { peer.board.load(Ordering::Relaxed).as_ref() };
    board.and_then(|board| board.share(number.into()))
}

/// The sender: takes all of a message, if the receiver has not done so.
pub fn claim_whole(peer: &Peer, number: u8, generation: u32) -> bool {
    of_ours(peer, number).is_some_and(|share| share.claim(generation, 1) == ClaimResult::Piece(0))
}

/// SHARE: the receiver offers the sender to copy a part of message `id`.
pub fn on_share(worker: &Worker, peer: &Peer, id: u64, hdr: ShareHdr) {
    let Some(share) = of_ours(peer, hdr.number) else {
        return;
    };
    if !peer.cma_usable() || hdr.piece < 4096 {
        return;
    }
    let mut push = SplitPush {
        peer,
        id,
        target: hdr.addr,
        piece: hdr.piece as usize,
        share: ptr::NonNull::from(share),
        generation: hdr.generation,
    };
    if advance(worker, &mut push) {
        worker.split_pushes.lock().push(push);
        worker.progress_flags.raise_chores();
    }
}

/// Copies some pieces of every message that receivers have offered to share. Whether more are left.
pub fn progress_split_pushes(worker: &Worker) -> bool {
    let mut pushes = std::mem::take(&mut *worker.split_pushes.lock());
    pushes.retain_mut(|push| advance(worker, push));
    // Only progress adds to the list.
    let left = !pushes.is_empty();
    *worker.split_pushes.lock() = pushes;
    left
}

/// Forgets the messages to a peer whose ring is about to be given back, and the shares in it.
pub fn drop_push(worker: &Worker, peer: &Peer) {
    peer.board.store(ptr::null_mut(), Ordering::Relaxed);
    worker
        .split_pushes
        .lock()
        .retain(|push| !ptr::eq(push.peer, peer));
}

/// Copies pieces of one message; false when there is no more to do.
fn advance(worker: &Worker, push: &mut SplitPush) -> bool {
    // SAFETY: peers that lists of progress name are not freed; the share as long as the ring, before whose end the
    // push is forgotten.
    let (peer, share): (&Peer, &ChunkState) = unsafe { (&*push.peer, push.share.as_ref()) };
    // The user can have withdrawn the message meanwhile.
    let Some(req) = req_lookup::find(worker, peer, push.id) else {
        return false;
    };
    // SAFETY: requests in the table live; progress is the only one that ends this one, but for a close.
    let r = unsafe { &*req };
    let Some(source) = r.data.as_contig().filter(|_| r.sent == TxState::Await) else {
        return false;
    };
    let (len, mut moved) = (r.data.len(), 0);
    let pieces = pieces_of(len, push.piece);
    while moved < STEP {
        let ClaimResult::Piece(index) = share.claim(push.generation, pieces) else {
            return false;
        };
        let Some((offset, n)) = range_of(index, push.piece, len) else {
            return false;
        };
        let mut target = Spans::one(push.target.wrapping_add(offset as u64), n);
        let mut source = Spans::one(source as u64 + offset as u64, n);
        // SAFETY: the range is inside of the user's buffer.
        let copied = unsafe { cma::transfer(peer, CmaDirection::Write, &mut source, &mut target) };
        if copied != Ok(()) {
            share.give_up(index);
            return false;
        }
        share.copied();
        moved += n;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_message_without_overlap() {
        for len in [
            MIN,
            MIN + 1,
            65536,
            100_000,
            1 << 20,
            (1 << 20) + 1,
            5_000_001,
            1 << 30,
        ] {
            let alone = piece_of(len, false);
            assert!(PIECE.contains(&alone));
            for piece in [alone, piece_of(len, true)] {
                assert_eq!(piece % 4096, 0);
                let mut at = 0;
                for index in 0..pieces_of(len, piece) {
                    let (offset, n) = range_of(index, piece, len).unwrap();
                    assert!(offset == at && n > 0);
                    at += n;
                }
                assert_eq!(at, len);
                assert_eq!(range_of(pieces_of(len, piece), piece, len), None);
            }
        }
    }
}
