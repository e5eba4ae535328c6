//! Hot path, in reading order: tagged send, tagged receive, active message, RMA; then progress: arrival, matching,
//! completion. Atomic operations are in [`atomics`], puts with a signal in [`signals`], operations over RC and UD in
//! [`ib`], over Tofu in [`tofu`].
//!
//! In single-thread mode: no allocation, no system call, no lock, no atomic read-modify-write. Less frequent cases are
//! in functions of other modules, called out of line.

pub mod atomics;
pub mod ib;
mod shm;
pub mod signals;
pub mod tofu;

use crate::ctypes::*;
use crate::engine::am::AmFunction;
use crate::engine::core_yield::{is_polled_in_vain, yield_core};
use crate::engine::datatype::Data;
use crate::engine::endpoint::{self, Endpoint};
use crate::engine::ib_worker::IbWorker;
use crate::engine::matcher::PostedRecv;
use crate::engine::peer::Peer;
use crate::engine::request::{self, Request};
use crate::engine::rkey::Rkey;
use crate::engine::worker::{HOT_RINGS, Rx, Worker};
use crate::op::am::AmMessage;
use crate::op::param::{Param, status_ptr};
use crate::op::{am, deferred, ib_rx, rma, sgl, stream, tag, tcp_rx, tick, tofu_rx};
use crate::proto::cma::CmaDirection;
use crate::proto::{resolve, select, tx};
use crate::sys::copy::{self, TINY};
use crate::tl::Lane;
use crate::tl::shm::ring::{INLINE, RingMessage};
use crate::wire::header::{AmImm, Kind};
use crate::wire::stats::StatProtocol;
use shm::BATCH;
use std::ffi::c_void;
use std::sync::atomic::Ordering;

/// Bits of `op_attr_mask` that exclude the fast path, unless [`bytes_of`] finds their values to be simple.
const SPECIAL: u32 = UCP_OP_ATTR_FIELD_DATATYPE as u32
    | UCP_OP_ATTR_FIELD_MEMORY_TYPE as u32
    | UCP_OP_ATTR_FLAG_NO_IMM_CMPL as u32
    | HINTS;

/// [`SPECIAL`] for active messages, whose `flags` field excludes the fast path too.
const SPECIAL_AM: u32 = SPECIAL | UCP_OP_ATTR_FIELD_FLAGS as u32;

/// The caller's hints; blocking sends of MPI set `FAST_CMPL`. Short messages ignore them: they complete inside of the
/// call. Both at once are an error, which the slow path reports.
const HINTS: u32 = UCP_OP_ATTR_FLAG_FAST_CMPL as u32 | UCP_OP_ATTR_FLAG_MULTI_SEND as u32;

/// Bytes of `count` elements, if the buffer is contiguous and no bit of [`SPECIAL`] matters; else `None`.
#[inline(always)]
fn plain_length(p: &Param, count: usize) -> Option<usize> {
    bytes_of(p, count, SPECIAL)
}

/// Bytes of `count` elements as [`bytes_of`] computes them; `usize::MAX` instead of `None`, which no fast path accepts.
#[inline(always)]
fn tiny_length(p: &Param, count: usize, special: u32) -> usize {
    bytes_of(p, count, special).unwrap_or(usize::MAX)
}

/// Bytes of `count` elements, if the buffer is contiguous host memory and no bit of `special` matters; else `None`.
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
/// The parameters are valid as UCP requires.
#[inline(always)]
pub unsafe fn tag_send(
    ep: *const Endpoint,
    buffer: *const c_void,
    count: usize,
    tag: u64,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint and structure are valid; the user's buffer has `len` bytes.
    unsafe {
        let p = Param::new(param, 0);
        if !(*ep).has(endpoint::SPECIAL | endpoint::SLOW_PATH_TAG)
            && let len @ ..=TINY = tiny_length(&p, count, SPECIAL)
            && (len == 0 || !buffer.is_null())
        {
            match send_tiny(ep, Kind::TagEager, || tag, buffer, len) {
                TinyResult::Sent => return std::ptr::null_mut(),
                TinyResult::Ib => return ib::tag_send(ep, buffer, count, tag, param, len),
                TinyResult::Tofu => return tofu::tag_send(ep, buffer, count, tag, param, len),
                TinyResult::No => return tag_send_in_turn(ep, buffer, count, tag, param, len),
            }
        }
        tag_send_slow(ep, buffer, count, tag, param)
    }
}

/// Result of [`send_tiny`].
enum TinyResult {
    Sent,
    /// Not sent: the lane is IB.
    Ib,
    /// Not sent: the lane is Tofu.
    Tofu,
    No,
}

