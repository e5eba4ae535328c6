//! A worker's objects on a port: completion queues, receives, and the UD queue pair.
//!
//! One completion queue takes arrivals, of RC connections and of datagrams, so that wireup needs no polling of its own;
//! another one takes completions of sends, and is polled only while signaled sends are outstanding.

use super::bindings::*;
use super::buffers::BufferPool;
use super::op_slots;
use super::port::Port;
use super::queues::{CompChannel, IbvCq, IbvQp, IbvSrq, QpInit};
use super::rx_pool::RxPool;
use super::ud::{self, UdTxQueue};
use crate::sys::fork::{DisabledInChild, Origin};
use crate::sys::lock::MtLock;
use crate::sys::{log, regcache};
use crate::wire::ib_packet::{HEAD, most_packets};
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
        let datagrams = match ud.used {
            true => (ud.rx_queue_len)
                .min(limits.max_qp_wr.max(1) as u32)
                .min(most_cqe / 2),
            false => 0,
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
        });
        let place = NonNull::from(&*iface).cast();
        // SAFETY: the interface stays at this address; the registration is withdrawn when it is dropped.
        let disabled = unsafe { DisabledInChild::new(place, size_of::<IbIface>(), Self::disable) };
        let _ = iface.in_children.set(disabled);
        if ud.used {
            let first = ud.rx_queue_first.min(datagrams) as usize;
            let mut receives = iface.receives.lock();
            receives.datagrams.grow(first);
            // Without receives no peer could connect, and no error would be reported.
            if first > 0 && receives.datagrams.count() == 0 {
                return Err(no_buffers("datagrams", GRH + port.mtu_bytes()));
            }
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

    /// Prepares for a connection with packets of `packet` bytes: a record must always fit into half of the sends,
    /// because the other half may have completed without a signal.
    ///
    /// # Errors
    /// The send queue has no room for so many packets, or no buffer can be registered.
    pub fn expect_segments(&self, packet: usize) -> io::Result<()> {
        let least = sends_for(packet);
        let most = self.port.hca.limits.max_qp_wr.max(1) as u32;
        let own = self.port.tuning.rc.tx_queue_len.min(most);
        if least > own {
            return Err(io::Error::other(format!(
                "a queue of {own} sends is too short for packets of {packet} bytes, it takes {least}: make it longer \
                 (UCX_RC_TX_QUEUE_LEN; the device has {most} at most) or packets, at both ends (UCX_IB_SEG_SIZE)"
            )));
        }
        // Without any buffer a sender would wait forever for one to be returned.
        if !self.packets.lock().reserve(1) {
            return Err(no_buffers("what is sent", self.port.tuning.rc.seg_size));
        }
        self.least.fetch_max(least, Ordering::Relaxed);
        self.share_among(0);
        Ok(())
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

    /// Posts the receives of a new connection. `qp`: its queue pair; `others`: number of other connections.
    ///
    /// # Errors
    /// There are no receives at all: the peer would retry forever.
    pub fn expect_packets(&self, qp: &IbvQp, others: usize) -> io::Result<()> {
        let (most, rc) = (self.most_packets, &self.port.tuning.rc);
        let mut receives = self.receives.lock();
        let rx_pool = &mut receives.packets;
        let enough = match &self.srq {
            Some(srq) => {
                rx_pool.grow(((others + 1) * PER_CONNECTION + SPARE).min(most));
                // SAFETY: the requests are receives of the pool, whose buffers are registered.
                rx_pool.post(|wr, bad| unsafe { srq.post(wr, bad) });
                rx_pool.count() > 0
            }
            None => {
                // Receives of closed connections wait to be posted again.
                let own = PER_CONNECTION + SPARE;
                rx_pool.grow(rx_pool.count() + own.saturating_sub(rx_pool.spent()));
                let waiting = rx_pool.spent();
                // SAFETY: the requests are receives of the pool, whose buffers are registered.
                rx_pool.post_some(own, |wr, bad| unsafe { qp.post_receives(wr, bad) });
                rx_pool.spent() < waiting
            }
        };
        match enough {
            true => Ok(()),
            false => Err(no_buffers("what arrives", rc.seg_size)),
        }
    }

    /// Posts the receives of a new UD connection, as far as the option allows. `others`: number of other UD
    /// connections.
    pub fn expect_datagrams(&self, others: usize) {
        let first = self.port.tuning.ud.rx_queue_first as usize;
        let more = first + (others + 1) * self.datagram_window() as usize;
        let mut receives = self.receives.lock();
        receives.datagrams.grow(more.min(self.most_datagrams));
        drop(receives);
        self.post_datagrams();
    }

    fn post_datagrams(&self) {
        let mut receives = self.receives.lock();
        let outgoing = self.outgoing.lock();
        if let Some(qp) = &outgoing.qp {
            // SAFETY: the requests are receives of the pool, whose buffers are registered.
            receives
                .datagrams
                .post(|wr, bad| unsafe { qp.post_receives(wr, bad) });
        }
    }

    /// The bytes of a packet that has arrived by an RC connection, valid until [`done`](Self::done).
    ///
    /// # Safety
    /// [`arrived`](Self::arrived) has returned the completion, which is of an RC connection.
    pub unsafe fn packet(&self, wc: &ibv_wc) -> &[u8] {
        // SAFETY: by the caller, a completion of a receive of `packets`.
        unsafe { self.receives.lock().packets.bytes(wc, 0) }
    }

    /// The bytes of a packet that has arrived by an RC connection, valid until [`done`](Self::done). Takes no lock: the
    /// receive does not change until it is posted again.
    ///
    /// # Safety
    /// [`arrived`](Self::arrived) has returned the completion, which is of an RC connection.
    #[inline(always)]
    pub unsafe fn packet_single_threaded(&self, wc: &ibv_wc) -> &[u8] {
        // SAFETY: by the caller, a completion of a receive of `packets`.
        unsafe { RxPool::all_bytes(wc) }
    }

    /// Marks the packet of a completion as handled, in single-thread mode.
    ///
    /// # Safety
    /// Those of [`done`](Self::done), in single-thread mode; the packet has arrived by an RC connection.
    #[inline(always)]
    pub unsafe fn done_single_threaded(&self, wc: &ibv_wc) {
        // SAFETY: by the caller, a completion of `packets` in single-thread mode. No other reference to the receives
        // exists: no callback runs while one does.
        unsafe { self.receives.alone().packets.done(wc) };
    }

    /// The bytes of a datagram that has arrived, valid until [`done`](Self::done). `None`: it arrived before the queue
    /// pair was reset, and its receive is posted again already.
    ///
    /// # Safety
    /// [`arrived`](Self::arrived) has returned the completion, which is of the UD queue pair.
    pub unsafe fn datagram(&self, wc: &ibv_wc) -> Option<&[u8]> {
        let receives = self.receives.lock();
        let wc = receives.datagrams.current_generation(wc)?;
        // SAFETY: by the caller, a completion of a receive of `datagrams`, of this generation.
        Some(unsafe { receives.datagrams.bytes(&wc, GRH) })
    }

    /// Marks the packet of a completion as handled: its receive will be posted again.
    ///
    /// # Safety
    /// [`arrived`](Self::arrived) has returned the completion; called once for each.
    pub unsafe fn done(&self, wc: &ibv_wc) {
        if wc.qp_num != self.ud_number {
            // SAFETY: by the caller, a completion of `packets`, marked once.
            return unsafe { self.receives.lock().packets.done(wc) };
        }
        // SAFETY: by the caller, a completion of `datagrams`, marked once.
        unsafe { self.datagram_done(wc) };
    }

    #[inline(never)]
    unsafe fn datagram_done(&self, wc: &ibv_wc) {
        let mut receives = self.receives.lock();
        if let Some(wc) = receives.datagrams.current_generation(wc) {
            // SAFETY: by the caller, a completion of `datagrams`, which is of this generation, so its receive is not
            // posted.
            unsafe { receives.datagrams.done(&wc) };
        }
    }

    /// Resets the UD queue pair after a send or receive has failed: most devices take no further work requests before.
    /// Datagrams in flight are lost. `arrival`: the failure is of a receive; error completions do not say so.
    #[cold]
    pub fn revive(&self, wc: &ibv_wc, arrival: bool) {
        let mut receives = self.receives.lock();
        let mut outgoing = self.outgoing.lock();
        let own = match arrival {
            true => receives.datagrams.current_generation(wc).is_some(),
            false => !outgoing.has_ended(wc.wr_id),
        };
        // Another completion of an earlier failure.
        if !own {
            return;
        }
        log::diag!(
            "{}: the UD queue pair is reset: {}",
            self.port.name,
            self.port.hca.verbs.status_text(wc.status)
        );
        if let Err(e) = outgoing.restart_window(self) {
            log::error!("{}: the UD queue pair has failed: {e}", self.port.name);
        }
        receives.datagrams.renew();
        drop((receives, outgoing));
        self.post_datagrams();
    }

    /// Posts handled receives again when a batch of them waits.
    pub fn refill(&self) {
        let receives = self.receives.lock();
        let due = receives.packets.is_due() || receives.datagrams.is_due();
        drop(receives);
        if due {
            self.post_again();
        }
    }

    /// Posts handled receives of packets again when a batch of them waits; for callers that have received no datagrams.
    ///
    /// # Safety
    /// In single-thread mode.
    #[inline(always)]
    pub unsafe fn refill_single_threaded(&self) {
        // SAFETY: by the caller, single-thread mode. No other reference to the receives exists: no callback runs while
        // one does.
        if unsafe { self.receives.alone().packets.is_due() } {
            self.post_again();
        }
    }

    #[inline(never)]
    fn post_again(&self) {
        // In a child that a callback has forked the queues belong to the parent.
        if self.origin.is_inherited() {
            return;
        }
        let mut receives = self.receives.lock();
        if let Some(srq) = &self.srq {
            // SAFETY: the requests are receives of the pool, whose buffers are registered.
            receives
                .packets
                .post(|wr, bad| unsafe { srq.post(wr, bad) });
        }
        let datagrams = receives.datagrams.is_due();
        drop(receives);
        if datagrams {
            self.post_datagrams();
        }
    }

    /// Posts a receive again to the queue pair that it was for, where connections have their own receives.
    pub fn give_back(&self, qp: &IbvQp) {
        let mut receives = self.receives.lock();
        // SAFETY: the requests are receives of the pool, whose buffers are registered.
        receives
            .packets
            .post_some(1, |wr, bad| unsafe { qp.post_receives(wr, bad) });
    }

    /// Packets that one peer may have in flight by an RC connection: no more than the receives that its connection
    /// adds.
    pub fn packet_window(&self) -> u32 {
        let receives = self.most_packets.saturating_sub(SPARE);
        let window = self.port.tuning.rc.window as usize;
        window.min(receives.clamp(1, PER_CONNECTION)) as u32
    }

    /// Datagrams that one peer may have in flight: as many as the receives that its connection adds, so that none is
    /// lost if the peer does the same; no fewer than the longest record takes.
    #[inline]
    pub fn datagram_window(&self) -> u32 {
        let window = self.port.tuning.ud.window.min(PER_CONNECTION as u32);
        window.max(most_packets(ud::segment(self.port.mtu_bytes())) as u32)
    }

    /// Whether every connection has receives of its own.
    pub fn has_own_receives(&self) -> bool {
        self.srq.is_none()
    }
}

/// The error if not even the first buffers of `size` bytes could be registered.
#[cold]
fn no_buffers(what: &str, size: usize) -> io::Error {
    let advice = regcache::advice(BATCH_ALLOC * size);
    let text = format!("no buffers can be registered for {what}. {advice}");
    io::Error::new(io::ErrorKind::OutOfMemory, text)
}

/// Twice the number of sends that a record may take in packets of `packet` bytes.
fn sends_for(packet: usize) -> u32 {
    2 * most_packets(packet - HEAD) as u32
}

/// Entries of a worker's completion queue for sends: the default value of `UCX_RC_VERBS_TX_CQ_LEN`.
const SEND_CQ: u32 = 4096;
