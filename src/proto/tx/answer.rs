//! Answers to accesses of peers to this worker's memory: without a request, where the next message may be written into
//! the peer's ring at once.

use super::ready_ring;
use crate::ctypes::*;
use crate::engine::peer::Peer;
use crate::wire::header::{Kind, ValueHdr};

/// Answers a put or a signal of the peer. In single-thread mode a success takes a slot of the ring without a request.
pub fn answer_put(peer: &Peer, status: ucs_status_t) {
    if status == UCS_OK
        // SAFETY: no callback runs here.
        && let Some(ring) = unsafe { ready_ring(peer) }
        // SAFETY: no bytes are sent.
        && unsafe { ring.send_tiny(Kind::PutAck as u8, || 0, std::ptr::null(), 0) }
    {
        return;
    }
    super::answer(peer, Kind::PutAck, status as i8 as u8, 0, &[]);
}

/// Answers an atomic operation of the peer's request `req` with the value that it found, or a refusal. In single-thread
/// mode a value takes a slot of the ring without a request.
pub fn answer_atomic(peer: &Peer, req: u64, done: Result<u64, ucs_status_t>) {
    let head = ValueHdr {
        value: done.unwrap_or(0),
    };
    let head = head.encode();
    if done.is_ok()
        // SAFETY: no callback runs here.
        && let Some(ring) = unsafe { ready_ring(peer) }
    {
        let kind = Kind::AmoRep as u8;
        // SAFETY: the header is readable.
        let sent = unsafe {
            ring.send_tiny(kind, || req, head.as_ptr(), head.len())
                || ring.send_tiny_in_new_epoch(kind, req, head.as_ptr(), head.len())
        };
        if sent {
            return;
        }
    }
    let status = done.err().unwrap_or(UCS_OK);
    super::answer(peer, Kind::AmoRep, status as i8 as u8, req, &head);
}
