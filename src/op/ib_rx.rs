//! Arrivals over IB: RC packets, UD datagrams, completions of sends.

use super::ud_rx::on_datagram;
use super::{rx_dispatch, signal};
use crate::ctypes::*;
use crate::engine::ib_worker::{IbConn, IbConnPhase, IbWorker};
use crate::engine::peer::Peer;
use crate::engine::worker::{Rx, Worker};
use crate::proto::tx::rma_ib;
use crate::proto::{failure, ib_rails, ib_wireup, rndv};
use crate::sys::log;
use crate::tl::Message;
use crate::tl::ib::bindings::{IBV_WC_RECV, IBV_WC_SUCCESS, ibv_wc};
use crate::tl::ib::iface::IbIface;
use crate::tl::reassembly::split;
use crate::wire::header::SignalWord;
use crate::wire::packet_hdr::{BYE, CREDIT, PacketHdr};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

/// Maximum number of completions taken from one CQ before the next is polled: the default of
/// `UCX_IB_RX_MAX_POLL`, which has no effect.
pub const BATCH: usize = 16;

/// Progresses IB connections and messages. Called only while there are connections, or some are to be made. `short`:
/// see [`poll`].
#[inline(always)]
pub fn progress(
    worker: &Worker,
    rx: &mut Rx,
    short: impl Fn(&Worker, Message) -> bool + Copy,
) -> u32 {
    let Some(ports) = rx.ib.as_deref_mut() else {
        worker.progress_flags.take_connect_ib();
        worker.progress_flags.clear_ib();
        return 0;
    };
    let count = poll(worker, ports, short);
    if worker.progress_flags.take_connect_ib() {
        ib_wireup::start(worker, ports);
        ib_rails::start(worker, ports);
    }
    count
}

/// Polls all interfaces. Returns the number of events. `short` gets each message first, and returns whether it has
/// handled it.
#[inline(never)]
pub fn poll(
    worker: &Worker,
    ports: &mut IbWorker,
    short: impl Fn(&Worker, Message) -> bool + Copy,
) -> u32 {
    let (mut count, before) = (0, ports.acks_pending());
    if let Some(found) = ports.take_found() {
        count += take_found(worker, ports, found);
    }
    // A fork in a callback sets the limit to 0 in the child: the queues belong to the parent.
    worker.receive_limit.set(ports.ifaces.len() as u32);
    let mut i = 0;
    while i < worker.receive_limit.get() as usize {
        let mut wcs = [const { MaybeUninit::uninit() }; BATCH];
        let n = ports.ifaces[i].arrived(&mut wcs);
        // SAFETY: the device has written `n` entries.
        count += unsafe { take_all(worker, ports, i, &wcs[..n], short) };
        i += 1;
    }
    if ports.acks_pending() > 0 {
        acknowledge(worker, ports, before);
    }
    count
}

/// Handles arrivals of interface `i` and its send completions. Returns the number of events.
///
/// # Safety
/// The entries of `wcs` were written.
#[inline(never)]
pub unsafe fn take(
    worker: &Worker,
    ports: &mut IbWorker,
    i: usize,
    wcs: &[MaybeUninit<ibv_wc>],
    short: impl Fn(&Worker, Message) -> bool + Copy,
) -> u32 {
    // SAFETY: the entries of `wcs` were written.
    let count = unsafe { take_all(worker, ports, i, wcs, short) };
    if ports.acks_pending() > 0 {
        acknowledge(worker, ports, 0);
    }
    count
}

/// Handles arrivals of interface `i` and its send completions, without acknowledgements. Returns the number of events.
///
/// # Safety
/// The entries of `wcs` were written.
#[inline(always)]
unsafe fn take_all(
    worker: &Worker,
    ports: &mut IbWorker,
    i: usize,
    wcs: &[MaybeUninit<ibv_wc>],
    short: impl Fn(&Worker, Message) -> bool + Copy,
) -> u32 {
    let mut count = 0;
    // Before the arrivals are handled: the reply to an operation after a fence shows the user that a get before the
    // fence is complete, and the get completes here.
    if ports.ifaces[i].has_signaled() {
        count += take_ends(ports, i);
    }
    if !wcs.is_empty() {
        // SAFETY: the entries of `wcs` were written.
        let wcs = unsafe { std::slice::from_raw_parts(wcs.as_ptr().cast(), wcs.len()) };
        count += take_arrivals(worker, ports, i, wcs, short);
    }
    count
}

