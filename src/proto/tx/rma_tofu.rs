//! RMA and AMO that TNIs of the Tofu interconnect execute: queued like messages, because a ring has to be granted
//! first, and posted in order. Puts use the VCQ of messages, and are ordered with them.

use super::{rma, zcopy};
use crate::engine::peer::{Peer, PeerTx};
use crate::engine::regions::RegionTable;
use crate::engine::request::{Extra, Op, Request, RmaTofu, TxState, Zcopy, ZcopyRole, ZcopyState};
use crate::engine::worker::Worker;
use crate::proto::cma::CmaDirection;
use crate::sys::regcache::Handle;
use crate::tl::Lane;
use crate::tl::tofu::amo::TofuAmo;
use crate::tl::tofu::mr::TofuMr;
use crate::tl::tofu::registration::TofuRegistrar;
use crate::tl::tofu::rma::TofuRma;
use crate::tl::tofu::sender::TofuSender;
use crate::tl::tofu::stripe::{RailShare, TofuZcopy};
use crate::wire::header::{AmoHdr, Kind, NoteHdr};
use crate::wire::stats::StatProtocol;

/// Makes a request, whose data (contiguous) and peer are set, a put or get of the TNI.
pub fn set_rma_tofu(r: &mut Request, direction: CmaDirection, addr: u64, stadd: u64) {
    r.sent = TxState::Rma;
    r.op = Op::RmaTofu(RmaTofu {
        remote_addr: addr,
        stadd,
        outstanding: 0,
        direction,
    });
    r.info.length = r.data.len();
}

/// Makes a request, whose data (the reply buffer, if there is one) and peer are set, an atomic operation of the TNI,
/// which has it ([`crate::proto::select::amo::path`]).
pub fn atomic(r: &mut Request, addr: u64, head: &AmoHdr, stadd: u64) {
    let fetch = head.fetch != 0;
    rma::set_atomic(r, addr, head, Op::AmoTofu { stadd, fetch });
}

/// The sender to a peer, if no request is pending.
fn sender_now(tx: &mut PeerTx) -> Option<&mut TofuSender> {
    match tx.lane.as_mut() {
        Some(Lane::Tofu(sender)) if tx.pending.is_empty() => Some(sender),
        _ => None,
    }
}

/// Posts a non-fetching operation at once. False: it has to wait.
pub fn change_now(peer: &Peer, step: TofuAmo, stadd: u64) -> bool {
    let mut tx = peer.tx.lock();
    let sender = sender_now(&mut tx);
    let posted = sender.is_some_and(|sender| sender.change(step, stadd, None));
    if posted {
        peer.stats()
            .of(StatProtocol::AmoMapped)
            .add(step.width.bytes());
    }
    posted
}

/// Posts a fetching operation at once; the fetched value goes to the request's data. False: it has to wait, and the
/// request remains the caller's.
///
/// # Safety
/// The request is new, complete in all fields, and has room for the fetched value.
pub unsafe fn fetch_now(peer: &Peer, req: *mut Request, step: TofuAmo, stadd: u64) -> bool {
    let mut tx = peer.tx.lock();
    // SAFETY: the caller's request.
    let into = unsafe { &*req }.data.as_contig();
    let (Some(sender), Some(into)) = (sender_now(&mut tx), into) else {
        return false;
    };
    let posted = sender.change(step, stadd, Some((into, Request::token(req))));
    if posted {
        peer.stats()
            .of(StatProtocol::AmoMapped)
            .add(step.width.bytes());
    }
    posted
}

/// Posts an atomic operation. False: no room now; `None`: TNIs have no such operation.
fn post_atomic(peer: &Peer, sender: &mut TofuSender, r: &mut Request) -> Option<bool> {
    let Op::AmoTofu { stadd, fetch } = r.op else {
        return None;
    };
    let head = AmoHdr::decode(r.msg.head())?;
    let step = TofuAmo::new(head.op, head.size, head.value, head.compare)?;
    let owner: *mut Request = r;
    let reply = if fetch {
        Some((r.data.as_contig()?, Request::token(owner)))
    } else {
        None
    };
    let posted = sender.change(step, stadd, reply);
    if posted {
        rma::atomic_posted(peer, r, step.width.bytes());
    }
    Some(posted)
}

/// Registers user memory for the VCQs of a worker; `None` if it has none.
pub fn registrar(worker: &Worker) -> Option<TofuRegistrar<'_, RegionTable>> {
    let tofu = worker.tl.tofu.as_ref()?;
    Some(TofuRegistrar {
        iface: &tofu.iface,
        options: &worker.ctx.options,
        regions: &worker.ctx.regions,
    })
}

/// Makes the TNI access the request's registered memory directly (zcopy). Rails move their shares.
pub fn in_place(r: &mut Request, memory: Handle<TofuMr>, shares: Vec<RailShare>) {
    let Op::RmaTofu(rma) = &r.op else { return };
    let stadd = rma.stadd;
    set_transfer(r, ZcopyRole::Access, stadd, memory, shares);
}

