//! Drain of a destroyed worker's IB connections: waits until the peers that are alive have acknowledged what was sent.

use super::bindings::{IBV_WC_RECV, IBV_WC_SUCCESS, ibv_wc};
use super::conn::IbConnPhase;
use super::iface::IbIface;
use super::reorder::Arrival;
use super::worker::IbWorker;
use crate::sys::clock;
use crate::tl::Lane;
use crate::tl::interface::LINGER_MS;
use crate::tl::reassembly::split;
use crate::tl::sink::Sink;
use crate::wire::ib_packet::{Datagram, DatagramFlags};
use crate::wire::packet_hdr::BYE;
use std::mem::MaybeUninit;

/// Completions taken by one poll of a CQ.
const BATCH: usize = 16;

/// Closes all connections.
pub fn close<S: Sink>(ports: &mut IbWorker<S::Peer>, sink: S) {
    for c in ports.iter().filter(|c| c.phase == IbConnPhase::Open) {
        c.with_sender(sink, |sender| sender.send_disconnect());
    }
    // Completions found when the worker was armed for sleep.
    let [arrived, ended] = ports.take_found().unwrap_or_default();
    arrived
        .iter()
        .for_each(|(i, wc)| on_arrival(ports, sink, *i, wc));
    for (i, wc) in ended {
        let iface = ports.ifaces[i].clone();
        on_end(ports, sink, &iface, &wc);
    }
    let until = clock::coarse_ms() + LINGER_MS;
    while waits(ports, sink) && clock::coarse_ms() < until {
        for i in 0..ports.ifaces.len() {
            settle(ports, sink, i);
        }
        std::thread::yield_now();
    }
    for c in ports.iter() {
        drop(sink.take_lane(c.peer, |lane| matches!(lane, Lane::Ib(_))));
    }
}

/// Whether a peer that is alive has not acknowledged everything. Retransmits what is due.
fn waits<S: Sink>(ports: &mut IbWorker<S::Peer>, sink: S) -> bool {
    let now = clock::coarse_ms();
    let mut waits = false;
    for c in ports.iter().filter(|c| !c.ended) {
        let lives = !sink.has_failed(c.peer);
        let waiting = c.with_sender(sink, |sender| !sender.drain() && sender.tick(now));
        waits |= lives && waiting == Some(true);
    }
    waits
}

/// Polls an interface for acknowledgements and send completions. Other arrivals are acknowledged and dropped.
fn settle<S: Sink>(ports: &mut IbWorker<S::Peer>, sink: S, i: usize) {
    let mut wcs = [const { MaybeUninit::uninit() }; BATCH];
    let iface = ports.ifaces[i].clone();
    let n = iface.arrived(&mut wcs);
    for wc in &wcs[..n] {
        // SAFETY: the device has written `n` entries.
        on_arrival(ports, sink, i, unsafe { wc.assume_init_ref() });
    }
    iface.refill();
    let n = iface.poll_send_cq(&mut wcs);
    for wc in &wcs[..n] {
        // SAFETY: the device has written `n` entries.
        on_end(ports, sink, &iface, unsafe { wc.assume_init_ref() });
    }
}

fn on_arrival<S: Sink>(ports: &mut IbWorker<S::Peer>, sink: S, i: usize, wc: &ibv_wc) {
    let iface = ports.ifaces[i].clone();
    // Other completions have no packet.
    let whole = (wc.status, wc.opcode) == (IBV_WC_SUCCESS, IBV_WC_RECV);
    if whole && wc.qp_num == iface.ud_number {
        // SAFETY: the interface reported this completion, and its receive buffer is not returned yet.
        on_datagram(
            ports,
            sink,
            unsafe { iface.datagram(wc) }.unwrap_or_default(),
        );
    } else if whole && let Some(mut c) = ports.of_queue(i, wc.qp_num) {
        // A peer that has disconnected acknowledges nothing any more.
        // SAFETY: the interface reported this completion; no connection is removed while `c` is borrowed.
        unsafe { c.as_mut().ended |= is_disconnect(iface.packet(wc)) };
    }
    // SAFETY: the interface reported this completion, and its buffer is used no more.
    unsafe { iface.done(wc) };
}

fn on_end<S: Sink>(ports: &mut IbWorker<S::Peer>, sink: S, iface: &IbIface, wc: &ibv_wc) {
    if wc.qp_num == iface.ud_number {
        return match wc.status {
            IBV_WC_SUCCESS => iface.outgoing.lock().on_send_completion(iface, wc.wr_id),
            _ => iface.revive(wc, false),
        };
    }
    if let Some(mut c) = ports.of_queue(iface.index.into(), wc.qp_num) {
        // SAFETY: no connection is removed while `c` is borrowed.
        let c = unsafe { c.as_mut() };
        c.with_sender(sink, |sender| sender.on_send_completion(wc.wr_id, |_| {}));
        c.ended |= wc.status != IBV_WC_SUCCESS;
    }
}

fn on_datagram<S: Sink>(ports: &mut IbWorker<S::Peer>, sink: S, bytes: &[u8]) {
    let Some((d, rest)) = Datagram::decode(bytes).zip(bytes.get(Datagram::SIZE..)) else {
        return;
    };
    let Some(c) = ports.get(d.number()).filter(|c| c.proof == d.proof) else {
        return;
    };
    if d.has(DatagramFlags::HELLO | DatagramFlags::MOVED) {
        return;
    }
    // A peer that has lost the connection acknowledges nothing any more.
    c.ended |= d.has(DatagramFlags::GONE);
    let is_packet = !rest.is_empty() && !d.has(DatagramFlags::CHECK);
    if is_packet && c.reorder.arrive(d.psn, rest, 0) == Arrival::Now {
        c.flow.receive();
        c.ended |= is_disconnect(rest);
    }
    let answer = !rest.is_empty() || d.has(DatagramFlags::ASKS);
    c.with_sender(sink, |sender| {
        sender.acknowledged(d.ack, false);
        if answer {
            sender.acknowledge();
        }
    });
}

fn is_disconnect(packet: &[u8]) -> bool {
    split(packet).is_some_and(|(head, _)| head.kind == BYE)
}
