//! Rendezvous: the receiver copies from the sender's memory, or asks for the data in parts.
//!
//! RTS names the sender's request, the length and where the memory is, in one piece or by the user's list of pieces.
//! The receiver copies with `process_vm_readv` and answers ATS, or it answers RTR and gets DATA through the ring. A
//! sender that learns of the end by ATS completes with the receiver's status. Where a queue pair leads to the sender,
//! the receiver's memory is registered, and the sender's device writes into it (`put_zcopy`), or the sender's was when
//! it was offered, and the receiver's device reads it (`get_zcopy`).

mod rtr_race;
pub mod put_zcopy;
mod get_cma;
pub mod get_zcopy;

use super::req_lookup;
use super::split_copy;
use super::tx::{self, PostResult};
use crate::ctypes::*;
use crate::engine::datatype::Data;
use crate::engine::peer::Peer;
use crate::engine::request::{self, Request, TxState, ZcopyState};
use crate::engine::rndv_rts::RtsInfo;
use crate::engine::worker::Worker;
use crate::tl::shm::outbox::OpenChunkBoard;
use crate::wire::header::{Kind, RtrHdr, RtsHdr, UNNAMED};
use crate::wire::stats::StatProtocol;
use get_cma::GetStep;

pub use get_cma::progress_gets;
pub use rtr_race::{MAX as MAX_ASKED, may_race, progress_races};

/// Longest list of pieces that is read by the peer; of longer ones the sender packs messages.
const MAX_LISTED: usize = 4096;

/// What a peer may read by itself: the address of the memory, or of the user's own list of pieces, which
/// stays until the end of the operation as the memory does. 0 if only this process can.
fn readable_at(data: &Data) -> (u64, u32) {
    match *data {
        Data::Contig { ptr, .. } => (ptr as u64, 0),
        Data::Iov { iov, count, .. } if (1..=MAX_LISTED).contains(&count) => {
            (iov as u64, count as u32)
        }
        _ => (0, 0),
    }
}

/// Makes a send request wait for the receiver, and the message an RTS.
///
/// # Safety
/// The request is new.
pub unsafe fn prepare(worker: &Worker, req: *mut Request, kind: Kind, imm: u64) {
    // SAFETY: the caller's new request.
    let r = unsafe { &mut *req };
    let waiting = worker.ids.lock().len() + 1;
    let (addr, pieces) = match worker.ctx.policy.rndv_by_messages {
        true => (0, 0),
        false => readable_at(&r.data),
    };
    let head = RtsHdr {
        req: UNNAMED,
        len: r.data.len() as u64,
        addr,
        pieces,
        waiting: waiting.try_into().unwrap_or(u32::MAX),
    };
    (r.sent, r.bare) = (TxState::Await, true);
    // SAFETY: the caller's request, which names its peer.
    let (keys, addr) = unsafe { get_zcopy::offer(worker, r, addr) };
    let head = RtsHdr { addr, ..head };
    tx::set_message(r, kind, keys, imm, &head.encode());
}

/// Starts to receive into `req`, whose data is the target. `Some(status)` if it has ended already;
/// the request is then the caller's.
///
/// # Safety
/// The request is new or taken out of the matcher. What the offer has beside it is readable at `beside`.
pub unsafe fn receive(
    worker: &Worker,
    req: *mut Request,
    peer: &Peer,
    offer: RtsInfo,
    beside: *const u8,
) -> Option<ucs_status_t> {
    // SAFETY: the caller's request, which nobody else knows yet.
    match unsafe {
        fill_rndv(&mut *req, peer, offer, beside);
        get_cma::begin(worker, req)
    } {
        GetStep::Ended(status) => Some(status),
        GetStep::Asked => None,
        GetStep::More => {
            get_cma::go_on_later(worker, req);
            None
        }
    }
}

/// As [`receive`], but nothing is done before the next progress: the request never ends inside of the
/// caller's call.
///
/// # Safety
/// As of [`receive`].
pub unsafe fn receive_later(
    worker: &Worker,
    req: *mut Request,
    peer: &Peer,
    offer: RtsInfo,
    beside: *const u8,
) {
    // SAFETY: the caller's request, which nobody else knows yet.
    unsafe { fill_rndv(&mut *req, peer, offer, beside) };
    get_cma::go_on_later(worker, req);
}

