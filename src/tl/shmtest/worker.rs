//! The listening socket of a worker, and its connections.

use super::MAX_PACKET;
use super::address::ShmtestLocator;
use super::sender::{ShmtestSender, TxLink};
use super::socket::{self, Socket};
use crate::sys::host;
use crate::tl::Lane;
use crate::tl::sink::Sink;
use std::io;
use std::sync::Arc;

/// A connection that this worker has made.
pub struct ShmtestTxConn<P> {
    pub peer: P,
    pub link: Arc<TxLink>,
    /// The peer has closed it.
    pub has_ended: bool,
}

/// A connection that a peer has made.
pub struct ShmtestRxConn<P> {
    pub socket: Socket,
    /// `None`: half-open, accepted without a hello.
    pub peer: Option<P>,
    /// Time at which it is closed if it is half-open, coarse milliseconds.
    pub until: u64,
}

/// Used by the progress thread only. `P` names a peer.
pub struct ShmtestWorker<P> {
    /// The worker's own.
    pub uid: u64,
    pub own: ShmtestLocator,
    pub listener: Socket,
    pub tx: Vec<ShmtestTxConn<P>>,
    /// In the order in which they were accepted.
    pub rx: Vec<ShmtestRxConn<P>>,
    /// Peers at whose sockets too many connections wait.
    pub retries: Vec<P>,
    /// The packet that is handled.
    pub buffer: Box<[u8]>,
}

impl<P: Copy + Eq> ShmtestWorker<P> {
    /// The state of the worker with this uid: a listening socket.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn new(uid: u64) -> io::Result<ShmtestWorker<P>> {
        let own = ShmtestLocator::here(host::random_u64(), host::random_u64());
        Ok(ShmtestWorker {
            uid,
            own,
            listener: socket::listen(own.name)?,
            tx: Vec::new(),
            rx: Vec::new(),
            retries: Vec::new(),
            buffer: vec![0; MAX_PACKET].into_boxed_slice(),
        })
    }

    /// The section of the worker's address.
    pub fn locator(&self) -> ShmtestLocator {
        self.own
    }

    /// The peers of all connections, and those that are to be connected.
    pub fn peers(&self) -> impl Iterator<Item = P> {
        let tx = self.tx.iter().map(|conn| conn.peer);
        let rx = self.rx.iter().filter_map(|conn| conn.peer);
        tx.chain(rx).chain(self.retries.iter().copied())
    }

    /// Sends the records that wait for room.
    pub fn send_waiting<S: Sink<Peer = P>>(&self, sink: S) {
        for conn in self.tx.iter().filter(|conn| conn.link.is_blocked()) {
            with_sender(sink, conn.peer, ShmtestSender::flush);
        }
    }
}

/// Calls `act` with the sender to a peer, under the peer's lock. `None`: there is none.
pub fn with_sender<S: Sink, R>(
    sink: S,
    peer: S::Peer,
    act: impl FnOnce(&mut ShmtestSender) -> R,
) -> Option<R> {
    let called = sink.with_lane(peer, |lane| match lane {
        Lane::Shmtest(sender) => Some(act(sender)),
        _ => None,
    });
    called.flatten()
}
