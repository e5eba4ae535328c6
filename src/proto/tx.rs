//! Sending: requests become messages on a peer's lane, or wait in its pending queue.

mod am;
mod answer;
mod connect;
pub mod completion;
pub mod device_copy;
pub mod list;
pub mod peer_requests;
mod pending;
pub mod rma;
pub mod rma_sw;
pub mod zcopy;

use crate::ctypes::*;
use crate::engine::completion::discard;
use crate::engine::peer::{Peer, PeerTx};
use crate::engine::pointers::PeerRef;
use crate::engine::request::{self, Callback, Op, Request, TxState};
use crate::engine::request_alloc;
use crate::proto::answers;
use crate::proto::select::message;
use crate::sys::lock::MtGuard;
use crate::sys::log;
use crate::tl::contract::QpTransport;
use crate::tl::{Lane, RingSender};
use crate::wire::header::{self, AmoHdr, Kind};
use crate::wire::stats::StatProtocol;

pub use answer::{answer_atomic, answer_put};
pub use connect::{connect_eagerly, fall_back, log_lanes, open_ring};
pub use pending::{batch, end_moved, is_watched, move_backlog, progress_backlog};

/// Result of posting a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostResult {
    /// All of it is sent. The caller owns the request, unless its `sent` says that it waits for an answer.
    Done,
    /// It is in the peer's pending queue.
    Queued,
    /// The peer cannot be reached. The caller owns the request.
    Failed(ucs_status_t),
}

/// Sends a request's messages, behind the pending ones.
///
/// # Safety
/// The request is complete in all fields and in no queue.
pub unsafe fn post(req: *mut Request) -> PostResult {
    // SAFETY: the caller promises a complete request that is in no queue.
    unsafe { submit(req, Deferral::None) }
}

/// [`post`] for a request that its user waits for by progress: it may stay pending until then, to be sent together with
/// others.
///
/// # Safety
/// The requirements of [`post`].
pub unsafe fn post_deferrable(req: *mut Request) -> PostResult {
    // SAFETY: the caller promises a complete request that is in no queue.
    unsafe { submit(req, Deferral::UntilProgress) }
}

/// [`post`] for an answer to a message that progress handles: it may stay pending until the end of that progress call,
/// to be sent together with others. Called in progress.
///
/// # Safety
/// The requirements of [`post`].
pub unsafe fn post_answer(req: *mut Request) -> PostResult {
    // SAFETY: the caller promises a complete request that is in no queue.
    unsafe { submit(req, Deferral::ToEndOfProgress) }
}

/// How long a message may wait to be sent together with others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deferral {
    /// It is sent now, if there is room for it.
    None,
    /// Until the next progress call.
    UntilProgress,
    /// To the end of this progress call, which sends it: the worker is not woken for it.
    ToEndOfProgress,
}

unsafe fn submit(req: *mut Request, deferral: Deferral) -> PostResult {
    // SAFETY: this thread owns the request.
    let (peer, mut tx) = unsafe { queue_of(req) };
    if peer.status() != UCS_OK {
        return PostResult::Failed(peer.status());
    }
    // SAFETY: this thread owns the request.
    if unsafe { (*req).sent } == TxState::AwaitReply {
        // SAFETY: the request is complete, and was never posted before.
        unsafe { assign_id(req) };
    }
    // SAFETY: this thread owns the request.
    let r = unsafe { &*req };
    let collected =
        r.sent == TxState::Cma || deferral != Deferral::None && am::is_collected(&tx, r);
    if tx.pending.is_empty() && !collected {
        // SAFETY: this thread owns the request.
        match unsafe { advance(peer, &mut tx, req) } {
            Ok(true) => {
                // SAFETY: this thread owns the request.
                count_message(peer, unsafe { &*req });
                return PostResult::Done;
            }
            Ok(false) => {}
            Err(status) => {
                // SAFETY: nothing of the request was sent. Under the lock, or the handling of the failed peer would
                // complete it, too.
                unsafe { release_id(req) };
                drop(tx);
                peer.worker().fail_peer(peer, status);
                return PostResult::Failed(status);
            }
        }
    }
    // SAFETY: the caller promises a complete request that is in no queue.
    unsafe {
        match deferral {
            Deferral::ToEndOfProgress => enqueue_awake(peer, &mut tx, req),
            Deferral::None | Deferral::UntilProgress => enqueue(peer, &mut tx, req),
        }
    }
    PostResult::Queued
}

