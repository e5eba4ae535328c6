//! THE HOT PATH, whole, in reading order: send a tagged message, an active message, write remote
//! memory; then progress: arrival, matching, completion.
//!
//! In single-thread mode: no allocation, no system call, no lock, no atomic read-modify-write.
//! Whatever is not the common case is somebody else's function, called out of line.

use crate::ctypes::*;
use crate::engine::endpoint::{self, Endpoint};
use crate::engine::request;
use crate::engine::rkey::Rkey;
use crate::engine::worker::{Channel, Rx, Worker};
use crate::op::am::AmMessage;
use crate::op::param::Param;
use crate::op::{am, listener, rma, serve, sgl, sockets, stream, tag};
use crate::proto::attach::Direction;
use crate::proto::{failure, rndv, tx, wireup};
use crate::sys::clock;
use crate::tl::Lane;
use crate::tl::shm::ring::{INLINE, Message};
use crate::wire::header::Kind;
use crate::wire::stats::Protocol;
use std::ffi::c_void;
use std::sync::atomic::Ordering;

/// Messages taken from one ring before the next one is looked at.
const BATCH: u32 = 16;
/// Rings that are looked at in every call; further ones take turns.
const HOT: usize = 8;
/// Of the others, so many a call.
const TURNS: usize = 4;
/// Most calls between two looks at the clock. Few enough that a caller who begins to call only every 10 ms hears of
/// a death in time; a look costs about 25 ns.
const CLOCK_EVERY: u32 = 64;

/// With none of these bits in its mask an operation is as simple as its function's name.
const SPECIAL: u32 = UCP_OP_ATTR_FIELD_DATATYPE as u32
    | UCP_OP_ATTR_FIELD_MEMORY_TYPE as u32
    | UCP_OP_ATTR_FLAG_NO_IMM_CMPL as u32
    | UCP_OP_ATTR_FLAG_FAST_CMPL as u32
    | UCP_OP_ATTR_FLAG_MULTI_SEND as u32;

/// Bytes of `count` elements, if the buffer is one piece and nothing is special; else `None`.
#[inline(always)]
fn plain_length(p: &Param, count: usize) -> Option<usize> {
    if p.mask & SPECIAL == 0 {
        return Some(count);
    }
    let plain = UCP_OP_ATTR_FIELD_DATATYPE as u32 | UCP_OP_ATTR_FIELD_MEMORY_TYPE as u32;
    let datatype = p.datatype();
    if p.mask & (SPECIAL & !plain) == 0 && datatype & 7 == 0 && p.memory_type() == 0 {
        return count.checked_mul((datatype >> 3) as usize);
    }
    None
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
    // SAFETY: the caller's endpoint, whose worker and peer outlive it.
    let (e, worker, peer) = unsafe { (&*ep, &*(*ep).worker, (*ep).peer()) };
    // SAFETY: the caller's structure.
    let p = unsafe { Param::new(param, worker.extra_op_flags) };
    if let Some(len @ ..=INLINE) = plain_length(&p, count)
        && !e.has(endpoint::SPECIAL)
        && worker.ctx.features & UCP_FEATURE_TAG as u64 != 0
        && (len == 0 || !buffer.is_null())
    {
        let mut tx = peer.tx.lock();
        if tx.pending.is_empty()
            && let Some(Lane::Shm(outbox)) = tx.lane.as_mut()
            // SAFETY: `len` bytes of the user's buffer.
            && let Ok(true) = unsafe { outbox.send_short(Kind::TagEager as u8, 0, tag, buffer.cast(), len) }
        {
            peer.stats().of(Protocol::Short).add(len);
            return std::ptr::null_mut();
        }
    }
    // SAFETY: passed on.
    unsafe { tag_send_slow(ep, buffer, count, tag, &p) }
}

#[cold]
#[inline(never)]
unsafe fn tag_send_slow(
    ep: *const Endpoint,
    buffer: *const c_void,
    count: usize,
    tag: u64,
    p: &Param,
) -> ucs_status_ptr_t {
    // SAFETY: passed on.
    unsafe { tag::send(ep, buffer, count, tag, p, false) }
}

