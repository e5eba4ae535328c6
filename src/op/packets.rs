//! What comes through queue pairs: packets, datagrams, the ends of sends.

use super::datagrams::on_datagram;
use super::{serve, signal};
use crate::ctypes::*;
use crate::engine::peer::Peer;
use crate::engine::ports::{Connection, Phase, Ports};
use crate::engine::worker::{Rx, Worker};
use crate::proto::tx::device;
use crate::proto::{failure, pairing, rails, rndv, tx};
use crate::sys::log;
use crate::tl::ib::assembly::split;
use crate::tl::ib::bindings::{IBV_WC_RECV, IBV_WC_SUCCESS, ibv_wc};
use crate::tl::ib::iface::Iface;
use crate::tl::shm::ring::Message;
use crate::wire::header::SignalWord;
use crate::wire::packet::{BYE, CREDIT, Head};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

/// Completions taken from one queue before the next is looked at, as `UCX_IB_RX_MAX_POLL`.
pub const BATCH: usize = 16;

/// Moves connections and messages on. Called only while there are connections, or some are wanted. `short`: see
/// [`poll`].
#[inline(always)]
pub fn progress(
    worker: &Worker,
    rx: &mut Rx,
    short: impl Fn(&Worker, Message) -> bool + Copy,
) -> u32 {
    let Some(ports) = rx.ports.as_deref_mut() else {
        worker.duties.take_pairings();
        worker.duties.forget_ports();
        return 0;
    };
    let count = poll(worker, ports, short);
    if worker.duties.take_pairings() {
        pairing::start(worker, ports);
        rails::start(worker, ports);
    }
    count
}

/// Takes what has come: how much. `short` sees each message first, and says whether it has handled it.
#[inline(never)]
pub fn poll(
    worker: &Worker,
    ports: &mut Ports,
    short: impl Fn(&Worker, Message) -> bool + Copy,
) -> u32 {
    let (mut count, before) = (0, ports.owing());
    if let Some(found) = ports.take_found() {
        count += take_found(worker, ports, found);
    }
    // A callback that forks ends this in the child: the queues are its parent's.
    worker.receive_limit.set(ports.ifaces.len() as u32);
    let mut i = 0;
    while i < worker.receive_limit.get() as usize {
        let mut wcs = [const { MaybeUninit::uninit() }; BATCH];
        let n = ports.ifaces[i].arrived(&mut wcs);
        // SAFETY: so many were written.
        count += unsafe { take_all(worker, ports, i, &wcs[..n], short) };
        i += 1;
    }
    if ports.owing() > 0 {
        acknowledge(worker, ports, before);
    }
    count
}

/// Takes what has come through the interface with this number, the only one that anything is to be done for: how much.
///
/// # Safety
/// The completions were written.
#[inline(never)]
pub unsafe fn take(
    worker: &Worker,
    ports: &mut Ports,
    i: usize,
    wcs: &[MaybeUninit<ibv_wc>],
    short: impl Fn(&Worker, Message) -> bool + Copy,
) -> u32 {
    // SAFETY: the caller's promise.
    let count = unsafe { take_all(worker, ports, i, wcs, short) };
    if ports.owing() > 0 {
        acknowledge(worker, ports, 0);
    }
    count
}

/// Takes what has come through an interface, and the ends of sends.
///
/// # Safety
/// The completions were written.
#[inline(always)]
unsafe fn take_all(
    worker: &Worker,
    ports: &mut Ports,
    i: usize,
    wcs: &[MaybeUninit<ibv_wc>],
    short: impl Fn(&Worker, Message) -> bool + Copy,
) -> u32 {
    let mut count = 0;
    // Before what has arrived is handled: an answer to something behind a fence tells the user that what he read before
    // it has come, and it is here that it comes.
    if ports.ifaces[i].is_told() {
        count += take_ends(ports, i);
    }
    if !wcs.is_empty() {
        // SAFETY: the caller's promise.
        let wcs = unsafe { std::slice::from_raw_parts(wcs.as_ptr().cast(), wcs.len()) };
        count += take_arrivals(worker, ports, i, wcs, short);
    }
    count
}

