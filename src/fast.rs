//! THE HOT PATH, in reading order: send a tagged message, post a receive, send an active message, write remote memory;
//! then progress: arrival, matching, completion. Atomic operations are in [`atomics`], puts with a signal in
//! [`signals`]; what goes by queue pairs is in [`ib`], over the Tofu interconnect in [`tofu`].
//!
//! In single-thread mode: no allocation, no system call, no lock, no atomic read-modify-write.
//! Whatever is not the common case is somebody else's function, called out of line.

pub mod atomics;
pub mod ib;
mod shm;
pub mod signals;
pub mod tofu;

use crate::ctypes::*;
use crate::engine::am::AmFunction;
use crate::engine::datatype::Data;
use crate::engine::endpoint::{self, Endpoint};
use crate::engine::ib_worker::IbWorker;
use crate::engine::matcher::PostedRecv;
use crate::engine::peer::Peer;
use crate::engine::request::{self, Request};
use crate::engine::rkey::Rkey;
use crate::engine::worker::{Rx, Worker};
use crate::op::am::AmMessage;
use crate::op::param::{Param, status_ptr};
use crate::op::{am, ib_rx, listener, rma, sgl, stream, tag, tcp_rx, tofu_rx};
use crate::proto::cma::CmaDirection;
use crate::proto::{
    close_grace, detach, failure, liveness, release, resolve, rndv, select, split_copy,
    tofu_wireup, tx,
};
use crate::sys::clock;
use crate::sys::copy::{self, TINY};
use crate::sys::sync::give_way;
use crate::tl::Lane;
use crate::tl::shm::ring::{INLINE, RingMessage};
use crate::wire::header::{AmImm, Kind};
use crate::wire::stats::StatProtocol;
use shm::{BATCH, HOT};
use std::ffi::c_void;
use std::mem;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Most calls between two looks at the clock. Few enough that a caller who begins to call only every 10 ms hears of
/// a death in time; a look costs about 25 ns.
const CLOCK_EVERY: u32 = 64;

/// With none of these bits in its mask an operation is as simple as its function's name.
const SPECIAL: u32 = UCP_OP_ATTR_FIELD_DATATYPE as u32
    | UCP_OP_ATTR_FIELD_MEMORY_TYPE as u32
    | UCP_OP_ATTR_FLAG_NO_IMM_CMPL as u32
    | HINTS;

/// As [`SPECIAL`], of active messages.
const SPECIAL_AM: u32 = SPECIAL | UCP_OP_ATTR_FIELD_FLAGS as u32;

/// What the caller cares for most; MPI's blocking sends say the first. What is short ends inside of the call and
/// fast, whatever they say; only both at once is a mistake, to be told of on the long way.
const HINTS: u32 = UCP_OP_ATTR_FLAG_FAST_CMPL as u32 | UCP_OP_ATTR_FLAG_MULTI_SEND as u32;

/// Bytes of `count` elements, if the buffer is one piece and nothing is special; else `None`.
#[inline(always)]
fn plain_length(p: &Param, count: usize) -> Option<usize> {
    bytes_of(p, count, SPECIAL)
}

/// As [`bytes_of`]; what is too long for the shortest way, instead of `None`.
#[inline(always)]
fn tiny_length(p: &Param, count: usize, special: u32) -> usize {
    bytes_of(p, count, special).unwrap_or(usize::MAX)
}

/// As [`plain_length`]; `special`: the bits that make an operation so.
#[inline(always)]
fn bytes_of(p: &Param, count: usize, special: u32) -> Option<usize> {
    if p.mask & special == 0 {
        return Some(count);
    }
    let plain = UCP_OP_ATTR_FIELD_DATATYPE as u32 | UCP_OP_ATTR_FIELD_MEMORY_TYPE as u32 | HINTS;
    if p.mask & (special & !plain) != 0 || p.mask & HINTS == HINTS {
        return None;
    }
    let datatype = p.datatype();
    if datatype & 7 != 0 || p.memory_type() != 0 {
        return None;
    }
    count.checked_mul((datatype >> 3) as usize)
}

/// `ucp_tag_send_nbx`
///
/// # Safety
/// As there.
#[inline(always)]
pub unsafe fn tag_send(
    ep: *const Endpoint,
    buffer: *const c_void,
    count: usize,
    tag: u64,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint and structure; `len` bytes of his buffer.
    unsafe {
        let p = Param::new(param, 0);
        if !(*ep).has(endpoint::SPECIAL | endpoint::LONG_WAY_TAG)
            && let len @ ..=TINY = tiny_length(&p, count, SPECIAL)
            && (len == 0 || !buffer.is_null())
        {
            match send_tiny(ep, Kind::TagEager, || tag, buffer, len) {
                TinyResult::Sent => return std::ptr::null_mut(),
                TinyResult::Queues => return ib::tag_send(ep, buffer, count, tag, param, len),
                TinyResult::Tofu => return tofu::tag_send(ep, buffer, count, tag, param, len),
                TinyResult::No => return tag_send_in_turn(ep, buffer, count, tag, param, len),
            }
        }
        tag_send_slow(ep, buffer, count, tag, param)
    }
}

