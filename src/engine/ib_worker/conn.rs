//! A connection by queue pairs, and its wireup.

use crate::engine::request::PeerRef;
use crate::tl::Lane;
use crate::tl::ib::NegotiatedLimits;
use crate::tl::ib::paths::PortPair;
use crate::tl::ib::queues::IbvQp;
use crate::tl::ib::reorder::Reorder;
use crate::tl::ib::sender::{Credits, IbSender};
use crate::tl::ib::ud::AddressHandle;
use crate::tl::reassembly::Reassembly;
use crate::tl::tcp::{self, SharedSocket};
use crate::wire::address::PortLocator;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::Ordering;

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

/// After so many milliseconds without progress of a TCP connection another address is tried: the kernel has sent two
/// SYNs, and retries for minutes.
const CONNECT_STALL_MS: u64 = 3000;

/// Transport of the HELLO messages to a peer.
pub enum WireupChannel {
    Datagrams(AddressHandle),
    /// One of the two workers has no UD queue pair.
    Sockets(Box<TcpWireup>),
}

/// The TCP sockets of a wireup. Closed when the queue pairs are connected, or with the connection.
#[derive(Default)]
pub struct TcpWireup {
    /// Address to connect to, and number of the peer's port; `None`: the peer connects, and does so again when needed.
    pub target: Option<(tcp::TcpTarget, u8)>,
    /// The socket that this end has connected or is connecting, and since when, coarse milliseconds.
    pub ours: Option<Arc<SharedSocket>>,
    pub since: u64,
    /// `ours` is connected.
    pub through: bool,
    /// Index of the peer's address that is tried first.
    pub first: usize,
    /// The last socket that the peer has connected.
    pub theirs: Option<Arc<SharedSocket>>,
}

impl TcpWireup {
    /// A wireup without sockets, to the peer's port with the number `far`.
    pub fn to(target: tcp::TcpTarget, far: u8) -> TcpWireup {
        let mut wireup = TcpWireup::default();
        wireup.target = Some((target, far));
        wireup
    }

    /// Whether this end has to connect a socket: there is none, or the peer may be reached sooner at another address.
    pub fn is_wanted(&mut self, now: u64) -> bool {
        let Some((target, _)) = &self.target else {
            return false;
        };
        let others = target.locator.addresses.len() > 1;
        if self.ours.is_some() && !self.through && others && now - self.since >= CONNECT_STALL_MS {
            self.first += 1;
            self.close();
        }
        self.ours.is_none()
    }

    /// Shuts down the handshake socket of this end, which has nothing left to send: the thread that polls it sees its
    /// end.
    pub fn close(&mut self) {
        if let Some(link) = self.ours.take() {
            let _ = link.socket.shutdown(Shutdown::Both);
        }
        self.through = false;
    }
}

impl Drop for TcpWireup {
    fn drop(&mut self) {
        self.close();
        if let Some(link) = &self.theirs {
            let _ = link.socket.shutdown(Shutdown::Both);
        }
    }
}

/// A connection, as the progress thread keeps it.
pub struct IbConn {
    pub number: u32,
    /// Proof that datagrams to this end have to carry.
    pub proof: u32,
    pub peer: PeerRef,
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
    /// When the peer was last probed.
    pub probed: u64,
    /// It has received packets that are not acknowledged yet, and is in the worker's list of those.
    pub ack_scheduled: bool,
    /// Nothing more is received: the peer has disconnected or failed.
    pub ended: bool,
}

impl IbConn {
    /// Stops the queue pair: it receives nothing more, and posted work requests complete.
    pub(super) fn stop(&self) {
        if let Some(qp) = &self.qp {
            // A device that fails the call has no connection there any more.
            let _ = qp.stop();
        }
    }

    /// Whether the peer's lane does not use this connection any more.
    pub fn is_cut(&self) -> bool {
        self.reply_tx.is_some() || !matches!(self.peer.get().tx.lock().lane, Some(Lane::Ib(_)))
    }

    /// Calls `act` with the sending half, if there is one.
    pub fn with_sender<R>(&mut self, act: impl FnOnce(&mut IbSender) -> R) -> Option<R> {
        if let Some(back) = self.reply_tx.as_mut() {
            return Some(act(back));
        }
        match self.peer.get().tx.lock().lane.as_mut() {
            Some(Lane::Ib(sender)) => Some(act(sender)),
            _ => None,
        }
    }

    /// When an open connection has to retransmit, or a probe of the peer is due.
    pub(super) fn next_due(&mut self, keepalive: u64) -> Option<u64> {
        // Relaxed: set once; a later call may see it.
        let guarded = self.peer.get().watch_death.load(Ordering::Relaxed);
        let probe = guarded.then(|| self.probed.saturating_add(keepalive));
        let again = self.with_sender(|sender| sender.next_due()).flatten();
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
