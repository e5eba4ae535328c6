//! A further VCQ of a worker on a TNI of its own, for parts of long transfers.
//!
//! A rail has no rings and no ticket queue: its VCQ receives only notices of its own operations. Operations of
//! different rails are not ordered: a transfer over several is complete when each has completed its part.

use super::TofuTuning;
use super::mr::MrCache;
use super::op_queue::OpQueue;
use super::vcq::Vcq;
use crate::sys::lock::MtLock;
use std::io;
use std::sync::Arc;

/// A worker's rail. The peer's rails are in its address, in matching order ([`crate::wire::tofu_msg::RailVcqs`]);
/// memory is registered for the rails of both ends.
pub struct TofuRail {
    pub queue: MtLock<OpQueue>,
    /// Registration cache of user memory for the VCQ.
    pub store: MrCache,
    pub vcq: Arc<Vcq>,
    /// Index of the VCQ's TNI.
    pub tni: usize,
}

impl TofuRail {
    /// # Errors
    /// The system's or the library's error.
    pub fn new(vcq: Arc<Vcq>, tni: usize, tuning: &TofuTuning, mt: bool) -> io::Result<TofuRail> {
        let queue = OpQueue::new(vcq.clone(), tuning.packet as usize, tuning.notices as usize)?;
        Ok(TofuRail {
            queue: MtLock::new(mt, queue),
            store: MrCache::new(&vcq, mt),
            vcq,
            tni,
        })
    }
}
