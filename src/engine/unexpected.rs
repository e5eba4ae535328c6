//! A tagged message that nobody has asked for yet.

use super::offer::Offer;
use super::peer::Peer;

/// Where the message is.
#[derive(Clone, Copy)]
pub enum Source {
    /// All here.
    Eager,
    /// All here, and the sender waits to hear of the match.
    Sync { peer: *const Peer, req: u64 },
    /// At the sender: a rendezvous to be started.
    Rts { peer: *const Peer, offer: Offer },
}

/// What the matcher keeps of it.
pub struct Unexpected {
    pub source: Source,
    /// Bytes of the whole message.
    pub len: usize,
    /// The bytes, where they are here.
    pub bytes: Box<[u8]>,
}

/// A message that `ucp_tag_probe_nb` took out: handed out as `ucp_tag_message_h`.
pub struct Removed {
    pub tag: u64,
    pub message: Unexpected,
}
