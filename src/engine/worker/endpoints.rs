//! Endpoints of a worker.

use super::Worker;
use crate::ctypes::*;
use crate::engine::endpoint::{Endpoint, EpFlags};
use crate::engine::peer::Peer;
use crate::engine::pointers::WorkerRef;

impl Worker {
    /// An endpoint with default parameters.
    pub fn new_endpoint(&self, peer: &Peer, sn: u32, remote_sn: u32, flags: EpFlags) -> Endpoint {
        // SAFETY: the memory of endpoints is the worker's.
        let owner = unsafe { WorkerRef::new(self) };
        Endpoint::new(owner, peer, sn, remote_sn, flags | self.slow_path_flags())
    }

    /// The operations that do not take the fast path, as flags of an endpoint.
    fn slow_path_flags(&self) -> EpFlags {
        let slow_paths = [
            (UCP_FEATURE_TAG, EpFlags::SLOW_PATH_TAG),
            (UCP_FEATURE_AM, EpFlags::SLOW_PATH_AM),
            (UCP_FEATURE_RMA, EpFlags::SLOW_PATH_RMA),
            (UCP_FEATURE_AMO32, EpFlags::SLOW_PATH_AMO32),
            (UCP_FEATURE_AMO64, EpFlags::SLOW_PATH_AMO64),
        ];
        let mut flags: EpFlags = slow_paths
            .into_iter()
            .filter(|&(feature, _)| !self.takes_fast_path(feature))
            .map(|(_, flag)| flag)
            .collect();
        // Copies of devices may have to be waited for.
        let copies = self.ctx.cuda.as_ref().is_some_and(|cuda| cuda.has_ipc());
        flags.set(EpFlags::SLOW_PATH_FLUSH, copies);
        flags
    }
}