/// What became of the shortest way.
enum TinyResult {
    Sent,
    /// Not by a ring: a queue pair leads there.
    Queues,
    /// As little: the Tofu interconnect does.
    Tofu,
    No,
}

/// Puts up to [`TINY`] bytes into the ring of the endpoint's peer, in single-thread mode: no more than loads and
/// stores. What is made only when nothing is in the way any more, as `imm`, needs no register until then.
#[inline(always)]
unsafe fn send_tiny(
    ep: *const Endpoint,
    kind: Kind,
    imm: impl FnOnce() -> u64,
    buffer: *const c_void,
    len: usize,
) -> TinyResult {
    // SAFETY: the caller's endpoint, whose flags say single-thread mode; no callback runs here.
    let tx = unsafe { (*ep).peer().tx.alone() };
    let Some(Lane::Shm(outbox)) = tx.lane.as_mut() else {
        return match tx.lane {
            Some(Lane::Ib(_)) => TinyResult::Queues,
            Some(Lane::Tofu(_)) => TinyResult::Tofu,
            _ => TinyResult::No,
        };
    };
    // The box is looked into once.
    let outbox = outbox.as_mut();
    // SAFETY: the user's buffer.
    if !tx.pending.is_empty() || !unsafe { outbox.send_tiny(kind as u8, imm, buffer.cast(), len) } {
        return TinyResult::No;
    }
    // SAFETY: as above.
    let stats = unsafe { (*ep).peer() }.stats();
    outbox.look_ahead(stats.received.messages());
    stats.of(StatProtocol::Short).add(len);
    TinyResult::Sent
}

/// As [`send_tiny`], of the first message since another sender has sent one to the same receiver: a new epoch begins.
#[inline(always)]
unsafe fn send_in_turn(
    ep: *const Endpoint,
    kind: Kind,
    imm: u64,
    buffer: *const c_void,
    len: usize,
) -> bool {
    // SAFETY: as in `send_tiny`, of which this is the second try.
    unsafe {
        let (tx, stats) = ((*ep).peer().tx.alone(), (*ep).peer().stats());
        let Some(Lane::Shm(outbox)) = tx.lane.as_mut() else {
            return false;
        };
        let sent = tx.pending.is_empty()
            && outbox.send_tiny_in_new_epoch(kind as u8, imm, buffer.cast(), len);
        if sent {
            stats.of(StatProtocol::Short).add(len);
        }
        sent
    }
}

#[inline(never)]
unsafe fn tag_send_in_turn(
    ep: *const Endpoint,
    buffer: *const c_void,
    count: usize,
    tag: u64,
    param: *const ucp_request_param_t,
    len: usize,
) -> ucs_status_ptr_t {
    // SAFETY: passed on.
    unsafe {
        match send_in_turn(ep, Kind::TagEager, tag, buffer, len) {
            true => std::ptr::null_mut(),
            false => tag_send_slow(ep, buffer, count, tag, param),
        }
    }
}

#[inline(never)]
unsafe fn am_send_in_turn(
    ep: *const Endpoint,
    id: u32,
    buffer: *const c_void,
    count: usize,
    param: *const ucp_request_param_t,
    len: usize,
) -> ucs_status_ptr_t {
    // SAFETY: passed on.
    unsafe {
        let imm = am::plain_imm(id, (*ep).remote_sn);
        match send_in_turn(ep, Kind::AmEager, imm, buffer, len) {
            true => std::ptr::null_mut(),
            // Neither a header nor an id of more than 16 bits: the caller has looked.
            false => am_send_slow(ep, id, std::ptr::null(), 0, buffer, count, param),
        }
    }
}

/// Longer ones up to the rendezvous threshold, and workers that threads share.
#[inline(never)]
unsafe fn tag_send_slow(
    ep: *const Endpoint,
    buffer: *const c_void,
    count: usize,
    tag: u64,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, whose worker and peer outlive it; his structure and buffer.
    unsafe {
        let (e, worker, peer) = (&*ep, &*(*ep).worker, (*ep).peer());
        let p = Param::new(param, worker.extra_op_flags());
        if let Some(len) = plain_length(&p, count)
            && !e.has(endpoint::SPECIAL)
            && worker.ctx.features & UCP_FEATURE_TAG as u64 != 0
            && (len == 0 || !buffer.is_null())
            && send_eager(worker, peer, Kind::TagEager, tag, buffer, len)
        {
            return std::ptr::null_mut();
        }
        tag::send(ep, buffer, count, tag, &p, false)
    }
}

/// Copies a message into the peer's ring, if it is short enough and nothing waits in front of it.
#[inline(always)]
unsafe fn send_eager(
    worker: &Worker,
    peer: &Peer,
    kind: Kind,
    imm: u64,
    buffer: *const c_void,
    len: usize,
) -> bool {
    let fits = select::is_eager(len, peer.rndv_thresh(worker));
    let counted = if len <= INLINE {
        StatProtocol::Short
    } else {
        StatProtocol::Eager
    };
    // SAFETY: passed on.
    fits && unsafe { send_now(peer, kind, imm, buffer, len, counted) }
}

