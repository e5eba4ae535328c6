//! Arrivals over IB: RC packets, UD datagrams, completions of sends.

mod completion;
mod datagram;
pub mod short;

use super::bindings::{IBV_WC_RECV, IBV_WC_SUCCESS, ibv_wc};
use super::conn::{IbConn, IbConnPhase};
use super::iface::IbIface;
use super::worker::IbWorker;
use super::{connect, connect_rails, upkeep};
use crate::ctypes::*;
use crate::sys::log;
use crate::tl::reassembly::split;
use crate::tl::sink::Sink;
use crate::wire::packet_hdr::{BYE, CREDIT, PacketHdr};
use datagram::on_datagram;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

/// Maximum number of completions taken from one CQ before the next is polled: the default of
/// `UCX_IB_RX_MAX_POLL`, which has no effect.
const BATCH: usize = 16;

/// Polls all interfaces. Returns the number of events.
#[inline(never)]
pub fn poll<S: Sink>(ports: &mut IbWorker<S::Peer>, sink: S) -> u32 {
    let (mut count, before) = (0, ports.acks_pending());
    if let Some(found) = ports.take_found() {
        count += take_found(ports, sink.cold(), found);
    }
    for i in 0..ports.ifaces.len() {
        // A callback has forked, and this is the child: the queues belong to the parent.
        if sink.is_inherited() {
            break;
        }
        let mut wcs = [const { MaybeUninit::uninit() }; BATCH];
        let n = ports.ifaces[i].arrived(&mut wcs);
        // SAFETY: the device has written `n` entries.
        count += unsafe { take_all(ports, sink, i, &wcs[..n]) };
    }
    if ports.acks_pending() > 0 {
        acknowledge(ports, sink.cold(), before);
    }
    count
}

/// Handles arrivals of interface `i` and its send completions. Returns the number of events.
///
/// # Safety
/// The entries of `wcs` were written.
#[inline(never)]
pub unsafe fn take<S: Sink>(
    ports: &mut IbWorker<S::Peer>,
    sink: S,
    i: usize,
    wcs: &[MaybeUninit<ibv_wc>],
) -> u32 {
    // SAFETY: the entries of `wcs` were written.
    let count = unsafe { take_all(ports, sink, i, wcs) };
    if ports.acks_pending() > 0 {
        acknowledge(ports, sink.cold(), 0);
    }
    count
}

/// Handles arrivals of interface `i` and its send completions, without acknowledgements. Returns the number of events.
///
/// # Safety
/// The entries of `wcs` were written.
#[inline(always)]
unsafe fn take_all<S: Sink>(
    ports: &mut IbWorker<S::Peer>,
    sink: S,
    i: usize,
    wcs: &[MaybeUninit<ibv_wc>],
) -> u32 {
    let mut count = 0;
    // Before the arrivals are handled: the reply to an operation after a fence shows the user that a get before the
    // fence is complete, and the get completes here.
    if ports.ifaces[i].has_signaled() {
        count += take_ends(ports, sink.cold(), i);
    }
    if !wcs.is_empty() {
        // SAFETY: the entries of `wcs` were written.
        let wcs = unsafe { std::slice::from_raw_parts(wcs.as_ptr().cast(), wcs.len()) };
        count += take_arrivals(ports, sink, i, wcs);
    }
    count
}

#[inline(always)]
fn take_arrivals<S: Sink>(ports: &mut IbWorker<S::Peer>, sink: S, i: usize, wcs: &[ibv_wc]) -> u32 {
    let iface: *const IbIface = Arc::as_ptr(&ports.ifaces[i]);
    // SAFETY: interfaces are not freed before the ports.
    let iface = unsafe { &*iface };
    let mut count = 0;
    for wc in wcs {
        count += match connection_of(ports, i, wc) {
            Some(c) => {
                // SAFETY: the interface reported this completion, and its buffer is not returned yet.
                on_packet(ports, sink, c, unsafe { iface.packet(wc) })
            }
            None => on_other_arrival(ports, sink.cold(), i, wc),
        };
        // SAFETY: the interface reported this completion, and its buffer is used no more.
        unsafe { iface.done(wc) };
        if iface.has_own_receives() {
            give_back(ports, sink.cold(), i, wc.qp_num);
        }
    }
    iface.refill();
    count
}

