//! IB wireup: HELLO messages connect the queue pairs of two workers. Each side repeats its HELLO by UD until it has the
//! peer's HELLO with READY, and with SEEN, which acknowledges its own READY. Where the user excludes UD, HELLOs go by
//! TCP (`ib_wireup_tcp`).
//!
//! If both sides start at the same time, both HELLOs belong to the same connection. No message is sent before the peer
//! can receive it.

mod upkeep;

pub use upkeep::{broken, tick};

use super::{ib_failover, tcp_wireup, tx};
use crate::ctypes::*;
use crate::engine::ib_worker::{IbConn, IbConnPhase, IbWorker, RemoteQp, TcpWireup, WireupChannel};
use crate::engine::peer::Peer;
use crate::engine::worker::Worker;
use crate::sys::{clock, host, log};
use crate::tl::ib::NegotiatedLimits;
use crate::tl::ib::iface::IbIface;
use crate::tl::ib::paths::PortPair;
use crate::tl::ib::queues::IbvQp;
use crate::tl::ib::rc::{self, PSN_MASK, RcEp};
use crate::tl::ib::sender::IbSender;
use crate::tl::ib::ud::{AddressHandle, UdTx};
use crate::tl::tcp::{SharedSocket, socket};
use crate::tl::{Lane, LaneTarget};
use crate::wire::address::PortLocator;
use crate::wire::ib_packet::{
    Datagram, FAILOVER, HEAD, HELLO, Hello, NO_CONN, Ping, PortInfo, READY, SEEN, TcpWireupMsg,
    most_packets,
};
use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Longest interval between two HELLOs, in milliseconds.
const MAX_HELLO_INTERVAL_MS: u64 = 1000;

/// Maximum number of connections that peers have started and that are not established: further HELLOs are dropped, and
/// repeated by their senders.
const MAX_HALF_CONNECTED: usize = 256;

/// Starts the connections that were requested.
pub fn start(worker: &Worker, ports: &mut IbWorker) {
    let wanted = std::mem::take(&mut *worker.connect_ib.lock());
    for peer in wanted {
        // SAFETY: peers that lists of progress name are not freed.
        let peer = unsafe { &*peer };
        let still = peer.status() == UCS_OK && {
            let tx = peer.tx.lock();
            tx.connecting && tx.lane.is_none()
        };
        // No second connection if the peer has started one.
        if still && !ports.iter().any(|c| std::ptr::eq(c.peer, peer) && !c.ended) {
            connect(worker, ports, peer);
        }
    }
}

fn connect(worker: &Worker, ports: &mut IbWorker, peer: &Peer) {
    let Some(LaneTarget::Ib(target)) = peer.target.as_deref() else {
        return tx::fail_peer(peer, UCS_ERR_UNREACHABLE);
    };
    let by_queue = worker.ctx.policy.ib.as_ref().is_some_and(|ib| ib.by_queue);
    let path = &target.path;
    let place = (path.iface, path.port, target.secret);
    let oob = target.wireup_tcp.as_ref();
    let oob = oob.map(|wireup_tcp| TcpWireup::to(wireup_tcp.clone(), path.far));
    let paths = ib_failover::paths(ports, peer);
    match begin(ports, peer, place, (by_queue, paths), oob) {
        Ok(number) => {
            log::debug!("requesting a connection to worker {:#x}", peer.uid);
            repeat(worker, ports, number);
        }
        Err(e) => fail(peer, &e),
    }
}

/// Fails a peer to which no connection can be made. An error in the log: it concerns the configuration of the job.
pub(super) fn fail(peer: &Peer, e: &io::Error) {
    log::error!("no connection to worker {:#x}: {e}", peer.uid);
    tx::fail_peer(peer, UCS_ERR_UNREACHABLE);
}