/// Copies up to [`TINY`] bytes into the shared-memory ring of the endpoint's peer, in single-thread mode, by loads and
/// stores only. `imm` is called when all checks have passed, so that its value occupies no register before.
#[inline(always)]
unsafe fn send_tiny(
    ep: *const Endpoint,
    kind: Kind,
    imm: impl FnOnce() -> u64,
    buffer: *const c_void,
    len: usize,
) -> TinyResult {
    // SAFETY: the caller's endpoint is valid, and its flags say single-thread mode; no callback runs here.
    let tx = unsafe { (*ep).peer().tx.alone() };
    let Some(Lane::Shm(outbox)) = tx.lane.as_mut() else {
        return match tx.lane {
            Some(Lane::Ib(_)) => TinyResult::Ib,
            Some(Lane::Tofu(_)) => TinyResult::Tofu,
            _ => TinyResult::No,
        };
    };
    // The `Box` is dereferenced once.
    let outbox = outbox.as_mut();
    // SAFETY: the user's buffer has `len` bytes.
    if !tx.pending.is_empty() || !unsafe { outbox.send_tiny(kind as u8, imm, buffer.cast(), len) } {
        return TinyResult::No;
    }
    // SAFETY: the caller's endpoint is valid, and its peer outlives it.
    let stats = unsafe { (*ep).peer() }.stats();
    outbox.look_ahead(stats.received.messages());
    stats.of(StatProtocol::Short).add(len);
    TinyResult::Sent
}

/// Sends up to [`TINY`] bytes that begin a new epoch: another sender has sent to this receiver since the last message.
#[inline(always)]
unsafe fn send_in_turn(
    ep: *const Endpoint,
    kind: Kind,
    imm: u64,
    buffer: *const c_void,
    len: usize,
) -> bool {
    // SAFETY: `send_tiny` was called before with these arguments: single-thread mode, no callback runs here, and the
    // user's buffer has `len` bytes.
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
    // SAFETY: the caller's promises are those that the callees require.
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
    // SAFETY: the caller's promises are those that the callees require.
    unsafe {
        let imm = am::plain_imm(id, (*ep).remote_sn);
        match send_in_turn(ep, Kind::AmEager, imm, buffer, len) {
            true => std::ptr::null_mut(),
            // The caller has checked that there is no header, and that the id fits into 16 bits.
            false => am_send_slow(ep, id, std::ptr::null(), 0, buffer, count, param),
        }
    }
}

/// Tagged send of up to the rendezvous threshold, in any thread mode; longer messages go to [`tag::send`].
#[inline(never)]
unsafe fn tag_send_slow(
    ep: *const Endpoint,
    buffer: *const c_void,
    count: usize,
    tag: u64,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, structure and buffer are valid; worker and peer outlive the endpoint.
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

/// Copies a message into the lane, if it is eager and the pending queue is empty. False: nothing was sent.
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
    // SAFETY: the caller's buffer has `len` bytes.
    fits && unsafe { send_now(peer, kind, imm, buffer, len, counted) }
}

