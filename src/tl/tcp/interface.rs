//! The sockets of a worker, as its progress calls them.

use super::worker::TcpWorker;
use crate::tl::ib::interface::raise;
use crate::tl::ib::oob::IbOob;
use crate::tl::ib::worker::IbWorker;
use crate::tl::interface::{Interface, ProgressBy};
use crate::tl::sink::Sink;
use crate::tl::{IfaceKind, TlContext};
use std::os::fd::{AsFd, BorrowedFd};

/// The sockets, and what else they serve.
pub struct Sockets<'a, P> {
    pub sockets: &'a mut TcpWorker<P>,
    /// The user of out-of-band connections; `None` where there is none.
    pub ports: Option<&'a mut IbWorker<P>>,
    /// The progress call polls rings in shared memory, too.
    pub has_rings: bool,
}

impl<P: Copy + Eq> Interface for Sockets<'_, P> {
    const KIND: IfaceKind = IfaceKind::Tcp;
    const PROGRESS: ProgressBy = ProgressBy::ColdCall;
    type Peer = P;

    /// Connects in each call that polls, because attempts that have failed are repeated, and in no other.
    fn progress<S: Sink<Peer = P>>(&mut self, sink: S) -> u32 {
        if !self.sockets.is_due(self.has_rings) {
            return 0;
        }
        self.connect(sink);
        self.poll(sink)
    }

    fn poll<S: Sink<Peer = P>>(&mut self, sink: S) -> u32 {
        let ports = self.ports.as_deref_mut();
        let mut oob = IbOob { sink, ports };
        if oob.is_due() {
            oob.start(self.sockets);
        }
        let polled = self.sockets.progress(sink, &mut oob, self.has_rings);
        if polled.has_read_events {
            settle(self, sink);
        }
        polled.count
    }

    fn connect<S: Sink<Peer = P>>(&mut self, sink: S) {
        (self.sockets).start(sink, sink.take_connects(IfaceKind::Tcp));
    }

    fn between_ticks<S: Sink<Peer = P>>(&mut self, sink: S) -> u32 {
        if !self.sockets.is_look_due() {
            return 0;
        }
        look(self, sink)
    }

    fn tick<S: Sink<Peer = P>>(&mut self, sink: S, _context: &TlContext, _now: u64) -> u32 {
        look(self, sink)
    }

    fn arm<S: Sink<Peer = P>>(&mut self, _sink: S) -> bool {
        self.sockets.behind() == 0 && self.sockets.sleep_until_due()
    }

    fn each_descriptor(&self, act: &mut dyn FnMut(BorrowedFd<'_>)) {
        act(self.sockets.epoll.as_fd());
    }

    fn each_peer(&mut self, act: &mut dyn FnMut(P)) {
        let conns = self.sockets.iter().filter_map(|c| c.peer);
        let retries = self.sockets.retries.iter().map(|r| r.peer);
        conns.chain(retries).for_each(act);
    }

    fn close<S: Sink<Peer = P>>(&mut self, sink: S, _context: &TlContext) {
        self.sockets.close(sink);
    }
}

/// Polls the sockets of a worker whose progress calls may not do so, because no connection is open.
#[cold]
fn look<P: Copy + Eq, S: Sink<Peer = P>>(sockets: &mut Sockets<'_, P>, sink: S) -> u32 {
    if sink.is_inherited() {
        return 0;
    }
    let ports = sockets.ports.as_deref_mut();
    let polled = (sockets.sockets).tick(sink, &mut IbOob { sink, ports });
    if polled.has_read_events {
        settle(sockets, sink);
    }
    polled.count
}

/// Has the sockets polled further, unless there is only the listening one.
fn settle<S: Sink>(iface: &mut Sockets<'_, S::Peer>, sink: S) {
    let ports = iface.ports.as_deref();
    let requested = ports.is_some_and(|ports| !ports.oob_requests.is_empty());
    sink.set_polled(IfaceKind::Tcp, requested || !iface.sockets.is_quiet());
    // A peer may have begun a connection by a message on a socket.
    if let Some(ports) = ports {
        raise(ports, sink);
    }
}
