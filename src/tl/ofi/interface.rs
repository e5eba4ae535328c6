//! The transport's interface, as the progress of a worker calls it: that of all of its interfaces to fabrics.

use super::endpoint::borrowed;
use super::iface::OfiIface;
use super::worker::OfiWorker;
use super::{close, failover_ack, receive, upkeep};
use crate::tl::interface::Interface;
use crate::tl::sink::Sink;
use crate::tl::{IfaceKind, TlContext};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Interval at which a sleeping worker tries what no event reports, milliseconds.
const TRY_MS: u64 = 1;

impl<P: Copy + Eq> OfiWorker<P> {
    /// Polls for a worker that has nothing else to do, and is not inherited. Returns the number of events.
    #[inline(always)]
    pub fn poll_alone<S: Sink<Peer = P>>(&mut self, sink: S) -> u32 {
        let count = receive::poll(&mut self.first, sink);
        if self.others.is_empty() {
            return count;
        }
        count + self.poll_others(sink)
    }

    /// Polls all interfaces but the first. Returns the number of events.
    #[inline(never)]
    fn poll_others<S: Sink<Peer = P>>(&mut self, sink: S) -> u32 {
        let mut count = 0;
        for iface in &mut self.others {
            // A callback has forked, and this is the child.
            if sink.is_inherited() {
                break;
            }
            count += receive::poll(iface, sink);
        }
        count
    }
}

impl<P: Copy + Eq> Interface for OfiWorker<P> {
    const KIND: IfaceKind = IfaceKind::Ofi;
    /// Messages arrive, and the provider progresses, only while its completion queue is read.
    const IS_ALWAYS_POLLED: bool = true;
    const USES_USER_MEMORY: bool = true;
    type Peer = P;

    fn poll<S: Sink<Peer = P>>(&mut self, sink: S) -> u32 {
        if sink.is_inherited() {
            return 0;
        }
        self.poll_alone(sink)
    }

    fn connect<S: Sink<Peer = P>>(&mut self, sink: S) {
        // A callback has forked, and this is the child: it connects to no peer.
        if !sink.is_inherited() {
            for peer in sink.take_connects(IfaceKind::Ofi) {
                OfiWorker::connect(self, sink, peer);
            }
        }
    }

    fn tick<S: Sink<Peer = P>>(&mut self, sink: S, _context: &TlContext, now: u64) -> u32 {
        if sink.is_inherited() {
            return 0;
        }
        for iface in self.all_mut() {
            iface.stop_timer();
            upkeep::tick(iface, sink, now);
        }
        self.connect_again(sink, now);
        self.connect_rails(sink);
        self.poll(sink)
    }

    fn arm<S: Sink<Peer = P>>(&mut self, sink: S) -> bool {
        let is_several = !self.others.is_empty();
        let mut idle = true;
        for iface in self.all_mut() {
            idle = idle && arm(iface, sink, is_several);
        }
        idle
    }

    fn is_timed(&self) -> bool {
        self.all().any(|iface| iface.is_timed)
    }

    fn each_descriptor(&self, act: &mut dyn FnMut(BorrowedFd<'_>)) {
        for iface in self.all() {
            if let Some(fd) = iface.fd {
                // SAFETY: the queue's own, open as long as the endpoint.
                act(unsafe { borrowed(fd) });
            }
            if let Some(timer) = &iface.timer {
                act(timer.as_fd());
            }
        }
    }

    fn each_peer(&mut self, act: &mut dyn FnMut(P)) {
        for iface in self.all() {
            iface.named_peers().for_each(&mut *act);
        }
    }

    fn close<S: Sink<Peer = P>>(&mut self, sink: S, _context: &TlContext) {
        close::close(self, sink);
    }
}

/// Prepares an interface for sleep. False: there is work. `is_several`: another interface may connect to a peer that
/// does not answer this one.
fn arm<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S, is_several: bool) -> bool {
    let Some(timer) = &iface.timer else {
        return false;
    };
    let has_events = iface.fd.is_some() && !iface.is_dead && !iface.ep.may_wait();
    if !iface.unanswered.is_empty() || !iface.broken.is_empty() || has_events {
        return false;
    }
    // A clock tick moves the connections.
    let moves = (!iface.failover.is_empty()).then_some(TRY_MS);
    // A clock tick ends the operations that the provider does not report.
    let ends = iface.has_ops_without_peer();
    let ends = ends.then_some(OfiWorker::<S::Peer>::LOOK_MS);
    let works = !iface.is_dead;
    let looks = works.then(|| looks_after(iface, sink, is_several));
    let all = [moves, ends, looks.flatten()];
    let after = all.into_iter().flatten().min();
    timer.set(after.map(Duration::from_millis), None);
    iface.is_timed = after.is_some();
    true
}

/// Time after which a sleeping worker looks at an interface whose provider works, milliseconds. `None`: only events
/// wake it. `is_several`: another interface may connect to a peer that does not answer this one.
fn looks_after<S: Sink>(iface: &OfiIface<S::Peer>, sink: S, is_several: bool) -> Option<u64> {
    // Nothing reports that there is room again, or, without a descriptor, that a packet has arrived.
    let has_packets = !iface.control.is_empty() || !iface.acks_due.is_empty();
    if iface.fd.is_none() || has_packets || iface.ep.is_blocked() {
        return Some(TRY_MS);
    }
    if iface.has_losses || is_several && iface.awaits_answer() {
        return Some(OfiWorker::<S::Peer>::LOOK_MS);
    }
    let watches = |peer| sink.watches_death(peer);
    let probes = iface.keepalive_ms != u64::MAX && iface.peers().any(watches);
    let asks = failover_ack::awaits_ack(iface, sink).then_some(failover_ack::ASK_MS);
    let all = [probes.then_some(iface.keepalive_ms), asks];
    all.into_iter().flatten().min()
}
