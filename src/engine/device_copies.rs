//! Copies by the driver of GPUs that run for requests of a worker.

use super::peer::PeerHold;
use super::request::{Request, ZcopyRole};
use crate::tl::cuda::DirectCopy;

/// A copy whose end completes a request.
pub struct RunningCopy {
    /// Has a transfer of one operation in flight. Not in any other list or table.
    pub req: *mut Request,
    /// That of the transfer.
    pub role: ZcopyRole,
    /// The request's peer.
    pub peer: PeerHold,
    pub copy: DirectCopy,
    /// Flushes that count its end as that of a child.
    pub flushes: Vec<*mut Request>,
}
