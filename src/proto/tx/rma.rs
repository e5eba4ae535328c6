//! Puts, gets and atomic operations by an adapter. They are queued like messages, because a lane has to be connected
//! and to have room, and posted in their turn.
//!
//! Short data are copied through buffers of the lane: a put completes when its data are copied, a get when they have
//! arrived. Longer data are transferred in place ([`zcopy`]). A flush waits for all of it, as for everything that was
//! posted.

use super::{list, rma_sw, set_message, zcopy};
use crate::ctypes::*;
use crate::engine::peer::{Peer, PeerTx};
use crate::engine::request::{Extra, Op, Request, Rma, TxPayload, TxState, Zcopy, ZcopyRole};
use crate::sys::cma::CmaDirection;
use crate::tl::amo::AmoOp;
use crate::tl::contract::RecordHdr;
use crate::tl::rma::{AmoKey, AmoPost, RmaKey, RmaPart};
use crate::tl::{Lane, LaneSender, TlRkey, TlZcopy, Token};
use crate::wire::header::{AmoHdr, Kind, NoteHdr};
use crate::wire::stats::StatProtocol;

/// Makes a request, whose data (contiguous, unless it is [in place](in_place)) and peer are set, a put or get by the
/// adapter of `key`.
#[inline]
pub fn set_rma(r: &mut Request, direction: CmaDirection, addr: u64, key: RmaKey) {
    r.sent = TxState::Rma;
    r.op = Op::Rma(Rma::new(direction, addr, key));
    r.info.length = r.data.len();
}

/// Makes the adapter access the request's memory directly (zcopy), with these registrations.
#[inline]
pub fn in_place(r: &mut Request, addr: u64, key: RmaKey, memory: TlZcopy) {
    let transfer = Zcopy::new(memory, ZcopyRole::Access, addr, key);
    r.extra = Some(Box::new(Extra::Transfer(transfer)));
}

/// Makes a request, whose data (the reply buffer, if there is one) and peer are set, an atomic operation of an adapter,
/// which has it ([`crate::proto::select::amo::path`]); it becomes a message if the lane does not reach that adapter.
pub fn set_atomic(r: &mut Request, addr: u64, head: &AmoHdr, key: AmoKey) {
    set_message(r, Kind::AmoReq, 0, addr, &head.encode());
    let fetch = head.fetch != 0;
    (r.sent, r.op) = (TxState::Rma, Op::Amo { key, fetch });
}

/// The lane of a peer, if no request is pending.
fn lane_now(tx: &mut PeerTx) -> Option<&mut Lane> {
    tx.lane.as_mut().filter(|_| tx.pending.is_empty())
}

/// Calls `post` with the peer's lane, if no request is pending and the lane is of this transport: a put of `len` bytes,
/// which are copied. False: nothing was done.
#[inline(always)]
pub fn put_now<S: LaneSender>(peer: &Peer, len: usize, post: impl FnOnce(&mut S) -> bool) -> bool {
    let mut tx = peer.tx.lock();
    let tx = &mut *tx;
    let posted = match S::of(&mut tx.lane) {
        Some(sender) if tx.pending.is_empty() => post(sender),
        _ => false,
    };
    if posted {
        peer.stats().of(StatProtocol::RmaCopy).add(len);
    }
    posted
}

/// Gets into the contiguous memory of a request by one operation, which `post` posts. False: it has to wait.
///
/// # Safety
/// The request is new, and its data and peer are set.
#[inline(never)]
pub unsafe fn get_now<S: LaneSender>(
    peer: &Peer,
    req: *mut Request,
    post: impl FnOnce(&mut S, *mut u8, Token) -> bool,
) -> bool {
    let mut tx = peer.tx.lock();
    // SAFETY: the caller's request is valid, and no other thread uses it.
    let r = unsafe { &mut *req };
    let (Some(sender), Some(into)) = (S::of(&mut tx.lane), r.data.as_contig()) else {
        return false;
    };
    let len = r.data.len();
    (r.sent, r.op, r.info.length) = (TxState::AwaitReply, Op::SinglePost, len);
    let posted = post(sender, into, Request::token(req));
    if posted {
        peer.stats().of(StatProtocol::RmaCopy).add(len);
    }
    posted
}

/// Whether no request is pending, and `is_possible` is true of the peer's lane, which is of this transport.
#[inline(never)]
pub fn is_possible<S: LaneSender>(peer: &Peer, is_possible: impl FnOnce(&S) -> bool) -> bool {
    let mut tx = peer.tx.lock();
    let tx = &mut *tx;
    tx.pending.is_empty() && S::of(&mut tx.lane).is_some_and(|sender| is_possible(sender))
}

/// A message for a completion queue.
pub struct Note {
    pub cq: u8,
    pub value: u64,
    pub hdr: NoteHdr,
    /// The same as an immediate, if it can be one.
    pub word: Option<u32>,
}

