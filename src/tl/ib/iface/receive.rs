//! The receiving side of an interface: posted receives, and the buffers of what has arrived.

use super::{BATCH_ALLOC, GRH, IbIface, PER_CONNECTION, SPARE, sends_for};
use crate::sys::{log, regcache};
use crate::tl::ib::bindings::*;
use crate::tl::ib::queues::IbvQp;
use crate::tl::ib::rx_pool::RxPool;
use crate::tl::ib::ud;
use crate::wire::packet_hdr::most_packets;
use std::io;
use std::sync::atomic::Ordering;

impl IbIface {
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
        if enough {
            Ok(())
        } else {
            Err(no_buffers("what arrives", rc.seg_size))
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

    /// Allocates the first `count` buffers for datagrams.
    ///
    /// # Errors
    /// There is no registered memory.
    pub(super) fn grow_datagrams(&self, count: usize) -> io::Result<()> {
        let mut receives = self.receives.lock();
        receives.datagrams.grow(count);
        // Without receives no peer could connect, and no error would be reported.
        if count > 0 && receives.datagrams.count() == 0 {
            return Err(no_buffers("datagrams", GRH + self.port.mtu_bytes()));
        }
        Ok(())
    }

    /// Posts all free receive buffers for datagrams to the UD queue pair; does nothing where there is none. Buffers
    /// that the device does not take stay in the pool, for the next call.
    pub(super) fn post_datagrams(&self) {
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
        let own = if arrival {
            receives.datagrams.current_generation(wc).is_some()
        } else {
            !outgoing.has_ended(wc.wr_id)
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
