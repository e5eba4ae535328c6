//! Rendezvous: the receiver copies from the sender's memory, or requests the data in messages.
//!
//! RTS has the id of the sender's request, the length and the address of the memory, or of the user's list of pieces.
//! The receiver copies with `process_vm_readv` and answers ATS, or it answers RTR and gets DATA messages. A sender that
//! gets an ATS completes with the receiver's status. Over RC the receiver registers its memory, and the sender's HCA
//! writes into it (`put_zcopy`), or the sender has registered its memory for the RTS, and the receiver's HCA reads it
//! (`get_zcopy`). The RTS of memory of a device has a handle of it (`get_device`).

mod rtr_race;
pub mod put_zcopy;
mod get_cma;
mod get_device;
pub mod get_zcopy;
pub mod traced;

use super::req_lookup;
use super::select::{
    self,
    rndv::{RndvOffer, SentData},
};
use super::tx::{self, PostResult};
use crate::ctypes::*;
use crate::engine::completion;
use crate::engine::datatype::Data;
use crate::engine::peer::Peer;
use crate::engine::pointers::PeerRef;
use crate::engine::request::{self, Op, Request, RndvRecv, TxPayload, TxState, ZcopyState};
use crate::engine::rndv_rts::RtsInfo;
use crate::engine::worker::Worker;
use crate::sys::trace;
use crate::tl::cuda::DeviceData;
use crate::tl::{SplitCopy, SplitCopyId};
use crate::wire::header::{Kind, RtrHdr, RtsHdr, UNNAMED};
use crate::wire::stats::StatProtocol;
use get_cma::GetStep;
use get_zcopy::RtsPlace;

pub use get_cma::progress_gets;
pub use rtr_race::progress_races;

/// Maximum number of pieces of a list that the peer reads; of longer ones the sender packs messages.
const MAX_LISTED: usize = 4096;

/// What a peer may read by CMA: where the data are, with the address of the memory, or of the user's list of pieces and
/// their number. List and memory are valid until the operation completes.
fn readable_at(worker: &Worker, data: &Data) -> (SentData, u64, u32) {
    match *data {
        Data::Contig { ptr, .. } => (SentData::Contiguous, ptr as u64, 0),
        Data::Iov { iov, count, .. } if (1..=MAX_LISTED).contains(&count) => {
            (SentData::Pieces, iov as u64, count as u32)
        }
        Data::Device { memory, .. } => exported(worker, memory),
        _ => (SentData::Packed, 0, 0),
    }
}

/// [`readable_at`] of memory of devices: peers may read what is in one piece, by a handle or by adapters.
#[cold]
#[inline(never)]
fn exported(worker: &Worker, memory: *const DeviceData) -> (SentData, u64, u32) {
    let by_adapter = worker.ctx.tl.takes_gpu_memory();
    // SAFETY: freed when the request completes.
    let memory = unsafe { &*memory };
    match memory.is_exportable() || by_adapter && memory.as_contig().is_some() {
        true => (SentData::Device, 0, 0),
        false => (SentData::Packed, 0, 0),
    }
}

/// Makes a send request a rendezvous, and its message an RTS.
///
/// # Safety
/// The request is new.
pub unsafe fn prepare(worker: &Worker, req: *mut Request, kind: Kind, imm: u64) {
    // SAFETY: the caller's new request.
    let r = unsafe { &mut *req };
    let waiting = worker.ids.lock().len() + 1;
    let (data, addr, pieces) = readable_at(worker, &r.data);
    let offer = select::rndv::offer(worker, r.peer(), data);
    let (addr, pieces) = match offer {
        RndvOffer::Messages => (0, 0),
        _ => (addr, pieces),
    };
    (r.sent, r.payload) = (TxState::AwaitReply, TxPayload::HeaderOnly);
    // SAFETY: the caller's request, whose peer is set.
    let RtsPlace { keys, addr, pieces } =
        unsafe { get_zcopy::register(worker, r, offer, (addr, pieces)) };
    let head = RtsHdr {
        req: UNNAMED,
        len: r.data.len() as u64,
        addr,
        pieces,
        waiting: waiting.try_into().unwrap_or(u32::MAX),
    };
    tx::set_message(r, kind, keys, imm, &head.encode());
}

