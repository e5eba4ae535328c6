//! What a worker has of a port: completion queues, receives, and the queue pair for datagrams.
//!
//! One completion queue takes what arrives, by connections and as datagrams, so that nothing is polled for connecting
//! alone; another one takes the ends of sends, and is looked at only while sends are outstanding that will tell theirs.

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

/// Bytes that the device puts in front of a datagram it has received: a global header, or nothing that means anything.
pub const GRH: usize = 40;
/// Buffers for sends that are made together.
const TOGETHER: usize = 64;
/// Receives that are posted together, at most: a call of the device's for each would cost as much as the message.
const POSTED: usize = 8;
/// Receives that a new connection adds, as long as there are fewer than the option says: as many packets as may be on
/// the way to us. A packet that finds none is sent again after `UCX_RC_RNR_TIMEOUT`, and what is behind it waits.
const PER_CONNECTION: usize = 64;
/// Receives that are there besides: those that are being looked at, that wait to be posted with others, and that
/// credits take.
const SPARE: usize = 32;
/// Connections that the queue of arrivals is made for where each has receives of its own: as many as get a queue pair
/// by default (`UCX_RC_MAX_NUM_EPS`).
const ALONE: usize = 256;
/// Bytes in a work request that are asked for: two cache lines with the header in front.
const INLINE: u32 = 128;
/// Pieces of memory that a send names: as many as there is room for beside the bytes above, in a work request of
/// mlx5's.
const PIECES: u32 = 6;

/// A worker's share of a port. Dropped when the worker and its last sender are gone.
pub struct IbIface {
    /// Its datagrams' queue pair, if there is one.
    pub outgoing: MtLock<UdTxQueue>,
    /// Number of that queue pair; 0: there is none.
    pub ud_number: u32,
    receives: MtLock<ReceiveSide>,
    pub send_cq: Arc<IbvCq>,
    recv_cq: Arc<IbvCq>,
    srq: Option<Arc<IbvSrq>>,
    /// Most receives for packets and for datagrams that the device's queues take.
    most_packets: usize,
    most_datagrams: usize,
    /// Queue pairs that have receives of their own.
    own: MtLock<Vec<Weak<IbvQp>>>,
    channel: Option<Arc<CompChannel>>,
    pub port: Arc<Port>,
    /// The process that made it.
    origin: Origin,
    /// Disables it in children, from when it has its place.
    in_children: OnceLock<DisabledInChild>,
    /// Its number among the worker's.
    pub index: u8,
    /// Threads may send at the same time.
    pub mt: bool,
    /// Sends that will tell when they have ended, and have not. Relaxed: it says only whether a look is worth while.
    telling: AtomicU32,
    /// Connections that send, and how many sends each of them may have outstanding. Relaxed: only numbers.
    lines: AtomicU32,
    share: AtomicU32,
    /// What each has in any case.
    least: AtomicU32,
    /// Buffers for packets of connections that are being sent.
    pub packets: MtLock<BufferPool>,
    /// The same of connections for what is short and read.
    pub places: MtLock<BufferPool>,
}

/// What waits for packets and datagrams, or is being looked at.
struct ReceiveSide {
    packets: RxPool,
    datagrams: RxPool,
}

