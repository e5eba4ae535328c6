//! Arrivals over UD: HELLO messages, acknowledgements, and packets, which are put in order.

use super::{deliver, schedule_ack};
use crate::sys::log;
use crate::tl::ib::conn::{IbConn, IbConnPhase};
use crate::tl::ib::reorder::{Arrival, Reorder};
use crate::tl::ib::ud::AddressHandle;
use crate::tl::ib::worker::IbWorker;
use crate::tl::ib::{connect, upkeep};
use crate::tl::reassembly::split;
use crate::tl::sink::Sink;
use crate::wire::ib_packet::{Datagram, DatagramFlags, Ping};
use crate::wire::ib_port::PortLocator;

/// Handles a datagram: of a connection, or a HELLO.
pub fn on_datagram<S: Sink>(ports: &mut IbWorker<S::Peer>, sink: S, i: usize, bytes: &[u8]) -> u32 {
    let Some((d, rest)) = Datagram::decode(bytes).zip(bytes.get(Datagram::SIZE..)) else {
        log::diag!(
            "a datagram of {} bytes is dropped: unknown protocol",
            bytes.len()
        );
        return 0;
    };
    if d.has(DatagramFlags::HELLO) {
        connect::on_hello(ports, sink, i, rest);
        return 1;
    }
    let window = ports.ifaces[i].datagram_window();
    let own = |c: &&mut IbConn<S::Peer>| {
        c.proof == d.proof && (c.iface == i || !c.paths.is_empty()) && c.remote_qp.is_some()
    };
    let Some(c) = ports.get(d.number()).filter(own) else {
        log::diag!("a datagram is dropped: no such connection");
        if d.has(DatagramFlags::CHECK) {
            report_gone(ports, i, rest);
        }
        return 0;
    };
    let number = c.number;
    if c.qp.is_some() {
        return 0;
    }
    if d.has(DatagramFlags::PONG | DatagramFlags::MOVED | DatagramFlags::GONE) {
        return on_notice(ports, sink, number, i, d, rest);
    }
    if c.phase != IbConnPhase::Open {
        if c.ended {
            return 0;
        }
        connect::on_packet(ports, sink, number);
    }
    let Some(c) = ports.get(number) else { return 0 };
    let news = d.ack != c.acknowledged;
    if news || d.has(DatagramFlags::GAP) {
        c.acknowledged = d.ack;
        let sane = c.with_sender(sink, |sender| {
            let sane = sender.acknowledged(d.ack, d.has(DatagramFlags::GAP));
            if d.has(DatagramFlags::GAP) {
                sender.on_gap(d.psn);
            }
            sane
        });
        if sane == Some(false) {
            log::diag!("a datagram is dropped: it acknowledges packets that were not sent");
            return 0;
        }
    }
    if d.has(DatagramFlags::ASKS) {
        c.flow.request_ack();
    }
    let mut count = u32::from(news);
    if !rest.is_empty() && !d.has(DatagramFlags::CHECK) {
        match c.reorder.arrive(d.psn, rest, window) {
            Arrival::Now => {
                count += in_turn(ports, sink, number, rest);
                report_gap(ports, sink, number, Reorder::gap_end);
            }
            Arrival::Early => report_gap(ports, sink, number, Reorder::gap_to_report),
            // Its acknowledgment was lost.
            Arrival::Again => c.flow.request_ack(),
        }
    }
    schedule_ack(ports, number);
    count
}

/// Replies to a peer that checks a connection which this worker does not have: this worker has lost the peer.
#[cold]
fn report_gone<P: Copy + Eq>(ports: &IbWorker<P>, i: usize, rest: &[u8]) {
    let Some((ping, from)) = Ping::read(rest) else {
        return;
    };
    let iface = &*ports.ifaces[i];
    if (ping.worker, ping.secret) == (ports.uid, ports.secret)
        && let Ok(ah) = AddressHandle::new(&iface.port, &from)
    {
        let gone = Datagram {
            to: Datagram::to(ping.number, DatagramFlags::GONE),
            proof: ping.proof,
            psn: 0,
            ack: 0,
        };
        (iface.outgoing.lock()).send(iface, &ah, from.qpn, &gone.encode());
    }
}

/// Handles a datagram of a connection that carries neither an acknowledgement nor a packet.
#[cold]
fn on_notice<S: Sink>(
    ports: &mut IbWorker<S::Peer>,
    sink: S,
    number: u32,
    i: usize,
    d: Datagram,
    rest: &[u8],
) -> u32 {
    let Some(c) = ports.get(number) else { return 0 };
    if d.has(DatagramFlags::PONG) {
        c.with_sender(sink, |sender| sender.on_pong());
        return 0;
    }
    if d.has(DatagramFlags::GONE) {
        upkeep::on_gone(sink, c.peer);
        return 1;
    }
    on_move(ports, sink, number, i, rest)
}

/// The peer has moved to another port: changes the path and acknowledges that.
fn on_move<S: Sink>(
    ports: &mut IbWorker<S::Peer>,
    sink: S,
    number: u32,
    i: usize,
    rest: &[u8],
) -> u32 {
    if let Some((c, port)) = ports.get(number).zip(PortLocator::decode(rest)) {
        let by = c.with_sender(sink, |sender| {
            sender.follow_peer_port(i, &port);
            sender.local_port()
        });
        if let Some(index) = by {
            sink.note_device(c.peer, index);
        }
        c.flow.request_ack();
        schedule_ack(ports, number);
    }
    0
}

/// Requests the datagrams that are missing in front of the one that `end` returns, if it returns one.
fn report_gap<S: Sink>(
    ports: &mut IbWorker<S::Peer>,
    sink: S,
    number: u32,
    end: impl Fn(&Reorder) -> Option<u32>,
) {
    if let Some(c) = ports.get(number)
        && let Some(end) = end(&c.reorder)
    {
        c.with_sender(sink, |sender| sender.report_gap(end));
    }
}

/// Handles the next packet, and those behind it that arrived earlier.
fn in_turn<S: Sink>(ports: &mut IbWorker<S::Peer>, sink: S, number: u32, packet: &[u8]) -> u32 {
    let mut count = one(ports, sink, number, packet);
    while let Some(kept) = ports.get(number).and_then(|c| c.reorder.pop()) {
        // True in a child that was forked in a callback.
        if sink.is_inherited() {
            break;
        }
        count += one(ports, sink, number, &kept);
    }
    count
}

fn one<S: Sink>(ports: &mut IbWorker<S::Peer>, sink: S, number: u32, packet: &[u8]) -> u32 {
    let Some(c) = ports.get(number) else { return 0 };
    c.flow.receive();
    match split(packet) {
        Some((head, bytes)) => deliver(ports, sink, number, head, bytes),
        None => 0,
    }
}
