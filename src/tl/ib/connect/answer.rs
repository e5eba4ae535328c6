//! Hellos that arrive: which connection they are for, and what the other end has chosen.

use super::hello::send_hello;
use super::{agree, begin, fail, open, own_limits};
use crate::ctypes::*;
use crate::sys::log;
use crate::tl::ib::conn::{IbConn, IbConnPhase, RemoteQp, WireupChannel};
use crate::tl::ib::rc::{self, PSN_MASK};
use crate::tl::ib::tcp_wireup::TcpWireup;
use crate::tl::ib::ud::AddressHandle;
use crate::tl::ib::worker::IbWorker;
use crate::tl::ib::{failover, upkeep};
use crate::tl::oob::{OobConn, max_half_open};
use crate::tl::sink::Sink;
use crate::wire::ib_packet::{Hello, HelloFlags, NO_CONN, PortInfo, TcpWireupMsg};
use crate::wire::ib_port::PortLocator;
use std::io;

/// Maximum number of connections that peers have started and that are not established: further HELLOs are dropped, and
/// repeated by their senders.
const MAX_HALF_CONNECTED: usize = 256;

/// A received HELLO.
struct QpHello<'a> {
    /// Interface on which it arrived, or to which it is addressed.
    iface: usize,
    hello: &'a Hello,
    /// Port from which it was sent.
    port: PortLocator,
    /// All ports of the sender, if the connection has failover.
    ports: Vec<PortInfo>,
}

impl QpHello<'_> {
    /// Whether the sender requests failover.
    fn outlives(&self) -> bool {
        self.hello.flags.contains(HelloFlags::FAILOVER)
    }
}

/// Handles a HELLO that arrived on this interface. One without the secret, or an outdated one, is dropped.
pub fn on_hello<S: Sink>(ports: &mut IbWorker<S::Peer>, sink: S, iface: usize, bytes: &[u8]) {
    let Some((hello, port)) = Hello::read(bytes) else {
        return log::diag!(
            "a HELLO of {} bytes is dropped: unknown protocol",
            bytes.len()
        );
    };
    let rest = bytes.get(Hello::SIZE + PortLocator::SIZE..);
    let qp_hello = QpHello {
        iface,
        hello: &hello,
        port,
        ports: PortInfo::decode_all(rest.unwrap_or(&[])),
    };
    match addressee(ports, sink, &qp_hello, None) {
        Ok(number) => on_bytes(ports, sink, number, &qp_hello, false),
        Err(why) => log::diag!("a HELLO of worker {:#x} is dropped: {why}", hello.from),
    }
}

/// Handles a HELLO that arrived by TCP. `first`: it is the first one on a socket that the peer has connected; it is
/// answered in any case, because the peer may not have received earlier HELLOs.
///
/// # Errors
/// Why it was dropped.
pub fn on_tcp_msg<S: Sink>(
    ports: &mut IbWorker<S::Peer>,
    sink: S,
    link: &OobConn,
    msg: &TcpWireupMsg,
    first: bool,
) -> Result<(), &'static str> {
    let qp_hello = QpHello {
        iface: msg.far.into(),
        hello: &msg.hello,
        port: msg.port,
        ports: Vec::new(),
    };
    let number = addressee(ports, sink, &qp_hello, Some(link))?;
    let oob = ports.get(number).and_then(IbConn::oob);
    let oob = oob.ok_or("it arrived by TCP, and UD was agreed")?;
    let is = |known: &Option<OobConn>| known.as_ref() == Some(link);
    if !is(&oob.ours) && !is(&oob.theirs) {
        // The peer has connected again: its previous socket is of no use to it.
        if let Some(old) = oob.theirs.replace(link.clone()) {
            old.close();
        }
    }
    on_bytes(ports, sink, number, &qp_hello, first);
    Ok(())
}

/// Why a HELLO is dropped, from its fields alone.
fn refusal<P: Copy + Eq>(ports: &IbWorker<P>, hello: &Hello) -> Result<(), &'static str> {
    if hello.to != ports.uid {
        Err("it is for another worker")
    } else if hello.secret != ports.secret {
        Err("wrong secret")
    } else if hello.qpn > PSN_MASK {
        Err("it names no queue pair")
    } else {
        Ok(())
    }
}

