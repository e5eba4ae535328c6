//! Byte streams: sends, receives, and what arrives.

use super::param::{self, Param, status_ptr, why_failed};
use crate::ctypes::*;
use crate::engine::datatype::Data;
use crate::engine::endpoint::{CLOSED, Endpoint, FAILED};
use crate::engine::peer::Peer;
use crate::engine::request::{self, Request, STREAM_RECV};
use crate::engine::stream::{self, is_done, is_generic, wanted};
use crate::engine::worker::Worker;
use crate::proto::select::MAX_EAGER;
use crate::proto::{resolve, tx};
use crate::sys::log;
use crate::wire::header::{EpImm, Kind};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

const FEATURE: u64 = UCP_FEATURE_STREAM as u64;

/// The immediate of what an endpoint sends as a stream.
#[inline(always)]
pub fn imm(e: &Endpoint) -> u64 {
    EpImm {
        sn: e.remote_sn,
        err_mode: e.err_mode,
    }
    .to_u64()
}

/// Sends, in the order of the calls.
///
/// # Safety
/// As `ucp_stream_send_nbx`.
pub unsafe fn send(
    ep: *const Endpoint,
    buffer: *const c_void,
    count: usize,
    p: &Param,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint and buffer.
    unsafe {
        let prepared = param::open_endpoint(ep).and_then(|(worker, peer)| {
            p.check(worker, FEATURE, "ucp_stream_send_nbx")?;
            let data = Data::for_send(buffer, count, p.datatype())?;
            Ok((worker, peer, data))
        });
        let (worker, peer, data) = match prepared {
            Ok(ok) => ok,
            Err(status) => return status_ptr(status),
        };
        let parts = data.len() > MAX_EAGER;
        if parts && p.has(UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL) {
            data.finish();
            return status_ptr(UCS_ERR_NO_RESOURCE);
        }
        let req = request::take(worker, p.external());
        let r = &mut *req;
        (r.data, r.peer, r.ep, r.stream) = (data, peer, ep, parts);
        if data.len() == 0 {
            // Nothing to say: a stream has no messages.
            (r.notify, r.user_data) = (p.notify_send(), p.user_data());
            return param::finish(req, p, UCS_OK);
        }
        tx::set_message(r, Kind::StreamData, 0, imm(&*ep), &[]);
        param::start(req, p)
    }
}

