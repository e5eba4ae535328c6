//! A worker's objects on a port: completion queues, receives, and the UD queue pair.
//!
//! One completion queue takes arrivals, of RC connections and of datagrams, so that wireup needs no polling of its own;
//! another one takes completions of sends, and is polled only while signaled sends are outstanding.

mod receive;

use super::bindings::*;
use super::buffers::BufferPool;
use super::op_slots;
use super::port::Port;
use super::queues::{CompChannel, IbvCq, IbvQp, IbvSrq, QpInit};
use super::rc::BatchPool;
use super::rx_pool::RxPool;
use super::ud::UdTxQueue;
use crate::sys::fork::{DisabledInChild, Origin};
use crate::sys::lock::MtLock;
use crate::wire::packet_hdr::{HEAD, most_packets};
use std::io;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Bytes that the device puts in front of a received datagram: a global route header, or bytes without meaning.
pub const GRH: usize = 40;
/// Send buffers that are allocated together.
const BATCH_ALLOC: usize = 64;
/// Maximum number of receives that are posted together: a call of the device for each would cost as much as the
/// message.
const POSTED: usize = 8;
/// Receives that a new connection adds, as long as there are fewer than the option allows: as many as the packets that
/// may be in flight to this worker. A packet that finds none is retransmitted after `UCX_RC_RNR_TIMEOUT`, and delays
/// those behind it.
const PER_CONNECTION: usize = 64;
/// Further receives: for packets that are being handled, for receives that wait to be posted with others, and for
/// credit messages.
const SPARE: usize = 32;
/// Connections for which the receive completion queue is sized where each has receives of its own: as many as get a
/// queue pair by default (`UCX_RC_MAX_NUM_EPS`).
const ALONE: usize = 256;
/// Wanted bytes of inline data: two cache lines with the header in front.
const INLINE: u32 = 128;
/// Wanted SGEs of a send: as many as fit beside [`INLINE`] bytes in a work request of mlx5.
const PIECES: u32 = 6;

/// A worker's objects on a port. Dropped when the worker and its last sender are dropped.
pub struct IbIface {
    /// The send queue of datagrams.
    pub outgoing: MtLock<UdTxQueue>,
    /// Number of the UD queue pair; 0: there is none.
    pub ud_number: u32,
    receives: MtLock<ReceiveSide>,
    pub send_cq: Arc<IbvCq>,
    recv_cq: Arc<IbvCq>,
    srq: Option<Arc<IbvSrq>>,
    /// Maximum number of receives for packets and for datagrams that the device's queues hold.
    most_packets: usize,
    most_datagrams: usize,
    /// Queue pairs that have receives of their own.
    own: MtLock<Vec<Weak<IbvQp>>>,
    channel: Option<Arc<CompChannel>>,
    pub port: Arc<Port>,
    /// The process that created it.
    origin: Origin,
    /// Disables the interface in forked children; set once its address is final.
    in_children: OnceLock<DisabledInChild>,
    /// Its index among the worker's interfaces.
    pub index: u8,
    /// Several threads may send at the same time.
    pub mt: bool,
    /// Number of signaled sends that are not completed. Relaxed: it only decides whether to poll.
    signals_outstanding: AtomicU32,
    /// Number of connections, and of sends that each of them may have outstanding. Relaxed: they order no other memory.
    lines: AtomicU32,
    share: AtomicU32,
    /// Minimum of `share`.
    least: AtomicU32,
    /// Buffers for packets that connections send.
    pub packets: MtLock<BufferPool>,
    /// Buffers for the op slots of connections.
    pub places: MtLock<BufferPool>,
    /// Work requests for the pieces of lists.
    pub batches: BatchPool,
}

/// Receives for packets and datagrams, posted or being handled.
struct ReceiveSide {
    packets: RxPool,
    datagrams: RxPool,
}

