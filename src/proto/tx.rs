//! The way out: requests become messages in a peer's ring, or wait for room there.

use super::info;
use super::select::FRAGMENT;
use crate::ctypes::*;
use crate::engine::datatype::Data;
use crate::engine::peer::{Peer, Tx};
use crate::engine::request::{self, Notify, Request, Sent};
use crate::engine::worker::Worker;
use crate::sys::lock::MtGuard;
use crate::sys::log;
use crate::tl::Lane;
use crate::tl::shm::outbox::Outbox;
use crate::tl::shm::ring::INLINE;
use crate::tl::tcp::sender::Sender;
use crate::wire::header::{self, AmoHdr, DataHdr, Kind};
use crate::wire::stats::Protocol;
use std::io::ErrorKind;
use std::sync::atomic::Ordering;

/// What became of a posted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// Every message of it is in the ring. The request is the caller's, unless its `sent` says
    /// that the peer answers.
    Done,
    /// It waits in the peer's queue.
    Queued,
    /// The peer cannot be reached. The request is the caller's.
    Failed(ucs_status_t),
}

/// Sends a request's messages, behind those that wait already.
///
/// # Safety
/// The request is complete in all fields and in no queue.
pub unsafe fn post(req: *mut Request) -> Posted {
    // SAFETY: the request is ours.
    let (peer, mut tx) = unsafe { queue_of(req) };
    if peer.status() != UCS_OK {
        return Posted::Failed(peer.status());
    }
    // SAFETY: the request is ours.
    if unsafe { (*req).sent } == Sent::Await {
        // SAFETY: it is complete, and was never posted before.
        unsafe { ask(req) };
    }
    if tx.pending.is_empty() {
        // SAFETY: the request is ours.
        match unsafe { advance(peer, &mut tx, req) } {
            Ok(true) => {
                // SAFETY: the request is ours.
                tally(peer, unsafe { &*req });
                return Posted::Done;
            }
            Ok(false) => {}
            Err(status) => {
                // SAFETY: nothing of it was sent. Before the lock is given up, or the loss would end it, too.
                unsafe { take_back(req) };
                drop(tx);
                lose(peer, status);
                return Posted::Failed(status);
            }
        }
    }
    enqueue(peer, &mut tx, req);
    Posted::Queued
}

/// The queue of a request's peer, or of who has taken that peer's place: its peer from now on.
///
/// # Safety
/// The request is in no queue.
pub unsafe fn queue_of<'a>(req: *mut Request) -> (&'a Peer, MtGuard<'a, Tx>) {
    // SAFETY: peers live as long as the worker, placeholders as long as the endpoint that the request was made for.
    let mut peer: &Peer = unsafe { &*(*req).peer };
    let mut tx = peer.tx.lock();
    while let Some(successor) = peer.successor() {
        drop(tx);
        // SAFETY: the request is ours.
        unsafe { (*req).peer = successor };
        peer = successor;
        tx = peer.tx.lock();
    }
    (peer, tx)
}

/// Names a request in its message. The peer's lock is held: whoever sees to a loss finds it named and queued, or not at
/// all.
unsafe fn ask(req: *mut Request) {
    // SAFETY: the caller's request; requests do not outlive their worker.
    unsafe {
        let id = request::name(&*(*req).worker, req);
        header::set_request(&mut (*req).head, id);
    }
}

/// Takes the name back of a request that was not sent.
unsafe fn take_back(req: *mut Request) {
    // SAFETY: as above.
    unsafe {
        if (*req).id != 0 {
            request::unname(&*(*req).worker, req);
        }
    }
}

/// Puts a request at the end of a peer's queue.
pub fn enqueue(peer: &Peer, tx: &mut Tx, req: *mut Request) {
    tx.pending.push_back(req);
    // SAFETY: peers do not outlive their worker.
    let worker = unsafe { &*peer.worker };
    worker.backlog.fetch_add(1, Ordering::Relaxed);
    peer.stats().set_pending(tx.pending.len());
    if !tx.listed {
        tx.listed = true;
        worker.busy.lock().push_back(peer);
        worker.nudge();
    }
}

