//! What queries and tools print of a network.

use super::contract::AmLimits;
use super::lane_info::{LaneInfo, LaneState};
use super::network::Network;
use super::resource::Resource;
use super::shared::TlWorker;
use crate::options::Options;

/// A query for the resources of all transports.
pub struct ResourceQuery<'a> {
    pub options: &'a Options,
    /// Longest message in one record, bytes.
    pub max_eager: usize,
    /// The same of a transport with limits of its own, printed; true: from user memory.
    pub longest: &'a dyn Fn(&AmLimits, bool) -> String,
    /// Names of InfiniBand and RoCE devices that were found.
    pub adapters: Vec<String>,
}

/// What is printed of a network. It decides nothing.
pub trait NetworkInfo: Network {
    /// Name and estimates of the lane to a peer. `target`: where it leads, if that is known.
    fn lane_info(
        &self,
        worker: &TlWorker,
        lane: LaneState,
        target: Option<&Self::PeerTarget>,
    ) -> Option<LaneInfo>;

    /// Resources that the options allow, preferred first.
    fn resources(query: &mut ResourceQuery<'_>) -> Vec<Resource>;
}
