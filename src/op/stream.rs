//! Streams: sends, receives, arrivals.

use super::param::{self, Param, status_ptr, why_failed};
use crate::ctypes::*;
use crate::engine::completion;
use crate::engine::endpoint::{Endpoint, EpFlags};
use crate::engine::peer::Peer;
use crate::engine::pointers::{EndpointId, PeerRef};
use crate::engine::request::{ReqFlags, Request, TxPayload};
use crate::engine::request_alloc;
use crate::engine::stream::{self, is_done, is_packed, wanted};
use crate::engine::worker::Worker;
use crate::proto::select::message::{self as select, Eager};
use crate::proto::{endpoints, tx};
use crate::sys::log;
use crate::wire::header::{EpImm, Kind};
use std::ffi::c_void;
use std::ptr::null_mut;

const FEATURE: u64 = UCP_FEATURE_STREAM as u64;

/// The immediate of an endpoint's stream messages.
#[inline(always)]
pub fn imm(e: &Endpoint) -> u64 {
    EpImm {
        sn: e.remote_sn(),
        err_mode: e.err_mode(),
    }
    .to_u64()
}

/// `ucp_stream_send_nbx`: sends bytes in the order of the calls.
///
/// # Safety
/// The parameters are those of `ucp_stream_send_nbx`.
pub unsafe fn send(
    ep: *const Endpoint,
    buffer: *const c_void,
    count: usize,
    p: &Param,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint and buffer are valid.
    unsafe {
        let prepared = param::open_endpoint(ep).and_then(|(worker, peer)| {
            p.check(worker, FEATURE, "ucp_stream_send_nbx")?;
            let data = p.source(worker, "ucp_stream_send_nbx", buffer, count)?;
            Ok((worker, peer, data))
        });
        let (worker, peer, data) = match prepared {
            Ok(ok) => ok,
            Err(status) => return param::refuse(&*ep, status),
        };
        let eager = select::stream(data.len(), false);
        if eager == Eager::Fragments && p.has(UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL) {
            data.drop_unused();
            return status_ptr(UCS_ERR_NO_RESOURCE);
        }
        let req = request_alloc::take(worker, p.external());
        let r = &mut *req;
        (r.data, r.peer, r.ep) = (data, Some(PeerRef::new(peer)), EndpointId::of(ep));
        r.payload = match eager {
            Eager::Fragments => TxPayload::Fragments,
            Eager::Short | Eager::Bcopy | Eager::Zcopy => TxPayload::Whole,
        };
        if data.len() == 0 {
            // A stream has no messages: there is nothing to send.
            (r.notify, r.user_data) = (p.notify_send(), p.user_data());
            return param::finish(req, p, UCS_OK);
        }
        tx::set_message(r, Kind::StreamData, 0, imm(&*ep), &[]);
        param::start(req, p)
    }
}

/// `ucp_stream_recv_nbx`: receives bytes that have arrived, at least one element, or posts the receive. `length` is
/// written if the receive completes immediately.
///
/// # Safety
/// The parameters are those of `ucp_stream_recv_nbx`.
pub unsafe fn recv(
    ep: *mut Endpoint,
    buffer: *mut c_void,
    count: usize,
    length: *mut usize,
    p: &Param,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint and buffer are valid; the worker outlives the endpoint.
    unsafe {
        let worker = (*ep).worker.get();
        if (*ep).has(EpFlags::CLOSED) {
            return status_ptr(UCS_ERR_NOT_CONNECTED);
        }
        let data = match p
            .check(worker, FEATURE, "ucp_stream_recv_nbx")
            .and_then(|()| p.target(worker, "ucp_stream_recv_nbx", buffer, count))
        {
            Ok(data) => data,
            Err(status) => return status_ptr(status),
        };
        let (element, all) = (
            element(p.datatype()),
            p.flags() & UCP_STREAM_RECV_FLAG_WAITALL as u32 != 0,
        );
        if let Some(ptr) = data.as_contig()
            && !p.has(UCP_OP_ATTR_FIELD_REQUEST)
            && !p.has(UCP_OP_ATTR_FLAG_NO_IMM_CMPL)
            && let Some(n) = take_immediately(worker, &*ep, (ptr, data.len()), element, all)
        {
            if !length.is_null() {
                length.write(n);
            }
            return null_mut();
        }
        let req = request_alloc::take(worker, p.external());
        let r = &mut *req;
        (r.data, r.peer, r.ep) = (data, Some(PeerRef::new((*ep).peer())), EndpointId::of(ep));
        (r.notify, r.user_data) = (p.notify_stream_recv(), p.user_data());
        r.flags.add(ReqFlags::STREAM_RECV);
        stream::expect(r, element, all);
        match take_now(worker, &*ep, req, p.has(UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL)) {
            UCS_INPROGRESS => Request::handle(req),
            UCS_OK => {
                if !length.is_null() {
                    length.write(r.info.length);
                }
                param::finish(req, p, UCS_OK)
            }
            status => param::drop_request(req, status),
        }
    }
}