/// Makes a receive a zcopy get from the sender's memory. Rails move their shares.
pub fn fetch(r: &mut Request, stadd: u64, memory: Handle<TofuMr>, shares: Vec<RailShare>) {
    (r.sent, r.offset) = (TxState::Rma, 0);
    set_transfer(r, ZcopyRole::Fetch, stadd, memory, shares);
}

/// Makes a request a transfer between registered memory and the peer's, of which rails move their shares.
fn set_transfer(
    r: &mut Request,
    role: ZcopyRole,
    stadd: u64,
    memory: Handle<TofuMr>,
    shares: Vec<RailShare>,
) {
    let mut transfer = Zcopy::new(Vec::new(), role, stadd);
    transfer.tl.tofu = TofuZcopy {
        memory: Some(memory),
        shares,
    };
    r.extra = Some(Box::new(Extra::Transfer(transfer)));
}

/// Posts a put at once. False: it has to wait, or one operation cannot carry it.
///
/// # Safety
/// `len` bytes are readable at `data`.
pub unsafe fn write_now(peer: &Peer, stadd: u64, data: *const u8, len: usize) -> bool {
    let mut tx = peer.tx.lock();
    let sender = sender_now(&mut tx);
    // SAFETY: the caller's bytes.
    let written = sender.is_some_and(|sender| unsafe { sender.put_once(stadd, data, len) });
    if written {
        peer.stats().of(StatProtocol::RmaCopy).add(len);
    }
    written
}

/// Posts a put at once, and behind it a NOTE message for a completion queue. `None`: the put has to wait, or one
/// operation cannot carry it; false: the put is posted, and the message has to wait. The caller counts the put.
///
/// # Safety
/// `note.len` bytes are readable at `data`.
pub unsafe fn write_with_imm(
    peer: &Peer,
    stadd: u64,
    data: *const u8,
    (cq, value, note): (u8, u64, NoteHdr),
) -> Option<bool> {
    let mut tx = peer.tx.lock();
    let sender = sender_now(&mut tx)?;
    // SAFETY: the caller's bytes.
    unsafe { sender.put_once(stadd, data, note.len as usize) }.then(|| {
        let noted = sender.send(Kind::Note as u8, cq, value, NoteHdr::SIZE, |to| {
            // SAFETY: the frame has room for the header of a NOTE.
            unsafe { to.cast::<[u8; NoteHdr::SIZE]>().write(note.encode()) };
        });
        if noted {
            peer.stats().of(StatProtocol::Short).add(0);
        }
        noted
    })
}

/// Posts as much of a request as there is room for. True: all of it; `None`: it cannot be posted on this lane.
///
/// # Safety
/// The request lives, and the user keeps its memory until it completes.
pub(super) unsafe fn advance(
    peer: &Peer,
    sender: &mut TofuSender,
    req: *mut Request,
) -> Option<bool> {
    // SAFETY: the caller's request.
    let r = unsafe { &mut *req };
    if let Op::AmoTofu { .. } = r.op {
        return post_atomic(peer, sender, r);
    }
    let (data, len) = (r.data.as_contig()?, r.data.len());
    if r.transfer().is_some() {
        // SAFETY: the caller's request, whose memory is `len` bytes at `data`.
        return unsafe { post_zcopy(peer, sender, req, data, zcopy::length(r)) };
    }
    let Op::RmaTofu(rma) = &mut r.op else {
        return None;
    };
    let writes = rma.direction == CmaDirection::Write;
    let part = TofuRma {
        writes,
        data,
        len,
        token: Request::token(req),
        there: rma.stadd,
        offset: &mut r.offset,
        outstanding: &mut rma.outstanding,
    };
    // SAFETY: the user keeps the request's memory.
    if !unsafe { sender.rma_bcopy(part) } {
        return Some(false);
    }
    peer.stats().of(StatProtocol::RmaCopy).add(len);
    // A notice completes a read.
    r.sent = if writes {
        TxState::Complete
    } else {
        TxState::AwaitReply
    };
    Some(true)
}

/// Posts as much of a zcopy request as there is room for. True: all of it; `None`: its memory is not registered.
///
/// # Safety
/// The request lives, and the user keeps its memory, `len` bytes at `data`, until it completes.
unsafe fn post_zcopy(
    peer: &Peer,
    sender: &mut TofuSender,
    req: *mut Request,
    data: *mut u8,
    len: usize,
) -> Option<bool> {
    // SAFETY: the caller's request.
    let r = unsafe { &mut *req };
    let writes = !r.is_read();
    let Some(Extra::Transfer(t)) = r.extra.as_deref_mut() else {
        return None;
    };
    let part = TofuRma {
        writes,
        data,
        len,
        token: Request::token(req),
        there: t.there,
        offset: &mut r.offset,
        outstanding: &mut t.in_flight,
    };
    // SAFETY: the user keeps the request's memory.
    if !unsafe { sender.rma_zcopy(part, &mut t.tl.tofu) }? {
        return Some(false);
    }
    // The sender of a fetched message counts it.
    if t.role == ZcopyRole::Access {
        peer.stats().of(StatProtocol::RmaCopy).add(len);
    }
    // Notices and TCQ entries complete the request.
    (t.fate, r.sent) = (ZcopyState::Posted, TxState::AwaitReply);
    Some(true)
}
