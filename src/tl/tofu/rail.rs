//! A further queue of a worker's, for parts of long transfers: on an interface of its own, with nothing but what is
//! posted there.
//!
//! There are no rings and no hall: nobody writes to a rail's queue but answers to what it has posted. What goes by
//! different rails is in no order: a transfer that used some is behind all of them when each has told of its part.

use super::TofuTuning;
use super::mr::MrCache;
use super::op_queue::OpQueue;
use super::vcq::Vcq;
use crate::sys::lock::MtLock;
use std::io;
use std::sync::Arc;

/// A worker's. The peer's rails are in its address, in the same order ([`crate::wire::tofu_msg::RailVcqs`]); memory is
/// registered for all of them, ours and the peer's.
pub struct TofuRail {
    pub queue: MtLock<OpQueue>,
    /// Memory of the user's that is registered for it.
    pub store: MrCache,
    pub vcq: Arc<Vcq>,
    /// Which of the network interfaces it is on.
    pub tni: usize,
}

impl TofuRail {
    /// # Errors
    /// What the library says.
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