/// Locks the queue of a request's peer, or of the peer that has replaced that one, which becomes the request's peer.
///
/// # Safety
/// The request is in no queue.
pub unsafe fn queue_of<'a>(req: *mut Request) -> (&'a Peer, MtGuard<'a, PeerTx>) {
    // SAFETY: this thread owns the request.
    let mut peer: &Peer = unsafe { (*req).peer() };
    let mut tx = peer.tx.lock();
    while let Some(successor) = peer.successor() {
        drop(tx);
        // SAFETY: this thread owns the request, whose endpoint has a reference to the successor.
        unsafe { (*req).peer = Some(PeerRef::new(successor)) };
        peer = successor;
        tx = peer.tx.lock();
    }
    (peer, tx)
}

/// Assigns an id to a request and stores it in its message. The peer's lock is held, so that the handling of a failed
/// peer finds the request with its id and in the queue, or not at all.
unsafe fn assign_id(req: *mut Request) {
    // SAFETY: the caller's request; requests do not outlive their worker.
    unsafe {
        let id = request::name(&(*req).worker.get().ids, req);
        header::set_request((*req).msg.head_mut(), id);
    }
}

/// Releases the id of a request that was not sent.
unsafe fn release_id(req: *mut Request) {
    // SAFETY: the caller's request; requests do not outlive their worker.
    unsafe {
        if (*req).id != 0 {
            request::clear_wire_id(&(*req).worker.get().ids, req);
        }
    }
}

/// Appends a request to a peer's pending queue.
///
/// # Safety
/// The request is complete in all fields and in no queue.
pub unsafe fn enqueue(peer: &Peer, tx: &mut PeerTx, req: *mut Request) {
    // A listed peer can have an empty queue, if its requests were removed.
    let wakes = tx.pending.is_empty() || !tx.in_pending_list;
    tx.pending.push_back(req);
    on_enqueued(peer, tx, wakes);
}

/// [`enqueue`] in progress, which sends pending requests at its end: nothing needs to wake the worker.
///
/// # Safety
/// The requirements of [`enqueue`].
unsafe fn enqueue_awake(peer: &Peer, tx: &mut PeerTx, req: *mut Request) {
    tx.pending.push_back(req);
    on_enqueued(peer, tx, false);
}

/// Inserts a request at the head of a peer's pending queue, because the others wait for it. Not for a TCP lane, where
/// the first request may be half sent.
///
/// # Safety
/// The requirements of [`enqueue`].
pub unsafe fn enqueue_first(peer: &Peer, tx: &mut PeerTx, req: *mut Request) {
    tx.pending.push_front(req);
    on_enqueued(peer, tx, true);
}

/// Called when a request was added to a peer's queue.
fn on_enqueued(peer: &Peer, tx: &mut PeerTx, wakes: bool) {
    let worker = peer.worker();
    worker.progress_flags.queued();
    peer.note_unflushed();
    peer.stats().set_pending(tx.pending.len());
    if !tx.in_pending_list {
        tx.in_pending_list = true;
        worker.peer_lists.pending.lock().push(peer);
    }
    if let Some(lane) = tx.lane.as_mut() {
        lane.on_pending();
    }
    if wakes {
        worker.wake();
    }
}

/// Removes the request that was queued last, if nothing of it was sent. True if it was in the queue.
///
/// # Safety
/// `req` was queued on `peer`.
pub unsafe fn unqueue(peer: &Peer, req: *mut Request) -> bool {
    let mut tx = peer.tx.lock();
    // SAFETY: a queued request is not freed. A partly sent one has an offset.
    let found = tx
        .pending
        .iter()
        .rposition(|&r| r == req && unsafe { (*r).offset } == 0);
    if let Some(i) = found {
        tx.pending.remove(i);
        // SAFETY: the request is owned by this thread, and nothing of it was sent.
        unsafe { release_id(req) };
        peer.stats().set_pending(tx.pending.len());
        peer.worker().progress_flags.dequeued(1);
    }
    found.is_some()
}