/// `ucp_am_send_nbx`
///
/// # Safety
/// As there.
#[inline(always)]
pub unsafe fn am_send(
    ep: *const Endpoint,
    m: &AmMessage,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, whose worker and peer outlive it.
    let (e, worker, peer) = unsafe { (&*ep, &*(*ep).worker, (*ep).peer()) };
    // SAFETY: the caller's structure.
    let p = unsafe { Param::new(param, worker.extra_op_flags) };
    if let Some(len @ ..=INLINE) = plain_length(&p, m.count)
        && !e.has(endpoint::SPECIAL)
        && m.header_len == 0
        && p.flags() & !(UCP_AM_SEND_FLAG_EAGER as u32) == 0
        && m.id <= u32::from(u16::MAX)
        && worker.ctx.features & UCP_FEATURE_AM as u64 != 0
        && (len == 0 || !m.buffer.is_null())
    {
        let mut tx = peer.tx.lock();
        let imm = am::plain_imm(m.id, e.remote_sn);
        if tx.pending.is_empty()
            && let Some(Lane::Shm(outbox)) = tx.lane.as_mut()
            // SAFETY: `len` bytes of the user's buffer.
            && let Ok(true) = unsafe { outbox.send_short(Kind::AmEager as u8, 0, imm, m.buffer.cast(), len) }
        {
            peer.stats().of(Protocol::Short).add(len);
            return std::ptr::null_mut();
        }
    }
    // SAFETY: passed on.
    unsafe { am_send_slow(ep, m, &p) }
}