/// Takes a request back that was queued last, if it has not begun. True if it was there.
///
/// # Safety
/// `req` was queued on `peer`.
pub unsafe fn unqueue(peer: &Peer, req: *mut Request) -> bool {
    let mut tx = peer.tx.lock();
    // SAFETY: a queued request lives. What has begun has an offset.
    let found = tx
        .pending
        .iter()
        .rposition(|&r| r == req && unsafe { (*r).offset } == 0);
    if let Some(i) = found {
        tx.pending.remove(i);
        // SAFETY: it lives, and nothing of it was sent.
        unsafe { take_back(req) };
        peer.stats().set_pending(tx.pending.len());
        // SAFETY: as in `enqueue`.
        unsafe { &*peer.worker }
            .backlog
            .fetch_sub(1, Ordering::Relaxed);
    }
    found.is_some()
}

/// Sends a message of the library's own: `kind`, `aux` and `imm` as `wire::header` says, `head`
/// its fixed header. If there is no room a request is made for it.
pub fn control(peer: &Peer, kind: Kind, aux: u8, imm: u64, head: &[u8]) {
    // SAFETY: peers do not outlive their worker; the request is filled in before it is posted.
    unsafe {
        let req = request::take(&*peer.worker, std::ptr::null_mut());
        let r = &mut *req;
        set_message(r, kind, aux, imm, head);
        r.peer = peer;
        r.notify = Notify::Internal(request::discard);
        if !matches!(post(req), Posted::Queued) {
            request::put(req);
        }
    }
}

/// Fills in what goes in front of a request's data.
#[inline]
pub fn set_message(r: &mut Request, kind: Kind, aux: u8, imm: u64, head: &[u8]) {
    r.kind = kind as u8;
    r.aux = aux;
    r.imm = imm;
    r.head_len = head.len() as u8;
    r.head[..head.len()].copy_from_slice(head);
}

