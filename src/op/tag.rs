//! Tagged messages: sends, receives, probes.

mod fragments;

use super::buffer::read_for_record;
use super::param::{self, Param, status_ptr};
use crate::ctypes::*;
use crate::engine::completion;
use crate::engine::datatype::Data;
use crate::engine::endpoint::Endpoint;
use crate::engine::matcher::Matcher;
use crate::engine::pointers::{EndpointId, PeerRef};
use crate::engine::request::{Request, TxPayload, TxState};
use crate::engine::request_alloc;
use crate::engine::unexpected::{DetachedMsg, InlineOrHeap, PayloadSource, UnexpectedTag};
use crate::engine::worker::Worker;
use crate::proto::rndv;
use crate::proto::select::message::{self as select, Eager, Hint, Protocol};
use crate::proto::tx;
use crate::sys::copy;
use crate::wire::header::{Kind, SyncHdr, UNNAMED};
use std::ffi::c_void;

pub use fragments::on_fragment;

const FEATURE: u64 = UCP_FEATURE_TAG as u64;

/// Tagged send by any protocol. `sync`: it completes when the receiver has matched the message.
///
/// # Safety
/// The parameters are those of `ucp_tag_send_nbx`.
pub unsafe fn send(
    ep: *const Endpoint,
    buffer: *const c_void,
    count: usize,
    tag: u64,
    p: &Param,
    sync: bool,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint and buffer are valid.
    unsafe {
        let (worker, peer) = match param::open_endpoint(ep) {
            Ok(ok) => ok,
            Err(status) => return param::refuse(&*ep, status),
        };
        let data = match p
            .check(worker, FEATURE, "ucp_tag_send")
            .and_then(|()| p.source_unread(worker, "ucp_tag_send", buffer, count))
        {
            Ok(data) => data,
            Err(status) => return status_ptr(status),
        };
        let protocol = select::to_peer(worker, peer, &data, 0, Hint::None);
        if p.has(UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL) && (sync || !protocol.is_one_record()) {
            data.drop_unused();
            return status_ptr(UCS_ERR_NO_RESOURCE);
        }
        if let Err(status) = read_for_record(&protocol, data) {
            return status_ptr(status);
        }
        let req = request_alloc::take(worker, p.external());
        let r = &mut *req;
        (r.data, r.peer, r.ep) = (data, Some(PeerRef::new(peer)), EndpointId::of(ep));
        match protocol {
            Protocol::Eager(Eager::Fragments) if !sync => {
                r.payload = TxPayload::Fragments;
                tx::set_message(r, Kind::TagFragment, 0, tag, &[]);
            }
            // A synchronous send completes with the match in rendezvous, too.
            Protocol::Eager(Eager::Fragments) | Protocol::Rendezvous => {
                rndv::prepare(worker, req, Kind::TagRts, tag)
            }
            Protocol::Eager(Eager::Short | Eager::Bcopy | Eager::Zcopy) if sync => {
                r.sent = TxState::AwaitReply;
                tx::set_message(r, Kind::TagSync, 0, tag, &SyncHdr { req: UNNAMED }.encode());
            }
            Protocol::Eager(Eager::Short | Eager::Bcopy | Eager::Zcopy) => {
                tx::set_message(r, Kind::TagEager, 0, tag, &[]);
            }
        }
        param::start(req, p)
    }
}

