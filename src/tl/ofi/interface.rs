//! The transport's interface, as the progress of a worker calls it: that of all of its interfaces to fabrics.

use super::endpoint::borrowed;
use super::interfaces::OfiInterfaces;
use super::worker::OfiWorker;
use super::{close, receive, upkeep};
use crate::tl::interface::Interface;
use crate::tl::sink::Sink;
use crate::tl::{IfaceKind, TlContext};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Interval at which a sleeping worker tries what no event reports, milliseconds.
const TRY_MS: u64 = 1;

impl<P: Copy + Eq> OfiInterfaces<P> {
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

impl<P: Copy + Eq> Interface for OfiInterfaces<P> {
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
                OfiInterfaces::connect(self, sink, peer);
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
fn arm<S: Sink>(iface: &mut OfiWorker<S::Peer>, sink: S, is_several: bool) -> bool {
    let Some(timer) = &iface.timer else {
        return false;
    };
    if !iface.unanswered.is_empty() {
        return false;
    }
    if iface.is_dead {
        return iface.broken.is_empty();
    }
    if !iface.broken.is_empty() || iface.fd.is_some() && !iface.iface.may_wait() {
        return false;
    }
    // Nothing reports that there is room again, or, without a descriptor, that a packet has arrived.
    let waits = !iface.control.is_empty();
    let tries = iface.fd.is_none() || waits || iface.iface.is_blocked();
    let watches = |peer| sink.watches_death(peer);
    let after = if tries {
        Some(TRY_MS)
    } else if iface.has_losses || is_several && iface.awaits_answer() {
        Some(OfiInterfaces::<S::Peer>::LOOK_MS)
    } else {
        let probes = iface.keepalive_ms != u64::MAX && iface.peers().any(watches);
        probes.then_some(iface.keepalive_ms)
    };
    timer.set(after.map(Duration::from_millis), None);
    iface.is_timed = after.is_some();
    true
}
