//! A receive by rendezvous: what its RTS says, and how far it is.

use super::{Op, Request, SplitCopy};
use crate::engine::rndv_rts::RtsInfo;

/// State of a receive from its RTS on.
#[derive(Clone, Copy, Debug)]
pub struct RndvRecv {
    /// The sender's id of the message, which the receiver's answer names.
    pub rts_id: u64,
    /// Address of the message at the sender, or of the list of its pieces; for the Tofu interconnect its STADD. 0: only
    /// the sender can access it.
    pub remote_addr: u64,
    /// The rkey if `keyed`, else the number of pieces.
    pieces_or_rkey: u32,
    keyed: bool,
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
        remote_addr: 0,
        pieces_or_rkey: 0,
        keyed: false,
        one_of_many: false,
        split: None,
        begun: false,
    };

    /// A receive that has not begun.
    pub fn new(rts: &RtsInfo) -> RndvRecv {
        RndvRecv {
            rts_id: rts.req,
            remote_addr: rts.addr,
            pieces_or_rkey: rts.pieces,
            keyed: rts.keyed,
            one_of_many: rts.one_of_many,
            split: None,
            begun: false,
        }
    }

    /// Entries of the list of the sender's pieces at `remote_addr`; 0: the message is one piece there.
    pub fn pieces(&self) -> u32 {
        if self.keyed { 0 } else { self.pieces_or_rkey }
    }

    /// The rkey by which a device of the receiver may read the message.
    pub fn rkey(&self) -> Option<u32> {
        self.keyed.then_some(self.pieces_or_rkey)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_rts_names_pieces_or_an_rkey() {
        let rts = RtsInfo {
            req: 1,
            len: 2,
            addr: 3,
            pieces: 4,
            keyed: false,
            rails: 0,
            one_of_many: true,
        };
        let listed = RndvRecv::new(&rts);
        assert_eq!((listed.pieces(), listed.rkey()), (4, None));
        let keyed = RndvRecv::new(&RtsInfo { keyed: true, ..rts });
        assert_eq!((keyed.pieces(), keyed.rkey()), (0, Some(4)));
    }
}