/// As `send_eager`, of a length that fits into a record.
#[inline(always)]
unsafe fn send_now(
    peer: &Peer,
    kind: Kind,
    imm: u64,
    buffer: *const c_void,
    len: usize,
    counted: StatProtocol,
) -> bool {
    let mut tx = peer.tx.lock();
    if !tx.pending.is_empty() {
        return false;
    }
    let sent = match tx.lane.as_mut() {
        Some(Lane::Shm(outbox)) => {
            let sent = outbox.send(kind as u8, 0, imm, len, |record| {
                // SAFETY: the record has room for `len` bytes, as many as the user's buffer has.
                unsafe { copy::to_shared(record, buffer.cast(), len) };
            });
            // Where threads share the peer the next message begins with an atomic exchange, which waits for lines under
            // way.
            if sent == Ok(true) && !peer.tx.is_shared() {
                outbox.look_ahead_of_long(peer.stats().received.messages());
            }
            sent == Ok(true)
        }
        Some(Lane::Ib(sender)) => sender.send(kind as u8, 0, imm, len, |record| {
            // SAFETY: as above.
            unsafe { copy::short(record, buffer.cast(), len) };
        }),
        Some(Lane::Tofu(sender)) => sender.send(kind as u8, 0, imm, len, |record| {
            // SAFETY: as above.
            unsafe { copy::short(record, buffer.cast(), len) };
        }),
        _ => false,
    };
    if !sent {
        return false;
    }
    peer.stats().of(counted).add(len);
    true
}

/// What makes a receive more than a buffer that waits for a message.
const SPECIAL_RECEIVE: u32 =
    SPECIAL & !(UCP_OP_ATTR_FLAG_NO_IMM_CMPL as u32) | UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL as u32;

/// `ucp_tag_recv_nbx`: posts, if no message waits.
///
/// # Safety
/// As there.
#[inline(always)]
pub unsafe fn tag_recv(
    worker: &Worker,
    buffer: *mut c_void,
    count: usize,
    tag: u64,
    mask: u64,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's structure and memory. The flag says single-thread mode: no callback runs
    // here. The request stays in its place while it is posted.
    unsafe {
        let p = Param::new(param, 0);
        if worker.short_way_recv()
            && let Some(len) = bytes_of(&p, count, SPECIAL_RECEIVE)
            && (len == 0 || !buffer.is_null())
            && worker.matcher.alone().can_post()
            && (p.has(UCP_OP_ATTR_FIELD_REQUEST) || worker.pool.alone().has_some())
        {
            let ptr = buffer.cast();
            let memory = request::memory_single_threaded(worker, p.external());
            let req = request::fill_receive(worker, memory, Data::Contig { ptr, len });
            request::set_callback(req, p.notify_tag_recv(), p.user_data());
            let posting = &raw mut (*req).posting;
            worker.matcher.alone().post_short(tag, mask, posting);
            return Request::handle(req);
        }
        tag_recv_slow(worker, buffer, count, tag, mask, param)
    }
}

#[inline(never)]
unsafe fn tag_recv_slow(
    worker: &Worker,
    buffer: *mut c_void,
    count: usize,
    tag: u64,
    mask: u64,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's structure; the rest is passed on.
    unsafe {
        let p = Param::new(param, worker.extra_op_flags());
        if worker.ctx.has(UCP_FEATURE_TAG)
            && let Some(len) = bytes_of(&p, count, SPECIAL_RECEIVE)
            && (len == 0 || !buffer.is_null())
        {
            let ptr = buffer.cast();
            if worker.mt
                && let Some(req) = post_shared(worker, Data::Contig { ptr, len }, tag, mask, &p)
            {
                return Request::handle(req);
            }
            if let Some(status) = tag::take_immediately::<true>(worker, tag, mask, (ptr, len), &p) {
                return status_ptr(status);
            }
        }
        tag::recv(worker, buffer, count, tag, mask, &p)
    }
}

/// Posts a receive in a worker that threads share, if no message waits and the pool has a request.
unsafe fn post_shared(
    worker: &Worker,
    data: Data,
    tag: u64,
    mask: u64,
    p: &Param,
) -> Option<*mut Request> {
    let mut matcher = worker.matcher.lock();
    if !matcher.can_post() {
        return None;
    }
    // SAFETY: the caller's memory. The request stays in its place while it is posted.
    unsafe {
        let memory = request::memory_no_alloc(worker, p.external())?;
        let req = request::fill_receive(worker, memory, data);
        request::set_callback(req, p.notify_tag_recv(), p.user_data());
        matcher.post_short(tag, mask, &raw mut (*req).posting);
        Some(req)
    }
}

