//! IB wireup by TCP, where the user excludes UD.
//!
//! The side that needs a connection connects a socket and sends its HELLO once: TCP delivers it as long as the socket
//! is open. The replies use the same socket. A socket that breaks is connected again when a HELLO would be repeated by
//! UD, and the timeouts are those of UD (`ib_wireup`). When both sides have acknowledged READY, the side that connected
//! the socket closes it.

use crate::engine::request::PeerRef;
use crate::engine::worker::Worker;
use crate::sys::{clock, log};
use crate::tl::ib::conn::IbConn;
use crate::tl::ib::connect as qp_connect;
use crate::tl::ib::oob::TcpWireup;
use crate::tl::ib::worker::IbWorker;
use crate::tl::sink::Sink;
use crate::tl::tcp::conn::TcpConnPhase;
use crate::tl::tcp::worker::TcpWorker;
use crate::tl::tcp::{SharedSocket, accept, connect, socket};
use crate::wire::ib_packet::TcpWireupMsg;
use crate::wire::tcp_hello::{MAGIC, TO_QUEUES, TcpHello};
use std::io::ErrorKind;
use std::sync::Arc;

/// Maximum number of messages on one socket: three are needed if neither side has a connection yet.
const MAX_WIREUP_MSGS: u32 = 16;
/// Time after which a socket of this side without an answer is closed to make room for others, in milliseconds.
const TURN_MS: u64 = 1000;

/// Connects the sockets that were requested, as far as there is room. The others are requested again when their HELLO
/// is due.
pub fn start<S: Sink<Peer = PeerRef>>(
    worker: &Worker,
    sink: S,
    sockets: &mut TcpWorker<PeerRef>,
    ports: &mut IbWorker<PeerRef>,
) {
    let wanted = std::mem::take(&mut ports.oob_requests);
    let mut room = socket::max_half_open().saturating_sub(sockets.wireups);
    if room < wanted.len() {
        // Places of sockets that are closed now are used by the next call.
        close_oldest(ports, wanted.len() - room);
    }
    for number in wanted {
        if room > 0 && connect(worker, sink, sockets, ports, number, None) {
            room -= 1;
        }
    }
}

/// Closes sockets without an answer for long: their connections request others when a HELLO is due.
fn close_oldest(ports: &mut IbWorker<PeerRef>, most: usize) {
    let before = clock::coarse_ms().saturating_sub(TURN_MS);
    let all = ports.iter().filter_map(IbConn::oob);
    let old = all.filter(|oob| oob.ours.is_some() && oob.since < before);
    old.take(most).for_each(TcpWireup::close);
}

/// Connects to the next address of a peer, after one that has failed, if the connection is still needed. Returns
/// whether a socket is connecting.
fn connect<S: Sink<Peer = PeerRef>>(
    worker: &Worker,
    sink: S,
    sockets: &mut TcpWorker<PeerRef>,
    ports: &mut IbWorker<PeerRef>,
    number: u32,
    after: Option<usize>,
) -> bool {
    let still = |c: &&mut IbConn<PeerRef>| !c.ended && !c.is_settled();
    let Some(c) = ports.get(number).filter(still) else {
        return false;
    };
    let peer = c.peer.get();
    let Some(oob) = c.oob().filter(|oob| oob.ours.is_none()) else {
        return false;
    };
    let Some((target, _)) = &oob.target else {
        return false;
    };
    let paths = target.paths(&worker.ctx.tl.tcp.devices);
    if paths.is_empty() {
        qp_connect::fail(sink, c.peer, &ErrorKind::NetworkUnreachable.into());
        return false;
    }
    let first = after.map_or(oob.first % paths.len(), |failed| failed + 1);
    for (candidate, tcp_path) in paths.iter().enumerate().skip(first) {
        log::debug!(
            "connecting to worker {:#x} at {} for wireup",
            peer.uid,
            tcp_path.to
        );
        let phase = TcpConnPhase::WireupConnecting { number, candidate };
        let made = socket::connect(tcp_path, &sockets.tuning)
            .and_then(|s| sockets.add(s, phase, None, true));
        match made.map(|token| sockets.get(token)) {
            Ok(Some(s)) => {
                (oob.ours, oob.through) = (Some(s.link.clone()), false);
                oob.since = clock::coarse_ms();
                return true;
            }
            Ok(None) => {}
            Err(e) => log::debug!("no wireup connection to worker {:#x}: {e}", peer.uid),
        }
    }
    oob.first = 0;
    false
}

/// Handles an event of a socket for wireup.
pub fn on_event<S: Sink<Peer = PeerRef>>(
    worker: &Worker,
    sink: S,
    sockets: &mut TcpWorker<PeerRef>,
    ports: Option<&mut IbWorker<PeerRef>>,
    token: u64,
) {
    let phase = sockets.get(token).map(|c| c.phase);
    match (phase, ports) {
        (Some(TcpConnPhase::WireupConnecting { number, candidate }), Some(ports)) => {
            on_connected(worker, sink, sockets, ports, token, (number, candidate));
        }
        (Some(TcpConnPhase::WireupOpen { .. }), Some(ports)) => read(sink, sockets, ports, token),
        _ => {
            sockets.remove(token);
        }
    }
}

