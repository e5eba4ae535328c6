//! Completions of IB lanes: what an HCA has sent or read.

use super::super::completion::EndedRequests;
use crate::ctypes::*;
use crate::engine::ib_worker::IbConn;
use crate::engine::request::{self, Request};
use crate::proto::flush;
use crate::tl::Lane;
use crate::tl::ib::op_slots::OpKind;

/// Handles the completion of send `number`, and of all before it: completes requests that waited for no more, and
/// flushes.
#[inline(never)]
pub fn on_end(connection: &mut IbConn, number: u64) {
    if connection.reply_tx.is_some() {
        return on_end_behind(connection, number);
    }
    let mut tx = connection.peer.get().tx.lock();
    let Some(Lane::Ib(sender)) = tx.lane.as_mut() else {
        return;
    };
    let mut ends = EndedRequests::default();
    sender.on_send_completion(number, |owner| ends.add(owner));
    drop(tx);
    ends.finish();
}

/// [`on_end`] in single-thread mode: requests are completed directly, because no lock is held.
///
/// # Safety
/// Single-thread mode, and no caller up the stack borrows the peer's `tx`.
#[inline(always)]
pub unsafe fn on_end_alone(connection: &mut IbConn, number: u64) {
    // SAFETY: single-thread mode. A callback may change the
    // lane: it is looked up each time.
    let rc_ep = || match unsafe { connection.peer.get().tx.alone().lane.as_mut() } {
        Some(Lane::Ib(sender)) => sender.rc(),
        _ => None,
    };
    // Data that came through registered buffers are copied before any request is completed.
    if connection.reply_tx.is_some() || rc_ep().is_none_or(|rc_ep| rc_ep.has_descs()) {
        return on_end(connection, number);
    }
    if !rc_ep().is_some_and(|rc_ep| rc_ep.advance_completed(number)) {
        return;
    }
    while let Some(rc_ep) = rc_ep() {
        match rc_ep.next_completed() {
            // SAFETY: single-thread mode; the owner of a slot is not freed before it, and is in no list.
            Some(wait) if !wait.owner.is_none() => unsafe {
                end_wait(wait.what, Request::by_token(wait.owner))
            },
            Some(_) => {}
            None if rc_ep.has_flush_markers() => return complete_descs_of(connection),
            None => return,
        }
    }
}

/// Completes the request of an op slot, in single-thread mode.
#[inline(always)]
unsafe fn end_wait(what: OpKind, req: *mut Request) {
    // SAFETY: the caller's request. A get or an atomic in an op slot is a user's request, and one such work request is
    // all of it.
    unsafe {
        match what {
            OpKind::FlushMarker => flush::marker_sent(req),
            OpKind::Read | OpKind::Atomic => request::complete_receive::<false>(req, UCS_OK),
        }
    }
}

/// The rest of a completion: flush markers that wait for other outstanding operations.
#[inline(never)]
fn complete_descs_of(connection: &mut IbConn) {
    let mut ends = EndedRequests::default();
    connection.with_sender(|sender| {
        if let Some(rc_ep) = sender.rc() {
            rc_ep.complete_descs(&mut |owner| ends.add(owner));
        }
    });
    ends.finish();
}

/// [`on_end`] where the sender is not the peer's lane.
#[inline(never)]
fn on_end_behind(connection: &mut IbConn, number: u64) {
    let mut ends = EndedRequests::default();
    connection.with_sender(|sender| sender.on_send_completion(number, |owner| ends.add(owner)));
    ends.finish();
}

/// [`on_end`] for a rail, by the numbers of its interface and queue pair.
pub fn on_rail_end(connection: &mut IbConn, (iface, qpn): (usize, u32), number: u64) {
    let mut ends = EndedRequests::default();
    connection.with_sender(|sender| {
        if let Some(rail) = sender.rails.of_queue(iface, qpn) {
            rail.rc_ep
                .on_send_completion(number, |owner| ends.add(owner));
            rail.works();
        }
    });
    ends.finish();
}
