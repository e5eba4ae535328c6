//! Tagged messages: sends, receives, probes.

mod fragments;

use super::param::{self, Param, status_ptr};
use crate::ctypes::*;
use crate::engine::datatype::Data;
use crate::engine::endpoint::Endpoint;
use crate::engine::matcher::Matcher;
use crate::engine::request::{self, Request, TxState};
use crate::engine::unexpected::{DetachedMsg, InlineOrHeap, PayloadSource, UnexpectedTag};
use crate::engine::worker::Worker;
use crate::proto::rndv;
use crate::proto::select::{self, Hint, Protocol};
use crate::proto::tx;
use crate::sys::copy;
use crate::wire::header::{Kind, SyncHdr, UNNAMED};
use std::ffi::c_void;

pub use fragments::on_fragment;

const FEATURE: u64 = UCP_FEATURE_TAG as u64;

/// Sends. `sync`: the end means that the receiver has matched.
///
/// # Safety
/// As `ucp_tag_send_nbx`.
pub unsafe fn send(
    ep: *const Endpoint,
    buffer: *const c_void,
    count: usize,
    tag: u64,
    p: &Param,
    sync: bool,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint and buffer.
    unsafe {
        let (worker, peer) = match param::open_endpoint(ep) {
            Ok(ok) => ok,
            Err(status) => return status_ptr(status),
        };
        let data = match p
            .check(worker, FEATURE, "ucp_tag_send")
            .and_then(|()| Data::for_send(buffer, count, p.datatype()))
        {
            Ok(data) => data,
            Err(status) => return status_ptr(status),
        };
        let protocol = select::to_peer(worker, peer, &data, 0, Hint::None);
        if p.has(UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL) && (sync || protocol != Protocol::Eager) {
            data.finish();
            return status_ptr(UCS_ERR_NO_RESOURCE);
        }
        let req = request::take(worker, p.external());
        let r = &mut *req;
        (r.data, r.peer, r.ep) = (data, peer, ep);
        match protocol {
            Protocol::Eager if sync => {
                r.sent = TxState::Await;
                tx::set_message(r, Kind::TagSync, 0, tag, &SyncHdr { req: UNNAMED }.encode());
            }
            Protocol::Eager => tx::set_message(r, Kind::TagEager, 0, tag, &[]),
            Protocol::Fragments if !sync => {
                r.stream = true;
                tx::set_message(r, Kind::TagFragment, 0, tag, &[]);
            }
            // A synchronous send ends with the match, whichever it is.
            Protocol::Fragments | Protocol::Rendezvous => {
                rndv::prepare(worker, req, Kind::TagRts, tag)
            }
        }
        param::start(req, p)
    }
}

/// Receives: takes a message that waits, or posts.
///
/// # Safety
/// As `ucp_tag_recv_nbx`.
pub unsafe fn recv(
    worker: &Worker,
    buffer: *mut c_void,
    count: usize,
    tag: u64,
    mask: u64,
    p: &Param,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's buffer.
    unsafe {
        let data = match p
            .check(worker, FEATURE, "ucp_tag_recv")
            .and_then(|()| Data::for_recv(buffer, count, p.datatype()))
        {
            Ok(data) => data,
            Err(status) => return status_ptr(status),
        };
        if let Data::Contig { ptr, len } = data
            && let Some(status) = take_immediately::<false>(worker, tag, mask, (ptr, len), p)
        {
            return status_ptr(status);
        }
        // Before the lock: making a request can call the user.
        let req = new_receive(worker, data, p);
        let mut matcher = worker.matcher.lock();
        if let Some((tag, message)) = matcher.take_unexpected(tag, mask) {
            message.source.take_out();
            worker
                .stats
                .worker()
                .set_unexpected(matcher.unexpected_len());
            drop(matcher);
            return deliver(worker, tag, message, req, p);
        }
        if p.has(UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL) {
            drop(matcher);
            return param::drop_request(req, UCS_ERR_NO_RESOURCE);
        }
        matcher.post(tag, mask, &raw mut (*req).posting);
        Request::handle(req)
    }
}

