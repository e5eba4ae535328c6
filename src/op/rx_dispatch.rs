//! Dispatch of received messages by their kind. Values from peers are checked here.

use super::{am, amo, get_reply, keep, list_pieces, registered, signal, stream, tag};
use crate::ctypes::*;
use crate::engine::completion;
use crate::engine::peer::Peer;
use crate::engine::pointers::PeerRef;
use crate::engine::rndv_rts::RtsInfo;
use crate::engine::unexpected::PayloadSource;
use crate::engine::worker::Worker;
use crate::op::malformed::Malformed;
use crate::proto::rndv::{self, get_zcopy, put_zcopy};
use crate::proto::{answers, cm, failure, req_lookup, rndv_cancel, split_copy, tx};
use crate::sys::log;
use crate::tl::Message;
use crate::tl::amo::AmoOp;
use crate::tl::rail_event::RailEvent;
use crate::wire::header::{
    AmImm, AmoHdr, DEVICE_MEMORY, DataHdr, EpImm, FragmentHdr, GetHdr, Kind, NoteHdr, PutRest,
    RailImm, RtrDeviceHdr, RtrHdr, RtsHdr, SignalHdr, SplitCopyHdr, SyncHdr, ValueHdr,
};
use crate::wire::ib_port::PortLocator;
use crate::wire::list_piece::ListPiece;

/// Maximum length of fixed headers. They are copied before they are read, because the sender could change them.
const MAX_HEAD: usize = 40;

/// Handles one message.
///
/// # Errors
/// [`Malformed`]: the connection to the sender must fail.
///
/// # Safety
/// The record of `m` is readable during the call.
pub unsafe fn message(worker: &Worker, peer: &Peer, m: &Message) -> Result<(), Malformed> {
    let kind = Kind::from_u8(m.kind).ok_or(Malformed)?;
    let head_len = kind.header_size();
    let body_len = m.len.checked_sub(head_len).ok_or(Malformed)?;
    let mut head = [0u8; MAX_HEAD];
    // SAFETY: the record has `head_len + body_len` bytes; no header is longer than `MAX_HEAD`.
    let body = unsafe {
        std::ptr::copy_nonoverlapping(m.record, head.as_mut_ptr(), head_len.min(MAX_HEAD));
        m.record.add(head_len)
    };
    // SAFETY: `body` has `body_len` bytes, and `head` is the header of the kind.
    unsafe {
        match kind {
            Kind::TagEager => tag_eager(worker, m.imm, body, body_len),
            Kind::TagSync => tag_sync(worker, peer, m.imm, &head, body, body_len)?,
            Kind::TagRts => tag_rts(worker, peer, m, &head, body, body_len)?,
            Kind::SyncAck => rndv::on_ats(worker, peer, m.imm, UCS_OK),
            Kind::Ats => rndv::on_ats(worker, peer, m.imm, final_status(m.aux)),
            Kind::Rtr => rndv::on_rtr(worker, peer, m.imm, header(&head, RtrHdr::decode)?),
            Kind::RtrDevice => {
                put_zcopy::on_rtr(worker, peer, m.imm, header(&head, RtrDeviceHdr::decode)?)
            }
            Kind::RailReq => rail(worker, peer, m.imm, &head, RailEvent::PeerRequest)?,
            Kind::RailRep => rail(worker, peer, m.imm, &head, RailEvent::PeerReply)?,
            Kind::RailDown => {
                worker.raise_rails(peer, RailEvent::PeerGaveUp(RailImm::from_u64(m.imm)));
            }
            Kind::RailDownAck => {
                worker.raise_rails(peer, RailEvent::PeerDropped(RailImm::from_u64(m.imm)));
            }
            Kind::Atp => put_zcopy::on_written(worker, peer, m.imm),
            Kind::Data => {
                let h = header(&head, DataHdr::decode)?;
                req_lookup::on_part(worker, peer, m.imm, kind, h, body, body_len);
            }
            Kind::TagFragment => {
                let h = header(&head, FragmentHdr::decode)?;
                tag::on_fragment(worker, peer, m.imm, h, body, body_len)?;
            }
            Kind::AmEager => am_eager(worker, peer, m.imm, body, body_len)?,
            Kind::AmRts => am_rts(worker, peer, m, &head, body, body_len)?,
            Kind::AmFragment => {
                let h = header(&head, FragmentHdr::decode)?;
                am::on_fragment(worker, peer, AmImm::from_u64(m.imm), h, body, body_len)?;
            }
            Kind::PutReq => put(worker, peer, m, body, body_len),
            Kind::PutAck => answered(peer, final_status(m.aux), Unanswered::Put),
            Kind::GetReq => get(worker, peer, m, header(&head, GetHdr::decode)?),
            Kind::Fence => {
                list_pieces::execute(worker, peer);
                keep::keep(peer);
            }
            Kind::GetRep => {
                let h = header(&head, DataHdr::decode)?;
                got(worker, peer, m, h, body, body_len);
            }
            Kind::AmoReq => atomic(worker, peer, m.imm, header(&head, AmoHdr::decode)?)?,
            Kind::AmoRep => atomic_done(worker, peer, m, header(&head, ValueHdr::decode)?.value),
            Kind::Signal => {
                signal::on_message(worker, peer, m.imm, header(&head, SignalHdr::decode)?)
            }
            Kind::Note => {
                signal::on_note(worker, peer, m.aux, m.imm, header(&head, NoteHdr::decode)?)
            }
            Kind::EpClosed => ep_closed(worker, peer, m.imm, final_status(m.aux)),
            Kind::RndvCancel => rndv_cancel::on_cancelled(worker, peer, m.aux, m.imm),
            Kind::RndvCancelReq => {
                let h = header(&head, SyncHdr::decode)?;
                rndv_cancel::on_cancel_reply(worker, peer, m.imm, h.req);
            }
            Kind::EpInfo => failure::on_ep_info(worker, peer, EpImm::from_u64(m.imm)),
            Kind::Accepted => cm::on_proof(worker, peer, m.imm),
            Kind::SplitCopy => {
                split_copy::on_split_copy(worker, peer, m.imm, header(&head, SplitCopyHdr::decode)?)
            }
            Kind::StreamData => stream::on_data(worker, peer, m.imm, body, body_len),
        }
    }
    Ok(())
}

