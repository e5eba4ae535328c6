//! Rails: a worker with long transfers to a peer asks it for further queue pairs between their other ports, and stripes
//! the transfers among them (`tl::ib::stripe`). The peer only keeps its ends.
//!
//! Requests and replies are messages of the existing connection: none is lost. A rail that fails is given up: the peer
//! gets a message, and when it has dropped its end, too, the unfinished parts are moved by the other rails. After a
//! pause another rail is requested, when there is a transfer for it.

use super::bindings::ibv_wc_status;
use super::conn::with_sender;
use super::iface::IbIface;
use super::queues::IbvQp;
use super::rails::{IbRail, PendingRail, RailState};
use super::rc::{self, PSN_MASK, RcEp};
use super::worker::IbWorker;
use crate::ctypes::UCS_ERR_IO_ERROR;
use crate::sys::trace::{self, ArgValue};
use crate::sys::{clock, host, log};
use crate::tl::Lane;
use crate::tl::rail_event::RailEvent;
use crate::tl::sink::{LostPart, Sink};
use crate::wire::header::{Kind, RailImm};
use crate::wire::ib_port::PortLocator;
use std::cmp::Reverse;
use std::io;
use std::sync::Arc;

const _: () = assert!(PortLocator::SIZE == Kind::RailReq.header_size());

/// Handles rail events of peers.
#[cold]
pub fn start<S: Sink>(
    ports: &mut IbWorker<S::Peer>,
    sink: S,
    events: impl Iterator<Item = (S::Peer, RailEvent)>,
) {
    for (peer, event) in events {
        match event {
            RailEvent::RequestRails => request(ports, sink, peer),
            RailEvent::PeerRequest(imm, to) => hold(ports, sink, peer, imm, &to),
            RailEvent::PeerReply(imm, to) => join(ports, sink, peer, imm, &to),
            RailEvent::LocalFailure(rail) => {
                let why = "its device accepts no more work requests";
                give_up(ports, sink, peer, rail, why);
            }
            RailEvent::PeerGaveUp(imm) => drop_held(sink, peer, imm),
            RailEvent::PeerDropped(imm) => forget(ports, sink, peer, imm.to_u64()),
        }
    }
}

/// Makes a queue pair that receives no messages.
fn queue(iface: &IbIface) -> io::Result<Arc<IbvQp>> {
    let qp = iface.new_qp()?;
    rc::begin(&qp, &iface.port)?;
    Ok(qp)
}

/// Requests rails, one through each further local port that has none and is not in its pause.
fn request<S: Sink>(ports: &IbWorker<S::Peer>, sink: S, peer: S::Peer) {
    let most = ports.policy.rndv_rails.max(ports.policy.rma_rails);
    let now = clock::coarse_ms();
    let wanted = with_sender(sink, peer, |sender| {
        let all = 0..ports.ifaces.len();
        match sender.main_port() {
            Some(main) => {
                let others = all.filter(|&i| i != main);
                sender
                    .rails
                    .request_by(others.take(most.saturating_sub(1)), now)
            }
            // Without an RC main port the rails that remain carry all long transfers.
            None => sender.rails.request_by(all, now),
        }
    });
    for i in wanted.unwrap_or_default() {
        if let Err(e) = request_by(sink, peer, i, &ports.ifaces[i]) {
            log::diag!("no rail by {}: {e}", ports.ifaces[i].port.name);
            with_sender(sink, peer, |sender| sender.rails.back_off(i, now, 0));
        }
    }
}

/// Requests a rail through this interface.
fn request_by<S: Sink>(sink: S, peer: S::Peer, i: usize, iface: &IbIface) -> io::Result<()> {
    if !iface.port.is_active() {
        return Err(io::Error::other("its link is down"));
    }
    let qp = queue(iface)?;
    let psn = host::random_u64() as u32 & PSN_MASK;
    let imm = RailImm {
        qpn: qp.number,
        psn,
        near: i as u8,
        far: i as u8,
    };
    let end = PendingRail { qp, iface: i, psn };
    with_sender(sink, peer, |sender| sender.rails.asked.push(end));
    let from = iface.port.locator(iface.ud_number);
    sink.send_control(peer, Kind::RailReq, imm.to_u64(), &from.encode());
    Ok(())
}

/// Makes the local end of a rail that the peer has requested, through the most suitable port except the connection's
/// own.
fn hold<S: Sink>(
    ports: &IbWorker<S::Peer>,
    sink: S,
    peer: S::Peer,
    imm: RailImm,
    to: &PortLocator,
) {
    let state = with_sender(sink, peer, |sender| {
        (sender.main_port(), sender.rails.held())
    });
    let Some((main, held)) = state else {
        return;
    };
    let count = ports.ifaces.len();
    let wanted = usize::from(imm.far);
    // Preferred are ports that need no router, then the port with the peer's number, which is usually on the same
    // network, then the port with the fewest rails.
    let first = main.map_or(held, |main| main + 1 + held);
    let others = (0..count).map(|i| (first + i) % count);
    let all = std::iter::once(wanted).chain(others).enumerate();
    let usable = all.filter_map(|(turn, i)| {
        let port = &ports.ifaces.get(i).filter(|_| main != Some(i))?.port;
        let distance = port.distance(to).filter(|_| port.is_active())?;
        Some((distance, Reverse(turn), i))
    });
    let place = usable.max().map(|(_, _, i)| i);
    let end = place.and_then(|i| {
        let made = held_end(&ports.ifaces[i], imm, to);
        let made =
            made.inspect_err(|e| log::diag!("no rail for worker {:#x}: {e}", sink.uid(peer)));
        Some((i, made.ok()?))
    });
    let end = end.filter(|(_, (qp, _))| {
        with_sender(sink, peer, |sender| sender.rails.hold(qp.clone())) == Some(true)
    });
    let none = (main.unwrap_or(0), 0, 0);
    let (i, qpn, psn) = end.map_or(none, |(i, (qp, psn))| (i, qp.number, psn));
    let answer = RailImm {
        qpn,
        psn,
        near: imm.near,
        far: i as u8,
    };
    let iface = &ports.ifaces[i];
    let from = iface.port.locator(iface.ud_number);
    sink.send_control(peer, Kind::RailRep, answer.to_u64(), &from.encode());
}

