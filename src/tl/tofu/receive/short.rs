//! Polling of the MRQ as every call of progress does it, in single-thread mode.

use super::{BATCH, arrived, on_flush_reply};
use crate::tl::held::{Held, IfaceSlot};
use crate::tl::interface::Interface;
use crate::tl::sink::Sink;
use crate::tl::tofu::utofu::{NO_NOTICE, NOT_FOUND, RMT_PUT, SUCCESS};
use crate::tl::tofu::worker::TofuWorker;

/// What a poll has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Polled {
    /// Nothing has arrived, and there is nothing else to do.
    Idle,
    /// Everything is to be polled.
    All,
    /// A result of `utofu_poll_mrq`, with the worker's notice: [`handle`] handles it.
    Notice(i32),
}

/// [`Held`] of a worker with this interface.
pub trait HeldTofu: Held<Interfaces: IfaceSlot<TofuWorker<Self::Peer>>> {}

impl<H: Held<Interfaces: IfaceSlot<TofuWorker<H::Peer>>>> HeldTofu for H {}

/// Progress of a worker that polls only this interface: polls the MRQ, and other sources only if they may have
/// something. Returns the number of events.
///
/// # Safety
/// Those of [`Held::look`] and [`Held::hold`]; no other reference to the queue lives.
#[inline(always)]
pub unsafe fn progress<H: HeldTofu>(held: H) -> u32 {
    let look = |interfaces: &mut H::Interfaces| match interfaces.iface() {
        // SAFETY: the caller's promise.
        Some(rings) => unsafe { poll(rings) },
        None => Polled::All,
    };
    // SAFETY: the caller's promise.
    match unsafe { held.look(look) } {
        Polled::Idle => 0,
        Polled::All => progress_all(held),
        // SAFETY: the caller's promise.
        Polled::Notice(code) => unsafe { take(held, code) },
    }
}

/// Polls the MRQ, unless other sources may have something, too.
///
/// # Safety
/// Single-thread mode, and no other reference to the queue lives.
#[inline(always)]
unsafe fn poll<P: Copy + Eq>(rings: &mut TofuWorker<P>) -> Polled {
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

/// Polls everything of the interface.
#[inline(never)]
fn progress_all<H: HeldTofu>(held: H) -> u32 {
    // SAFETY: single-thread mode; the reference that `progress` has had is gone.
    unsafe { held.hold(|interfaces, _| progress_interface(held, interfaces)) }
}

#[inline(never)]
fn progress_interface<H: HeldTofu>(held: H, interfaces: &mut H::Interfaces) -> u32 {
    (interfaces.iface()).map_or(0, |rings| rings.progress(held.called()))
}

/// Handles the worker's notice. If the previous call has received one, too, more are likely to be there: they are
/// handled at once, and then, unless the MRQ is empty, everything else.
///
/// # Safety
/// As for [`progress`].
#[inline(never)]
unsafe fn take<H: HeldTofu>(held: H, code: i32) -> u32 {
    let act = |interfaces: &mut H::Interfaces, call: u32| {
        let Some(rings) = interfaces.iface() else {
            return 0;
        };
        let in_a_row = std::mem::replace(&mut rings.credited_at, call) == call.wrapping_add(1);
        // SAFETY: the caller's promise; the hold keeps callbacks from progress.
        let mut count = unsafe { handle(rings, held.inlined(), code) };
        if in_a_row {
            // SAFETY: the caller's promise.
            count += unsafe { take_more(held, interfaces) };
        }
        count
    };
    // SAFETY: the caller's promise.
    unsafe { held.hold(act) }
}

/// Handles further notices, and then, unless the MRQ is empty, everything else.
///
/// # Safety
/// As for [`progress`]; the worker is held.
#[inline(never)]
unsafe fn take_more<H: HeldTofu>(held: H, interfaces: &mut H::Interfaces) -> u32 {
    let Some(rings) = interfaces.iface() else {
        return 0;
    };
    // SAFETY: the caller's promise.
    let (count, is_empty) = unsafe { handle_more(rings, held.inlined()) };
    if is_empty {
        return count;
    }
    count + progress_interface(held, interfaces)
}

/// Handles a result of `utofu_poll_mrq` and the worker's notice: returns the number of events.
///
/// # Safety
/// Single-thread mode, and no other reference to the queue lives.
#[inline(always)]
unsafe fn handle<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S, code: i32) -> u32 {
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

/// Handles up to [`BATCH`] further notices: returns the number of events, and whether the MRQ is empty. If it is not
/// known to be empty, everything is to be polled.
///
/// # Safety
/// As for [`handle`].
#[inline(always)]
unsafe fn handle_more<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S) -> (u32, bool) {
    let mut count = 0;
    for _ in 0..BATCH {
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
