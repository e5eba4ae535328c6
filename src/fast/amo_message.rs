//! Hot path of atomic operations on memory that only the peer's processor reaches: a message in its ring of shared
//! memory, sent straight from the call in single-thread mode. Less frequent cases are left to the slow path.

use super::plain::{EIGHT, FOUR};
use super::request::request_of;
use super::sender::send_counted;
use crate::ctypes::*;
use crate::engine::datatype::Data;
use crate::engine::endpoint::{Endpoint, EpFlags};
use crate::engine::peer::Peer;
use crate::engine::request::{self, Request, TxPayload, TxState};
use crate::engine::request_alloc;
use crate::op::amo::load;
use crate::op::param::Param;
use crate::proto::tx::ready_ring;
use crate::tl::RingSender;
use crate::tl::amo;
use crate::wire::header::{AmoHdr, Kind, UNNAMED};
use crate::wire::stats::StatProtocol;
use std::ffi::c_void;
use std::ptr;

const SWAP: u32 = amo::SWAP as u32;
const CSWAP: u32 = amo::CSWAP as u32;
const LAST: u32 = AmoHdr::LAST_OP as u32;

/// Sends an operation: the value that the call returns. `None`: nothing was done.
///
/// # Safety
/// The arguments are those of `ucp_atomic_op_nbx`, for a single operand that is not null; the peer executes the
/// operations on the key's region, and nothing else does.
#[inline(never)]
pub(super) unsafe fn atomic(
    ep: *const Endpoint,
    op: u32,
    operand: *const c_void,
    addr: u64,
    p: &Param,
) -> Option<ucs_status_ptr_t> {
    let (size, slow_path) = match p.datatype() {
        EIGHT => (8, EpFlags::SLOW_PATH_AMO64),
        FOUR => (4, EpFlags::SLOW_PATH_AMO32),
        _ => return None,
    };
    // SAFETY: the caller's endpoint is valid.
    if unsafe { (*ep).has(EpFlags::SPECIAL | slow_path) } || addr % u64::from(size) != 0 {
        return None;
    }
    let reply = p.reply_buffer();
    let fetch = p.has(UCP_OP_ATTR_FIELD_REPLY_BUFFER);
    if fetch == reply.is_null() || !fetch && matches!(op, SWAP | CSWAP) || op > LAST {
        return None;
    }
    // SAFETY: the caller's buffers have `size` bytes; that of the reply holds the new value of a compare-and-swap.
    let (value, compare) = unsafe {
        match op {
            CSWAP => (load(reply, size), load(operand, size)),
            _ => (load(operand, size), 0),
        }
    };
    let head = AmoHdr {
        req: UNNAMED,
        value,
        compare,
        op: op as u8,
        size,
        fetch: fetch.into(),
    };
    // SAFETY: the caller's endpoint; peer and worker outlive it. No callback runs here, and only a worker in
    // single-thread mode has a ready ring.
    unsafe {
        let peer = (*ep).peer();
        let ring = ready_ring(peer)?;
        let handle = match fetch {
            true => send_fetch(ep, (peer, ring), head, (addr, reply), p)?,
            false if send_counted(peer, ring, Kind::AmoReq, addr, &head.encode()) => {
                ptr::null_mut()
            }
            false => return None,
        };
        let tally = peer.stats().of(StatProtocol::AmoMessages);
        tally.add(size.into());
        Some(handle)
    }
}

/// Sends an operation on the word at `addr` whose result the peer's answer stores at `reply`.
///
/// # Safety
/// The endpoint is valid, and leads to this peer with this ready ring, so that its worker is in single-thread mode;
/// `reply` has as many bytes as the word until the request completes.
#[inline(always)]
unsafe fn send_fetch(
    ep: *const Endpoint,
    (peer, ring): (&Peer, &mut RingSender),
    head: AmoHdr,
    (addr, reply): (u64, *mut c_void),
    p: &Param,
) -> Option<ucs_status_ptr_t> {
    // SAFETY: the caller's endpoint, whose worker outlives it. The request is new, and complete when it gets an id.
    unsafe {
        let ids = &(*ep).worker.get().ids;
        let req = request_of(ep, p)?;
        let r = &mut *req;
        r.data = Data::Contig {
            ptr: reply.cast(),
            len: head.size.into(),
        };
        (r.sent, r.payload) = (TxState::AwaitReply, TxPayload::HeaderOnly);
        r.msg.set(Kind::AmoReq, 0, addr, &[]);
        r.id = ids.alone().insert(req);
        let named = AmoHdr { req: r.id, ..head };
        if send_counted(peer, ring, Kind::AmoReq, addr, &named.encode()) {
            return Some(Request::handle(req));
        }
        request::clear_wire_id(ids, req);
        request_alloc::recycle(req);
        None
    }
}