#[inline(always)]
fn take_arrivals(
    worker: &Worker,
    ports: &mut Ports,
    i: usize,
    wcs: &[ibv_wc],
    short: impl Fn(&Worker, Message) -> bool + Copy,
) -> u32 {
    let iface: *const Iface = Arc::as_ptr(&ports.ifaces[i]);
    // SAFETY: interfaces stay as long as the ports.
    let iface = unsafe { &*iface };
    let mut count = 0;
    for wc in wcs {
        count += match connection_of(ports, i, wc) {
            Some(c) => {
                // SAFETY: the interface told this completion, and it is not done yet.
                on_packet(worker, ports, c, unsafe { iface.packet(wc) }, short)
            }
            None => on_other_arrival(worker, ports, i, wc),
        };
        // SAFETY: as above.
        unsafe { iface.done(wc) };
        if iface.has_own_receives() {
            give_back(worker, ports, i, wc.qp_num);
        }
    }
    iface.refill();
    count
}

/// As [`take`], of ends of sends, in single-thread mode.
///
/// # Safety
/// As there, and nobody up the stack has a peer's sending half.
#[inline(always)]
pub unsafe fn take_these_ends(ports: &mut Ports, i: usize, wcs: &[MaybeUninit<ibv_wc>]) -> u32 {
    for wc in wcs {
        // SAFETY: the caller's promise.
        unsafe { on_end_alone(ports, i, wc.assume_init_ref()) };
    }
    wcs.len() as u32
}

/// Takes the ends of sends: how many.
#[inline(never)]
fn take_ends(ports: &mut Ports, i: usize) -> u32 {
    let mut count = 0;
    loop {
        let mut wcs = [const { MaybeUninit::<ibv_wc>::uninit() }; BATCH];
        let n = ports.ifaces[i].ended(&mut wcs);
        for wc in &wcs[..n] {
            // SAFETY: so many were written.
            on_other_end(ports, i, unsafe { wc.assume_init_ref() });
        }
        count += n as u32;
        if n < BATCH {
            return count;
        }
    }
}

/// What was found when the worker was about to sleep.
#[cold]
fn take_found(
    worker: &Worker,
    ports: &mut Ports,
    [arrived, ended]: [Vec<(usize, ibv_wc)>; 2],
) -> u32 {
    let mut count = ended.len() as u32;
    for (i, wc) in ended {
        on_other_end(ports, i, &wc);
    }
    for (i, wc) in arrived {
        if worker.duties.is_inherited() {
            break;
        }
        count += take_ends(ports, i);
        count += take_arrivals(worker, ports, i, &[wc], |_, _| false);
    }
    count
}

/// The connection that a packet has come by.
#[inline(always)]
fn connection_of(ports: &mut Ports, i: usize, wc: &ibv_wc) -> Option<NonNull<Connection>> {
    if (wc.status, wc.opcode) != (IBV_WC_SUCCESS, IBV_WC_RECV) {
        return None;
    }
    let same = ports.of_same_queue(i, wc.qp_num);
    same.or_else(|| other_connection_of(ports, i, wc))
}

#[inline(never)]
fn other_connection_of(ports: &mut Ports, i: usize, wc: &ibv_wc) -> Option<NonNull<Connection>> {
    let datagram = wc.qp_num == ports.ifaces[i].ud_number;
    (!datagram).then(|| ports.of_queue(i, wc.qp_num)).flatten()
}

/// A receive has ended: of no connection, or not well.
#[inline(never)]
fn on_other_arrival(worker: &Worker, ports: &mut Ports, i: usize, wc: &ibv_wc) -> u32 {
    // Others are those of a queue pair that is in error: what became of it the sends say.
    if wc.status != IBV_WC_SUCCESS {
        if wc.qp_num == ports.ifaces[i].ud_number {
            ports.ifaces[i].revive(wc, true);
        }
        return 0;
    }
    let iface = ports.ifaces[i].clone();
    if wc.qp_num == iface.ud_number {
        // SAFETY: the interface told this completion, and it is not done yet.
        let bytes = unsafe { iface.datagram(wc) };
        return bytes.map_or(0, |bytes| on_datagram(worker, ports, i, bytes));
    }
    match ports.of_queue(i, wc.qp_num) {
        // SAFETY: connections stay in their places, and none is taken out while this is used.
        Some(mut c) => on_word(worker, ports, unsafe { c.as_mut() }.number, wc),
        None => 0,
    }
}

