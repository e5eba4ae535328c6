//! A message that waits at its sender: what a request to send says of it.

use crate::wire::header::RtsHdr;
use crate::wire::rts_keys;

/// Longest message: the user part of an address space.
const MAX_MESSAGE: u64 = 1 << 47;

/// What an RTS says.
#[derive(Clone, Copy)]
pub struct RtsInfo {
    /// The sender's name for its request.
    pub req: u64,
    /// Bytes of the message.
    pub len: usize,
    /// Where it is in the sender, or the list of its pieces; 0 if it cannot be copied from there.
    pub addr: u64,
    /// Entries of that list, 0 if there is none. Of a keyed offer the key.
    pub pieces: u32,
    /// Our device may read it, by a key for the port that the connection leads to.
    pub keyed: bool,
    /// The sender's rails, a bit each, whose steering addresses are kept beside this ([`rts_keys`]).
    pub rails: u8,
    /// The sender waits for others too.
    pub one_of_many: bool,
}

impl From<RtsHdr> for RtsInfo {
    fn from(h: RtsHdr) -> Self {
        RtsInfo {
            req: h.req,
            // Nobody has more; what follows computes with it.
            len: h.len.min(MAX_MESSAGE) as usize,
            addr: h.addr,
            pieces: h.pieces,
            keyed: false,
            rails: 0,
            one_of_many: h.waiting > 1,
        }
    }
}

impl RtsInfo {
    /// Bytes that are kept beside it.
    pub fn beside(&self) -> usize {
        rts_keys::len(self.rails)
    }
}
