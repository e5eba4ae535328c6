//! Remote accesses that a device carries out: queued as messages are, because a queue pair has to be there and to have
//! room, and posted in their turn.
//!
//! Short data is copied through registered buffers: what is written has ended when it is copied, what is read when it
//! has come. Longer data is written and read in place (`zcopy`). A flush waits for all of it, as for everything that
//! was posted.

use super::{rma_sw, zcopy};
use crate::ctypes::*;
use crate::engine::ib_worker::IbConn;
use crate::engine::peer::{Peer, PeerTx};
use crate::engine::request::{self, Extra, Request, TxState, Zcopy, ZcopyRole, ZcopyState};
use crate::proto::cma::CmaDirection;
use crate::proto::flush;
use crate::sys::regcache::Handle;
use crate::tl::Lane;
use crate::tl::ib::mr::IbMr;
use crate::tl::ib::op_slots::OpKind;
use crate::tl::ib::rc::{AmoDesc, RemoteMem};
use crate::tl::ib::sender::IbSender;
use crate::wire::header::{AmoHdr, Kind};
use crate::wire::rkey::DeviceKeys;
use crate::wire::stats::StatProtocol;
use std::ffi::c_void;
use std::ptr;

/// Makes a request, whose data (one piece, if it is not worked on [in place](in_place)) and peer are set, an access of
/// the device's.
pub fn set_rma_ib(r: &mut Request, direction: CmaDirection, addr: u64, keys: &DeviceKeys) {
    (r.sent, r.imm, r.kind) = (TxState::Device, addr, 0);
    r.stream = direction == CmaDirection::Write;
    r.info.length = r.data.len();
    (r.offset, r.remote) = (0, 0);
    r.head_len = keys.count;
    for (to, key) in r.head.chunks_exact_mut(4).zip(keys.keys) {
        to.copy_from_slice(&key.to_le_bytes());
    }
}

/// Makes a request, whose data (where the result goes, or nothing) and peer are set, an atomic operation of the
/// device's. False: no device does such a one.
pub fn atomic(r: &mut Request, addr: u64, head: &AmoHdr, keys: &DeviceKeys) -> bool {
    let port = keys.atomics.ports.trailing_zeros() as usize;
    let (Some(key), Some(_)) = (keys.of_port(port), step(head)) else {
        return false;
    };
    set_atomic(
        r,
        addr,
        head,
        u64::from(key) << 8 | u64::from(keys.atomics.ports),
    );
    true
}

/// Makes a request an atomic operation that whoever has this key carries out, or a message if that is not how it is
/// reached.
pub(super) fn set_atomic(r: &mut Request, addr: u64, head: &AmoHdr, key: u64) {
    super::set_message(r, Kind::AmoReq, 0, addr, &head.encode());
    r.sent = TxState::Device;
    r.stream = head.fetch == 0;
    (r.offset, r.remote) = (0, 0);
    r.remote_id = key;
}

/// An atomic operation was posted: from here on it is no message. Who is in the peer's place does nothing, as where
/// memory is mapped.
pub(super) fn atomic_posted(peer: &Peer, r: &mut Request, len: usize) {
    peer.stats().of(StatProtocol::AmoMapped).add(len);
    r.kind = 0;
    r.sent = if r.stream {
        TxState::Complete
    } else {
        (r.offset, r.remote) = (r.data.len() as u64, 1);
        TxState::Await
    };
}

/// What devices can do of the operations, in one step.
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

pub(super) fn is_atomic(r: &Request) -> bool {
    r.kind == Kind::AmoReq as u8
}

/// The key of a request for a port of the peer's.
pub(super) fn key(r: &Request, port: usize) -> Option<u32> {
    let keys = r.head.chunks_exact(size_of::<u32>());
    let key = keys.take(r.head_len.into()).nth(port)?;
    Some(u32::from_le_bytes(*key.first_chunk()?))
}

/// Writes what fits into one buffer at once. False: it has to wait, or cannot be done this way.
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
    // SAFETY: the caller's bytes.
    let fill = |to: *mut u8, n: usize| unsafe { to.copy_from_nonoverlapping(data, n) };
    let written = sender.write(RemoteMem { addr, key }, len, fill) == len;
    if written {
        peer.stats().of(StatProtocol::RmaCopy).add(len);
    }
    written
}

