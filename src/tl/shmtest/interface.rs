//! The sockets of a worker, as its progress calls them. They are polled in each call.

use super::worker::ShmtestWorker;
use super::{accept, close, connect, receive};
use crate::tl::interface::Interface;
use crate::tl::sink::Sink;
use crate::tl::{IfaceKind, TlContext};

impl<P: Copy + Eq> Interface for ShmtestWorker<P> {
    const KIND: IfaceKind = IfaceKind::Shmtest;
    const IS_ALWAYS_POLLED: bool = true;
    type Peer = P;

    fn poll<S: Sink<Peer = P>>(&mut self, sink: S) -> u32 {
        connect::retry(self, sink);
        self.send_waiting(sink);
        accept::accept(self);
        receive::receive(self, sink)
    }

    fn connect<S: Sink<Peer = P>>(&mut self, sink: S) {
        // A callback has forked, and this is the child: it connects to no peer.
        if !sink.is_inherited() {
            for peer in sink.take_connects(IfaceKind::Shmtest) {
                connect::connect(self, sink, peer);
            }
        }
    }

    fn tick<S: Sink<Peer = P>>(&mut self, sink: S, _context: &TlContext, now: u64) -> u32 {
        close::find_ended(self);
        let count = self.poll(sink);
        if !sink.is_inherited() {
            close::drop_ended(self, sink, now);
        }
        count
    }

    fn each_peer(&mut self, act: &mut dyn FnMut(P)) {
        self.peers().for_each(act);
    }

    fn close<S: Sink<Peer = P>>(&mut self, sink: S, _context: &TlContext) {
        close::close(self, sink);
    }
}