/// Sends a message of the library: `kind`, `aux` and `imm` as in `wire::header`, `head` is its fixed header. Without
/// room for it a request is queued.
pub fn control(peer: &Peer, kind: Kind, aux: u8, imm: u64, head: &[u8]) {
    control_by(post, peer, (kind, aux, imm), head);
}

/// [`control`] by [`post_answer`].
fn answer(peer: &Peer, kind: Kind, aux: u8, imm: u64, head: &[u8]) {
    control_by(post_answer, peer, (kind, aux, imm), head);
}

#[inline(always)]
fn control_by(
    post: unsafe fn(*mut Request) -> PostResult,
    peer: &Peer,
    (kind, aux, imm): (Kind, u8, u64),
    head: &[u8],
) {
    // SAFETY: all fields of the request are set before it is posted.
    unsafe {
        let req = request_alloc::take(peer.worker(), std::ptr::null_mut());
        let r = &mut *req;
        set_message(r, kind, aux, imm, head);
        r.peer = Some(PeerRef::new(peer));
        r.notify = Callback::Internal(discard);
        if !matches!(post(req), PostResult::Queued) {
            request_alloc::recycle(req);
        }
    }
}

/// The ring to a peer, if the next message may be written there now.
///
/// # Safety
/// No callback runs under the lock of the peer's `tx`, and no other reference to the ring is used while the result is.
#[expect(clippy::mut_from_ref, reason = "the ring lies in the cell of `tx`")]
#[inline(always)]
pub unsafe fn ready_ring(peer: &Peer) -> Option<&mut RingSender> {
    // The flags of an endpoint do not say whether threads share the peer: access to mapped memory needs no lock.
    if peer.tx.is_shared() || !peer.is_connected() {
        return None;
    }
    // SAFETY: single-thread mode; the caller's promise.
    let tx = unsafe { peer.tx.alone() };
    let ring = tx.lane.as_mut().and_then(Lane::ring)?;
    tx.pending.is_empty().then_some(ring)
}

/// [`control`] at the head of the queue of a lane by queue pairs: requests there may wait for the answer.
#[cold]
pub fn control_first(peer: &Peer, kind: Kind, imm: u64, head: &[u8]) {
    let by_queue = |lane: &Lane| lane.qp_transport() != QpTransport::None;
    if !peer.tx.lock().lane.as_ref().is_some_and(by_queue) {
        return control(peer, kind, 0, imm, head);
    }
    // SAFETY: all fields of the request are set before it is queued.
    unsafe {
        let req = request_alloc::take(peer.worker(), std::ptr::null_mut());
        let r = &mut *req;
        set_message(r, kind, 0, imm, head);
        r.peer = Some(PeerRef::new(peer));
        r.notify = Callback::Internal(discard);
        let (peer, mut tx) = queue_of(req);
        match peer.status() {
            UCS_OK => enqueue_first(peer, &mut tx, req),
            _ => request_alloc::recycle(req),
        }
    }
}

/// Queues a fence: operations behind it wait for those before it, where either use rails.
#[cold]
pub fn queue_fence(peer: &Peer) {
    // SAFETY: all fields of the request are set before it is posted.
    unsafe {
        let req = request_alloc::take(peer.worker(), std::ptr::null_mut());
        let r = &mut *req;
        (r.sent, r.peer, r.notify) = (
            TxState::FenceMarker,
            Some(PeerRef::new(peer)),
            Callback::Internal(discard),
        );
        if !matches!(post(req), PostResult::Queued) {
            request_alloc::recycle(req);
        }
    }
}

/// Sets the header of a request's message.
#[inline]
pub fn set_message(r: &mut Request, kind: Kind, aux: u8, imm: u64, head: &[u8]) {
    r.msg.set(kind, aux, imm, head);
}

