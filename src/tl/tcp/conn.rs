//! A connection of a worker: an attempt to connect, or an open socket.

use super::SharedSocket;
use super::receiver::TcpReceiver;
use std::sync::Arc;

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpConnPhase {
    /// This end is connecting.
    Connecting(ConnectAttempt),
    /// This end has sent its hello and waits for the peer's.
    HelloSent(ConnectAttempt),
    /// Half-open: accepted, without a complete hello. Closed at this time, coarse milliseconds.
    HalfOpen { until: u64 },
    /// Messages may arrive.
    Open,
    /// This end makes an out-of-band connection, to this one of the peer's addresses; `number`: its user's name for it.
    OobConnecting { number: u32, candidate: usize },
    /// An out-of-band connection, on which so many messages have arrived. `ours`: this end has connected.
    OobOpen { ours: bool, read: u32 },
}

/// An attempt to connect to a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectAttempt {
    /// Index of the peer's address.
    pub candidate: usize,
    /// Attempts that the peer accepted and closed.
    pub dropped: u32,
    /// Number of the last error; 0: none.
    pub error: i32,
}

/// A connection, as the progress thread keeps it. `P` names a peer.
pub struct TcpConn<P> {
    pub link: Arc<SharedSocket>,
    pub receiver: TcpReceiver,
    pub phase: TcpConnPhase,
    /// `None` for a half-open and an out-of-band connection.
    pub peer: Option<P>,
    /// How often the peer had lost this worker when the connection was made.
    pub losses: u32,
    /// It is in `TcpWorker::behind`.
    pub(super) in_behind: bool,
}

impl<P: Copy + Eq> TcpConn<P> {
    /// Whether it leads to this peer.
    pub fn is_to(&self, peer: P) -> bool {
        self.peer == Some(peer)
    }
}
