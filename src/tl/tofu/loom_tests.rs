//! Rings, control words, buffers and post counters under loom: a thread of the test acts as the TNI, and loom checks
//! its accesses to memory.
//!
//! Relaxed atomics that order nothing are not tested: the number of VCQs, the number of unacknowledged posts, the word
//! of a ticket queue, the first load in `op::amo_target`. That a later store does not pass an earlier load can only be
//! expressed by release; so a TNI that is to show what an acquire keeps before a post executes posts at once
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

const TAG: OpTag = OpTag {
    conn: 0,
    generation: 128,
};

fn iface(queues: usize, mt: bool) -> Arc<TofuIface> {
    Arc::new(model::iface(queues, mt))
}

fn adapter<'a>(iface: &TofuIface) -> &'a Adapter {
    Adapter::of(iface.vcq.id)
}

/// A ring that holds `frames` frames of maximum length; the reader sends a credit for each.
fn narrow(frames: u32) -> RingLayout {
    RingLayout {
        size: TAIL as u32 + frames * PACKET,
        packet: PACKET,
        window: 4,
    }
}

/// A ring that holds eight frames, which are counted.
fn wide() -> RingLayout {
    RingLayout {
        size: TAIL as u32 + 8 * PACKET,
        packet: PACKET,
        window: 8,
    }
}

/// A ring of this worker, which a peer writes.
fn inbound(iface: &TofuIface, shape: RingLayout) -> RxRing {
    let piece = RingPool::default().take(&iface.vcq, shape.size as usize);
    let piece = piece.expect("the model has all");
    dma_mem::watch(piece.ptr(), shape.count_at() as usize);
    let mut inbound = RxRing::new(piece, shape);
    // No frame yet; loom watches the word of the count from now on.
    inbound.scan();
    inbound
}

fn ctrl_word(iface: &TofuIface) -> CtrlWord {
    let (ctrl_word, _) = CtrlWords::default()
        .take(&iface.vcq)
        .expect("the model has all");
    ctrl_word
}

/// The sender to a ring of this peer, and to the peer's memory; `ctrl_word` receives its credits.
fn sender(
    own: &Arc<TofuIface>,
    flow: &Arc<TxAcks>,
    ctrl_word: &CtrlWord,
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
    TofuSender::new(own.clone(), flow.clone(), ctrl_word.clone(), TAG, to)
}

/// Registered memory, whose first bytes loom watches.
fn memory(iface: &TofuIface) -> VcqRegion {
    let region = VcqRegion::new(&iface.vcq, 64).expect("the model has all");
    dma_mem::watch(region.ptr(), 64);
    region
}

/// Waits until this is true, by an action of another thread.
fn wait(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        loom::thread::yield_now();
    }
}
