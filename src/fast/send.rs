//! Hot path of sends: tagged messages, active messages, streams. Up to [`TINY`] bytes go into a ring of shared memory
//! by loads and stores only; longer eager messages are copied into the lane in any thread mode.

use super::length::{SPECIAL, SPECIAL_AM, plain_length, tiny_length};
use super::sender::sender_of;
use crate::ctypes::*;
use crate::engine::endpoint::{Endpoint, EpFlags};
use crate::engine::peer::Peer;
use crate::engine::worker::Worker;
use crate::op::am::AmMessage;
use crate::op::param::Param;
use crate::op::{am, stream, tag};
use crate::proto::select::message as select;
use crate::sys::copy::{self, TINY};
use crate::tl::contract::ShortAm;
use crate::tl::ib::sender::IbSender;
use crate::tl::tofu::sender::TofuSender;
use crate::tl::{Lane, LaneSender};
use crate::wire::header::Kind;
use crate::wire::stats::StatProtocol;
use std::ffi::c_void;

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
        if !(*ep).has(EpFlags::SPECIAL | EpFlags::SLOW_PATH_TAG)
            && let len @ ..=TINY = tiny_length(&p, count, SPECIAL)
            && (len == 0 || !buffer.is_null())
        {
            match send_tiny(ep, Kind::TagEager, || tag, buffer, len) {
                TinyResult::Sent => return std::ptr::null_mut(),
                TinyResult::Ib => {
                    return tag_send_by::<IbSender>(ep, buffer, count, tag, param, len);
                }
                TinyResult::Tofu => {
                    return tag_send_by::<TofuSender>(ep, buffer, count, tag, param, len);
                }
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
        let imm = am::plain_imm(id, (*ep).remote_sn());
        match send_in_turn(ep, Kind::AmEager, imm, buffer, len) {
            true => std::ptr::null_mut(),
            // The caller has checked that there is no header, and that the id fits into 16 bits.
            false => am_send_slow(ep, id, std::ptr::null(), 0, buffer, count, param),
        }
    }
}

/// Tagged send of `len` bytes, at most [`TINY`], to a peer whose lane has this sender. In single-thread mode.
#[inline(never)]
unsafe fn tag_send_by<S: LaneSender + ShortAm>(
    ep: *const Endpoint,
    buffer: *const c_void,
    count: usize,
    tag: u64,
    param: *const ucp_request_param_t,
    len: usize,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint and buffer are valid, and its other promises are those that the callees require.
    unsafe {
        if let Some((sender, stats)) = sender_of::<S>(ep)
            && sender.am_short(
                Kind::TagEager as u8,
                || tag,
                buffer.cast(),
                len,
                || stats.of(StatProtocol::Short).add(len),
            )
        {
            return std::ptr::null_mut();
        }
        tag_send_slow(ep, buffer, count, tag, param)
    }
}

/// Sends an active message of `len` bytes, at most [`TINY`], without a header, to a peer whose lane has this sender. In
/// single-thread mode.
#[inline(never)]
unsafe fn am_send_by<S: LaneSender + ShortAm>(
    ep: *const Endpoint,
    id: u32,
    buffer: *const c_void,
    count: usize,
    param: *const ucp_request_param_t,
    len: usize,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint and buffer are valid, and its other promises are those that the callees require.
    unsafe {
        let imm = || am::plain_imm(id, (*ep).remote_sn());
        if let Some((sender, stats)) = sender_of::<S>(ep)
            && sender.am_short(Kind::AmEager as u8, imm, buffer.cast(), len, || {
                stats.of(StatProtocol::Short).add(len)
            })
        {
            return std::ptr::null_mut();
        }
        am_send_slow(ep, id, std::ptr::null(), 0, buffer, count, param)
    }
}

/// Tagged send of up to the rendezvous threshold, in any thread mode; longer messages go to [`tag::send`].
#[inline(never)]
pub(super) unsafe fn tag_send_slow(
    ep: *const Endpoint,
    buffer: *const c_void,
    count: usize,
    tag: u64,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, structure and buffer are valid; worker and peer outlive the endpoint.
    unsafe {
        let (e, worker, peer) = (&*ep, (*ep).worker.get(), (*ep).peer());
        let p = Param::new(param, worker.extra_op_flags());
        if let Some(len) = plain_length(&p, count)
            && !e.has(EpFlags::SPECIAL)
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
    let fits = select::is_eager(len, peer.rndv_thresh(&worker.ctx.policy));
    // SAFETY: the caller's buffer has `len` bytes.
    fits && unsafe { send_now(peer, kind, imm, buffer, len, select::counted(len)) }
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
        if !(*ep).has(EpFlags::SPECIAL | EpFlags::SLOW_PATH_AM)
            && let len @ ..=TINY = tiny_length(&p, count, SPECIAL_AM)
            // No header, and an id of at most 16 bits.
            && header_len | (id >> 16) as usize == 0
            && (len == 0 || !buffer.is_null())
        {
            let imm = || am::plain_imm(id, (*ep).remote_sn());
            match send_tiny(ep, Kind::AmEager, imm, buffer, len) {
                TinyResult::Sent => return std::ptr::null_mut(),
                TinyResult::Ib => {
                    return am_send_by::<IbSender>(ep, id, buffer, count, param, len);
                }
                TinyResult::Tofu => {
                    return am_send_by::<TofuSender>(ep, id, buffer, count, param, len);
                }
                TinyResult::No => return am_send_in_turn(ep, id, buffer, count, param, len),
            }
        }
        am_send_slow(ep, id, header, header_len, buffer, count, param)
    }
}

#[inline(never)]
pub(super) unsafe fn am_send_slow(
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
        let (e, worker, peer) = (&*ep, (*ep).worker.get(), (*ep).peer());
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
            && !e.has(EpFlags::SPECIAL)
            && header_len == 0
            && id <= u32::from(u16::MAX)
            && p.flags() & !(UCP_AM_SEND_FLAG_EAGER as u32) == 0
            && worker.ctx.features & UCP_FEATURE_AM as u64 != 0
            && (len == 0 || !buffer.is_null())
        {
            let imm = am::plain_imm(id, e.remote_sn());
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
    let (e, worker, peer) = unsafe { (&*ep, (*ep).worker.get(), (*ep).peer()) };
    // SAFETY: the caller's structure is valid.
    let p = unsafe { Param::new(param, worker.extra_op_flags()) };
    if let Some(len @ 1..=select::MAX_EAGER) = plain_length(&p, count)
        && !e.has(EpFlags::SPECIAL)
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