#[inline(always)]
fn take_arrivals(
    worker: &Worker,
    ports: &mut IbWorker,
    i: usize,
    wcs: &[ibv_wc],
    short: impl Fn(&Worker, Message) -> bool + Copy,
) -> u32 {
    let iface: *const IbIface = Arc::as_ptr(&ports.ifaces[i]);
    // SAFETY: interfaces are not freed before the ports.
    let iface = unsafe { &*iface };
    let mut count = 0;
    for wc in wcs {
        count += match connection_of(ports, i, wc) {
            Some(c) => {
                // SAFETY: the interface reported this completion, and its buffer is not returned yet.
                on_packet(worker, ports, c, unsafe { iface.packet(wc) }, short)
            }
            None => on_other_arrival(worker, ports, i, wc),
        };
        // SAFETY: the interface reported this completion, and its buffer is used no more.
        unsafe { iface.done(wc) };
        if iface.has_own_receives() {
            give_back(worker, ports, i, wc.qp_num);
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
pub unsafe fn take_these_ends(ports: &mut IbWorker, i: usize, wcs: &[MaybeUninit<ibv_wc>]) -> u32 {
    for wc in wcs {
        // SAFETY: the entries of `wcs` were written, and no caller up the stack borrows a peer's `tx`.
        unsafe { on_end_alone(ports, i, wc.assume_init_ref()) };
    }
    wcs.len() as u32
}

/// Polls for send completions. Returns their number.
#[inline(never)]
fn take_ends(ports: &mut IbWorker, i: usize) -> u32 {
    let mut count = 0;
    loop {
        let mut wcs = [const { MaybeUninit::<ibv_wc>::uninit() }; BATCH];
        let n = ports.ifaces[i].poll_send_cq(&mut wcs);
        for wc in &wcs[..n] {
            // SAFETY: the device has written `n` entries.
            on_other_end(ports, i, unsafe { wc.assume_init_ref() });
        }
        count += n as u32;
        if n < BATCH {
            return count;
        }
    }
}

/// Handles completions that were found when the worker was armed for sleep.
#[cold]
fn take_found(
    worker: &Worker,
    ports: &mut IbWorker,
    [arrived, ended]: [Vec<(usize, ibv_wc)>; 2],
) -> u32 {
    let mut count = ended.len() as u32;
    for (i, wc) in ended {
        on_other_end(ports, i, &wc);
    }
    for (i, wc) in arrived {
        if worker.progress_flags.is_inherited() {
            break;
        }
        count += take_ends(ports, i);
        count += take_arrivals(worker, ports, i, &[wc], |_, _| false);
    }
    count
}

/// The RC connection on which a packet has arrived.
#[inline(always)]
fn connection_of(ports: &mut IbWorker, i: usize, wc: &ibv_wc) -> Option<NonNull<IbConn>> {
    if (wc.status, wc.opcode) != (IBV_WC_SUCCESS, IBV_WC_RECV) {
        return None;
    }
    let same = ports.of_same_queue(i, wc.qp_num);
    same.or_else(|| other_connection_of(ports, i, wc))
}

#[inline(never)]
fn other_connection_of(ports: &mut IbWorker, i: usize, wc: &ibv_wc) -> Option<NonNull<IbConn>> {
    let datagram = wc.qp_num == ports.ifaces[i].ud_number;
    (!datagram).then(|| ports.of_queue(i, wc.qp_num)).flatten()
}

/// Handles a receive completion of UD, with an immediate, or with an error.
#[inline(never)]
fn on_other_arrival(worker: &Worker, ports: &mut IbWorker, i: usize, wc: &ibv_wc) -> u32 {
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
        return bytes.map_or(0, |bytes| on_datagram(worker, ports, i, bytes));
    }
    match ports.of_queue(i, wc.qp_num) {
        // SAFETY: connections are not moved, and none is removed while `c` is borrowed.
        Some(mut c) => on_imm(worker, ports, unsafe { c.as_mut() }.number, wc),
        None => 0,
    }
}

/// Handles the immediate of a write by the peer.
fn on_imm(worker: &Worker, ports: &mut IbWorker, number: u32, wc: &ibv_wc) -> u32 {
    let Some(c) = ports.get(number).filter(|c| !c.ended) else {
        return 0;
    };
    c.flow.receive();
    let peer = c.peer.get();
    // SAFETY: this completion has an immediate.
    let word = u32::from_be(unsafe { wc.__bindgen_anon_1.imm_data });
    peer.stats().received.add(0);
    match SignalWord::decode(word) {
        Some(word) => signal::on_imm(worker, peer, word, wc.byte_len as usize),
        None => rndv::put_zcopy::on_word(worker, peer, word),
    }
    schedule_ack(ports, number);
    1
}

/// Where connections have receive queues of their own: posts the receive buffer to the same queue again.
#[cold]
fn give_back(worker: &Worker, ports: &mut IbWorker, i: usize, qpn: u32) {
    if worker.progress_flags.is_inherited() {
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
unsafe fn on_end_alone(ports: &mut IbWorker, i: usize, wc: &ibv_wc) {
    match ports.of_same_queue(i, wc.qp_num) {
        // SAFETY: no connection is removed while `c` is borrowed; the rest is the caller's promise.
        Some(mut c) if wc.status == IBV_WC_SUCCESS => unsafe {
            rma_ib::on_end_alone(c.as_mut(), wc.wr_id);
        },
        _ => on_other_end(ports, i, wc),
    }
}

/// Handles a send completion in any thread mode: also of UD and rails, and with an error.
#[inline(never)]
fn on_other_end(ports: &mut IbWorker, i: usize, wc: &ibv_wc) {
    let iface = &*ports.ifaces[i];
    if wc.qp_num == iface.ud_number {
        return match wc.status {
            IBV_WC_SUCCESS => iface.outgoing.lock().on_send_completion(iface, wc.wr_id),
            _ => iface.revive(wc, false),
        };
    }
    let Some(mut c) = ports.of_queue(i, wc.qp_num) else {
        return on_rail_end(ports, i, wc);
    };
    // SAFETY: no connection is removed while `c` is borrowed.
    let c = unsafe { c.as_mut() };
    // Operations after a failed one have not completed.
    if wc.status == IBV_WC_SUCCESS {
        rma_ib::on_end(c, wc.wr_id);
    } else {
        let number = c.number;
        ib_wireup::broken(ports, number, wc.status);
    }
}

/// Handles a send completion of a rail.
#[inline(never)]
fn on_rail_end(ports: &mut IbWorker, i: usize, wc: &ibv_wc) {
    let Some(number) = ports.of_rail(i, wc.qp_num) else {
        return;
    };
    let rail = (i, wc.qp_num);
    if wc.status != IBV_WC_SUCCESS {
        return ib_rails::broken(ports, number, rail, wc.status);
    }
    if let Some(c) = ports.get(number) {
        rma_ib::on_rail_end(c, rail, wc.wr_id);
    }
}

/// Handles a packet of an RC connection.
#[inline(always)]
fn on_packet(
    worker: &Worker,
    ports: &mut IbWorker,
    mut c: NonNull<IbConn>,
    packet: &[u8],
    short: impl Fn(&Worker, Message) -> bool,
) -> u32 {
    let Some((head, bytes)) = split(packet) else {
        return 0;
    };
    // SAFETY: connections are not moved, and none is removed while `c` is borrowed.
    let c = unsafe { c.as_mut() };
    c.flow.credit(head.credit);
    if head.kind == CREDIT {
        // The next call sends what waits for this credit: the event keeps the program from sleeping.
        return u32::from(worker.progress_flags.backlog() != 0);
    }
    c.flow.receive();
    if c.phase == IbConnPhase::Open
        && !c.ended
        && let Some(m) = c.assembly.whole(head, bytes)
    {
        let len = m.len;
        if short(worker, m) {
            c.peer.get().stats().received.add(len);
            if c.flow.is_ack_urgent(c.limits.window) {
                schedule_ack(ports, c.number);
            }
            return 1;
        }
    }
    let number = c.number;
    on_longer(worker, ports, number, head, bytes)
}

/// Handles a packet that `short` has not handled, or of a connection that is not open.
#[inline(never)]
fn on_longer(
    worker: &Worker,
    ports: &mut IbWorker,
    number: u32,
    head: PacketHdr,
    bytes: &[u8],
) -> u32 {
    if ports
        .get(number)
        .is_some_and(|c| c.phase != IbConnPhase::Open && !c.ended)
    {
        ib_wireup::on_packet(worker, ports, number);
    }
    let count = deliver(worker, ports, number, head, bytes);
    schedule_ack(ports, number);
    count
}

/// Lists a connection that may have an acknowledgement to send.
#[inline(always)]
pub fn schedule_ack(ports: &mut IbWorker, number: u32) {
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
fn acknowledge(worker: &Worker, ports: &mut IbWorker, before: usize) {
    if worker.progress_flags.is_inherited() {
        return;
    }
    let acks_pending = ports.take_acks_pending();
    for (place, number) in acks_pending.into_iter().enumerate() {
        let Some(c) = ports.get(number) else { continue };
        let (window, datagrams) = (c.limits.window, c.qp.is_none());
        let late = datagrams && place < before && c.flow.unacked() > 0;
        let keep = datagrams && place >= before && c.flow.unacked() > 0;
        if late || c.flow.is_ack_urgent(window) {
            c.with_sender(|sender| sender.acknowledge());
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
pub fn deliver(
    worker: &Worker,
    ports: &mut IbWorker,
    number: u32,
    head: PacketHdr,
    bytes: &[u8],
) -> u32 {
    let Some(c) = ports.get(number).filter(|c| !c.ended) else {
        return 0;
    };
    let peer = c.peer.get();
    if matches!(head.kind, BYE | CREDIT) {
        return u32::from(head.kind == BYE && is_gone(ports, number, peer));
    }
    match c.assembly.take(head, bytes) {
        Ok(Some(m)) => {
            peer.stats().received.add(m.len);
            // SAFETY: the record is in the packet, or in the reassembly buffer until the next packet.
            if unsafe { rx_dispatch::message(worker, peer, &m) }.is_err() {
                c.ended = true;
                failure::fail_corrupt(peer, "an invalid message");
            }
            1
        }
        Ok(None) => 0,
        Err(_) => {
            c.ended = true;
            failure::fail_corrupt(peer, "a malformed message");
            1
        }
    }
}

/// The peer's worker has closed the connection in order: everything that it sent has arrived.
#[cold]
fn is_gone(ports: &mut IbWorker, number: u32, peer: &Peer) -> bool {
    log::debug!("worker {:#x} has ended its connection", peer.uid);
    if let Some(c) = ports.get(number) {
        c.with_sender(|sender| sender.acknowledge());
        c.ended = true;
    }
    peer.fail(UCS_ERR_CONNECTION_RESET);
    true
}

/// Periodic work; clears the progress flag when no connection needs polling. Called when the clock has advanced.
#[cold]
pub fn tick(worker: &Worker, ports: &mut IbWorker, now: u64) -> u32 {
    ports.stop_timer();
    worker.ctx.tl.ib.trim();
    ib_wireup::tick(worker, ports, now);
    let count = poll(worker, ports, |_, _| false);
    if !ports.is_quiet() {
        worker.progress_flags.raise_ib();
    } else if worker.progress_flags.has_ib() {
        let pairings = worker.peer_lists.connect_ib.lock();
        if pairings.is_empty() {
            worker.progress_flags.clear_ib();
        }
    }
    count
}
