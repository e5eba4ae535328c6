//! Hot path of sends: tagged messages, active messages, streams. Up to [`TINY`] bytes go into a ring of shared memory
//! by loads and stores only; longer eager messages are copied into the lane in any thread mode.

use super::length::{SPECIAL, SPECIAL_AM, plain_length, tiny_length};
use super::sender::known_sender;
use crate::ctypes::*;
use crate::engine::endpoint::{Endpoint, EpFlags};
use crate::engine::peer::Peer;
use crate::engine::worker::Worker;
use crate::op::am::AmMessage;
use crate::op::param::Param;
use crate::op::{am, stream, tag};
use crate::proto::select::message as select;
use crate::sys::copy::TINY;
use crate::tl::contract::ShortAm;
use crate::tl::{Lane, LaneSender, with_short_am};
use crate::wire::header::{AmImm, Kind};
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
            return match send_tiny(ep, Kind::TagEager, || tag, buffer, len) {
                TinyResult::Sent => std::ptr::null_mut(),
                TinyResult::NoRoom => tag_send_in_turn(ep, buffer, count, tag, param, len),
                TinyResult::NoRing(lane) => with_short_am!(
                    lane,
                    S => tag_send_by::<S>(ep, buffer, count, tag, param, len),
                    _ => tag_send_slow(ep, buffer, count, tag, param)
                ),
            };
        }
        tag_send_slow(ep, buffer, count, tag, param)
    }
}

/// Result of [`send_tiny`].
enum TinyResult<'a> {
    Sent,
    /// Not sent: the peer's lane is no ring in mapped memory, or there is no lane yet.
    NoRing(&'a Option<Lane>),
    /// Not sent: the ring has no room in the epoch, or requests are pending.
    NoRoom,
}

/// Marks the branch that calls it as the less frequent one: the compiler tests the other first.
#[cold]
#[inline]
fn less_frequent() {}

/// Copies up to [`TINY`] bytes into the shared-memory ring of the endpoint's peer, in single-thread mode, by loads and
/// stores only. `imm` is called when all checks have passed, so that its value occupies no register before.
#[inline(always)]
unsafe fn send_tiny<'a>(
    ep: *const Endpoint,
    kind: Kind,
    imm: impl FnOnce() -> u64,
    buffer: *const c_void,
    len: usize,
) -> TinyResult<'a> {
    // SAFETY: the caller's endpoint is valid, and its peer outlives it.
    let peer = unsafe { (*ep).peer() };
    // SAFETY: the endpoint's flags say single-thread mode; no callback runs here.
    let tx = unsafe { peer.tx.alone() };
    // The sender's `Box` is dereferenced once.
    let Some(ring) = tx.lane.as_mut().and_then(Lane::ring) else {
        less_frequent();
        return TinyResult::NoRing(&tx.lane);
    };
    // SAFETY: the user's buffer has `len` bytes.
    if !tx.pending.is_empty() || !unsafe { ring.send_tiny(kind as u8, imm, buffer.cast(), len) } {
        return TinyResult::NoRoom;
    }
    let stats = peer.stats();
    ring.look_ahead(stats.received.messages());
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
        let Some(ring) = tx.lane.as_mut().and_then(Lane::ring) else {
            return false;
        };
        let sent = tx.pending.is_empty()
            && ring.send_tiny_in_new_epoch(kind as u8, imm, buffer.cast(), len);
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
        let imm = AmImm::plain(id, (*ep).remote_sn());
        match send_in_turn(ep, Kind::AmEager, imm, buffer, len) {
            true => std::ptr::null_mut(),
            // The caller has checked that there is no header, and that the id fits into 16 bits.
            false => am_send_slow(ep, id, std::ptr::null(), 0, buffer, count, param),
        }
    }
}

/// Posts a record of up to [`TINY`] bytes by the sender of the peer's lane. False: nothing was done.
///
/// # Safety
/// The endpoint is valid; the requirements of [`known_sender`] for its peer; the user's buffer has `len` bytes.
#[inline(always)]
unsafe fn post_short<S: LaneSender + ShortAm>(
    ep: *const Endpoint,
    kind: Kind,
    imm: impl FnOnce() -> u64,
    buffer: *const c_void,
    len: usize,
) -> bool {
    // SAFETY: the caller's promises.
    let peer = unsafe { (*ep).peer() };
    // SAFETY: the caller's promises.
    let Some(sender) = (unsafe { known_sender::<S>(peer) }) else {
        return false;
    };
    let count = || peer.stats().of(StatProtocol::Short).add(len);
    // SAFETY: the caller's promises.
    unsafe { sender.am_short(kind as u8, imm, buffer.cast(), len, count) }
}

