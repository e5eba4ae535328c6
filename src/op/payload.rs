//! Long payloads, of which a transport hands over each part when it arrives.
//!
//! No reference is held between two parts: the request is looked up for each, so that it can be cancelled meanwhile,
//! and the memory of a write is checked for each.

use super::{device_target, keep, registered};
use crate::ctypes::*;
use crate::engine::peer::Peer;
use crate::engine::worker::Worker;
use crate::proto::req_lookup::{self, BorrowedReq};
use crate::proto::tx;
use crate::tl::payload::{PartialRecord, PayloadMem, PayloadPlace};
use crate::wire::header::{Kind, PutRest};

/// The request whose memory takes payload. `None`: registered memory does, which a peer writes.
pub type PayloadHold<'a> = Option<BorrowedReq<'a>>;

/// The request that receives the next `n` bytes, if it has room for them, and their offset.
fn borrow_target<'a>(
    worker: &'a Worker,
    peer: &'a Peer,
    record: &PartialRecord,
    n: usize,
) -> Option<(BorrowedReq<'a>, usize)> {
    let borrowed = req_lookup::borrow(worker, peer, record.frame.imm, record.frame.kind)?;
    let offset = (u64::from_le_bytes(record.head) as usize).checked_add(record.done);
    let at = offset.filter(|at| borrowed.has_room(*at, n))?;
    Some((borrowed, at))
}

/// Address of the next bytes that a peer writes.
fn write_addr(record: &PartialRecord) -> u64 {
    record.frame.imm.wrapping_add(record.done as u64)
}

/// How the rest of the payload of a record is received.
pub fn place<'a>(
    worker: &'a Worker,
    peer: &'a Peer,
    record: &PartialRecord,
) -> PayloadPlace<PayloadHold<'a>> {
    let left = record.left();
    if record.frame.kind == Kind::PutReq {
        let addr = write_addr(record);
        let regions = &worker.ctx.regions;
        if record.status != UCS_OK {
            return PayloadPlace::Nowhere;
        }
        if !regions.permits(&worker.last_region, addr, left as u64) {
            return match device_target::permits(worker, addr, left as u64) {
                true => PayloadPlace::Pieces,
                false => PayloadPlace::Nowhere,
            };
        }
        keep::keep_before_change(peer);
        // SAFETY: registered memory of this process.
        return PayloadPlace::Memory(unsafe { PayloadMem::new(addr as *mut u8, left, None) });
    }
    let Some((borrowed, at)) = borrow_target(worker, peer, record, left) else {
        return PayloadPlace::Nowhere;
    };
    match borrowed.data().as_contig() {
        // SAFETY: `has_room` has checked the range; the request cannot complete while it is borrowed.
        Some(data) => unsafe {
            PayloadPlace::Memory(PayloadMem::new(data.add(at), left, Some(borrowed)))
        },
        None => PayloadPlace::Pieces,
    }
}

/// Handles the next bytes of the payload of a record.
pub fn on_part(worker: &Worker, peer: &Peer, record: &mut PartialRecord, bytes: &[u8]) {
    let (n, bytes) = (bytes.len(), bytes.as_ptr());
    if record.frame.kind == Kind::PutReq {
        let (addr, left) = (write_addr(record), (record.left() - n) as u64);
        let follows = left.saturating_add(PutRest::from_aux(record.frame.aux).most());
        // SAFETY: the caller's bytes.
        let written = unsafe { registered::write(worker, peer, addr, (bytes, n), follows) };
        if let (UCS_OK, Err(status)) = (record.status, written) {
            record.status = status;
        }
    } else if record.frame.aux as i8 == UCS_OK as i8
        && let Some((mut borrowed, at)) = borrow_target(worker, peer, record, n)
    {
        // SAFETY: `has_room` has checked the range; the bytes are the caller's.
        let stored = unsafe { borrowed.data().unpack(at, bytes, n) };
        borrowed.received(n, stored);
    }
}

/// Counts a record whose payload has arrived. A write is acknowledged: all of its bytes are stored.
pub fn on_end(peer: &Peer, record: &PartialRecord) {
    peer.stats().received.add(record.frame.len);
    if record.frame.kind == Kind::PutReq {
        tx::control(peer, Kind::PutAck, record.status as i8 as u8, 0, &[]);
    }
}