/// Posts a put at once, which reports its end to a completion queue of the peer: by an immediate, or a NOTE message
/// behind it. `None`: the put has to wait, or one operation cannot carry it; false: the put is posted, and the message
/// has to wait. The caller counts the put.
///
/// # Safety
/// `note.hdr.len` bytes are readable at `data`.
#[inline]
pub unsafe fn put_with_note(
    peer: &Peer,
    key: &TlRkey,
    data: *const u8,
    note: &Note,
) -> Option<bool> {
    let (to, len) = ((key, note.hdr.addr), note.hdr.len as usize);
    let mut tx = peer.tx.lock();
    let lane = lane_now(&mut tx)?;
    // SAFETY: the caller's bytes.
    unsafe {
        if let Some(word) = note.word
            && lane.put_with_imm(to, data, len, word)
        {
            return Some(true);
        }
        if !lane.orders_puts() || !lane.put_once(to, data, len) {
            return None;
        }
    }
    let hdr = RecordHdr {
        kind: Kind::Note as u8,
        aux: note.cq,
        imm: note.value,
    };
    let noted = lane.am_bcopy(hdr, NoteHdr::SIZE, |to| {
        // SAFETY: the record has room for the header of a NOTE.
        unsafe { to.cast::<[u8; NoteHdr::SIZE]>().write(note.hdr.encode()) };
    });
    let noted = noted == Ok(true);
    if noted {
        peer.stats().of(StatProtocol::Short).add(0);
    }
    Some(noted)
}

/// Posts a put of registered memory in one operation with an immediate. False: it has to wait, or needs more than one.
///
/// # Safety
/// The request is complete in all fields, in no queue, and was made a put by an adapter.
pub unsafe fn put_zcopy_with_imm(req: *mut Request, word: u32) -> bool {
    // SAFETY: the caller's request is valid, and no other thread uses it.
    let (peer, mut tx) = unsafe { super::queue_of(req) };
    let Some(lane) = lane_now(&mut tx).filter(|_| peer.status() == UCS_OK) else {
        return false;
    };
    // SAFETY: the caller's request; the peer's lock is held.
    unsafe { zcopy::post_with_imm(peer, lane, req, word) }
}

/// Called when an atomic operation was posted: from here on it is no message. Counted as mapped, because the target's
/// processor executes nothing.
fn atomic_posted(peer: &Peer, r: &mut Request, len: usize) {
    peer.stats().of(StatProtocol::AmoMapped).add(len);
    r.msg.drop_kind();
    r.sent = if r.is_read() {
        TxState::AwaitReply
    } else {
        TxState::Complete
    };
    r.op = Op::SinglePost;
}

/// Posts an atomic operation. False: no room now; `None`: the adapter of the lane does not execute it.
fn post_atomic(peer: &Peer, lane: &mut Lane, r: &mut Request) -> Option<bool> {
    let Op::Amo { key, fetch } = r.op else {
        return None;
    };
    let head = AmoHdr::decode(r.msg.head())?;
    let owner: *mut Request = r;
    let reply = if fetch {
        Some((r.data.as_contig()?, Request::token(owner)))
    } else {
        None
    };
    let posted = lane.atomic(AmoPost {
        addr: r.msg.imm,
        key,
        amo: AmoOp {
            op: head.op,
            size: head.size,
            value: head.value,
            compare: head.compare,
        },
        reply,
    })?;
    if posted {
        atomic_posted(peer, r, head.size.into());
    }
    Some(posted)
}

/// Posts as much of a request as there is room for. True: all of it; `None`: the lane cannot execute it.
///
/// # Safety
/// The request lives, and the user keeps its memory until it completes.
pub(super) unsafe fn advance(peer: &Peer, lane: &mut Lane, req: *mut Request) -> Option<bool> {
    // SAFETY: the caller's request is valid, and no other thread uses it.
    let r = unsafe { &mut *req };
    if let Op::Amo { .. } = r.op {
        return post_atomic(peer, lane, r);
    }
    if r.transfer().is_some() {
        // SAFETY: the caller's request.
        return unsafe { zcopy::advance(peer, lane, req) };
    }
    let Op::Rma(rma) = &mut r.op else {
        // SAFETY: the caller's request.
        return unsafe { list::advance(peer, lane, req) };
    };
    let (data, len) = (r.data.as_contig()?, r.data.len());
    let writes = rma.direction == CmaDirection::Write;
    let part = RmaPart {
        writes,
        data,
        len,
        token: Request::token(req),
        addr: rma.remote_addr,
        key: &rma.key(),
        offset: &mut r.offset,
        outstanding: &mut rma.outstanding,
    };
    // SAFETY: the user keeps the request's memory.
    if !unsafe { lane.rma_bcopy(part) }? {
        return Some(false);
    }
    peer.stats().of(StatProtocol::RmaCopy).add(len);
    // The lane reports the end of a get.
    r.sent = if writes {
        TxState::Complete
    } else {
        TxState::AwaitReply
    };
    Some(true)
}

/// Makes a request RMA or a rendezvous by messages, because no adapter can execute it.
pub(super) fn give_up(r: &mut Request) {
    if let Op::Amo { fetch, .. } = r.op {
        r.op = Op::Message;
        (r.sent, r.payload) = if fetch {
            (TxState::AwaitReply, TxPayload::HeaderOnly)
        } else {
            (TxState::Complete, TxPayload::Whole)
        };
        return;
    }
    match r.transfer().map(|t| t.role) {
        Some(ZcopyRole::Deliver) => return zcopy::fall_back_to_am(r, r.msg.imm),
        Some(ZcopyRole::Fetch) => return zcopy::rtr_am(r),
        _ => {}
    }
    r.extra = None;
    let Op::Rma(rma) = &r.op else { return };
    let (direction, addr) = (rma.direction, rma.remote_addr);
    // A part may have been read before an interface failed.
    (r.op, r.offset) = (Op::Message, 0);
    rma_sw::set_am(r, direction, addr);
}