impl IbIface {
    /// Queues on a port; `wakes`: with a descriptor to sleep on.
    ///
    /// # Errors
    /// What the device says.
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
        // Without one every connection has receives of its own.
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
                    // Each is counted on: a datagram that finds none is lost.
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
            telling: AtomicU32::new(0),
            lines: AtomicU32::new(0),
            share: AtomicU32::new(0),
            least: AtomicU32::new(sends_for(rc.seg_size)),
            packets: MtLock::new(mt, BufferPool::new(hca, rc.seg_size, TOGETHER)),
            places: MtLock::new(mt, BufferPool::new(hca, op_slots::BYTES, TOGETHER)),
        });
        let place = NonNull::from(&*iface).cast();
        // SAFETY: the interface stays there; taken back when it is dropped.
        let disabled = unsafe { DisabledInChild::new(place, size_of::<IbIface>(), Self::disable) };
        let _ = iface.in_children.set(disabled);
        if ud.used {
            let first = ud.rx_queue_first.min(datagrams) as usize;
            let mut receives = iface.receives.lock();
            receives.datagrams.grow(first);
            // Nobody could connect, and nobody would hear why.
            if first > 0 && receives.datagrams.count() == 0 {
                return Err(no_buffers("datagrams", GRH + port.mtu_bytes()));
            }
        }
        iface.post_datagrams();
        Ok(iface)
    }

    /// In a forked child: no ends of sends are looked for.
    ///
    /// # Safety
    /// An interface that is not dropped yet.
    unsafe fn disable(this: NonNull<()>, _: usize) {
        // SAFETY: the caller's promise; an atomic.
        unsafe { this.cast::<Self>().as_ref() }
            .telling
            .store(0, Ordering::Relaxed);
    }

    /// Readable when something has come into an armed queue.
    pub fn channel(&self) -> Option<&CompChannel> {
        self.channel.as_deref()
    }

    /// The next completion of either queue wakes. What is there already may not.
    pub fn arm(&self) {
        self.recv_cq.arm();
        self.send_cq.arm();
    }

    /// Takes what has arrived: how many were written.
    #[inline(always)]
    pub fn arrived(&self, into: &mut [MaybeUninit<ibv_wc>]) -> usize {
        self.recv_cq.poll(into)
    }

    /// There are so many sends more that will tell of their ends, or fewer.
    #[inline(always)]
    pub fn add_signaled(&self, change: i32) {
        let change = change as u32;
        if self.mt {
            self.telling.fetch_add(change, Ordering::Relaxed);
        } else {
            // An exchange would wait for all stores before it.
            let before = self.telling.load(Ordering::Relaxed);
            self.telling
                .store(before.wrapping_add(change), Ordering::Relaxed);
        }
    }

    /// Whether sends are outstanding that will tell of their ends.
    #[inline(always)]
    pub fn has_signaled(&self) -> bool {
        self.telling.load(Ordering::Relaxed) != 0
    }

    /// Takes the ends of sends: how many were written.
    pub fn ended(&self, into: &mut [MaybeUninit<ibv_wc>]) -> usize {
        self.send_cq.poll(into)
    }

    /// Sends that each connection may have outstanding: when peers die all of them tell of their ends, also those that
    /// were not to, and the queue of ends has to have room for that.
    #[inline(always)]
    pub fn share(&self) -> u32 {
        self.share.load(Ordering::Relaxed)
    }

    /// There are so many connections more, or fewer.
    pub fn share_among(&self, change: i32) {
        let before = self.lines.fetch_add(change as u32, Ordering::Relaxed);
        let lines = before.wrapping_add(change as u32).max(1);
        let least = self.least.load(Ordering::Relaxed);
        let all = SEND_CQ.saturating_sub(self.port.tuning.ud.tx_queue_len.min(SEND_CQ / 2));
        self.share
            .store((all / lines).max(least), Ordering::Relaxed);
    }

    /// A connection has packets of so many bytes: a record has to fit in any case, and half of the sends may have ended
    /// without a word.
    ///
    /// # Errors
    /// There is no room for so many packets.
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
        // Without any it would wait for ever for one to come back.
        if !self.packets.lock().reserve(1) {
            return Err(no_buffers("what is sent", self.port.tuning.rc.seg_size));
        }
        self.least.fetch_max(least, Ordering::Relaxed);
        self.share_among(0);
        Ok(())
    }

    /// A queue pair for a connection, not connected.
    ///
    /// # Errors
    /// `ENOMEM` and the like: there are no more.
    pub fn new_qp(&self) -> io::Result<Arc<IbvQp>> {
        let rc = &self.port.tuning.rc;
        let mut own = self.own.lock();
        own.retain(|qp| qp.strong_count() > 0);
        // What arrives must find room in the queue of arrivals, or that breaks for all.
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

    /// A connection is made: there are receives for all of them. `qp`: its own; `others`: how many others there are.
    ///
    /// # Errors
    /// There are none at all: the peer would try for ever.
    pub fn expect_packets(&self, qp: &IbvQp, others: usize) -> io::Result<()> {
        let (most, rc) = (self.most_packets, &self.port.tuning.rc);
        let mut receives = self.receives.lock();
        let pile = &mut receives.packets;
        let enough = match &self.srq {
            Some(srq) => {
                pile.grow(((others + 1) * PER_CONNECTION + SPARE).min(most));
                // SAFETY: receives of the pile's.
                pile.post(|wr, bad| unsafe { srq.post(wr, bad) });
                pile.count() > 0
            }
            None => {
                // Those of connections that have ended wait to be posted again.
                let own = PER_CONNECTION + SPARE;
                pile.grow(pile.count() + own.saturating_sub(pile.spent()));
                let waiting = pile.spent();
                // SAFETY: as above.
                pile.post_some(own, |wr, bad| unsafe { qp.post_receives(wr, bad) });
                pile.spent() < waiting
            }
        };
        match enough {
            true => Ok(()),
            false => Err(no_buffers("what arrives", rc.seg_size)),
        }
    }

    /// A connection by datagrams is made: there are receives for all of them, as far as the option allows. `others`:
    /// how many others there are.
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
            // SAFETY: receives of the pile's.
            receives
                .datagrams
                .post(|wr, bad| unsafe { qp.post_receives(wr, bad) });
        }
    }

    /// The bytes of a packet that has arrived by a connection, until [`done`](Self::done).
    ///
    /// # Safety
    /// The completion is one that [`arrived`](Self::arrived) told, of a connection.
    pub unsafe fn packet(&self, wc: &ibv_wc) -> &[u8] {
        // SAFETY: the caller's promise.
        unsafe { self.receives.lock().packets.bytes(wc, 0) }
    }

    /// As [`packet`](Self::packet), without a lock: what it looks at changes only when it is posted.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub unsafe fn packet_single_threaded(&self, wc: &ibv_wc) -> &[u8] {
        // SAFETY: the caller's promise.
        unsafe { RxPool::all_bytes(wc) }
    }

    /// As [`done`](Self::done), of a packet in single-thread mode.
    ///
    /// # Safety
    /// As there; it came by a connection.
    #[inline(always)]
    pub unsafe fn done_single_threaded(&self, wc: &ibv_wc) {
        // SAFETY: the caller's promise; nobody up the stack has the receives, since no callback runs while they are
        // looked at.
        unsafe { self.receives.alone().packets.done(wc) };
    }

    /// The same of a datagram. `None`: it is of before the queue pair was begun anew, and posted again already.
    ///
    /// # Safety
    /// As [`packet`](Self::packet), of the queue pair for datagrams.
    pub unsafe fn datagram(&self, wc: &ibv_wc) -> Option<&[u8]> {
        let receives = self.receives.lock();
        let wc = receives.datagrams.of_this_life(wc)?;
        // SAFETY: the caller's promise.
        Some(unsafe { receives.datagrams.bytes(&wc, GRH) })
    }

    /// The packet of a completion has been looked at.
    ///
    /// # Safety
    /// [`arrived`](Self::arrived) told it, and this was not said of it.
    pub unsafe fn done(&self, wc: &ibv_wc) {
        if wc.qp_num != self.ud_number {
            // SAFETY: the caller's promise.
            return unsafe { self.receives.lock().packets.done(wc) };
        }
        // SAFETY: as above.
        unsafe { self.datagram_done(wc) };
    }

    #[inline(never)]
    unsafe fn datagram_done(&self, wc: &ibv_wc) {
        let mut receives = self.receives.lock();
        if let Some(wc) = receives.datagrams.of_this_life(wc) {
            // SAFETY: the caller's promise, and it is not posted.
            unsafe { receives.datagrams.done(&wc) };
        }
    }

    /// A datagram could not be sent or received: most devices take no more until their queue pair is begun anew. What
    /// was on its way is lost. `arrival`: it was to be received, which completions that tell of failures do not say.
    #[cold]
    pub fn revive(&self, wc: &ibv_wc, arrival: bool) {
        let mut receives = self.receives.lock();
        let mut outgoing = self.outgoing.lock();
        let own = match arrival {
            true => receives.datagrams.of_this_life(wc).is_some(),
            false => !outgoing.has_ended(wc.wr_id),
        };
        // The rest of what went with an earlier failure.
        if !own {
            return;
        }
        log::diag!(
            "{}: datagrams begin anew: {}",
            self.port.name,
            self.port.hca.verbs.status_text(wc.status)
        );
        if let Err(e) = outgoing.restart_window(self) {
            log::error!("{}: no datagrams any more: {e}", self.port.name);
        }
        receives.datagrams.renew();
        drop((receives, outgoing));
        self.post_datagrams();
    }

    /// Posts the receives again whose packets are done, when there are enough.
    pub fn refill(&self) {
        let receives = self.receives.lock();
        let due = receives.packets.is_due() || receives.datagrams.is_due();
        drop(receives);
        if due {
            self.post_again();
        }
    }

    /// As [`refill`](Self::refill), where only packets have come.
    ///
    /// # Safety
    /// In single-thread mode.
    #[inline(always)]
    pub unsafe fn refill_single_threaded(&self) {
        // SAFETY: as in `done_single_threaded`.
        if unsafe { self.receives.alone().packets.is_due() } {
            self.post_again();
        }
    }

    #[inline(never)]
    fn post_again(&self) {
        // A callback has forked, and this is the child: the queues are its parent's.
        if self.origin.is_inherited() {
            return;
        }
        let mut receives = self.receives.lock();
        if let Some(srq) = &self.srq {
            // SAFETY: receives of the pile's.
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

    /// Posts a receive again to the queue pair that it was for, where connections have their own.
    pub fn give_back(&self, qp: &IbvQp) {
        let mut receives = self.receives.lock();
        // SAFETY: receives of the pile's.
        receives
            .packets
            .post_some(1, |wr, bad| unsafe { qp.post_receives(wr, bad) });
    }

    /// Packets that one peer may have on the way by a connection: no more than receives that its connection adds.
    pub fn packet_window(&self) -> u32 {
        let receives = self.most_packets.saturating_sub(SPARE);
        let window = self.port.tuning.rc.window as usize;
        window.min(receives.clamp(1, PER_CONNECTION)) as u32
    }

    /// Datagrams that one peer may have on the way: as many receives as its connection adds, so that they are not lost
    /// where the other end does the same; no less than the longest record takes.
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

/// Not even the first buffers of so many bytes could be registered.
#[cold]
fn no_buffers(what: &str, size: usize) -> io::Error {
    let cure = regcache::cure(TOGETHER * size);
    let text = format!("no buffers can be registered for {what}. {cure}");
    io::Error::new(io::ErrorKind::OutOfMemory, text)
}

/// Sends that a record may take in packets of so many bytes, twice.
fn sends_for(packet: usize) -> u32 {
    2 * most_packets(packet - HEAD) as u32
}

/// Completions of sends that a worker's queue has room for, as `UCX_RC_VERBS_TX_CQ_LEN`.
const SEND_CQ: u32 = 4096;