/// Moves a request on as far as there is room; true when all of it has been sent.
unsafe fn advance(peer: &Peer, tx: &mut Tx, req: *mut Request) -> Result<bool, ucs_status_t> {
    // SAFETY: the caller's request.
    let r = unsafe { &mut *req };
    if tx.lane.is_none() && !connect(peer, tx)? {
        return Ok(false);
    }
    let Some(lane) = tx.lane.as_mut() else {
        return Ok(false);
    };
    if r.sent == Sent::Flush {
        return Ok(lane.is_drained());
    }
    // Counted before: the answer can be faster than this thread.
    let counted = matches!(r.kind, GET | AMO);
    if counted {
        peer.rma_sent.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the request's data is the user's promise.
    let sent = unsafe {
        match lane {
            Lane::Shm(outbox) if r.stream => send_parts(peer, outbox, r),
            Lane::Shm(outbox) => send_whole(outbox, r),
            Lane::Tcp(sender) if r.stream => Ok(tcp_parts(peer, sender, r)),
            Lane::Tcp(sender) => Ok(tcp_whole(sender, r)),
        }
    };
    if counted && !matches!(sent, Ok(true)) {
        peer.rma_sent.fetch_sub(1, Ordering::Relaxed);
    }
    sent.map_err(|_| {
        log::error!("peer {:#x} corrupted the shared ring to it", peer.uid);
        UCS_ERR_CONNECTION_RESET
    })
}

/// Counts what the user asked for once all of it has been sent. A rendezvous counts when it is known
/// how the data went, a put or get of the user's here.
fn tally(peer: &Peer, r: &Request) {
    let len = r.data.len();
    let (protocol, bytes) = match Kind::from_u8(r.kind) {
        Some(Kind::TagEager | Kind::TagSync | Kind::AmEager) => {
            let body = len + r.tail_len as usize;
            let short = body + r.head_len as usize <= INLINE;
            (
                if short {
                    Protocol::Short
                } else {
                    Protocol::Eager
                },
                body,
            )
        }
        Some(Kind::StreamData) => (Protocol::Stream, len),
        Some(Kind::Data) => (Protocol::RndvMessages, len),
        Some(Kind::PutReq | Kind::GetReq) => (Protocol::RmaMessages, len),
        Some(Kind::AmoReq) => {
            let size = AmoHdr::decode(&r.head).map_or(0, |head| head.size.into());
            (Protocol::AmoMessages, size)
        }
        _ => return,
    };
    peer.stats().of(protocol).add(bytes);
}

/// One message: header, data, tail.
unsafe fn send_whole(
    outbox: &mut Outbox,
    r: &Request,
) -> Result<bool, crate::tl::shm::ring::Corrupt> {
    outbox.send(r.kind, r.aux, r.imm, whole_len(r), |dst| {
        // SAFETY: the record has room for the three parts.
        unsafe { write_whole(r, dst) }
    })
}

fn whole_len(r: &Request) -> usize {
    let len = if r.bare { 0 } else { r.data.len() };
    r.head_len as usize + len + r.tail_len as usize
}

unsafe fn write_whole(r: &Request, dst: *mut u8) {
    let len = if r.bare { 0 } else { r.data.len() };
    let (head, tail) = (r.head_len as usize, r.tail_len as usize);
    // SAFETY: the caller has room for the three parts.
    unsafe {
        dst.copy_from_nonoverlapping(r.head.as_ptr(), head);
        r.data.pack(0, dst.add(head), len);
        if tail > 0 {
            dst.add(head + len).copy_from_nonoverlapping(r.tail, tail);
        }
    }
}

/// From this size on data is given to the socket where it lies, bytes.
fn in_place(r: &Request) -> usize {
    // SAFETY: requests do not outlive their worker.
    unsafe { &*r.worker }.ctx.policy.zcopy_thresh
}

/// Longest part of a longer message that goes through a socket in one piece, bytes.
const TCP_PART: usize = 1 << 20;

/// One message through a socket.
unsafe fn tcp_whole(sender: &mut Sender, r: &Request) -> bool {
    let len = whole_len(r);
    match r.data.as_contig() {
        Some(data) if !r.bare && r.data.len() >= in_place(r) => {
            // SAFETY: the user's data and header.
            let (data, tail) = unsafe {
                let tail = if r.tail_len > 0 {
                    r.tail
                } else {
                    data.cast_const()
                };
                (
                    std::slice::from_raw_parts(data, r.data.len()),
                    std::slice::from_raw_parts(tail, r.tail_len as usize),
                )
            };
            let head = &r.head[..r.head_len as usize];
            sender.send_parts(r.kind, r.aux, r.imm, [head, data, tail])
        }
        // SAFETY: the record has room for the three parts.
        _ => sender.send(r.kind, r.aux, r.imm, len, |dst| unsafe {
            write_whole(r, dst)
        }),
    }
}

/// Messages through a socket: long ones from the user's memory, if that is one piece.
unsafe fn tcp_parts(peer: &Peer, sender: &mut Sender, r: &mut Request) -> bool {
    let total = r.data.len();
    loop {
        if sender.is_midway() {
            sender.flush();
            if sender.is_midway() {
                return false;
            }
        }
        let offset = r.offset as usize;
        if offset > 0 && offset >= total {
            return true;
        }
        // SAFETY: the request's data is the user's promise until it ends; what ends it early settles first.
        let Some(n) = (unsafe { tcp_part(sender, r, offset, total - offset) }) else {
            return false;
        };
        if r.kind == PUT {
            peer.rma_sent.fetch_add(1, Ordering::Relaxed);
        }
        r.offset += n as u64;
        if r.offset as usize >= total && !sender.is_midway() {
            return true;
        }
    }
}

/// One part: how many bytes it has, if there was room.
unsafe fn tcp_part(sender: &mut Sender, r: &Request, offset: usize, left: usize) -> Option<usize> {
    let head = DataHdr { offset: r.offset }.encode();
    let (imm, head) = part_head(r, &head);
    let in_place = r.data.as_contig().filter(|_| left >= in_place(r));
    if let Some(data) = in_place {
        let max = if r.kind == STREAM { FRAGMENT } else { TCP_PART };
        let n = max.min(left);
        // SAFETY: inside the user's data.
        let sent = unsafe {
            let payload = std::slice::from_raw_parts(data.add(offset), n);
            if r.kind == STREAM {
                sender.send_parts(r.kind, r.aux, imm, [head, payload, &[]])
            } else {
                sender.send_in_place(r.kind, r.aux, imm, head, payload)
            }
        };
        return sent.then_some(n);
    }
    // Packing functions are called in order, each byte once: not before there is room.
    if !sender.has_room(FRAGMENT + DataHdr::SIZE) {
        return None;
    }
    // SAFETY: the range is inside the data.
    let part = unsafe { Part::cut(&r.data, offset, FRAGMENT.min(left)) };
    sender.send(r.kind, r.aux, imm, head.len() + part.len, |dst| {
        // SAFETY: the record has room for both; the range is inside the data.
        unsafe {
            dst.copy_from_nonoverlapping(head.as_ptr(), head.len());
            part.write(&r.data, offset, dst.add(head.len()));
        }
    });
    Some(part.len)
}

const PUT: u8 = Kind::PutReq as u8;
const GET: u8 = Kind::GetReq as u8;
const AMO: u8 = Kind::AmoReq as u8;
const STREAM: u8 = Kind::StreamData as u8;

/// The immediate and the header of the next part. A put names the address in its immediate, a stream needs
/// no more than the order, the others name the offset in their header.
fn part_head<'a>(r: &Request, head: &'a [u8]) -> (u64, &'a [u8]) {
    match r.kind {
        PUT => (r.imm + r.offset, &[]),
        STREAM => (r.imm, &[]),
        _ => (r.imm, head),
    }
}

