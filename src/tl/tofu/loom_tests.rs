//! Rings, cells, buffers and what counts a connection's posts under loom: a thread of the test's is the adapter, and
//! what it writes and reads is watched.
//!
//! What is relaxed and orders nothing could not fail here: how many queues were made or are alone, how many posts are
//! untold, the word of a hall, the first guess of `op::executor`. That a later store does not pass an earlier load the
//! language says by release alone; so an adapter that is to show what an acquire keeps in front of a post is prompt
//! ([`Adapter::be_prompt`]).

mod flow;
mod memory;

use super::ctrl_words::{CtrlWord, CtrlWords};
use super::iface::TofuIface;
use super::model::{self, Adapter, PACKET, explore, spawn};
use super::op_queue::OpTag;
use super::ring_layout::{RingLayout, TAIL};
use super::ring_pool::RingPool;
use super::rx_ring::RxRing;
use super::sender::{RemoteRing, TofuSender};
use super::tx_acks::TxAcks;
use super::vcq::VcqRegion;
use crate::sys::sync::dma_mem;
use std::sync::Arc;

const MARK: OpTag = OpTag {
    link: 0,
    colour: 128,
};

fn iface(queues: usize, mt: bool) -> Arc<TofuIface> {
    Arc::new(model::iface(queues, mt))
}

fn adapter<'a>(iface: &TofuIface) -> &'a Adapter {
    Adapter::of(iface.vcq.id)
}

/// Room for so many frames as long as they can be; the reader tells of each.
fn narrow(frames: u32) -> RingLayout {
    RingLayout {
        size: TAIL as u32 + frames * PACKET,
        packet: PACKET,
        window: 4,
    }
}

/// Room for several, which are counted.
fn wide() -> RingLayout {
    RingLayout {
        size: TAIL as u32 + 8 * PACKET,
        packet: PACKET,
        window: 8,
    }
}

/// A ring that a peer of the worker's writes to.
fn inbound(iface: &TofuIface, shape: RingLayout) -> RxRing {
    let piece = RingPool::default().take(&iface.vcq, shape.size as usize);
    let piece = piece.expect("the model has all");
    dma_mem::watch(piece.ptr(), shape.count_at() as usize);
    let mut inbound = RxRing::new(piece, shape);
    // Nothing yet; its word is watched from now on.
    inbound.scan();
    inbound
}

fn cell(iface: &TofuIface) -> CtrlWord {
    let (cell, _) = CtrlWords::default()
        .take(&iface.vcq)
        .expect("the model has all");
    cell
}

/// What writes to a ring of this peer, or to the peer's memory, and is told in this cell what was read.
fn sender(
    own: &Arc<TofuIface>,
    flow: &Arc<TxAcks>,
    cell: &CtrlWord,
    peer: &TofuIface,
    ring: &RxRing,
) -> TofuSender {
    let to = RemoteRing {
        vcq: peer.vcq.id,
        ring: ring.stadd(),
        shape: ring.shape(),
        counted: ring.shape() == wide(),
        rails: peer.signaled_rails(),
    };
    TofuSender::new(own.clone(), flow.clone(), cell.clone(), MARK, to)
}

/// Registered memory, of which the first bytes are watched.
fn memory(iface: &TofuIface) -> VcqRegion {
    let region = VcqRegion::new(&iface.vcq, 64).expect("the model has all");
    dma_mem::watch(region.ptr(), 64);
    region
}

/// Waits until this is true, which another thread has to see to.
fn wait(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        loom::thread::yield_now();
    }
}
