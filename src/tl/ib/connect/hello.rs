//! Hellos: what a connection sends until the other end has answered.

use crate::sys::clock;
use crate::tl::ib::conn::{IbConn, IbConnPhase, WireupChannel};
use crate::tl::ib::failover;
use crate::tl::ib::iface::IbIface;
use crate::tl::ib::tcp_wireup::TcpWireup;
use crate::tl::ib::ud::AddressHandle;
use crate::tl::ib::worker::IbWorker;
use crate::tl::sink::Sink;
use crate::wire::ib_packet::{
    Datagram, DatagramFlags, Hello, HelloFlags, NO_CONN, Ping, PortInfo, TcpWireupMsg,
};

/// Longest interval between two HELLOs, in milliseconds.
pub(in crate::tl::ib) const MAX_HELLO_INTERVAL_MS: u64 = 1000;

/// Repeats a HELLO by UD. By TCP a new socket is requested if the last one was closed: data on a socket are not lost.
pub(in crate::tl::ib) fn repeat<S: Sink>(ports: &mut IbWorker<S::Peer>, sink: S, number: u32) {
    let oob = ports.get(number).and_then(IbConn::oob);
    let Some(oob) = oob else {
        return send_hello(ports, sink, number);
    };
    if oob.is_wanted(clock::coarse_ms()) {
        ports.oob_requests.push(number);
    }
}

/// Sends a HELLO with the state of this side.
pub fn send_hello<S: Sink>(ports: &mut IbWorker<S::Peer>, sink: S, number: u32) {
    let (own_uid, own_secret) = (ports.uid, ports.secret);
    let Some(index) = ports.get(number).map(|c| c.iface) else {
        return;
    };
    let iface = ports.ifaces[index].clone();
    let rc = &iface.port.tuning.rc;
    let outlives = ports.get(number).is_some_and(|c| !c.paths.is_empty());
    let infos = if outlives {
        failover::ports_of(ports)
    } else {
        Vec::new()
    };
    let Some(c) = ports.get(number) else { return };
    let contact = sink.contact(c.peer);
    let mut flags = HelloFlags::empty();
    flags.set(HelloFlags::FAILOVER, outlives);
    flags.set(HelloFlags::READY, c.phase != IbConnPhase::HelloSent);
    flags.set(HelloFlags::SEEN, c.phase == IbConnPhase::Open);
    let hello = Hello {
        magic: Hello::magic(),
        from: own_uid,
        to: contact.uid,
        secret: c.secret,
        losses: contact.losses,
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
        to: Datagram::to(NO_CONN, DatagramFlags::HELLO),
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
        // If that closes the socket, the side that connected it connects another one.
        link.send(&bytes);
    }
}

/// A liveness probe of a worker's process, for the local connection with this number and proof.
pub(super) fn ping(
    iface: &IbIface,
    worker: u64,
    secret: u64,
    (number, proof): (u32, u32),
) -> Vec<u8> {
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
