//! How an endpoint accesses memory of peers.

use super::bindings::{FI_COMPLETION, FI_DELIVERY_COMPLETE};
use super::device::{OfiDelivery, OfiDevice};
use super::iov::MAX_IOV;

/// Most bytes of one operation.
const MAX_ZCOPY: usize = 1 << 30;

/// How an endpoint accesses memory of peers.
#[derive(Clone, Copy, Debug)]
pub struct RmaLimits {
    /// How the arrival of writes is found out.
    pub delivery: OfiDelivery,
    /// Bytes of the longest operation.
    pub max: usize,
    /// Pieces of local memory of one operation.
    pub max_iov: usize,
    /// Operations on memory of one peer that are not complete.
    pub window: u32,
}

impl RmaLimits {
    /// Those of an endpoint of the device. `window`: operations on memory of one peer that are not complete. `None`: it
    /// accesses no memory of peers.
    pub fn new(device: &OfiDevice, window: u32) -> Option<RmaLimits> {
        device.has_rma().then(|| RmaLimits {
            delivery: device.delivery(),
            max: device.ep().max_msg_size.min(MAX_ZCOPY),
            max_iov: device.tx().iov_limit.clamp(1, MAX_IOV),
            window,
        })
    }

    /// Whether writes can be used: their arrival can be found out.
    pub fn writes(&self) -> bool {
        self.delivery != OfiDelivery::Unknown
    }

    /// Flags of a write.
    pub fn flags(&self) -> u64 {
        let delivered = match self.delivery {
            OfiDelivery::Completion => FI_DELIVERY_COMPLETE,
            OfiDelivery::Answer | OfiDelivery::Unknown => 0,
        };
        u64::from(FI_COMPLETION | delivered)
    }
}