/// Writes down what is to be received, of which nothing has been yet.
///
/// # Safety
/// As of [`receive`].
unsafe fn fill_rndv(r: &mut Request, peer: &Peer, offer: RtsInfo, beside: *const u8) {
    request::init_full(r);
    r.info.length = offer.len;
    r.peer = peer;
    (r.remote, r.remote_id) = (offer.addr, offer.req);
    match offer.keyed {
        // SAFETY: the caller's promise.
        true => unsafe { get_zcopy::keep_key(r, offer, beside) },
        false => r.listed = offer.pieces,
    }
    r.one_of_many = offer.one_of_many;
}

/// Asks the sender for the data in messages: in any case, or if it is faster than we are at claiming the share.
fn request_data(worker: &Worker, req: *mut Request, peer: &Peer, race: Option<OpenChunkBoard>) {
    // SAFETY: the caller's request.
    let r = unsafe { &mut *req };
    r.offset = 0;
    let offer = r.remote_id;
    // SAFETY: ours until it has a name.
    let id = unsafe { request::name(worker, req) };
    let (generation, number) = race.map_or((0, 0), |s| (s.generation, s.number));
    if let Some(share) = race {
        rtr_race::watch(worker, peer, id, share);
    }
    let head = RtrHdr {
        recv: id,
        generation,
        number,
    };
    tx::control(peer, Kind::Rtr, 0, offer, &head.encode());
    recheck_lost(worker, peer);
}

/// A request has got a name that a peer is to answer by. The peer can have been lost, and seen to, before it was in the
/// table: once more.
pub(super) fn recheck_lost(worker: &Worker, peer: &Peer) {
    if peer.status() != UCS_OK {
        worker.failed_peers.lock().push(peer);
        worker.progress_flags.raise_chores();
        worker.wake();
    }
}

/// Tells the sender how a rendezvous ended.
pub fn acknowledge(peer: &Peer, req: u64, status: ucs_status_t) {
    tx::control(peer, Kind::Ats, status as i8 as u8, req, &[]);
}

/// ATS or the answer to a synchronous send: the receiver has what it wants.
pub fn on_ats(worker: &Worker, peer: &Peer, id: u64, status: ucs_status_t) {
    if let Some(req) = req_lookup::take(worker, peer, id) {
        // SAFETY: out of the table: ours. It has been sent: the peer knows its name.
        unsafe {
            let kind = Kind::from_u8((*req).kind);
            if matches!(kind, Some(Kind::TagRts | Kind::AmRts)) && status == UCS_OK {
                peer.stats()
                    .of(StatProtocol::RndvCopy)
                    .add((*req).data.len());
            }
            let status = match (*req).transfer().map(|t| t.fate) {
                // It was taken back, and was left to the receiver's device until now.
                Some(ZcopyState::Ends(earlier)) => earlier,
                _ => status,
            };
            request::complete(req, status)
        };
    }
}

/// RTR: the receiver wants the data in messages, perhaps only if we are in time.
pub fn on_rtr(worker: &Worker, peer: &Peer, id: u64, hdr: RtrHdr) {
    let raced = hdr.generation != 0;
    if !req_lookup::is_offer(worker, peer, id)
        || raced && !split_copy::claim_whole(peer, hdr.number, hdr.generation)
    {
        return;
    }
    let Some(req) = req_lookup::take(worker, peer, id) else {
        return;
    };
    // SAFETY: out of the table: ours.
    unsafe {
        let r = &mut *req;
        r.imm = hdr.recv;
        tx::zcopy::fall_back_to_am(r);
        post(req, false);
    }
}

/// Posts what the receiver has asked for. `answered`: its end comes later, once all of it is posted.
///
/// # Safety
/// The request is complete in all fields and in no list.
unsafe fn post(req: *mut Request, answered: bool) {
    // SAFETY: the caller's request.
    unsafe {
        match tx::post(req) {
            PostResult::Done if !answered => request::complete(req, UCS_OK),
            PostResult::Failed(status) => request::complete(req, status),
            PostResult::Done | PostResult::Queued => {}
        }
    }
}