/// Receives what is there of the first message, at least an element, or waits. `length` is written if the receive
/// ends at once.
///
/// # Safety
/// As `ucp_stream_recv_nbx`.
pub unsafe fn recv(
    ep: *mut Endpoint,
    buffer: *mut c_void,
    count: usize,
    length: *mut usize,
    p: &Param,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint and buffer; the worker outlives the endpoint.
    unsafe {
        let worker = &*(*ep).worker;
        if (*ep).has(CLOSED) {
            return status_ptr(UCS_ERR_NOT_CONNECTED);
        }
        let data = match p
            .check(worker, FEATURE, "ucp_stream_recv_nbx")
            .and_then(|()| Data::for_recv(buffer, count, p.datatype()))
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
            && let Some(n) = take_immediately(worker, ep, (ptr, data.len()), element, all)
        {
            if !length.is_null() {
                length.write(n);
            }
            return null_mut();
        }
        let req = request::take(worker, p.external());
        let r = &mut *req;
        (r.data, r.peer, r.ep) = (data, (*ep).peer(), ep);
        (r.notify, r.user_data) = (p.notify_stream_recv(), p.user_data());
        r.flags.store(
            r.flags.load(Ordering::Relaxed) | STREAM_RECV,
            Ordering::Relaxed,
        );
        stream::expect(r, element, all);
        match take_now(worker, ep, req, p.has(UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL)) {
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

/// Bytes of an element of a contiguous type; others can be received in pieces of any length. Never 0.
fn element(datatype: u64) -> usize {
    match datatype & UCP_DATATYPE_CLASS_MASK {
        0 => ((datatype >> 3) as usize).max(1),
        _ => 1,
    }
}

/// Fills memory in one piece from what waits, if that is enough: bytes. No request is needed then.
unsafe fn take_immediately(
    worker: &Worker,
    ep: *mut Endpoint,
    (ptr, room): (*mut u8, usize),
    element: usize,
    all: bool,
) -> Option<usize> {
    let mut streams = worker.streams.lock();
    // SAFETY: the caller's endpoint; his memory has room for `n`.
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

/// Fills a new receive from what waits, or posts it.
unsafe fn take_now(
    worker: &Worker,
    ep: *mut Endpoint,
    req: *mut Request,
    only_now: bool,
) -> ucs_status_t {
    // SAFETY: the caller's endpoint and new request.
    unsafe {
        let (r, e) = (&mut *req, &*ep);
        if r.data.len() == 0 {
            return UCS_OK;
        }
        let mut streams = worker.streams.lock();
        let s = streams.of(ep);
        let n = if s.contended() { 0 } else { s.wanted(r) };
        r.offset = n as u64;
        if n > 0 && is_done(r) {
            r.offset = 0;
            if is_generic(&r.data) {
                let bytes = s.take_out(n);
                drop(streams);
                return unpack(r, &bytes);
            }
            s.fill(r, n);
            r.info.length = n;
            return UCS_OK;
        }
        r.offset = 0;
        // Bytes that came before a failure were given out first.
        if e.has(FAILED) {
            return why_failed(e, e.peer());
        }
        if only_now {
            return UCS_ERR_NO_RESOURCE;
        }
        s.posted.push_back(req);
        UCS_INPROGRESS
    }
}

/// Gives bytes to a receive of the user's own functions. Under no lock.
unsafe fn unpack(r: &mut Request, bytes: &[u8]) -> ucs_status_t {
    // SAFETY: the receive has room for them, by `wanted`.
    let stored = unsafe {
        r.data
            .unpack(r.offset as usize, bytes.as_ptr(), bytes.len())
    };
    r.offset += bytes.len() as u64;
    r.info.length = r.offset as usize;
    stored.err().unwrap_or(UCS_OK)
}

/// Bytes have come for an endpoint.
///
/// # Safety
/// `len` bytes are readable at `src` during the call.
pub unsafe fn on_data(worker: &Worker, peer: &Peer, imm: u64, src: *const u8, len: usize) {
    let sn = EpImm::from_u64(imm).sn;
    let mut done = 0;
    if worker.ctx.features & FEATURE == 0 {
        return; // nobody could ever receive it
    }
    // SAFETY: endpoints in lists live, and a stream lives under the lock; the caller's bytes.
    unsafe {
        while done < len {
            let mut streams = worker.streams.lock();
            let Some(ep) = resolve::counterpart(worker, peer, sn) else {
                return; // closed
            };
            let s = streams.of(ep);
            let Some(req) = direct(s, len - done) else {
                s.push(src.add(done), len - done);
                drop(streams);
                fill_posted(worker, peer, sn);
                return;
            };
            let r = &mut *req;
            let n = wanted(r, len - done);
            // What is not generic cannot fail.
            let _ = r.data.unpack(r.offset as usize, src.add(done), n);
            r.offset += n as u64;
            done += n;
            if is_done(r) {
                s.posted.pop_front();
                drop(streams);
                r.info.length = r.offset as usize;
                request::complete(req, UCS_OK);
            }
        }
    }
}

/// The receive that bytes can be copied to where they are: nothing is before them, and nobody's function is called.
fn direct(s: &stream::RxStream, len: usize) -> Option<*mut Request> {
    if s.bytes() > 0 || s.filling {
        return None;
    }
    let req = *s.posted.front()?;
    // SAFETY: posted requests live.
    let r = unsafe { &*req };
    (!is_generic(&r.data) && wanted(r, len) > 0).then_some(req)
}

/// Fills the receives that wait, in order, from the bytes that wait. Only progress does: one thread at a time. The
/// endpoint is looked for again after every call of the user's functions, which can close it.
unsafe fn fill_posted(worker: &Worker, peer: &Peer, sn: u32) {
    // SAFETY: as in `on_data`.
    unsafe {
        loop {
            let mut streams = worker.streams.lock();
            let Some(ep) = resolve::counterpart(worker, peer, sn) else {
                return;
            };
            let s = streams.of(ep);
            let req = s.posted.front().copied();
            let Some((req, n)) = req
                .map(|req| (req, s.wanted(&*req)))
                .filter(|&(_, n)| n > 0)
            else {
                streams.announce(ep);
                return;
            };
            let r = &mut *req;
            s.posted.pop_front();
            if is_generic(&r.data) {
                let bytes = s.take_out(n);
                s.filling = true;
                drop(streams);
                let status = unpack(r, &bytes);
                if let Some(status) = put_back(worker, peer, sn, req, status) {
                    request::complete(req, status);
                }
                continue;
            }
            s.fill(r, n);
            r.info.length = r.offset as usize;
            if !is_done(r) {
                s.posted.push_front(req);
                continue;
            }
            drop(streams);
            request::complete(req, UCS_OK);
        }
    }
}

/// A receive that the user's functions have filled goes back to wait for more. `Some`: it has ended.
unsafe fn put_back(
    worker: &Worker,
    peer: &Peer,
    sn: u32,
    req: *mut Request,
    status: ucs_status_t,
) -> Option<ucs_status_t> {
    let mut streams = worker.streams.lock();
    // SAFETY: as in `on_data`; the request is ours.
    unsafe {
        let done = (status != UCS_OK || is_done(&*req)).then_some(status);
        let Some(ep) = resolve::counterpart(worker, peer, sn) else {
            return done.or(Some(UCS_ERR_CANCELED));
        };
        let s = streams.of(ep);
        s.filling = false;
        let end = done.or(s.ended);
        if end.is_none() {
            s.posted.push_front(req);
        }
        end
    }
}

/// Lends the user what waits, without a copy: a piece of it, null if there is nothing.
///
/// # Safety
/// As `ucp_stream_recv_data_nb`.
pub unsafe fn recv_data(ep: *mut Endpoint, length: *mut usize) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint and pointer.
    unsafe {
        let (e, worker) = (&*ep, &*(*ep).worker);
        if e.has(CLOSED) {
            return status_ptr(UCS_ERR_NOT_CONNECTED);
        }
        if worker.ctx.features & FEATURE == 0 {
            log::error!("ucp_stream_recv_data_nb: the context was created without the feature");
            return status_ptr(UCS_ERR_INVALID_PARAM);
        }
        let lent = worker.streams.lock().loan(ep);
        match lent {
            Some((at, len)) => {
                length.write(len);
                at.cast_mut().cast()
            }
            None if e.has(FAILED) => status_ptr(why_failed(e, e.peer())),
            None => null_mut(),
        }
    }
}

/// The user gives back what `recv_data` lent him.
///
/// # Safety
/// As `ucp_stream_data_release`.
pub unsafe fn release_data(ep: *mut Endpoint, data: *mut c_void) {
    // SAFETY: the caller's endpoint.
    let known = unsafe {
        let worker = &*(*ep).worker;
        worker.streams.lock().give_back(ep, data as usize)
    };
    if !known {
        log::error!("ucp_stream_data_release: {data:p} was not lent, or was given back before");
    }
}

/// Writes up to `max` endpoints with bytes that were not told of before, and says how many.
///
/// # Safety
/// `max` entries are writable at `out`.
pub unsafe fn poll(worker: &Worker, out: *mut ucp_stream_poll_ep_t, max: usize) -> usize {
    let mut streams = worker.streams.lock();
    for i in 0..max {
        let Some(ep) = streams.next_ready() else {
            return i;
        };
        // SAFETY: the caller's entries; a listed endpoint lives.
        unsafe {
            (*ep).given.store(true, Ordering::Relaxed);
            out.add(i).write(ucp_stream_poll_ep_t {
                ep: ep.cast(),
                user_data: (*ep).user_data,
                flags: 0,
                reserved: [0; 16],
            });
        }
    }
    max
}

/// An endpoint has become the user's: bytes that came before are his.
///
/// # Safety
/// A live endpoint.
pub unsafe fn adopted(worker: &Worker, ep: *mut Endpoint) {
    let mut streams = worker.streams.lock();
    // SAFETY: the caller's endpoint.
    unsafe {
        if (*ep).stream.is_some() {
            streams.announce(ep);
        }
    }
}