/// As [`write_now`], with a word, which the peer gets behind the data.
///
/// # Safety
/// As there.
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
    // SAFETY: the caller's bytes.
    let fill = |to: *mut u8| unsafe { to.copy_from_nonoverlapping(data, len) };
    sender.write_with_imm(RemoteMem { addr, key }, len, word, fill)
}

/// Posts a put in the user's memory in one work request, and a word, which the peer gets behind the data. False: it has
/// to wait, or takes more than one.
///
/// # Safety
/// The request is complete in all fields, in no queue, and has been made one of a device's.
pub unsafe fn post_zcopy_with_imm(req: *mut Request, word: u32) -> bool {
    // SAFETY: the caller's request.
    let (peer, mut tx) = unsafe { super::queue_of(req) };
    let tx = &mut *tx;
    match tx.lane.as_mut() {
        Some(Lane::Ib(sender)) if tx.pending.is_empty() && sender.is_connected() => {
            // SAFETY: passed on.
            peer.status() == UCS_OK && unsafe { zcopy::post_with_imm(peer, sender, req, word) }
        }
        _ => false,
    }
}

/// The key for accesses of `len` bytes that need not wait, if that is how it is now.
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

/// Reads into the one piece of a request's data, which fits into one buffer. False: it has to wait.
///
/// # Safety
/// The request is new, and its data and peer are set.
pub unsafe fn read_now(peer: &Peer, req: *mut Request, addr: u64, key: u32) -> bool {
    let mut tx = peer.tx.lock();
    // SAFETY: the caller's request.
    let r = unsafe { &mut *req };
    let (Some(Lane::Ib(sender)), Some(data)) = (tx.lane.as_mut(), r.data.as_contig()) else {
        return false;
    };
    let len = r.data.len();
    (r.sent, r.offset, r.remote, r.info.length) = (TxState::Await, len as u64, 1, len);
    let read = sender.read(RemoteMem { addr, key }, data, len, req.cast()) == len;
    if read {
        peer.stats().of(StatProtocol::RmaCopy).add(len);
    }
    read
}

/// Lets an access work in the user's memory, which is registered.
pub fn in_place(r: &mut Request, memory: Vec<Handle<IbMr>>) {
    let transfer = Zcopy::new(memory, ZcopyRole::Access, r.imm);
    r.extra = Some(Box::new(Extra::Transfer(transfer)));
}

/// Makes it an access by message, or a rendezvous by messages: there is no queue pair that could do it.
pub(super) fn give_up(r: &mut Request) {
    if is_atomic(r) {
        let fetch = !r.stream;
        (r.stream, r.bare) = (false, fetch);
        r.sent = if fetch {
            TxState::Await
        } else {
            TxState::Complete
        };
        return;
    }
    match r.transfer().map(|t| t.role) {
        Some(ZcopyRole::Deliver) => return zcopy::fall_back_to_am(r),
        Some(ZcopyRole::Fetch) => return zcopy::rtr_am(r),
        _ => {}
    }
    r.extra = None;
    let direction = match r.stream {
        true => CmaDirection::Write,
        false => CmaDirection::Read,
    };
    r.stream = false;
    rma_sw::set_am(r, direction, r.imm);
}

/// Posts as much of a request as there is room for; true when that was all of it. `None`: it cannot be done this way.
///
/// # Safety
/// The request's memory is the user's promise until it ends.
pub(super) unsafe fn advance(
    peer: &Peer,
    sender: &mut IbSender,
    req: *mut Request,
) -> Option<bool> {
    // SAFETY: the caller's request.
    let r = unsafe { &mut *req };
    if is_atomic(r) {
        return post_atomic(peer, sender, r);
    }
    let key = match sender.is_connected() {
        true => Some(key(r, sender.remote_port())?),
        false if sender.zcopy_capable() => None,
        false => return None,
    };
    if r.transfer().is_some() {
        // SAFETY: the caller's promise.
        return unsafe { zcopy::advance(peer, sender, req, key) };
    }
    let key = key?;
    let (data, len) = (r.data.as_contig()?, r.data.len());
    while (r.offset as usize) < len {
        let (at, left) = (r.offset as usize, len - r.offset as usize);
        let remote = RemoteMem {
            addr: r.imm.wrapping_add(r.offset),
            key,
        };
        // SAFETY: inside of the user's memory.
        let n = unsafe {
            let here = data.add(at);
            match r.stream {
                true => sender.write(remote, left, |to, n| to.copy_from_nonoverlapping(here, n)),
                false => sender.read(remote, here, left, req.cast()),
            }
        };
        if n == 0 {
            return Some(false);
        }
        r.offset += n as u64;
        r.remote += u64::from(!r.stream);
    }
    peer.stats().of(StatProtocol::RmaCopy).add(len);
    // The end of a read is the device's to tell.
    r.sent = if r.stream {
        TxState::Complete
    } else {
        TxState::Await
    };
    Some(true)
}