/// Handles completions of sends in single-thread mode.
///
/// # Safety
/// The entries of `wcs` were written, and no caller up the stack borrows a peer's `tx`.
#[inline(always)]
pub unsafe fn take_these_ends<S: Sink>(
    ports: &mut IbWorker<S::Peer>,
    sink: S,
    i: usize,
    wcs: &[MaybeUninit<ibv_wc>],
) -> u32 {
    for wc in wcs {
        // SAFETY: the entries of `wcs` were written, and no caller up the stack borrows a peer's `tx`.
        unsafe { on_end_alone(ports, sink, i, wc.assume_init_ref()) };
    }
    wcs.len() as u32
}

/// Polls for send completions. Returns their number.
#[inline(never)]
fn take_ends<S: Sink>(ports: &mut IbWorker<S::Peer>, sink: S, i: usize) -> u32 {
    let mut count = 0;
    loop {
        let mut wcs = [const { MaybeUninit::<ibv_wc>::uninit() }; BATCH];
        let n = ports.ifaces[i].poll_send_cq(&mut wcs);
        for wc in &wcs[..n] {
            // SAFETY: the device has written `n` entries.
            on_other_end(ports, sink, i, unsafe { wc.assume_init_ref() });
        }
        count += n as u32;
        if n < BATCH {
            return count;
        }
    }
}

/// Handles completions that were found when the worker was armed for sleep.
#[cold]
fn take_found<S: Sink>(
    ports: &mut IbWorker<S::Peer>,
    sink: S,
    [arrived, ended]: [Vec<(usize, ibv_wc)>; 2],
) -> u32 {
    let mut count = ended.len() as u32;
    for (i, wc) in ended {
        on_other_end(ports, sink, i, &wc);
    }
    for (i, wc) in arrived {
        if sink.is_inherited() {
            break;
        }
        count += take_ends(ports, sink, i);
        count += take_arrivals(ports, sink, i, &[wc]);
    }
    count
}

/// The RC connection on which a packet has arrived.
#[inline(always)]
fn connection_of<P: Copy + Eq>(
    ports: &mut IbWorker<P>,
    i: usize,
    wc: &ibv_wc,
) -> Option<NonNull<IbConn<P>>> {
    if (wc.status, wc.opcode) != (IBV_WC_SUCCESS, IBV_WC_RECV) {
        return None;
    }
    let same = ports.of_same_queue(i, wc.qp_num);
    same.or_else(|| other_connection_of(ports, i, wc))
}

#[inline(never)]
fn other_connection_of<P: Copy + Eq>(
    ports: &mut IbWorker<P>,
    i: usize,
    wc: &ibv_wc,
) -> Option<NonNull<IbConn<P>>> {
    let datagram = wc.qp_num == ports.ifaces[i].ud_number;
    (!datagram).then(|| ports.of_queue(i, wc.qp_num)).flatten()
}

/// Handles a receive completion of UD, with an immediate, or with an error.
#[inline(never)]
fn on_other_arrival<S: Sink>(ports: &mut IbWorker<S::Peer>, sink: S, i: usize, wc: &ibv_wc) -> u32 {
    // Receives of an RC queue pair in error are ignored: its sends report the error.
    if wc.status != IBV_WC_SUCCESS {
        if wc.qp_num == ports.ifaces[i].ud_number {
            ports.ifaces[i].revive(wc, true);
        }
        return 0;
    }
    let iface = ports.ifaces[i].clone();
    if wc.qp_num == iface.ud_number {
        // SAFETY: the interface reported this completion, and its buffer is not returned yet.
        let bytes = unsafe { iface.datagram(wc) };
        return bytes.map_or(0, |bytes| on_datagram(ports, sink, i, bytes));
    }
    match ports.of_queue(i, wc.qp_num) {
        // SAFETY: connections are not moved, and none is removed while `c` is borrowed.
        Some(mut c) => on_imm(ports, sink, unsafe { c.as_mut() }.number, wc),
        None => 0,
    }
}