/// Makes the local half of a connection. Returns its number. `paths`: port pairs of a connection with failover, which
/// uses UD. `oob`: HELLOs go by TCP.
fn begin(
    ports: &mut IbWorker,
    peer: &Peer,
    (iface, to, secret): (usize, PortLocator, u64),
    (by_queue, paths): (bool, Vec<PortPair>),
    oob: Option<TcpWireup>,
) -> io::Result<u32> {
    let by_queue = by_queue && paths.is_empty();
    let port = &ports.ifaces.get(iface).ok_or(io::ErrorKind::NotFound)?.port;
    let wireup = match oob {
        Some(oob) => WireupChannel::Sockets(Box::new(oob)),
        None => WireupChannel::Datagrams(AddressHandle::new(port, &to)?),
    };
    // SAFETY: peers do not outlive their worker.
    let worker = unsafe { &*peer.worker };
    let datagrams = worker.ctx.policy.ib.as_ref().is_some_and(|ib| ib.datagrams);
    let qp = match by_queue.then(|| queue(&ports.ifaces[iface])).transpose() {
        Err(e) if datagrams => {
            log::diag!("worker {:#x} is reached by UD: {e}", peer.uid);
            None
        }
        made => made?,
    };
    let keepalive_qpn = match qp {
        Some(_) => 0,
        None => worker.ctx.keepalive_qpn(worker.uid, ports.secret, iface),
    };
    let limits = own_limits(&ports.ifaces[iface], qp.is_some());
    let number = ports.take_number().ok_or(io::ErrorKind::OutOfMemory)?;
    let now = clock::coarse_ms();
    let random = host::random_u64();
    let tick = ports.ifaces[iface].port.tuning.ud.tick.as_millis() as u64;
    ports.insert(Box::new(IbConn {
        number,
        proof: random as u32,
        peer,
        iface,
        phase: IbConnPhase::HelloSent,
        seen: false,
        answered: false,
        remote_qp: None,
        secret,
        to,
        wireup,
        paths,
        keepalive_ports: Vec::new(),
        qp,
        psn: (random >> 32) as u32 & PSN_MASK,
        flow: Arc::default(),
        limits,
        keepalive_qpn,
        reply_tx: None,
        acknowledged: 0,
        assembly: Default::default(),
        reorder: Default::default(),
        wait: tick.max(1),
        due: now + tick.max(1),
        since: now,
        late: false,
        probed: now,
        ack_scheduled: false,
        ended: false,
    }));
    worker.progress_flags.raise_ib();
    Ok(number)
}

/// Segment size and window of this side.
fn own_limits(iface: &IbIface, by_queue: bool) -> NegotiatedLimits {
    let rc = &iface.port.tuning.rc;
    NegotiatedLimits {
        packet: rc.seg_size,
        window: match by_queue {
            true => iface.packet_window(),
            false => iface.datagram_window(),
        },
    }
}

/// Segment size and window that both sides support.
fn agree(own: NegotiatedLimits, hello: &Hello, by_queue: bool) -> NegotiatedLimits {
    let packet = own.packet.min(hello.packet as usize);
    let window = match by_queue {
        // A record waits until all of its packets have room.
        true => own
            .window
            .min(hello.window)
            .max(2 * most_packets(packet - HEAD) as u32),
        false => own.window.min(hello.datagrams),
    };
    NegotiatedLimits { packet, window }
}

fn queue(iface: &IbIface) -> io::Result<Arc<IbvQp>> {
    let qp = iface.new_qp().map_err(|e| {
        let (name, most) = (&iface.port.name, iface.port.hca.limits.max_qp);
        let text = format!(
            "no queue pair on {name}: {e} (its max_qp is {most}, for all processes; peers share one where \
             UCX_TLS has ud; \
             ulimit -l, UCX_RC_TX_QUEUE_LEN)"
        );
        io::Error::new(e.kind(), text)
    })?;
    rc::begin(&qp, &iface.port)?;
    Ok(qp)
}

/// Repeats a HELLO by UD. By TCP a new socket is requested if the last one was closed: data on a socket are not lost.
fn repeat(worker: &Worker, ports: &mut IbWorker, number: u32) {
    let oob = ports.get(number).and_then(IbConn::oob);
    let Some(oob) = oob else {
        return send_hello(worker, ports, number);
    };
    if oob.is_wanted(clock::coarse_ms()) {
        ports.oob_requests.push(number);
        worker.progress_flags.raise_network();
    }
}

