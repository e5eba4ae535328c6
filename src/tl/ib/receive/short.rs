//! Reception as every call of progress does it, of a worker's only interface, in single-thread mode.

use super::{BATCH, schedule_ack, take, take_these_ends};
use crate::tl::Message;
use crate::tl::ib::bindings::{IBV_WC_RECV, IBV_WC_SUCCESS, ibv_wc};
use crate::tl::ib::conn::IbConnPhase;
use crate::tl::ib::iface::IbIface;
use crate::tl::ib::worker::IbWorker;
use crate::tl::reassembly::split;
use crate::tl::sink::Sink;
use std::mem::MaybeUninit;

/// Room for the completions of one poll.
pub type Batch = [MaybeUninit<ibv_wc>; BATCH];

/// What a poll has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolledCqs {
    /// Nothing has arrived or completed.
    Idle,
    /// So many receive completions.
    Arrived(usize),
    /// So many send completions.
    Completed(usize),
}

/// No completions.
#[inline(always)]
pub fn batch() -> Batch {
    [const { MaybeUninit::uninit() }; BATCH]
}

/// Polls an interface; writes what it finds to the front of `wcs`.
#[inline(always)]
pub fn poll(iface: &IbIface, wcs: &mut Batch) -> PolledCqs {
    // Usually the CQ is empty, and this is all that the call does.
    let n = iface.arrived(wcs);
    if n > 0 {
        return PolledCqs::Arrived(n);
    }
    if iface.has_signaled() {
        let n = iface.poll_send_cq(wcs);
        if n > 0 {
            return PolledCqs::Completed(n);
        }
    }
    PolledCqs::Idle
}

/// Handles arrivals: here up to the first completion that this path does not handle, the rest by [`take`]. Returns the
/// number of events.
///
/// # Safety
/// Single-thread mode; `iface` is the only interface of `ports`; all entries of `wcs` were written; no caller up the
/// stack borrows the lane to a peer.
#[inline(always)]
pub unsafe fn take_packets<S: Sink>(
    ports: &mut IbWorker<S::Peer>,
    sink: S,
    iface: &IbIface,
    wcs: &[MaybeUninit<ibv_wc>],
) -> u32 {
    let mut rest = wcs;
    // Send completions are handled before arrivals: `take` does that.
    if !iface.has_signaled() && !iface.has_own_receives() {
        while let [wc, others @ ..] = rest {
            // SAFETY: all entries of `wcs` were written.
            if !unsafe { take_packet(ports, sink, iface, wc.assume_init_ref()) } {
                break;
            }
            rest = others;
        }
        // SAFETY: single-thread mode.
        unsafe { iface.refill_single_threaded() };
    }
    let mut count = (wcs.len() - rest.len()) as u32;
    if !rest.is_empty() || ports.acks_pending() > 0 {
        // SAFETY: all entries of `wcs` were written.
        count += unsafe { take(ports, sink, 0, rest) };
    }
    count
}

/// Handles a packet that holds a whole message of the most frequent kinds, from the connection that was looked up last.
/// False: it is something else, and nothing was done.
///
/// # Safety
/// Single-thread mode; `iface`, the only one of `ports`, reported `wc`.
#[inline(always)]
unsafe fn take_packet<S: Sink>(
    ports: &mut IbWorker<S::Peer>,
    sink: S,
    iface: &IbIface,
    wc: &ibv_wc,
) -> bool {
    if (wc.status, wc.opcode) != (IBV_WC_SUCCESS, IBV_WC_RECV) {
        return false;
    }
    let Some(mut c) = ports.of_same_queue(0, wc.qp_num) else {
        return false;
    };
    // SAFETY: connections are not moved, and none is removed while `c` is borrowed. The interface reported this
    // completion, and its receive buffer is not returned yet.
    let (c, packet) = unsafe { (c.as_mut(), iface.packet_single_threaded(wc)) };
    let Some((head, bytes)) = split(packet) else {
        return false;
    };
    if c.phase != IbConnPhase::Open || c.ended || !c.assembly.is_empty() || head.len != bytes.len()
    {
        return false;
    }
    let flow = &*c.flow;
    // The slow path may apply the same credit again: that has no effect.
    flow.credit(head.credit);
    let m = Message {
        kind: head.kind,
        aux: head.aux,
        imm: head.imm,
        len: bytes.len(),
        record: bytes.as_ptr(),
    };
    if !sink.deliver_short(c.peer, m) {
        return false;
    }
    flow.receive();
    // SAFETY: the packet is not read after this.
    unsafe { iface.done_single_threaded(wc) };
    if flow.is_ack_due(c.limits.window) {
        schedule_ack(ports, c.number);
    }
    true
}

/// Handles send completions. Returns their number.
///
/// # Safety
/// Single-thread mode; `ports` has one interface; all entries of `wcs` were written; no caller up the stack borrows the
/// lane to a peer.
#[inline(always)]
pub unsafe fn take_completions<S: Sink>(
    ports: &mut IbWorker<S::Peer>,
    sink: S,
    wcs: &[MaybeUninit<ibv_wc>],
) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { take_these_ends(ports, sink, 0, wcs) }
}