/// Handles the immediate of a write by the peer.
fn on_imm<S: Sink>(ports: &mut IbWorker<S::Peer>, sink: S, number: u32, wc: &ibv_wc) -> u32 {
    let Some(c) = ports.get(number).filter(|c| !c.ended) else {
        return 0;
    };
    c.flow.receive();
    let peer = c.peer;
    // SAFETY: this completion has an immediate.
    let imm = u32::from_be(unsafe { wc.__bindgen_anon_1.imm_data });
    sink.deliver_imm(peer, imm, wc.byte_len as usize);
    schedule_ack(ports, number);
    1
}

/// Where connections have receive queues of their own: posts the receive buffer to the same queue again.
#[cold]
fn give_back<S: Sink>(ports: &mut IbWorker<S::Peer>, sink: S, i: usize, qpn: u32) {
    if sink.is_inherited() {
        return;
    }
    // SAFETY: `c` is read before any connection can be removed.
    let c = ports.of_queue(i, qpn).map(|c| unsafe { c.as_ref() });
    // Receive buffers of a connection that has ended are left for the next connection.
    if let Some(qp) = c.filter(|c| !c.ended).and_then(|c| c.qp.clone()) {
        ports.ifaces[i].give_back(&qp);
    }
}

/// Handles a send completion in single-thread mode.
#[inline(always)]
unsafe fn on_end_alone<S: Sink>(ports: &mut IbWorker<S::Peer>, sink: S, i: usize, wc: &ibv_wc) {
    match ports.of_same_queue(i, wc.qp_num) {
        // SAFETY: no connection is removed while `c` is borrowed; the rest is the caller's promise.
        Some(mut c) if wc.status == IBV_WC_SUCCESS => unsafe {
            completion::on_end_alone(c.as_mut(), sink, wc.wr_id);
        },
        _ => on_other_end(ports, sink.cold(), i, wc),
    }
}

/// Handles a send completion in any thread mode: also of UD and rails, and with an error.
#[inline(never)]
fn on_other_end<S: Sink>(ports: &mut IbWorker<S::Peer>, sink: S, i: usize, wc: &ibv_wc) {
    let iface = &*ports.ifaces[i];
    if wc.qp_num == iface.ud_number {
        return match wc.status {
            IBV_WC_SUCCESS => iface.outgoing.lock().on_send_completion(iface, wc.wr_id),
            _ => iface.revive(wc, false),
        };
    }
    let Some(mut c) = ports.of_queue(i, wc.qp_num) else {
        return on_rail_end(ports, sink, i, wc);
    };
    // SAFETY: no connection is removed while `c` is borrowed.
    let c = unsafe { c.as_mut() };
    // Operations after a failed one have not completed.
    if wc.status == IBV_WC_SUCCESS {
        completion::on_end(c, sink, wc.wr_id);
    } else {
        let number = c.number;
        upkeep::broken(ports, sink, number, wc.status);
    }
}

/// Handles a send completion of a rail.
#[inline(never)]
fn on_rail_end<S: Sink>(ports: &mut IbWorker<S::Peer>, sink: S, i: usize, wc: &ibv_wc) {
    let Some(number) = ports.of_rail(i, wc.qp_num) else {
        return;
    };
    let rail = (i, wc.qp_num);
    if wc.status != IBV_WC_SUCCESS {
        return connect_rails::broken(ports, sink, number, rail, wc.status);
    }
    if let Some(c) = ports.get(number) {
        completion::on_rail_end(c, sink, rail, wc.wr_id);
    }
}

