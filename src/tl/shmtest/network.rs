//! The transport as one of the networks of a context.

use super::address::ShmtestLocator;
use super::context::ShmtestContext;
use super::info;
use super::sender::ShmtestSender;
use super::worker::ShmtestWorker;
use crate::options::Options;
use crate::tl::address::WorkerAddress;
use crate::tl::iface_params::IfaceParams;
use crate::tl::lane_info::{LaneInfo, LaneState};
use crate::tl::network::{FoundDevices, Network};
use crate::tl::network_info::{NetworkInfo, ResourceQuery};
use crate::tl::program::Program;
use crate::tl::{Resource, TlWorker};
use std::io;

impl Network for ShmtestContext {
    const TRANSPORTS: &'static [&'static str] = &["shmtest"];
    /// Behind the numbers of the transports that are shipped.
    const SECTIONS: &'static [u8] = &[255];

    type Locator = ShmtestLocator;
    type PeerTarget = ShmtestLocator;
    type Sender = ShmtestSender;
    type Iface<P: Copy + Eq> = ShmtestWorker<P>;

    fn find(options: &Options, program: Program, _found: &mut FoundDevices) -> ShmtestContext {
        ShmtestContext::new(options, program)
    }

    fn may_reach(&self) -> bool {
        self.is_used()
    }

    fn is_sure(&self) -> bool {
        self.is_used()
    }

    fn program_obstacle(&self) -> Option<&'static str> {
        self.lacks_events().then_some(
            "the program uses UCP_FEATURE_WAKEUP, for which shmtest has no events; no other transport leads from one \
             end to the other (UCX_TLS)",
        )
    }

    fn open<P: Copy + Eq>(
        &self,
        params: &IfaceParams,
        _reaches_others: bool,
    ) -> io::Result<Option<Box<ShmtestWorker<P>>>> {
        self.open_iface(params.uid)
    }

    fn locator<P: Copy + Eq>(&self, iface: &ShmtestWorker<P>) -> ShmtestLocator {
        iface.locator()
    }

    fn encode(locator: &ShmtestLocator) -> Vec<(u8, Vec<u8>)> {
        vec![(Self::SECTIONS[0], locator.encode().to_vec())]
    }

    fn decode(_kind: u8, body: &[u8]) -> Option<ShmtestLocator> {
        ShmtestLocator::decode(body)
    }

    fn target(&self, own: &WorkerAddress, to: &WorkerAddress) -> Option<ShmtestLocator> {
        ShmtestLocator::between(own.shmtest.as_ref(), to.shmtest.as_ref())
    }
}

impl NetworkInfo for ShmtestContext {
    fn lane_info(
        &self,
        _worker: &TlWorker,
        _lane: LaneState,
        _target: Option<&ShmtestLocator>,
    ) -> Option<LaneInfo> {
        Some(info::lane())
    }

    fn resources(query: &mut ResourceQuery<'_>) -> Vec<Resource> {
        info::resources(query.options, query.max_eager)
    }
}