/// `ucp_am_send_nbx`
///
/// # Safety
/// As there.
#[inline(always)]
pub unsafe fn am_send(
    ep: *const Endpoint,
    id: u32,
    header: *const c_void,
    header_len: usize,
    buffer: *const c_void,
    count: usize,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint and structure; `len` bytes of his buffer.
    unsafe {
        let p = Param::new(param, 0);
        if !(*ep).has(endpoint::SPECIAL | endpoint::LONG_WAY_AM)
            && let len @ ..=TINY = tiny_length(&p, count, SPECIAL_AM)
            // Neither a header nor an id of more than 16 bits.
            && header_len | (id >> 16) as usize == 0
            && (len == 0 || !buffer.is_null())
        {
            let imm = || am::plain_imm(id, (*ep).remote_sn);
            match send_tiny(ep, Kind::AmEager, imm, buffer, len) {
                TinyResult::Sent => return std::ptr::null_mut(),
                TinyResult::Queues => {
                    return ib::am_send(ep, id, buffer, count, param, len);
                }
                TinyResult::Tofu => return tofu::am_send(ep, id, buffer, count, param, len),
                TinyResult::No => return am_send_in_turn(ep, id, buffer, count, param, len),
            }
        }
        am_send_slow(ep, id, header, header_len, buffer, count, param)
    }
}

#[inline(never)]
unsafe fn am_send_slow(
    ep: *const Endpoint,
    id: u32,
    header: *const c_void,
    header_len: usize,
    buffer: *const c_void,
    count: usize,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, whose worker and peer outlive it; his structure and buffer.
    unsafe {
        let (e, worker, peer) = (&*ep, &*(*ep).worker, (*ep).peer());
        let p = Param::new(param, worker.extra_op_flags());
        // Built in memory here, so that a short send keeps none of its fields in registers.
        let m = AmMessage {
            id,
            header,
            header_len,
            buffer,
            count,
        };
        if let Some(len) = plain_length(&p, count)
            && !e.has(endpoint::SPECIAL)
            && header_len == 0
            && id <= u32::from(u16::MAX)
            && p.flags() & !(UCP_AM_SEND_FLAG_EAGER as u32) == 0
            && worker.ctx.features & UCP_FEATURE_AM as u64 != 0
            && (len == 0 || !buffer.is_null())
        {
            let imm = am::plain_imm(id, e.remote_sn);
            if send_eager(worker, peer, Kind::AmEager, imm, buffer, len) {
                return std::ptr::null_mut();
            }
        }
        am::send(ep, &m, &p)
    }
}

/// `ucp_stream_send_nbx`
///
/// # Safety
/// As there.
#[inline(always)]
pub unsafe fn stream_send(
    ep: *const Endpoint,
    buffer: *const c_void,
    count: usize,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, whose worker and peer outlive it.
    let (e, worker, peer) = unsafe { (&*ep, &*(*ep).worker, (*ep).peer()) };
    // SAFETY: the caller's structure.
    let p = unsafe { Param::new(param, worker.extra_op_flags()) };
    if let Some(len @ 1..=select::MAX_EAGER) = plain_length(&p, count)
        && !e.has(endpoint::SPECIAL)
        && worker.ctx.features & UCP_FEATURE_STREAM as u64 != 0
        && !buffer.is_null()
    {
        let (kind, imm) = (Kind::StreamData, stream::imm(e));
        // SAFETY: `len` bytes of the user's buffer.
        if unsafe { send_now(peer, kind, imm, buffer, len, StatProtocol::Stream) } {
            return std::ptr::null_mut();
        }
    }
    // SAFETY: passed on.
    unsafe { stream_send_slow(ep, buffer, count, &p) }
}

#[cold]
#[inline(never)]
unsafe fn stream_send_slow(
    ep: *const Endpoint,
    buffer: *const c_void,
    count: usize,
    p: &Param,
) -> ucs_status_ptr_t {
    // SAFETY: passed on.
    unsafe { stream::send(ep, buffer, count, p) }
}

/// Whether an access with this key may be a plain one.
#[inline(always)]
unsafe fn is_plain(ep: *const Endpoint, rkey: *const Rkey) -> bool {
    // SAFETY: the caller's endpoint.
    let (e, worker) = unsafe { (&*ep, &*(*ep).worker) };
    !rkey.is_null()
        && !e.has(endpoint::SPECIAL | endpoint::LONG_WAY_RMA)
        && !worker.fenced.load(Ordering::Relaxed)
}

/// `ucp_put_nbx`
///
/// # Safety
/// As there.
#[inline(always)]
pub unsafe fn put(
    ep: *const Endpoint,
    buffer: *const c_void,
    count: usize,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's structure. An option that adds to the flags sends the endpoint's accesses the long way.
    let p = unsafe { Param::new(param, 0) };
    // SAFETY: the caller's key; the rest is passed on.
    unsafe {
        if rkey.is_null() {
            return put_slow(ep, buffer, count, addr, rkey, param);
        }
        if p.mask & SPECIAL == 0 && (*rkey).has_only_stadds() {
            return tofu::put(ep, buffer, count, addr, rkey, param);
        }
    }
    let len = plain_length(&p, count).unwrap_or(0);
    // SAFETY: the caller's endpoint, key and buffer; the peer outlives its endpoints.
    unsafe {
        if len != 0 && !buffer.is_null() && is_plain(ep, rkey) {
            if let Some(local) = (*rkey).local(addr, len) {
                // Counted before what may be a call.
                (*ep).peer().stats().of(StatProtocol::RmaMapped).add(len);
                return copied(local, buffer.cast(), len);
            }
            if p.mask & SPECIAL == 0 {
                if (*rkey).stadd(addr, len).is_some() {
                    return tofu::put_bcopy(ep, buffer, len, addr, rkey, param);
                }
                return ib::put(ep, buffer, len, addr, rkey, param);
            }
        }
    }
    // SAFETY: passed on.
    unsafe { put_slow(ep, buffer, count, addr, rkey, param) }
}

