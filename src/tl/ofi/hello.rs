//! A request to connect, until the peer has answered or the connection has failed.

use crate::ctypes::ucs_status_t;

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

/// A connection that has failed before the peer has answered, or that it has not answered in time: it has carried
/// nothing.
pub struct FailedConnect<P> {
    pub peer: P,
    pub uid: u64,
    pub status: ucs_status_t,
    pub obstacle: String,
}