/// The peer has written into our memory, and says so.
fn on_word(worker: &Worker, ports: &mut Ports, number: u32, wc: &ibv_wc) -> u32 {
    let Some(c) = ports.get(number).filter(|c| !c.ended) else {
        return 0;
    };
    c.flow.receive();
    // SAFETY: peers that lists of progress name are not freed; of such a completion it is this member.
    let (peer, word) = unsafe { (&*c.peer, u32::from_be(wc.__bindgen_anon_1.imm_data)) };
    peer.stats().received.add(0);
    match SignalWord::decode(word) {
        Some(word) => signal::on_word(worker, peer, word, wc.byte_len as usize),
        None => rndv::device::on_word(worker, peer, word),
    }
    owe(ports, number);
    1
}

/// Where connections have receives of their own: a spent one is posted again to the same.
#[cold]
fn give_back(worker: &Worker, ports: &mut Ports, i: usize, qpn: u32) {
    if worker.duties.is_inherited() {
        return;
    }
    // SAFETY: it is looked at before anything else is.
    let c = ports.of_queue(i, qpn).map(|c| unsafe { c.as_ref() });
    // Receives of one that has ended are for the next connection.
    if let Some(qp) = c.filter(|c| !c.ended).and_then(|c| c.qp.clone()) {
        ports.ifaces[i].give_back(&qp);
    }
}

/// A send that tells of its end has ended. In single-thread mode.
#[inline(always)]
unsafe fn on_end_alone(ports: &mut Ports, i: usize, wc: &ibv_wc) {
    match ports.of_same_queue(i, wc.qp_num) {
        // SAFETY: nothing is taken out meanwhile; the rest is the caller's promise.
        Some(mut c) if wc.status == IBV_WC_SUCCESS => unsafe {
            device::on_end_alone(c.as_mut(), wc.wr_id);
        },
        _ => on_other_end(ports, i, wc),
    }
}

/// The same, in any mode, not of the queue pair that was looked up last, or not well.
#[inline(never)]
fn on_other_end(ports: &mut Ports, i: usize, wc: &ibv_wc) {
    let iface = &*ports.ifaces[i];
    if wc.qp_num == iface.ud_number {
        return match wc.status {
            IBV_WC_SUCCESS => iface.outgoing.lock().ended(iface, wc.wr_id),
            _ => iface.revive(wc, false),
        };
    }
    let Some(mut c) = ports.of_queue(i, wc.qp_num) else {
        return on_rail_end(ports, i, wc);
    };
    // SAFETY: nothing is taken out meanwhile.
    let c = unsafe { c.as_mut() };
    // What was behind one that failed has not ended well.
    if wc.status == IBV_WC_SUCCESS {
        device::on_end(c, wc.wr_id);
    } else {
        let number = c.number;
        pairing::broken(ports, number, wc.status);
    }
}

/// The same of a rail's.
#[inline(never)]
fn on_rail_end(ports: &mut Ports, i: usize, wc: &ibv_wc) {
    let Some(number) = ports.of_rail(i, wc.qp_num) else {
        return;
    };
    let rail = (i, wc.qp_num);
    if wc.status != IBV_WC_SUCCESS {
        return rails::broken(ports, number, rail, wc.status);
    }
    if let Some(c) = ports.get(number) {
        device::on_rail_end(c, rail, wc.wr_id);
    }
}

/// A packet of a connection by a queue pair of its own.
#[inline(always)]
fn on_packet(
    worker: &Worker,
    ports: &mut Ports,
    mut c: NonNull<Connection>,
    packet: &[u8],
    short: impl Fn(&Worker, Message) -> bool,
) -> u32 {
    let Some((head, bytes)) = split(packet) else {
        return 0;
    };
    // SAFETY: connections stay in their places, and none is taken out while this is used.
    let c = unsafe { c.as_mut() };
    c.flow.credit(head.credit);
    if head.kind == CREDIT {
        // Who waits for it is looked at by the next call: the caller must not go to sleep before.
        return u32::from(worker.duties.backlog() != 0);
    }
    c.flow.receive();
    if c.phase == Phase::Open
        && !c.ended
        && let Some(m) = c.assembly.whole(head, bytes)
    {
        let len = m.len;
        if short(worker, m) {
            // SAFETY: peers that lists of progress name are not freed.
            unsafe { &*c.peer }.stats().received.add(len);
            if c.flow.is_urgent(c.limits.window) {
                owe(ports, c.number);
            }
            return 1;
        }
    }
    let number = c.number;
    on_longer(worker, ports, number, head, bytes)
}

