//! A connection by queue pairs, and its wireup.

use super::NegotiatedLimits;
use super::paths::PortPair;
use super::queues::IbvQp;
use super::reorder::Reorder;
use super::sender::{Credits, IbSender};
use super::tcp_wireup::TcpWireup;
use super::ud::AddressHandle;
use crate::tl::Lane;
use crate::tl::reassembly::Reassembly;
use crate::tl::sink::Sink;
use crate::wire::ib_port::PortLocator;
use std::sync::Arc;

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IbConnPhase {
    /// This end has sent its HELLO, and has received none of the peer.
    HelloSent,
    /// The HELLO of the peer has arrived, and this end can receive packets. Whether the peer can is not known.
    Known,
    /// Both ends can receive packets.
    Open,
}

/// The peer's end of a connection, from its HELLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteQp {
    /// Number and proof of the connection at the peer; datagrams to it carry both.
    pub number: u32,
    pub proof: u32,
    /// The peer's queue pair for the connection; 0: none.
    pub qpn: u32,
    /// Number of the peer's port among those of its address.
    pub port: u8,
    /// How often the peer had lost this worker.
    pub losses: u32,
    /// Queue pair of the peer's keepalive responder; 0: none.
    pub keepalive_qpn: u32,
}

/// Transport of the HELLO messages to a peer.
pub enum WireupChannel {
    Datagrams(AddressHandle),
    /// One of the two workers has no UD queue pair.
    Sockets(Box<TcpWireup>),
}

/// A connection, as the progress thread keeps it. `P` names a peer.
pub struct IbConn<P> {
    pub number: u32,
    /// Proof that datagrams to this end have to carry.
    pub proof: u32,
    pub peer: P,
    pub iface: usize,
    pub phase: IbConnPhase,
    /// The peer has acknowledged that this end is ready.
    pub seen: bool,
    /// The peer began the wireup. A connection of a worker to itself has one end that began and one that answered.
    pub answered: bool,
    pub remote_qp: Option<RemoteQp>,
    /// Secret that HELLO messages to the peer carry.
    pub secret: u64,
    /// Address of the peer's port, and transport of the HELLO messages to it.
    pub to: PortLocator,
    pub wireup: WireupChannel,
    /// All port pairs that lead to the peer, best first, of an endpoint with failover; else empty.
    pub paths: Vec<PortPair>,
    /// Queue pairs of the keepalive responder at each of the peer's ports, as far as they are known.
    pub keepalive_ports: Vec<u32>,
    /// The connection's own queue pair, if it has one, and the number of the first packet from it.
    pub qp: Option<Arc<IbvQp>>,
    pub psn: u32,
    pub flow: Arc<Credits>,
    /// Limits that both ends agree on, once the HELLO of the peer has arrived.
    pub limits: NegotiatedLimits,
    /// Queue pair of the keepalive responder of this process; 0: none.
    pub keepalive_qpn: u32,
    /// Sends acknowledgements and control messages where the peer's lane is not of this connection: at the answering
    /// end of a connection of a worker to itself, and where messages go by shared memory. Else `None`: the peer's lane
    /// sends them.
    pub reply_tx: Option<IbSender>,
    /// Last sequence number that the peer has acknowledged.
    pub acknowledged: u32,
    pub assembly: Reassembly,
    pub reorder: Reorder,
    /// When the HELLO is repeated, coarse milliseconds, and the interval after that.
    pub due: u64,
    pub wait: u64,
    /// When the connection was begun, and whether the log has a warning that it takes long.
    pub since: u64,
    pub late: bool,
    /// When it was last looked at whether the peer is to be probed.
    pub probed: u64,
    /// Requests waited for room then.
    pub has_waited: bool,
    /// It has received packets that are not acknowledged yet, and is in the worker's list of those.
    pub ack_scheduled: bool,
    /// Nothing more is received: the peer has disconnected or failed.
    pub ended: bool,
}

impl<P: Copy + Eq> IbConn<P> {
    /// Stops the queue pair: it receives nothing more, and posted work requests complete.
    pub(super) fn stop(&self) {
        if let Some(qp) = &self.qp {
            // A device that fails the call has no connection there any more.
            let _ = qp.stop();
        }
    }

    /// Whether the peer's lane does not use this connection any more.
    pub fn is_cut<S: Sink<Peer = P>>(&self, sink: S) -> bool {
        let is_ours = |lane: &mut Lane| matches!(lane, Lane::Ib(_));
        self.reply_tx.is_some() || !sink.with_lane(self.peer, is_ours).unwrap_or(false)
    }

    /// Calls `act` with the sending half, if there is one.
    #[inline]
    pub fn with_sender<S: Sink<Peer = P>, R>(
        &mut self,
        sink: S,
        act: impl FnOnce(&mut IbSender) -> R,
    ) -> Option<R> {
        match self.reply_tx.as_mut() {
            Some(reply_tx) => Some(act(reply_tx)),
            None => with_sender(sink, self.peer, act),
        }
    }

    /// When an open connection has to retransmit, or a probe of the peer is due, `keepalive` milliseconds after the
    /// last.
    pub(super) fn next_due<S: Sink<Peer = P>>(&mut self, sink: S, keepalive: u64) -> Option<u64> {
        let watched = sink.watches_death(self.peer);
        let probe = watched.then(|| self.probed.saturating_add(keepalive));
        let again = self.with_sender(sink, |sender| sender.next_due()).flatten();
        probe.into_iter().chain(again).min()
    }

    /// The TCP sockets of the wireup, if it does not use UD.
    pub fn oob(&mut self) -> Option<&mut TcpWireup> {
        match &mut self.wireup {
            WireupChannel::Sockets(oob) => Some(oob),
            WireupChannel::Datagrams(_) => None,
        }
    }

    /// Whether the wireup is complete.
    pub fn is_settled(&self) -> bool {
        self.phase == IbConnPhase::Open && self.seen
    }
}

/// Calls `act` with the sender to a peer, under the peer's lock. `None`: there is none.
#[inline]
pub fn with_sender<S: Sink, R>(
    sink: S,
    peer: S::Peer,
    act: impl FnOnce(&mut IbSender) -> R,
) -> Option<R> {
    let called = sink.with_lane(peer, |lane| match lane {
        Lane::Ib(sender) => Some(act(sender)),
        _ => None,
    });
    called.flatten()
}