#[cold]
#[inline(never)]
unsafe fn put_slow(
    ep: *const Endpoint,
    buffer: *const c_void,
    count: usize,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, whose worker outlives it, and structure; the rest is passed on.
    unsafe {
        let p = &Param::new(param, (*(*ep).worker).extra_op_flags());
        if sgl::is(p) {
            return sgl::access(ep, CmaDirection::Write, (buffer, count), (addr, rkey), p);
        }
        rma::put(ep, buffer, count, addr, rkey, p)
    }
}

/// `ucp_get_nbx`
///
/// # Safety
/// As there.
#[inline(always)]
pub unsafe fn get(
    ep: *const Endpoint,
    buffer: *mut c_void,
    count: usize,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's structure. An option that adds to the flags sends the endpoint's accesses the long way.
    let p = unsafe { Param::new(param, 0) };
    let len = plain_length(&p, count).unwrap_or(0);
    // SAFETY: the caller's endpoint, key and buffer; the peer outlives its endpoints.
    unsafe {
        if len != 0
            && !p.has(UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL)
            && !buffer.is_null()
            && is_plain(ep, rkey)
        {
            if let Some(local) = (*rkey).local(addr, len) {
                // Counted before what may be a call.
                (*ep).peer().stats().of(StatProtocol::RmaMapped).add(len);
                return copied(buffer.cast(), local, len);
            }
            if p.mask & SPECIAL == 0 {
                if (*rkey).has_only_stadds() {
                    return tofu::get(ep, buffer, len, addr, rkey, param);
                }
                return ib::get(ep, buffer, len, addr, rkey, param);
            }
        }
    }
    // SAFETY: passed on.
    unsafe { get_slow(ep, buffer, count, addr, rkey, param) }
}

#[cold]
#[inline(never)]
unsafe fn get_slow(
    ep: *const Endpoint,
    buffer: *mut c_void,
    count: usize,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, whose worker outlives it, and structure; the rest is passed on.
    unsafe {
        let p = &Param::new(param, (*(*ep).worker).extra_op_flags());
        if sgl::is(p) {
            return sgl::access(ep, CmaDirection::Read, (buffer, count), (addr, rkey), p);
        }
        rma::get(ep, buffer, count, addr, rkey, p)
    }
}

/// Copies, and answers that all is done. Words are moved whole, because programs poll on them; anything else as memory.
/// The ranges can be the same memory when a program accesses its own.
#[inline(always)]
unsafe fn copied(dst: *mut u8, src: *const u8, len: usize) -> ucs_status_ptr_t {
    // SAFETY: the caller's ranges.
    unsafe {
        if len == 8 {
            dst.cast::<u64>()
                .write_unaligned(src.cast::<u64>().read_unaligned());
        } else if len == 4 {
            dst.cast::<u32>()
                .write_unaligned(src.cast::<u32>().read_unaligned());
        } else {
            return copied_slow(dst, src, len);
        }
    }
    std::ptr::null_mut()
}

/// Not inline: words need no stack then.
#[inline(never)]
unsafe fn copied_slow(dst: *mut u8, src: *const u8, len: usize) -> ucs_status_ptr_t {
    // SAFETY: the caller's ranges.
    unsafe { std::ptr::copy(src, dst, len) };
    std::ptr::null_mut()
}

/// `ucp_worker_progress`: number of things that happened. Another thread that is at it, or a
/// callback that calls it, makes it return 0 at once.
#[inline(always)]
pub fn progress(worker: &Worker) -> u32 {
    if worker.rx.is_held() {
        return match worker.mt {
            true => move_on::<true>(worker),
            false => 0,
        };
    }
    // SAFETY: single-thread mode, and nobody up the stack has it.
    let rx = unsafe { worker.rx.alone() };
    rx.calls -= 1;
    if !worker.progress_flags.none() || has_flags(rx) {
        return progress_ib(worker, rx);
    }
    shm::poll_few(worker, rx)
}

/// Whether there may be more to do than to take messages from a few rings and ports.
#[inline(always)]
fn has_flags(rx: &Rx) -> bool {
    rx.calls == 0 || rx.shm_rings.len() > HOT
}

/// As [`progress`], for workers with ports, which is all that is special.
#[inline(never)]
fn progress_ib(worker: &Worker, rx: &mut Rx) -> u32 {
    if !worker.progress_flags.only_ib() || rx.calls == 0 || worker.doorbell.has_new_ring() {
        return progress_tofu(worker, rx);
    }
    if rx.shm_rings.is_empty()
        && let Some(iface) = rx.ib.as_deref().and_then(IbWorker::sole)
    {
        // SAFETY: single-thread mode, and nobody up the stack has what progress has; the interface is its ports'.
        return unsafe { ib::poll(worker, iface) };
    }
    progress_shm(worker, rx)
}