/// Takes a message that is all here, if the first that matches is one and the user wants no request: none is made.
/// `SHORT`: only one that the matcher keeps in place. `None`: the long way.
///
/// # Safety
/// As `ucp_tag_recv_nbx`, for `room` bytes and nothing special.
#[inline(always)]
pub unsafe fn take_immediately<const SHORT: bool>(
    worker: &Worker,
    tag: u64,
    mask: u64,
    (buffer, room): (*mut u8, usize),
    p: &Param,
) -> Option<ucs_status_t> {
    let asks = UCP_OP_ATTR_FLAG_NO_IMM_CMPL as u32 | UCP_OP_ATTR_FIELD_REQUEST as u32;
    let mut matcher = worker.matcher.lock();
    if p.mask & asks != 0 || matcher.none_unexpected() {
        return None;
    }
    let (tag, len, apart) = matcher.consume_unexpected(tag, mask, |tag, message| {
        if !matches!(message.source, PayloadSource::Eager) {
            return None;
        }
        let apart = match &mut message.bytes {
            InlineOrHeap::InPlace(_, bytes) => {
                let bytes = bytes.as_ptr().cast();
                // SAFETY: not more than both have.
                unsafe { copy::short(buffer, bytes, message.len.min(room)) };
                None
            }
            InlineOrHeap::Apart(_) if SHORT => return None,
            // What is longer is not copied under the lock.
            InlineOrHeap::Apart(bytes) => Some(std::mem::take(bytes)),
        };
        Some((tag, message.len, apart))
    })?;
    let left = matcher.unexpected_len();
    worker.stats.worker().set_unexpected(left);
    drop(matcher);
    if let Some(bytes) = apart {
        // SAFETY: not more than both have.
        unsafe { copy::short(buffer, bytes.as_ptr(), len.min(room)) };
    }
    if len > room {
        return Some(UCS_ERR_MESSAGE_TRUNCATED);
    }
    p.store_tag_info(ucp_tag_recv_info_t {
        sender_tag: tag,
        length: len,
    });
    Some(UCS_OK)
}

/// Receives a message that a probe took out.
///
/// # Safety
/// As `ucp_tag_msg_recv_nbx`; `removed` is consumed.
pub unsafe fn recv_removed(
    worker: &Worker,
    buffer: *mut c_void,
    count: usize,
    removed: Box<DetachedMsg>,
    p: &Param,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's buffer.
    unsafe {
        match p
            .check(worker, FEATURE, "ucp_tag_msg_recv")
            .and_then(|()| Data::for_recv(buffer, count, p.datatype()))
        {
            Ok(data) => {
                let req = new_receive(worker, data, p);
                deliver(worker, removed.tag, removed.message, req, p)
            }
            Err(status) => {
                // The message is still the user's.
                let _ = Box::into_raw(removed);
                status_ptr(status)
            }
        }
    }
}

/// A request to receive into `data`.
#[inline(always)]
unsafe fn new_receive(worker: &Worker, data: Data, p: &Param) -> *mut Request {
    let (notify, user_data) = (p.notify_tag_recv(), p.user_data());
    // SAFETY: the caller's memory for the request, if he gives it.
    unsafe { request::take_receive(worker, p.external(), data, notify, user_data) }
}

/// Gives a message that waited to a receive that is being made.
unsafe fn deliver(
    worker: &Worker,
    tag: u64,
    message: UnexpectedTag,
    req: *mut Request,
    p: &Param,
) -> ucs_status_ptr_t {
    // SAFETY: a new request of the caller's; a message that waited has a reference to its peer.
    unsafe {
        let r = &mut *req;
        r.info = ucp_tag_recv_info_t {
            sender_tag: tag,
            length: message.len,
        };
        let ended = match message.source {
            PayloadSource::Eager => Some(fill(r, message.bytes.as_ptr(), message.len)),
            PayloadSource::Sync { peer, req: id } => {
                tx::control(&*peer, Kind::SyncAck, 0, id, &[]);
                message.source.release();
                Some(fill(r, message.bytes.as_ptr(), message.len))
            }
            PayloadSource::Rts { peer, offer } => {
                let ended = rndv::receive(worker, req, &*peer, offer, message.bytes.as_ptr());
                (*peer).held_rts.lock().release(offer.req, ended.is_none());
                message.source.release();
                ended
            }
        };
        let Some(status) = ended else {
            return Request::handle(req);
        };
        if status == UCS_OK && !p.has(UCP_OP_ATTR_FLAG_NO_IMM_CMPL) {
            p.store_tag_info((*req).info);
        }
        param::finish(req, p, status)
    }
}

/// Copies a whole message into a receive. The length that the user learns is the message's, even
/// if he had less room.
///
/// # Safety
/// `len` bytes are readable at `bytes`.
#[inline(always)]
pub unsafe fn fill(r: &mut Request, bytes: *const u8, len: usize) -> ucs_status_t {
    r.info.length = len;
    let room = r.data.len();
    // SAFETY: not more than both have.
    match unsafe { r.data.unpack(0, bytes, len.min(room)) } {
        Err(status) => status,
        Ok(()) if len > room => UCS_ERR_MESSAGE_TRUNCATED,
        Ok(()) => UCS_OK,
    }
}

