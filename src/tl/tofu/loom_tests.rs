//! Rings, cells, buffers and what counts a connection's posts under loom: a thread of the test's is the adapter, and
//! what it writes and reads is watched.
//!
//! What is relaxed and orders nothing could not fail here: how many queues were made or are alone, how many posts are
//! untold, the word of a hall, the first guess of `op::executor`. That a later store does not pass an earlier load the
//! language says by release alone; so an adapter that is to show what an acquire keeps in front of a post is prompt
//! ([`Adapter::be_prompt`]).

mod flow;
mod memory;

use super::cells::{Cell, Cells};
use super::flow::Flow;
use super::iface::Iface;
use super::inbound::Inbound;
use super::model::{self, Adapter, PACKET, explore, spawn};
use super::queue::Mark;
use super::ring::{Shape, TAIL};
use super::sender::{Granted, Sender};
use super::slab::Slabs;
use super::vcq::Region;
use crate::sys::sync::foreign;
use std::sync::Arc;

const MARK: Mark = Mark {
    link: 0,
    colour: 128,
};

fn iface(queues: usize, mt: bool) -> Arc<Iface> {
    Arc::new(model::iface(queues, mt))
}

fn adapter<'a>(iface: &Iface) -> &'a Adapter {
    Adapter::of(iface.vcq.id)
}

/// Room for so many frames as long as they can be; the reader tells of each.
fn narrow(frames: u32) -> Shape {
    Shape {
        size: TAIL as u32 + frames * PACKET,
        packet: PACKET,
        window: 4,
    }
}

/// Room for several, which are counted.
fn wide() -> Shape {
    Shape {
        size: TAIL as u32 + 8 * PACKET,
        packet: PACKET,
        window: 8,
    }
}

/// A ring that a peer of the worker's writes to.
fn inbound(iface: &Iface, shape: Shape) -> Inbound {
    let piece = Slabs::default().take(&iface.vcq, shape.size as usize);
    let piece = piece.expect("the model has all");
    foreign::watch(piece.ptr(), shape.count_at() as usize);
    let mut inbound = Inbound::new(piece, shape);
    // Nothing yet; its word is watched from now on.
    inbound.look();
    inbound
}

fn cell(iface: &Iface) -> Cell {
    let (cell, _) = Cells::default()
        .take(&iface.vcq)
        .expect("the model has all");
    cell
}

/// What writes to a ring of this peer, or to the peer's memory, and is told in this cell what was read.
fn sender(own: &Arc<Iface>, flow: &Arc<Flow>, cell: &Cell, peer: &Iface, ring: &Inbound) -> Sender {
    let to = Granted {
        vcq: peer.vcq.id,
        ring: ring.stadd(),
        shape: ring.shape(),
        counted: ring.shape() == wide(),
        rails: peer.told_rails(),
    };
    Sender::new(own.clone(), flow.clone(), cell.clone(), MARK, to)
}

/// Registered memory, of which the first bytes are watched.
fn memory(iface: &Iface) -> Region {
    let region = Region::new(&iface.vcq, 64).expect("the model has all");
    foreign::watch(region.ptr(), 64);
    region
}

/// Waits until this is true, which another thread has to see to.
fn wait(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        loom::thread::yield_now();
    }
}