/// Messages of up to [`FRAGMENT`] bytes of data each.
unsafe fn send_parts(
    peer: &Peer,
    outbox: &mut Outbox,
    r: &mut Request,
) -> Result<bool, crate::tl::shm::ring::Corrupt> {
    let total = r.data.len();
    loop {
        let offset = r.offset as usize;
        // Packing functions are called in order, each byte once: not before there is room.
        if !outbox.has_room(FRAGMENT + DataHdr::SIZE)? {
            return Ok(false);
        }
        // SAFETY: the range is inside the data.
        let part = unsafe { Part::cut(&r.data, offset, FRAGMENT.min(total - offset)) };
        let head = DataHdr { offset: r.offset }.encode();
        let (imm, head) = part_head(r, &head);
        outbox.send(r.kind, r.aux, imm, head.len() + part.len, |dst| {
            // SAFETY: the record has room for both; the range is inside the data.
            unsafe {
                dst.copy_from_nonoverlapping(head.as_ptr(), head.len());
                part.write(&r.data, offset, dst.add(head.len()));
            }
        })?;
        if r.kind == PUT {
            peer.rma_sent.fetch_add(1, Ordering::Relaxed);
        }
        r.offset += part.len as u64;
        if r.offset as usize >= total {
            return Ok(true);
        }
    }
}

/// What goes into one message. The user's packing functions decide where a part ends: some (yaksa,
/// MPICH's) cannot cut an element, so that what they pack has to be known before room is taken.
struct Part {
    len: usize,
    packed: Vec<u8>,
}

impl Part {
    unsafe fn cut(data: &Data, offset: usize, max: usize) -> Part {
        let Data::Generic { .. } = data else {
            return Part {
                len: max,
                packed: Vec::new(),
            };
        };
        let mut packed = vec![0; max];
        // SAFETY: the buffer has room for `max`.
        let len = unsafe { data.pack_some(offset, packed.as_mut_ptr(), max) };
        Part { len, packed }
    }

    unsafe fn write(&self, data: &Data, offset: usize, dst: *mut u8) {
        // SAFETY: the caller has room for `len`.
        unsafe {
            if self.packed.is_empty() {
                data.pack(offset, dst, self.len);
            } else {
                dst.copy_from_nonoverlapping(self.packed.as_ptr(), self.len);
            }
        }
    }
}

/// Has a connection made to a peer that only one shows the end of: nothing need be sent first.
pub fn reach_out(peer: &Peer) {
    let mut tx = peer.tx.lock();
    if peer.target.is_some() && tx.lane.is_none() && !tx.dialing {
        tx.dialing = true;
        // SAFETY: peers do not outlive their worker.
        unsafe { &*peer.worker }.dial(peer);
    }
}

/// Takes a ring in the peer's inbox. False: all are taken, try again later.
#[cold]
fn connect(peer: &Peer, tx: &mut Tx) -> Result<bool, ucs_status_t> {
    // SAFETY: peers do not outlive their worker.
    let worker = unsafe { &*peer.worker };
    let (Some(inbox), Some(me)) = (peer.inbox, worker.as_sender()) else {
        if !tx.dialing {
            tx.dialing = true;
            worker.dial(peer);
        }
        return Ok(false);
    };
    match Outbox::open(inbox, &me) {
        Ok(outbox) => {
            tx.lane = Some(Lane::Shm(Box::new(outbox)));
            peer.note_traffic(worker);
            log_lanes(worker, peer);
            Ok(true)
        }
        Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            log::debug!("peer {:#x} (pid {}) is gone", peer.uid, inbox.id.pid);
            Err(UCS_ERR_CONNECTION_RESET)
        }
        Err(e) => {
            log::error!(
                "cannot open the shared memory of peer {:#x} (pid {}): {e}",
                peer.uid,
                inbox.id.pid
            );
            Err(UCS_ERR_UNREACHABLE)
        }
    }
}