/// Bytes of an element of a contiguous type, at least 1. Other types are received in pieces of any length.
fn element(datatype: u64) -> usize {
    match datatype & UCP_DATATYPE_CLASS_MASK {
        0 => ((datatype >> 3) as usize).max(1),
        _ => 1,
    }
}

/// Fills contiguous memory with unread bytes, if they are enough to complete the receive. Returns their number. Needs
/// no request.
unsafe fn take_immediately(
    worker: &Worker,
    ep: &Endpoint,
    (ptr, room): (*mut u8, usize),
    element: usize,
    all: bool,
) -> Option<usize> {
    let mut streams = worker.streams.lock();
    // SAFETY: the caller's endpoint is valid; the user's memory has room for `n` bytes.
    unsafe {
        let s = streams.of(ep);
        if s.contended() {
            return None;
        }
        let n = s.at_once(room, element, all)?;
        s.copy_to(ptr, n);
        Some(n)
    }
}

/// Completes a new receive with unread bytes, or posts it.
unsafe fn take_now(
    worker: &Worker,
    e: &Endpoint,
    req: *mut Request,
    only_now: bool,
) -> ucs_status_t {
    // SAFETY: the caller's endpoint is valid, and its request is new.
    unsafe {
        let r = &mut *req;
        if r.data.len() == 0 {
            return UCS_OK;
        }
        let mut streams = worker.streams.lock();
        let s = streams.of(e);
        let n = if s.contended() { 0 } else { s.wanted(r) };
        r.offset = n as u64;
        if n > 0 && is_done(r) {
            r.offset = 0;
            if is_packed(&r.data) {
                let bytes = s.take_out(n);
                drop(streams);
                return unpack(r, &bytes);
            }
            s.fill(r, n);
            r.info.length = n;
            return UCS_OK;
        }
        r.offset = 0;
        // Bytes that arrived before the failure were received before.
        if e.has(EpFlags::FAILED) {
            return why_failed(e, e.peer());
        }
        if only_now {
            return UCS_ERR_NO_RESOURCE;
        }
        s.post(req);
        UCS_INPROGRESS
    }
}

/// Unpacks bytes into a receive with a generic datatype, or of memory of a device. The caller holds no lock.
unsafe fn unpack(r: &mut Request, bytes: &[u8]) -> ucs_status_t {
    // SAFETY: the receive has room for the bytes: `wanted` has limited their number.
    let stored = unsafe {
        r.data
            .unpack(r.offset as usize, bytes.as_ptr(), bytes.len())
    };
    r.offset += bytes.len() as u64;
    r.info.length = r.offset as usize;
    stored.err().unwrap_or(UCS_OK)
}

/// Handles stream data of a peer.
///
/// # Safety
/// `len` bytes are readable at `src` during the call.
pub unsafe fn on_data(worker: &Worker, peer: &Peer, imm: u64, src: *const u8, len: usize) {
    let sn = EpImm::from_u64(imm).sn;
    let mut done = 0;
    if worker.ctx.features & FEATURE == 0 {
        return; // no receive is possible
    }
    // SAFETY: listed endpoints are not freed, and streams are not freed under the lock; the caller's bytes are
    // readable.
    unsafe {
        while done < len {
            let mut streams = worker.streams.lock();
            let Some(ep) = endpoints::counterpart(worker, peer, sn) else {
                return; // closed
            };
            let s = streams.of(ep.get());
            let Some(req) = direct(s, len - done) else {
                s.push(src.add(done), len - done);
                drop(streams);
                fill_posted(worker, peer, sn);
                return;
            };
            let r = &mut *req;
            let n = wanted(r, len - done);
            // Memory that the processor fills cannot fail.
            let _ = r.data.unpack(r.offset as usize, src.add(done), n);
            r.offset += n as u64;
            done += n;
            if is_done(r) {
                s.unpost();
                drop(streams);
                r.info.length = r.offset as usize;
                completion::complete(req, UCS_OK);
            }
        }
    }
}

/// The posted receive into which bytes can be copied directly: no unread bytes precede them, and the processor fills
/// it.
fn direct(s: &stream::RxStream, len: usize) -> Option<*mut Request> {
    let req = s.direct()?;
    // SAFETY: posted requests are not freed.
    let r = unsafe { &*req };
    (!is_packed(&r.data) && wanted(r, len) > 0).then_some(req)
}