/// Handles a packet of an RC connection.
#[inline(always)]
fn on_packet<S: Sink>(
    ports: &mut IbWorker<S::Peer>,
    sink: S,
    mut c: NonNull<IbConn<S::Peer>>,
    packet: &[u8],
) -> u32 {
    let Some((head, bytes)) = split(packet) else {
        return 0;
    };
    // SAFETY: connections are not moved, and none is removed while `c` is borrowed.
    let c = unsafe { c.as_mut() };
    c.flow.credit(head.credit);
    if head.kind == CREDIT {
        // The next call sends what waits for this credit: the event keeps the program from sleeping.
        return u32::from(sink.pending_room(c.peer));
    }
    c.flow.receive();
    if c.phase == IbConnPhase::Open
        && !c.ended
        && let Some(m) = c.assembly.whole(head, bytes)
        && sink.deliver_short(c.peer, m)
    {
        if c.flow.is_ack_urgent(c.limits.window) {
            schedule_ack(ports, c.number);
        }
        return 1;
    }
    let number = c.number;
    on_longer(ports, sink.cold(), number, head, bytes)
}

/// Handles a packet of another kind than `deliver_short` handles, or of a connection that is not open.
#[inline(never)]
fn on_longer<S: Sink>(
    ports: &mut IbWorker<S::Peer>,
    sink: S,
    number: u32,
    head: PacketHdr,
    bytes: &[u8],
) -> u32 {
    if ports
        .get(number)
        .is_some_and(|c| c.phase != IbConnPhase::Open && !c.ended)
    {
        connect::on_packet(ports, sink, number);
    }
    let count = deliver(ports, sink, number, head, bytes);
    schedule_ack(ports, number);
    count
}

/// Lists a connection that may have an acknowledgement to send.
#[inline(always)]
pub fn schedule_ack<P: Copy + Eq>(ports: &mut IbWorker<P>, number: u32) {
    if let Some(c) = ports.get(number)
        && !c.ack_scheduled
    {
        c.ack_scheduled = true;
        ports.schedule_ack(number);
    }
}

/// Sends acknowledgements where the peer waits for credit, and for datagrams that arrived before this call and are
/// unacknowledged. Others travel with the next send; a program that stops calling progress must not leave datagrams
/// unacknowledged, which peers would retransmit.
#[inline(never)]
fn acknowledge<S: Sink>(ports: &mut IbWorker<S::Peer>, sink: S, before: usize) {
    if sink.is_inherited() {
        return;
    }
    let acks_pending = ports.take_acks_pending();
    for (place, number) in acks_pending.into_iter().enumerate() {
        let Some(c) = ports.get(number) else { continue };
        let (window, datagrams) = (c.limits.window, c.qp.is_none());
        let late = datagrams && place < before && c.flow.unacked() > 0;
        let keep = datagrams && place >= before && c.flow.unacked() > 0;
        if late || c.flow.is_ack_urgent(window) {
            c.with_sender(sink, |sender| sender.acknowledge());
        } else if keep {
            ports.schedule_ack(number);
            continue;
        }
        if let Some(c) = ports.get(number) {
            c.ack_scheduled = false;
        }
    }
}

/// Handles a packet that is next in order.
pub fn deliver<S: Sink>(
    ports: &mut IbWorker<S::Peer>,
    sink: S,
    number: u32,
    head: PacketHdr,
    bytes: &[u8],
) -> u32 {
    let Some(c) = ports.get(number).filter(|c| !c.ended) else {
        return 0;
    };
    let peer = c.peer;
    if matches!(head.kind, BYE | CREDIT) {
        return u32::from(head.kind == BYE && is_gone(ports, sink, number, peer));
    }
    match c.assembly.take(head, bytes) {
        Ok(Some(m)) => {
            // SAFETY: the record is in the packet, or in the reassembly buffer until the next packet.
            if !unsafe { sink.deliver(peer, &m) } {
                c.ended = true;
            }
            1
        }
        Ok(None) => 0,
        Err(_) => {
            c.ended = true;
            sink.malformed(peer, "a malformed message");
            1
        }
    }
}

/// The peer's worker has closed the connection in order: everything that it sent has arrived.
#[cold]
fn is_gone<S: Sink>(ports: &mut IbWorker<S::Peer>, sink: S, number: u32, peer: S::Peer) -> bool {
    log::debug!("worker {:#x} has ended its connection", sink.uid(peer));
    if let Some(c) = ports.get(number) {
        c.with_sender(sink, |sender| sender.acknowledge());
        c.ended = true;
    }
    sink.lane_down(peer, UCS_ERR_CONNECTION_RESET);
    true
}
