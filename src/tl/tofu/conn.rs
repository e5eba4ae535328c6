//! The connections of a worker as its progress thread sees them: to rings at peers, and from peers to rings here.

use super::address::TofuLocator;
use super::ctrl_words::CtrlWord;
use super::op_queue::OpTag;
use super::rx_ring::RxRing;
use super::tx_acks::TxAcks;
use super::vcq::RemoteAddr;
use crate::tl::reassembly::Reassembly;
use std::sync::Arc;

/// Bytes of a ring from which on the memory for its long records is kept.
const KEEP_REASSEMBLY_BYTES: u32 = 64 << 10;

/// State of a connection until there is a ring at the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TofuConnPhase {
    /// A ticket is requested.
    TakingTicket,
    /// The connection has a ticket, whose turn has not come.
    Waiting { ticket: u32 },
    /// The ring request is in the ticket's slot.
    Requested { ticket: u32 },
    /// The peer has granted a ring.
    Open,
    /// The peer has failed, and a read is posted behind all puts of the connection: it is the last operation.
    Closing,
}

/// Where a connection leads.
#[derive(Clone, Copy, Debug)]
pub struct ConnTarget {
    pub uid: u64,
    /// Earlier peers with this uid that have failed.
    pub losses: u32,
    pub locator: TofuLocator,
}

/// A connection to a ring at a peer, as the progress thread sees it. `P` names a peer.
pub struct TofuConn<P> {
    pub peer: P,
    pub to: ConnTarget,
    pub ctrl_word: CtrlWord,
    pub tag: OpTag,
    /// Random number that the grant has to contain.
    pub proof: u32,
    pub flow: Arc<TxAcks>,
    pub phase: TofuConnPhase,
    /// When to query the ticket queue again, coarse milliseconds, and when the connection was begun.
    pub due: u64,
    pub since: u64,
    /// The delay was logged.
    pub late: bool,
    /// When it was last looked at whether the peer is to be probed.
    pub probed: u64,
    /// Requests waited for room then.
    pub has_waited: bool,
}

/// A ring for a peer that is not connected yet.
pub struct NewRing {
    pub ring: RxRing,
    /// Frames come without notices: the writer counts them.
    pub counted: bool,
}

/// A ring in this worker's memory, which a peer writes. `P` names a peer.
pub struct RxConn<P> {
    pub peer: P,
    pub uid: u64,
    pub ring: RxRing,
    pub assembly: Reassembly,
    /// The peer's control words, to which credits go, and the proof in its grant, which names the ring.
    pub ctrl_word: RemoteAddr,
    pub proof: u32,
    /// Frames come without notices: the writer counts them.
    pub counted: bool,
    /// No more frames are read: the peer has closed or failed.
    pub ended: bool,
    /// When the writer was last probed, coarse milliseconds.
    pub probed: u64,
}

impl<P> RxConn<P> {
    /// Called after a frame: where there are many peers, and rings are short, memory for long records is not kept per
    /// peer.
    #[inline(never)]
    pub fn settle(&mut self) {
        if self.ring.shape().size < KEEP_REASSEMBLY_BYTES && self.assembly.is_empty() {
            self.assembly = Reassembly::default();
        }
    }
}
