//! A receive by rendezvous: what its RTS says, and how far it is.

use super::{Op, Request};
use crate::engine::rndv_rts::{RtsInfo, RtsSource};
use crate::tl::SplitCopy;

/// State of a receive from its RTS on.
#[derive(Clone, Copy, Debug)]
pub struct RndvRecv {
    /// The sender's id of the message, which the receiver's answer names.
    pub rts_id: u64,
    pub source: RtsSource,
    /// The sender has other messages that wait too.
    pub one_of_many: bool,
    /// The split copy, while the sender may copy a part.
    pub split: Option<SplitCopy>,
    /// The scheme is chosen: from here on the receiver copies the rest alone, or waits.
    pub begun: bool,
}

impl RndvRecv {
    /// What a request has that is no such receive.
    const NONE: RndvRecv = RndvRecv {
        rts_id: 0,
        source: RtsSource::SenderOnly,
        one_of_many: false,
        split: None,
        begun: false,
    };

    /// A receive that has not begun.
    pub fn new(rts: &RtsInfo) -> RndvRecv {
        RndvRecv {
            rts_id: rts.req,
            source: rts.source,
            one_of_many: rts.one_of_many,
            split: None,
            begun: false,
        }
    }
}

impl Request {
    /// The state of a receive by rendezvous.
    pub fn rndv_recv(&self) -> &RndvRecv {
        match &self.op {
            Op::RndvRecv(recv) => recv,
            _ => {
                debug_assert!(false, "not a receive by rendezvous");
                &RndvRecv::NONE
            }
        }
    }

    /// The state of a receive by rendezvous, to be changed.
    pub fn rndv_recv_mut(&mut self) -> Option<&mut RndvRecv> {
        match &mut self.op {
            Op::RndvRecv(recv) => Some(recv),
            _ => None,
        }
    }

    /// Whether it is the receive of the message with this RTS id.
    pub fn is_receive_of(&self, rts_id: u64) -> bool {
        matches!(&self.op, Op::RndvRecv(recv) if recv.rts_id == rts_id)
    }
}