/// Sends a HELLO with the state of this side.
pub(super) fn send_hello(worker: &Worker, ports: &mut IbWorker, number: u32) {
    let own_secret = ports.secret;
    let Some(index) = ports.get(number).map(|c| c.iface) else {
        return;
    };
    let iface = ports.ifaces[index].clone();
    let rc = &iface.port.tuning.rc;
    let outlives = ports.get(number).is_some_and(|c| !c.paths.is_empty());
    let infos = match outlives {
        true => ib_failover::ports_of(worker, ports),
        false => Vec::new(),
    };
    let Some(c) = ports.get(number) else { return };
    // SAFETY: peers that lists of progress name are not freed.
    let peer = unsafe { &*c.peer };
    let mut flags = if outlives { FAILOVER } else { 0 };
    if c.phase != IbConnPhase::HelloSent {
        flags |= READY;
    }
    if c.phase == IbConnPhase::Open {
        flags |= SEEN;
    }
    let hello = Hello {
        magic: Hello::magic(),
        from: worker.uid,
        to: peer.uid,
        secret: c.secret,
        losses: peer.losses,
        number,
        proof: c.proof,
        receiver_number: c.remote_qp.map_or(NO_CONN, |there| there.number),
        qpn: c.qp.as_ref().map_or(0, |qp| qp.number),
        psn: c.psn,
        iface: c.iface as u8,
        flags,
        back: own_secret,
        packet: rc.seg_size as u32,
        window: rc.window,
        datagrams: iface.datagram_window(),
        keepalive_qpn: c.keepalive_qpn,
    };
    let port = iface.port.locator(iface.ud_number);
    match &c.wireup {
        WireupChannel::Datagrams(ah) => {
            let bytes = [
                &hello.encode()[..],
                &port.encode(),
                &PortInfo::encode_all(&infos),
            ]
            .concat();
            send_hello_datagram(&iface, ah, c.to.qpn, &bytes);
        }
        WireupChannel::Sockets(oob) => {
            let wanted = oob.target.as_ref().map_or(0, |&(_, far)| far);
            let far = c.remote_qp.map_or(wanted, |there| there.port);
            write_tcp_msg(oob, &TcpWireupMsg { far, hello, port });
        }
    }
}

fn send_hello_datagram(iface: &IbIface, ah: &AddressHandle, qpn: u32, qp_hello: &[u8]) {
    let front = Datagram {
        to: Datagram::to(NO_CONN, HELLO),
        proof: 0,
        psn: 0,
        ack: 0,
    };
    let bytes = [&front.encode()[..], qp_hello].concat();
    iface.outgoing.lock().send(iface, ah, qpn, &bytes);
}

/// Writes a message to both sockets, if each side has connected one: the second copy has no effect.
fn write_tcp_msg(oob: &TcpWireup, msg: &TcpWireupMsg) {
    let bytes = msg.encode();
    let ours = oob.ours.iter().filter(|_| oob.through);
    for link in ours.chain(&oob.theirs) {
        // No room for the whole message: the peer has not read for long. The side that connected the socket connects
        // another one.
        if tcp_wireup::send_hello(link, &bytes).is_err() {
            let _ = link.socket.shutdown(Shutdown::Both);
        }
    }
}

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
        self.hello.flags & FAILOVER != 0
    }
}

/// Handles a HELLO that arrived on this interface. One without the secret, or an outdated one, is dropped.
pub fn on_hello(worker: &Worker, ports: &mut IbWorker, iface: usize, bytes: &[u8]) {
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
    match addressee(worker, ports, &qp_hello, None) {
        Ok(number) => on_bytes(worker, ports, number, &qp_hello, false),
        Err(why) => log::diag!("a HELLO of worker {:#x} is dropped: {why}", hello.from),
    }
}

/// Handles a HELLO that arrived by TCP. `first`: it is the first one on a socket that the peer has connected; it is
/// answered in any case, because the peer may not have received earlier HELLOs.
///
/// # Errors
/// Why it was dropped.
pub fn on_tcp_msg(
    worker: &Worker,
    ports: &mut IbWorker,
    link: &Arc<SharedSocket>,
    msg: &TcpWireupMsg,
    first: bool,
) -> Result<(), &'static str> {
    let qp_hello = QpHello {
        iface: msg.far.into(),
        hello: &msg.hello,
        port: msg.port,
        ports: Vec::new(),
    };
    let number = addressee(worker, ports, &qp_hello, Some(link))?;
    let oob = ports.get(number).and_then(IbConn::oob);
    let oob = oob.ok_or("it arrived by TCP, and UD was agreed")?;
    let is =
        |known: &Option<Arc<SharedSocket>>| known.as_ref().is_some_and(|l| Arc::ptr_eq(l, link));
    if !is(&oob.ours) && !is(&oob.theirs) {
        // The peer has connected again: its previous socket is of no use to it.
        if let Some(old) = oob.theirs.replace(link.clone()) {
            let _ = old.socket.shutdown(Shutdown::Both);
        }
    }
    on_bytes(worker, ports, number, &qp_hello, first);
    Ok(())
}

