//! Split copy: the receiver reads chunks of a long message from the sender's memory while the sender writes others into
//! the receiver's.
//!
//! The receiver opens a split copy ([`SplitCopy`](crate::tl::SplitCopy)), sends its id in a SHARE message, and starts
//! to copy. A sender that progresses copies too ([`SplitWrite`](crate::tl::SplitWrite)).

use crate::engine::peer::Peer;
use crate::engine::pointers::PeerRef;
use crate::engine::request::{Request, TxState};
use crate::engine::worker::{SplitPush, Worker};
use crate::proto::select::rndv::may_split;
use crate::proto::{req_lookup, tx};
use crate::sys::sync::give_way;
use crate::tl::{Chunks, NextChunk, SplitCopyId};
use crate::wire::header::{Kind, SplitCopyHdr};

/// Microseconds between two checks of a sender that has not finished a chunk, and maximum number of checks.
const SETTLE_US: u32 = 50;
const SETTLE_LOOKS: u32 = 20_000;

/// How the message of a receive is cut.
fn chunks(r: &Request) -> Chunks {
    Chunks::new(r.info.length, r.rndv_recv().one_of_many)
}

/// At the receiver: offers a split copy to the sender of a rendezvous, if that is useful.
///
/// # Safety
/// The caller owns the request, which is in the state that `rndv::receive` gives it.
pub unsafe fn offer(req: *mut Request, peer: &Peer) {
    // SAFETY: the caller owns the request.
    let r = unsafe { &mut *req };
    if !may_split(peer, r.info.length, r.rndv_recv().source) {
        return;
    }
    let chunks = chunks(r);
    let (Some(target), Some(recv)) = (r.data.as_contig(), r.rndv_recv_mut()) else {
        return;
    };
    let Some((split, id)) = peer.open_split_copy() else {
        return;
    };
    recv.split = Some(split);
    let head = SplitCopyHdr {
        addr: target as u64,
        chunk: chunks.chunk_bytes() as u32,
        generation: id.generation,
        number: id.number,
    };
    tx::control(peer, Kind::SplitCopy, 0, recv.rts_id, &head.encode());
}

/// At the receiver: claims its next chunk.
pub fn next(r: &mut Request) -> NextChunk {
    let chunks = chunks(r);
    match r.rndv_recv_mut().and_then(|recv| recv.split.as_mut()) {
        // SAFETY: a lane is not dropped while it has an open split copy, and `end` has not closed this one.
        Some(split) => unsafe { split.next(chunks) },
        None => NextChunk::Last(None),
    }
}

/// At the receiver: closes the split copy of a complete transfer.
pub fn end(r: &mut Request, peer: &Peer) {
    if let Some(split) = r.rndv_recv_mut().and_then(|recv| recv.split.take()) {
        peer.close_split_copy(split);
    }
}

/// At the receiver: prevents that further chunks are claimed; [`next`] shows when the sender's are complete.
pub fn close(r: &mut Request) {
    let chunks = chunks(r);
    if let Some(split) = r.rndv_recv_mut().and_then(|recv| recv.split.as_mut()) {
        // SAFETY: a lane is not dropped while it has an open split copy, and `end` has not closed this one.
        unsafe { split.stop(chunks) };
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

/// Handles SHARE: the receiver offers a split copy of message `id`.
pub fn on_split_copy(worker: &Worker, peer: &Peer, id: u64, hdr: SplitCopyHdr) {
    let split_copy = SplitCopyId {
        number: hdr.number,
        generation: hdr.generation,
    };
    let write = (peer.cma()).split_write(split_copy, hdr.addr, hdr.chunk as usize);
    let Some(write) = write else { return };
    let push = SplitPush {
        // SAFETY: the peer of a split copy.
        peer: unsafe { PeerRef::new(peer) },
        id,
        write,
    };
    if advance(worker, &push) {
        worker.split_pushes.lock().push(push);
        worker.progress_flags.raise_deferred();
    }
}

/// Copies some chunks of every message with an accepted offer. Returns whether more are left.
pub fn progress_split_pushes(worker: &Worker) -> bool {
    let mut pushes = std::mem::take(&mut *worker.split_pushes.lock());
    pushes.retain(|push| advance(worker, push));
    // Only progress adds to the list.
    let left = !pushes.is_empty();
    *worker.split_pushes.lock() = pushes;
    left
}

/// Drops the messages to a peer: its ring is about to be freed.
pub fn drop_push(worker: &Worker, peer: &Peer) {
    worker
        .split_pushes
        .lock()
        .retain(|push| !push.peer.is(peer));
}

/// Copies chunks of one message; false when there is no more to do.
fn advance(worker: &Worker, push: &SplitPush) -> bool {
    let peer = push.peer.get();
    // The user may have cancelled the message meanwhile.
    let Some(req) = req_lookup::find(worker, peer, push.id) else {
        return false;
    };
    // SAFETY: requests in the table are not freed; only progress and a close end this one.
    let r = unsafe { &*req };
    let Some(source) = r.data.as_contig().filter(|_| r.sent == TxState::AwaitReply) else {
        return false;
    };
    // SAFETY: the peer has made the value in `on_split_copy`; the user's buffer is valid until the request completes.
    unsafe { push.write.advance(peer.cma(), source, r.data.len()) }
}