/// Fills posted receives with unread bytes, in order. Called by progress only: one thread at a time. The endpoint is
/// looked up again after each call of the user's functions, which can close it.
unsafe fn fill_posted(worker: &Worker, peer: &Peer, sn: u32) {
    // SAFETY: listed endpoints are not freed, and streams are not freed under the lock.
    unsafe {
        loop {
            let mut streams = worker.streams.lock();
            let Some(ep) = endpoints::counterpart(worker, peer, sn) else {
                return;
            };
            let s = streams.of(ep.get());
            let Some((req, n)) = s
                .first_posted()
                .map(|req| (req, s.wanted(&*req)))
                .filter(|&(_, n)| n > 0)
            else {
                streams.announce(ep.get());
                return;
            };
            let r = &mut *req;
            if is_packed(&r.data) {
                s.begin_filling();
                let bytes = s.take_out(n);
                drop(streams);
                let status = unpack(r, &bytes);
                if let Some(status) = put_back(worker, peer, sn, req, status) {
                    completion::complete(req, status);
                }
                continue;
            }
            s.fill(r, n);
            r.info.length = r.offset as usize;
            if !is_done(r) {
                continue;
            }
            s.unpost();
            drop(streams);
            completion::complete(req, UCS_OK);
        }
    }
}

/// Posts a receive again that a generic datatype has partly filled. `Some`: the receive is complete.
unsafe fn put_back(
    worker: &Worker,
    peer: &Peer,
    sn: u32,
    req: *mut Request,
    status: ucs_status_t,
) -> Option<ucs_status_t> {
    let mut streams = worker.streams.lock();
    // SAFETY: listed endpoints are not freed, and streams are not freed under the lock; this thread owns the request.
    unsafe {
        let done = (status != UCS_OK || is_done(&*req)).then_some(status);
        let Some(ep) = endpoints::counterpart(worker, peer, sn) else {
            return done.or(Some(UCS_ERR_CANCELED));
        };
        let s = streams.of(ep.get());
        s.end_filling(req, done)
    }
}

/// `ucp_stream_recv_data_nb`: returns a block of unread bytes without a copy, null if there are none. The block belongs
/// to the user until `release_data`.
///
/// # Safety
/// The parameters are those of `ucp_stream_recv_data_nb`.
pub unsafe fn recv_data(ep: *mut Endpoint, length: *mut usize) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint and pointer are valid.
    unsafe {
        let (e, worker) = (&*ep, (*ep).worker.get());
        if e.has(EpFlags::CLOSED) {
            return status_ptr(UCS_ERR_NOT_CONNECTED);
        }
        if worker.ctx.features & FEATURE == 0 {
            log::error!("ucp_stream_recv_data_nb: the context was created without the feature");
            return status_ptr(UCS_ERR_INVALID_PARAM);
        }
        let data = worker.streams.lock().take_message(e);
        match data {
            Some((at, len)) => {
                length.write(len);
                at.cast_mut().cast()
            }
            None if e.has(EpFlags::FAILED) => status_ptr(why_failed(e, e.peer())),
            None => null_mut(),
        }
    }
}

/// `ucp_stream_data_release`: frees a block that `recv_data` returned.
///
/// # Safety
/// The parameters are those of `ucp_stream_data_release`.
pub unsafe fn release_data(ep: *mut Endpoint, data: *mut c_void) {
    // SAFETY: the caller's endpoint is valid.
    let known = unsafe {
        let worker = (*ep).worker.get();
        worker.streams.lock().give_back(&*ep, data as usize)
    };
    if !known {
        log::error!(
            "ucp_stream_data_release: {data:p} is not a buffer of ucp_stream_recv_data_nb, or was released before"
        );
    }
}

/// `ucp_stream_worker_poll`: stores up to `max` endpoints with unread bytes that were not reported before. Returns
/// their number.
///
/// # Safety
/// `max` entries are writable at `out`.
pub unsafe fn poll(worker: &Worker, out: *mut ucp_stream_poll_ep_t, max: usize) -> usize {
    let mut streams = worker.streams.lock();
    for i in 0..max {
        let Some(ep) = streams.next_ready() else {
            return i;
        };
        // SAFETY: the caller's entries are writable; listed endpoints are not freed.
        unsafe {
            ep.get().set_user_held();
            out.add(i).write(ucp_stream_poll_ep_t {
                ep: ep.as_ptr().cast(),
                user_data: ep.get().user_data(),
                flags: 0,
                reserved: [0; 16],
            });
        }
    }
    max
}

/// Reports unread bytes of an internal endpoint that `ucp_ep_create` has returned to the user.
///
/// # Safety
/// The endpoint is valid.
pub unsafe fn adopted(worker: &Worker, ep: &Endpoint) {
    let mut streams = worker.streams.lock();
    // SAFETY: the caller's endpoint is valid.
    unsafe {
        if streams.has(ep) {
            streams.announce(ep);
        }
    }
}