/// As [`advance`], of an atomic operation.
fn post_atomic(peer: &Peer, sender: &mut IbSender, r: &mut Request) -> Option<bool> {
    let step = AmoHdr::decode(&r.head).as_ref().and_then(step)?;
    // Only one of the peer's devices does it, which may be behind other ports.
    let is_behind = r.remote_id >> sender.remote_port() & 1 == 1;
    if !is_behind || !sender.has_atomics() {
        return None;
    }
    let at = RemoteMem {
        addr: r.imm,
        key: (r.remote_id >> 8) as u32,
    };
    let result = match r.stream {
        true => std::ptr::null_mut(),
        false => r.data.as_contig()?,
    };
    let owner: *mut Request = r;
    if !sender.atomic(step, at, result, owner.cast()) {
        return Some(false);
    }
    atomic_posted(peer, r, size_of::<u64>());
    Some(true)
}

/// A send of this number has ended, and what is before it: ends the requests that waited for no more, and flushes.
#[inline(never)]
pub fn on_end(connection: &mut IbConn, number: u64) {
    if connection.reply_tx.is_some() {
        return on_end_behind(connection, number);
    }
    // SAFETY: peers that connections lead to are not freed, connections are.
    let mut tx = unsafe { &*connection.peer }.tx.lock();
    let Some(Lane::Ib(sender)) = tx.lane.as_mut() else {
        return;
    };
    let mut ends = EndedRequests::default();
    sender.ended(number, |owner| ends.add(owner));
    drop(tx);
    ends.finish();
}

/// As [`on_end`], in single-thread mode: nobody has to be remembered until a lock is free.
///
/// # Safety
/// In single-thread mode, and nobody up the stack has the peer's sending half.
#[inline(always)]
pub unsafe fn on_end_alone(connection: &mut IbConn, number: u64) {
    // SAFETY: peers that connections lead to are not freed, connections are. Who is told may change the lane: it is
    // looked for anew.
    let line = || match unsafe { (*connection.peer).tx.alone().lane.as_mut() } {
        Some(Lane::Ib(sender)) => sender.rc(),
        _ => None,
    };
    // What came through buffers is where it goes before anybody is told.
    if connection.reply_tx.is_some() || line().is_none_or(|line| line.has_descs()) {
        return on_end(connection, number);
    }
    if !line().is_some_and(|line| line.advance_completed(number)) {
        return;
    }
    while let Some(line) = line() {
        match line.next_completed() {
            // SAFETY: single-thread mode; who waits lives, and is in no list any more.
            Some(wait) if !wait.owner.is_null() => unsafe {
                end_wait(wait.what, wait.owner.cast())
            },
            Some(_) => {}
            None if line.has_flush_markers() => return let_go(connection),
            None => return,
        }
    }
}

/// Ends the request that had a place. In single-thread mode.
#[inline(always)]
unsafe fn end_wait(what: OpKind, req: *mut Request) {
    // SAFETY: the caller's request. What reads by a place, or has something done atomically, is the user's, and one
    // such work request is all of it.
    unsafe {
        match what {
            OpKind::Mark => flush::marker_sent(req),
            OpKind::Read | OpKind::Atomic => request::complete_receive::<false>(req, UCS_OK),
        }
    }
}

