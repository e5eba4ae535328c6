//! Split copy: the receiver reads chunks of a long message from the sender's memory while the sender writes others into
//! the receiver's.
//!
//! Two cores copy nearly twice as fast as one. The receiver opens a chunk board ([`crate::tl::shm::chunk_board`]),
//! sends its number in a SHARE message, and starts to copy. A sender that progresses copies too. One that does not, may
//! not write, or is late, leaves all chunks to the receiver.

use crate::engine::peer::Peer;
use crate::engine::request::{PeerRef, Request, SplitCopy, TxState};
use crate::engine::worker::{SplitPush, Worker};
use crate::proto::select::rndv::may_split;
use crate::proto::{req_lookup, tx};
use crate::sys::cma::{CmaDirection, Spans};
use crate::sys::sync::give_way;
use crate::tl::shm::chunk_board::{ChunkState, ClaimResult};
use crate::wire::header::{Kind, SplitCopyHdr};
use std::ptr;

/// Length of a chunk in bytes: long enough for a system call, short enough that neither side waits long for the other.
const CHUNK_BYTES: std::ops::RangeInclusive<usize> = 16 << 10..=256 << 10;
/// Number of chunks of a message, within those bounds.
const CHUNKS: usize = 8;
/// Maximum length of a chunk of one of many messages, bytes: each side copies others of them, whole if they are not
/// longer. A chunk costs a system call, and one more boundary whose cache lines both caches need.
const MAX_CHUNK: usize = 1 << 20;
/// Maximum number of bytes that a sender copies in one progress call.
const STEP: usize = 512 << 10;
/// Microseconds between two checks of a sender that has not finished a chunk, and maximum number of checks.
const SETTLE_US: u32 = 50;
const SETTLE_LOOKS: u32 = 20_000;

/// Bytes of a chunk of a message of `len` bytes, a multiple of 4096.
fn chunk_bytes(len: usize, one_of_many: bool) -> usize {
    if one_of_many {
        return len.next_multiple_of(4096).min(MAX_CHUNK);
    }
    (len / CHUNKS)
        .next_multiple_of(4096)
        .clamp(*CHUNK_BYTES.start(), *CHUNK_BYTES.end())
}

fn chunk_count(len: usize, chunk: usize) -> u32 {
    // More chunks than there are numbers would exceed any address space.
    u32::try_from(len.div_ceil(chunk)).unwrap_or(u32::MAX)
}

/// A part of the message: offset and bytes.
pub type ByteRange = (usize, usize);

fn range_of(index: u32, chunk: usize, len: usize) -> Option<ByteRange> {
    let offset = (index as usize).checked_mul(chunk)?;
    (offset < len).then(|| (offset, chunk.min(len - offset)))
}

/// At the receiver: offers a split copy to the sender of a rendezvous, if that is useful.
///
/// # Safety
/// The caller owns the request, which is in the state that `rndv::receive` gives it.
pub unsafe fn offer(req: *mut Request, peer: &Peer) {
    // SAFETY: the caller owns the request.
    let r = unsafe { &mut *req };
    let len = r.info.length;
    if !may_split(peer, len, r.rndv_recv().source) {
        return;
    }
    let Some(target) = r.data.as_contig() else {
        return;
    };
    let Some(opened) = peer.open_split_copy() else {
        return;
    };
    let generation = opened.generation;
    let split = Some(SplitCopy {
        chunk_state: opened.chunk_state,
        generation,
        own: 0,
    });
    set_split(r, split);
    let head = SplitCopyHdr {
        addr: target as u64,
        chunk: chunk_bytes(len, r.rndv_recv().one_of_many) as u32,
        generation,
        number: opened.number,
    };
    tx::control(
        peer,
        Kind::SplitCopy,
        0,
        r.rndv_recv().rts_id,
        &head.encode(),
    );
}

