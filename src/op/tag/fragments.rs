//! Long eager tagged messages at the receiver: fragments are collected until the last one has arrived, then the message
//! is matched.
//!
//! The fragments of a message follow each other on the lane: the message is matched before each message sent after it,
//! whether or not a receive is posted.

use super::fill;
use crate::engine::completion;
use crate::engine::peer::Peer;
use crate::engine::request::Request;
use crate::engine::unexpected::{InlineOrHeap, PartialTag, PayloadSource, UnexpectedTag};
use crate::engine::worker::Worker;
use crate::op::malformed::Malformed;
use crate::sys::{copy, log};
use crate::wire::header::FragmentHdr;

/// Stores a fragment of a long eager message; with the last one the message is matched.
///
/// # Errors
/// [`Malformed`]: the fragment is not the next one of its message.
///
/// # Safety
/// `len` bytes are readable at `body` during the call. Called by the progress thread.
pub unsafe fn on_fragment(
    worker: &Worker,
    peer: &Peer,
    tag: u64,
    h: FragmentHdr,
    body: *const u8,
    len: usize,
) -> Result<(), Malformed> {
    let mut partials = worker.peer_lists.partial_tags.lock();
    if h.offset == 0 {
        let total = usize::try_from(h.total).map_err(|_| Malformed)?;
        let mut bytes = Vec::new();
        let bytes = match bytes.try_reserve_exact(total) {
            Ok(()) => Some(bytes),
            Err(_) => {
                log::once!(Error, "no memory for a message of {total} bytes: dropped");
                None
            }
        };
        // Replaces a message that a forced close of the sender's endpoint has left unfinished.
        let partial = PartialTag {
            tag,
            total,
            received: 0,
            bytes,
        };
        partials.insert(peer, partial);
    }
    let message = partials.get_mut(peer).ok_or(Malformed)?;
    let (so_far, left) = (message.received, message.total - message.received);
    let next = message.tag == tag && message.total as u64 == h.total && so_far as u64 == h.offset;
    if !next || len == 0 || len > left {
        return Err(Malformed);
    }
    message.received += len;
    if let Some(bytes) = &mut message.bytes {
        // SAFETY: the vector has room for `left` more bytes; the caller's bytes are readable.
        unsafe {
            copy::from_shared(bytes.as_mut_ptr().add(so_far), body, len);
            bytes.set_len(so_far + len);
        }
    }
    if len == left {
        let message = partials.remove(peer);
        drop(partials);
        if let Some(bytes) = message.and_then(|m| m.bytes) {
            arrive_whole(worker, tag, bytes);
        }
    }
    Ok(())
}

/// Matches a message that was collected from fragments.
fn arrive_whole(worker: &Worker, tag: u64, bytes: Vec<u8>) {
    let mut matcher = worker.matcher.lock();
    let posting = matcher.arrive(tag);
    if posting.is_null() {
        let (source, len) = (PayloadSource::Eager, bytes.len());
        let bytes = InlineOrHeap::Apart(bytes.into());
        matcher.push_unexpected(tag, UnexpectedTag { source, len, bytes });
        let waiting = matcher.unexpected_len();
        return worker.stats.worker().note_unexpected(waiting);
    }
    drop(matcher);
    let req = Request::of_posting(posting);
    // SAFETY: the matcher has removed the request: this thread owns it.
    unsafe {
        (*req).info.sender_tag = tag;
        let status = fill(&mut *req, bytes.as_ptr(), bytes.len());
        completion::complete(req, status);
    }
}