/// Whether the sender of the peer's lane takes a short record after all.
///
/// # Safety
/// The endpoint is valid; the requirements of [`known_sender`] for its peer.
#[inline(always)]
unsafe fn renew_short<S: LaneSender + ShortAm>(ep: *const Endpoint) -> bool {
    // SAFETY: the caller's promises.
    let sender = unsafe { known_sender::<S>((*ep).peer()) };
    sender.is_some_and(ShortAm::renew_short)
}

/// Tagged send of `len` bytes, at most [`TINY`], to a peer whose lane has this sender. In single-thread mode, without a
/// callback since the lane was found to have it.
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
        match post_short::<S>(ep, Kind::TagEager, || tag, buffer, len) {
            true => std::ptr::null_mut(),
            false if S::RENEWS => tag_send_renewed::<S>(ep, buffer, count, tag, param, len),
            false => tag_send_slow(ep, buffer, count, tag, param),
        }
    }
}

/// [`tag_send_by`] a sender that has refused the record, once in many. A function of its own: a call in that one would
/// have to save the parameters.
#[cold]
#[inline(never)]
unsafe fn tag_send_renewed<S: LaneSender + ShortAm>(
    ep: *const Endpoint,
    buffer: *const c_void,
    count: usize,
    tag: u64,
    param: *const ucp_request_param_t,
    len: usize,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's promises are those that the callees require.
    unsafe {
        match renew_short::<S>(ep) && post_short::<S>(ep, Kind::TagEager, || tag, buffer, len) {
            true => std::ptr::null_mut(),
            false => tag_send_slow(ep, buffer, count, tag, param),
        }
    }
}

/// Sends an active message of `len` bytes, at most [`TINY`], without a header, to a peer whose lane has this sender. In
/// single-thread mode, without a callback since the lane was found to have it.
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
        let imm = || AmImm::plain(id, (*ep).remote_sn());
        match post_short::<S>(ep, Kind::AmEager, imm, buffer, len) {
            true => std::ptr::null_mut(),
            false if S::RENEWS => am_send_renewed::<S>(ep, id, buffer, count, param, len),
            false => am_send_slow(ep, id, std::ptr::null(), 0, buffer, count, param),
        }
    }
}

/// [`am_send_by`] a sender that has refused the record, once in many.
#[cold]
#[inline(never)]
unsafe fn am_send_renewed<S: LaneSender + ShortAm>(
    ep: *const Endpoint,
    id: u32,
    buffer: *const c_void,
    count: usize,
    param: *const ucp_request_param_t,
    len: usize,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's promises are those that the callees require.
    unsafe {
        let imm = || AmImm::plain(id, (*ep).remote_sn());
        match renew_short::<S>(ep) && post_short::<S>(ep, Kind::AmEager, imm, buffer, len) {
            true => std::ptr::null_mut(),
            false => am_send_slow(ep, id, std::ptr::null(), 0, buffer, count, param),
        }
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
    let Some(lane) = tx.lane.as_mut() else {
        return false;
    };
    let received = || (!peer.tx.is_shared()).then(|| peer.stats().received.messages());
    // SAFETY: the user's buffer has `len` bytes.
    let sent = unsafe { lane.am_now(kind as u8, imm, buffer.cast(), len, received) };
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
            let imm = || AmImm::plain(id, (*ep).remote_sn());
            return match send_tiny(ep, Kind::AmEager, imm, buffer, len) {
                TinyResult::Sent => std::ptr::null_mut(),
                TinyResult::NoRoom => am_send_in_turn(ep, id, buffer, count, param, len),
                TinyResult::NoRing(lane) => with_short_am!(
                    lane,
                    S => am_send_by::<S>(ep, id, buffer, count, param, len),
                    _ => am_send_slow(ep, id, header, header_len, buffer, count, param)
                ),
            };
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
            let imm = AmImm::plain(id, e.remote_sn());
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
