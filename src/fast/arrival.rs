//! Hot path of arrivals: matches eager messages and completes receives, and calls handlers of active messages.

use crate::ctypes::*;
use crate::engine::am::AmFunction;
use crate::engine::completion;
use crate::engine::datatype::Data;
use crate::engine::matcher::PostedRecv;
use crate::engine::peer::Peer;
use crate::engine::request::Request;
use crate::engine::worker::Worker;
use crate::op::sink::{ShortMessages, ShortRings};
use crate::op::{signal, tag};
use crate::sys::copy;
use crate::tl::Message;
use crate::tl::ring_sink::BATCH;
use crate::wire::header::{AmImm, Kind, NoteHdr};
use std::mem::MaybeUninit;

/// Handles a message that has arrived. False: it is of another kind than the most frequent ones, and nothing was done.
#[inline(always)]
fn on_packet<const MT: bool>(worker: &Worker, m: Message) -> bool {
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

/// [`on_packet`] in the caller's code: for a place that each message passes.
#[derive(Clone, Copy)]
pub(super) struct Inlined<const MT: bool>;

impl<const MT: bool> ShortMessages for Inlined<MT> {
    #[inline(always)]
    fn handle(self, worker: &Worker, m: Message) -> bool {
        on_packet::<MT>(worker, m)
    }
}

impl<const MT: bool> ShortRings for Inlined<MT> {
    const BATCHES: bool = MT;

    #[inline(always)]
    fn handle_eager(self, worker: &Worker, m: Message) {
        on_eager(worker, m);
    }

    #[inline(always)]
    fn handle_am(self, worker: &Worker, m: Message) -> bool {
        on_am::<MT>(worker, m)
    }

    #[inline(always)]
    fn handle_signal(
        self,
        worker: &Worker,
        peer: &Peer,
        cq: u8,
        value: u64,
        head: NoteHdr,
    ) -> bool {
        // SAFETY: `MT` is the worker's mode.
        unsafe { signal::on_stored::<MT>(worker, peer, cq, value, head) }
    }

    #[inline(always)]
    fn handle_batch(self, worker: &Worker, first: Message, next: impl FnMut() -> Option<Message>) {
        on_eagers(worker, first, next);
    }
}

/// [`on_packet`] by a call.
#[derive(Clone, Copy)]
pub(super) struct Called<const MT: bool>;

impl<const MT: bool> ShortMessages for Called<MT> {
    #[inline(never)]
    fn handle(self, worker: &Worker, m: Message) -> bool {
        on_packet::<MT>(worker, m)
    }
}

/// Handles an eager tagged message in a worker that threads share.
#[inline(never)]
fn on_shared_eager(worker: &Worker, m: Message) {
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

/// Handles up to [`BATCH`] consecutive eager tagged messages in a worker that threads share: all are matched under one
/// lock, then copied and completed without it. `next` returns those behind the first.
#[inline(always)]
fn on_eagers(worker: &Worker, first: Message, mut next: impl FnMut() -> Option<Message>) {
    let mut matched =
        [const { MaybeUninit::<(*mut PostedRecv, Message)>::uninit() }; BATCH as usize];
    let (mut found, mut arrived) = (0, Some(first));
    let mut matcher = worker.matcher.lock();
    while let Some(m) = arrived {
        let posting = matcher.arrive(m.imm);
        if posting.is_null() {
            // SAFETY: the records are readable during the call.
            unsafe { tag::add_unexpected_eager(worker, &mut matcher, m.imm, m.record, m.len) };
        } else {
            matched[found].write((posting, m));
            found += 1;
        }
        arrived = next();
    }
    drop(matcher);
    worker.set_receive_limit(found as u32);
    let mut next = 0;
    while next < worker.receive_limit() {
        // SAFETY: one of the first `found` entries, which the loop before has written. The matcher has removed the
        // request: this thread owns it. The records are readable during the call.
        unsafe {
            let (posting, m) = matched.get_unchecked(next as usize).assume_init_ref();
            deliver::<true>(*posting, m.imm, m.record, m.len);
        }
        next += 1;
    }
}

/// Copies a complete tagged message into the matching receive, or adds it to the unexpected ones. In single-thread
/// mode.
#[inline(always)]
pub(super) fn on_eager(worker: &Worker, m: Message) {
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
pub(super) unsafe fn deliver<const MT: bool>(
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
            completion::complete_receive::<MT>(req, UCS_OK);
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
        completion::complete(req, status);
    }
}

/// Calls the handler of an eager active message without flags. False: nothing was done, the slow path handles it.
#[inline(always)]
pub(super) fn on_am<const MT: bool>(worker: &Worker, m: Message) -> bool {
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
