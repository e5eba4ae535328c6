//! A further queue of a worker's, for parts of long transfers: on an interface of its own, with nothing but what is
//! posted there.
//!
//! There are no rings and no hall: nobody writes to a rail's queue but answers to what it has posted. What goes by
//! different rails is in no order: a transfer that used some is behind all of them when each has told of its part.

use super::Tuning;
use super::pinned::Store;
use super::queue::Queue;
use super::vcq::Vcq;
use crate::sys::lock::MtLock;
use std::io;
use std::sync::Arc;

/// A worker's. The peer's rails are in its address, in the same order ([`crate::wire::tofu::Rails`]); memory is
/// registered for all of them, ours and the peer's.
pub struct Rail {
    pub queue: MtLock<Queue>,
    /// Memory of the user's that is registered for it.
    pub store: Store,
    pub vcq: Arc<Vcq>,
    /// Which of the network interfaces it is on.
    pub tni: usize,
}

impl Rail {
    /// # Errors
    /// What the library says.
    pub fn new(vcq: Arc<Vcq>, tni: usize, tuning: &Tuning, mt: bool) -> io::Result<Rail> {
        let queue = Queue::new(vcq.clone(), tuning.packet as usize, tuning.notices as usize)?;
        Ok(Rail {
            queue: MtLock::new(mt, queue),
            store: Store::new(&vcq, mt),
            vcq,
            tni,
        })
    }
}