/// A message has come whose payload waits at the sender, or whose sender waits for the match.
///
/// # Safety
/// `here` bytes are readable at `bytes`: the payload, or what an offer has beside it.
pub unsafe fn on_message(
    worker: &Worker,
    tag: u64,
    source: PayloadSource,
    len: usize,
    bytes: *const u8,
    here: usize,
) {
    let mut matcher = worker.matcher.lock();
    let posting = matcher.arrive(tag);
    if posting.is_null() {
        source.hold();
        // SAFETY: the caller's promise.
        return unsafe { add_unexpected(worker, &mut matcher, tag, source, len, bytes, here) };
    }
    drop(matcher);
    let req = Request::of_posting(posting);
    // SAFETY: out of the matcher: ours. The message comes from the peer just now.
    unsafe {
        let r = &mut *req;
        r.info = ucp_tag_recv_info_t {
            sender_tag: tag,
            length: len,
        };
        let ended = match source {
            PayloadSource::Eager => Some(fill(r, bytes, len)),
            PayloadSource::Sync { peer, req: id } => {
                tx::control(&*peer, Kind::SyncAck, 0, id, &[]);
                Some(fill(r, bytes, len))
            }
            PayloadSource::Rts { peer, offer } => rndv::receive(worker, req, &*peer, offer, bytes),
        };
        if let Some(status) = ended {
            request::complete(req, status);
        }
    }
}

/// Keeps a message that no receive waits for.
///
/// # Safety
/// `here` bytes are readable at `bytes`.
#[inline(always)] // what is written depends on the source
unsafe fn add_unexpected(
    worker: &Worker,
    matcher: &mut Matcher<UnexpectedTag>,
    tag: u64,
    source: PayloadSource,
    len: usize,
    bytes: *const u8,
    here: usize,
) {
    // SAFETY: the caller's promise.
    let bytes = unsafe { InlineOrHeap::copy(bytes, here) };
    matcher.push_unexpected(tag, UnexpectedTag { source, len, bytes });
    let waiting = matcher.unexpected_len();
    worker.stats.worker().note_unexpected(waiting);
}

/// As [`add_unexpected`], for a message that is all here.
///
/// # Safety
/// `len` bytes are readable at `bytes`.
#[inline(never)]
pub unsafe fn add_unexpected_eager(
    worker: &Worker,
    matcher: &mut Matcher<UnexpectedTag>,
    tag: u64,
    bytes: *const u8,
    len: usize,
) {
    // SAFETY: the caller's promise.
    unsafe { add_unexpected(worker, matcher, tag, PayloadSource::Eager, len, bytes, len) };
}

/// Takes a receive back that nothing has matched, and ends it inside of the call.
///
/// # Safety
/// A live request of this worker's.
pub unsafe fn cancel(worker: &Worker, req: *mut Request) {
    // SAFETY: the caller's request lives; its posting is this worker's matcher's, or loose.
    let taken = unsafe { worker.matcher.lock().cancel(&raw mut (*req).posting) };
    if taken {
        // SAFETY: out of the matcher: ours.
        unsafe { request::complete(req, UCS_ERR_CANCELED) };
    }
}

/// Looks for a message that waits, without progress. With `remove` it is the caller's, to be
/// received by its handle; else the handle only says that there is one.
///
/// # Safety
/// `info` is null or writable.
pub unsafe fn probe(
    worker: &Worker,
    tag: u64,
    mask: u64,
    remove: bool,
    info: *mut ucp_tag_recv_info_t,
) -> ucp_tag_message_h {
    let mut matcher = worker.matcher.lock();
    let Some((sender_tag, message)) = matcher.probe(tag, mask) else {
        return std::ptr::null_mut();
    };
    // SAFETY: the caller's structure.
    if let Some(info) = unsafe { info.as_mut() } {
        *info = ucp_tag_recv_info_t {
            sender_tag,
            length: message.len,
        };
    }
    if !remove {
        return (&raw const *message).cast_mut().cast();
    }
    let taken = matcher.take_unexpected(tag, mask);
    worker
        .stats
        .worker()
        .set_unexpected(matcher.unexpected_len());
    match taken {
        Some((tag, message)) => {
            message.source.take_out();
            Box::into_raw(Box::new(DetachedMsg { tag, message })).cast()
        }
        None => std::ptr::null_mut(),
    }
}
