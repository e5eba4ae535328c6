//! IB wireup: HELLO messages connect the queue pairs of two workers. Each side repeats its HELLO by UD until it has the
//! peer's HELLO with READY, and with SEEN, which acknowledges its own READY. Where the user excludes UD, HELLOs go by
//! TCP (`ib_wireup_tcp`).
//!
//! If both sides start at the same time, both HELLOs belong to the same connection. No message is sent before the peer
//! can receive it.

mod answer;
mod hello;
mod upkeep;

use super::{ib_failover, tx};
use crate::ctypes::*;
use crate::engine::ib_worker::{IbConn, IbConnPhase, IbWorker, TcpWireup, WireupChannel};
use crate::engine::peer::Peer;
use crate::engine::request::PeerRef;
use crate::engine::worker::Worker;
use crate::sys::{clock, host, log};
use crate::tl::ib::NegotiatedLimits;
use crate::tl::ib::iface::IbIface;
use crate::tl::ib::paths::PortPair;
use crate::tl::ib::queues::IbvQp;
use crate::tl::ib::rc::{self, PSN_MASK, RcEp};
use crate::tl::ib::sender::IbSender;
use crate::tl::ib::ud::{AddressHandle, UdTx};
use crate::tl::{Lane, LaneTarget};
use crate::wire::address::PortLocator;
use crate::wire::ib_packet::Hello;
use crate::wire::packet_hdr::{HEAD, most_packets};
use answer::{disconnect, settle};
pub use answer::{on_hello, on_tcp_msg};
pub(super) use hello::send_hello;
use hello::{ping, repeat};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
pub use upkeep::{broken, on_gone, tick};

/// Starts the connections that were requested.
pub fn start(worker: &Worker, ports: &mut IbWorker) {
    let wanted = worker.peer_lists.connect_ib.lock().take();
    for (peer, ()) in wanted {
        let peer = peer.get();
        let still = peer.status() == UCS_OK && {
            let tx = peer.tx.lock();
            tx.connecting && tx.lane.is_none()
        };
        // No second connection if the peer has started one.
        if still && !ports.iter().any(|c| c.peer.is(peer) && !c.ended) {
            connect(worker, ports, peer);
        }
    }
}

fn connect(worker: &Worker, ports: &mut IbWorker, peer: &Peer) {
    let Some(LaneTarget::Ib(target)) = peer.target.as_deref() else {
        return peer.fail(UCS_ERR_UNREACHABLE);
    };
    let by_queue = worker.ctx.tl.ib.by_queue();
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
    peer.fail(UCS_ERR_UNREACHABLE);
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
    let worker = peer.worker();
    let datagrams = worker.ctx.tl.ib.by_datagrams();
    let qp = match by_queue.then(|| queue(&ports.ifaces[iface])).transpose() {
        Err(e) if datagrams => {
            log::diag!("worker {:#x} is reached by UD: {e}", peer.uid);
            None
        }
        made => made?,
    };
    let keepalive_qpn = match qp {
        Some(_) => 0,
        None => worker
            .ctx
            .tl
            .ib
            .keepalive_qpn(worker.uid, ports.secret, iface),
    };
    let limits = own_limits(&ports.ifaces[iface], qp.is_some());
    let number = ports.take_number().ok_or(io::ErrorKind::OutOfMemory)?;
    let now = clock::coarse_ms();
    let random = host::random_u64();
    let tick = ports.ifaces[iface].port.tuning.ud.tick.as_millis() as u64;
    ports.insert(Box::new(IbConn {
        number,
        proof: random as u32,
        // SAFETY: the peer of a connection.
        peer: unsafe { PeerRef::new(peer) },
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
pub fn open(worker: &Worker, ports: &mut IbWorker, number: u32) -> bool {
    let Some(c) = ports.get(number).filter(|c| c.phase == IbConnPhase::Known) else {
        return false;
    };
    c.phase = IbConnPhase::Open;
    let (settled, index, to) = (c.is_settled(), c.iface, c.to);
    let (limits, own, secret) = (c.limits, (c.number, c.proof), c.secret);
    let (qp, flow, there) = (c.qp.clone(), c.flow.clone(), c.remote_qp);
    let (peer, answered, outlives) = (c.peer.get(), c.answered, !c.paths.is_empty());
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
                    let ping = ping(&iface, peer.uid, secret, own);
                    rc_ep.set_keepalive_port(there.keepalive_qpn, ping);
                    let mut sender = IbSender::over_ud(iface, flow, rc_ep);
                    if outlives {
                        sender.set_alt_paths(ib_failover::alt_paths(ports, number));
                    }
                    sender
                }
                Err(e) => {
                    fail(peer, &e);
                    return false;
                }
            }
        }
        (None, None) => return false,
    };
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

/// Called when a packet of the peer has arrived: the peer sends only when it is ready and has received this side's
/// READY.
#[cold]
pub fn on_packet(worker: &Worker, ports: &mut IbWorker, number: u32) {
    settle(ports, number);
    open(worker, ports, number);
    disconnect(ports, number);
}
