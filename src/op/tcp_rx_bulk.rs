//! Long payloads that arrive over TCP: each part is stored in its place when it arrives.
//!
//! No reference is held between two parts: the request is looked up for each, so that it can be cancelled meanwhile,
//! and the memory of a write is checked for each.

use super::{get_reply, rx_dispatch};
use crate::ctypes::*;
use crate::engine::peer::Peer;
use crate::engine::worker::Worker;
use crate::proto::req_lookup::{self, BorrowedReq};
use crate::proto::tx;
use crate::tl::tcp::receiver::{PartialRecord, TcpReceiver};
use crate::wire::header::Kind;
use std::io;

/// Offset of the next part in the payload.
fn offset(b: &PartialRecord) -> Option<usize> {
    (u64::from_le_bytes(b.head) as usize).checked_add(b.done)
}

/// The request that receives the next `n` bytes, if it has room for them.
fn borrow_target<'a>(
    worker: &'a Worker,
    peer: &'a Peer,
    b: &PartialRecord,
    n: usize,
) -> Option<(BorrowedReq<'a>, usize)> {
    let borrowed = req_lookup::borrow(worker, peer, b.frame.imm, b.frame.kind)?;
    let at = offset(b).filter(|at| borrowed.has_room(*at, n))?;
    Some((borrowed, at))
}

/// Whether the payload goes to contiguous memory, or is dropped.
pub fn is_one_piece(worker: &Worker, peer: &Peer, receiver: &mut TcpReceiver) -> bool {
    let Some(b) = receiver.bulk() else {
        return true;
    };
    if b.frame.kind == Kind::PutReq {
        return true;
    }
    borrow_target(worker, peer, b, b.left())
        .is_none_or(|(borrowed, _)| borrowed.data().as_contig().is_some())
}

/// Handles `n` bytes of payload that are in the buffer.
pub fn piece(worker: &Worker, peer: &Peer, receiver: &mut TcpReceiver, n: usize) {
    let bytes = receiver.buffered()[..n].as_ptr();
    let Some(b) = receiver.bulk() else { return };
    if b.frame.kind == Kind::PutReq {
        // SAFETY: the buffer has `n` bytes.
        b.refused |= !unsafe {
            rx_dispatch::write(
                worker,
                peer,
                b.frame.imm.wrapping_add(b.done as u64),
                bytes,
                n,
            )
        };
    } else if b.frame.aux as i8 == UCS_OK as i8
        && let Some((mut borrowed, at)) = borrow_target(worker, peer, b, n)
    {
        // SAFETY: `has_room` has checked the range; the buffer has `n` bytes.
        let stored = unsafe { borrowed.data().unpack(at, bytes, n) };
        borrowed.received(n, stored);
    }
    receiver.take(n);
    received(peer, receiver, n);
}

/// Reads payload from the socket into its place. `None`: it has to go through the buffer.
pub fn read(worker: &Worker, peer: &Peer, receiver: &mut TcpReceiver) -> Option<io::Result<bool>> {
    let b = *receiver.bulk()?;
    let left = b.left();
    let got = if b.frame.kind == Kind::PutReq {
        let addr = b.frame.imm.wrapping_add(b.done as u64);
        if b.refused
            || !worker
                .ctx
                .regions
                .permits(&worker.last_region, addr, left as u64)
        {
            return None;
        }
        get_reply::keep_before_change(peer);
        // SAFETY: registered memory of this process.
        unsafe { receiver.read_to(addr as *mut u8, left) }
    } else {
        let (mut borrowed, at) = borrow_target(worker, peer, &b, left)?;
        let target = borrowed.data().as_contig()?;
        // SAFETY: `has_room` has checked the range.
        let got = unsafe { receiver.read_to(target.add(at), left) };
        if let Ok(read) = &got {
            borrowed.received(read.bytes, Ok(()));
        }
        got
    };
    Some(got.map(|read| {
        received(peer, receiver, read.bytes);
        read.more
    }))
}

/// Counts received bytes; a write is acknowledged when all of its bytes are stored.
fn received(peer: &Peer, receiver: &mut TcpReceiver, n: usize) {
    let Some(b) = receiver.payload_done(n) else {
        return;
    };
    peer.stats().received.add(b.frame.len);
    if b.frame.kind == Kind::PutReq {
        let status = if b.refused {
            UCS_ERR_INVALID_ADDR
        } else {
            UCS_OK
        };
        tx::control(peer, Kind::PutAck, status as i8 as u8, 0, &[]);
    }
}