/// As [`on_packet`], of everything that is not most frequent.
#[inline(never)]
fn on_longer(worker: &Worker, ports: &mut Ports, number: u32, head: Head, bytes: &[u8]) -> u32 {
    if ports
        .get(number)
        .is_some_and(|c| c.phase != Phase::Open && !c.ended)
    {
        pairing::heard(worker, ports, number);
    }
    let count = deliver(worker, ports, number, head, bytes);
    owe(ports, number);
    count
}

/// A connection may have something to tell its peer.
#[inline(always)]
pub fn owe(ports: &mut Ports, number: u32) {
    if let Some(c) = ports.get(number)
        && !c.listed
    {
        c.listed = true;
        ports.owe(number);
    }
}

/// Tells peers what has been taken: where they wait for it, and of datagrams that came before this call and were not
/// answered since. Who sent the others hears of it with what is sent next; a program that calls progress no more, as
/// one does that has all it wants, must not leave its peers in doubt whether to send again.
#[inline(never)]
fn acknowledge(worker: &Worker, ports: &mut Ports, before: usize) {
    if worker.duties.is_inherited() {
        return;
    }
    let owing = ports.take_owing();
    for (place, number) in owing.into_iter().enumerate() {
        let Some(c) = ports.get(number) else { continue };
        let (window, datagrams) = (c.limits.window, c.qp.is_none());
        let late = datagrams && place < before && c.flow.untold() > 0;
        let keep = datagrams && place >= before && c.flow.untold() > 0;
        if late || c.flow.is_urgent(window) {
            c.with_sender(|sender| sender.acknowledge(false));
        } else if keep {
            ports.owe(number);
            continue;
        }
        if let Some(c) = ports.get(number) {
            c.listed = false;
        }
    }
}

/// A packet in its turn.
pub fn deliver(worker: &Worker, ports: &mut Ports, number: u32, head: Head, bytes: &[u8]) -> u32 {
    let Some(c) = ports.get(number).filter(|c| !c.ended) else {
        return 0;
    };
    // SAFETY: peers that lists of progress name are not freed.
    let peer = unsafe { &*c.peer };
    if matches!(head.kind, BYE | CREDIT) {
        return u32::from(head.kind == BYE && is_gone(ports, number, peer));
    }
    match c.assembly.take(head, bytes) {
        Ok(Some(m)) => {
            peer.stats().received.add(m.len);
            // SAFETY: the record is in the packet, or in the assembly until the next packet.
            if unsafe { serve::message(worker, peer, &m) }.is_err() {
                c.ended = true;
                failure::distrust(peer, "a message that makes no sense");
            }
            1
        }
        Ok(None) => 0,
        Err(_) => {
            c.ended = true;
            failure::distrust(peer, "what is no message");
            1
        }
    }
}

/// The peer's worker goes, in order: all that it sent has come.
#[cold]
fn is_gone(ports: &mut Ports, number: u32, peer: &Peer) -> bool {
    log::debug!("worker {:#x} has ended its connection", peer.uid);
    if let Some(c) = ports.get(number) {
        c.with_sender(|sender| sender.acknowledge(false));
        c.ended = true;
    }
    tx::lose(peer, UCS_ERR_CONNECTION_RESET);
    true
}

/// Does what is due, and finds out whether there is anything left to look at. Called when the clock has moved on.
#[cold]
pub fn tick(worker: &Worker, ports: &mut Ports, now: u64) -> u32 {
    ports.stop_timer();
    worker.ctx.tidy();
    pairing::tick(worker, ports, now);
    let count = poll(worker, ports, |_, _| false);
    if !ports.is_quiet() {
        worker.duties.call_ports();
    } else if worker.duties.has_ports() {
        let pairings = worker.pairings.lock();
        if pairings.is_empty() {
            worker.duties.forget_ports();
        }
    }
    count
}
