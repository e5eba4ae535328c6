//! Completions of sends: what the HCA has sent, written or read.

use crate::tl::Lane;
use crate::tl::ib::conn::{IbConn, with_sender};
use crate::tl::ib::op_slots::OpKind;
use crate::tl::ib::rc::RcEp;
use crate::tl::sink::{Completions, Sink};
use std::ptr::NonNull;

/// Handles the completion of send `number`, and of all before it.
#[inline(never)]
pub fn on_end<S: Sink>(c: &mut IbConn<S::Peer>, sink: S, number: u64) {
    if c.reply_tx.is_some() {
        return on_reply_end(c, sink, number);
    }
    let mut completed = S::Completions::default();
    with_sender(sink, c.peer, |sender| {
        sender.on_send_completion(number, |token| completed.add(token));
    });
    completed.finish();
}

/// [`on_end`] in single-thread mode: requests are completed directly, because no lock is held.
///
/// # Safety
/// Single-thread mode, and no caller up the stack borrows the peer's lane.
#[inline(always)]
pub unsafe fn on_end_alone<S: Sink>(c: &mut IbConn<S::Peer>, sink: S, number: u64) {
    let peer = c.peer;
    // A callback may change the lane: it is looked up each time, and used only until the next call of the layer above.
    // SAFETY: the caller's promise.
    let rc_ep = || unsafe { rc_of(sink, peer).map(|mut rc_ep| rc_ep.as_mut()) };
    // Data that came through registered buffers are copied before any request is completed.
    if c.reply_tx.is_some() || rc_ep().is_none_or(|rc_ep| rc_ep.has_descs()) {
        return on_end(c, sink.cold(), number);
    }
    if !rc_ep().is_some_and(|rc_ep| rc_ep.advance_completed(number)) {
        return;
    }
    while let Some(rc_ep) = rc_ep() {
        match rc_ep.next_completed() {
            // SAFETY: the slot's token was not reported before, and is not taken back.
            Some(wait) if !wait.owner.is_none() => unsafe {
                match wait.what {
                    OpKind::FlushMarker => sink.flushed(wait.owner),
                    OpKind::Read | OpKind::Atomic => sink.completed_alone(wait.owner),
                }
            },
            Some(_) => {}
            None if rc_ep.has_flush_markers() => return complete_descs(c, sink.cold()),
            None => return,
        }
    }
}

/// The RC queue pair of the lane to a peer, in single-thread mode. Valid until the lane is changed.
///
/// # Safety
/// As for [`on_end_alone`].
#[inline(always)]
unsafe fn rc_of<S: Sink>(sink: S, peer: S::Peer) -> Option<NonNull<RcEp>> {
    let by_rc = |lane: &mut Lane| match lane {
        Lane::Ib(sender) => sender.rc().map(NonNull::from),
        _ => None,
    };
    // SAFETY: the caller's promise.
    unsafe { sink.with_lane_alone(peer, by_rc) }.flatten()
}

/// The rest of a completion: flush markers that wait for other outstanding operations.
#[inline(never)]
fn complete_descs<S: Sink>(c: &mut IbConn<S::Peer>, sink: S) {
    let mut completed = S::Completions::default();
    c.with_sender(sink, |sender| {
        if let Some(rc_ep) = sender.rc() {
            rc_ep.complete_descs(&mut |token| completed.add(token));
        }
    });
    completed.finish();
}

/// [`on_end`] where the sender is not the peer's lane.
#[inline(never)]
fn on_reply_end<S: Sink>(c: &mut IbConn<S::Peer>, sink: S, number: u64) {
    let mut completed = S::Completions::default();
    c.with_sender(sink, |sender| {
        sender.on_send_completion(number, |token| completed.add(token))
    });
    completed.finish();
}

/// [`on_end`] for a rail, by the numbers of its interface and queue pair.
pub fn on_rail_end<S: Sink>(
    c: &mut IbConn<S::Peer>,
    sink: S,
    (iface, qpn): (usize, u32),
    number: u64,
) {
    let mut completed = S::Completions::default();
    c.with_sender(sink, |sender| {
        if let Some(rail) = sender.rails.of_queue(iface, qpn) {
            rail.rc_ep
                .on_send_completion(number, |token| completed.add(token));
            rail.works();
        }
    });
    completed.finish();
}
