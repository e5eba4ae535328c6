//! State of a transfer that a device makes in the memory of a request.

use crate::ctypes::ucs_status_t;
use crate::tl::TlZcopy;
use crate::tl::rma::RmaKey;

/// A zcopy transfer. Fields that change while the device works are changed under the peer's lock.
pub struct Zcopy {
    /// The transports' part.
    pub tl: TlZcopy,
    pub role: ZcopyRole,
    /// Address of the other end in the peer's address space.
    pub there: u64,
    pub key: RmaKey,
    /// Operations that are posted and not completed.
    pub in_flight: u32,
    pub fate: ZcopyState,
    /// Parts of it went by rails: a message by the connection's own queue does not come behind all of them.
    pub on_rails: bool,
}

/// Which side of which protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZcopyRole {
    /// A put or get of the user.
    Access,
    /// Sender of a put_zcopy rendezvous, whose device writes into the receiver's memory.
    Deliver,
    /// Receiver of a put_zcopy rendezvous: the peer's device writes into its memory; its own device does nothing.
    Receive,
    /// Sender of a get_zcopy rendezvous: the peer's device may read its memory once the RTS is sent; its own device
    /// does nothing.
    Offer,
    /// Receiver of a get_zcopy rendezvous, whose device reads the sender's memory.
    Fetch,
}

/// Progress of the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZcopyState {
    /// Not all of it is posted.
    Going,
    /// All of it is posted: it ends when the device has completed it.
    Posted,
    /// It was removed from every list before its end. The code that removed it completes the request.
    Taken,
    /// It is complete except for work requests that the device still has.
    Ends(ucs_status_t),
}

impl Zcopy {
    /// A transfer of which nothing is posted.
    pub fn new(tl: TlZcopy, role: ZcopyRole, there: u64, key: RmaKey) -> Self {
        Zcopy {
            tl,
            role,
            there,
            key,
            in_flight: 0,
            fate: ZcopyState::Going,
            on_rails: false,
        }
    }

    /// A transfer that the peer's device makes.
    pub fn by_peer(tl: TlZcopy, role: ZcopyRole) -> Self {
        Zcopy::new(tl, role, 0, RmaKey::None)
    }
}