#[cold]
#[inline(never)]
unsafe fn am_send_slow(ep: *const Endpoint, m: &AmMessage, p: &Param) -> ucs_status_ptr_t {
    // SAFETY: passed on.
    unsafe { am::send(ep, m, p) }
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
    let p = unsafe { Param::new(param, worker.extra_op_flags) };
    if let Some(len @ 1..=INLINE) = plain_length(&p, count)
        && !e.has(endpoint::SPECIAL)
        && worker.ctx.features & UCP_FEATURE_STREAM as u64 != 0
        && !buffer.is_null()
    {
        let mut tx = peer.tx.lock();
        if tx.pending.is_empty()
            && let Some(Lane::Shm(outbox)) = tx.lane.as_mut()
            // SAFETY: `len` bytes of the user's buffer.
            && let Ok(true) = unsafe { outbox.send_short(Kind::StreamData as u8, 0, stream::imm(e), buffer.cast(), len) }
        {
            peer.stats().of(Protocol::Stream).add(len);
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

/// The local address behind a remote one, if this is a plain access that loads and stores can do.
#[inline(always)]
unsafe fn direct(ep: *const Endpoint, rkey: *const Rkey, addr: u64, len: usize) -> Option<*mut u8> {
    // SAFETY: the caller's endpoint and key.
    let (e, worker) = unsafe { (&*ep, &*(*ep).worker) };
    if rkey.is_null()
        || e.has(endpoint::SPECIAL)
        || worker.fenced.load(Ordering::Relaxed)
        || worker.ctx.features & UCP_FEATURE_RMA as u64 == 0
    {
        return None;
    }
    // SAFETY: not null.
    unsafe { &*rkey }.local(addr, len)
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
    // SAFETY: the caller's endpoint and structure; the worker outlives the endpoint.
    let p = unsafe { Param::new(param, (*(*ep).worker).extra_op_flags) };
    if let Some(len @ 1..) = plain_length(&p, count)
        && !buffer.is_null()
        // SAFETY: the caller's endpoint and key.
        && let Some(local) = unsafe { direct(ep, rkey, addr, len) }
    {
        // SAFETY: the peer outlives its endpoints. Counted before what may be a call.
        let stats = unsafe { (*ep).peer() }.stats();
        stats.of(Protocol::RmaMapped).add(len);
        // SAFETY: the user's buffer and the peer's region, which is mapped here.
        unsafe { copy(local, buffer.cast(), len) };
        return std::ptr::null_mut();
    }
    // SAFETY: passed on.
    unsafe { put_slow(ep, buffer, count, addr, rkey, &p) }
}

#[cold]
#[inline(never)]
unsafe fn put_slow(
    ep: *const Endpoint,
    buffer: *const c_void,
    count: usize,
    addr: u64,
    rkey: *const Rkey,
    p: &Param,
) -> ucs_status_ptr_t {
    // SAFETY: passed on.
    unsafe {
        if sgl::is(p) {
            return sgl::access(ep, Direction::Write, buffer, count, p);
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
    // SAFETY: the caller's endpoint and structure; the worker outlives the endpoint.
    let p = unsafe { Param::new(param, (*(*ep).worker).extra_op_flags) };
    if let Some(len @ 1..) = plain_length(&p, count)
        && !p.has(UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL)
        && !buffer.is_null()
        // SAFETY: the caller's endpoint and key.
        && let Some(local) = unsafe { direct(ep, rkey, addr, len) }
    {
        // SAFETY: the peer outlives its endpoints. Counted before what may be a call.
        let stats = unsafe { (*ep).peer() }.stats();
        stats.of(Protocol::RmaMapped).add(len);
        // SAFETY: the user's buffer and the peer's region, which is mapped here.
        unsafe { copy(buffer.cast(), local, len) };
        return std::ptr::null_mut();
    }
    // SAFETY: passed on.
    unsafe { get_slow(ep, buffer, count, addr, rkey, &p) }
}

#[cold]
#[inline(never)]
unsafe fn get_slow(
    ep: *const Endpoint,
    buffer: *mut c_void,
    count: usize,
    addr: u64,
    rkey: *const Rkey,
    p: &Param,
) -> ucs_status_ptr_t {
    // SAFETY: passed on.
    unsafe {
        if sgl::is(p) {
            return sgl::access(ep, Direction::Read, buffer, count, p);
        }
        rma::get(ep, buffer, count, addr, rkey, p)
    }
}

/// Words are moved whole, because programs poll on them; anything else as memory. The ranges can
/// be the same memory when a program accesses its own.
#[inline(always)]
unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's ranges.
    unsafe {
        match len {
            8 => dst
                .cast::<u64>()
                .write_unaligned(src.cast::<u64>().read_unaligned()),
            4 => dst
                .cast::<u32>()
                .write_unaligned(src.cast::<u32>().read_unaligned()),
            _ => std::ptr::copy(src, dst, len),
        }
    }
}

/// `ucp_worker_progress`: number of things that happened. Another thread that is at it, or a
/// callback that calls it, makes it return 0 at once.
#[inline(always)]
pub fn progress(worker: &Worker) -> u32 {
    let Some(mut rx) = worker.rx.try_lock() else {
        return 0;
    };
    let rx = &mut *rx;
    if rx.inbox.as_ref().is_some_and(|inbox| inbox.knocked()) {
        wireup::accept(worker, rx);
    }
    let mut count = 0;
    for i in 0..rx.channels.len().min(HOT) {
        count += poll(worker, &mut rx.channels[i]);
    }
    if rx.channels.len() > HOT {
        count += poll_turns(worker, rx);
    }
    if worker.backlog.load(Ordering::Relaxed) != 0 {
        count += tx::progress_backlog(worker);
    }
    // Acquire: pairs with the Release store of who wants a connection.
    if worker.networked.load(Ordering::Acquire) {
        count += sockets::progress(worker, rx);
    }
    // Acquire: pairs with the Release stores of those who leave something to do.
    if worker.chores.load(Ordering::Acquire) {
        count += chores(worker);
    }
    rx.calls -= 1;
    if rx.calls == 0 {
        look_at_clock(worker, rx);
    }
    count
}

/// Takes messages from one ring.
#[inline(always)]
fn poll(worker: &Worker, channel: &mut Channel) -> u32 {
    let (mut count, mut bytes) = (0, 0);
    while count < BATCH {
        let m = match channel.consumer.peek() {
            Ok(None) => break,
            Ok(Some(m)) if !channel.broken => m,
            _ => {
                give_up(channel);
                break;
            }
        };
        if m.kind == Kind::TagEager as u8 {
            on_eager(worker, &m);
        } else {
            other(worker, channel, &m);
        }
        channel.consumer.advance();
        count += 1;
        bytes += m.len as u64;
    }
    if count != 0 {
        // SAFETY: peers live as long as the worker.
        let stats = unsafe { &*channel.peer }.stats();
        stats.received.add_many(count.into(), bytes);
        if channel.consumer.owes() {
            channel.consumer.release();
        }
    }
    count
}

/// A tagged message that is all here: into the receive that waits for it, or aside.
#[inline(always)]
fn on_eager(worker: &Worker, m: &Message) {
    let mut matcher = worker.matcher.lock();
    let Some(req) = matcher.arrive(m.imm) else {
        drop(matcher);
        return unexpected(worker, m);
    };
    drop(matcher);
    // SAFETY: out of the matcher: ours. The record is readable until `advance`.
    unsafe {
        let r = &mut *req;
        tag::unpost(r);
        r.info.sender_tag = m.imm;
        let status = tag::fill(r, m.record, m.len);
        request::complete(req, status);
    }
}

/// Between the two looks at the matcher a receive can have been posted: this one looks again.
#[cold]
#[inline(never)]
fn unexpected(worker: &Worker, m: &Message) {
    // SAFETY: the record is readable until `advance`.
    unsafe {
        tag::on_message(
            worker,
            m.imm,
            crate::engine::unexpected::Source::Eager,
            m.len,
            m.record,
            m.len,
        )
    };
}

#[inline(never)]
fn other(worker: &Worker, channel: &mut Channel, m: &Message) {
    // SAFETY: peers live as long as the worker; the record is readable until `advance`.
    unsafe {
        if m.kind == Kind::StreamData as u8 {
            return stream::on_data(worker, &*channel.peer, m.imm, m.record, m.len);
        }
        if serve::message(worker, &*channel.peer, m).is_err() {
            failure::distrust(&*channel.peer, "a message that makes no sense");
            channel.broken = true;
        }
    }
}

#[cold]
#[inline(never)]
fn give_up(channel: &mut Channel) {
    if !channel.broken {
        channel.broken = true;
        // SAFETY: peers live as long as the worker.
        failure::distrust(unsafe { &*channel.peer }, "what is no message");
    }
}

/// Rings behind the hot ones: a few in turn. One that has something becomes hot.
#[inline(never)]
fn poll_turns(worker: &Worker, rx: &mut Rx) -> u32 {
    let mut count = 0;
    for _ in 0..TURNS.min(rx.channels.len() - HOT) {
        rx.cursor += 1;
        if rx.cursor < HOT || rx.cursor >= rx.channels.len() {
            rx.cursor = HOT;
        }
        let got = poll(worker, &mut rx.channels[rx.cursor]);
        if got > 0 {
            count += got;
            let victim = rx.cursor % HOT;
            rx.channels.swap(rx.cursor, victim);
        }
    }
    count
}

/// What is seldom to be done: receives that copy, peers that were lost, error handlers.
#[cold]
#[inline(never)]
fn chores(worker: &Worker) -> u32 {
    // Acquire: pairs with the Release stores of those who leave something to do.
    worker.chores.store(false, Ordering::Release);
    std::sync::atomic::fence(Ordering::SeqCst);
    failure::reap(worker);
    if rndv::progress_pulls(worker) {
        worker.chores.store(true, Ordering::Release);
    }
    failure::call_handlers(worker) + 1
}

/// Now and then: are the peers still there, which rings are finished?
#[cold]
#[inline(never)]
fn look_at_clock(worker: &Worker, rx: &mut Rx) {
    let now = clock::coarse_ms();
    let ticked = now != rx.looked_at;
    rx.pace = pace(rx.pace, now.saturating_sub(rx.looked_at));
    (rx.calls, rx.looked_at) = (rx.pace, now);
    if ticked {
        if let Some(sockets) = rx.sockets.as_deref_mut() {
            sockets::poll(worker, sockets);
        }
        listener::progress(worker);
    }
    if now.saturating_sub(rx.checked_at) < failure::CHECK_INTERVAL_MS {
        return;
    }
    rx.checked_at = now;
    for peer in failure::dead_peers(worker, rx, now / failure::CHECK_INTERVAL_MS) {
        // What it sent before it died is in its ring by now.
        for channel in rx
            .channels
            .iter_mut()
            .filter(|c| std::ptr::eq(c.peer, peer))
        {
            while poll(worker, channel) > 0 {}
            channel.broken = true;
        }
        // SAFETY: peers live as long as the worker.
        tx::lose(unsafe { &*peer }, UCS_ERR_CONNECTION_RESET);
    }
    drop_finished(worker, rx);
}

/// How many calls to wait for the next look at the clock, when the last `calls` took so long: a slow caller looks
/// more often.
fn pace(calls: u32, milliseconds: u64) -> u32 {
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
    rx.channels.retain_mut(|c| {
        // A sender that lives can still write: its ring is not for others yet.
        // SAFETY: peers live as long as the worker.
        let gone = c.broken && failure::is_dead(worker, unsafe { &*c.peer });
        let finished =
            gone || (c.consumer.closed() && (c.broken || matches!(c.consumer.peek(), Ok(None))));
        if finished {
            // SAFETY: peers live as long as the worker.
            let words = unsafe { &(*c.peer).withdrawals };
            words.store(std::ptr::null_mut(), Ordering::Release);
            inbox.free(c.index);
        }
        !finished
    });
}
