//! The Tofu interface, as the progress of a worker calls it.

use super::worker::TofuWorker;
use super::{connect, receive};
use crate::tl::interface::Interface;
use crate::tl::sink::Sink;
use crate::tl::{IfaceKind, TlContext};

impl<P: Copy + Eq> Interface for TofuWorker<P> {
    const KIND: IfaceKind = IfaceKind::Tofu;
    const IS_ALWAYS_POLLED: bool = true;
    const USES_USER_MEMORY: bool = true;
    type Peer = P;

    #[inline(always)]
    fn poll<S: Sink<Peer = P>>(&mut self, sink: S) -> u32 {
        receive::progress(self, sink)
    }

    #[cold]
    #[inline(never)]
    fn connect<S: Sink<Peer = P>>(&mut self, sink: S) {
        // A callback has forked, and this is the child: it connects to no peer.
        if !sink.is_inherited() {
            connect::start(self, sink, sink.take_connects(IfaceKind::Tofu));
        }
    }

    fn tick<S: Sink<Peer = P>>(&mut self, sink: S, _context: &TlContext, now: u64) -> u32 {
        if !sink.is_inherited() {
            connect::tick(self, sink, now);
        }
        0
    }

    fn each_peer(&mut self, act: &mut dyn FnMut(P)) {
        self.peers().for_each(act);
    }

    fn each_sender(&self, act: &mut dyn FnMut(P)) {
        self.peers().for_each(act);
    }

    fn trim(&mut self) {
        TofuWorker::trim(self);
    }

    fn close<S: Sink<Peer = P>>(&mut self, sink: S, _context: &TlContext) {
        receive::close(self, sink);
    }
}
