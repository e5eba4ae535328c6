//! Rails: who has a long message to write to a peer that has further ports asks it, once, for queue pairs between those, and
//! shares what he writes out among them (`tx::lent`). The peer only holds its ends.
//!
//! Asked and answered in messages of the connection that there is: nothing of this can be lost. A rail that fails is given up, and
//! what it has not written goes by the others.

use super::tx;
use super::tx::lent;
use crate::engine::peer::Peer;
use crate::engine::ports::{Ports, RailTask};
use crate::engine::worker::Worker;
use crate::sys::{log, machine};
use crate::tl::Lane;
use crate::tl::ib::bindings::ibv_wc_status;
use crate::tl::ib::iface::Iface;
use crate::tl::ib::queues::Qp;
use crate::tl::ib::rails::{Asked, Rail};
use crate::tl::ib::rc::{self, PSN_MASK, Reliable};
use crate::tl::ib::sender::Sender;
use crate::wire::address::PortLocator;
use crate::wire::header::{Kind, RailImm};
use std::io;
use std::sync::Arc;

const _: () = assert!(PortLocator::SIZE == Kind::RailAsk.header_size());

/// Does what was left.
pub fn start(worker: &Worker, ports: &mut Ports) {
    let tasks = std::mem::take(&mut *worker.rails.lock());
    for (peer, task) in tasks {
        // SAFETY: peers live as long as the worker.
        let peer = unsafe { &*peer };
        match task {
            RailTask::Ask => ask(worker, ports, peer),
            RailTask::Hold(imm, to) => hold(ports, peer, imm, &to),
            RailTask::Join(imm, to) => join(ports, peer, imm, &to),
            RailTask::GiveUp(rail) => give_up(ports, peer, rail, "its device takes no more"),
        }
    }
}

/// Does something with the connection to a peer, if there is one.
fn with_sender<R>(peer: &Peer, act: impl FnOnce(&mut Sender) -> R) -> Option<R> {
    match peer.tx.lock().lane.as_mut() {
        Some(Lane::Ib(sender)) => Some(act(sender)),
        _ => None,
    }
}

/// A queue pair that takes no messages.
fn queue(iface: &Iface) -> io::Result<Arc<Qp>> {
    let qp = iface.new_qp()?;
    rc::begin(&qp, &iface.port)?;
    Ok(qp)
}

/// Asks for rails, one through each further port of ours.
fn ask(worker: &Worker, ports: &Ports, peer: &Peer) {
    let most = worker.ctx.policy.ib.as_ref().map_or(1, |ib| ib.rails);
    let Some(main) = with_sender(peer, |sender| sender.local_port()) else {
        return;
    };
    let others = ports.ifaces.iter().enumerate().filter(|&(i, _)| i != main);
    for (i, iface) in others.take(most.saturating_sub(1)) {
        let qp = match queue(iface) {
            Ok(qp) => qp,
            Err(e) => return log::diag!("no further queue pair on {}: {e}", iface.port.name),
        };
        let psn = machine::random_u64() as u32 & PSN_MASK;
        let imm = RailImm {
            qpn: qp.number,
            psn,
            near: i as u8,
            far: i as u8,
        };
        let end = Asked { qp, iface: i, psn };
        with_sender(peer, |sender| sender.rails.asked.push(end));
        let from = iface.port.locator(iface.ud_number);
        tx::control(peer, Kind::RailAsk, 0, imm.to_u64(), &from.encode());
    }
}

