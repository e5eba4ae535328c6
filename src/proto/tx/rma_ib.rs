//! RMA and atomics executed by the HCA. They are queued like messages, because a queue pair has to be connected and to
//! have room, and posted in their turn.
//!
//! Short data are copied through registered buffers: a put completes when its data are copied, a get when they have
//! arrived. Longer data are transferred in place (`zcopy`). A flush waits for all of it, as for everything that was
//! posted.

use super::{rma, zcopy};
use crate::ctypes::*;
use crate::engine::peer::{Peer, PeerTx};
use crate::engine::request::{Extra, Op, Request, RmaIb, TxState, Zcopy, ZcopyRole};
use crate::proto::cma::CmaDirection;
use crate::sys::regcache::Handle;
use crate::tl::Lane;
use crate::tl::ib::mr::IbMr;
use crate::tl::ib::rc::{AmoDesc, RemoteMem};
use crate::tl::ib::sender::IbSender;
use crate::wire::address::MAX_PORTS;
use crate::wire::header::AmoHdr;
use crate::wire::rkey::DeviceKeys;
use crate::wire::stats::StatProtocol;

/// Makes a request, whose data (contiguous, unless it is [in place](in_place)) and peer are set, RMA by the HCA.
pub fn set_rma_ib(r: &mut Request, direction: CmaDirection, addr: u64, keys: &DeviceKeys) {
    r.sent = TxState::Rma;
    r.op = Op::RmaIb(RmaIb {
        remote_addr: addr,
        rkeys: keys.keys,
        outstanding: 0,
        direction,
    });
    r.info.length = r.data.len();
}

/// Makes a request, whose data (the result buffer, or none) and peer are set, an atomic operation of the peer's HCA,
/// which has it ([`crate::proto::select::amo::path`]). False: there is no rkey for the port that executes it.
pub fn atomic(r: &mut Request, addr: u64, head: &AmoHdr, keys: &DeviceKeys) -> bool {
    let port = keys.atomics.port_mask.trailing_zeros() as usize;
    let Some(rkey) = keys.of_port(port) else {
        return false;
    };
    let (port_mask, fetch) = (keys.atomics.port_mask, head.fetch != 0);
    let op = Op::AmoIb {
        rkey,
        port_mask,
        fetch,
    };
    rma::set_atomic(r, addr, head, op);
    true
}

/// The HCA operation for an atomic operation, if HCAs have it.
pub fn step(head: &AmoHdr) -> Option<AmoDesc> {
    const ADD: u32 = ucp_atomic_op_t::UCP_ATOMIC_OP_ADD as u32;
    const CSWAP: u32 = ucp_atomic_op_t::UCP_ATOMIC_OP_CSWAP as u32;
    match (head.size, head.op.into()) {
        (8, ADD) => Some(AmoDesc::Add(head.value)),
        (8, CSWAP) => Some(AmoDesc::CompareSwap {
            compare: head.compare,
            swap: head.value,
        }),
        _ => None,
    }
}

/// The rkey for a port of the peer, of those of all ports.
fn of_port(rkeys: &[u32; MAX_PORTS], port: usize) -> Option<u32> {
    rkeys.get(port).copied().filter(|&rkey| rkey != 0)
}

/// Writes data that fit into one registered buffer, if that is possible now. False: nothing was done.
///
/// # Safety
/// `len` bytes are readable at `data`.
pub unsafe fn write_now(
    peer: &Peer,
    keys: &DeviceKeys,
    addr: u64,
    data: *const u8,
    len: usize,
) -> bool {
    let mut tx = peer.tx.lock();
    let Some(key) = key_of(&tx, keys, len) else {
        return false;
    };
    let Some(Lane::Ib(sender)) = tx.lane.as_mut() else {
        return false;
    };
    // SAFETY: `data` has `len` bytes.
    let fill = |to: *mut u8, n: usize| unsafe { to.copy_from_nonoverlapping(data, n) };
    let written = sender.write(RemoteMem { addr, key }, len, fill) == len;
    if written {
        peer.stats().of(StatProtocol::RmaCopy).add(len);
    }
    written
}

/// [`write_now`] with an immediate.
///
/// # Safety
/// `len` bytes are readable at `data`.
pub unsafe fn write_with_imm(
    peer: &Peer,
    keys: &DeviceKeys,
    (addr, word): (u64, u32),
    data: *const u8,
    len: usize,
) -> bool {
    let mut tx = peer.tx.lock();
    let Some(key) = key_of(&tx, keys, len) else {
        return false;
    };
    let Some(Lane::Ib(sender)) = tx.lane.as_mut() else {
        return false;
    };
    // SAFETY: `data` has `len` bytes.
    let fill = |to: *mut u8| unsafe { to.copy_from_nonoverlapping(data, len) };
    sender.write_with_imm(RemoteMem { addr, key }, len, word, fill)
}

/// Posts a put in place in one work request with an immediate. False: it has to wait, or needs more than one.
///
/// # Safety
/// The request is complete in all fields, in no queue, and was made RMA by the HCA.
pub unsafe fn post_zcopy_with_imm(req: *mut Request, word: u32) -> bool {
    // SAFETY: the caller's request is valid, and no other thread uses it.
    let (peer, mut tx) = unsafe { super::queue_of(req) };
    let tx = &mut *tx;
    match tx.lane.as_mut() {
        Some(Lane::Ib(sender)) if tx.pending.is_empty() && sender.is_connected() => {
            // SAFETY: the caller's request; the peer's lock is held.
            peer.status() == UCS_OK && unsafe { zcopy::post_with_imm(peer, sender, req, word) }
        }
        _ => false,
    }
}

