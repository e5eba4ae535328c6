//! A request to connect, until the peer has answered or the connection has failed.

use super::tx_link::OfiTxLink;
use crate::ctypes::ucs_status_t;
use std::sync::Arc;

/// How long a request to connect has not been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelloAge {
    /// Not for long.
    Recent,
    /// For so long that the next interface connects, too.
    Late,
    /// So long, and the lane goes another way meanwhile, which the log says.
    Replaced,
    /// The time to answer is over, and the connection counts as failed. A late answer is as good as one in time for
    /// what the peer sends.
    Expired,
}

/// A request to connect that the peer has not answered.
pub struct PendingHello {
    pub packet: Vec<u8>,
    /// When it is sent again, coarse milliseconds, and the interval after that.
    pub again: u64,
    pub interval: u64,
    /// Why the peer cannot be reached, as far as the provider has said; empty: it has not.
    pub obstacle: String,
    pub age: HelloAge,
}

/// What a connection is begun for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectFor {
    Rail,
    Lane,
    /// A lane that goes on by another interface if one fails, whichever interface begins it. It takes the place of a
    /// request that has failed, if there is one.
    FailoverLane(Option<FailedHello>),
}

/// A request to connect with failover that has failed. The peer may have got it: then the answer is lost, and the
/// request by the next interface moves the connection that the peer has opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedHello {
    /// The key that this end has granted first.
    pub key: u64,
    /// Number of the packet that this end expects next.
    pub next: u32,
}

/// A connection that has failed before the peer has answered, or that it has not answered in time: it has sent nothing.
pub struct FailedConnect<P> {
    pub peer: P,
    pub uid: u64,
    /// Its request, if it has failed, and is one with failover.
    pub hello: Option<FailedHello>,
    pub status: ucs_status_t,
    /// Why it has failed, and what to do.
    pub obstacle: String,
}

/// A request of a peer that was answered by a reset, which may not have left.
pub struct RefusedHello {
    pub link: Arc<OfiTxLink>,
    /// Where the reset goes: inserted as long as this value exists.
    pub name: Arc<[u8]>,
}
