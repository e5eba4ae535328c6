//! What contexts and workers hold for the transports. The layers above pass it on: what a transport keeps there is its
//! own affair.

use super::tofu::context::{TofuContext, TofuShared};
use crate::options::Options;

/// The transports' part of a context.
pub struct TlContext {
    pub tofu: TofuContext,
}

impl TlContext {
    pub fn new(options: &Options, program: Program) -> TlContext {
        TlContext {
            tofu: TofuContext::new(options, program),
        }
    }
}

/// What a context tells its transports of the program.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// It may wait for events (`UCP_FEATURE_WAKEUP`).
    pub sleeps: bool,
    /// Processes of the job on this host, if that is known.
    pub processes: Option<usize>,
    /// It uses atomic operations.
    pub amo: bool,
    /// All processes of the job are on this host and map each other's memory.
    pub one_host: bool,
}

/// The transports' part of a worker that all of its threads use; `None` where a transport is not used. `P` names a
/// peer.
pub struct TlWorker<P> {
    pub tofu: Option<TofuShared<P>>,
}