impl IbIface {
    /// Creates the queues on a port; `wakes`: with a completion channel to sleep on.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn new(port: &Arc<Port>, index: u8, mt: bool, wakes: bool) -> io::Result<Arc<IbIface>> {
        let (hca, tuning) = (&port.hca, &port.tuning);
        let channel = wakes.then(|| CompChannel::new(hca)).transpose()?;
        let (rc, ud) = (&tuning.rc, &tuning.ud);
        let limits = &hca.limits;
        let most_cqe = limits.max_cqe.max(2) as u32;
        let datagrams = if ud.used {
            ud.rx_queue_len
                .min(limits.max_qp_wr.max(1) as u32)
                .min(most_cqe / 2)
        } else {
            0
        };
        // Without a shared receive queue every connection has receives of its own.
        let srq = IbvSrq::new(hca, rc.rx_queue_len.min(most_cqe - datagrams)).ok();
        let packets = match srq {
            Some(_) => rc.rx_queue_len.min(limits.max_srq_wr.max(1) as u32),
            None => (ALONE * (PER_CONNECTION + SPARE)) as u32,
        };
        let packets = packets.min(most_cqe - datagrams);
        let recv_cq = IbvCq::new(hca, packets + datagrams, channel.as_ref())?;
        let send_cq = IbvCq::new(hca, SEND_CQ, channel.as_ref())?;
        let parts = QpInit {
            kind: IBV_QPT_UD,
            send_cq: &send_cq,
            recv_cq: &recv_cq,
            srq: None,
            sends: ud.tx_queue_len,
            receives: datagrams,
            inline: INLINE,
            pieces: 1,
        };
        let qp = ud.used.then(|| IbvQp::new(hca, &parts)).transpose()?;
        let outgoing = UdTxQueue::new(port, qp)?;
        let iface = Arc::new(IbIface {
            ud_number: outgoing.number(),
            outgoing: MtLock::new(mt, outgoing),
            receives: MtLock::new(
                mt,
                ReceiveSide {
                    packets: RxPool::new(
                        port,
                        rc.seg_size,
                        (packets as usize / 8).clamp(1, POSTED),
                    ),
                    // Every receive is needed: a datagram that finds none is lost.
                    datagrams: RxPool::new(port, GRH + port.mtu_bytes(), 1),
                },
            ),
            send_cq,
            recv_cq,
            srq,
            most_packets: packets as usize,
            most_datagrams: datagrams as usize,
            own: MtLock::new(mt, Vec::new()),
            channel,
            port: port.clone(),
            origin: Origin::here(),
            in_children: OnceLock::new(),
            index,
            mt,
            signals_outstanding: AtomicU32::new(0),
            lines: AtomicU32::new(0),
            share: AtomicU32::new(0),
            least: AtomicU32::new(sends_for(rc.seg_size)),
            packets: MtLock::new(mt, BufferPool::new(hca, rc.seg_size, BATCH_ALLOC)),
            places: MtLock::new(mt, BufferPool::new(hca, op_slots::BYTES, BATCH_ALLOC)),
            batches: BatchPool::new(mt),
        });
        let place = NonNull::from(&*iface).cast();
        // SAFETY: the interface stays at this address; the registration is withdrawn when it is dropped.
        let disabled = unsafe { DisabledInChild::new(place, size_of::<IbIface>(), Self::disable) };
        let _ = iface.in_children.set(disabled);
        if ud.used {
            iface.grow_datagrams(ud.rx_queue_first.min(datagrams) as usize)?;
        }
        iface.post_datagrams();
        Ok(iface)
    }

    /// Disables the interface in a forked child: completions of sends are not polled.
    ///
    /// # Safety
    /// `this` is an interface that is not dropped.
    unsafe fn disable(this: NonNull<()>, _: usize) {
        // SAFETY: by the caller, the interface exists; the field is an atomic.
        unsafe { this.cast::<Self>().as_ref() }
            .signals_outstanding
            .store(0, Ordering::Relaxed);
    }

    /// The completion channel, readable when a completion has arrived in an armed queue.
    pub fn channel(&self) -> Option<&CompChannel> {
        self.channel.as_deref()
    }

    /// Requests an event for the next completion of either queue. Completions that are already in the queues may cause
    /// none.
    pub fn arm(&self) {
        self.recv_cq.arm();
        self.send_cq.arm();
    }

    /// Polls completions of arrivals into `into`; returns their number.
    #[inline(always)]
    pub fn arrived(&self, into: &mut [MaybeUninit<ibv_wc>]) -> usize {
        self.recv_cq.poll(into)
    }

    /// Adds `change` to the number of signaled sends that are outstanding.
    #[inline(always)]
    pub fn add_signaled(&self, change: i32) {
        let change = change as u32;
        if self.mt {
            self.signals_outstanding
                .fetch_add(change, Ordering::Relaxed);
        } else {
            // An atomic addition would wait for all stores before it.
            let before = self.signals_outstanding.load(Ordering::Relaxed);
            self.signals_outstanding
                .store(before.wrapping_add(change), Ordering::Relaxed);
        }
    }

    /// Whether signaled sends are outstanding.
    #[inline(always)]
    pub fn has_signaled(&self) -> bool {
        self.signals_outstanding.load(Ordering::Relaxed) != 0
    }

    /// Polls completions of sends into `into`; returns their number.
    pub fn poll_send_cq(&self, into: &mut [MaybeUninit<ibv_wc>]) -> usize {
        self.send_cq.poll(into)
    }

    /// Sends that each connection may have outstanding: when peers die all sends complete with an error, also
    /// unsignaled ones, and the completion queue must have room for that.
    #[inline(always)]
    pub fn share(&self) -> u32 {
        self.share.load(Ordering::Relaxed)
    }

    /// Adds `change` to the number of connections, and updates the share of each.
    pub fn share_among(&self, change: i32) {
        let before = self.lines.fetch_add(change as u32, Ordering::Relaxed);
        let lines = before.wrapping_add(change as u32).max(1);
        let least = self.least.load(Ordering::Relaxed);
        let all = SEND_CQ.saturating_sub(self.port.tuning.ud.tx_queue_len.min(SEND_CQ / 2));
        self.share
            .store((all / lines).max(least), Ordering::Relaxed);
    }

    /// Creates a queue pair for a connection, not connected.
    ///
    /// # Errors
    /// `ENOMEM` and the like: no more can be created.
    pub fn new_qp(&self) -> io::Result<Arc<IbvQp>> {
        let rc = &self.port.tuning.rc;
        let mut own = self.own.lock();
        own.retain(|qp| qp.strong_count() > 0);
        // Arrivals must fit into the receive completion queue: an overrun breaks it for all connections.
        let all = (own.len() + 1) * (PER_CONNECTION + SPARE);
        if all > self.most_packets && self.srq.is_none() {
            let text = format!("{} have as many receives as the device takes", own.len());
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, text));
        }
        let qp = IbvQp::new(
            &self.port.hca,
            &QpInit {
                kind: IBV_QPT_RC,
                send_cq: &self.send_cq,
                recv_cq: &self.recv_cq,
                srq: self.srq.as_ref(),
                sends: rc.tx_queue_len,
                receives: match self.srq {
                    Some(_) => 0,
                    None => (PER_CONNECTION + SPARE) as u32,
                },
                inline: INLINE,
                pieces: PIECES,
            },
        )?;
        let qp = Arc::new(qp);
        if self.srq.is_none() {
            own.push(Arc::downgrade(&qp));
        }
        Ok(qp)
    }
}

/// Twice the number of sends that a record may take in packets of `packet` bytes.
fn sends_for(packet: usize) -> u32 {
    2 * most_packets(packet - HEAD) as u32
}

/// Entries of a worker's completion queue for sends: the default value of `UCX_RC_VERBS_TX_CQ_LEN`.
const SEND_CQ: u32 = 4096;
