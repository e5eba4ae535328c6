//! The outcome of an event of a CM connection.

use crate::ctypes::*;
use crate::engine::endpoint::EndpointRef;
use crate::engine::peer::Peer;
use crate::engine::request::Request;
use crate::tl::address::WorkerAddress;
use std::sync::Arc;

/// The request of a completed flushing close, and its status.
pub(super) type EndedClose = (*mut Request, ucs_status_t);

/// What is done after an event, when the CM's lock is released.
pub(super) enum CmOutcome {
    Nothing,
    /// A client's connection has failed: its stub peer, and the status.
    Lost(Option<Arc<Peer>>, ucs_status_t),
    /// A client was accepted.
    Accepted(Box<WorkerAddress>),
    /// The peer's endpoint is closed: its disconnect byte, `None` if it was killed.
    Gone(Option<EndpointRef>, Option<u8>),
    /// A flushing close is complete.
    Closed(EndedClose),
}