fn held_end(iface: &IbIface, imm: RailImm, to: &PortLocator) -> io::Result<(Arc<IbvQp>, u32)> {
    let qp = queue(iface)?;
    let psn = host::random_u64() as u32 & PSN_MASK;
    rc::connect(&qp, &iface.port, to, (imm.qpn, imm.psn), psn)?;
    Ok((qp, psn))
}

/// Connects a rail, if the peer has made its end.
fn join<S: Sink>(
    ports: &mut IbWorker<S::Peer>,
    sink: S,
    peer: S::Peer,
    imm: RailImm,
    to: &PortLocator,
) {
    let Some(number) = ports.to_peer(peer).map(|c| c.number) else {
        return;
    };
    let near = usize::from(imm.near);
    let asked = with_sender(sink, peer, |sender| {
        let asked = &mut sender.rails.asked;
        let place = asked.iter().position(|end| end.iface == near);
        place.map(|i| asked.swap_remove(i))
    });
    let Some((end, iface)) = asked.flatten().zip(ports.ifaces.get(near).cloned()) else {
        return;
    };
    let now = clock::coarse_ms();
    let joined = match imm.qpn {
        0 => Err(io::Error::other("the peer has no port for it")),
        qpn => rc::connect(&end.qp, &iface.port, to, (qpn, imm.psn), end.psn),
    };
    if let Err(e) = joined {
        log::diag!("no rail to worker {:#x}: {e}", sink.uid(peer));
        with_sender(sink, peer, |sender| sender.rails.back_off(near, now, 0));
        return;
    }
    log::debug!(
        "a rail to worker {:#x} by {}",
        sink.uid(peer),
        iface.port.name
    );
    let queue = (near, end.qp.number);
    ports.insert_rail(queue.0, queue.1, number);
    let mut rail = IbRail {
        rc_ep: RcEp::new(end.qp, iface),
        remote_port: imm.far.into(),
        name: imm.to_u64(),
        state: RailState::Tried,
        since: now,
    };
    let works = rail.rc_ep.probe();
    with_sender(sink, peer, |sender| sender.rails.lines.push(rail));
    if !works {
        give_up(
            ports,
            sink,
            peer,
            queue,
            "its device accepts no work requests",
        );
    }
}

/// Handles the message that the peer has given up a rail. The reply is needed for the retry at the peer, and is sent
/// before pending requests, which may wait for the peer's reply.
fn drop_held<S: Sink>(sink: S, peer: S::Peer, imm: RailImm) {
    match with_sender(sink, peer, |sender| sender.rails.drop_held(imm.qpn)) {
        Some(false) => sink.lane_down(peer, UCS_ERR_IO_ERROR),
        _ => sink.send_control(peer, Kind::RailDownAck, imm.to_u64(), &[]),
    }
}

/// Handles a completion with an error on a rail.
#[cold]
pub fn broken<S: Sink>(
    ports: &mut IbWorker<S::Peer>,
    sink: S,
    number: u32,
    rail: (usize, u32),
    status: ibv_wc_status,
) {
    let why = ports.ifaces[rail.0].port.hca.verbs.status_text(status);
    if let Some(peer) = ports.get(number).map(|c| c.peer) {
        give_up(ports, sink, peer, rail, &why);
    }
}

/// Gives up the rail with this interface and queue pair.
fn give_up<S: Sink>(
    ports: &IbWorker<S::Peer>,
    sink: S,
    peer: S::Peer,
    (iface, qpn): (usize, u32),
    why: &str,
) {
    let left = with_sender(sink, peer, |sender| sender.rails.detach(iface, qpn));
    let Some(name) = left.flatten() else {
        return;
    };
    let port = ports.ifaces.get(iface).map_or("", |i| &i.port.name);
    log::diag!(
        "the rail to worker {:#x} by {port} is dropped: {why}",
        sink.uid(peer)
    );
    if trace::is_on() {
        let args = [
            ("worker", ArgValue::Hex(sink.uid(peer))),
            ("port", port.to_owned().into()),
            ("reason", why.to_owned().into()),
        ];
        trace::instant("wire", "rail dropped", &args);
    }
    sink.send_control(peer, Kind::RailDown, name, &[]);
}

/// Handles the message that the peer has dropped its end of a rail: the other rails move the unfinished parts.
fn forget<S: Sink>(ports: &mut IbWorker<S::Peer>, sink: S, peer: S::Peer, name: u64) {
    let mut dropped = None;
    sink.repost(peer, |lane| {
        let Lane::Ib(sender) = lane else {
            return Vec::new();
        };
        let Some(rail) = sender.rails.take_detached(name) else {
            return Vec::new();
        };
        let (iface, now) = (rail.rc_ep.local_port(), clock::coarse_ms());
        let lasted = now.saturating_sub(rail.since);
        sender.rails.back_off(iface, now, lasted);
        let lost = rail.lost().into_iter();
        let lost = lost.map(|part| LostPart {
            token: part.owner,
            addr: part.ptr as u64,
            len: part.len,
        });
        let lost = lost.collect();
        dropped = Some((iface, rail));
        lost
    });
    if let Some((iface, rail)) = dropped {
        ports.forget_rail(iface, rail.rc_ep.qp.number);
    }
}