/// Decodes the fixed header of a message.
#[inline(always)]
fn header<H>(head: &[u8], decode: impl FnOnce(&[u8]) -> Option<H>) -> Result<H, Malformed> {
    decode(head).ok_or(Malformed)
}

/// Handles an eager tagged message.
///
/// # Safety
/// The body has `body_len` readable bytes.
#[inline(always)]
unsafe fn tag_eager(worker: &Worker, tag: u64, body: *const u8, body_len: usize) {
    // SAFETY: the caller's body is readable.
    unsafe { tag::on_message(worker, tag, PayloadSource::Eager, body_len, body, body_len) }
}

/// Handles an eager tagged message whose sender waits for the match.
///
/// # Safety
/// The body has `body_len` readable bytes.
#[inline(always)]
unsafe fn tag_sync(
    worker: &Worker,
    peer: &Peer,
    tag: u64,
    head: &[u8],
    body: *const u8,
    body_len: usize,
) -> Result<(), Malformed> {
    let req = header(head, SyncHdr::decode)?.req;
    // SAFETY: the message comes from the peer in this progress call; the caller's body is readable.
    unsafe {
        let peer = PeerRef::new(peer);
        let source = PayloadSource::Sync { peer, req };
        tag::on_message(worker, tag, source, body_len, body, body_len);
    }
    Ok(())
}