/// Says which lanes serve a peer: to people, and to the statistics.
pub fn log_lanes(worker: &Worker, peer: &Peer) {
    let info::Lanes { messages, copies } = info::lanes(peer);
    peer.stats().set_lanes(&messages, &copies);
    log::info!(
        "{} {} ep_cfg: tag({messages} {copies}) rma({messages} {copies}) amo({messages}) am({messages} {copies})",
        worker.ctx.name,
        info::kind(worker, peer)
    );
    info::connected(worker, peer);
}

/// Gives up on a peer; progress sees to the consequences.
#[cold]
pub fn lose(peer: &Peer, status: ucs_status_t) {
    if peer.set_failed(status) {
        // SAFETY: peers do not outlive their worker.
        let worker = unsafe { &*peer.worker };
        worker.lost.lock().push(peer);
        // Release: pairs with the Acquire swap in `chores`.
        worker.chores.store(true, Ordering::Release);
        worker.nudge();
    }
}

/// Requests of one peer that are sent under one lock.
const BATCH: usize = 16;

/// Moves what waits for room. Returns the number of requests that got somewhere.
#[cold]
pub fn progress_backlog(worker: &Worker) -> u32 {
    let mut count = 0;
    // Those that go on waiting are put back behind them.
    let peers = worker.busy.lock().len();
    for _ in 0..peers {
        let Some(peer) = worker.busy.lock().pop_front() else {
            break;
        };
        // SAFETY: peers live as long as the worker.
        count += progress_peer(worker, unsafe { &*peer });
    }
    count
}

fn progress_peer(worker: &Worker, peer: &Peer) -> u32 {
    let mut count = 0;
    cork(&mut peer.tx.lock(), true);
    loop {
        let mut ended = [std::ptr::null_mut(); BATCH];
        let mut tx = peer.tx.lock();
        let (n, verdict) = advance_some(peer, &mut tx, &mut ended);
        if n > 0 {
            peer.stats().set_pending(tx.pending.len());
            worker.backlog.fetch_sub(n, Ordering::Relaxed);
        }
        match verdict {
            Ok(false) => {
                cork(&mut tx, false);
                worker.busy.lock().push_back(peer);
            }
            Ok(true) if n < BATCH => {
                tx.listed = false;
                cork(&mut tx, false);
            }
            Ok(true) => {}
            Err(_) => tx.listed = false,
        }
        drop(tx);
        count += n as u32;
        for &req in &ended[..n] {
            // SAFETY: out of the queue: ours.
            unsafe { sent(req) };
        }
        match verdict {
            Ok(true) if n == BATCH => {}
            Ok(_) => return count,
            Err(status) => {
                lose(peer, status);
                return count + 1;
            }
        }
    }
}

/// Moves the first requests of a queue on and takes out those that have been sent: how many, and whether there was
/// room for all that were looked at.
fn advance_some(
    peer: &Peer,
    tx: &mut Tx,
    ended: &mut [*mut Request; BATCH],
) -> (usize, Result<bool, ucs_status_t>) {
    for (n, place) in ended.iter_mut().enumerate() {
        let Some(&req) = tx.pending.front() else {
            return (n, Ok(true));
        };
        // SAFETY: a queued request lives.
        match unsafe { advance(peer, tx, req) } {
            Ok(true) => {
                tx.pending.pop_front();
                // SAFETY: out of the queue: ours.
                tally(peer, unsafe { &*req });
                *place = req;
            }
            no => return (n, no),
        }
    }
    (BATCH, Ok(true))
}

/// Whether a descriptor of the worker's becomes ready when what waits in a peer's queue can go on: room in a socket, a
/// connection. Rings are looked at, nobody tells of room in them.
pub fn is_watched(peer: &Peer) -> bool {
    let tx = peer.tx.lock();
    let watched = match &tx.lane {
        Some(Lane::Tcp(sender)) => sender.is_watched(),
        Some(Lane::Shm(_)) => false,
        None => tx.dialing,
    };
    watched || tx.pending.is_empty()
}

/// Several messages go to a socket together.
fn cork(tx: &mut Tx, on: bool) {
    if let Some(Lane::Tcp(sender)) = tx.lane.as_mut() {
        if on { sender.cork() } else { sender.uncork() }
    }
}

/// A queued request has been sent.
unsafe fn sent(req: *mut Request) {
    // SAFETY: the caller's request.
    match unsafe { (*req).sent } {
        // SAFETY: in no queue any more.
        Sent::Complete => unsafe { request::complete(req, UCS_OK) },
        // SAFETY: as above.
        Sent::Flush => unsafe { super::flush::marker_sent(req) },
        Sent::Await => {}
    }
}