/// As [`progress_ib`], for workers with the Tofu interconnect and nothing else.
#[inline(never)]
fn progress_tofu(worker: &Worker, rx: &mut Rx) -> u32 {
    if !worker.progress_flags.only_tofu()
        || rx.calls == 0
        || worker.doorbell.has_new_ring()
        || !rx.shm_rings.is_empty()
    {
        // A child that was forked in a callback comes here once that has returned.
        if worker.progress_flags.is_inherited() {
            worker.rx.hold(true);
            return 0;
        }
        return move_on::<false>(worker);
    }
    // SAFETY: single-thread mode, and nobody up the stack has what progress has.
    unsafe { tofu::poll(worker, rx) }
}

/// The same, where there are rings, too, or several ports.
#[inline(never)]
fn progress_shm(worker: &Worker, rx: &mut Rx) -> u32 {
    if rx.shm_rings.len() > HOT {
        return move_on::<false>(worker);
    }
    let rings = shm::poll_few(worker, rx);
    let came = match rx.ib.as_deref().and_then(IbWorker::sole) {
        // SAFETY: as above.
        Some(iface) => unsafe { ib::poll(worker, iface) },
        None => poll_ib(worker, rx),
    };
    rings + came
}

/// Handles what has come through all ports. In single-thread mode.
#[allow(
    clippy::redundant_closure,
    reason = "a closure is inlined, as a function that two places name is not"
)]
fn poll_ib(worker: &Worker, rx: &mut Rx) -> u32 {
    let Some(ports) = rx.ib.as_deref_mut() else {
        return 0;
    };
    worker.rx.hold(true);
    let count = ib_rx::poll(worker, ports, |w, m| on_packet::<false>(w, m));
    worker.rx.hold(false);
    rx.events += u64::from(count);
    count
}

/// A message that came through a queue pair; false: it is none of the most frequent.
#[inline(always)]
fn on_packet<const MT: bool>(worker: &Worker, m: RingMessage) -> bool {
    if m.kind != Kind::TagEager as u8 {
        return m.kind == Kind::AmEager as u8 && on_am::<MT>(worker, m);
    }
    if MT {
        on_shared_eager(worker, m);
    } else {
        on_eager(worker, m);
    }
    true
}

/// As [`on_eager`], in a worker that threads share.
#[inline(never)]
fn on_shared_eager(worker: &Worker, m: RingMessage) {
    let mut matcher = worker.matcher.lock();
    let posting = matcher.arrive(m.imm);
    if posting.is_null() {
        // SAFETY: the record is readable during the call.
        return unsafe { tag::add_unexpected_eager(worker, &mut matcher, m.imm, m.record, m.len) };
    }
    drop(matcher);
    // SAFETY: out of the matcher: ours. The record is readable during the call.
    unsafe { deliver::<true>(posting, m.imm, m.record, m.len) };
}

#[inline(never)]
fn move_on<const MT: bool>(worker: &Worker) -> u32 {
    if MT && worker.progress_flags.is_inherited() {
        return 0;
    }
    let Some(mut guard) = worker.rx.try_lock() else {
        return 0;
    };
    let rx = &mut *guard;
    if MT {
        rx.calls -= 1;
    }
    if worker.doorbell.has_new_ring() {
        resolve::accept(worker, rx);
    }
    let mut count = shm::poll_all::<MT>(worker, rx);
    worker.progress_flags.clear_copied();
    if worker.progress_flags.has_ib() {
        count += ib_rx::progress(worker, rx, on_packet::<MT>);
    }
    if worker.progress_flags.has_tofu() {
        count += tofu_rx::progress(worker, rx, on_packet::<MT>);
    }
    if worker.progress_flags.is_networked() {
        count += tcp_rx::progress(worker, rx);
    } else if worker.progress_flags.backlog() != 0 {
        count += tx::progress_backlog(worker);
    }
    if worker.progress_flags.chores() {
        count += chores(worker, rx);
    }
    let look = rx.calls == 0;
    if look {
        count += on_tick::<MT>(worker, rx);
    }
    rx.events += u64::from(count);
    if MT
        && count > 0
        && rx
            .backlog_yield
            .is_over(worker.stats.worker().unexpected_total())
    {
        drop(guard);
        offer_core(worker, |rx, took| rx.backlog_yield.offered(took));
        return count;
    }
    if look && rx.clock_interval == CLOCK_EVERY && is_polled_in_vain(worker, rx) {
        drop(guard);
        offer_core(worker, |rx, took| rx.idle_yield.offered(took));
    }
    count
}