/// The connection that a HELLO belongs to; a new one for the first HELLO of a peer. `link`: the socket on which it
/// arrived.
///
/// # Errors
/// Why the HELLO is dropped.
fn addressee<S: Sink>(
    ports: &mut IbWorker<S::Peer>,
    sink: S,
    qp_hello: &QpHello,
    link: Option<&OobConn>,
) -> Result<u32, &'static str> {
    const LATE: &str = "it is out of date";
    let hello = qp_hello.hello;
    refusal(ports, hello)?;
    let is_peer = |c: &IbConn<S::Peer>| sink.uid(c.peer) == hello.from && !c.ended;
    let same = |c: &IbConn<S::Peer>| {
        let there = c.remote_qp;
        there.is_some_and(|t| (t.number, t.proof) == (hello.number, hello.proof))
    };
    if hello.receiver_number != NO_CONN {
        let c = ports.get(hello.receiver_number).ok_or(LATE)?;
        let fits = is_peer(c) && (c.remote_qp.is_none() || same(c));
        return fits.then_some(c.number).ok_or(LATE);
    }
    let own = hello.from == ports.uid;
    // A worker has two connections to itself: the one that it started does not answer its own HELLO.
    let known = ports
        .iter()
        .find(|c| is_peer(c) && (same(c) || !own && c.remote_qp.is_none()));
    if let Some(c) = known {
        return Ok(c.number);
    }
    if !own {
        let old = ports.iter().find(|c| is_peer(c) && c.remote_qp.is_some());
        if let Some(old) = old {
            if old.remote_qp.is_some_and(|t| t.losses >= hello.losses) {
                return Err(LATE);
            }
            log::debug!(
                "worker {:#x} has lost its connection: ended here",
                hello.from
            );
            old.ended = true;
            sink.lane_down(old.peer, UCS_ERR_CONNECTION_RESET);
        }
    }
    answer(ports, sink, qp_hello, link)
}

/// Makes the local half of a connection that the peer has started.
fn answer<S: Sink>(
    ports: &mut IbWorker<S::Peer>,
    sink: S,
    qp_hello: &QpHello,
    link: Option<&OobConn>,
) -> Result<u32, &'static str> {
    let hello = qp_hello.hello;
    let peer = sink.incoming_peer(hello.from);
    let by_queue = hello.qpn != 0 && ports.policy.by_queue;
    let paths = if qp_hello.outlives() {
        failover::paths_to(ports, &qp_hello.ports)
    } else {
        failover::paths(ports, &sink.contact(peer))
    };
    if !by_queue && !ports.policy.datagrams && paths.is_empty() {
        return Err("it has no transport that this one has");
    }
    let most = match link {
        Some(_) => max_half_open().min(MAX_HALF_CONNECTED),
        None => MAX_HALF_CONNECTED,
    };
    if !upkeep::has_room(ports, sink, most) {
        return Err("too many connections at once");
    }
    let oob = link.map(|_| TcpWireup::default());
    let place = (qp_hello.iface, qp_hello.port, hello.back);
    match begin(ports, sink, peer, place, (by_queue, paths), oob) {
        Ok(number) => {
            if let Some(c) = ports.get(number) {
                c.answered = true;
            }
            Ok(number)
        }
        Err(e) => {
            // The peer repeats its HELLO, and other peers may fail too.
            log::once!(
                Error, each log::words(&e),
                "no connection from worker {:#x}: {e}",
                hello.from
            );
            Err("no reply is possible")
        }
    }
}

/// Handles a HELLO of this connection; `answer`: it is answered in any case.
fn on_bytes<S: Sink>(
    ports: &mut IbWorker<S::Peer>,
    sink: S,
    number: u32,
    qp_hello: &QpHello,
    answer: bool,
) {
    let hello = qp_hello.hello;
    if let Err(e) = record_remote(ports, sink, number, qp_hello) {
        if let Some(c) = ports.get(number) {
            fail(sink, c.peer, &e);
            c.ended = true;
        }
        return;
    }
    // A peer that switched to UD after its first HELLO sends its keepalive ports later.
    if let Some(c) = ports.get(number) {
        if let Some(there) = c.remote_qp.as_mut() {
            there.keepalive_qpn = hello.keepalive_qpn;
        }
        if qp_hello.outlives() && c.keepalive_ports.is_empty() {
            c.keepalive_ports = qp_hello
                .ports
                .iter()
                .map(|info| info.keepalive_qpn)
                .collect();
        }
    }
    let mut opened = false;
    if hello.flags.contains(HelloFlags::READY) {
        opened = open(ports, sink, number);
    }
    let seen = hello.flags.contains(HelloFlags::SEEN);
    if seen {
        settle(ports, number);
    }
    if !seen || opened || answer {
        send_hello(ports, sink, number);
    }
    disconnect(ports, number);
}

