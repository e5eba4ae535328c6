//! Polling of the MRQ as every call of progress does it, in single-thread mode.

use super::{arrived, on_flush_reply};
use crate::tl::sink::Sink;
use crate::tl::tofu::utofu::{NO_NOTICE, NOT_FOUND, RMT_PUT, SUCCESS};
use crate::tl::tofu::worker::TofuWorker;

/// What a poll has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polled {
    /// Nothing has arrived, and there is nothing else to do.
    Idle,
    /// Everything is to be polled.
    All,
    /// A result of `utofu_poll_mrq`, with the worker's notice: [`handle`] handles it.
    Notice(i32),
}

/// Polls the MRQ, unless other sources may have something, too.
///
/// # Safety
/// Single-thread mode, and no other reference to the queue lives.
#[inline(always)]
pub unsafe fn poll<P: Copy + Eq>(rings: &mut TofuWorker<P>) -> Polled {
    if !rings.has_budget() {
        return Polled::All;
    }
    // SAFETY: the caller's promise.
    let queue = unsafe { rings.iface.queue.alone() };
    if queue.has_more() {
        return Polled::All;
    }
    // Usually nothing has arrived, and this poll is all there is to do.
    // SAFETY: single-thread mode; the interface keeps the VCQ.
    let code = unsafe { rings.vcq_ops.poll_mrq(&mut rings.notice) };
    match code {
        // No notice reports room for the rest of a record.
        NOT_FOUND if !queue.is_sending() && !rings.iface.has_unfinished() => Polled::Idle,
        NOT_FOUND => Polled::All,
        code => Polled::Notice(code),
    }
}

/// Handles a result of `utofu_poll_mrq` and the worker's notice: returns the number of events.
///
/// # Safety
/// Single-thread mode, and no other reference to the queue lives.
#[inline(always)]
pub unsafe fn handle<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S, code: i32) -> u32 {
    if (code, rings.notice.notice_type) != (SUCCESS, RMT_PUT) {
        return on_flush_reply(rings, sink, code);
    }
    // An error may come without a notice, and is not to be taken for one of this operation.
    rings.notice.notice_type = NO_NOTICE;
    // SAFETY: the caller's promise; no callback runs while the reference lives.
    unsafe { rings.iface.queue.alone() }.has_reply();
    let stadd = rings.notice.rmt_stadd;
    arrived(rings, sink, stadd);
    1
}

/// Handles up to `most` further notices: returns the number of events, and whether the MRQ is empty. If it is not known
/// to be empty, everything is to be polled.
///
/// # Safety
/// As for [`handle`].
#[inline(always)]
pub unsafe fn handle_more<S: Sink>(
    rings: &mut TofuWorker<S::Peer>,
    sink: S,
    most: u32,
) -> (u32, bool) {
    let mut count = 0;
    for _ in 0..most {
        // SAFETY: the caller's promise; no callback runs while the reference lives.
        if !rings.has_budget() || unsafe { rings.iface.queue.alone() }.has_more() {
            break;
        }
        // SAFETY: single-thread mode; the interface keeps the VCQ.
        let code = unsafe { rings.vcq_ops.poll_mrq(&mut rings.notice) };
        if code == NOT_FOUND {
            return (count, true);
        }
        // SAFETY: the caller's promise.
        count += unsafe { handle(rings, sink, code) };
    }
    (count, false)
}
