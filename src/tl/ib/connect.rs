//! IB wireup: HELLO messages connect the queue pairs of two workers. Each side repeats its HELLO by UD until it has the
//! peer's HELLO with READY, and with SEEN, which acknowledges its own READY. Where the user excludes UD, HELLOs go by
//! TCP (`oob`).
//!
//! If both sides start at the same time, both HELLOs belong to the same connection. No message is sent before the peer
//! can receive it.

mod answer;
mod hello;

use super::NegotiatedLimits;
use super::conn::{IbConn, IbConnPhase, WireupChannel};
use super::failover;
use super::iface::IbIface;
use super::paths::PortPair;
use super::queues::IbvQp;
use super::rc::{self, PSN_MASK, RcEp};
use super::sender::IbSender;
use super::tcp_wireup::TcpWireup;
use super::ud::{AddressHandle, UdTx};
use super::worker::IbWorker;
use crate::ctypes::*;
use crate::sys::{clock, host, log};
use crate::tl::sink::Sink;
use crate::tl::{Lane, LaneTarget};
use crate::wire::ib_packet::Hello;
use crate::wire::ib_port::PortLocator;
use crate::wire::packet_hdr::{HEAD, most_packets};
pub(super) use answer::{disconnect, settle};
pub use answer::{on_hello, on_tcp_msg};
use hello::ping;
pub use hello::send_hello;
pub(super) use hello::{MAX_HELLO_INTERVAL_MS, repeat};
use std::io;
use std::sync::Arc;

/// Starts connections to peers.
#[cold]
pub fn start<S: Sink>(
    ports: &mut IbWorker<S::Peer>,
    sink: S,
    peers: impl Iterator<Item = S::Peer>,
) {
    for peer in peers {
        let still = !sink.has_failed(peer) && {
            let state = sink.state(peer);
            state.is_connecting && !state.has_lane
        };
        // No second connection if the peer has started one.
        if still && !ports.iter().any(|c| c.peer == peer && !c.ended) {
            connect(ports, sink, peer);
        }
    }
}

fn connect<S: Sink>(ports: &mut IbWorker<S::Peer>, sink: S, peer: S::Peer) {
    let contact = sink.contact(peer);
    let paths = failover::paths(ports, &contact);
    let Some(LaneTarget::Ib(target)) = contact.target else {
        return sink.lane_down(peer, UCS_ERR_UNREACHABLE);
    };
    let path = &target.path;
    let place = (path.iface, path.port, target.secret);
    let oob = (target.wireup_tcp).map(|wireup_tcp| TcpWireup::to(wireup_tcp, path.far));
    let by_queue = ports.policy.by_queue;
    match begin(ports, sink, peer, place, (by_queue, paths), oob) {
        Ok(number) => {
            log::debug!("requesting a connection to worker {:#x}", contact.uid);
            repeat(ports, sink, number);
        }
        Err(e) => fail(sink, peer, &e),
    }
}

/// Fails a peer to which no connection can be made. An error in the log, also where an error handler is called: it
/// concerns the configuration of the job, or the limits of this process.
pub fn fail<S: Sink>(sink: S, peer: S::Peer, e: &io::Error) {
    log::once!(
        Error, each log::words(e),
        "no connection to worker {:#x}: {e}",
        sink.uid(peer)
    );
    sink.lane_down(peer, UCS_ERR_UNREACHABLE);
}

/// Makes the local half of a connection. Returns its number. `paths`: port pairs of a connection with failover, which
/// uses UD. `oob`: HELLOs go by TCP.
fn begin<S: Sink>(
    ports: &mut IbWorker<S::Peer>,
    sink: S,
    peer: S::Peer,
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
    let datagrams = ports.policy.datagrams;
    let qp = match by_queue.then(|| queue(&ports.ifaces[iface])).transpose() {
        Err(e) if datagrams => {
            log::diag!("worker {:#x} is reached by UD: {e}", sink.uid(peer));
            None
        }
        made => made?,
    };
    let keepalive_qpn = match qp {
        Some(_) => 0,
        None => ports.keepalive_qpn(iface),
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
        has_waited: false,
        ack_scheduled: false,
        ended: false,
    }));
    Ok(number)
}

/// Segment size and window of this side.
fn own_limits(iface: &IbIface, by_queue: bool) -> NegotiatedLimits {
    let rc = &iface.port.tuning.rc;
    NegotiatedLimits {
        packet: rc.seg_size,
        window: if by_queue {
            iface.packet_window()
        } else {
            iface.datagram_window()
        },
    }
}

/// Segment size and window that both sides support.
fn agree(own: NegotiatedLimits, hello: &Hello, by_queue: bool) -> NegotiatedLimits {
    let packet = own.packet.min(hello.packet as usize);
    let window = if by_queue {
        // A record waits until all of its packets have room.
        own.window
            .min(hello.window)
            .max(2 * most_packets(packet - HEAD) as u32)
    } else {
        own.window.min(hello.datagrams)
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

/// Opens the lane when the peer is ready to receive. True the first time.
pub fn open<S: Sink>(ports: &mut IbWorker<S::Peer>, sink: S, number: u32) -> bool {
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
    let uid = sink.uid(peer);
    let sender = match (qp, there) {
        (Some(qp), _) => {
            let rc_ep = RcEp::new(qp, iface.clone());
            let port = there.map_or(0, |there| there.port.into());
            IbSender::over_rc(iface, flow, rc_ep, limits, port)
        }
        (None, Some(there)) => {
            match UdTx::new(&iface, &to, (there.number, there.proof), limits.window) {
                Ok(mut ud_tx) => {
                    let ping = ping(&iface, uid, secret, own);
                    ud_tx.set_keepalive_port(there.keepalive_qpn, ping);
                    let mut sender = IbSender::over_ud(iface, flow, ud_tx);
                    if outlives {
                        sender.set_alt_paths(failover::alt_paths(ports, number));
                    }
                    sender
                }
                Err(e) => {
                    fail(sink, peer, &e);
                    return false;
                }
            }
        }
        (None, None) => return false,
    };
    let is_answering_end = answered && uid == ports.uid;
    let transport = sender.transport();
    if let Err(sender) = lane_up(sink, peer, sender, index, is_answering_end) {
        if let Some(c) = ports.get(number) {
            c.reply_tx = Some(*sender);
        }
    } else {
        log::debug!("connected to worker {uid:#x} by {transport}");
    }
    true
}

/// Makes a sender the lane to a peer. `is_answering_end`: it is that end of a connection of the worker to itself.
///
/// # Errors
/// The sender, if it is not to be the lane.
fn lane_up<S: Sink>(
    sink: S,
    peer: S::Peer,
    sender: IbSender,
    iface: usize,
    is_answering_end: bool,
) -> Result<(), Box<IbSender>> {
    let sender = Box::new(sender);
    if is_answering_end {
        return Err(sender);
    }
    match sink.lane_up(peer, Lane::Ib(sender), Some(iface)) {
        Err(Lane::Ib(sender)) => Err(sender),
        _ => Ok(()),
    }
}

/// Called when a packet of the peer has arrived: the peer sends only when it is ready and has received this side's
/// READY.
#[cold]
pub fn on_packet<S: Sink>(ports: &mut IbWorker<S::Peer>, sink: S, number: u32) {
    settle(ports, number);
    open(ports, sink, number);
    disconnect(ports, number);
}