/// Tagged receive: takes an unexpected message, or posts the receive.
///
/// # Safety
/// The parameters are those of `ucp_tag_recv_nbx`.
#[inline(never)]
pub unsafe fn recv(
    worker: &Worker,
    buffer: *mut c_void,
    count: usize,
    tag: u64,
    mask: u64,
    p: &Param,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's buffer is valid.
    unsafe {
        let data = match p
            .check(worker, FEATURE, "ucp_tag_recv")
            .and_then(|()| p.target(worker, "ucp_tag_recv", buffer, count))
        {
            Ok(data) => data,
            Err(status) => return status_ptr(status),
        };
        if let Data::Contig { ptr, len } = data
            && let Some(status) = take_immediately::<false>(worker, tag, mask, (ptr, len), p)
        {
            return status_ptr(status);
        }
        // Before the lock: making a request can call the user's `request_init`.
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

/// Takes the first matching unexpected message, if it is eager and the user requires no request: none is made. `SHORT`:
/// only a message that is stored in the matcher's node. `None`: nothing was done.
///
/// # Safety
/// The parameters are those of `ucp_tag_recv_nbx`, with a contiguous buffer of `room` bytes.
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
                // SAFETY: the length is at most that of the message and of the buffer.
                unsafe { copy::short(buffer, bytes, message.len.min(room)) };
                None
            }
            InlineOrHeap::Apart(_) if SHORT => return None,
            // A longer message is copied without the lock.
            InlineOrHeap::Apart(bytes) => Some(std::mem::take(bytes)),
        };
        Some((tag, message.len, apart))
    })?;
    let left = matcher.unexpected_len();
    worker.stats.worker().set_unexpected(left);
    drop(matcher);
    if let Some(bytes) = apart {
        // SAFETY: the length is at most that of the message and of the buffer.
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

/// Receives a message that a probe has removed.
///
/// # Safety
/// The parameters are those of `ucp_tag_msg_recv_nbx`; `removed` is consumed, unless an error is returned.
pub unsafe fn recv_removed(
    worker: &Worker,
    buffer: *mut c_void,
    count: usize,
    removed: Box<DetachedMsg>,
    p: &Param,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's buffer is valid.
    unsafe {
        match p
            .check(worker, FEATURE, "ucp_tag_msg_recv")
            .and_then(|()| p.target(worker, "ucp_tag_msg_recv", buffer, count))
        {
            Ok(data) => {
                let req = new_receive(worker, data, p);
                deliver(worker, removed.tag, removed.message, req, p)
            }
            Err(status) => {
                // The user keeps the message.
                let _ = Box::into_raw(removed);
                status_ptr(status)
            }
        }
    }
}

/// Makes a request to receive into `data`.
#[inline(always)]
unsafe fn new_receive(worker: &Worker, data: Data, p: &Param) -> *mut Request {
    let (notify, user_data) = (p.notify_tag_recv(), p.user_data());
    // SAFETY: the user's memory for the request, if there is any, is valid.
    unsafe { request_alloc::take_receive(worker, p.external(), data, notify, user_data) }
}

/// Completes or starts a receive with an unexpected message.
unsafe fn deliver(
    worker: &Worker,
    tag: u64,
    message: UnexpectedTag,
    req: *mut Request,
    p: &Param,
) -> ucs_status_ptr_t {
    // SAFETY: a new request of the caller; an unexpected message holds a reference to its peer.
    unsafe {
        let r = &mut *req;
        r.info = ucp_tag_recv_info_t {
            sender_tag: tag,
            length: message.len,
        };
        let ended = match message.source {
            PayloadSource::Eager => Some(fill(r, message.bytes.as_ptr(), message.len)),
            PayloadSource::Sync { peer, req: id } => {
                tx::control(peer.get(), Kind::SyncAck, 0, id, &[]);
                message.source.release();
                Some(fill(r, message.bytes.as_ptr(), message.len))
            }
            PayloadSource::Rts { peer, offer } => {
                let ended = rndv::receive(worker, req, peer.get(), offer, message.bytes.as_ptr());
                peer.get()
                    .held_rts
                    .lock()
                    .release(offer.req, ended.is_none());
                message.source.release();
                ended
            }
            PayloadSource::Lost => Some(UCS_ERR_CANCELED),
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

/// Copies a whole message into a receive. The reported length is that of the message, even if the buffer is shorter.
///
/// # Safety
/// `len` bytes are readable at `bytes`.
#[inline(always)]
pub unsafe fn fill(r: &mut Request, bytes: *const u8, len: usize) -> ucs_status_t {
    r.info.length = len;
    let room = r.data.len();
    // SAFETY: the length is at most that of the message and of the buffer.
    match unsafe { r.data.unpack(0, bytes, len.min(room)) } {
        Err(status) => status,
        Ok(()) if len > room => UCS_ERR_MESSAGE_TRUNCATED,
        Ok(()) => UCS_OK,
    }
}

/// Handles an eager, synchronous or rendezvous message.
///
/// # Safety
/// `here` bytes are readable at `bytes`: the payload, or the STADDs of an RTS.
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
        // SAFETY: `here` bytes are readable at `bytes`.
        return unsafe { add_unexpected(worker, &mut matcher, tag, source, len, bytes, here) };
    }
    drop(matcher);
    let req = Request::of_posting(posting);
    // SAFETY: the matcher has removed the request: this thread owns it. The message comes from a peer that is not
    // freed.
    unsafe {
        let r = &mut *req;
        r.info = ucp_tag_recv_info_t {
            sender_tag: tag,
            length: len,
        };
        let ended = match source {
            PayloadSource::Eager => Some(fill(r, bytes, len)),
            PayloadSource::Sync { peer, req: id } => {
                tx::control(peer.get(), Kind::SyncAck, 0, id, &[]);
                Some(fill(r, bytes, len))
            }
            PayloadSource::Rts { peer, offer } => {
                rndv::receive(worker, req, peer.get(), offer, bytes)
            }
            PayloadSource::Lost => Some(UCS_ERR_CANCELED),
        };
        if let Some(status) = ended {
            completion::complete(req, status);
        }
    }
}

/// Adds a message to the unexpected ones.
///
/// # Safety
/// `here` bytes are readable at `bytes`.
#[inline(always)] // the stored data depend on the source
unsafe fn add_unexpected(
    worker: &Worker,
    matcher: &mut Matcher<UnexpectedTag>,
    tag: u64,
    source: PayloadSource,
    len: usize,
    bytes: *const u8,
    here: usize,
) {
    // SAFETY: `here` bytes are readable at `bytes`.
    let bytes = unsafe { InlineOrHeap::copy(bytes, here) };
    matcher.push_unexpected(tag, UnexpectedTag { source, len, bytes });
    let waiting = matcher.unexpected_len();
    worker.stats.worker().note_unexpected(waiting);
}

/// Adds a complete eager message to the unexpected ones.
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
    // SAFETY: `len` bytes are readable at `bytes`.
    unsafe { add_unexpected(worker, matcher, tag, PayloadSource::Eager, len, bytes, len) };
}

/// Cancels a receive that nothing has matched, and completes it inside of the call.
///
/// # Safety
/// `req` is a valid request of this worker.
pub unsafe fn cancel(worker: &Worker, req: *mut Request) {
    // SAFETY: the caller's request is valid; its node is in this worker's matcher or in no list.
    let taken = unsafe { worker.matcher.lock().cancel(&raw mut (*req).posting) };
    if taken {
        // SAFETY: the matcher has removed the request: this thread owns it.
        unsafe { completion::complete(req, UCS_ERR_CANCELED) };
    }
}

/// Finds an unexpected message, without progress. With `remove` the caller owns it and receives it by its handle;
/// otherwise the handle only shows that there is one.
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
    // SAFETY: `info` is null or writable.
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