/// Starts to receive into `req`, whose data is the target. `Some(status)` if it is complete; then the caller owns the
/// request.
///
/// # Safety
/// The request is new or removed from the matcher. What the RTS has beside its header is readable at `beside`.
pub unsafe fn receive(
    worker: &Worker,
    req: *mut Request,
    peer: &Peer,
    offer: RtsInfo,
    beside: *const u8,
) -> Option<ucs_status_t> {
    // SAFETY: the caller's request, which is in no list.
    match unsafe {
        fill_rndv(&mut *req, peer, offer, beside);
        if trace::is_on() {
            return traced::receive(worker, req, peer, false);
        }
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

/// [`receive`], starting with the next progress call: the request never completes inside of this call.
///
/// # Safety
/// The requirements of [`receive`].
pub unsafe fn receive_later(
    worker: &Worker,
    req: *mut Request,
    peer: &Peer,
    offer: RtsInfo,
    beside: *const u8,
) {
    // SAFETY: the caller's request, which is in no list.
    unsafe {
        fill_rndv(&mut *req, peer, offer, beside);
        if trace::is_on() {
            traced::receive(worker, req, peer, true);
            return;
        }
    }
    get_cma::go_on_later(worker, req);
}

/// Stores the RTS in a receive.
///
/// # Safety
/// The requirements of [`receive`].
unsafe fn fill_rndv(r: &mut Request, peer: &Peer, offer: RtsInfo, beside: *const u8) {
    request::init_full(r);
    r.info.length = offer.len;
    // SAFETY: the peer of a request that is about to be posted.
    r.peer = Some(unsafe { PeerRef::new(peer) });
    r.op = Op::RndvRecv(RndvRecv::new(&offer));
    // SAFETY: what the RTS has beside its header is readable at `beside`.
    unsafe { get_zcopy::keep_beside(r, offer, beside) };
}

/// Requests the data in messages: in any case, or only if the sender claims the chunk of `race` before this side does.
fn request_data(
    worker: &Worker,
    req: *mut Request,
    peer: &Peer,
    race: Option<(SplitCopy, SplitCopyId)>,
) {
    // SAFETY: the caller owns the request.
    let r = unsafe { &mut *req };
    r.offset = 0;
    let offer = r.rndv_recv().rts_id;
    traced::scheme(
        worker,
        req,
        if race.is_some() {
            "RTR race"
        } else {
            "messages"
        },
    );
    // SAFETY: this thread owns the request until it has an id.
    let id = unsafe { request::name(&worker.ids, req) };
    let (generation, number) = race.map_or((0, 0), |(_, id)| (id.generation, id.number));
    if let Some((split_copy, _)) = race {
        // SAFETY: this thread owns the request until the RTR is sent.
        unsafe { rtr_race::watch(worker, req, id, split_copy) };
    }
    let head = RtrHdr {
        recv: id,
        generation,
        number,
    };
    tx::control(peer, Kind::Rtr, 0, offer, &head.encode());
    recheck_lost(peer);
}

/// Called when a request has an id by which a peer answers. If the peer had failed before the request was in the table,
/// its failure is handled again.
pub(super) fn recheck_lost(peer: &Peer) {
    if peer.status() != UCS_OK {
        peer.worker().handle_failure(peer);
    }
}

/// Sends an ATS with the status of a rendezvous.
pub fn acknowledge(peer: &Peer, req: u64, status: ucs_status_t) {
    tx::control(peer, Kind::Ats, status as i8 as u8, req, &[]);
}

/// Handles an ATS, or the answer to a synchronous send: the receiver has the data.
pub fn on_ats(worker: &Worker, peer: &Peer, id: u64, status: ucs_status_t) {
    if let Some(req) = req_lookup::take(worker, peer, id) {
        // SAFETY: the request was removed from the table: this thread owns it. It was sent, because the peer has its
        // id.
        unsafe {
            let kind = (*req).msg.kind();
            traced::answer(worker, req, "ATS", "read by the receiver");
            if matches!(kind, Some(Kind::TagRts | Kind::AmRts)) && status == UCS_OK {
                peer.stats()
                    .of(StatProtocol::RndvCopy)
                    .add((*req).data.len());
            }
            let status = match (*req).transfer().map(|t| t.fate) {
                // The request was cancelled, and left to the receiver's device until now.
                Some(ZcopyState::Ends(earlier)) => earlier,
                _ => status,
            };
            completion::complete(req, status)
        };
    }
}

/// Handles an RTR: the receiver requests the data in messages, perhaps only if this side claims the chunk first.
pub fn on_rtr(worker: &Worker, peer: &Peer, id: u64, hdr: RtrHdr) {
    let race = SplitCopyId {
        number: hdr.number,
        generation: hdr.generation,
    };
    let raced = hdr.generation != 0;
    if !req_lookup::is_offer(worker, peer, id) || raced && !peer.cma().claim_whole(race) {
        return;
    }
    let Some(req) = req_lookup::take(worker, peer, id) else {
        return;
    };
    // SAFETY: the request was removed from the table: this thread owns it.
    unsafe {
        let r = &mut *req;
        traced::answer(
            worker,
            req,
            "RTR",
            if raced { "RTR race" } else { "messages" },
        );
        tx::zcopy::fall_back_to_am(r, hdr.recv);
        post(req, false);
    }
}

/// Posts the data that the receiver has requested. `answered`: the request completes later than the post.
///
/// # Safety
/// The request is complete in all fields and in no list.
unsafe fn post(req: *mut Request, answered: bool) {
    // SAFETY: the caller owns the request.
    unsafe {
        match tx::post(req) {
            PostResult::Done if !answered => completion::complete(req, UCS_OK),
            PostResult::Failed(status) => completion::complete(req, status),
            PostResult::Done | PostResult::Queued => {}
        }
    }
}