fn set_split(r: &mut Request, split: Option<SplitCopy>) {
    if let Some(recv) = r.rndv_recv_mut() {
        recv.split = split;
    }
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

/// At the receiver: claims its next chunk.
pub fn next(r: &mut Request) -> NextChunk {
    let len = r.info.length;
    let chunk = chunk_bytes(len, r.rndv_recv().one_of_many);
    let chunks = chunk_count(len, chunk);
    let Some(mut sharing) = r.rndv_recv().split else {
        return NextChunk::Last(None);
    };
    // SAFETY: the ring is mapped as long as the transfer exists.
    let chunk_state = unsafe { sharing.chunk_state.as_ref() };
    // At most as many as there are: the sender's values are not trusted.
    if sharing.own < chunks
        && let ClaimResult::Chunk(index) = chunk_state.claim(sharing.generation, chunks)
        && let Some(range) = range_of(index, chunk, len)
    {
        sharing.own += 1;
        set_split(r, Some(sharing));
        return NextChunk::Copy(range);
    }
    let (done, failed) = chunk_state.state(chunks);
    if sharing.own + done < chunks {
        return NextChunk::Wait;
    }
    NextChunk::Last(failed.and_then(|index| range_of(index, chunk, len)))
}

/// At the receiver: the sender could not write, and gets no further offers.
pub fn refused(peer: &Peer) {
    peer.cma().note_peer_forbidden();
}

/// At the receiver: closes the chunk board of a complete transfer.
pub fn end(r: &mut Request, peer: &Peer) {
    let sharing = r.rndv_recv().split;
    set_split(r, None);
    if let Some(sharing) = sharing {
        peer.close_split_copy(sharing.chunk_state);
    }
}

/// At the receiver: prevents that further chunks are claimed; [`next`] shows when the sender's are complete.
pub fn close(r: &mut Request) {
    let chunks = chunk_count(
        r.info.length,
        chunk_bytes(r.info.length, r.rndv_recv().one_of_many),
    );
    if let Some(mut sharing) = r.rndv_recv().split {
        // SAFETY: the ring is mapped as long as the transfer exists.
        let taken = unsafe { sharing.chunk_state.as_ref() }.close(sharing.generation, chunks);
        sharing.own += chunks - taken.max(sharing.own);
        set_split(r, Some(sharing));
    }
}

/// Called before the receiver's memory is returned to the user: waits for the chunk that the sender is writing. A dead
/// sender writes nothing.
pub fn settle(peer: &Peer, r: &mut Request) {
    if r.rndv_recv().split.is_none() {
        return;
    }
    close(r);
    for _ in 0..SETTLE_LOOKS {
        if !matches!(next(r), NextChunk::Wait) || peer.is_dead() {
            break;
        }
        give_way(SETTLE_US);
    }
    end(r, peer);
}

/// At the sender: claims all of a message, if the receiver has not.
pub fn claim_whole(peer: &Peer, number: u8, generation: u32) -> bool {
    peer.cma()
        .chunk_state(number)
        .is_some_and(|chunk_state| chunk_state.claim(generation, 1) == ClaimResult::Chunk(0))
}

/// Handles SHARE: the receiver offers a split copy of message `id`.
pub fn on_split_copy(worker: &Worker, peer: &Peer, id: u64, hdr: SplitCopyHdr) {
    let Some(chunk_state) = peer.cma().chunk_state(hdr.number) else {
        return;
    };
    if !peer.cma().is_usable() || hdr.chunk < 4096 {
        return;
    }
    let mut push = SplitPush {
        // SAFETY: the peer of a split copy.
        peer: unsafe { PeerRef::new(peer) },
        id,
        target: hdr.addr,
        chunk: hdr.chunk as usize,
        chunk_state: ptr::NonNull::from(chunk_state),
        generation: hdr.generation,
    };
    if advance(worker, &mut push) {
        worker.split_pushes.lock().push(push);
        worker.progress_flags.raise_deferred();
    }
}

/// Copies some chunks of every message with an accepted offer. Returns whether more are left.
pub fn progress_split_pushes(worker: &Worker) -> bool {
    let mut pushes = std::mem::take(&mut *worker.split_pushes.lock());
    pushes.retain_mut(|push| advance(worker, push));
    // Only progress adds to the list.
    let left = !pushes.is_empty();
    *worker.split_pushes.lock() = pushes;
    left
}

/// Drops the messages to a peer whose ring is about to be freed, with their chunk boards.
pub fn drop_push(worker: &Worker, peer: &Peer) {
    worker
        .split_pushes
        .lock()
        .retain(|push| !push.peer.is(peer));
}

/// Copies chunks of one message; false when there is no more to do.
fn advance(worker: &Worker, push: &mut SplitPush) -> bool {
    let peer = push.peer.get();
    // SAFETY: the chunk state is mapped as long as the ring, and `drop_push` removes `push` before that is freed.
    let chunk_state: &ChunkState = unsafe { push.chunk_state.as_ref() };
    // The user may have cancelled the message meanwhile.
    let Some(req) = req_lookup::find(worker, peer, push.id) else {
        return false;
    };
    // SAFETY: requests in the table are not freed; only progress and a close end this one.
    let r = unsafe { &*req };
    let Some(source) = r.data.as_contig().filter(|_| r.sent == TxState::AwaitReply) else {
        return false;
    };
    let (len, mut moved) = (r.data.len(), 0);
    let chunks = chunk_count(len, push.chunk);
    while moved < STEP {
        let ClaimResult::Chunk(index) = chunk_state.claim(push.generation, chunks) else {
            return false;
        };
        let Some((offset, n)) = range_of(index, push.chunk, len) else {
            return false;
        };
        let mut target = Spans::one(push.target.wrapping_add(offset as u64), n);
        let mut source = Spans::one(source as u64 + offset as u64, n);
        // SAFETY: the range is inside the user's buffer.
        let copied = unsafe {
            peer.cma()
                .transfer(CmaDirection::Write, &mut source, &mut target)
        };
        if copied != Ok(()) {
            chunk_state.give_up(index);
            return false;
        }
        chunk_state.copied();
        moved += n;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::select::rndv::MIN_SPLIT;

    #[test]
    fn chunks_cover_a_message_without_overlap() {
        for len in [
            MIN_SPLIT,
            MIN_SPLIT + 1,
            65536,
            100_000,
            1 << 20,
            (1 << 20) + 1,
            5_000_001,
            1 << 30,
        ] {
            let alone = chunk_bytes(len, false);
            assert!(CHUNK_BYTES.contains(&alone));
            for chunk in [alone, chunk_bytes(len, true)] {
                assert_eq!(chunk % 4096, 0);
                let mut at = 0;
                for index in 0..chunk_count(len, chunk) {
                    let (offset, n) = range_of(index, chunk, len).unwrap();
                    assert!(offset == at && n > 0);
                    at += n;
                }
                assert_eq!(at, len);
                assert_eq!(range_of(chunk_count(len, chunk), chunk, len), None);
            }
        }
    }
}