fn is(link: &Option<Arc<SharedSocket>>, token: u64) -> bool {
    link.as_ref().is_some_and(|link| link.token == token)
}

/// Handles the end of a connect: success or failure.
fn on_connected<S: Sink<Peer = PeerRef>>(
    worker: &Worker,
    sink: S,
    sockets: &mut TcpWorker<PeerRef>,
    ports: &mut IbWorker<PeerRef>,
    token: u64,
    (number, candidate): (u32, usize),
) {
    let Some(socket) = sockets.get(token) else {
        return;
    };
    let connection = ports
        .get(number)
        .map(|c| (c.peer, c.oob().filter(|oob| is(&oob.ours, token))));
    let Some((peer, Some(oob))) = connection else {
        // The socket was closed meanwhile.
        sockets.remove(token);
        return;
    };
    let peer = peer.get();
    let done = socket::connected(&socket.link.socket).and_then(|()| {
        let (target, _) = oob.target.as_ref().ok_or(ErrorKind::NotFound)?;
        let hello = TcpHello {
            magic: MAGIC,
            purpose: TO_QUEUES,
            losses: peer.losses,
            from: worker.uid,
            to: peer.uid,
            secret: target.locator.secret,
            client_id: 0,
        };
        connect::send_hello(&socket.link, &hello.encode())
    });
    match done {
        Ok(()) => {
            let link = socket.link.clone();
            socket.phase = TcpConnPhase::WireupOpen {
                ours: true,
                read: 0,
            };
            link.epoll.watch_room(&link.socket, token, false);
            oob.through = true;
            qp_connect::send_hello(ports, sink, number);
        }
        Err(e) if e.kind() == ErrorKind::NotConnected => {}
        Err(e) => {
            log::debug!("no wireup connection to worker {:#x}: {e}", peer.uid);
            oob.ours = None;
            sockets.remove(token);
            connect(worker, sink, sockets, ports, number, Some(candidate));
        }
    }
}

/// Reads wireup messages, or the end of them.
fn read<S: Sink<Peer = PeerRef>>(
    sink: S,
    sockets: &mut TcpWorker<PeerRef>,
    ports: &mut IbWorker<PeerRef>,
    token: u64,
) {
    let Some(c) = sockets.get(token) else { return };
    match c.receiver.read(usize::MAX) {
        Err(e) if e.kind() == ErrorKind::WouldBlock => {}
        Err(e) => {
            let torn = !c.receiver.buffered().is_empty();
            if torn {
                accept::reject(sockets, token, "it was closed in the middle of a message")
            } else {
                log::debug!("wireup connection closed: {e}");
                sockets.remove(token);
            }
            forget(ports, token);
        }
        Ok(_) => take(sink, sockets, Some(ports), token),
    }
}

/// Handles the messages in the buffer, if the worker has IB interfaces. A malformed message closes the socket.
pub fn take<S: Sink<Peer = PeerRef>>(
    sink: S,
    sockets: &mut TcpWorker<PeerRef>,
    ports: Option<&mut IbWorker<PeerRef>>,
    token: u64,
) {
    let Some(ports) = ports else { return };
    loop {
        match next(sink, sockets, ports, token) {
            Ok(true) => {}
            Ok(false) => return,
            Err(why) => {
                accept::reject(sockets, token, why);
                return forget(ports, token);
            }
        }
    }
}

/// Handles one message. False: none is complete.
fn next<S: Sink<Peer = PeerRef>>(
    sink: S,
    sockets: &mut TcpWorker<PeerRef>,
    ports: &mut IbWorker<PeerRef>,
    token: u64,
) -> Result<bool, &'static str> {
    const FOREIGN: &str = "unknown protocol";
    let Some(c) = sockets.get(token) else {
        return Ok(false);
    };
    let TcpConnPhase::WireupOpen { ours, read } = &mut c.phase else {
        return Ok(false);
    };
    let bytes = c.receiver.buffered();
    if bytes.len() < TcpWireupMsg::SIZE {
        return if TcpWireupMsg::may_begin(bytes) {
            Ok(false)
        } else {
            Err(FOREIGN)
        };
    }
    let msg = TcpWireupMsg::read(bytes).ok_or(FOREIGN)?;
    if *read == MAX_WIREUP_MSGS {
        return Err("too many wireup messages");
    }
    let first = !*ours && *read == 0;
    *read += 1;
    c.receiver.take(TcpWireupMsg::SIZE);
    let link = c.link.clone();
    qp_connect::on_tcp_msg(ports, sink, &link, &msg, first)?;
    Ok(true)
}

/// Removes a closed socket from its connection.
fn forget(ports: &mut IbWorker<PeerRef>, token: u64) {
    for oob in ports.iter().filter_map(IbConn::oob) {
        if is(&oob.ours, token) {
            (oob.ours, oob.through) = (None, false);
        }
        if is(&oob.theirs, token) {
            oob.theirs = None;
        }
    }
}
