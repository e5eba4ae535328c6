//! The contract of a lane, for a connection by libfabric's messages.

use super::sender::OfiSender;
use crate::tl::contract::{LaneError, LaneOps, RecordHdr, Teardown};
use crate::tl::lane::sends_records;
use crate::tl::rma_ops::RmaOps;

impl LaneOps for OfiSender {
    sends_records!(LaneError::Refused, Ok);

    fn has_room_event(&self) -> bool {
        OfiSender::has_room_event(self)
    }

    fn is_drained(&self) -> bool {
        self.is_drained()
    }

    fn drain(&mut self) -> bool {
        self.drain()
    }

    /// Sends that are outstanding have buffers of the interface.
    fn teardown(&mut self, _is_dead: bool) -> Teardown {
        Teardown::Drop
    }
}

impl RmaOps for OfiSender {}