/// Sends as much of a request as there is room for; true when all of it is sent.
unsafe fn advance(peer: &Peer, tx: &mut PeerTx, req: *mut Request) -> Result<bool, ucs_status_t> {
    // SAFETY: the caller's request is valid, and the peer's lock is held.
    let r = unsafe { &mut *req };
    if r.sent == TxState::FlushMarker {
        // A peer whose memory was only accessed by mappings has no lane.
        return Ok((tx.lane.as_mut()).map_or_else(|| !peer.awaits_server(), Lane::drain));
    }
    if tx.lane.is_none() && !connect::connect(peer, tx)? {
        return Ok(false);
    }
    if r.sent == TxState::FenceMarker {
        return Ok(tx.lane.as_mut().is_none_or(Lane::pass_fence));
    }
    if r.sent == TxState::Rma {
        // SAFETY: the user promises that the request's memory is valid.
        let posted = |lane| unsafe { rma::advance(peer, lane, req) };
        if let Some(all) = tx.lane.as_mut().and_then(posted) {
            return Ok(all);
        }
        // SAFETY: the caller's request is valid, and the peer's lock is held.
        let r = unsafe { &mut *req };
        if let Op::RmaList(_) = r.op {
            // SAFETY: the caller's request.
            return Ok(unsafe { list::give_up(peer, tx, req) });
        }
        let in_place = r.transfer().is_some();
        rma::give_up(r);
        if r.sent == TxState::AwaitReply {
            // SAFETY: the request is complete, and had no id before.
            unsafe { assign_id(req) };
        }
        if in_place {
            // Callers expect zcopy to complete asynchronously: the request stays queued, and progress sends it.
            return Ok(false);
        }
    }
    // SAFETY: the caller's request is valid, and the peer's lock is held.
    let r = unsafe { &mut *req };
    let Some(lane) = tx.lane.as_mut() else {
        return Ok(false);
    };
    // Parts on rails precede the signal.
    if r.msg.is(Kind::Signal) && !lane.are_rails_drained() {
        return Ok(false);
    }
    // Counted before the send: the reply can be handled before the count.
    let counted = matches!(r.msg.raw_kind(), am::GET | am::AMO | am::SIGNAL);
    if counted {
        peer.note_unflushed();
        answers::set_turn(r, peer.rma.add_sent());
    }
    // SAFETY: the user promises that the request's memory is valid.
    let sent = unsafe { am::send(peer, lane, r) };
    if counted && !matches!(sent, Ok(true)) {
        peer.rma.cut_sent();
    }
    match r.msg.raw_kind() {
        am::GET if sent == Ok(true) => tx.unfenced_gets = true,
        am::FENCE if sent == Ok(true) => tx.unfenced_gets = false,
        _ => {}
    }
    sent.map_err(|failed| {
        log::error!("peer {:#x} {}", peer.uid, failed.text());
        UCS_ERR_CONNECTION_RESET
    })
}

/// Counts a user's request when all of it is sent. A rendezvous is counted when its path is known, a put or get by
/// message here.
fn count_message(peer: &Peer, r: &Request) {
    let len = r.data.len();
    let (protocol, bytes) = match r.msg.kind() {
        Some(
            Kind::TagEager | Kind::TagFragment | Kind::TagSync | Kind::AmEager | Kind::AmFragment,
        ) => {
            let body = len + r.msg.tail_len();
            (message::counted(body + r.msg.head().len()), body)
        }
        Some(Kind::StreamData) => (StatProtocol::Stream, len),
        // Counted when it was posted.
        Some(Kind::Data) if r.transfer().is_some() => return,
        Some(Kind::Data) => (StatProtocol::RndvMessages, len),
        Some(Kind::PutReq | Kind::GetReq) => (StatProtocol::RmaMessages, len),
        Some(Kind::AmoReq) => {
            let size = AmoHdr::decode(r.msg.head()).map_or(0, |head| head.size.into());
            (StatProtocol::AmoMessages, size)
        }
        _ => return,
    };
    peer.stats().of(protocol).add(bytes);
}