/// The key for accesses of `len` bytes that can be posted now.
pub fn key_now(peer: &Peer, keys: &DeviceKeys, len: usize) -> Option<u32> {
    key_of(&peer.tx.lock(), keys, len)
}

#[inline(always)]
fn key_of(tx: &PeerTx, keys: &DeviceKeys, len: usize) -> Option<u32> {
    match &tx.lane {
        Some(Lane::Ib(sender)) if tx.pending.is_empty() && len <= sender.most_at_once() => {
            keys.of_port(sender.remote_port())
        }
        _ => None,
    }
}

/// Gets into the contiguous memory of a request that fits into one registered buffer. False: it has to wait.
///
/// # Safety
/// The request is new, and its data and peer are set.
pub unsafe fn read_now(peer: &Peer, req: *mut Request, addr: u64, key: u32) -> bool {
    let mut tx = peer.tx.lock();
    // SAFETY: the caller's request is valid, and no other thread uses it.
    let r = unsafe { &mut *req };
    let (Some(Lane::Ib(sender)), Some(data)) = (tx.lane.as_mut(), r.data.as_contig()) else {
        return false;
    };
    let len = r.data.len();
    (r.sent, r.op, r.info.length) = (TxState::AwaitReply, Op::SinglePost, len);
    let read = sender.read(RemoteMem { addr, key }, data, len, Request::token(req)) == len;
    if read {
        peer.stats().of(StatProtocol::RmaCopy).add(len);
    }
    read
}

/// Makes RMA in place: the user's memory is registered.
pub fn in_place(r: &mut Request, memory: Vec<Handle<IbMr>>) {
    let Op::RmaIb(rma) = &r.op else { return };
    let mut transfer = Zcopy::new(memory, ZcopyRole::Access, rma.remote_addr);
    transfer.rkeys = rma.rkeys;
    r.extra = Some(Box::new(Extra::Transfer(transfer)));
}

/// Posts as much of a request as there is room for; true when that was all of it. `None`: the lane cannot execute it.
///
/// # Safety
/// The user's memory is valid until the request completes.
pub(super) unsafe fn advance(
    peer: &Peer,
    sender: &mut IbSender,
    req: *mut Request,
) -> Option<bool> {
    // SAFETY: the caller's request is valid, and no other thread uses it.
    let r = unsafe { &mut *req };
    if let Some(t) = r.transfer() {
        let key = if sender.is_connected() {
            Some(of_port(&t.rkeys, sender.remote_port())?)
        } else if sender.zcopy_capable() {
            None
        } else {
            return None;
        };
        // SAFETY: the user's memory is valid until the request completes.
        return unsafe { zcopy::advance(peer, sender, req, key) };
    }
    let op = match &mut r.op {
        Op::RmaIb(op) if sender.is_connected() => op,
        Op::AmoIb { .. } => return post_atomic(peer, sender, r),
        _ => return None,
    };
    let key = of_port(&op.rkeys, sender.remote_port())?;
    let (data, len) = (r.data.as_contig()?, r.data.len());
    let writes = op.direction == CmaDirection::Write;
    while (r.offset as usize) < len {
        let (at, left) = (r.offset as usize, len - r.offset as usize);
        let remote = RemoteMem {
            addr: op.remote_addr.wrapping_add(r.offset),
            key,
        };
        // SAFETY: the range is inside the user's memory.
        let n = unsafe {
            let here = data.add(at);
            if writes {
                sender.write(remote, left, |to, n| to.copy_from_nonoverlapping(here, n))
            } else {
                sender.read(remote, here, left, Request::token(req))
            }
        };
        if n == 0 {
            return Some(false);
        }
        r.offset += n as u64;
        op.outstanding += u32::from(!writes);
    }
    peer.stats().of(StatProtocol::RmaCopy).add(len);
    // The completion of a get is reported by the HCA.
    r.sent = if writes {
        TxState::Complete
    } else {
        TxState::AwaitReply
    };
    Some(true)
}

/// [`advance`] for an atomic operation.
fn post_atomic(peer: &Peer, sender: &mut IbSender, r: &mut Request) -> Option<bool> {
    let Op::AmoIb {
        rkey,
        port_mask,
        fetch,
    } = r.op
    else {
        return None;
    };
    let step = AmoHdr::decode(r.msg.head()).as_ref().and_then(step)?;
    // Only one HCA of the peer executes it, which this connection may not reach.
    let is_behind = port_mask >> sender.remote_port() & 1 == 1;
    if !is_behind || !sender.has_atomics() {
        return None;
    }
    let at = RemoteMem {
        addr: r.msg.imm,
        key: rkey,
    };
    let result = if fetch {
        r.data.as_contig()?
    } else {
        std::ptr::null_mut()
    };
    let owner: *mut Request = r;
    if !sender.atomic(step, at, result, Request::token(owner)) {
        return Some(false);
    }
    rma::atomic_posted(peer, r, size_of::<u64>());
    Some(true)
}
