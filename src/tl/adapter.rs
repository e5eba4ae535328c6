//! The senders of lanes with an adapter, by what their adapter needs to find memory of a peer.

use super::ib::sender::IbSender;
use super::lane::{Lane, LaneSender};
use super::ofi::sender::OfiSender;
use super::rma_ops::RmaOps;
use super::rma_short::RmaShort;
use super::tofu::sender::TofuSender;

/// The sender of lanes whose adapter finds memory by rkeys.
pub type RkeySender = IbSender;
/// The sender of lanes whose adapter finds memory by STADDs.
pub type StaddSender = TofuSender;

/// The sender of lanes whose adapter has a library for messages.
pub type MessageSender = OfiSender;

/// The sender of a lane with an adapter.
pub trait AdapterSender: LaneSender + RmaOps + RmaShort {}

impl AdapterSender for RkeySender {}
impl AdapterSender for StaddSender {}

/// What flushes a lane that leads through a device at once.
pub enum FlushBy<'a> {
    Rkeys(&'a mut RkeySender),
    Stadds(&'a mut StaddSender),
    /// The slow path.
    Other,
}

impl Lane {
    /// What flushes a lane that leads through a device at once.
    #[inline(always)]
    pub fn flush_by(&mut self) -> FlushBy<'_> {
        match self {
            Lane::Ib(sender) => FlushBy::Rkeys(sender),
            Lane::Tofu(sender) => FlushBy::Stadds(sender),
            _ => FlushBy::Other,
        }
    }
}