/// Why a HELLO is dropped, from its fields alone.
fn refusal(worker: &Worker, ports: &IbWorker, hello: &Hello) -> Result<(), &'static str> {
    if hello.to != worker.uid {
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
fn addressee(
    worker: &Worker,
    ports: &mut IbWorker,
    qp_hello: &QpHello,
    link: Option<&Arc<SharedSocket>>,
) -> Result<u32, &'static str> {
    const LATE: &str = "it is out of date";
    let hello = qp_hello.hello;
    refusal(worker, ports, hello)?;
    // SAFETY: peers that lists of progress name are not freed.
    let is_peer = |c: &IbConn| unsafe { &*c.peer }.uid == hello.from && !c.ended;
    let same = |c: &IbConn| {
        let there = c.remote_qp;
        there.is_some_and(|t| (t.number, t.proof) == (hello.number, hello.proof))
    };
    if hello.receiver_number != NO_CONN {
        let c = ports.get(hello.receiver_number).ok_or(LATE)?;
        let fits = is_peer(c) && (c.remote_qp.is_none() || same(c));
        return fits.then_some(c.number).ok_or(LATE);
    }
    let own = hello.from == worker.uid;
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
            // SAFETY: peers that lists of progress name are not freed.
            tx::fail_peer(unsafe { &*old.peer }, UCS_ERR_CONNECTION_RESET);
        }
    }
    answer(worker, ports, qp_hello, link)
}

/// Makes the local half of a connection that the peer has started.
fn answer(
    worker: &Worker,
    ports: &mut IbWorker,
    qp_hello: &QpHello,
    link: Option<&Arc<SharedSocket>>,
) -> Result<u32, &'static str> {
    const NONE: &str = "it has no transport that this one has";
    let policy = worker.ctx.policy.ib.as_ref().ok_or(NONE)?;
    let hello = qp_hello.hello;
    let known = worker.peer_from_incoming(hello.from);
    let peer = &*known;
    let by_queue = hello.qpn != 0 && policy.by_queue;
    let paths = match qp_hello.outlives() {
        true => ib_failover::paths_to(ports, &qp_hello.ports),
        false => ib_failover::paths(ports, peer),
    };
    if !by_queue && !policy.datagrams && paths.is_empty() {
        return Err(NONE);
    }
    let most = match link {
        Some(_) => socket::max_half_open().min(MAX_HALF_CONNECTED),
        None => MAX_HALF_CONNECTED,
    };
    if !upkeep::has_room(ports, most) {
        return Err("too many connections at once");
    }
    let oob = link.map(|_| TcpWireup::default());
    let place = (qp_hello.iface, qp_hello.port, hello.back);
    match begin(ports, peer, place, (by_queue, paths), oob) {
        Ok(number) => {
            if let Some(c) = ports.get(number) {
                c.answered = true;
            }
            Ok(number)
        }
        Err(e) => {
            // The peer repeats its HELLO, and other peers may fail too: only the first shortage is logged as an error.
            match ports.ifaces[qp_hello.iface].port.hca.is_first_shortage() {
                true => log::error!("no connection from worker {:#x}: {e}", hello.from),
                false => log::diag!("no connection from worker {:#x}: {e}", hello.from),
            }
            Err("no reply is possible")
        }
    }
}