/// Copies a message of a length that fits into a record into the lane, if the pending queue is empty. False: nothing
/// was sent.
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
            // No prefetch in a peer that threads share: its next message begins with an atomic exchange, which would
            // wait for the cache lines that are being fetched.
            if sent == Ok(true) && !peer.tx.is_shared() {
                outbox.look_ahead_of_long(peer.stats().received.messages());
            }
            sent == Ok(true)
        }
        Some(Lane::Ib(sender)) => sender.send(kind as u8, 0, imm, len, |record| {
            // SAFETY: the record has room for `len` bytes, as many as the user's buffer has.
            unsafe { copy::short(record, buffer.cast(), len) };
        }),
        Some(Lane::Tofu(sender)) => sender.send(kind as u8, 0, imm, len, |record| {
            // SAFETY: the record has room for `len` bytes, as many as the user's buffer has.
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

/// Bits of `op_attr_mask` that exclude the fast path of a receive.
const SPECIAL_RECEIVE: u32 =
    SPECIAL & !(UCP_OP_ATTR_FLAG_NO_IMM_CMPL as u32) | UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL as u32;

/// `ucp_tag_recv_nbx`: posts the receive, if no unexpected message waits.
///
/// # Safety
/// The parameters are valid as UCP requires.
#[inline(always)]
pub unsafe fn tag_recv(
    worker: &Worker,
    buffer: *mut c_void,
    count: usize,
    tag: u64,
    mask: u64,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's structure and memory are valid. `fast_path_recv` says single-thread mode: no callback runs
    // here. The request is not moved while it is posted.
    unsafe {
        let p = Param::new(param, 0);
        if worker.fast_path_recv()
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
    // SAFETY: the caller's structure is valid, and its other promises are those that the callees require.
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

/// Posts a receive in a worker that threads share, if no unexpected message waits and the pool has a free request.
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
    // SAFETY: the caller's memory is valid. The request is not moved while it is posted.
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
/// The parameters are valid as UCP requires.
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
    // SAFETY: the caller's endpoint and structure are valid; the user's buffer has `len` bytes.
    unsafe {
        let p = Param::new(param, 0);
        if !(*ep).has(endpoint::SPECIAL | endpoint::SLOW_PATH_AM)
            && let len @ ..=TINY = tiny_length(&p, count, SPECIAL_AM)
            // No header, and an id of at most 16 bits.
            && header_len | (id >> 16) as usize == 0
            && (len == 0 || !buffer.is_null())
        {
            let imm = || am::plain_imm(id, (*ep).remote_sn);
            match send_tiny(ep, Kind::AmEager, imm, buffer, len) {
                TinyResult::Sent => return std::ptr::null_mut(),
                TinyResult::Ib => {
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
    // SAFETY: the caller's endpoint, structure and buffer are valid; worker and peer outlive the endpoint.
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
/// The parameters are valid as UCP requires.
#[inline(always)]
pub unsafe fn stream_send(
    ep: *const Endpoint,
    buffer: *const c_void,
    count: usize,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint is valid; worker and peer outlive it.
    let (e, worker, peer) = unsafe { (&*ep, &*(*ep).worker, (*ep).peer()) };
    // SAFETY: the caller's structure is valid.
    let p = unsafe { Param::new(param, worker.extra_op_flags()) };
    if let Some(len @ 1..=select::MAX_EAGER) = plain_length(&p, count)
        && !e.has(endpoint::SPECIAL)
        && worker.ctx.features & UCP_FEATURE_STREAM as u64 != 0
        && !buffer.is_null()
    {
        let (kind, imm) = (Kind::StreamData, stream::imm(e));
        // SAFETY: the user's buffer has `len` bytes.
        if unsafe { send_now(peer, kind, imm, buffer, len, StatProtocol::Stream) } {
            return std::ptr::null_mut();
        }
    }
    // SAFETY: the caller's promises are those that the callee requires.
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
    // SAFETY: the caller's promises are those that the callee requires.
    unsafe { stream::send(ep, buffer, count, p) }
}

/// Whether RMA with this key can take the fast path.
#[inline(always)]
unsafe fn is_plain(ep: *const Endpoint, rkey: *const Rkey) -> bool {
    // SAFETY: the caller's endpoint is valid; its worker outlives it.
    let (e, worker) = unsafe { (&*ep, &*(*ep).worker) };
    !rkey.is_null()
        && !e.has(endpoint::SPECIAL | endpoint::SLOW_PATH_RMA)
        && !worker.fenced.load(Ordering::Relaxed)
}

/// `ucp_put_nbx`
///
/// # Safety
/// The parameters are valid as UCP requires.
#[inline(always)]
pub unsafe fn put(
    ep: *const Endpoint,
    buffer: *const c_void,
    count: usize,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's structure is valid. With a configuration that adds flags, `SLOW_PATH_RMA` is set in the
    // endpoint.
    let p = unsafe { Param::new(param, 0) };
    // SAFETY: the caller's key is valid, and its other promises are those that the callees require.
    unsafe {
        if rkey.is_null() {
            return put_slow(ep, buffer, count, addr, rkey, param);
        }
        if p.mask & SPECIAL == 0 && (*rkey).has_only_stadds() {
            return tofu::put(ep, buffer, count, addr, rkey, param);
        }
    }
    let len = plain_length(&p, count).unwrap_or(0);
    // SAFETY: the caller's endpoint, key and buffer are valid; the peer outlives its endpoints.
    unsafe {
        if len != 0 && !buffer.is_null() && is_plain(ep, rkey) {
            if let Some(local) = (*rkey).local(addr, len) {
                // Counted before the copy, which may be a function call.
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
    // SAFETY: the caller's promises are those that the callee requires.
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
    // SAFETY: the caller's endpoint and structure are valid, the worker outlives the endpoint, and the caller's other
    // promises are those that the callees require.
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
/// The parameters are valid as UCP requires.
#[inline(always)]
pub unsafe fn get(
    ep: *const Endpoint,
    buffer: *mut c_void,
    count: usize,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's structure is valid. With a configuration that adds flags, `SLOW_PATH_RMA` is set in the
    // endpoint.
    let p = unsafe { Param::new(param, 0) };
    let len = plain_length(&p, count).unwrap_or(0);
    // SAFETY: the caller's endpoint, key and buffer are valid; the peer outlives its endpoints.
    unsafe {
        if len != 0
            && !p.has(UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL)
            && !buffer.is_null()
            && is_plain(ep, rkey)
        {
            if let Some(local) = (*rkey).local(addr, len) {
                // Counted before the copy, which may be a function call.
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
    // SAFETY: the caller's promises are those that the callee requires.
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
    // SAFETY: the caller's endpoint and structure are valid, the worker outlives the endpoint, and the caller's other
    // promises are those that the callees require.
    unsafe {
        let p = &Param::new(param, (*(*ep).worker).extra_op_flags());
        if sgl::is(p) {
            return sgl::access(ep, CmaDirection::Read, (buffer, count), (addr, rkey), p);
        }
        rma::get(ep, buffer, count, addr, rkey, p)
    }
}

/// Copies, and returns the value of a completed operation. Words of 4 and 8 bytes are moved by one access, because
/// programs poll on them; other lengths as memory. The ranges may overlap: a program can access its own memory.
#[inline(always)]
unsafe fn copied(dst: *mut u8, src: *const u8, len: usize) -> ucs_status_ptr_t {
    // SAFETY: the caller's ranges have `len` bytes.
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

/// Not inlined, so that copies of words need no stack frame.
#[inline(never)]
unsafe fn copied_slow(dst: *mut u8, src: *const u8, len: usize) -> ucs_status_ptr_t {
    // SAFETY: the caller's ranges have `len` bytes.
    unsafe { std::ptr::copy(src, dst, len) };
    std::ptr::null_mut()
}

/// `ucp_worker_progress`: returns the number of events. Returns 0 at once in a callback of progress, and while another
/// thread progresses the worker.
#[inline(always)]
pub fn progress(worker: &Worker) -> u32 {
    if worker.rx.is_held() {
        return match worker.mt {
            true => move_on::<true>(worker),
            false => 0,
        };
    }
    // SAFETY: single-thread mode, and `is_held` is false: no progress call up the stack borrows `rx`.
    let rx = unsafe { worker.rx.alone() };
    rx.calls -= 1;
    if !worker.progress_flags.none() || has_flags(rx) {
        // SAFETY: as said; the borrow of `rx` has ended.
        return unsafe { progress_ib(worker) };
    }
    shm::poll_few(worker, rx)
}

/// Whether the clock is due, or there are more rings than [`shm::poll_few`] polls.
#[inline(always)]
fn has_flags(rx: &Rx) -> bool {
    rx.calls == 0 || rx.shm_rings.len() > HOT_RINGS
}

/// Progress when flags are raised: the fast path of a worker with IB ports and nothing else to do. Without `rx` as an
/// argument, which would be borrowed to the end of the call: the callees borrow it again.
///
/// # Safety
/// Single-thread mode; nothing borrows the worker's `rx`.
#[inline(never)]
unsafe fn progress_ib(worker: &Worker) -> u32 {
    // SAFETY: the caller's promise. Not used after the calls that borrow it again.
    let rx = unsafe { worker.rx.alone() };
    if !worker.progress_flags.only_ib() || rx.calls == 0 || worker.doorbell.has_new_ring() {
        // SAFETY: the caller's promise.
        return unsafe { progress_tofu(worker) };
    }
    if rx.shm_rings.is_empty()
        && let Some(iface) = rx.ib.as_deref().and_then(IbWorker::sole)
    {
        // SAFETY: the caller's promise; the interface belongs to `rx.ib`.
        return unsafe { ib::poll(worker, iface) };
    }
    // SAFETY: the caller's promise.
    unsafe { progress_shm(worker) }
}

/// Fast path of a worker with Tofu interfaces and nothing else to do; otherwise all of progress.
///
/// # Safety
/// Single-thread mode; nothing borrows the worker's `rx`.
#[inline(never)]
unsafe fn progress_tofu(worker: &Worker) -> u32 {
    // SAFETY: the caller's promise. Not used after the call that locks it.
    let rx = unsafe { worker.rx.alone() };
    if !worker.progress_flags.only_tofu()
        || rx.calls == 0
        || worker.doorbell.has_new_ring()
        || !rx.shm_rings.is_empty()
    {
        // A child that was forked in a callback gets here when the callback has returned.
        if worker.progress_flags.is_inherited() {
            worker.rx.hold(true);
            return 0;
        }
        return move_on::<false>(worker);
    }
    // SAFETY: single-thread mode, and no progress call up the stack borrows `rx`.
    unsafe { tofu::poll(worker, rx) }
}

/// Progress of a worker with IB ports and shared-memory rings, or with several ports.
///
/// # Safety
/// Single-thread mode; nothing borrows the worker's `rx`.
#[inline(never)]
unsafe fn progress_shm(worker: &Worker) -> u32 {
    // SAFETY: the caller's promise. Not used after the calls that borrow it again.
    let rx = unsafe { worker.rx.alone() };
    if rx.shm_rings.len() > HOT_RINGS {
        return move_on::<false>(worker);
    }
    let rings = shm::poll_few(worker, rx);
    let came = match rx.ib.as_deref().and_then(IbWorker::sole) {
        // SAFETY: the caller's promise; the interface belongs to `rx.ib`.
        Some(iface) => unsafe { ib::poll(worker, iface) },
        None => poll_ib(worker, rx),
    };
    rings + came
}

/// Handles arrivals and send completions of all ports, in single-thread mode.
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

/// Handles a message that arrived over IB or Tofu. False: it is of another kind than the most frequent ones, and
/// nothing was done.
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

/// Handles an eager tagged message in a worker that threads share.
#[inline(never)]
fn on_shared_eager(worker: &Worker, m: RingMessage) {
    let mut matcher = worker.matcher.lock();
    let posting = matcher.arrive(m.imm);
    if posting.is_null() {
        // SAFETY: the record is readable during the call.
        return unsafe { tag::add_unexpected_eager(worker, &mut matcher, m.imm, m.record, m.len) };
    }
    drop(matcher);
    // SAFETY: the matcher has removed the request: this thread owns it. The record is readable during the call.
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
    if worker.progress_flags.has_deferred() {
        count += deferred::progress(worker, rx);
    }
    let look = rx.calls == 0;
    if look {
        count += tick::progress(worker, rx, on_packet::<MT>);
    }
    rx.events += u64::from(count);
    if MT
        && count > 0
        && rx
            .backlog_yield
            .is_over(worker.stats.worker().unexpected_total())
    {
        drop(guard);
        yield_core(worker, |rx, took| rx.backlog_yield.offered(took));
        return count;
    }
    if look && rx.is_busy_polling() && is_polled_in_vain(worker, rx) {
        drop(guard);
        yield_core(worker, |rx, took| rx.idle_yield.offered(took));
    }
    count
}

/// Copies a complete tagged message into the matching receive, or adds it to the unexpected ones. In single-thread
/// mode.
#[inline(always)]
fn on_eager(worker: &Worker, m: RingMessage) {
    // SAFETY: single-thread mode; no callback of the user runs while `matcher` is borrowed.
    let matcher = unsafe { worker.matcher.alone() };
    let posting = matcher.arrive(m.imm);
    if posting.is_null() {
        // SAFETY: the record is readable until `advance`.
        return unsafe { tag::add_unexpected_eager(worker, matcher, m.imm, m.record, m.len) };
    }
    // SAFETY: the matcher has removed the request: this thread owns it. The record is readable until `advance`.
    unsafe { deliver::<false>(posting, m.imm, m.record, m.len) };
}

/// Copies a message into the receive that it matched, and completes the receive.
#[inline(always)]
unsafe fn deliver<const MT: bool>(
    posting: *mut PostedRecv,
    tag: u64,
    bytes: *const u8,
    len: usize,
) {
    let req = Request::of_posting(posting);
    // SAFETY: the caller's request is owned by this thread, and the record has `len` bytes.
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

/// Completes a receive whose buffer is not contiguous or too short.
#[inline(never)]
unsafe fn fill(req: *mut Request, bytes: *const u8, len: usize) {
    // SAFETY: the caller's request is owned by this thread; the record is readable until `advance`.
    unsafe {
        let status = tag::fill(&mut *req, bytes, len);
        request::complete(req, status);
    }
}

/// Calls the handler of an eager active message without flags. False: nothing was done, the slow path handles it.
#[inline(always)]
fn on_am<const MT: bool>(worker: &Worker, m: RingMessage) -> bool {
    let imm = AmImm::from_u64(m.imm);
    // SAFETY: `MT` is the worker's mode; no code of the user runs under the lock.
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
    // One branch for three tests.
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
    // SAFETY: the user's function gets what UCP documents; the record is readable until `advance`. The returned status
    // is ignored, because the data are not kept without `UCP_AM_RECV_ATTR_FLAG_DATA`.
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
