//! What a device does for a request in the user's own memory.

use crate::ctypes::ucs_status_t;
use crate::sys::regcache::Handle;
use crate::tl::ib::mr::IbMr;
use crate::tl::tofu;

/// See the module. What changes while the device works is changed under the peer's lock.
pub struct Zcopy {
    /// Keeps the memory registered until the request ends: one for each piece of the data that is not empty.
    pub memory: Vec<Handle<IbMr>>,
    /// The same, for the adapter of the Tofu interconnect: of one piece.
    pub steered: Option<Handle<tofu::mr::TofuMr>>,
    /// The rails that move parts of it there, beside the connection's own queue; of an offer the peer's.
    pub shares: Vec<RailShare>,
    pub role: ZcopyRole,
    /// Where the other end is in the peer's address space.
    pub there: u64,
    /// Work requests that the device has.
    pub in_flight: u32,
    pub fate: ZcopyState,
    /// Parts of it went by rails: nothing that is said by the connection comes behind all of them.
    pub on_rails: bool,
    /// What a rail has not moved: offsets and lengths.
    pub again: Vec<(u64, usize)>,
}

/// What a rail of the Tofu interconnect needs for its parts of a transfer.
pub struct RailShare {
    /// Its place among the worker's rails, and among the peer's.
    pub rail: usize,
    /// Keeps our memory registered for it.
    pub memory: Handle<tofu::mr::TofuMr>,
    /// Where the peer's rail finds the first byte of the transfer, a steering address.
    pub there: u64,
}

/// Which side of what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZcopyRole {
    /// A put or get of the user's.
    Access,
    /// The sender of a rendezvous, who writes into the receiver's memory.
    Deliver,
    /// The receiver, whose memory the peer's device writes into. Its own does nothing.
    Receive,
    /// The sender, whose memory the peer's device may read as soon as it is offered. Its own does nothing.
    Offer,
    /// The receiver, who reads the sender's memory.
    Fetch,
}

/// What becomes of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZcopyState {
    /// Not all of it is posted.
    Going,
    /// All of it is: it ends when the device has done.
    Posted,
    /// It was taken out of every list before its time. Who did so says what comes of it.
    Taken,
    /// It has ended but for what the device still has of it.
    Ends(ucs_status_t),
}

impl Zcopy {
    /// Of which nothing was posted.
    pub fn new(memory: Vec<Handle<IbMr>>, role: ZcopyRole, there: u64) -> Self {
        Zcopy {
            memory,
            steered: None,
            shares: Vec::new(),
            role,
            there,
            in_flight: 0,
            fate: ZcopyState::Going,
            on_rails: false,
            again: Vec::new(),
        }
    }
}