/// Holds the other end of a rail of the peer's, through the port that suits best, but not the connection's own.
fn hold(ports: &Ports, peer: &Peer, imm: RailImm, to: &PortLocator) {
    let state = with_sender(peer, |sender| (sender.local_port(), sender.rails.held()));
    let Some((main, held)) = state else {
        return;
    };
    let count = ports.ifaces.len();
    let wanted = usize::from(imm.far);
    // Ports of one number are cabled together; where that one is taken, another one that has least to do yet.
    let others = (0..count).map(|i| (main + 1 + held + i) % count);
    let place = std::iter::once(wanted).chain(others).find(|&i| {
        let port = ports.ifaces.get(i).map(|iface| &iface.port);
        i != main && port.is_some_and(|port| port.reaches(to))
    });
    let end = place.and_then(|i| {
        let made = held_end(&ports.ifaces[i], imm, to);
        let made = made.inspect_err(|e| log::diag!("no rail for worker {:#x}: {e}", peer.uid));
        Some((i, made.ok()?))
    });
    let end = end.filter(|(_, (qp, _))| {
        with_sender(peer, |sender| sender.rails.hold(qp.clone())) == Some(true)
    });
    let (i, qpn, psn) = end.map_or((main, 0, 0), |(i, (qp, psn))| (i, qp.number, psn));
    let answer = RailImm {
        qpn,
        psn,
        near: imm.near,
        far: i as u8,
    };
    let iface = &ports.ifaces[i];
    let from = iface.port.locator(iface.ud_number);
    tx::control(peer, Kind::RailHeld, 0, answer.to_u64(), &from.encode());
}

fn held_end(iface: &Iface, imm: RailImm, to: &PortLocator) -> io::Result<(Arc<Qp>, u32)> {
    let qp = queue(iface)?;
    let psn = machine::random_u64() as u32 & PSN_MASK;
    rc::connect(&qp, &iface.port, to, (imm.qpn, imm.psn), psn)?;
    Ok((qp, psn))
}

/// The peer holds the other end of a rail, or does not.
fn join(ports: &mut Ports, peer: &Peer, imm: RailImm, to: &PortLocator) {
    let Some(number) = ports.to_peer(peer).map(|c| c.number) else {
        return;
    };
    let near = usize::from(imm.near);
    let asked = with_sender(peer, |sender| {
        let asked = &mut sender.rails.asked;
        let place = asked.iter().position(|end| end.iface == near);
        place.map(|i| asked.swap_remove(i))
    });
    let Some((end, iface)) = asked.flatten().zip(ports.ifaces.get(near).cloned()) else {
        return;
    };
    if imm.qpn == 0 {
        return;
    }
    if let Err(e) = rc::connect(&end.qp, &iface.port, to, (imm.qpn, imm.psn), end.psn) {
        return log::diag!("no rail to worker {:#x}: {e}", peer.uid);
    }
    log::debug!("a rail to worker {:#x} by {}", peer.uid, iface.port.name);
    ports.insert_rail(near, end.qp.number, number);
    let rail = Rail {
        line: Reliable::new(end.qp, iface),
        remote_port: imm.far.into(),
        name: imm.to_u64(),
        refused: false,
    };
    with_sender(peer, |sender| sender.rails.lines.push(rail));
}

/// The peer has given up a rail whose end we hold.
pub fn on_gone(peer: &Peer, imm: RailImm) {
    with_sender(peer, |sender| sender.rails.drop_held(imm.qpn));
}

/// A write by a rail has ended badly.
#[cold]
pub fn broken(ports: &mut Ports, number: u32, rail: (usize, u32), status: ibv_wc_status) {
    let why = ports.ifaces[rail.0].port.hca.verbs.status_text(status);
    if let Some(peer) = ports.get(number).map(|c| c.peer) {
        // SAFETY: peers live as long as the worker.
        give_up(ports, unsafe { &*peer }, rail, &why);
    }
}

/// Gives up the rail with this interface and queue pair: the others go on with what it has not written.
fn give_up(ports: &Ports, peer: &Peer, (iface, qpn): (usize, u32), why: &str) {
    let name = ports.ifaces.get(iface).map_or("", |i| &i.port.name);
    let mut tx = peer.tx.lock();
    let Some(Lane::Ib(sender)) = tx.lane.as_mut() else {
        return;
    };
    let Some((lost, rail)) = sender.rails.give_up(iface, qpn) else {
        return;
    };
    log::diag!(
        "the rail to worker {:#x} by {name} is given up: {why}",
        peer.uid
    );
    let ended = lent::write_again(peer, &mut tx, &lost);
    drop(tx);
    // Before anything says that what it wrote is all there: a packet that comes late must not find the memory any more.
    tx::control(peer, Kind::RailGone, 0, rail, &[]);
    for req in ended {
        // SAFETY: nothing of it is under way, and it is in no list.
        unsafe { lent::end(req) };
    }
}
