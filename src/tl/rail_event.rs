//! Events of a connection's rails, from the thread that sees one to the thread that progresses the worker.

use super::IfaceKind;
use crate::wire::header::RailImm;
use crate::wire::ib_port::PortLocator;

/// Work of the progress thread for the rails to a peer.
pub enum RailEvent {
    /// Request a rail for each of our ports.
    RequestRails,
    /// The peer requests a rail.
    PeerRequest(RailImm, PortLocator),
    /// The peer has connected its end of a rail.
    PeerReply(RailImm, PortLocator),
    /// The local device has failed for the rail with this interface and queue pair.
    LocalFailure((usize, u32)),
    /// The peer has given up its end of a rail, because its device has failed.
    PeerGaveUp(RailImm),
    /// The peer has dropped its end of a failed rail.
    PeerDropped(RailImm),
}

impl RailEvent {
    /// The interface that does the work.
    pub const IFACE: IfaceKind = IfaceKind::Ib;
}
