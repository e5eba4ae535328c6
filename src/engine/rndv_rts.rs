//! The decoded RTS of a rendezvous, for a message that waits at its sender.

use crate::wire::header::RtsHdr;
use crate::wire::rts_keys;

/// Longest message: the user part of an address space.
const MAX_MESSAGE: u64 = 1 << 47;

/// Fields of an RTS.
#[derive(Clone, Copy)]
pub struct RtsInfo {
    /// The sender's request id.
    pub req: u64,
    /// Bytes of the message.
    pub len: usize,
    /// Address in the sender's memory, of the message or of the list of its pieces; 0 if it cannot be copied from
    /// there.
    pub addr: u64,
    /// Entries of that list, 0 if there is none. With `keyed` the key.
    pub pieces: u32,
    /// Our device may read the message, by a key for the port of the connection.
    pub keyed: bool,
    /// Bit mask of the sender's rails; their STADDs are kept beside this ([`rts_keys`]).
    pub rails: u8,
    /// The sender waits for other messages too.
    pub one_of_many: bool,
}

impl From<RtsHdr> for RtsInfo {
    fn from(h: RtsHdr) -> Self {
        RtsInfo {
            req: h.req,
            // No process can have more; later arithmetic relies on the limit.
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
    /// Bytes of the STADDs that are kept beside it.
    pub fn beside(&self) -> usize {
        rts_keys::len(self.rails)
    }
}