/// Closes the sockets of a connection when both sides are connected and have acknowledged that.
pub(in crate::tl::ib) fn disconnect<P: Copy + Eq>(ports: &mut IbWorker<P>, number: u32) {
    if let Some(c) = ports.get(number)
        && c.is_settled()
        && let Some(oob) = c.oob()
    {
        oob.close();
    }
}

/// Notes that the peer has acknowledged this side's READY.
pub(in crate::tl::ib) fn settle<P: Copy + Eq>(ports: &mut IbWorker<P>, number: u32) {
    if let Some(c) = ports.get(number)
        && !c.seen
    {
        c.seen = true;
        if c.is_settled() {
            ports.unsettled -= 1;
        }
    }
}

/// The peer's side of a connection, as its HELLO describes it.
fn remote_qp(hello: &Hello) -> RemoteQp {
    RemoteQp {
        number: hello.number,
        proof: hello.proof,
        qpn: hello.qpn,
        port: hello.iface,
        losses: hello.losses,
        keepalive_qpn: hello.keepalive_qpn,
    }
}

/// Stores the peer's side of the connection from its first HELLO, and connects the queue pair.
fn record_remote<S: Sink>(
    ports: &mut IbWorker<S::Peer>,
    sink: S,
    number: u32,
    qp_hello: &QpHello,
) -> io::Result<()> {
    let (hello, to) = (qp_hello.hello, qp_hello.port);
    let datagrams = ports.policy.datagrams;
    let paths = if qp_hello.outlives() {
        failover::paths_to(ports, &qp_hello.ports)
    } else {
        Vec::new()
    };
    let Some(c) = ports
        .get(number)
        .filter(|c| c.phase == IbConnPhase::HelloSent)
    else {
        return Ok(());
    };
    if !paths.is_empty() {
        c.keepalive_ports = qp_hello
            .ports
            .iter()
            .map(|info| info.keepalive_qpn)
            .collect();
        c.paths = paths;
        sink.note_failover(c.peer);
    }
    // With failover the port pair is the one on which the peer's HELLO arrived.
    if !c.paths.is_empty() {
        c.iface = qp_hello.iface;
    }
    let (index, outlives) = (c.iface, !c.paths.is_empty());
    c.remote_qp = Some(remote_qp(hello));
    (c.to, c.secret) = (to, hello.back);
    let by_datagrams = matches!(c.wireup, WireupChannel::Datagrams(_));
    let (qp, psn) = (c.qp.clone().filter(|_| hello.qpn != 0), c.psn);
    let known = ports.known(index, qp.is_some());
    let iface = &ports.ifaces[index];
    let ah = by_datagrams
        .then(|| AddressHandle::new(&iface.port, &to))
        .transpose()?;
    let by_queue = qp.is_some();
    let limits = agree(own_limits(iface, by_queue), hello, by_queue);
    match qp {
        Some(qp) => {
            iface.expect_segments(limits.packet)?;
            iface.expect_packets(&qp, known)?;
            rc::connect(&qp, &iface.port, &to, (hello.qpn, hello.psn), psn)?;
        }
        None if !datagrams && !outlives => {
            return Err(io::Error::other(
                "it has no queue pairs, and ud is not allowed (UCX_TLS)",
            ));
        }
        None => {
            iface.expect_datagrams(known);
            failover::expect(ports, number);
            ports.drop_queue(number);
        }
    }
    let keepalive_qpn = if by_queue {
        0
    } else {
        ports.keepalive_qpn(index)
    };
    if let Some(c) = ports.get(number) {
        if let Some(ah) = ah {
            c.wireup = WireupChannel::Datagrams(ah);
        }
        c.phase = IbConnPhase::Known;
        (c.limits, c.keepalive_qpn) = (limits, keepalive_qpn);
    }
    Ok(())
}
