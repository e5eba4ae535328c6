//! What the transports can use of this machine.

use super::contract::QpTransport;
use super::lane_info::{LaneInfo, LaneState};
use super::network_info::NetworkInfo;
use super::networks::networks;
use super::{LaneTarget, Resource, TlContext, TlWorker, cuda, shm, tcp};
use crate::options::Options;
use crate::sys::log;

pub use super::network_info::ResourceQuery;
pub use shm::info::MemoryUse;

macro_rules! resources {
    ($($(#[$cfg:meta])* $Kind:ident $net:ident $Context:ident;)* @) => {
        /// Resources that the options allow, preferred first.
        pub fn all(mut query: ResourceQuery<'_>, memory: MemoryUse) -> Vec<Resource> {
            let mut all = shm::info::resources(query.options, memory, query.max_eager);
            $(
                $(#[$cfg])*
                all.extend(super::$net::context::$Context::resources(&mut query));
            )*
            all.extend(cuda::info::resources(query.options));
            all
        }

        impl TlContext {
            /// Name and estimates of the lane to a peer through a network. `target`: where it leads, if that is known.
            pub fn lane_info(
                &self,
                worker: &TlWorker,
                lane: LaneState,
                target: Option<&LaneTarget>,
            ) -> Option<LaneInfo> {
                match target {
                    $(
                        $(#[$cfg])*
                        Some(LaneTarget::$Kind(target)) => self.$net.lane_info(worker, lane, Some(target)),
                    )*
                    // A peer that has connected to this worker.
                    None if lane.qp_transport == QpTransport::None => self.tcp.lane_info(worker, lane, None),
                    None => self.ib.lane_info(worker, lane, None),
                }
            }
        }
    };
}
networks!(resources);

/// Warns of values that no transport can use.
pub fn warn_of_options(options: &Options) {
    for name in tcp::device::unknown_families(&options.tcp.af_prio) {
        log::warn!("UCX_TCP_AF_PRIO names '{name}', which is no address family");
    }
}
