//! Reception as every call of progress does it, of a worker's only interface, in single-thread mode.

use super::{BATCH, schedule_ack, take, take_these_ends};
use crate::tl::held::{Held, IfaceSlot};
use crate::tl::ib::bindings::{IBV_WC_RECV, IBV_WC_SUCCESS, ibv_wc};
use crate::tl::ib::conn::IbConnPhase;
use crate::tl::ib::iface::IbIface;
use crate::tl::ib::worker::IbWorker;
use crate::tl::reassembly::split;
use crate::tl::sink::Sink;
use crate::tl::{IfaceKind, Message};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// [`Held`] of a worker with ports.
pub trait HeldPorts: Held<Interfaces: IfaceSlot<IbWorker<Self::Peer>>> {}

impl<H: Held<Interfaces: IfaceSlot<IbWorker<H::Peer>>>> HeldPorts for H {}

/// A worker's only interface, while there is no other work for its ports than its completions. Valid as long as the
/// worker's ports.
#[derive(Clone, Copy)]
pub struct SoleIface(NonNull<IbIface>);

impl SoleIface {
    /// The kind of interface that it is.
    pub const KIND: IfaceKind = IfaceKind::Ib;

    /// Polls the interface. Returns the number of events.
    ///
    /// # Safety
    /// Those of [`Held::look`] and [`Held::hold`]; the worker's ports exist; no caller up the stack borrows the lane to
    /// a peer.
    #[inline(always)]
    pub unsafe fn progress<H: HeldPorts>(self, held: H) -> u32 {
        // SAFETY: the interface belongs to the ports, which outlive this call.
        let iface = unsafe { self.0.as_ref() };
        let mut wcs: Batch = [const { MaybeUninit::uninit() }; BATCH];
        // Usually the CQ is empty, and this is all that the call does.
        let n = iface.arrived(&mut wcs);
        if n > 0 {
            // SAFETY: the device has written `n` entries; the rest is the caller's promise.
            return unsafe { arrived(held, iface, wcs.get_unchecked(..n)) };
        }
        if iface.has_signaled() {
            let n = iface.poll_send_cq(&mut wcs);
            if n > 0 {
                // SAFETY: as before.
                return unsafe { completed(held, wcs.get_unchecked(..n)) };
            }
        }
        0
    }
}

/// The only interface of these ports, if there is no other work than its completions.
#[inline(always)]
pub fn sole<P: Copy + Eq>(ports: &IbWorker<P>) -> Option<SoleIface> {
    ports.sole().map(SoleIface)
}

/// Room for the completions of one poll.
type Batch = [MaybeUninit<ibv_wc>; BATCH];

/// Handles arrivals of the worker's only interface.
///
/// # Safety
/// That of [`SoleIface::progress`]; all entries of `wcs` were written.
#[inline(never)]
unsafe fn arrived<H: HeldPorts>(held: H, iface: &IbIface, wcs: &[MaybeUninit<ibv_wc>]) -> u32 {
    let act = |interfaces: &mut H::Interfaces, _| {
        // SAFETY: the caller's promise: the worker has ports, and the hold keeps callbacks from progress.
        unsafe {
            let ports = interfaces.iface().unwrap_unchecked();
            take_packets(ports, held.inlined(), iface, wcs)
        }
    };
    // SAFETY: the caller's promise.
    unsafe { held.hold(act) }
}

/// Handles send completions of the worker's only interface.
///
/// # Safety
/// That of [`arrived`].
#[inline(never)]
unsafe fn completed<H: HeldPorts>(held: H, wcs: &[MaybeUninit<ibv_wc>]) -> u32 {
    let act = |interfaces: &mut H::Interfaces, _| {
        // SAFETY: the caller's promise: the worker has ports, and the hold keeps callbacks from progress.
        unsafe {
            let ports = interfaces.iface().unwrap_unchecked();
            take_these_ends(ports, held.called(), 0, wcs)
        }
    };
    // SAFETY: the caller's promise.
    unsafe { held.hold(act) }
}

/// Handles arrivals: here up to the first completion that this path does not handle, the rest by [`take`]. Returns the
/// number of events.
///
/// # Safety
/// Single-thread mode; `iface` is the only interface of `ports`; all entries of `wcs` were written; no caller up the
/// stack borrows the lane to a peer.
#[inline(always)]
unsafe fn take_packets<S: Sink>(
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
    let Some(conn) = ports.of_same_queue(0, wc.qp_num) else {
        return false;
    };
    // SAFETY: connections are not moved, and none is removed in this call. The interface reported this completion, and
    // its receive buffer is not returned yet.
    let (c, packet) = unsafe { (conn.as_ref(), iface.packet_single_threaded(wc)) };
    let Some((head, bytes)) = split(packet) else {
        return false;
    };
    if c.phase != IbConnPhase::Open || c.ended || !c.assembly.is_empty() || head.len != bytes.len()
    {
        return false;
    }
    // The slow path may apply the same credit again: that has no effect.
    c.flow.credit(head.credit);
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
    // SAFETY: as before. Not borrowed over the call, which would keep what was read of it in memory.
    let c = unsafe { conn.as_ref() };
    let flow = &*c.flow;
    flow.receive();
    // SAFETY: the packet is not read after this.
    unsafe { iface.done_single_threaded(wc) };
    if flow.is_ack_due(c.limits.window) {
        schedule_ack(ports, c.number);
    }
    true
}
