//! The transport's interface, as the progress of a worker calls it.

use super::endpoint::borrowed;
use super::worker::OfiWorker;
use super::{close, connect, receive, upkeep};
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
        receive::poll(self, sink)
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
        receive::poll(self, sink)
    }

    fn connect<S: Sink<Peer = P>>(&mut self, sink: S) {
        // A callback has forked, and this is the child: it connects to no peer.
        if !sink.is_inherited() {
            for peer in sink.take_connects(IfaceKind::Ofi) {
                connect::connect(self, sink, peer);
            }
        }
    }

    fn tick<S: Sink<Peer = P>>(&mut self, sink: S, _context: &TlContext, now: u64) -> u32 {
        if sink.is_inherited() {
            return 0;
        }
        self.stop_timer();
        upkeep::tick(self, sink, now);
        self.poll(sink)
    }

    fn arm<S: Sink<Peer = P>>(&mut self, sink: S) -> bool {
        let Some(timer) = &self.timer else {
            return false;
        };
        if self.is_dead {
            return self.broken.is_empty();
        }
        if !self.broken.is_empty() || self.fd.is_some() && !self.iface.may_wait() {
            return false;
        }
        // Nothing reports that there is room again, or, without a descriptor, that a packet has arrived.
        let waits = !self.control.is_empty() || self.has_losses;
        let tries = self.fd.is_none() || waits || self.iface.is_blocked();
        let watches = |peer| sink.watches_death(peer);
        let after = if tries {
            Some(TRY_MS)
        } else {
            let probes = self.keepalive_ms != u64::MAX && self.peers().any(watches);
            probes.then_some(self.keepalive_ms)
        };
        timer.set(after.map(Duration::from_millis), None);
        self.is_timed = after.is_some();
        true
    }

    fn is_timed(&self) -> bool {
        self.is_timed
    }

    fn each_descriptor(&self, act: &mut dyn FnMut(BorrowedFd<'_>)) {
        if let Some(fd) = self.fd {
            // SAFETY: the queue's own, open as long as the endpoint.
            act(unsafe { borrowed(fd) });
        }
        if let Some(timer) = &self.timer {
            act(timer.as_fd());
        }
    }

    fn each_peer(&mut self, act: &mut dyn FnMut(P)) {
        self.named_peers().for_each(act);
    }

    fn close<S: Sink<Peer = P>>(&mut self, sink: S, _context: &TlContext) {
        close::close(self, sink);
    }
}
