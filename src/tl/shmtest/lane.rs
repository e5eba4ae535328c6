//! The contract of a lane, for a socket: no capability.

use super::sender::ShmtestSender;
use crate::tl::contract::{LaneError, LaneOps, RecordHdr, Teardown};
use crate::tl::lane::sends_records;
use crate::tl::rma_ops::RmaOps;

impl LaneOps for ShmtestSender {
    sends_records!(LaneError::Refused, Ok);

    fn is_drained(&self) -> bool {
        self.is_drained()
    }

    fn teardown(&mut self, _is_dead: bool) -> Teardown {
        Teardown::Drop
    }
}

impl RmaOps for ShmtestSender {}
