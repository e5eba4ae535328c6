//! What the receiving half of a transport does for the progress of a worker: the contract of an interface.
//! docs/TRANSPORTS.md explains it with the rest.

use super::sink::Sink;
use super::{IfaceKind, TlContext};
use std::os::fd::BorrowedFd;

/// Maximum time that the destruction of a worker waits for the peers of one interface, milliseconds.
pub const LINGER_MS: u64 = 1000;

/// How the progress of an interface is compiled into that of its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressBy {
    /// As part of the worker's.
    Inlining,
    /// By a call.
    Call,
    /// By a call, with a sink that has no copy of the short path ([`Sink::cold`]).
    ColdCall,
}

/// What one worker has of a transport, besides its lanes: queues, sockets, connections, incoming rings.
///
/// The thread that progresses the worker calls these functions, one at a time, with no lock of a peer. Every function
/// is called statically, by [`TlRx`](super::TlRx).
pub trait Interface {
    const KIND: IfaceKind;
    /// How the worker's progress calls its progress.
    const PROGRESS: ProgressBy = ProgressBy::Call;
    /// It is polled in each progress call of the worker, from the first on.
    const IS_ALWAYS_POLLED: bool = false;
    /// Its device accesses user memory: it is closed after the others, and frees what it has then.
    const USES_USER_MEMORY: bool = false;
    /// Names a peer.
    type Peer: Copy + Eq;

    /// Polls, and handles what has arrived and what has completed. Returns the number of events.
    fn poll<S: Sink<Peer = Self::Peer>>(&mut self, sink: S) -> u32;

    /// Begins the connections that requests wait for ([`Sink::take_connects`]).
    fn connect<S: Sink<Peer = Self::Peer>>(&mut self, sink: S);

    /// Polls, and begins connections if there are any to begin. Returns the number of events.
    #[inline(always)]
    fn progress<S: Sink<Peer = Self::Peer>>(&mut self, sink: S) -> u32 {
        let count = self.poll(sink);
        if sink.has_connects(Self::KIND) {
            self.connect(sink.cold());
        }
        count
    }

    /// Polls what does not wait for the clock, which has not advanced. Returns the number of events.
    fn between_ticks<S: Sink<Peer = Self::Peer>>(&mut self, _sink: S) -> u32 {
        0
    }

    /// Does what is due at `now`, coarse milliseconds: repeats requests to connect, retransmits, probes peers, frees
    /// connections that have ended. Returns the number of events. Called when the clock has advanced, in
    /// forked children ([`Sink::is_inherited`]), too.
    fn tick<S: Sink<Peer = Self::Peer>>(&mut self, sink: S, context: &TlContext, now: u64) -> u32;

    /// Prepares for sleep: what arrives from now on makes a descriptor readable. False: there is work, or no descriptor
    /// reports what arrives, so that the worker never sleeps.
    fn arm<S: Sink<Peer = Self::Peer>>(&mut self, _sink: S) -> bool {
        false
    }

    /// Whether a descriptor becomes readable when something is due, and the clock has to be read then.
    fn is_timed(&self) -> bool {
        false
    }

    /// Calls `act` with each descriptor that wakes a sleeping worker. They are the same from open to close.
    fn each_descriptor(&self, _act: &mut dyn FnMut(BorrowedFd<'_>)) {}

    /// Calls `act` with the peer of each connection and each incoming ring; with some more than once.
    fn each_peer(&mut self, act: &mut dyn FnMut(Self::Peer));

    /// Calls `act` with the peers that may send without a connection of this side, and end of themselves.
    fn each_sender(&self, _act: &mut dyn FnMut(Self::Peer)) {}

    /// The device writes nothing more for these peers, which have failed, and nothing more of what they have sent is
    /// handled. Called before their requests end. Lanes are ended by [`teardown`](super::contract::LaneOps::teardown).
    fn end_peers(&mut self, _has_failed: &dyn Fn(Self::Peer) -> bool) {}

    /// Frees memory that was needed when there were many more peers.
    fn trim(&mut self) {}

    /// Closes all connections and drops their lanes: waits, for a time, until peers that are alive have received what
    /// was sent.
    fn close<S: Sink<Peer = Self::Peer>>(&mut self, sink: S, context: &TlContext);
}