/// Whether progress was called for long, and neither anything came nor did the worker anything else.
#[inline(never)]
fn is_polled_in_vain(worker: &Worker, rx: &mut Rx) -> bool {
    rx.idle_yield.is_over(|| {
        // With more rings than these, messages of all of them are in `events`.
        let taken = rx.shm_rings.iter().take(HOT).map(|c| c.consumer.taken());
        let others = rx.events.wrapping_add(worker.stats.operations());
        taken.fold(others, u64::wrapping_add)
    })
}

/// Lets others run on this core, if there are any. How long it took goes to the account of who asked.
#[cold]
#[inline(never)]
fn offer_core(worker: &Worker, account: fn(&mut Rx, Duration)) {
    if let Some(rx) = worker.rx.try_lock()
        && let Some(inbox) = &rx.inbox
    {
        inbox.note_progress(|| 0);
    }
    let began = Instant::now();
    give_way(0);
    let took = began.elapsed();
    if let Some(mut rx) = worker.rx.try_lock() {
        account(&mut rx, took);
        rx.yielded_ms += took.as_millis() as u64;
    }
}

/// As many failed compare-and-swaps that a look at them is due: executes what peers wait for, if the caller does not,
/// and offers the core to others. Inside of a callback, and while another thread progresses, it does only the latter.
#[cold]
#[inline(never)]
pub fn back_off(worker: &Worker, failures: u32) {
    /// Failures before each offer of a caller that cannot look at the account.
    const BLIND: u32 = 1024;
    let operations = worker.stats.atomics();
    let Some(mut rx) = worker.rx.try_lock() else {
        if failures % BLIND == 0 {
            give_way(0);
        }
        return;
    };
    let calls = rx.calls;
    let relief = rx.contention.look(operations, calls);
    drop(rx);
    if relief.progress {
        progress(worker);
        if let Some(mut rx) = worker.rx.try_lock() {
            let calls = rx.calls;
            rx.contention.progressed(calls);
        }
    }
    if relief.offer {
        offer_core(worker, |rx, took| rx.contention.offered(took));
    }
}

/// A tagged message that is all here: into the receive that waits for it, or aside. In single-thread mode.
#[inline(always)]
fn on_eager(worker: &Worker, m: RingMessage) {
    // SAFETY: single-thread mode; nothing of the user's runs meanwhile.
    let matcher = unsafe { worker.matcher.alone() };
    let posting = matcher.arrive(m.imm);
    if posting.is_null() {
        // SAFETY: the record is readable until `advance`.
        return unsafe { tag::add_unexpected_eager(worker, matcher, m.imm, m.record, m.len) };
    }
    // SAFETY: out of the matcher: ours. The record is readable until `advance`.
    unsafe { deliver::<false>(posting, m.imm, m.record, m.len) };
}

/// A message into the receive that it matched.
#[inline(always)]
unsafe fn deliver<const MT: bool>(
    posting: *mut PostedRecv,
    tag: u64,
    bytes: *const u8,
    len: usize,
) {
    let req = Request::of_posting(posting);
    // SAFETY: the caller's request and record.
    unsafe {
        let r = &mut *req;
        r.info.sender_tag = tag;
        if let Data::Contig { ptr, len: room } = r.data
            && len <= room
        {
            r.info.length = len;
            copy::from_shared(ptr, bytes, len);
            request::complete_receive::<MT>(req, UCS_OK);
        } else {
            fill(req, bytes, len);
        }
    }
}

/// A receive that is no single piece, or too short.
#[inline(never)]
unsafe fn fill(req: *mut Request, bytes: *const u8, len: usize) {
    // SAFETY: the caller's request; the record is readable until `advance`.
    unsafe {
        let status = tag::fill(&mut *req, bytes, len);
        request::complete(req, status);
    }
}

/// A plain active message to a plain handler; false if it is not.
#[inline(always)]
fn on_am<const MT: bool>(worker: &Worker, m: RingMessage) -> bool {
    let imm = AmImm::from_u64(m.imm);
    // SAFETY: `MT` is the worker's mode; nothing of the user's runs under the lock.
    let handler = unsafe {
        worker
            .am
            .with::<MT, _>(|table| table.get(usize::from(imm.id)).copied())
    };
    let Some(handler) = handler else {
        return false;
    };
    let AmFunction::New(function) = handler.function else {
        return false;
    };
    let misaligned = m.record as usize & (worker.params.am_alignment - 1);
    let header_len = usize::from(imm.header_len);
    // One test for three.
    if usize::from(imm.flags) | usize::from(handler.persistent) | misaligned != 0
        || m.len < header_len
    {
        return false;
    }
    let param = ucp_am_recv_param_t {
        recv_attr: 0,
        reply_ep: std::ptr::null_mut(),
    };
    let (data, data_len) = (m.record.cast_mut(), m.len - header_len);
    // SAFETY: the user's function with what UCP says it gets; the record is readable until `advance`.
    // Whatever he returns, the data is gone afterwards.
    unsafe {
        let header = data.add(data_len).cast();
        let _ = function(
            handler.arg,
            header,
            header_len,
            data.cast(),
            data_len,
            &param,
        );
    }
    true
}