/// Handles the RTS of a tagged message.
///
/// # Safety
/// The body has `body_len` readable bytes.
#[inline(always)]
unsafe fn tag_rts(
    worker: &Worker,
    peer: &Peer,
    m: &Message,
    head: &[u8],
    body: *const u8,
    body_len: usize,
) -> Result<(), Malformed> {
    // SAFETY: the caller's body is readable, and begins with the keys. The message comes from the peer in this progress
    // call.
    unsafe {
        let (offer, keys) = offered(worker, peer, m.aux, head, (body, body_len))?;
        let here = offer.beside();
        let peer = PeerRef::new(peer);
        let source = PayloadSource::Rts { peer, offer };
        tag::on_message(
            worker,
            m.imm,
            source,
            offer.len,
            body.add(keys - here),
            here,
        );
    }
    Ok(())
}

/// Handles an eager active message.
///
/// # Safety
/// The body has `body_len` readable bytes.
#[inline(always)]
unsafe fn am_eager(
    worker: &Worker,
    peer: &Peer,
    imm: u64,
    body: *const u8,
    body_len: usize,
) -> Result<(), Malformed> {
    let imm = AmImm::from_u64(imm);
    let data_len = body_len
        .checked_sub(imm.header_len.into())
        .ok_or(Malformed)?;
    // SAFETY: the body is the data, then the user's header.
    unsafe { am::on_eager(worker, peer, imm, body, data_len) };
    Ok(())
}

/// Handles the RTS of an active message.
///
/// # Safety
/// The body has `body_len` readable bytes.
#[inline(always)]
unsafe fn am_rts(
    worker: &Worker,
    peer: &Peer,
    m: &Message,
    head: &[u8],
    body: *const u8,
    body_len: usize,
) -> Result<(), Malformed> {
    let imm = AmImm::from_u64(m.imm);
    // SAFETY: the caller's body is readable; it is checked to be the keys, then the user's header.
    unsafe {
        let (offer, keys) = offered(worker, peer, m.aux, head, (body, body_len))?;
        if body_len != keys + usize::from(imm.header_len) {
            return Err(Malformed);
        }
        let beside = body.add(keys - offer.beside());
        am::on_rts(worker, peer, imm, (offer, beside), body.add(keys));
    }
    Ok(())
}

/// Leaves a request or a reply for a rail to progress.
fn rail(
    worker: &Worker,
    peer: &Peer,
    imm: u64,
    head: &[u8],
    event: fn(RailImm, PortLocator) -> RailEvent,
) -> Result<(), Malformed> {
    let port = header(head, PortLocator::decode)?;
    worker.raise_rails(peer, event(RailImm::from_u64(imm), port));
    Ok(())
}

/// Handles the close of the peer's endpoint.
fn ep_closed(worker: &Worker, peer: &Peer, imm: u64, status: ucs_status_t) {
    // A forced close may have left a list without its last piece: the pieces of others are among those before.
    list_pieces::execute(worker, peer);
    // It may have left a message unfinished: this message follows its fragments.
    worker.drop_partials(peer);
    failure::on_ep_closed(worker, peer, EpImm::from_u64(imm).sn, status);
}

/// Decodes an RTS with `count` keys. Returns it and the number of bytes that the keys take in the body; the last of
/// them are the sender's STADDs for further rails.
///
/// # Safety
/// The body has `body_len` readable bytes.
unsafe fn offered(
    worker: &Worker,
    peer: &Peer,
    count: u8,
    head: &[u8],
    (body, body_len): (*const u8, usize),
) -> Result<(RtsInfo, usize), Malformed> {
    let head = RtsHdr::decode(head).ok_or(Malformed)?;
    let place = (head.addr, head.pieces == DEVICE_MEMORY);
    let mut offer = RtsInfo::from(head);
    let keys = get_zcopy::bytes(count);
    if keys > body_len {
        return Err(Malformed);
    }
    // SAFETY: the body is as long as the keys.
    if let Some(source) = unsafe { get_zcopy::source(worker, peer, place, (body, count)) } {
        offer.source = source;
    }
    Ok((offer, keys))
}

/// The final status in a message of a peer; `UCS_INPROGRESS` is none.
fn final_status(aux: u8) -> ucs_status_t {
    match ucs_status_t::from_raw(aux as i8) {
        UCS_INPROGRESS => UCS_ERR_IO_ERROR,
        status => status,
    }
}

