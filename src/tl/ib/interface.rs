//! The InfiniBand interface, as the progress of a worker calls it.

use super::worker::IbWorker;
use super::{close, connect, connect_rails, receive, upkeep};
use crate::tl::interface::{Interface, ProgressBy};
use crate::tl::sink::Sink;
use crate::tl::{IfaceKind, TlContext};
use std::os::fd::BorrowedFd;

impl<P: Copy + Eq> Interface for IbWorker<P> {
    const KIND: IfaceKind = IfaceKind::Ib;
    const PROGRESS: ProgressBy = ProgressBy::Inlining;
    const USES_USER_MEMORY: bool = true;
    type Peer = P;

    #[inline(always)]
    fn poll<S: Sink<Peer = P>>(&mut self, sink: S) -> u32 {
        receive::poll(self, sink)
    }

    #[cold]
    #[inline(never)]
    fn connect<S: Sink<Peer = P>>(&mut self, sink: S) {
        connect::start(self, sink, sink.take_connects(IfaceKind::Ib));
        connect_rails::start(self, sink, sink.take_rail_events());
        raise(self, sink);
    }

    /// Connection requests do not wait for the clock.
    fn between_ticks<S: Sink<Peer = P>>(&mut self, sink: S) -> u32 {
        receive::poll(self, sink)
    }

    #[cold]
    fn tick<S: Sink<Peer = P>>(&mut self, sink: S, context: &TlContext, now: u64) -> u32 {
        self.stop_timer();
        context.ib.trim();
        upkeep::tick(self, sink, now);
        let count = receive::poll(self, sink);
        raise(self, sink);
        if self.is_quiet() {
            sink.set_polled(IfaceKind::Ib, false);
        }
        count
    }

    fn arm<S: Sink<Peer = P>>(&mut self, sink: S) -> bool {
        IbWorker::arm(self, sink)
    }

    fn is_timed(&self) -> bool {
        self.timed
    }

    fn each_descriptor(&self, act: &mut dyn FnMut(BorrowedFd<'_>)) {
        self.descriptors().for_each(act);
    }

    fn each_peer(&mut self, act: &mut dyn FnMut(P)) {
        self.iter().for_each(|c| act(c.peer));
    }

    fn end_peers(&mut self, has_failed: &dyn Fn(P) -> bool) {
        self.end(has_failed);
    }

    fn close<S: Sink<Peer = P>>(&mut self, sink: S, context: &TlContext) {
        context.ib.forget_worker(self.uid);
        close::close(self, sink);
    }
}

/// Has progress called for what there is to do.
pub fn raise<S: Sink>(ports: &IbWorker<S::Peer>, sink: S) {
    if !ports.is_quiet() {
        sink.set_polled(IfaceKind::Ib, true);
    }
    if !ports.oob_requests.is_empty() {
        sink.set_polled(IfaceKind::Tcp, true);
    }
}