/// The rest of an end: those who wait for what is still under way.
#[inline(never)]
fn let_go(connection: &mut IbConn) {
    let mut ends = EndedRequests::default();
    connection.with_sender(|sender| {
        if let Some(line) = sender.rc() {
            line.complete_descs(&mut |owner| ends.add(owner));
        }
    });
    ends.finish();
}

/// The same where the half that sends is not the peer's way.
#[inline(never)]
fn on_end_behind(connection: &mut IbConn, number: u64) {
    let mut ends = EndedRequests::default();
    connection.with_sender(|sender| sender.ended(number, |owner| ends.add(owner)));
    ends.finish();
}

/// One of the reads that a request has posted has come.
///
/// # Safety
/// The request waits for it.
pub unsafe fn on_read(owner: *mut c_void) {
    let mut ends = EndedRequests::default();
    // SAFETY: the waiting request lives; its peer is not freed before it has ended.
    let peer = unsafe { &*(*owner.cast::<Request>()).peer };
    let tx = peer.tx.lock();
    ends.add(owner);
    drop(tx);
    ends.finish();
}

/// What a request has posted in its own memory has failed: the device has done with that. The request ends as its peer.
///
/// # Safety
/// As [`on_read`].
#[cold]
pub unsafe fn on_failed(owner: *mut c_void) {
    // SAFETY: the waiting request lives; its peer is not freed before it has ended.
    let peer = unsafe { &*(*owner.cast::<Request>()).peer };
    let tx = peer.tx.lock();
    let status = match peer.status() {
        UCS_OK => UCS_ERR_IO_ERROR,
        status => status,
    };
    // SAFETY: as above; the lock is held.
    if let Some(t) = unsafe { (*owner.cast::<Request>()).transfer_mut() }
        && matches!(t.fate, ZcopyState::Posted)
    {
        t.fate = ZcopyState::Ends(status);
    }
    drop(tx);
    // SAFETY: passed on.
    unsafe { on_read(owner) }
}

/// The same of a rail: the number of its interface, and of its queue pair.
pub fn on_rail_end(connection: &mut IbConn, (iface, qpn): (usize, u32), number: u64) {
    let mut ends = EndedRequests::default();
    connection.with_sender(|sender| {
        if let Some(rail) = sender.rails.of_queue(iface, qpn) {
            rail.line.ended(number, |owner| ends.add(owner));
            rail.works();
        }
    });
    ends.finish();
}

/// Requests that have ended, linked by `remote_id`, which none of them needs any more: they are told without the peer's
/// lock.
struct EndedRequests {
    first: *mut Request,
    last: *mut Request,
}

impl Default for EndedRequests {
    fn default() -> Self {
        EndedRequests {
            first: ptr::null_mut(),
            last: ptr::null_mut(),
        }
    }
}

impl EndedRequests {
    /// Something that this request waits for has come. The peer's lock is held.
    #[inline(always)]
    fn add(&mut self, owner: *mut c_void) {
        let req = owner.cast::<Request>();
        // SAFETY: who waits lives; the peer's lock is held, as where reads are posted.
        if !unsafe { has_ended(&mut *req) } {
            return;
        }
        if self.last.is_null() {
            self.first = req;
        } else {
            // SAFETY: as above.
            unsafe { (*self.last).remote_id = req as u64 };
        }
        self.last = req;
    }

    /// Tells them.
    #[inline(always)]
    fn finish(self) {
        let mut next = self.first;
        while !next.is_null() {
            // SAFETY: in no list any more: ours.
            unsafe {
                let req = next;
                next = (*req).remote_id as *mut Request;
                match (*req).sent {
                    TxState::Flush => flush::marker_sent(req),
                    // What has no extra and waits for a device has nothing to free.
                    _ if (*req).extra.is_none() => request::complete_plain(req, UCS_OK),
                    _ => zcopy::end(req),
                }
            }
        }
    }
}

/// Something that a request waits for has come; whether it was the last.
#[inline(always)]
fn has_ended(r: &mut Request) -> bool {
    r.remote_id = 0;
    if r.sent == TxState::Flush {
        return true;
    }
    if let Some(t) = r.transfer_mut() {
        return zcopy::wr_done(t);
    }
    r.remote -= 1;
    r.remote == 0 && r.offset as usize == r.data.len()
}