/// What is seldom to be done: receives that copy, peers that were lost, error handlers.
#[cold]
#[inline(never)]
fn chores(worker: &Worker, rx: &mut Rx) -> u32 {
    worker.progress_flags.take_chores();
    crate::op::endpoint::free_retired(worker);
    tx::end_moved(worker);
    failure::handle_failed(worker, rx);
    close_grace::end_due(worker);
    let asked = rndv::progress_races(worker);
    let (pulling, pushing) = (
        rndv::progress_gets(worker),
        split_copy::progress_split_pushes(worker),
    );
    if asked || pulling || pushing {
        worker.progress_flags.raise_chores();
    }
    release::progress(worker);
    failure::call_handlers(worker) + 1
}

/// Now and then: are the peers still there, which rings are finished? What happens on the way counts: a caller who
/// hears of nothing goes to sleep.
#[cold]
#[inline(never)]
fn on_tick<const MT: bool>(worker: &Worker, rx: &mut Rx) -> u32 {
    let mut count = 0;
    let now = clock::coarse_ms();
    let ticked = now != rx.last_tick;
    // The caller is no slower for what others took.
    let spent = now.saturating_sub(rx.last_tick + mem::take(&mut rx.yielded_ms));
    rx.clock_interval = clock_interval(rx.clock_interval, spent);
    (rx.calls, rx.last_tick) = (rx.clock_interval, now);
    // A callback has forked, here and below, and this is the child.
    if worker.progress_flags.is_inherited() {
        return count;
    }
    if let Some(inbox) = &rx.inbox {
        inbox.note_progress(clock::monotonic_ns);
    }
    if let Some(ports) = rx.ib.as_deref_mut() {
        count += match ticked {
            true => ib_rx::tick(worker, ports, now),
            // Who wants to connect does not wait for the clock.
            false => ib_rx::poll(worker, ports, on_packet::<MT>),
        };
    }
    if worker.progress_flags.is_inherited() {
        return count;
    }
    if ticked {
        if let Some(rings) = rx.tofu.as_deref_mut() {
            tofu_wireup::tick(worker, rings, now);
        }
        if let Some(sockets) = rx.tcp.as_deref_mut() {
            count += tcp_rx::poll_by_clock(worker, sockets, rx.ib.as_deref_mut());
        }
        if worker.progress_flags.is_inherited() {
            return count;
        }
        count += listener::progress(worker);
    }
    if now.saturating_sub(rx.last_failure_check) < liveness::CHECK_INTERVAL_MS {
        return count;
    }
    rx.last_failure_check = now;
    for peer in liveness::dead_peers(worker, rx) {
        let mut rings = rx
            .shm_rings
            .iter_mut()
            .filter(|c| std::ptr::eq(c.peer, peer));
        // What it sent before it died is in its ring by now. It has its turn among the messages of others, and the loss
        // comes behind it.
        if rings.any(|c| !c.consumer.is_empty()) {
            rx.last_failure_check = 0;
            continue;
        }
        rx.shm_rings
            .iter_mut()
            .filter(|c| std::ptr::eq(c.peer, peer))
            .for_each(|c| c.consumer.stop());
        // SAFETY: peers that lists of progress name are not freed.
        tx::fail_peer(unsafe { &*peer }, UCS_ERR_CONNECTION_RESET);
    }
    drop_finished(worker, rx);
    close_grace::tick(worker);
    release::progress(worker);
    detach::progress(worker, rx);
    release::sweep(worker, rx);
    count
}

/// How many calls to wait for the next look at the clock, when the last `calls` took so long: a slow caller looks
/// more often.
fn clock_interval(calls: u32, milliseconds: u64) -> u32 {
    match milliseconds {
        0..8 => (2 * calls).min(CLOCK_EVERY),
        8..32 => calls,
        _ => (u64::from(calls) * 16 / milliseconds).max(1) as u32,
    }
}

/// Gives back rings that nothing will come through any more.
fn drop_finished(worker: &Worker, rx: &mut Rx) {
    let Some(inbox) = rx.inbox.as_mut() else {
        return;
    };
    rx.shm_rings.retain_mut(|c| {
        // A sender that lives can still write: its ring is not for others yet.
        // SAFETY: peers that lists of progress name are not freed.
        let gone = c.consumer.is_stopped() && failure::is_dead(worker, unsafe { &*c.peer });
        let finished = gone || (c.consumer.closed() && matches!(c.consumer.peek(), Ok(None)));
        if finished {
            // SAFETY: peers that lists of progress name are not freed.
            let peer = unsafe { &*c.peer };
            // A sender that is destroyed closes its ring: it need not wait for its turn to be looked at.
            if !gone && failure::is_dead(worker, peer) {
                tx::fail_peer(peer, UCS_ERR_CONNECTION_RESET);
            }
            let withdrawals = c.consumer.withdrawals();
            let ours = &peer.cancels;
            // A peer that has come back has another ring.
            if ours.load(Ordering::Relaxed) == withdrawals {
                ours.store(std::ptr::null_mut(), Ordering::Release);
                split_copy::drop_push(worker, peer);
            }
            inbox.free(c.index);
            detach::note_idle(worker, peer);
        }
        !finished
    });
}