/// Handles a HELLO of this connection; `answer`: it is answered in any case.
fn on_bytes(worker: &Worker, ports: &mut IbWorker, number: u32, qp_hello: &QpHello, answer: bool) {
    let hello = qp_hello.hello;
    if let Err(e) = record_remote(worker, ports, number, qp_hello) {
        if let Some(c) = ports.get(number) {
            // SAFETY: peers that lists of progress name are not freed.
            fail(unsafe { &*c.peer }, &e);
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
    if hello.flags & READY != 0 {
        opened = open(worker, ports, number);
    }
    if hello.flags & SEEN != 0 {
        settle(ports, number);
    }
    if hello.flags & SEEN == 0 || opened || answer {
        send_hello(worker, ports, number);
    }
    disconnect(ports, number);
}

/// Closes the sockets of a connection when both sides are connected and have acknowledged that.
fn disconnect(ports: &mut IbWorker, number: u32) {
    if let Some(c) = ports.get(number)
        && c.is_settled()
        && let Some(oob) = c.oob()
    {
        oob.close();
    }
}

/// Notes that the peer has acknowledged this side's READY.
fn settle(ports: &mut IbWorker, number: u32) {
    if let Some(c) = ports.get(number)
        && !c.seen
    {
        c.seen = true;
        if c.is_settled() {
            ports.unsettled -= 1;
        }
    }
}

/// Stores the peer's side of the connection from its first HELLO, and connects the queue pair.
fn record_remote(
    worker: &Worker,
    ports: &mut IbWorker,
    number: u32,
    qp_hello: &QpHello,
) -> io::Result<()> {
    let (hello, to) = (qp_hello.hello, qp_hello.port);
    let datagrams = worker.ctx.policy.ib.as_ref().is_some_and(|ib| ib.datagrams);
    let paths = match qp_hello.outlives() {
        true => ib_failover::paths_to(ports, &qp_hello.ports),
        false => Vec::new(),
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
        // SAFETY: peers that lists of progress name are not freed.
        unsafe { &*c.peer }.set_failover();
    }
    // With failover the port pair is the one on which the peer's HELLO arrived.
    if !c.paths.is_empty() {
        c.iface = qp_hello.iface;
    }
    let (index, outlives) = (c.iface, !c.paths.is_empty());
    c.remote_qp = Some(RemoteQp {
        number: hello.number,
        proof: hello.proof,
        qpn: hello.qpn,
        port: hello.iface,
        losses: hello.losses,
        keepalive_qpn: hello.keepalive_qpn,
    });
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
            ib_failover::expect(ports, number);
            ports.drop_queue(number);
        }
    }
    let keepalive_qpn = match by_queue {
        true => 0,
        false => worker.ctx.keepalive_qpn(worker.uid, ports.secret, index),
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

/// Opens the lane when the peer is ready to receive. True the first time.
pub fn open(worker: &Worker, ports: &mut IbWorker, number: u32) -> bool {
    let Some(c) = ports.get(number).filter(|c| c.phase == IbConnPhase::Known) else {
        return false;
    };
    c.phase = IbConnPhase::Open;
    let (settled, index, to) = (c.is_settled(), c.iface, c.to);
    let (limits, own, secret) = (c.limits, (c.number, c.proof), c.secret);
    let (qp, flow, there) = (c.qp.clone(), c.flow.clone(), c.remote_qp);
    let (peer, answered, outlives) = (c.peer, c.answered, !c.paths.is_empty());
    if settled {
        ports.unsettled -= 1;
    }
    let iface = ports.ifaces[index].clone();
    let mut sender = match (qp, there) {
        (Some(qp), _) => {
            let rc_ep = RcEp::new(qp, iface.clone());
            let port = there.map_or(0, |there| there.port.into());
            IbSender::over_rc(iface, flow, rc_ep, limits, port)
        }
        (None, Some(there)) => {
            match UdTx::new(&iface, &to, (there.number, there.proof), limits.window) {
                Ok(mut rc_ep) => {
                    // SAFETY: peers that lists of progress name are not freed.
                    let ping = ping(&iface, unsafe { &*peer }.uid, secret, own);
                    rc_ep.set_keepalive_port(there.keepalive_qpn, ping);
                    let mut sender = IbSender::over_ud(iface, flow, rc_ep);
                    if outlives {
                        sender.set_alt_paths(ib_failover::alt_paths(ports, number));
                    }
                    sender
                }
                Err(e) => {
                    // SAFETY: peers that lists of progress name are not freed.
                    fail(unsafe { &*peer }, &e);
                    return false;
                }
            }
        }
        (None, None) => return false,
    };
    // SAFETY: peers that lists of progress name are not freed.
    let peer = unsafe { &*peer };
    let to_oneself = answered && peer.uid == worker.uid;
    let mut tx = peer.tx.lock();
    tx.connecting = false;
    if worker.fences.load(Ordering::Relaxed) {
        sender.fence();
    }
    if peer.uses_inbox() || tx.lane.is_some() || to_oneself {
        drop(tx);
        if let Some(c) = ports.get(number) {
            c.reply_tx = Some(sender);
        }
        return true;
    }
    log::debug!(
        "connected to worker {:#x} by {}",
        peer.uid,
        sender.transport()
    );
    peer.set_qp_transport(index, sender.is_connected());
    tx.lane = Some(Lane::Ib(Box::new(sender)));
    peer.note_traffic(worker);
    tx::log_lanes(worker, peer);
    true
}

/// A liveness probe of a worker's process, for the local connection with this number and proof.
fn ping(iface: &IbIface, worker: u64, secret: u64, (number, proof): (u32, u32)) -> Vec<u8> {
    let ping = Ping {
        magic: Ping::magic(),
        worker,
        secret,
        number,
        proof,
    };
    let port = iface.port.locator(iface.ud_number);
    [&ping.encode()[..], &port.encode()].concat()
}

/// Called when a packet of the peer has arrived: the peer sends only when it is ready and has received this side's
/// READY.
#[cold]
pub fn on_packet(worker: &Worker, ports: &mut IbWorker, number: u32) {
    settle(ports, number);
    open(worker, ports, number);
    disconnect(ports, number);
}