unsafe fn put(worker: &Worker, peer: &Peer, m: &Message, bytes: *const u8, len: usize) {
    let position = ListPiece::from_aux(m.aux);
    if position != ListPiece::Alone {
        // SAFETY: the caller's bytes are readable.
        return unsafe { list_pieces::put(worker, peer, m.imm, (bytes, len), position) };
    }
    let follows = PutRest::from_aux(m.aux).most();
    // SAFETY: the caller's bytes are readable.
    let written = unsafe { registered::write(worker, peer, m.imm, (bytes, len), follows) };
    tx::answer_put(peer, written.err().unwrap_or(UCS_OK));
}

#[inline(always)]
fn get(worker: &Worker, peer: &Peer, m: &Message, h: GetHdr) {
    match ListPiece::from_aux(m.aux) {
        ListPiece::Alone => get_reply::send(worker, peer, m.imm, h),
        position => list_pieces::get(worker, peer, m.imm, h, position),
    }
}

/// An access whose request, if it had one, is complete before the target answers.
enum Unanswered {
    Put,
    Atomic,
}

/// Handles the answer to an access without a request.
fn answered(peer: &Peer, status: ucs_status_t, access: Unanswered) {
    if status != UCS_OK {
        note_refused(peer, status, access);
    }
    answers::notified(peer, status);
}

/// Logs that the peer has refused an access, the first one of the process of each kind as an error.
#[cold]
fn note_refused(peer: &Peer, status: ucs_status_t, access: Unanswered) {
    let uid = peer.uid;
    match access {
        Unanswered::Put => log::once!(
            Error, each status as i8,
            "worker {uid:#x} refused a put: {status:?}: its own output shows the first access that it has refused"
        ),
        Unanswered::Atomic => log::once!(
            Error, each status as i8,
            "worker {uid:#x} refused an atomic operation: {status:?}: its own output shows the first access that it \
             has refused"
        ),
    }
}

/// Handles a part of the data of a get.
unsafe fn got(worker: &Worker, peer: &Peer, m: &Message, h: DataHdr, bytes: *const u8, len: usize) {
    let status = final_status(m.aux);
    if status == UCS_OK {
        // SAFETY: the caller's bytes are readable.
        return unsafe { req_lookup::on_part(worker, peer, m.imm, Kind::GetRep, h, bytes, len) };
    }
    let is_get = req_lookup::borrow(worker, peer, m.imm, Kind::GetRep).is_some();
    if is_get && let Some(req) = req_lookup::take(worker, peer, m.imm) {
        // SAFETY: the request was removed from the table: this thread owns it.
        unsafe { completion::complete(req, status) };
        answers::answered(peer);
    }
}

fn atomic(worker: &Worker, peer: &Peer, addr: u64, h: AmoHdr) -> Result<(), Malformed> {
    if !matches!(h.size, 4 | 8) || h.op > AmoHdr::LAST_OP {
        return Err(Malformed);
    }
    let amo = AmoOp {
        op: h.op,
        size: h.size,
        value: h.value,
        compare: h.compare,
    };
    let done = registered::change(worker, peer, addr, amo);
    tx::answer_atomic(peer, h.req, done);
    Ok(())
}

unsafe fn atomic_done(worker: &Worker, peer: &Peer, m: &Message, value: u64) {
    let status = final_status(m.aux);
    if m.imm == 0 {
        return answered(peer, status, Unanswered::Atomic);
    }
    // Only an atomic operation is removed: the peer may name any request of this worker.
    if let Some(req) = req_lookup::take_of_kind(worker, peer, m.imm, Kind::AmoReq) {
        // SAFETY: the request was removed from the table: this thread owns it. The data of a fetching operation are
        // its reply buffer.
        unsafe {
            let mut ended = status;
            if let (UCS_OK, Some(reply)) = (status, (*req).data.as_contig()) {
                amo::store(reply.cast(), value, (*req).data.len() as u8);
            } else if status == UCS_OK {
                ended = amo::store_in(&(*req).data, value);
            }
            completion::complete(req, ended);
        }
    }
    answers::answered(peer);
}
